//! Reaching definitions: the instructions that may have written a register last, searched backwards on demand.
//!
//! Input: a procedure's instructions, and edges of jump tables as far as they are known. Output: the writes that reach an
//! instruction, and whether a path comes from unknown code (the entry, a block that only an unrecovered jump leads to).
//! Complexity: each search visits at most [`VISITS_MAX`] instructions, each once. All searches of a procedure together
//! visit a number linear in its length; after that no search has a result.

use std::{cell::Cell, collections::BTreeMap};

use dwell_image::{Arch, Flow, ImageAddress, Instruction, Register};
use rustc_hash::{FxHashMap, FxHashSet};

use super::index_of;

/// Number of instructions that one search visits.
const VISITS_MAX: usize = 4096;
/// Number of instructions that all searches together visit: per instruction of the procedure, at least, and at most. A
/// hostile file reaches the last one within a second or two.
const VISITS_PER_INSTRUCTION: usize = 1000;
const VISITS_RANGE: (usize, usize) = (2_000_000, 20_000_000);

/// The graph of single instructions, backwards.
pub struct Reach<'a> {
    arch: Arch,
    instructions: &'a [Instruction],
    /// The jumps and branches to each instruction, without the instruction before it that falls through.
    jumps_to: FxHashMap<usize, Vec<usize>>,
    visits_left: Cell<usize>,
}

/// The result of a search.
#[derive(Default)]
pub struct Definitions {
    /// The writes, the nearest first.
    pub at: Vec<usize>,
    /// Whether some path from the procedure's entry has none.
    pub from_entry: bool,
    /// Whether some path has none and begins at unknown code, or was too long to be followed.
    pub from_unknown: bool,
}

/// One step back from an instruction.
#[derive(Clone, Copy)]
pub struct Edge {
    /// The instruction before.
    pub from: usize,
    /// Whether that is a branch or jump that was taken.
    pub taken: bool,
}

impl<'a> Reach<'a> {
    /// Builds the graph, in time linear in the instructions and in the tables' targets.
    pub fn new(
        arch: Arch,
        instructions: &'a [Instruction],
        tables: &BTreeMap<usize, Vec<ImageAddress>>,
    ) -> Reach<'a> {
        let mut jumps_to: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        let mut add = |from, target| {
            if let Some(to) = index_of(instructions, target) {
                jumps_to.entry(to).or_default().push(from);
            }
        };
        for (i, instruction) in instructions.iter().enumerate() {
            if let Flow::Branch { target } | Flow::Jump { target } = instruction.flow {
                add(i, target);
            }
        }
        for (&jump, targets) in tables {
            targets.iter().for_each(|&target| add(jump, target));
        }
        let (least, most) = VISITS_RANGE;
        let visits = (instructions.len() * VISITS_PER_INSTRUCTION).clamp(least, most);
        Reach { arch, instructions, jumps_to, visits_left: Cell::new(visits) }
    }

    /// Returns the predecessors of instruction `i`.
    pub fn before(&self, i: usize) -> impl Iterator<Item = Edge> + '_ {
        let falls = |flow: Flow| matches!(flow, Flow::Next | Flow::Branch { .. } | Flow::Call { .. });
        let above = i.checked_sub(1).filter(|&p| falls(self.instructions[p].flow));
        let jumps = self.jumps_to.get(&i).into_iter().flatten();
        let above = above.map(|from| Edge { from, taken: false });
        above.into_iter().chain(jumps.map(|&from| Edge { from, taken: true }))
    }

    /// Returns the writes of `register` that may be the last before `at`.
    pub fn definitions(&self, register: Register, at: usize) -> Definitions {
        let mut found = Definitions::default();
        let mut seen = FxHashSet::default();
        let mut waiting = vec![at];
        while let Some(i) = waiting.pop() {
            let mut ways = self.before(i).peekable();
            let is_enough = seen.len() >= VISITS_MAX || !self.spend(1);
            found.from_entry |= i == 0;
            found.from_unknown |= is_enough || (i > 0 && ways.peek().is_none());
            if is_enough {
                break;
            }
            for Edge { from, .. } in ways {
                if !seen.insert(from) {
                    continue;
                }
                if self.is_write(from, register) {
                    found.at.push(from);
                } else {
                    waiting.push(from);
                }
            }
        }
        found
    }
}

