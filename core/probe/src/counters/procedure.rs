//! The counters of one procedure.
//!
//! Enters: a procedure of a mapped image and where its samples are. Leaves: which blocks are counted and where, and later all blocks'
//! executions. Never here: the process.

use dwell_analysis::{cfg::Cfg, recover_jump_targets};
use dwell_image::Procedure;

use super::{
    flow_graph::FlowGraph,
    place::{CounterPlace, places},
};
use crate::{
    patch::{function_code::FunctionCode, plan::Refusal},
    process_images::MappedImage,
};

/// A procedure whose blocks can be counted.
pub struct CountedProcedure {
    graph: FlowGraph,
    /// The address in the process of each block's first instruction.
    starts: Vec<u64>,
    /// The blocks that are counted, and the number of each counter.
    counters: Vec<(usize, usize)>,
}

/// A counter that is to be placed.
pub struct PlannedCounter {
    /// The block.
    block: usize,
    /// Where.
    pub place: CounterPlace,
}

impl CountedProcedure {
    /// Plans the counters of a procedure. `samples` are addresses in it with their numbers of samples.
    pub fn plan(
        image: &MappedImage,
        procedure: &Procedure,
        code: &FunctionCode,
        samples: &[(u64, u64)],
    ) -> Result<(Self, Vec<PlannedCounter>), Refusal> {
        if let Some(address) = code.unknown_jump {
            return Err(Refusal::UnknownJump { address });
        }
        let instructions = image.image.instructions(procedure.address, procedure.size_bytes);
        let read = |address, into: &mut [u8]| image.image.read(address, into);
        let targets = recover_jump_targets(image.image.arch(), &instructions, &read);
        let cfg = Cfg::build(&instructions, &targets);
        let start = |block: &std::ops::Range<usize>| instructions[block.start].address.0.wrapping_add(image.bias);
        let starts: Vec<u64> = cfg.blocks.iter().map(start).collect();
        let mut places = places(code, &starts);
        let is_countable: Vec<bool> = places.iter().map(Option::is_some).collect();
        let graph = FlowGraph::new(&cfg);
        let weights = weights(&cfg, &starts, samples);
        let chosen = graph.choose(&weights, &is_countable);
        let planned = chosen.into_iter().filter_map(|block| Some(PlannedCounter { block, place: places[block].take()? }));
        Ok((CountedProcedure { graph, starts, counters: Vec::new() }, planned.collect()))
    }

    /// Notes the number of a counter that was placed.
    pub fn placed(&mut self, counter: &PlannedCounter, number: usize) {
        self.counters.push((counter.block, number));
    }

    /// Returns the executions of each block, named by the address of its first instruction, as far as they follow from these
    /// counters. Counters of other procedures are among them.
    pub fn executions<'a>(&'a self, counters: &[u64]) -> impl Iterator<Item = (u64, u64)> + 'a {
        let counted: Vec<(usize, u64)> =
            self.counters.iter().map(|(block, number)| (*block, counters[*number])).collect();
        let solved = self.graph.solve(&counted);
        self.starts.iter().copied().zip(solved).filter_map(|(start, count)| Some((start, count?)))
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
