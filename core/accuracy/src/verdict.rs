//! The verdict on one program: the shares of every estimator, the reliability of Dwell's confidence, the scores of the
//! culprits.
//!
//! Enters: a program joined with its truth. Leaves: plain figures, ready to be averaged, printed and drawn.

use dwell_analysis::{Cause, Confidence, ProcedureAnalysis};
use dwell_profile::Event;
use serde::Serialize;

use crate::{
    capture::Expectation,
    culprits::{self, Scores},
    estimators::{
        Estimates, clusters,
        dwell::{self, EvidenceKinds},
        naive, profi,
    },
    metrics::{self, Point, Scaling, Shares},
    points::{edge_points, indexed_instruction_points, instruction_points},
    program::{Evidence, Procedure, Program},
    reliability::{Judged, Reliability},
    sensitivity::{self, Sensitivity},
};

/// All figures of one program.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The name of its set.
    pub set: String,
    /// The program's name.
    pub program: String,
    /// Number of time samples in procedures.
    pub samples: u64,
    /// Share of them on instructions whose executions were not counted. They are not judged.
    pub unjudged_share: f64,
    /// The shares of each estimator.
    pub estimators: Vec<EstimatorVerdict>,
    /// The reliability of Dwell's confidence.
    pub reliability: Reliabilities,
    /// The reliability where instructions were counted. Out of order confidence can be more than low only then.
    pub reliability_counted: Option<Reliabilities>,
    /// The scores of causes and culprits by time samples alone; `None` if no simulator provided the truth.
    pub culprits: Option<Scores>,
    /// The scores with the samples of misses, if there are any.
    pub culprits_by_events: Option<Scores>,
    /// For a kernel, whether the analysis says what its comments do.
    pub expected: Option<ExpectedVerdict>,
    /// How the results degrade with less evidence.
    pub sensitivity: Vec<Sensitivity>,
    /// Descriptions of what could not be done.
    pub notes: Vec<String>,
}

/// Whether the analysis says what a kernel's comments do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExpectedVerdict {
    /// Number of comments.
    pub all: usize,
    /// The comments that the analysis contradicts: address, cause, what was expected, the causes reported instead, and
    /// the confidence.
    pub unmet: Vec<String>,
}

/// Reliability by each kind of error, as in [`Shares`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reliabilities {
    /// By the error without a scale.
    pub abs: Option<Reliability>,
    /// By the error with one scale for the program.
    pub prog: Reliability,
    /// By the error with one scale for each procedure.
    pub func: Reliability,
}

/// The figures of one estimator on one program.
#[derive(Clone, Debug, Serialize)]
pub struct EstimatorVerdict {
    /// The estimator's name.
    pub name: &'static str,
    /// Shares of instructions, weighted by samples.
    pub instructions: Shares,
    /// Shares of edges, weighted by executions.
    pub edges: Shares,
    /// Data of the pictures.
    #[serde(skip)]
    pub pictures: Pictures,
}

/// The data of one estimator's pictures: of instructions, weighted by samples, and of edges, weighted by executions.
#[derive(Clone, Debug, Default)]
pub struct Pictures {
    /// Share within 0, 1, … percent, for each of [`Scaling::ALL`]; empty where it has no meaning.
    pub curves: [Vec<f64>; 3],
    /// Shares of instructions by signed error, for each of [`Scaling::ALL`].
    pub instructions: [Vec<f64>; 3],
    /// Shares of edges by signed error, for each of [`Scaling::ALL`].
    pub edges: [Vec<f64>; 3],
}

/// Estimates of all procedures by one estimator.
pub struct NamedEstimates {
    /// The estimator's name.
    pub name: &'static str,
    /// The estimates of each procedure.
    pub estimates: Vec<Estimates>,
}

/// The name of Dwell's estimator with samples of retired instructions.
const COUNTED: &str = "dwell + instructions";

/// Judges all estimators, and their sensitivity if requested.
pub fn judge(set: &str, name: &str, program: &Program, has_sensitivity: bool) -> Verdict {
    let evidence = &program.evidence;
    let analyses = dwell::analyses(evidence, &evidence.model, EvidenceKinds::OWN);
    let mut notes = Vec::new();
    let all = estimates(evidence, &analyses, &mut notes);
    let samples = program.samples();
    if program.stray_samples > 0 {
        notes.push(format!("{} samples outside procedures are left out", program.stray_samples));
    }
    let has_misses =
        |p: &Procedure| p.events.keys().any(|e| e.name() != "instructions" && *e != Event::KERNEL_TIME);
    let by_events = evidence.procedures.iter().any(has_misses).then(|| {
        let analyses = dwell::analyses(evidence, &evidence.model, EvidenceKinds::MISSES);
        culprits::score(program, &analyses)
    });
    let judged: u64 = instruction_weights(program).sum();
    Verdict {
        set: set.to_owned(),
        program: name.to_owned(),
        samples,
        unjudged_share: 1.0 - judged as f64 / samples.max(1) as f64,
        estimators: all.iter().map(|n| estimator_verdict(program, n)).collect(),
        reliability: reliabilities(program, &analyses, &all[0].estimates),
        reliability_counted: counted_reliabilities(program, &all),
        culprits: culprits::score(program, &analyses),
        culprits_by_events: by_events.flatten(),
        expected: compare_expected(program, &analyses),
        sensitivity: if has_sensitivity { sensitivity::judge(name, program) } else { Vec::new() },
        notes,
    }
}

