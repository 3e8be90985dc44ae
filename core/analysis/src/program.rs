//! One scale for all procedures of a program, by the calls between them.
//!
//! Input: each procedure's own frequencies (right up to a factor, out of order), how often it is entered, what it
//! calls, and bursts whose time is known. Output: a factor for each procedure. Complexity: a bounded number of passes over
//! procedures, calls and timed bursts.
//!
//! Out of order the cycles of one procedure fix its scale only up to a factor of about 1.5 to 2, since any of its loops
//! may stall throughout (docs/measured.md). But a procedure is entered as often as it is called: flow is conserved
//! between procedures as it is between blocks, and direct calls name their callee. We minimise the squared logarithms of
//! the factors, of entries over calls, and of transfers in bursts over the procedure's own estimate, each in units of its
//! uncertainty; calls with Student's t, since pointers and other images may call as well. Procedures whose own executions were
//! counted keep their scale. Bursts whose time is known fix the scale of all. The method is Gauss-Newton, with conjugate
//! gradients for its linear systems.

mod bursts;
mod problem;
mod timed;

use std::collections::BTreeMap;

pub use bursts::{Burst, BurstPart, BurstTransfer, Bursts, rest};
use dwell_image::{Flow, ImageAddress, Instruction};
use problem::Problem;
use rustc_hash::FxHashMap;

use crate::{Block, Counted, OuterScale, ProcedureAnalysis, Scale, ScaleKind, Transfer};

/// Least standard deviation of a scale's logarithm where the procedure's own evidence fixes it.
const COUNTED_DEVIATION: f64 = 0.01;
const ROUNDS: usize = 12;
/// The absolute value of a factor's logarithm is at most this.
const LOG_MAX: f64 = 20.0;

/// A procedure that was analysed by itself.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The procedure's instructions.
    pub instructions: &'a [Instruction],
    /// The procedure's analysis with an outer factor of 1.
    pub analysis: &'a ProcedureAnalysis,
    /// The procedure's transfers in path bursts and branch stacks.
    pub transfers: &'a [Transfer],
    /// The procedure's breakpoint counts.
    pub counted: &'a [Counted],
    /// The procedure's transfers in each path burst.
    pub bursts: &'a [BurstTransfer],
}

/// This is an estimate of a procedure's scale from the breakpoint counts of one group of places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountedShape {
    /// The group's number. Its places are on one scale throughout the program.
    pub group: usize,
    /// Logarithm of the counted executions over the procedure's own estimate.
    pub log: f64,
    /// Variance of `log`.
    pub variance: f64,
}

/// One procedure, reduced to what matters for the scales of others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// How often it is entered, by its own estimate.
    pub entries: f64,
    /// The indices of the procedures that it calls, and how often, by its own estimate.
    pub calls: Vec<(usize, f64)>,
    /// Number of transfers of control that bursts record, by its own estimate.
    pub transfers: f64,
    /// Number of transfers in bursts and branch stacks, on a scale that the whole program shares.
    pub stepped: f64,
    /// Standard deviation of the logarithm of its own scale, where its own evidence fixes that.
    pub own_deviation: Option<f64>,
    /// The factor by which its frequencies can grow before they exceed the limits of the processor.
    pub headroom: f64,
    /// Number of time samples.
    pub samples: f64,
    /// Breakpoint counts give these estimates of the procedure's scale, one for each group of places.
    pub counted: Vec<CountedShape>,
    /// Its parts of the bursts, by ascending burst.
    pub parts: Vec<BurstPart>,
}

/// Returns the shapes of a program's procedures.
pub fn shapes(members: &[Member]) -> Vec<Shape> {
    let entry = |(at, m): (usize, &Member)| Some((m.instructions.first()?.address, at));
    let entries: FxHashMap<ImageAddress, usize> = members.iter().enumerate().filter_map(entry).collect();
    members.iter().map(|m| shape(m, &entries)).collect()
}

