//! One procedure as the rules see it: its graph, model, frequencies and other evidence.
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

/// The tables that the rules read.
#[derive(Clone, Copy)]
pub struct ProcedureContext<'a> {
    /// The model of the machine that was sampled.
    pub model: &'a MachineModel,
    /// The machine's instruction set.
    pub arch: Arch,
    /// The procedure's instructions.
    pub instructions: &'a [Instruction],
    /// The procedure's control-flow graph.
    pub cfg: &'a Cfg,
    /// The best-case schedule of the instructions.
    pub schedule: &'a Schedule,
    /// The estimated frequencies.
    pub estimates: &'a Estimates,
    /// Observed directions by instruction: how often a branch was taken, and how often not.
    pub directions: &'a [(u64, u64)],
    /// Samples by instruction, and the period, of each event other than time.
    pub events: &'a BTreeMap<Event, (Vec<u64>, u64)>,
    /// Cycles between two time samples. Without it, event samples bound nothing.
    pub period_cycles: Option<f64>,
    /// Facts that were computed once for all rules.
    pub facts: &'a ProcedureFacts,
}

impl<'a> ProcedureContext<'a> {
    /// Returns the index of the block of instruction `i`.
    pub fn block_of(&self, i: usize) -> usize {
        self.facts.block_of[i]
    }

    /// Returns the block's frequency, or 0 if it is unknown.
    pub fn frequency(&self, block: usize) -> f64 {
        self.estimates.blocks[block].map_or(0.0, |e| e.frequency)
    }

    /// Returns the operation of instruction `i`.
    pub fn opcode(&self, i: usize) -> Opcode {
        self.schedule.opcodes[i]
    }

    /// Whether the machine issues in order, so that an instruction waits for the results of earlier ones.
    pub fn is_in_order(&self) -> bool {
        self.model.order == Order::InOrder
    }

    /// Whether other code runs between `i` and the instruction after it: `i` calls or enters the kernel.
    pub fn leaves(&self, i: usize) -> bool {
        matches!(self.opcode(i).class, OpcodeClass::Call | OpcodeClass::System)
    }

    /// Returns the blocks that run right before `block`, each with the edge between them. Rare ones are left out (DCPI
    /// §6.3). A caller or other unknown code is `None`.
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

    /// Whether an edge is certainly taken much less often than `block` is executed: its estimate is trusted and small, or
    /// its source has almost no samples while the block has many. Constant time.
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

    /// Returns an upper bound on the part of a block's executions that come by an edge; 1 if frequencies do not bound it.
    pub fn edge_part(&self, edge: usize, block: usize) -> f64 {
        let (own, part) = (self.frequency(block), self.estimates.edges[edge]);
        match part {
            Some(e) if own > 0.0 => (e.confidence.error_factor_max() * e.frequency / own).min(1.0),
            _ => 1.0,
        }
    }

    /// Returns the index of the instruction after `i` and the branch that is fused with it.
    pub fn head_after(&self, i: usize) -> usize {
        let next = i + 1;
        if self.schedule.is_fused.get(next) == Some(&true) { next + 1 } else { next }
    }
}