impl Reach<'_> {
    /// Whether instruction `i` changes `register`.
    pub fn is_write(&self, i: usize, register: Register) -> bool {
        writes(self.arch, &self.instructions[i], register)
    }

    /// Takes visits from the procedure's allowance. Returns whether there were any left.
    pub fn spend(&self, visits: usize) -> bool {
        let left = self.visits_left.get();
        self.visits_left.set(left.saturating_sub(visits));
        left > 0
    }
}

/// Whether an instruction changes a register; for a call, whether it returns something there. A register that is used
/// after a call without being written there was preserved, by convention or because the compiler knows the callee.
pub fn writes(arch: Arch, instruction: &Instruction, register: Register) -> bool {
    match instruction.flow {
        Flow::Call { .. } => is_returned(arch, register),
        _ => instruction.writes.contains(register),
    }
}

/// Returns the registers in which calls return values: System V x86-64 psABI, section 3.2.3; AAPCS64, section 6.9; RISC-V
/// psABI, section 2.1.
fn is_returned(arch: Arch, register: Register) -> bool {
    let registers = match arch {
        Arch::X86_64 | Arch::X86 => [0, 2],
        Arch::Aarch64 => [0, 1],
        Arch::Riscv64 => [10, 11],
    };
    registers.contains(&register.0)
}

/// Checks a search forwards: exactly these writes have a path to `at` on which nothing writes the register again.
/// Quadratic, and only for searches that were not cut short.
#[cfg(test)]
fn verify_definitions(
    reach: &Reach,
    register: Register,
    at: usize,
    found: &Definitions,
) -> Result<(), String> {
    let n = reach.instructions.len();
    let mut after = vec![Vec::new(); n];
    (0..n).for_each(|i| reach.before(i).for_each(|edge| after[edge.from].push(i)));
    let arrives = |write: usize| {
        let (mut seen, mut waiting) = (vec![false; n], after[write].clone());
        while let Some(i) = waiting.pop() {
            if i == at {
                return true;
            }
            if !std::mem::replace(&mut seen[i], true) && !reach.is_write(i, register) {
                waiting.extend(&after[i]);
            }
        }
        false
    };
    let expected: Vec<usize> = (0..n).filter(|&i| reach.is_write(i, register) && arrives(i)).collect();
    let mut sorted = found.at.clone();
    sorted.sort_unstable();
    if sorted == expected { Ok(()) } else { Err(format!("{sorted:?} reach {at}, and not {expected:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `0: mov eax, ebx; 1: add ecx, 1; 2: je 5; 3: mov eax, edx; 4: jmp 1; 5: mov ecx, eax; 6: ret; 7: jmp 7`
    const CODE: [u8; 16] =
        [0x89, 0xd8, 0x83, 0xc1, 0x01, 0x74, 0x04, 0x89, 0xd0, 0xeb, 0xf7, 0x89, 0xc1, 0xc3, 0xeb, 0xfe];

    #[test]
    fn exactly_the_reaching_writes_are_found() {
        let instructions = dwell_image::instructions(Arch::X86_64, &CODE, ImageAddress(0x100));
        assert_eq!(instructions.len(), 8);
        let reach = Reach::new(Arch::X86_64, &instructions, &BTreeMap::new());
        for register in (0..8).map(Register) {
            for at in 0..instructions.len() {
                let found = reach.definitions(register, at);
                assert_eq!(verify_definitions(&reach, register, at, &found), Ok(()));
            }
        }
        let eax = reach.definitions(Register(0), 5);
        assert_eq!((eax.at.len(), eax.from_entry, eax.from_unknown), (2, false, false));
        let missed = Definitions { at: vec![0], ..Definitions::default() };
        assert!(verify_definitions(&reach, Register(0), 5, &missed).is_err());
    }
}
