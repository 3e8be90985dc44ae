//! LLVM's profile inference: the flow that conserves control and changes the blocks' counts least (W. He, J. Mestre, S.
//! Pupyrev, L. Wang, H. Yu, "Profile Inference Revisited", POPL 2022, §3; its published costs). This is our own
//! implementation.
//!
//! Input: a procedure's samples and graph. Output: executions of blocks and edges. Complexity: that of [`super::flow`] on
//! two nodes per block. Deviations: ours takes any of several flows of equal cost, while LLVM's distributes evenly over
//! them; isolated parts of the flow are not joined to the entry.

use dwell_analysis::cfg::Cfg;

use super::{
    Estimates,
    flow::{Network, UNLIMITED},
};
use crate::program::Procedure;

/// A procedure with more blocks is skipped.
pub const BLOCKS_MAX: usize = 4000;
/// Flow is whole-numbered: a sample per instruction of a block is this many units.
const UNITS: f64 = 1000.0;

/// The costs of changing a block's count by one unit.
struct Costs {
    increase: i64,
    decrease: i64,
}

/// The paper's costs: missing samples are more frequent than surplus ones, and the entry's count is rather too high.
fn costs(count: i64, is_entry: bool) -> Costs {
    match (count, is_entry) {
        (_, true) => Costs { increase: 40, decrease: 10 },
        (0, _) => Costs { increase: 11, decrease: 0 },
        _ => Costs { increase: 10, decrease: 20 },
    }
}

/// Estimates the executions of one procedure; `None` if it has more than [`BLOCKS_MAX`] blocks.
pub fn estimate(procedure: &Procedure, period_cycles: f64) -> Option<Estimates> {
    let cfg = &procedure.cfg;
    if cfg.blocks.len() > BLOCKS_MAX {
        return None;
    }
    let count = |range: &std::ops::Range<usize>| {
        let samples: u64 = procedure.samples[range.clone()].iter().sum();
        (samples as f64 / range.len() as f64 * UNITS).round() as i64
    };
    let counts: Vec<i64> = cfg.blocks.iter().map(count).collect();
    let inferred = infer(cfg, &counts);
    let executions = |units: i64| Some(units as f64 / UNITS * period_cycles);
    Some(Estimates::from_graph(cfg, |b| executions(inferred.blocks[b]), |e| executions(inferred.edges[e])))
}

/// Counts that conserve flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Inferred {
    /// The count of each block.
    pub blocks: Vec<i64>,
    /// The count of each edge of the graph.
    pub edges: Vec<i64>,
}

/// Returns the flow closest to `counts`. A block is two nodes: its count leaves the second and is missing at the first,
/// and arcs between the two raise or lower the count at a cost.
pub fn infer(cfg: &Cfg, counts: &[i64]) -> Inferred {
    let nodes = cfg.blocks.len() + 2;
    let (enter, leave) = (|node: usize| 2 * node, |node: usize| 2 * node + 1);
    let (source, sink) = (2 * nodes, 2 * nodes + 1);
    let mut network = Network::new(2 * nodes + 2);
    let blocks: Vec<(usize, usize)> = counts
        .iter()
        .enumerate()
        .map(|(block, &count)| {
            let costs = costs(count, block == 0);
            network.arc(source, leave(block), count, 0);
            network.arc(enter(block), sink, count, 0);
            let more = network.arc(enter(block), leave(block), UNLIMITED, costs.increase);
            (more, network.arc(leave(block), enter(block), count, costs.decrease))
        })
        .collect();
    // Whatever leaves the procedure has entered it.
    network.arc(enter(cfg.exit()), leave(cfg.entry()), UNLIMITED, 0);
    let edges: Vec<usize> =
        cfg.edges.iter().map(|e| network.arc(leave(e.from), enter(e.to), UNLIMITED, 0)).collect();
    network.maximize(source, sink);
    let flow = |&(more, less): &(usize, usize)| network.flow(more) - network.flow(less);
    let inferred = Inferred {
        blocks: blocks.iter().zip(counts).map(|(arcs, count)| count + flow(arcs)).collect(),
        edges: edges.iter().map(|&e| network.flow(e)).collect(),
    };
    debug_assert_eq!(verify(cfg, &inferred), Ok(()));
    inferred
}

/// Checks that each block's edges on either side add up to its count.
pub fn verify(cfg: &Cfg, inferred: &Inferred) -> Result<(), String> {
    for (block, &count) in inferred.blocks.iter().enumerate() {
        let sum = |edges: &[usize]| edges.iter().map(|&e| inferred.edges[e]).sum::<i64>();
        let (entered, left) = (sum(&cfg.predecessors[block]), sum(&cfg.successors[block]));
        if count < 0 || entered != count || left != count {
            return Err(format!("block {block}: {entered} in, {count}, {left} out"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dwell_image::{Flow, ImageAddress, Instruction, RegisterSet};

    use super::*;

    fn graph(flows: &[Flow]) -> Cfg {
        let instruction = |(i, &flow): (usize, &Flow)| Instruction {
            address: ImageAddress(4 * i as u64),
            length: 4,
            mnemonic: "".into(),
            text: "".into(),
            reads: RegisterSet::EMPTY,
            writes: RegisterSet::EMPTY,
            operands: [].into_iter().collect(),
            flow,
        };
        let instructions: Vec<Instruction> = flows.iter().enumerate().map(instruction).collect();
        Cfg::build(&instructions, &BTreeMap::new())
    }

    /// 0 → 1 or 2 → 3, counted 100, 30, 50, 100: raising 1 or 2 by 20 costs 10 a unit, all else is dearer.
    #[test]
    fn a_diamond_is_balanced_by_raising_an_arm() {
        let target = |i: u64| ImageAddress(4 * i);
        let cfg = graph(&[
            Flow::Branch { target: target(2) },
            Flow::Jump { target: target(3) },
            Flow::Next,
            Flow::Return,
        ]);
        let inferred = infer(&cfg, &[100, 30, 50, 100]);
        assert_eq!((inferred.blocks[0], inferred.blocks[3]), (100, 100));
        assert_eq!(inferred.blocks[1] + inferred.blocks[2], 100);
        assert!(inferred.blocks[1] >= 30 && inferred.blocks[2] >= 50);
    }

    /// A loop's block that was counted 0 between blocks of 500 is raised: 11 a unit against 20.
    #[test]
    fn a_block_without_samples_is_raised() {
        let cfg = graph(&[
            Flow::Next,
            Flow::Branch { target: ImageAddress(12) },
            Flow::Next,
            Flow::Branch { target: ImageAddress(4) },
            Flow::Return,
        ]);
        assert_eq!(cfg.blocks.len(), 5);
        let inferred = infer(&cfg, &[10, 500, 0, 500, 10]);
        assert_eq!(inferred.blocks, [10, 500, inferred.blocks[2], 500, 10]);
        assert_eq!(inferred.blocks[2], 0, "the branch around it costs nothing");
        let straight = graph(&[Flow::Next, Flow::Return]);
        assert_eq!(infer(&straight, &[7]).blocks, [7]);
    }
}
