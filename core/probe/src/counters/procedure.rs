//! The counters of one procedure.
//!
//! Enters: a procedure of a mapped image and where its samples are; later, values of counters. Leaves: which blocks are counted and
//! where, and all blocks' executions. Never here: the process.

use std::ops::Range;

use dwell_analysis::{cfg::Cfg, recover_jump_targets};
use dwell_image::Procedure;
use dwell_profile::VirtualAddress;

use super::{
    copy::{CountingCopy, Gate, assemble, bytes_max},
    flow_graph::FlowGraph,
    place::{CounterPlace, places},
};
use crate::{
    patch::{function_code::FunctionCode, plan::Refusal},
    process::patcher::Change,
    process_images::MappedImage,
};

/// How often blocks are chosen anew.
const CHOICES_MAX: u32 = 5;

/// A copy of a procedure that was written to the process.
pub struct Version {
    /// The blocks that it counts, and the number of each counter.
    counters: Vec<(usize, usize)>,
    /// The gates of the counters.
    gates: Vec<Gate>,
    /// Whether the gates lead into the copy.
    pub is_on: bool,
}

impl Version {
    /// Returns whether these are the blocks that it counts.
    fn counts(&self, blocks: &[usize]) -> bool {
        self.counters.iter().map(|(block, _)| block).eq(blocks)
    }

    /// Returns the changes that let it count; those that let it not.
    pub fn switch(&self, on: bool) -> impl Iterator<Item = Change> + '_ {
        self.gates.iter().flat_map(move |Gate { enter, leave }| match on {
            true => [enter.clone(), leave.removal()],
            false => [enter.removal(), leave.clone()],
        })
    }
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
    code: FunctionCode,
    /// The blocks that are to be counted.
    pub chosen: Vec<usize>,
    /// The blocks that are to be counted in windows.
    full: Vec<usize>,
    /// The copies that count them, or others that were chosen before.
    pub versions: Vec<Version>,
    /// The block that is counted between windows too.
    anchor: Option<usize>,
    /// How often blocks were chosen with what was known then.
    choices: u32,
}

impl CountedProcedure {
    /// Plans the counters of a procedure. `samples` are addresses in it with their numbers of samples.
    pub fn plan(
        image: &MappedImage,
        procedure: &Procedure,
        code: FunctionCode,
        samples: &[(VirtualAddress, u64)],
    ) -> Result<Self, Refusal> {
        if let Some(address) = code.unknown_jump {
            return Err(Refusal::UnknownJump { address });
        }
        let instructions = image.image.instructions(procedure.address, procedure.size_bytes);
        let read = |address, into: &mut [u8]| image.image.read(address, into);
        let targets = recover_jump_targets(image.image.arch(), &instructions, &read);
        let cfg = Cfg::build(&instructions, &targets);
        let start = |block: &Range<usize>| image.in_process(instructions[block.start].address).0;
        let starts: Vec<u64> = cfg.blocks.iter().map(start).collect();
        let mut counted = CountedProcedure {
            graph: FlowGraph::new(&cfg),
            places: places(&code, &starts),
            weights: weights(&cfg, &starts, samples),
            totals: vec![None; starts.len()],
            code,
            chosen: Vec::new(),
            full: Vec::new(),
            versions: Vec::new(),
            anchor: None,
            choices: 0,
            starts,
        };
        counted.choose();
        Ok(counted)
    }

    /// Chooses the blocks to count by what is known of their executions. After some times the choice stays as it is, since each needs
    /// a copy of its own.
    pub fn choose(&mut self) {
        if self.choices >= CHOICES_MAX {
            self.chosen.clone_from(&self.full);
            return;
        }
        self.choices += 1;
        let is_countable: Vec<bool> = self.places.iter().map(Option::is_some).collect();
        let is_any_known = self.totals.iter().flatten().sum::<u64>() > 0;
        let weights: Vec<f64> = match is_any_known {
            true => self.totals.iter().map(|total| total.unwrap_or(0) as f64).collect(),
            false => self.weights.clone(),
        };
        let mut chosen = self.graph.choose(&weights, &is_countable);
        if let Some(anchor) = self.anchor.filter(|anchor| !chosen.contains(anchor)) {
            chosen.push(anchor);
            chosen.sort_unstable();
        }
        self.full.clone_from(&chosen);
        self.chosen = chosen;
    }

    /// Chooses the anchor alone: of the blocks that can be counted and were executed `limit` times at most, the one that was executed
    /// most often. Once there is an anchor, it stays. Returns its executions.
    pub fn choose_anchor(&mut self, limit: u64) -> u64 {
        let candidates =
            self.places.iter().zip(&self.totals).enumerate().filter_map(|(block, (place, total))| {
                place.as_ref()?;
                Some((total.filter(|total| (1..=limit).contains(total))?, block))
            });
        let found = match self.anchor {
            Some(anchor) => Some((self.totals[anchor].unwrap_or(0), anchor)),
            None => candidates.max(),
        };
        self.chosen = found.iter().map(|(_, block)| *block).collect();
        found.map_or(0, |(total, _)| total)
    }

