//! Facts of a procedure that all rules need, computed once.
//!
//! Input: the procedure's graph, schedule and estimates. Output: [`ProcedureFacts`]. Complexity: linear in instructions and edges, times
//! the depth of loops.

use std::{cell::OnceCell, ops::Range};

use dwell_image::{Flow, Instruction};
use rustc_hash::FxHashMap;

use super::{line_entries::LineEntries, loops::Loops};
use crate::{
    cfg::Cfg,
    frequency::Estimates,
    machine::MachineModel,
    schedule::{Schedule, StaticStall},
};

/// Number of indirect jumps that may lead to a block without known predecessors.
const JUMPS_MAX: usize = 16;

/// Sums and loops of a procedure.
pub struct ProcedureFacts {
    /// The index of the block of each instruction.
    pub block_of: Vec<usize>,
    /// Time samples of each block, with the skid undone.
    pub samples: Vec<f64>,
    /// The loops of the procedure.
    pub loops: Loops,
    /// Blocks that end with an indirect jump to unknown targets, at most [`JUMPS_MAX`]. They may lead to any block that
    /// has no known predecessor.
    pub unknown_jumps: Vec<usize>,
    /// What entering a new line of code costs.
    pub lines: LineEntries,
    /// Cycles to drain the stores of each loop, computed by the rule for the write buffer when first needed.
    pub drain_cycles: Vec<OnceCell<f64>>,
    /// Static stalls that predecessors leave behind, by instruction.
    pub left_behind: FxHashMap<usize, Vec<StaticStall>>,
}

impl ProcedureFacts {
    /// Computes the facts of a procedure.
    pub fn new(
        model: &MachineModel,
        instructions: &[Instruction],
        cfg: &Cfg,
        schedule: &Schedule,
        estimates: &Estimates,
    ) -> ProcedureFacts {
        let loops = Loops::new(instructions, cfg, schedule, estimates);
        let innermost = |block| loops.innermost(block);
        let sum = |range: &Range<usize>| range.clone().map(|i| estimates.head_samples[i]).sum();
        ProcedureFacts {
            block_of: cfg.block_of_instructions(),
            samples: cfg.blocks.iter().map(sum).collect(),
            lines: LineEntries::new(model, instructions, cfg, schedule, estimates, &innermost),
            drain_cycles: vec![OnceCell::new(); loops.len()],
            loops,
            unknown_jumps: unknown_jumps(instructions, cfg),
            left_behind: schedule.left_behind(cfg, &edge_parts(cfg, estimates)),
        }
    }
}

/// Returns for each edge the part of its target's executions that come by it; 0 if that is unknown.
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
