//! How an instruction changes a register that it writes, as far as the instruction itself shows.
//!
//! Input: an instruction and one of the registers that it writes. Output: a [`Step`]. Complexity: constant.

use dwell_image::{Instruction, Operand, Register};

/// How the writers of a register in a loop change it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// They add constants only; the sum of their absolute values.
    Constant(i64),
    /// One instruction computes it from other registers; the index of that instruction.
    Defined(usize),
    /// The change is unknown.
    Unknown,
}

impl Step {
    /// Combines two changes that happen in the same iteration.
    pub fn and(self, other: Step) -> Step {
        match (self, other) {
            (Step::Constant(a), Step::Constant(b)) => Step::Constant(a.saturating_add(b)),
            _ => Step::Unknown,
        }
    }
}

/// Returns how instruction `i` changes a register that it writes.
pub fn step(instruction: &Instruction, i: usize, register: Register) -> Step {
    match increment(instruction, register) {
        Some(by) => Step::Constant(by.saturating_abs()),
        None => Step::Defined(i),
    }
}

/// Returns the constant that an instruction adds to `register`, if it changes the register in no other way.
fn increment(instruction: &Instruction, register: Register) -> Option<i64> {
    let is = |o: Option<&Operand>| matches!(o, Some(Operand::Register { register: r, .. }) if *r == register);
    let immediate = |n: usize| match instruction.operands.get(n) {
        Some(Operand::Immediate(value)) => Some(*value),
        _ => None,
    };
    let own = is(instruction.operands.first());
    match &*instruction.mnemonic {
        "inc" | "dec" if own => Some(1),
        // `add rax, 8`, `add x1, x1, #8`.
        "add" | "sub" | "adds" | "subs" if own => match instruction.operands.len() {
            2 => immediate(1),
            _ if is(instruction.operands.get(1)) && !instruction.text.contains("lsl") => immediate(2),
            _ => None,
        },
        "addi" | "addiw" if own && is(instruction.operands.get(1)) => immediate(2),
        "lea" if own => {
            let m = instruction.memory().next()?;
            (m.base == Some(register) && m.index.is_none()).then_some(m.displacement)
        }
        "push" | "pop" if !own => Some(8),
        // Pre- and post-indexed accesses add the operand's displacement to their base.
        m if m.starts_with("ld") || m.starts_with("st") => {
            let base = instruction.memory().find(|m| m.base == Some(register))?;
            let loaded = instruction.operands.iter().any(|o| is(Some(o)));
            // The step of `ldrb w3, [x23], #1` is an operand of its own.
            let own_step =
                (base.displacement == 0).then(|| immediate(instruction.operands.len() - 1)).flatten();
            (base.index.is_none() && !loaded).then_some(own_step.unwrap_or(base.displacement))
        }
        _ => None,
    }
}