fn shape(member: &Member, entries: &FxHashMap<ImageAddress, usize>) -> Shape {
    let Member { instructions, analysis, transfers, counted, .. } = *member;
    let frequency = |block: usize| analysis.blocks.get(block).and_then(|b| b.frequency).unwrap_or(0.0);
    let mut left: Vec<f64> = (0..analysis.blocks.len()).map(frequency).collect();
    let mut entered = frequency(0);
    for edge in &analysis.edges {
        left[edge.from] -= edge.frequency.unwrap_or(0.0);
        entered -= if edge.to == 0 { edge.frequency.unwrap_or(0.0) } else { 0.0 };
    }
    let is_left = transfers.iter().any(|t| t.is_sound() && t.to.is_none());
    let is_recorded = |i: usize| match instructions.get(i).map(|i| i.flow) {
        Some(Flow::Branch { .. }) => true,
        Some(flow) => is_left && !matches!(flow, Flow::Next | Flow::Stop),
        None => false,
    };
    let parts = bursts::parts(member.bursts, is_recorded);
    let stepped = transfers.iter().filter(|t| is_recorded(t.from) && t.is_sound()).map(|t| t.count).sum();
    let recorded = |b: &Block| b.instructions.clone().filter(|&i| is_recorded(i)).count() as f64;
    let transfers = analysis.blocks.iter().enumerate().map(|(b, block)| recorded(block) * frequency(b)).sum();
    let mut calls = Vec::new();
    for (b, block) in analysis.blocks.iter().enumerate() {
        for i in block.instructions.clone() {
            let (target, count) = match instructions[i].flow {
                Flow::Call { target: Some(target) } => (target, frequency(b)),
                // In a tail call, executions that do not stay in the procedure are calls.
                Flow::Jump { target } | Flow::Branch { target } => (target, left[b]),
                _ => continue,
            };
            let is_own =
                instructions[0].address <= target && target <= instructions[instructions.len() - 1].address;
            let is_jump = !matches!(instructions[i].flow, Flow::Call { .. });
            if let Some(&callee) = entries.get(&target).filter(|_| count > 0.0 && !(is_own && is_jump)) {
                calls.push((callee, count));
            }
        }
    }
    let Scale { kind, deviation, headroom, .. } = analysis.scale;
    let own_deviation = (kind == ScaleKind::Absolute).then(|| deviation.max(COUNTED_DEVIATION));
    let counted = counted_shapes(analysis, counted);
    let samples = analysis.instructions.iter().map(|i| i.head_samples).sum();
    Shape {
        entries: entered.max(0.0),
        calls,
        transfers,
        stepped,
        own_deviation,
        headroom,
        samples,
        counted,
        parts,
    }
}

fn counted_shapes(analysis: &ProcedureAnalysis, counted: &[Counted]) -> Vec<CountedShape> {
    let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for counted in counted.iter().filter(|c| c.is_sound()) {
        let own = analysis.instructions.get(counted.at).and_then(|i| i.frequency);
        let Some(own) = own.filter(|f| is_sound(*f)) else { continue };
        let certainty = 1.0 / (counted.deviation * counted.deviation);
        let (logs, total) = sums.entry(counted.group).or_default();
        *logs += certainty * (counted.executions / own).ln();
        *total += certainty;
    }
    let of = |(group, (logs, total)): (usize, (f64, f64))| CountedShape {
        group,
        log: logs / total,
        variance: 1.0 / total,
    };
    sums.into_iter().map(of).collect()
}

/// Returns the scale of each procedure's frequencies, as far as the others and bursts determine it.
pub fn scales(shapes: &[Shape], bursts: &Bursts) -> Vec<OuterScale> {
    let mut problem = Problem::new(shapes, bursts);
    let mut logs = problem.start();
    descend(&problem, &mut logs);
    problem.fit_errors(&logs);
    descend(&problem, &mut logs);
    let mut deviations = problem.deviations(&logs);
    logs.truncate(shapes.len());
    if shapes.iter().all(|s| s.own_deviation.is_none()) {
        let untimed = bursts::runs_untimed(shapes, bursts);
        deviations.iter_mut().zip(untimed).filter(|d| d.1).for_each(|d| *d.0 = f64::INFINITY);
    }
    let factors: Vec<f64> = logs.iter().map(|l| l.clamp(-LOG_MAX, LOG_MAX).exp()).collect();
    debug_assert_eq!(verify_scales(&factors, shapes, problem.is_fixed()), Ok(()));
    let joined = joined(shapes);
    let common = common_headroom(shapes, &factors, |p| joined[p] && !is_absolute(deviations[p])).min(1.0);
    let known = Known {
        anchors: shapes.iter().filter(|s| s.own_deviation.is_some()).count(),
        timed: problem.timed_bursts(),
    };
    let of = |procedure: usize| {
        let deviation = deviations[procedure];
        let kind = match () {
            () if is_absolute(deviation) => ScaleKind::Absolute,
            () if joined[procedure] => ScaleKind::Program,
            () => ScaleKind::Procedure,
        };
        let is_joined = shapes[procedure].own_deviation.is_none() && kind > ScaleKind::Procedure;
        OuterScale {
            factor: factors[procedure] * if kind == ScaleKind::Program { common } else { 1.0 },
            deviation: if kind == ScaleKind::Absolute { deviation } else { f64::INFINITY },
            evidence: if is_joined { evidence(&shapes[procedure], kind, known) } else { Vec::new() },
            kind,
        }
    };
    (0..shapes.len()).map(of).collect()
}

