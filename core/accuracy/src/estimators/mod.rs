//! The estimators, one file each: evidence → executions of instructions and edges. None uses the truth.

pub mod clusters;
pub mod dwell;
pub mod flow;
pub mod naive;
pub mod profi;

use dwell_analysis::cfg::Cfg;
use rustc_hash::FxHashMap;

/// The estimates of one procedure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimates {
    /// Executions by instruction; `None` where the estimator has none.
    pub instructions: Vec<Option<f64>>,
    /// Executions of edges, from one instruction's index to another's.
    pub edges: FxHashMap<(usize, usize), f64>,
}

impl Estimates {
    /// Converts figures of blocks and edges of the graph.
    pub fn from_graph(
        cfg: &Cfg,
        blocks: impl Fn(usize) -> Option<f64>,
        edges: impl Fn(usize) -> Option<f64>,
    ) -> Estimates {
        let mut estimates = Estimates::default();
        for (index, range) in cfg.blocks.iter().enumerate() {
            estimates.instructions.extend(range.clone().map(|_| blocks(index)));
        }
        for (index, edge) in cfg.edges.iter().enumerate() {
            if let (Some(from), Some(to)) = (cfg.blocks.get(edge.from), cfg.blocks.get(edge.to))
                && let Some(executions) = edges(index)
            {
                // A branch to the next instruction has two edges between the same instructions.
                *estimates.edges.entry((from.end - 1, to.start)).or_default() += executions;
            }
        }
        estimates
    }
}
