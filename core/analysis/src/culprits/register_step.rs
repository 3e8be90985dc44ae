//! How an instruction changes a register that it writes, as far as the instruction itself shows.
//!
//! Input: an instruction and one of the registers that it writes. Output: a [`Step`]. Complexity: constant.

use dwell_image::{Instruction, Operand, Register};

/// How the writers of a register in a loop change it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Only by constants, their sizes' sum being this many.
    Constant(i64),
    /// One instruction computes it from others.
    Defined(usize),
    /// Any other way.
    Unknown,
}

impl Step {
    /// Both happen in one iteration.
    pub fn and(self, other: Step) -> Step {
        match (self, other) {
            (Step::Constant(a), Step::Constant(b)) => Step::Constant(a.saturating_add(b)),
            _ => Step::Unknown,
        }
    }
}

/// What instruction `i` does to a register that it writes.
pub fn step(instruction: &Instruction, i: usize, register: Register) -> Step {
    match increment(instruction, register) {
        Some(by) => Step::Constant(by.saturating_abs()),
        None => Step::Defined(i),
    }
}

/// The constant that is added to `register`, where that is all that happens to it.
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
        // Pre- and post-indexed accesses move their base by what the operand names.
        m if m.starts_with("ld") || m.starts_with("st") => {
            let base = instruction.memory().find(|m| m.base == Some(register))?;
            let loaded = instruction.operands.iter().any(|o| is(Some(o)));
            // `ldrb w3, [x23], #1` has its step as an operand of its own.
            let own_step =
                (base.displacement == 0).then(|| immediate(instruction.operands.len() - 1)).flatten();
            (base.index.is_none() && !loaded).then_some(own_step.unwrap_or(base.displacement))
        }
        _ => None,
    }
}
