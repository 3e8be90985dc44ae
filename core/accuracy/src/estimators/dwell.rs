//! Dwell's estimator, as shipped: the analysis of every procedure, and its frequencies.

use dwell_analysis::{
    Counted, MachineModel, OuterScale, ProcedureAnalysis, ProcedureInput, Transfer, analyze_verified,
    machine::Order,
    program::{self, Bursts, Member},
};
use dwell_profile::Event;
use rustc_hash::FxHashMap;

use super::Estimates;
use crate::program::{Evidence, Procedure};

/// The evidence that the analysis receives besides time samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvidenceKinds {
    /// Whether it receives directions of branches in the samples' registers.
    pub directions: bool,
    /// Whether it receives path bursts.
    pub bursts: bool,
    /// Whether it receives samples of retired instructions.
    pub instructions: bool,
    /// Whether it receives samples of all other events: misses, which bound what causes can explain.
    pub misses: bool,
    /// Whether it receives breakpoint counts.
    pub windows: bool,
}

impl EvidenceKinds {
    /// What every sample of time provides.
    pub const OWN: EvidenceKinds =
        EvidenceKinds { directions: true, bursts: false, instructions: false, misses: false, windows: false };
    /// Breakpoint counts in addition.
    pub const WINDOWS: EvidenceKinds = EvidenceKinds { windows: true, ..EvidenceKinds::OWN };
    /// Time alone.
    pub const NONE: EvidenceKinds = EvidenceKinds { directions: false, ..EvidenceKinds::OWN };
    /// Samples of misses in addition.
    pub const MISSES: EvidenceKinds = EvidenceKinds { misses: true, ..EvidenceKinds::OWN };
    /// Path bursts in addition.
    pub const BURSTS: EvidenceKinds = EvidenceKinds { bursts: true, ..EvidenceKinds::OWN };
    /// Path bursts and breakpoint counts in addition.
    pub const BURSTS_AND_WINDOWS: EvidenceKinds = EvidenceKinds { bursts: true, ..EvidenceKinds::WINDOWS };
    /// Samples of retired instructions in addition.
    pub const INSTRUCTIONS: EvidenceKinds = EvidenceKinds { instructions: true, ..EvidenceKinds::OWN };
}

/// The input of the analysis of one procedure.
struct AnalysisEvidence<'a> {
    directions: &'a [(u64, u64)],
    transfers: &'a [Transfer],
    counted: Vec<Counted>,
    events: std::collections::BTreeMap<Event, (Vec<u64>, u64)>,
}

/// Procedures with fewer samples do not contribute to the program's scale, as in `core/query/src/analyse/scales.rs`.
const SAMPLES_MIN: u64 = 10;
/// Only this many of the hottest procedures contribute to the program's scale.
const PROCEDURES_MAX: usize = 300;

/// Analyses every procedure, as `core/query` does. Out of order hot procedures share one scale, by their calls; in order
/// cycles fix the scale of each. Nothing else in this crate calls the analysis.
///
/// # Panics
///
/// If a result is impossible on the processor: such an analysis must not be judged, but mended.
pub fn analyses(evidence: &Evidence, model: &MachineModel, kinds: EvidenceKinds) -> Vec<ProcedureAnalysis> {
    let given: Vec<AnalysisEvidence> =
        evidence.procedures.iter().map(|p| select_evidence(p, kinds)).collect();
    let one = |p: usize, outer: OuterScale| {
        let procedure = &evidence.procedures[p];
        let analysis = analyze_verified(&input(evidence, procedure, &given[p], outer), model);
        analysis.unwrap_or_else(|why| panic!("{}: impossible: {why}", procedure.name))
    };
    let mut analyses: Vec<ProcedureAnalysis> =
        (0..given.len()).map(|p| one(p, OuterScale::default())).collect();
    if model.order == Order::InOrder {
        return analyses;
    }
    let hot = hottest(evidence);
    let members: Vec<Member> = hot
        .iter()
        .map(|&p| Member {
            instructions: &evidence.procedures[p].instructions,
            analysis: &analyses[p],
            transfers: given[p].transfers,
            counted: &given[p].counted,
            bursts: &[],
        })
        .collect();
    let scales = program::scales(&program::shapes(&members), &Bursts::default());
    for (&p, scale) in hot.iter().zip(scales) {
        analyses[p] = one(p, scale);
    }
    analyses
}

/// Returns the indices of the procedures that share a scale, hottest first.
fn hottest(evidence: &Evidence) -> Vec<usize> {
    let samples = |p: &usize| evidence.procedures[*p].samples.iter().sum::<u64>();
    let mut hot: Vec<usize> = (0..evidence.procedures.len()).filter(|p| samples(p) >= SAMPLES_MIN).collect();
    hot.sort_by_key(|p| std::cmp::Reverse(samples(p)));
    hot.truncate(PROCEDURES_MAX);
    hot
}

fn select_evidence(procedure: &Procedure, kinds: EvidenceKinds) -> AnalysisEvidence<'_> {
    let is_given = |event: &Event| match event.name() {
        "instructions" => kinds.instructions,
        _ => kinds.misses || *event == Event::KERNEL_TIME,
    };
    let events = procedure.events.iter().filter(|(event, _)| is_given(event));
    AnalysisEvidence {
        directions: if kinds.directions { &procedure.directions } else { &[] },
        transfers: if kinds.bursts { &procedure.transfers } else { &[] },
        counted: if kinds.windows { procedure.counted.clone() } else { Vec::new() },
        events: events.map(|(event, counts)| (event.clone(), counts.clone())).collect(),
    }
}

fn input<'a>(
    evidence: &Evidence,
    procedure: &'a Procedure,
    given: &'a AnalysisEvidence,
    outer: OuterScale,
) -> ProcedureInput<'a> {
    ProcedureInput {
        arch: evidence.arch,
        instructions: &procedure.instructions,
        jump_targets: &procedure.jump_targets,
        time_samples: &procedure.samples,
        period_cycles: evidence.period_cycles,
        event_samples: &given.events,
        branch_directions: given.directions,
        transfers: given.transfers,
        counted: &given.counted,
        absolute: &[],
        outer,
    }
}

/// Converts frequencies into executions.
pub fn estimate(analysis: &ProcedureAnalysis, period_cycles: f64) -> Estimates {
    let executions = |frequency: Option<f64>| frequency.map(|f| f * period_cycles);
    let mut edges = FxHashMap::default();
    for edge in &analysis.edges {
        let places =
            (analysis.blocks[edge.from].instructions.end - 1, analysis.blocks[edge.to].instructions.start);
        if let Some(more) = executions(edge.frequency) {
            *edges.entry(places).or_default() += more;
        }
    }
    Estimates { instructions: analysis.instructions.iter().map(|i| executions(i.frequency)).collect(), edges }
}
