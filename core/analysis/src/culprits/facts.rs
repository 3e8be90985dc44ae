//! What all rules need to know of a procedure, computed once.
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
    /// Each instruction's block.
    pub block_of: Vec<usize>,
    /// By block: time samples, skid undone.
    pub samples: Vec<f64>,
    /// What repeats.
    pub loops: Loops,
    /// Blocks that end with an indirect jump whose targets are unknown: they may lead to any block that nothing else
    /// leads to. At most [`JUMPS_MAX`] are looked at.
    pub unknown_jumps: Vec<usize>,
    /// What the first instructions of lines testify.
    pub lines: LineEntries,
    /// By loop: see [`write_buffer`](super::write_buffer), which fills it in when first asked.
    pub drain_cycles: Vec<OnceCell<f64>>,
    /// Static stalls that predecessors leave behind, by instruction.
    pub left_behind: FxHashMap<usize, Vec<StaticStall>>,
}

impl ProcedureFacts {
    /// Looks at a procedure once.
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