    /// Returns the fewest executions of a block that was executed and can be counted.
    pub fn least(&self) -> u64 {
        let counts =
            self.places.iter().zip(&self.totals).filter_map(|(place, total)| place.as_ref().and(*total));
        counts.filter(|total| *total > 0).min().unwrap_or(u64::MAX)
    }

    /// Keeps the anchor that was chosen. The next windows count it too.
    pub fn keep_anchor(&mut self) {
        self.anchor = self.chosen.first().copied();
        if let Some(anchor) = self.anchor.filter(|anchor| !self.full.contains(anchor)) {
            self.full.push(anchor);
            self.full.sort_unstable();
        }
    }

    /// Returns the addresses of the entry and of the anchor's first instruction.
    pub fn anchor(&self) -> Option<(VirtualAddress, VirtualAddress)> {
        Some((self.entry(), VirtualAddress(self.starts[self.anchor?])))
    }

    /// Returns the copy that counts the chosen blocks, if it was written.
    pub fn current_version(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.counts(&self.chosen))
    }

    /// Returns the same, to be switched.
    pub fn current(&mut self) -> Option<&mut Version> {
        self.versions.iter_mut().find(|version| version.counts(&self.chosen))
    }

    /// Returns the copies that count other blocks than those that were chosen.
    pub fn outdated(&mut self) -> impl Iterator<Item = &mut Version> {
        self.versions.iter_mut().filter(|version| version.is_on && !version.counts(&self.chosen))
    }

    /// Counts nothing any more.
    pub fn give_up(&mut self) {
        self.chosen.clear();
        self.full.clear();
        self.choices = CHOICES_MAX;
    }

    /// Returns whether it has code in common with another function.
    pub fn overlaps(&self, other: &FunctionCode) -> bool {
        let own = self.code.ranges().next();
        own.is_some_and(|own| other.ranges().any(|range| range.start < own.end && own.start < range.end))
    }

    /// Returns the entry's address.
    pub fn entry(&self) -> VirtualAddress {
        VirtualAddress(self.code.entry())
    }

    /// Returns a number of bytes that the copy does not exceed.
    pub fn bytes_max(&self) -> usize {
        bytes_max(&self.code, self.chosen.len())
    }

    /// Assembles the copy that counts the chosen blocks. The numbers of its counters begin at `first`, and `counters_at` is the
    /// address of counter 0.
    pub fn assemble(&self, first: usize, counters_at: u64, address: u64) -> Option<(Version, CountingCopy)> {
        let places = self.chosen.iter().map(|block| self.places[*block].as_ref());
        let address_of = |number: usize| u32::try_from(counters_at + 8 * number as u64).ok();
        let counters: Vec<(&CounterPlace, u32)> = (first..)
            .zip(places)
            .map(|(number, place)| Some((place?, address_of(number)?)))
            .collect::<Option<_>>()?;
        let copy = assemble(&self.code, &counters, address)?;
        let counters = self.chosen.iter().copied().zip(first..).collect();
        Some((Version { counters, gates: copy.gates.clone(), is_on: false }, copy))
    }

    /// Returns the executions of each block, named by the address of its first instruction, as far as they follow from how much its
    /// counters, by number, have increased.
    pub fn executions(&mut self, increases: &[u64]) -> Vec<(VirtualAddress, u64)> {
        let Some(version) = self.versions.iter().find(|version| version.is_on) else { return Vec::new() };
        let counted: Vec<(usize, u64)> =
            version.counters.iter().map(|(block, number)| (*block, increases[*number])).collect();
        let solved = self.graph.solve(&counted);
        for (total, count) in self.totals.iter_mut().zip(&solved) {
            if let Some(count) = count {
                *total.get_or_insert(0) += count;
            }
        }
        let starts = self.starts.iter().copied().map(VirtualAddress);
        starts.zip(solved).filter_map(|(start, count)| Some((start, count?))).collect()
    }
}

/// Returns how often each block seems to be executed: its samples for each of its instructions.
fn weights(cfg: &Cfg, starts: &[u64], samples: &[(VirtualAddress, u64)]) -> Vec<f64> {
    let mut weights = vec![0.0; starts.len()];
    for (address, number) in samples {
        if let Some(block) = starts.partition_point(|start| *start <= address.0).checked_sub(1) {
            weights[block] += *number as f64 / cfg.blocks[block].len() as f64;
        }
    }
    weights
}
