//! The counters of one procedure.
//!
//! Enters: a procedure of a mapped image and where its samples are; later, values of counters. Leaves: which blocks are counted and
//! where, and all blocks' executions. Never here: the process.

use std::ops::Range;

use dwell_analysis::{cfg::Cfg, recover_jump_targets};
use dwell_image::Procedure;

use super::{
    flow_graph::FlowGraph,
    place::{CounterPlace, places},
};
use crate::{
    patch::{function_code::FunctionCode, plan::Refusal},
    process::patcher::Change,
    process_images::MappedImage,
};

/// A counter whose code was written.
pub struct Counter {
    /// Its number in the process.
    pub number: usize,
    /// The jump to its code.
    pub change: Change,
    /// Whether the jump is there.
    pub is_on: bool,
}

/// A procedure whose blocks can be counted.
pub struct CountedProcedure {
    graph: FlowGraph,
    /// The address in the process of each block's first instruction.
    starts: Vec<u64>,
    /// Where each block can be counted.
    places: Vec<Option<CounterPlace>>,
    /// What counting each block costs.
    weights: Vec<f64>,
    /// How often each block was executed while that was known, and whether it ever was.
    totals: Vec<Option<u64>>,
    /// The counters by block.
    pub counters: Vec<Option<Counter>>,
    /// The blocks that are to be counted.
    pub chosen: Vec<usize>,
}

impl CountedProcedure {
    /// Plans the counters of a procedure. `samples` are addresses in it with their numbers of samples.
    pub fn plan(
        image: &MappedImage,
        procedure: &Procedure,
        code: &FunctionCode,
        samples: &[(u64, u64)],
    ) -> Result<Self, Refusal> {
        if let Some(address) = code.unknown_jump {
            return Err(Refusal::UnknownJump { address });
        }
        let instructions = image.image.instructions(procedure.address, procedure.size_bytes);
        let read = |address, into: &mut [u8]| image.image.read(address, into);
        let targets = recover_jump_targets(image.image.arch(), &instructions, &read);
        let cfg = Cfg::build(&instructions, &targets);
        let start = |block: &Range<usize>| instructions[block.start].address.0.wrapping_add(image.bias);
        let starts: Vec<u64> = cfg.blocks.iter().map(start).collect();
        let mut counted = CountedProcedure {
            graph: FlowGraph::new(&cfg),
            places: places(code, &starts),
            weights: weights(&cfg, &starts, samples),
            totals: vec![None; starts.len()],
            counters: starts.iter().map(|_| None).collect(),
            chosen: Vec::new(),
            starts,
        };
        counted.choose();
        Ok(counted)
    }

    /// Chooses the blocks to count by what is known of their executions.
    pub fn choose(&mut self) {
        let is_countable: Vec<bool> = self.places.iter().map(Option::is_some).collect();
        let all_known = self.totals.iter().flatten().sum::<u64>() > 0;
        let weights: Vec<f64> = match all_known {
            true => self.totals.iter().map(|total| total.unwrap_or(0) as f64).collect(),
            false => self.weights.clone(),
        };
        self.chosen = self.graph.choose(&weights, &is_countable);
    }

    /// Returns the place of a block that was chosen.
    pub fn place(&self, block: usize) -> Option<&CounterPlace> {
        self.places[block].as_ref()
    }

    /// Returns the executions of each block, named by the address of its first instruction, as far as they follow from how much its
    /// counters, by number, have increased.
    pub fn executions(&mut self, increases: &[u64]) -> Vec<(u64, u64)> {
        let value = |block: &usize| Some((*block, increases[self.counters[*block].as_ref()?.number]));
        let counted: Vec<(usize, u64)> = self.chosen.iter().filter_map(value).collect();
        let solved = self.graph.solve(&counted);
        for (total, count) in self.totals.iter_mut().zip(&solved) {
            if let Some(count) = count {
                *total.get_or_insert(0) += count;
            }
        }
        self.starts.iter().copied().zip(solved).filter_map(|(start, count)| Some((start, count?))).collect()
    }
}

/// Returns how often each block seems to be executed: its samples for each of its instructions.
fn weights(cfg: &Cfg, starts: &[u64], samples: &[(u64, u64)]) -> Vec<f64> {
    let mut weights = vec![0.0; starts.len()];
    for (address, number) in samples {
        if let Some(block) = starts.partition_point(|start| start <= address).checked_sub(1) {
            weights[block] += *number as f64 / cfg.blocks[block].len() as f64;
        }
    }
    weights
}