/// Compares the analysis by time samples alone with a kernel's comments; `None` if there are none.
pub fn expected(program: &Program) -> Option<ExpectedVerdict> {
    let evidence = &program.evidence;
    compare_expected(program, &dwell::analyses(evidence, &evidence.model, EvidenceKinds::OWN))
}

fn compare_expected(program: &Program, analyses: &[ProcedureAnalysis]) -> Option<ExpectedVerdict> {
    let mut verdict = ExpectedVerdict::default();
    for ((procedure, truth), analysis) in program.evidence.procedures.iter().zip(&program.truth).zip(analyses)
    {
        for &(i, expectation) in &truth.expected {
            verdict.all += 1;
            if !culprits::agrees(procedure, analysis, i, expectation) {
                let Expectation { address, cause, verdict: said } = expectation;
                let cost = &analysis.instructions[i];
                let instead: Vec<Cause> = cost.stalls.iter().map(|s| s.cause).collect();
                let confidence = cost.confidence;
                verdict
                    .unmet
                    .push(format!("{address:x} {cause:?} {said:x?} but {instead:?}, {confidence:?}"));
            }
        }
    }
    (verdict.all > 0).then_some(verdict)
}

/// Returns the estimates of every estimator that has the evidence it needs.
pub fn estimates(
    evidence: &Evidence,
    analyses: &[ProcedureAnalysis],
    notes: &mut Vec<String>,
) -> Vec<NamedEstimates> {
    let period = evidence.period_cycles.unwrap_or(1.0);
    let of = |estimate: &dyn Fn(usize) -> Estimates| (0..evidence.procedures.len()).map(estimate).collect();
    let procedure = |p: usize| &evidence.procedures[p];
    let ours = |name, analyses: &[ProcedureAnalysis]| NamedEstimates {
        name,
        estimates: of(&|p| dwell::estimate(&analyses[p], period)),
    };
    let mut all = vec![ours("dwell", analyses)];
    for (name, kinds) in variants(evidence) {
        all.push(ours(name, &dwell::analyses(evidence, &evidence.model, kinds)));
    }
    all.extend([
        NamedEstimates {
            name: "clusters",
            estimates: of(&|p| clusters::estimate(evidence, procedure(p), period)),
        },
        NamedEstimates {
            name: "samples / instructions",
            estimates: of(&|p| naive::by_instructions(procedure(p), period)),
        },
    ]);
    all.push(profi(evidence, period, notes));
    match &evidence.mca {
        Some(mca) => all.push(NamedEstimates {
            name: "samples / mca cycles",
            estimates: of(&|p| naive::by_mca(procedure(p), mca, period)),
        }),
        None => notes.push("no mca.tsv: samples / mca cycles is skipped".into()),
    }
    all
}

/// Estimates by minimum-cost flow. A procedure that is too large for it keeps the counts that the flow would start from.
fn profi(evidence: &Evidence, period_cycles: f64, notes: &mut Vec<String>) -> NamedEstimates {
    let mut skipped = 0;
    let mut of = |p: &Procedure| {
        profi::estimate(p, period_cycles).unwrap_or_else(|| {
            skipped += 1;
            naive::by_instructions(p, period_cycles)
        })
    };
    let estimates = evidence.procedures.iter().map(&mut of).collect();
    if skipped > 0 {
        notes.push(format!("minimum-cost flow: {skipped} procedures have over {} blocks", profi::BLOCKS_MAX));
    }
    NamedEstimates { name: "minimum-cost flow", estimates }
}

/// Returns the variants of Dwell's estimator, with more or less evidence, for which the capture has it.
fn variants(evidence: &Evidence) -> Vec<(&'static str, EvidenceKinds)> {
    let any = |f: &dyn Fn(&Procedure) -> bool| evidence.procedures.iter().any(f);
    let has_instructions = |p: &Procedure| p.events.keys().any(|e| e.name() == "instructions");
    let has_bursts = any(&|p| !p.transfers.is_empty());
    // Included even if breakpoint counts have no result, so that a row covers the same programs as the others.
    let has_windows = evidence.has_breakpoint_counts;
    let kinds = [
        ("dwell, time alone", EvidenceKinds::NONE, any(&|p| p.directions.iter().any(|&(t, n)| t + n > 0))),
        ("dwell + bursts", EvidenceKinds::BURSTS, has_bursts),
        ("dwell + windows", EvidenceKinds::WINDOWS, has_windows),
        ("dwell + bursts, windows", EvidenceKinds::BURSTS_AND_WINDOWS, has_bursts && has_windows),
        (COUNTED, EvidenceKinds::INSTRUCTIONS, any(&has_instructions)),
    ];
    kinds.into_iter().filter(|(.., has)| *has).map(|(name, kinds, _)| (name, kinds)).collect()
}

