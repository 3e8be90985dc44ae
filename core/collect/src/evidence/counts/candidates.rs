//! Words in which a process's code seems to count, from the registers of its samples.
//!
//! Enters: sampled program counters with registers, and the process's code. Leaves: words, each with the instructions
//! that are known to add a constant to it. Never here: the words' values, watchpoints.

use std::{collections::BTreeSet, fs::File, os::unix::fs::FileExt};

use dwell_profile::VirtualAddress;
use rustc_hash::{FxHashMap, FxHashSet};

use super::increments::{CODE_BYTES, Increment, Run, Written, written};
use crate::{registers::Registers, x86::INSTRUCTION_BYTES_MAX};

/// Number of samples that must agree on the address of an increment's word.
const AGREEING_MIN: u32 = 2;
/// Share of an increment's samples that must agree on the address of its word.
const AGREEING_SHARE: f64 = 0.8;
/// Number of different addresses that are remembered for an increment.
const ADDRESSES_MAX: usize = 8;
/// Number of places of code that are decoded in a process.
const RUNS_MAX: usize = 1 << 14;
/// Number of sampled places that are remembered.
const SAMPLED_MAX: usize = 1 << 17;
/// How many bytes before an instruction a run that contains it may begin.
const BEFORE_BYTES: u64 = 160;
/// Number of runs that are searched for an instruction.
const BEFORE_RUNS: usize = 8;

/// A word that may count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Word {
    /// The word's address.
    pub address: VirtualAddress,
    /// The word's size in bytes: 4 or 8.
    pub size: u8,
}

/// The increments of a process's code, and the addresses of their words.
#[derive(Default)]
pub struct Candidates {
    /// Places that were sampled.
    sampled: FxHashSet<VirtualAddress>,
    decoded: BTreeSet<VirtualAddress>,
    /// Increments by the place whose registers determine the word's address.
    visible: FxHashMap<VirtualAddress, Vec<Increment>>,
    /// Increments by the place after them.
    by_next_pc: FxHashMap<VirtualAddress, Increment>,
    addresses: FxHashMap<VirtualAddress, Addresses>,
    offered: FxHashSet<Word>,
}

#[derive(Default)]
struct Addresses {
    samples: u32,
    by_address: Vec<(VirtualAddress, u32)>,
}

impl Addresses {
    /// Adds a sample. Returns how many samples so far have this address.
    fn agree_on(&mut self, address: VirtualAddress) -> u32 {
        self.samples += 1;
        if let Some((_, samples)) = self.by_address.iter_mut().find(|(known, _)| *known == address) {
            *samples += 1;
            return *samples;
        }
        if self.by_address.len() < ADDRESSES_MAX {
            self.by_address.push((address, 1));
        }
        1
    }

    /// Returns the share of the samples that have this address, and its logarithmic error: executions with other
    /// addresses may take less time, or may not have been sampled.
    fn share_of(&self, address: VirtualAddress) -> (f64, f64) {
        let agreeing = self.by_address.iter().find(|(known, _)| *known == address).map_or(0, |(_, n)| *n);
        let samples = f64::from(self.samples.max(1));
        let share = f64::from(agreeing) / samples;
        let binomial = share * (1.0 - share) / samples;
        let unseen = 0.5 / (samples + 2.0);
        let deviation = (binomial + unseen * unseen + (0.5 * (1.0 - share)).powi(2)).sqrt();
        (share, deviation / share.max(1e-3))
    }
}

impl Candidates {
    /// Takes a sample into account. Returns a word once, when enough samples agree on its address.
    pub fn sample(&mut self, memory: &File, pc: VirtualAddress, registers: &Registers) -> Option<Word> {
        // Decoding a place that is sampled only once is rarely worth its cost.
        if self.sampled.insert(pc) {
            if self.sampled.len() > SAMPLED_MAX {
                self.sampled.clear();
            }
            return None;
        }
        self.decode(memory, pc, true);
        let mut found = None;
        for increment in self.visible.get(&pc).into_iter().flatten() {
            let address = increment.word.address(increment.pc, registers);
            let of_increment = self.addresses.entry(increment.pc).or_default();
            let agreeing = of_increment.agree_on(address);
            let word = Word { address, size: increment.word.size };
            let enough = agreeing >= AGREEING_MIN
                && f64::from(agreeing) >= AGREEING_SHARE * f64::from(of_increment.samples);
            if found.is_none() && enough && self.offered.insert(word) {
                found = Some(word);
            }
        }
        found
    }

    /// Returns the share of an increment's writes that are to this word, and the logarithmic error of the share,
    /// according to the registers of samples.
    pub fn share_of(&self, increment: &Increment, word: Word) -> (f64, f64) {
        match self.addresses.get(&increment.pc) {
            _ if increment.word.is_constant() => (1.0, 0.0),
            Some(addresses) => addresses.share_of(word.address),
            None => (0.0, 0.0),
        }
    }

    fn decode(&mut self, memory: &File, pc: VirtualAddress, and_targets: bool) {
        if self.decoded.len() >= RUNS_MAX || !self.decoded.insert(pc) {
            return;
        }
        let run = read_run(memory, pc);
        for (at, increments) in run.visible_from() {
            let visible = self.visible.entry(at).or_default();
            for increment in increments {
                if !visible.iter().any(|known| known.pc == increment.pc) {
                    visible.push(increment);
                }
            }
        }
        self.by_next_pc.extend(run.increments().map(|increment| (increment.next_pc, *increment)));
        if and_targets {
            run.targets.iter().for_each(|target| self.decode(memory, *target, false));
        }
    }

    /// Returns how the instruction that ends at `next_pc` wrote to a word, given the registers after it.
    pub fn written(
        &mut self,
        memory: &File,
        next_pc: VirtualAddress,
        word: Word,
        registers: Option<&Registers>,
    ) -> Option<Written> {
        if !self.by_next_pc.contains_key(&next_pc) {
            let starts = self.decoded.range(next_pc.saturating_back(BEFORE_BYTES)..next_pc).rev();
            for start in starts.take(BEFORE_RUNS) {
                let run = read_run(memory, *start);
                if let Some(increment) = run.increments().find(|increment| increment.next_pc == next_pc) {
                    self.by_next_pc.insert(next_pc, *increment);
                    break;
                }
            }
        }
        if let Some(increment) = self.by_next_pc.get(&next_pc) {
            return (increment.word.size >= word.size).then_some(Written::Added(*increment));
        }
        let mut code = [0; INSTRUCTION_BYTES_MAX];
        memory.read_exact_at(&mut code, next_pc.back(INSTRUCTION_BYTES_MAX as u64).0).ok()?;
        let found = written(&code, next_pc, word.address, registers?)?;
        if let Written::Added(increment) = found {
            self.by_next_pc.insert(next_pc, increment);
        }
        match found {
            Written::Added(increment) if increment.word.size < word.size => None,
            found => Some(found),
        }
    }
}

fn read_run(memory: &File, pc: VirtualAddress) -> Run {
    let mut code = [0; CODE_BYTES];
    let length = memory.read_at(&mut code, pc.0).unwrap_or(0);
    Run::decode(&code[..length], pc)
}
