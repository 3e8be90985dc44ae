//! A small in-order pipeline that executes random programs, so that estimates meet what a schedule leaves out: stalls
//! that overlap latencies, pairs that realign, what predecessors leave behind.
//!
//! Written from docs/measured.md's description of `generic-inorder-2`, apart from the scheduler: two slots a cycle, at most
//! one memory operation, branch, multiplication; nothing pairs after a branch; loads 3, multiplications 3, divisions
//! 12; mispredicted branches 8; a store buffer of 6. Which loads miss, which branches are hard and which lines are cold
//! is drawn for each instruction.

use std::collections::BTreeMap;

use dwell_image::{Flow, Instruction};

use crate::truth::Random;

/// What happened: executions and cycles at the head of the queue.
pub struct Run {
    pub executions: Vec<f64>,
    pub head_cycles: Vec<f64>,
}

/// This says how an instruction behaves in the simulated pipeline.
struct Nature {
    misses: f64,
    miss_cycles: u64,
    mispredicted: f64,
    line_is_cold: f64,
    drain_cycles: u64,
}

impl Nature {
    fn draw(random: &mut Random) -> Nature {
        Nature {
            misses: [0.0, 0.0, 0.01, 0.1, 0.6][random.below(5)],
            miss_cycles: [12, 12, 110][random.below(3)],
            mispredicted: [0.02, 0.2, 0.5][random.below(3)],
            line_is_cold: [0.0, 0.0, 0.0, 0.001, 0.05][random.below(5)],
            drain_cycles: [1, 1, 2, 30][random.below(4)],
        }
    }
}

struct Core {
    cycle: u64,
    slots: u32,
    memory_used: bool,
    multiplier_used: bool,
    closed: bool,
    ready: [u64; 128],
    divider_free: u64,
    /// When each of the last six stores has left the buffer.
    buffer: [u64; 6],
    stores: usize,
}

/// Executes `code` until `instructions_max` have run; `taken` has each conditional branch's probability.
pub fn execute(
    code: &[Instruction],
    taken: &BTreeMap<usize, f64>,
    random: &mut Random,
    instructions_max: usize,
) -> Run {
    let natures: Vec<Nature> = code.iter().map(|_| Nature::draw(random)).collect();
    let index: BTreeMap<u64, usize> = code.iter().enumerate().map(|(i, x)| (x.address.0, i)).collect();
    let n = code.len();
    let mut run = Run { executions: vec![0.0; n], head_cycles: vec![0.0; n] };
    let mut core = Core {
        cycle: 0,
        slots: 0,
        memory_used: false,
        multiplier_used: false,
        closed: false,
        ready: [0; 128],
        divider_free: 0,
        buffer: [0; 6],
        stores: 0,
    };
    let (mut i, mut fetched) = (0, 0);
    for _ in 0..instructions_max {
        let before = core.cycle;
        if code[i].address.0.is_multiple_of(64) && random.unit() < natures[i].line_is_cold {
            fetched = core.cycle + 12;
        }
        core.issue(&code[i], &natures[i], random, fetched);
        run.executions[i] += 1.0;
        run.head_cycles[i] += (core.cycle - before) as f64;
        let next = match code[i].flow {
            Flow::Branch { target } if random.unit() < taken[&i] => index[&target.0],
            Flow::Jump { target } => index[&target.0],
            Flow::Return => 0,
            _ => i + 1,
        };
        if let Flow::Branch { .. } = code[i].flow {
            let p = taken[&i];
            if random.unit() < natures[i].mispredicted * 2.0 * p.min(1.0 - p) {
                fetched = core.cycle + 8;
            }
        }
        i = next;
    }
    run
}

impl Core {
    fn issue(&mut self, instruction: &Instruction, nature: &Nature, random: &mut Random, fetched: u64) {
        let m = &*instruction.mnemonic;
        let is_load = m.starts_with("ld");
        let is_store = m.starts_with("st");
        let is_memory = is_load || is_store;
        let is_multiply = m == "mul" || m == "sdiv";
        let is_branch = instruction.flow != Flow::Next;
        let unit_is_taken = (is_memory && self.memory_used) || (is_multiply && self.multiplier_used);
        let waits = self.slots == 2 || self.closed || unit_is_taken;
        let mut at = self.cycle + u64::from(waits);
        at = instruction.reads.iter().map(|r| self.ready[usize::from(r.0)]).fold(at, u64::max).max(fetched);
        if is_store {
            at = at.max(self.buffer[self.stores % 6]);
        }
        if is_multiply {
            at = at.max(self.divider_free);
        }
        if at > self.cycle {
            (self.cycle, self.slots, self.closed) = (at, 0, false);
            (self.memory_used, self.multiplier_used) = (false, false);
        }
        self.slots += 1;
        self.closed |= is_branch;
        self.memory_used |= is_memory;
        self.multiplier_used |= is_multiply;
        let latency = match m {
            _ if is_load && random.unit() < nature.misses => 3 + nature.miss_cycles,
            _ if is_load => 3,
            "mul" => 3,
            "sdiv" => 12,
            _ => 1,
        };
        if m == "sdiv" {
            self.divider_free = at + 12;
        }
        if is_store {
            let before = self.buffer[(self.stores + 5) % 6];
            self.buffer[self.stores % 6] = at.max(before) + nature.drain_cycles;
            self.stores += 1;
        }
        instruction.writes.iter().for_each(|r| self.ready[usize::from(r.0)] = at + latency);
    }
}
