//! How many entries a jump table can have, by the guard before its use.
//!
//! Input: the index, as a register at an instruction. Output: one more than the largest index, if a comparison, a mask or
//! the width of a load determines it. The search goes back along the only predecessor; of several predecessors it takes
//! the one that falls through. Complexity: at most [`LOOK_BACK`] instructions.

use dwell_image::{Arch, Flow, Instruction, Operand, Register};

use super::{
    reach::{Edge, Reach},
    value::Evaluator,
};

/// Number of instructions that the search looks back from a table's use.
const LOOK_BACK: usize = 64;
/// Number of values of a byte.
const BYTES: u64 = 256;

/// The number of entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The exact number: the index was compared or masked.
    Exact(u64),
    /// An upper bound: the index has this many values.
    AtMost(u64),
}

/// Returns the bound of an index that is in `index` before instruction `at`.
pub fn entries(evaluator: &Evaluator, index: Register, at: usize) -> Option<Bound> {
    let mut walk = Walk { evaluator, aliases: vec![index], limit: None, is_byte: false };
    let bound = walk.back_from(at).or(walk.is_byte.then_some(Bound::AtMost(BYTES)));
    debug_assert_eq!(verify_bound(evaluator, bound), Ok(()));
    bound
}

/// Checks that an instruction of the procedure supports the bound: an exact number is an operand, one more than one, or
/// the number of a field's values (RISC-V may have computed it); an upper bound is that of a byte.
fn verify_bound(evaluator: &Evaluator, bound: Option<Bound>) -> Result<(), String> {
    let operands = || evaluator.instructions.iter().flat_map(|i| &i.operands);
    let supports = |entries: u64| {
        let is_it = |value: i64| u64::try_from(value).is_ok_and(|v| v == entries || v + 1 == entries);
        operands().any(|o| matches!(o, Operand::Immediate(value) if is_it(*value)))
    };
    let is_sound = match bound {
        None => true,
        Some(Bound::AtMost(entries)) => entries == BYTES,
        Some(Bound::Exact(entries)) => {
            supports(entries) || entries.is_power_of_two() || evaluator.arch == Arch::Riscv64
        }
    };
    if is_sound { Ok(()) } else { Err(format!("nothing in the procedure says {bound:?}")) }
}

fn only_way(reach: &Reach, i: usize) -> Option<Edge> {
    let mut ways = reach.before(i);
    let first = ways.next()?;
    (!first.taken || ways.next().is_none()).then_some(first)
}

struct Walk<'a> {
    evaluator: &'a Evaluator<'a>,
    /// The registers that hold the index at this point.
    aliases: Vec<Register>,
    /// The condition of the nearest branch, until its comparison is found.
    limit: Option<Limit>,
    /// Whether the index was extended from a byte.
    is_byte: bool,
}

/// What a branch between a comparison and this point says about the comparison's first operand.
#[derive(Clone, Copy, PartialEq)]
enum Limit {
    AtMost,
    Below,
}