fn instruction_weights(program: &Program) -> impl Iterator<Item = u64> {
    let pairs = program.evidence.procedures.iter().zip(&program.truth);
    pairs.flat_map(|(p, t)| p.samples.iter().zip(&t.executions).filter(|(_, e)| e.is_some()).map(|(s, _)| *s))
}

fn estimator_verdict(program: &Program, named: &NamedEstimates) -> EstimatorVerdict {
    let instructions: Vec<Vec<Point>> = (0..named.estimates.len())
        .map(|p| {
            instruction_points(
                &program.evidence.procedures[p].samples,
                &program.truth[p],
                &named.estimates[p],
            )
        })
        .collect();
    let edges: Vec<Vec<Point>> =
        program.truth.iter().zip(&named.estimates).map(|(truth, e)| edge_points(truth, e)).collect();
    let scales = metrics::fit(&instructions);
    let is_absolute = program.is_absolute;
    let missing = program.unsampled_edge_executions as f64;
    let edge_executions: f64 = edges.iter().flatten().map(|e| e.weight).sum();
    let is_drawn = |s: &Scaling| is_absolute || *s != Scaling::Absolute;
    let curve = |s: Scaling| metrics::curve(metrics::scaled(&instructions, &scales, s));
    let histogram =
        |points: &[Vec<Point>], s| metrics::histogram(metrics::scaled(points, &scales, s)).to_vec();
    let draw = |of: &dyn Fn(Scaling) -> Vec<f64>| {
        Scaling::ALL.map(|s| if is_drawn(&s) { of(s) } else { Vec::new() })
    };
    EstimatorVerdict {
        name: named.name,
        instructions: metrics::shares(&instructions, &scales, is_absolute, 0.0),
        edges: metrics::shares(&edges, &scales, is_absolute, missing),
        pictures: Pictures {
            curves: draw(&curve),
            instructions: draw(&|s| histogram(&instructions, s)),
            edges: draw(&|s| with_missing(histogram(&edges, s), edge_executions, missing)),
        },
    }
}

/// Returns the reliability of Dwell's estimator with samples of retired instructions, if there are any.
fn counted_reliabilities(program: &Program, all: &[NamedEstimates]) -> Option<Reliabilities> {
    let named = all.iter().find(|n| n.name == COUNTED)?;
    let evidence = &program.evidence;
    let analyses = dwell::analyses(evidence, &evidence.model, EvidenceKinds::INSTRUCTIONS);
    Some(reliabilities(program, &analyses, &named.estimates))
}

fn reliabilities(
    program: &Program,
    analyses: &[ProcedureAnalysis],
    estimates: &[Estimates],
) -> Reliabilities {
    let points: Vec<Vec<(Point, Confidence)>> = (0..analyses.len())
        .map(|p| {
            let samples = &program.evidence.procedures[p].samples;
            let points = indexed_instruction_points(samples, &program.truth[p], &estimates[p]);
            points.map(|(i, point)| (point, analyses[p].instructions[i].confidence)).collect()
        })
        .collect();
    let bare: Vec<Vec<Point>> = points.iter().map(|p| p.iter().map(|(point, _)| *point).collect()).collect();
    let scales = metrics::fit(&bare);
    let by = |scale: &dyn Fn(usize) -> f64| {
        let all = points.iter().enumerate().flat_map(|(p, points)| {
            let scale = scale(p);
            points.iter().map(move |&(point, confidence)| Judged {
                weight: point.weight,
                confidence,
                error: point.error(scale),
            })
        });
        Reliability::new(all)
    };
    Reliabilities {
        abs: program.is_absolute.then(|| by(&|_| 1.0)),
        prog: by(&|_| scales.program),
        func: by(&|p| scales.procedures[p]),
    }
}

/// Adds `missing` weight to the last bucket of a histogram of `weight`.
fn with_missing(mut histogram: Vec<f64>, weight: f64, missing: f64) -> Vec<f64> {
    let total = (weight + missing).max(f64::MIN_POSITIVE);
    histogram.iter_mut().for_each(|share| *share *= weight / total);
    if let Some(last) = histogram.last_mut() {
        *last += missing / total;
    }
    histogram
}
