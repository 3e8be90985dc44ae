//! How an address moves from one execution of an instruction to the next, as far as the instructions say.
//!
//! Input: a memory operand and the loop it runs in. Output: the most bytes by which its address advances in an iteration
//! (0: it stays), or nothing. Complexity: constant for each operand (chains of at most [`CHAIN_MAX`] definitions).
//!
//! This is what rules data misses out: an address that stays was touched an iteration ago, one that advances by eight
//! bytes meets a new line every eighth time and a new page every 512th.

use dwell_image::{Instruction, MemoryOperand, Operand, Register};

use super::scene::Scene;

/// Definitions that are followed from an address register.
const CHAIN_MAX: usize = 4;

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

/// The most bytes by which a memory operand's address advances from one iteration of a loop to the next; `None`: by
/// anything.
pub fn advance_bytes(scene: &Scene, id: usize, operand: &MemoryOperand) -> Option<f64> {
    if operand.address.is_some() {
        return Some(0.0);
    }
    let base = operand.base.map_or(Some(0.0), |r| advance(scene, id, r, CHAIN_MAX))?;
    let index = operand.index.map_or(Some(0.0), |r| advance(scene, id, r, CHAIN_MAX))?;
    Some(base + index * f64::from(operand.scale.max(1)))
}

fn advance(scene: &Scene, id: usize, register: Register, chain: usize) -> Option<f64> {
    match scene.facts.loops.step(id, register) {
        None => Some(0.0),
        Some(Step::Constant(bytes)) => Some(bytes as f64),
        Some(Step::Defined(i)) if chain > 0 => {
            advance_by(scene, id, &scene.instructions[i], register, chain - 1)
        }
        Some(_) => None,
    }
}

/// Of a register that one instruction computes anew in each iteration.
fn advance_by(scene: &Scene, id: usize, made_by: &Instruction, made: Register, chain: usize) -> Option<f64> {
    if made_by.load().is_some() {
        return None;
    }
    let sources = made_by.reads.iter().filter(|&r| r != made);
    let is_own_source = made_by.reads.contains(made);
    let factor = match &*made_by.mnemonic {
        "mov" | "movz" | "movsx" | "movsxd" | "movzx" | "cdqe" | "sxtw" | "uxtw" | "mv" | "sext.w" => 1.0,
        "add" | "sub" | "addw" => shift_of(&made_by.text),
        "lea" => f64::from(made_by.memory().next()?.scale.max(1)),
        "lsl" | "shl" | "slli" | "ubfiz" | "sbfiz" => {
            let bits = made_by.operands.iter().rev().find_map(|o| match o {
                Operand::Immediate(bits) => Some(*bits),
                _ => None,
            })?;
            // `ubfiz x0, x1, #shift, #width` has the width last.
            let bits = if made_by.mnemonic.contains("bfiz") { 4 } else { bits };
            f64::from(1u32 << bits.clamp(0, 12))
        }
        _ => return None,
    };
    if is_own_source {
        return None;
    }
    sources.map(|r| advance(scene, id, r, chain)).sum::<Option<f64>>().map(|sum| sum * factor)
}

/// `add x0, x1, x2, lsl #3` multiplies by 8.
fn shift_of(text: &str) -> f64 {
    let bits = text.split_once("lsl #").or_else(|| text.split_once("sxtw #")).map(|(_, bits)| bits.trim());
    f64::from(1u32 << bits.and_then(|b| b.parse::<u32>().ok()).unwrap_or(0).min(12))
}

/// Whether two operands are the same location plus a constant, as long as none of their registers is written between.
pub fn same_base(a: &MemoryOperand, b: &MemoryOperand) -> bool {
    match (a.address, b.address) {
        (Some(_), Some(_)) => true,
        (None, None) => a.base == b.base && a.index == b.index && (a.index.is_none() || a.scale == b.scale),
        _ => false,
    }
}

/// By how many bytes `to` lies behind `from`, two operands of the [`same_base`].
pub fn distance_bytes(from: &MemoryOperand, to: &MemoryOperand) -> i64 {
    match (from.address, to.address) {
        (Some(a), Some(b)) => b.0.wrapping_sub(a.0) as i64,
        _ => to.displacement.wrapping_sub(from.displacement),
    }
}