/// Moves the logarithms of the factors to where the problem's sum of squares is least.
fn descend(problem: &Problem, logs: &mut [f64]) {
    for _ in 0..ROUNDS {
        let step = problem.step(logs);
        let largest = step.iter().fold(0.0, |m: f64, s| m.max(s.abs()));
        if step.iter().any(|s| !s.is_finite()) {
            break;
        }
        let part = (1.0 / largest.max(f64::MIN_POSITIVE)).min(1.0);
        logs.iter_mut().zip(&step).for_each(|(l, s)| *l += part * s);
        if largest < 1e-4 {
            break;
        }
    }
}

/// Whether a scale with this deviation may be absolute. The procedure's own uncertainty is added later.
fn is_absolute(deviation: f64) -> bool {
    const DEVIATION_MAX: f64 = 0.2;
    deviation <= DEVIATION_MAX
}

/// These are the numbers of what fixes the scale of the program.
#[derive(Clone, Copy)]
struct Known {
    /// Number of procedures whose own executions were counted.
    anchors: usize,
    /// Number of bursts whose time is known.
    timed: usize,
}

/// Describes what joins a procedure to others, and what fixes the scale of all.
fn evidence(shape: &Shape, kind: ScaleKind, Known { anchors, timed }: Known) -> Vec<String> {
    let ways = match (shape.stepped > 0.0, !shape.counted.is_empty()) {
        (true, true) => "calls, bursts and counted windows",
        (true, false) => "calls and bursts",
        (false, true) => "calls and counted windows",
        (false, false) => "calls",
    };
    let joining = match (kind, anchors) {
        (ScaleKind::Absolute, 1..) => {
            format!("{ways} that join it to {anchors} functions whose executions were counted")
        }
        _ => format!("{ways} that join it to other functions"),
    };
    let is_timed = kind == ScaleKind::Absolute && timed > 0;
    let bursts = is_timed.then(|| format!("{timed} bursts whose time is known"));
    bursts.into_iter().chain([joining]).collect()
}

/// Returns which procedures are joined to others.
fn joined(shapes: &[Shape]) -> Vec<bool> {
    let mut joined: Vec<bool> = shapes
        .iter()
        .map(|s| !s.calls.is_empty() || is_sound(s.stepped) && is_sound(s.transfers) || !s.counted.is_empty())
        .collect();
    shapes.iter().flat_map(|s| &s.calls).for_each(|&(callee, _)| joined[callee] = true);
    joined
}

/// Returns the factor by which the frequencies of all procedures that `takes_part` can grow before too many of their
/// samples are in procedures that exceed the limits of the processor.
fn common_headroom(shapes: &[Shape], factors: &[f64], takes_part: impl Fn(usize) -> bool) -> f64 {
    const IMPOSSIBLE_PART_MAX: f64 = 0.05;
    let room = |p: usize| (shapes[p].headroom / factors[p], shapes[p].samples);
    let mut rooms: Vec<(f64, f64)> = (0..shapes.len())
        .filter(|&p| takes_part(p))
        .map(room)
        .filter(|r| is_sound(r.0) && r.1 > 0.0)
        .collect();
    rooms.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let most = IMPOSSIBLE_PART_MAX * rooms.iter().map(|r| r.1).sum::<f64>();
    let mut below = 0.0;
    let first = rooms.iter().find(|(_, samples)| {
        below += samples;
        below > most
    });
    first.map_or(1.0, |r| r.0)
}

/// Checks that each procedure has a factor within bounds, and that procedures without calls, bursts and breakpoint counts
/// keep their own scale. `is_fixed` is whether the scale of any procedure is known.
fn verify_scales(factors: &[f64], shapes: &[Shape], is_fixed: bool) -> Result<(), String> {
    // Where the scale of one procedure is known, the guesses of all others are corrected by their common error.
    let mut has_evidence = vec![is_fixed; shapes.len()];
    for (at, shape) in shapes.iter().enumerate() {
        has_evidence[at] |= !shape.calls.is_empty() || shape.stepped > 0.0 || !shape.counted.is_empty();
        shape.calls.iter().for_each(|&(callee, _)| has_evidence[callee] = true);
    }
    let is_sound = |(factor, has_evidence): (&f64, &bool)| {
        let is_within = factor.is_finite() && (factor.ln().abs() <= LOG_MAX * (1.0 + 1e-9));
        is_within && (*has_evidence || *factor == 1.0)
    };
    match factors.iter().zip(&has_evidence).position(|f| !is_sound(f)) {
        Some(at) => Err(format!("procedure {at} has the factor {}", factors[at])),
        None if factors.len() != shapes.len() => Err(format!("{} factors", factors.len())),
        None => Ok(()),
    }
}

/// Whether a frequency is neither almost 0 nor an overflow.
fn is_sound(frequency: f64) -> bool {
    frequency > 1e-150 && frequency < 1e150
}

#[cfg(test)]
mod tests;