impl Walk<'_> {
    fn back_from(&mut self, at: usize) -> Option<Bound> {
        let mut i = at;
        for _ in 0..LOOK_BACK {
            let Edge { from, taken } = only_way(&self.evaluator.reach, i)?;
            if let Some(bound) = self.visit(from, taken) {
                return Some(bound);
            }
            if self.aliases.is_empty() {
                return None;
            }
            i = from;
        }
        None
    }

    fn visit(&mut self, i: usize, taken: bool) -> Option<Bound> {
        let instruction = &self.evaluator.instructions[i];
        match self.evaluator.arch {
            Arch::Riscv64 => {
                if let Some(entries) = self.compare_and_branch(instruction, i, taken) {
                    return Some(Bound::Exact(entries));
                }
            }
            arch => {
                if let Flow::Branch { .. } = instruction.flow {
                    self.limit = limit_of(arch, &instruction.mnemonic, taken);
                } else if &*instruction.mnemonic == "cmp" {
                    if let Some(entries) = self.compared(instruction, i) {
                        return Some(Bound::Exact(entries));
                    }
                    self.limit = None;
                }
            }
        }
        self.definition(i)
    }

    /// Handles `cmp index, constant`, with the branch after it.
    fn compared(&self, compare: &Instruction, i: usize) -> Option<u64> {
        let limit = self.limit?;
        let [Operand::Register { register, .. }, Operand::Immediate(constant)] = compare.operands[..] else {
            return None;
        };
        self.is_index(register, i).then_some(())?;
        bounded(limit, u64::try_from(constant).ok()?)
    }

    /// Handles `bltu constant, index` and similar instructions, which hold the constant in a register.
    fn compare_and_branch(&self, branch: &Instruction, at: usize, taken: bool) -> Option<u64> {
        let Flow::Branch { .. } = branch.flow else { return None };
        let [Operand::Register { register: a, .. }, Operand::Register { register: b, .. }, ..] =
            branch.operands[..]
        else {
            return None;
        };
        let is_less = match &*branch.mnemonic {
            "bltu" | "blt" => taken,
            "bgeu" | "bge" => !taken,
            _ => return None,
        };
        // Here `a < b` holds; otherwise `b <= a` holds.
        let (index, other, limit) = if is_less { (a, b, Limit::Below) } else { (b, a, Limit::AtMost) };
        self.is_index(index, at).then_some(())?;
        let constant = self.evaluator.register(other, at);
        bounded(limit, constant.constant.filter(|_| constant.term.is_none())?)
    }

    /// Whether a register holds the index before instruction `at`, or the value that the index was copied from.
    fn is_index(&self, register: Register, at: usize) -> bool {
        let reach = &self.evaluator.reach;
        self.aliases.iter().any(|&alias| {
            alias == register
                || matches!(reach.definitions(alias, at).at[..], [copy]
                    if copied_from(&self.evaluator.instructions[copy]) == Some(register)
                        && reach.definitions(register, at).at == reach.definitions(register, copy).at)
        })
    }

    /// Handles a write of the index: a mask or a narrow load bounds it, a copy gives it another name, anything else ends
    /// the search.
    fn definition(&mut self, i: usize) -> Option<Bound> {
        let instruction = &self.evaluator.instructions[i];
        let written = *self.aliases.iter().find(|a| self.evaluator.reach.is_write(i, **a))?;
        let m = instruction.mnemonic.strip_prefix("c.").unwrap_or(&instruction.mnemonic);
        let constant = instruction.operands.iter().find_map(|o| match o {
            Operand::Immediate(value) => u64::try_from(*value).ok(),
            _ => None,
        });
        match (m, constant) {
            ("and" | "andi", Some(mask)) => return mask.checked_add(1).map(Bound::Exact),
            ("ubfx", Some(_)) => {
                let width = instruction.text.rsplit('#').next()?.trim().parse::<u32>().ok();
                return width.filter(|w| *w < 16).map(|w| Bound::Exact(1 << w));
            }
            ("ldrb" | "ldurb" | "lbu" | "uxtb" | "zext.b", _) => self.is_byte = true,
            ("movzx", _) => self.is_byte |= reads_byte(instruction),
            _ => {}
        }
        self.aliases.retain(|a| *a != written);
        self.aliases.extend(copied_from(instruction));
        None
    }
}

/// Whether the second operand is a byte.
fn reads_byte(instruction: &Instruction) -> bool {
    match instruction.operands.get(1) {
        Some(Operand::Register { width_bits, .. }) => *width_bits == 8,
        Some(Operand::Memory(memory)) => memory.width_bytes == 1,
        _ => false,
    }
}

/// Returns the register that an instruction copies, whole or its low bits.
fn copied_from(instruction: &Instruction) -> Option<Register> {
    let copies =
        ["mov", "mv", "movzx", "movsx", "movsxd", "sxtw", "uxtw", "uxtb", "uxth", "sext.w", "zext.b"];
    let m = instruction.mnemonic.strip_prefix("c.").unwrap_or(&instruction.mnemonic);
    match instruction.operands.get(1)? {
        Operand::Register { register, .. } if copies.contains(&m) => Some(*register),
        _ => None,
    }
}

fn bounded(limit: Limit, constant: u64) -> Option<u64> {
    match limit {
        Limit::AtMost => constant.checked_add(1),
        Limit::Below => Some(constant),
    }
}

/// Returns what the condition of a branch, taken or not, says about the first operand of the comparison.
fn limit_of(arch: Arch, mnemonic: &str, taken: bool) -> Option<Limit> {
    let condition = match arch {
        Arch::X86_64 | Arch::X86 => mnemonic.strip_prefix('j')?,
        _ => mnemonic.strip_prefix("b.")?,
    };
    let (when_taken, when_not) = match condition {
        "a" | "nbe" | "g" | "hi" | "gt" => (None, Some(Limit::AtMost)),
        "ae" | "nb" | "ge" | "hs" | "cs" => (None, Some(Limit::Below)),
        "be" | "na" | "le" | "ls" => (Some(Limit::AtMost), None),
        "b" | "l" | "lo" | "cc" | "lt" => (Some(Limit::Below), None),
        _ => (None, None),
    };
    if taken { when_taken } else { when_not }
}
