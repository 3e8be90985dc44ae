//! How often each block and edge was executed (DCPI §6.1.3–6.1.5).
//!
//! Input: samples, the graph, its classes, the schedule, and other evidence. Output: [`Estimates`]. In order: the mixture
//! likelihood of each class and the flow that fits all, with counts of executions where there are any; DCPI's clusters
//! and local propagation remain as the reference, and for graphs with missing edges. Out of order, where cycles say
//! little about frequency (docs/measured.md): branch probabilities from sampled directions, flow conservation, one scale
//! for the procedure. Frequencies are in units of samples: executions divided by the sampling period (DCPI's F).

mod absolute;
mod basis;
pub mod cluster;
mod confidence;
mod counted;
mod flow_fit;
mod heads;
mod in_order;
mod in_order_counts;
mod laplacian;
mod likely_flow;
mod markov;
mod mixture;
mod out_of_order;
mod points;
mod propagate;
mod retired;
mod skid;
mod stepped;
mod typical_cycles;

use crate::{
    AbsoluteCount, Basis, Confidence, Counted, Scale, ScaleKind, Transfer,
    cfg::Cfg,
    equivalence::Equivalence,
    machine::{MachineModel, Order, SkidRule},
    schedule::Schedule,
};

/// The evidence of a procedure's executions.
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    /// The model of the machine that was sampled.
    pub model: &'a MachineModel,
    /// The control-flow graph.
    pub cfg: &'a Cfg,
    /// The equivalence classes of its blocks and edges.
    pub equivalence: &'a Equivalence,
    /// The best-case schedule.
    pub schedule: &'a Schedule,
    /// Time samples by instruction.
    pub samples: &'a [u64],
    /// Observed directions by instruction: how often a conditional branch was taken, and how often not.
    pub directions: &'a [(u64, u64)],
    /// Transfers of control observed in path bursts.
    pub transfers: &'a [Transfer],
    /// Executions that breakpoints counted.
    pub counted: &'a [Counted],
    /// Samples of retired instructions, where they were counted.
    pub retired: Option<Retired<'a>>,
    /// Executions that were counted on a known scale.
    pub absolute: &'a [AbsoluteCount],
    /// Whether the scale is known from outside of the procedure, so that the deviation of each frequency is needed.
    pub is_anchored: bool,
}

/// Samples of the event `instructions`.
#[derive(Clone, Copy, Debug)]
pub struct Retired<'a> {
    /// Samples by instruction.
    pub samples: &'a [u64],
    /// The frequency that one sample of an instruction stands for: the event's period over the period of time samples in
    /// cycles.
    pub frequency: f64,
}

/// A frequency and how far to trust it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Executions divided by the sampling period.
    pub frequency: f64,
    /// How far to trust the frequency.
    pub confidence: Confidence,
}

/// The frequencies of a procedure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimates {
    /// The estimate of each block.
    pub blocks: Vec<Option<Estimate>>,
    /// The estimate of each edge of the graph.
    pub edges: Vec<Option<Estimate>>,
    /// The samples during which each instruction was the oldest to retire, with the skid undone.
    pub head_samples: Vec<f64>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The evidence that they are based on.
    pub basis: Basis,
    /// Their scale.
    pub scale: Scale,
    /// The standard deviation of the logarithm of each block's frequency, including that of the scale where the
    /// procedure's own evidence fixes it. Empty if it was not needed; confidence stands for it then.
    pub deviations: Vec<f64>,
    /// Whether the scale was counted in the procedure's code.
    pub counted_in_code: bool,
}

/// With fewer samples a procedure's estimates are guesses, and a note says so.
const FEW_SAMPLES: u64 = 30;

