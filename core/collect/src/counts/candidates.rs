//! Words that code of a process seems to count in, from the registers of its samples.
//!
//! Enters: sampled program counters with registers, and the process's code. Leaves: words, each with the instructions that are known to
//! add a constant to it. Never here: the words' values, watchpoints.

use std::{collections::BTreeSet, fs::File, os::unix::fs::FileExt};

use rustc_hash::{FxHashMap, FxHashSet};

use super::writers::{CODE_BYTES, Run, Writer};
use crate::branch::Registers;

/// Samples that must agree on the address of a writer's word …
const AGREEING_MIN: u32 = 2;
/// … and the share of all that do.
const AGREEING_SHARE: f64 = 0.8;
/// Different addresses that are remembered of a writer.
const ADDRESSES_MAX: usize = 8;
/// Places of code that are decoded in a process.
const RUNS_MAX: usize = 1 << 14;
/// How far before an instruction a run may begin that has it.
const BEFORE_BYTES: u64 = 160;
/// Runs that are tried to find an instruction.
const BEFORE_RUNS: usize = 8;

/// A word that may count, at its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Word {
    /// Its address.
    pub address: u64,
    /// Bytes: 4 or 8.
    pub size: u8,
}

/// What is known of a process's code.
#[derive(Default)]
pub struct Candidates {
    decoded: BTreeSet<u64>,
    /// Writers by the place from whose registers their address is known.
    seen: FxHashMap<u64, Vec<Writer>>,
    /// Writers by the place after them.
    by_next_pc: FxHashMap<u64, Writer>,
    addresses: FxHashMap<u64, Addresses>,
    offered: FxHashSet<Word>,
}

#[derive(Default)]
struct Addresses {
    samples: u32,
    by_address: Vec<(u64, u32)>,
}

impl Addresses {
    /// Adds a sample. Returns how many so far had this address.
    fn agree_on(&mut self, address: u64) -> u32 {
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
}

impl Candidates {
    /// Takes a sample in. Returns a word that enough samples agree on by now, once.
    pub fn sample(&mut self, memory: &File, pc: u64, registers: &Registers) -> Option<Word> {
        self.decode(memory, pc, true);
        let mut found = None;
        for writer in self.seen.get(&pc).into_iter().flatten() {
            let address = writer.operand.address(|base| registers.general(base));
            let of_writer = self.addresses.entry(writer.pc).or_default();
            let agreeing = of_writer.agree_on(address);
            let word = Word { address, size: writer.operand.size };
            let enough = agreeing >= AGREEING_MIN
                && f64::from(agreeing) >= AGREEING_SHARE * f64::from(of_writer.samples);
            if found.is_none() && enough && self.offered.insert(word) {
                found = Some(word);
            }
        }
        found
    }

    fn decode(&mut self, memory: &File, pc: u64, and_targets: bool) {
        if self.decoded.len() >= RUNS_MAX || !self.decoded.insert(pc) {
            return;
        }
        let run = read_run(memory, pc);
        for (at, writers) in run.seen_from() {
            let seen = self.seen.entry(at).or_default();
            for writer in writers {
                if !seen.iter().any(|known| known.pc == writer.pc) {
                    seen.push(writer);
                }
            }
        }
        self.by_next_pc.extend(run.writers().map(|writer| (writer.next_pc, *writer)));
        if and_targets {
            run.targets.iter().for_each(|target| self.decode(memory, *target, false));
        }
    }

    /// The writer of a word that ends at `next_pc`, if it adds a constant.
    pub fn writer(&mut self, memory: &File, next_pc: u64, size: u8) -> Option<Writer> {
        if !self.by_next_pc.contains_key(&next_pc) {
            let starts = self.decoded.range(next_pc.saturating_sub(BEFORE_BYTES)..next_pc).rev();
            for start in starts.take(BEFORE_RUNS) {
                let run = read_run(memory, *start);
                if let Some(writer) = run.writers().find(|writer| writer.next_pc == next_pc) {
                    self.by_next_pc.insert(next_pc, *writer);
                    break;
                }
            }
        }
        self.by_next_pc.get(&next_pc).filter(|writer| writer.operand.size == size).copied()
    }
}

fn read_run(memory: &File, pc: u64) -> Run {
    let mut code = [0; CODE_BYTES];
    let length = memory.read_at(&mut code, pc).unwrap_or(0);
    Run::decode(&code[..length], pc)
}
