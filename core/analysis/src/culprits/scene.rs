//! What an inquiry looks at: one procedure with its graph, model, frequencies and other evidence.
//!
//! Enters: the analysis' tables. Leaves: [`Scene`], [`Facts`] computed once for a procedure, and [`Stalled`], one
//! instruction under inquiry. Complexity of [`Facts::of`]: linear in instructions and edges, times the depth of loops.

use std::{cell::OnceCell, collections::BTreeMap, ops::Range};

use dwell_image::{Arch, Flow, Instruction};
use dwell_profile::Event;
use rustc_hash::FxHashMap;

use super::{loops::Loops, producers, witness::Lines};
use crate::{
    Cause, Confidence,
    cfg::{Cfg, EdgeKind},
    frequency::Estimates,
    machine::{MachineModel, Opcode, OpcodeClass, Order},
    schedule::{Schedule, StaticStall},
};

/// A predecessor that is executed less than this part of the stalled block is ignored.
const RARE_PART: f64 = 0.02;
/// Indirect jumps that a block without known predecessors is looked for behind.
const JUMPS_MAX: usize = 16;
/// Below this many samples of a block, that none of its predecessor has says nothing.
const BLOCK_SAMPLES_MIN: f64 = 100.0;

/// What the search looks at.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
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
    pub facts: &'a Facts,
}

/// How many times as large as estimated a frequency may be.
pub fn guess_times(confidence: Confidence) -> f64 {
    if confidence > Confidence::Low { 1.0 } else { 2.0 }
}

/// Sums and loops of a procedure.
pub struct Facts {
    /// Each instruction's block.
    block_of: Vec<usize>,
    /// By block: time samples, skid undone.
    samples: Vec<f64>,
    /// What repeats.
    pub loops: Loops,
    /// Blocks that end with an indirect jump whose targets are unknown: they may lead to any block that nothing else
    /// leads to. At most [`JUMPS_MAX`] are looked at.
    unknown_jumps: Vec<usize>,
    /// What the first instructions of lines testify.
    pub lines: Lines,
    /// By loop: see [`write_buffer`](super::write_buffer), which fills it in when first asked.
    pub drain_cycles: Vec<OnceCell<f64>>,
    /// Static stalls that predecessors leave behind, by instruction.
    pub left_behind: FxHashMap<usize, Vec<StaticStall>>,
}

impl Facts {
    /// Looks at a procedure once.
    pub fn of(
        model: &MachineModel,
        instructions: &[Instruction],
        cfg: &Cfg,
        schedule: &Schedule,
        estimates: &Estimates,
    ) -> Facts {
        let loops = Loops::of(instructions, cfg, schedule, estimates);
        let innermost = |block| loops.innermost(block);
        let sum = |range: &Range<usize>| range.clone().map(|i| estimates.head_samples[i]).sum();
        Facts {
            block_of: cfg.block_of_instructions(),
            samples: cfg.blocks.iter().map(sum).collect(),
            lines: Lines::of(model, instructions, cfg, schedule, estimates, &innermost),
            drain_cycles: vec![OnceCell::new(); loops.len()],
            loops,
            unknown_jumps: unknown_jumps(instructions, cfg),
            left_behind: schedule.left_behind(cfg, &edge_parts(cfg, estimates)),
        }
    }
}

/// By edge: the part of its target's executions that come by it; 0 where nothing is known.
fn edge_parts(cfg: &Cfg, estimates: &Estimates) -> Vec<f64> {
    let frequency = |e: usize| estimates.edges[e].map_or(0.0, |e| e.frequency);
    let mut parts = vec![0.0; cfg.edges.len()];
    for edges in &cfg.predecessors[..cfg.blocks.len()] {
        let all: f64 = edges.iter().map(|&e| frequency(e)).sum();
        edges.iter().filter(|_| all > 0.0).for_each(|&e| parts[e] = frequency(e) / all);
    }
    parts
}

fn unknown_jumps(instructions: &[Instruction], cfg: &Cfg) -> Vec<usize> {
    let is_indirect = |b: &usize| instructions[cfg.blocks[*b].end - 1].flow == Flow::IndirectJump;
    let leaves = |b: &usize| cfg.successors[*b].iter().all(|&e| cfg.edges[e].to >= cfg.blocks.len());
    let jumps = (0..cfg.blocks.len()).filter(|b| is_indirect(b) && leaves(b));
    if cfg.missing_edges { jumps.take(JUMPS_MAX).collect() } else { Vec::new() }
}

impl<'a> Scene<'a> {
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
        let scene = *self;
        let edges = scene.cfg.predecessors[block].iter().copied();
        edges.filter(move |&edge| !scene.is_rare(edge, block)).flat_map(move |edge| {
            let from = scene.cfg.edges[edge].from;
            let is_unseen = scene.cfg.edges[edge].kind == EdgeKind::Unseen;
            let by_jump = if is_unseen { &scene.facts.unknown_jumps[..] } else { &[] };
            let known = by_jump.is_empty().then_some(from);
            let sources = by_jump.iter().copied().chain(known);
            sources.map(move |from| (edge, scene.cfg.blocks.get(from).cloned()))
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
            Some(e) if own > 0.0 => (guess_times(e.confidence) * e.frequency / own).min(1.0),
            _ => 1.0,
        }
    }

    /// The index after `i` and its fused branch.
    pub fn head_after(&self, i: usize) -> usize {
        let next = i + 1;
        if self.schedule.is_fused.get(next) == Some(&true) { next + 1 } else { next }
    }
}

/// An instruction that took longer than the model says.
pub struct Stalled<'a> {
    /// Where.
    pub scene: &'a Scene<'a>,
    /// Its block.
    pub block: usize,
    /// Its index.
    pub i: usize,
    /// Cycles per execution to be explained.
    pub excess_cycles: f64,
    /// The part of its cycles that it takes at least, whatever the scale of frequencies is.
    pub certain_part: f64,
    /// Of its operands, once an inquiry asked for them.
    producers: OnceCell<Vec<usize>>,
}

impl<'a> Stalled<'a> {
    /// Instruction `i`, which lost so many cycles per execution; this part of its cycles is certain.
    pub fn new(scene: &'a Scene<'a>, i: usize, excess_cycles: f64, certain_part: f64) -> Stalled<'a> {
        let block = scene.block_of(i);
        Stalled { scene, block, i, excess_cycles, certain_part, producers: OnceCell::new() }
    }

    /// The latest writers of its operands that can have run before it.
    pub fn producers(&self) -> impl Iterator<Item = usize> + '_ {
        self.producers.get_or_init(|| producers::producers(self)).iter().copied()
    }

    /// It is the first of its block.
    pub fn is_head(&self) -> bool {
        self.i == self.scene.cfg.blocks[self.block].start
    }
}

/// A cause that was not ruled out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suspect {
    /// Why.
    pub cause: Cause,
    /// The most cycles per execution it can explain.
    pub cycles_max: f64,
    /// The instruction to blame, where one is.
    pub culprit: Option<usize>,
}
