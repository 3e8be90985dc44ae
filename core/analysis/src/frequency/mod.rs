//! How often each block and edge was executed (DCPI §6.1.3–6.1.5).
//!
//! Input: samples, the graph, its classes, the schedule, and what else was seen. Output: [`Estimates`]. In order:
//! the mixture likelihood of each class and the flow that fits all; DCPI's clusters and local propagation stay as the
//! reference, and where edges are missing; what was counted of executions joins in. Out of order, where cycles say little about frequency
//! (docs/measured.md): branch probabilities from sampled directions, flow conservation, one scale for the procedure.
//! Frequencies are in samples' units: executions divided by the sampling period (DCPI's F).

mod absolute;
mod basis;
pub mod cluster;
mod confidence;
mod counted;
mod electric;
mod flow_fit;
mod heads;
mod in_order;
mod in_order_counts;
mod likely_flow;
mod markov;
mod mixture;
mod out_of_order;
mod points;
mod propagate;
mod retired;
mod skid;
mod stepped;
mod usual;

use crate::{
    AbsoluteCount, Basis, Confidence, Counted, Scale, ScaleKind, Transfer,
    cfg::Cfg,
    equivalence::Equivalence,
    machine::{MachineModel, Order, SkidRule},
    schedule::Schedule,
};

/// What is known of a procedure's executions.
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    /// The machine that was sampled.
    pub model: &'a MachineModel,
    /// Blocks and edges.
    pub cfg: &'a Cfg,
    /// Their classes.
    pub equivalence: &'a Equivalence,
    /// The model's expectation.
    pub schedule: &'a Schedule,
    /// Time samples by instruction.
    pub samples: &'a [u64],
    /// By instruction: how often a conditional branch was seen about to be taken, and not.
    pub directions: &'a [(u64, u64)],
    /// Transfers of control seen while single-stepping.
    pub transfers: &'a [Transfer],
    /// Executions that were counted.
    pub counted: &'a [Counted],
    /// Samples of retired instructions, where they were counted.
    pub retired: Option<Retired<'a>>,
    /// Executions whose scale is known.
    pub absolute: &'a [AbsoluteCount],
    /// Whether the scale is known from outside of the procedure, so that it matters how sure each frequency is.
    pub is_anchored: bool,
}

/// Samples of the event `instructions`.
#[derive(Clone, Copy, Debug)]
pub struct Retired<'a> {
    /// By instruction.
    pub samples: &'a [u64],
    /// Frequency that one sample of an instruction stands for: the event's period over the time samples' period in
    /// cycles.
    pub frequency: f64,
}

/// One frequency and how far to trust it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Executions divided by the sampling period.
    pub frequency: f64,
    /// How far to trust it.
    pub confidence: Confidence,
}

/// The frequencies of a procedure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimates {
    /// By block.
    pub blocks: Vec<Option<Estimate>>,
    /// By edge of the graph.
    pub edges: Vec<Option<Estimate>>,
    /// By instruction: the samples during which it was at the head of the machine, skid undone.
    pub head_samples: Vec<f64>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// What they rest on.
    pub basis: Basis,
    /// What is known of their scale.
    pub scale: Scale,
    /// By block, where somebody needs it: the standard deviation of its frequency's logarithm, with that of the scale where the
    /// procedure's own evidence fixes it; without it confidence tells.
    pub deviations: Vec<f64>,
}

/// Below this a procedure's estimates are guesses, and a note says so.
const FEW_SAMPLES: u64 = 30;

/// Estimates every block and edge. Without any sample nothing is estimated.
pub fn estimate(evidence: &Evidence) -> Estimates {
    let total: u64 = evidence.samples.iter().fold(0, |sum, &s| sum.saturating_add(s));
    let mut estimates = match evidence.model.order {
        _ if total == 0 => Estimates {
            blocks: vec![None; evidence.cfg.blocks.len()],
            edges: vec![None; evidence.cfg.edges.len()],
            head_samples: vec![0.0; evidence.samples.len()],
            notes: vec!["no estimate: the procedure has no samples".into()],
            ..Estimates::default()
        },
        Order::InOrder => in_order::estimate(evidence).unwrap_or_else(|| without_flow(evidence)),
        Order::OutOfOrder => out_of_order::estimate(evidence).unwrap_or_else(|| without_flow(evidence)),
    };
    if (1..FEW_SAMPLES).contains(&total) {
        let noun = if total == 1 { "sample" } else { "samples" };
        estimates.notes.push(format!("a guess: the procedure has {total} {noun}"));
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
        let time =
            (evidence.model.order == Order::InOrder).then(|| "time, which fixes frequencies in order".into());
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
    /// Multiplies all frequencies.
    pub fn multiply(&mut self, factor: f64) {
        if self.basis.retired > 0 {
            return; // counted, not guessed
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

/// Where no flow can be solved for.
fn without_flow(evidence: &Evidence) -> Estimates {
    let is_in_order = evidence.model.order == Order::InOrder;
    let apart = is_in_order.then(|| in_order::apart(evidence)).flatten();
    let mut estimates = apart.unwrap_or_else(|| by_clusters(evidence));
    if !evidence.cfg.missing_edges {
        estimates.notes.push("the procedure's jumps are too tangled: flow is not conserved".into());
    }
    estimates
}

/// DCPI's way, the reference: each class by its clusters, then local propagation.
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
        let points = cluster::Points::of(schedule, &head_samples, ranges);
        let found = cluster::estimate(&points, model);
        let confidence = confidence::of_cluster(&found, model.order);
        classes[class] = Some(Estimate { frequency: found.frequency, confidence });
    }
    Estimates { head_samples, ..by_classes(evidence, classes) }
}

/// Each class by itself, then local propagation.
fn by_classes(evidence: &Evidence, mut classes: Vec<Option<Estimate>>) -> Estimates {
    let Evidence { cfg, equivalence, .. } = *evidence;
    let unknown = "an indirect jump's targets are unknown: every block is estimated on its own";
    propagate::propagate(cfg, equivalence, &mut classes);
    let of = |class: &usize| classes[*class];
    Estimates {
        blocks: equivalence.block_class.iter().map(of).collect(),
        edges: equivalence.edge_class.iter().map(of).collect(),
        notes: cfg.missing_edges.then(|| unknown.into()).into_iter().collect(),
        ..Estimates::default()
    }
}
