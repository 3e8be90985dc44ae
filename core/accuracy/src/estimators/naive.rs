//! The assumption of profilers without an analysis: time is proportional to executions, block by block. Linear.
//!
//! A block's executions are distributed over its edges in proportion to the successors' executions.

use std::{collections::BTreeMap, ops::Range};

use super::Estimates;
use crate::{
    capture::{Address, McaBlock},
    program::Procedure,
};

/// Estimates samples over instructions: every instruction takes one cycle (AutoFDO's assumption).
pub fn by_instructions(procedure: &Procedure, period_cycles: f64) -> Estimates {
    let cycles = |range: Range<usize>| Some(range.len() as f64);
    estimate(procedure, period_cycles, cycles)
}

/// Estimates samples over llvm-mca's cycles of the block.
pub fn by_mca(procedure: &Procedure, mca: &BTreeMap<Address, McaBlock>, period_cycles: f64) -> Estimates {
    let cycles = |range: Range<usize>| {
        let block = mca.get(&procedure.instructions[range.start].address.0)?;
        (block.cycles > 0.0).then_some(block.cycles)
    };
    estimate(procedure, period_cycles, cycles)
}

fn estimate(
    procedure: &Procedure,
    period_cycles: f64,
    cycles: impl Fn(Range<usize>) -> Option<f64>,
) -> Estimates {
    let cfg = &procedure.cfg;
    let blocks: Vec<Option<f64>> = cfg
        .blocks
        .iter()
        .map(|range| {
            let samples: u64 = procedure.samples[range.clone()].iter().sum();
            cycles(range.clone()).map(|cycles| samples as f64 / cycles * period_cycles)
        })
        .collect();
    let of = |node: usize| blocks.get(node).copied().flatten().unwrap_or(0.0);
    let edge = |e: usize| {
        let from = cfg.edges[e].from;
        let all: f64 = cfg.successors[from].iter().map(|&s| of(cfg.edges[s].to)).sum();
        let share = match cfg.successors[from].len() {
            1 => 1.0,
            _ if all > 0.0 => of(cfg.edges[e].to) / all,
            several => 1.0 / several as f64,
        };
        Some(of(from) * share)
    };
    Estimates::from_graph(cfg, |b| blocks[b], edge)
}