/// Estimates every block and edge. Without any sample nothing is estimated.
pub fn estimate(evidence: &Evidence) -> Estimates {
    let total: u64 = evidence.samples.iter().fold(0, |sum, &s| sum.saturating_add(s));
    let mut estimates = match evidence.model.order {
        _ if total == 0 => Estimates {
            blocks: vec![None; evidence.cfg.blocks.len()],
            edges: vec![None; evidence.cfg.edges.len()],
            head_samples: vec![0.0; evidence.samples.len()],
            notes: vec!["no estimate: the function has no samples".into()],
            ..Estimates::default()
        },
        Order::InOrder => in_order::estimate(evidence).unwrap_or_else(|| without_flow(evidence)),
        Order::OutOfOrder => out_of_order::estimate(evidence).unwrap_or_else(|| without_flow(evidence)),
    };
    if (1..FEW_SAMPLES).contains(&total) {
        let noun = if total == 1 { "sample" } else { "samples" };
        estimates.notes.push(format!("a guess: the function has {total} {noun}"));
        estimates
            .blocks
            .iter_mut()
            .chain(&mut estimates.edges)
            .flatten()
            .for_each(|e| e.confidence = Confidence::Low);
    }
    let is_enough = total >= FEW_SAMPLES;
    if is_enough && (evidence.model.order == Order::InOrder || estimates.basis.retired > 0) {
        let kinds = [(estimates.basis.retired > 0).then(|| basis::retired(&estimates.basis))];
        let time = (evidence.model.order == Order::InOrder)
            .then(|| "time, which determines frequencies in order".into());
        estimates.scale = Scale {
            kind: ScaleKind::Absolute,
            deviation: 0.0,
            headroom: 1.0,
            evidence: kinds.into_iter().flatten().chain(time).collect(),
        };
    }
    debug_assert_eq!(estimates.verify(), Ok(()));
    estimates
}

impl Estimates {
    /// Multiplies all frequencies, unless they were counted.
    pub fn multiply(&mut self, factor: f64) {
        if self.basis.retired > 0 {
            return; // These frequencies were counted, so they are not guesses.
        }
        let estimates = self.blocks.iter_mut().chain(&mut self.edges).flatten();
        estimates.for_each(|e| e.frequency = (e.frequency * factor).min(f64::MAX));
    }

    /// Checks that nothing is negative or not a number.
    pub fn verify(&self) -> Result<(), String> {
        let bad = |f: f64| !f.is_finite() || f < 0.0;
        let frequencies = self.blocks.iter().chain(&self.edges).flatten().map(|e| e.frequency);
        match frequencies.chain(self.head_samples.iter().copied()).find(|&f| bad(f)) {
            Some(f) => Err(format!("an estimate is {f}")),
            None => Ok(()),
        }
    }
}

/// Estimates a procedure for which no flow can be solved.
fn without_flow(evidence: &Evidence) -> Estimates {
    let is_in_order = evidence.model.order == Order::InOrder;
    let by_class = is_in_order.then(|| in_order::by_class_points(evidence)).flatten();
    let mut estimates = by_class.unwrap_or_else(|| by_clusters(evidence));
    if !evidence.cfg.missing_edges {
        estimates.notes.push("the function's control flow is too irregular: flow is not conserved".into());
    }
    estimates
}

/// Estimates as DCPI does, as the reference: each class by its clusters, then local propagation.
pub fn by_clusters(evidence: &Evidence) -> Estimates {
    let Evidence { model, cfg, equivalence, schedule, samples, .. } = *evidence;
    let head_samples = match model.skid {
        SkidRule::Head => samples.iter().map(|&s| s as f64).collect(),
        SkidRule::AfterNextToRetire => {
            let shares = skid::edge_shares_by_samples(cfg, samples);
            skid::undo(evidence, &shares)
        }
    };
    let mut classes = vec![None; equivalence.classes];
    for (class, blocks) in equivalence.blocks_by_class().iter().enumerate().filter(|(_, b)| !b.is_empty()) {
        let ranges = blocks.iter().map(|&b| cfg.blocks[b].clone());
        let points = cluster::Points::new(schedule, &head_samples, ranges);
        let found = cluster::estimate(&points, model);
        let confidence = confidence::from_cluster(&found, model.order);
        classes[class] = Some(Estimate { frequency: found.frequency, confidence });
    }
    Estimates { head_samples, ..by_classes(evidence, classes) }
}

/// Takes the estimates of classes and propagates them locally.
fn by_classes(evidence: &Evidence, mut classes: Vec<Option<Estimate>>) -> Estimates {
    let Evidence { cfg, equivalence, .. } = *evidence;
    let unknown = "the targets of an indirect jump are unknown: each block is estimated by itself";
    propagate::propagate(cfg, equivalence, &mut classes);
    let of = |class: &usize| classes[*class];
    Estimates {
        blocks: equivalence.block_class.iter().map(of).collect(),
        edges: equivalence.edge_class.iter().map(of).collect(),
        notes: cfg.missing_edges.then(|| unknown.into()).into_iter().collect(),
        ..Estimates::default()
    }
}
