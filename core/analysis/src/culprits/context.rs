//! One procedure, as the rules see it: its graph, model, frequencies and other evidence.
//!
//! Enters: the tables of the analysis. Leaves: [`ProcedureContext`], with what rules ask of a block and its predecessors. Never here: a
//! rule for a cause.

use std::{collections::BTreeMap, ops::Range};

use dwell_image::{Arch, Instruction};
use dwell_profile::Event;

use super::facts::ProcedureFacts;
use crate::{
    Confidence,
    cfg::{Cfg, EdgeKind},
    frequency::Estimates,
    machine::{MachineModel, Opcode, OpcodeClass, Order},
    schedule::Schedule,
};

/// A predecessor is ignored if it is executed less than this part of the stalled block's executions.
const RARE_PART: f64 = 0.02;
/// Samples that a block must have before a predecessor without any counts as rare.
const BLOCK_SAMPLES_MIN: f64 = 100.0;

/// What the search looks at.
#[derive(Clone, Copy)]
pub struct ProcedureContext<'a> {
    /// The machine that was sampled.
    pub model: &'a MachineModel,
    /// Its instruction set.
    pub arch: Arch,
    /// The procedure.
    pub instructions: &'a [Instruction],
    /// Its graph.
    pub cfg: &'a Cfg,
    /// The model's expectation.
    pub schedule: &'a Schedule,
    /// Frequencies.
    pub estimates: &'a Estimates,
    /// How often branches were seen to go either way.
    pub directions: &'a [(u64, u64)],
    /// Other events' samples and periods.
    pub events: &'a BTreeMap<Event, (Vec<u64>, u64)>,
    /// Cycles between two time samples, where known: without it event samples bound nothing.
    pub period_cycles: Option<f64>,
    /// What was computed once for all inquiries.
    pub facts: &'a ProcedureFacts,
}

impl<'a> ProcedureContext<'a> {
    /// The block of instruction `i`.
    pub fn block_of(&self, i: usize) -> usize {
        self.facts.block_of[i]
    }

    /// The block's frequency, 0 where unknown.
    pub fn frequency(&self, block: usize) -> f64 {
        self.estimates.blocks[block].map_or(0.0, |e| e.frequency)
    }

    /// What instruction `i` does.
    pub fn opcode(&self, i: usize) -> Opcode {
        self.schedule.opcodes[i]
    }

    /// Whether the machine's head waits for its elders' results.
    pub fn is_in_order(&self) -> bool {
        self.model.order == Order::InOrder
    }

    /// Whether time passes elsewhere between `i` and what follows it.
    pub fn leaves(&self, i: usize) -> bool {
        matches!(self.opcode(i).class, OpcodeClass::Call | OpcodeClass::System)
    }

    /// Blocks that run right before `block`, with their edges; rare ones are ignored (DCPI §6.3). `None` stands for
    /// the world outside.
    pub fn predecessors(
        &self,
        block: usize,
    ) -> impl Iterator<Item = (usize, Option<Range<usize>>)> + use<'a> {
        let context = *self;
        let edges = context.cfg.predecessors[block].iter().copied();
        edges.filter(move |&edge| !context.is_rare(edge, block)).flat_map(move |edge| {
            let from = context.cfg.edges[edge].from;
            let is_unseen = context.cfg.edges[edge].kind == EdgeKind::Unseen;
            let by_jump = if is_unseen { &context.facts.unknown_jumps[..] } else { &[] };
            let known = by_jump.is_empty().then_some(from);
            let sources = by_jump.iter().copied().chain(known);
            sources.map(move |from| (edge, context.cfg.blocks.get(from).cloned()))
        })
    }

    /// Whether an edge is certainly taken much less often than `block` is executed: by an estimate worth its name, or
    /// because nothing was ever sampled at its start while the block has many samples. Constant time.
    pub fn is_rare(&self, edge: usize, block: usize) -> bool {
        let from = self.cfg.edges[edge].from;
        let own = self.facts.samples[block];
        let is_unsampled = from != block
            && self.facts.samples.get(from).is_some_and(|&s| s < RARE_PART * RARE_PART * own)
            && own >= BLOCK_SAMPLES_MIN;
        let estimate = self.estimates.edges[edge];
        let is_known = estimate.is_some_and(|e| e.confidence > Confidence::Low);
        let is_seldom = estimate.is_some_and(|e| e.frequency < RARE_PART * self.frequency(block));
        is_unsampled || (is_known && is_seldom)
    }

    /// The part of a block's executions that come by an edge; 1 where frequencies do not say.
    pub fn edge_part(&self, edge: usize, block: usize) -> f64 {
        let (own, part) = (self.frequency(block), self.estimates.edges[edge]);
        match part {
            Some(e) if own > 0.0 => (e.confidence.error_factor_max() * e.frequency / own).min(1.0),
            _ => 1.0,
        }
    }

    /// The index after `i` and its fused branch.
    pub fn head_after(&self, i: usize) -> usize {
        let next = i + 1;
        if self.schedule.is_fused.get(next) == Some(&true) { next + 1 } else { next }
    }
}
