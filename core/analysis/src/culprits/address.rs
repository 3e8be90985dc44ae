//! How an address changes from one iteration of a loop to the next, as far as the instructions show.
//!
//! Input: a memory operand and the loop that it is in. Output: an upper bound on the bytes by which its address advances in an
//! iteration (0 if it stays the same), or nothing. Complexity: constant for each operand (chains of at most [`CHAIN_MAX`]
//! definitions).
//!
//! This is what rules out data misses: an address that stays the same was accessed an iteration ago, and one that advances by eight
//! bytes reaches a new line every eighth time and a new page every 512th time.

use dwell_image::{Instruction, MemoryOperand, Operand, Register};

use super::{context::ProcedureContext, register_step::Step};

/// Number of definitions that are followed from an address register.
const CHAIN_MAX: usize = 4;

/// Returns an upper bound on the bytes by which a memory operand's address advances from one iteration of a loop to the
/// next, or `None` if the instructions show none.
pub fn advance_bytes(context: &ProcedureContext, id: usize, operand: &MemoryOperand) -> Option<f64> {
    if operand.address.is_some() {
        return Some(0.0);
    }
    let base = operand.base.map_or(Some(0.0), |r| advance(context, id, r, CHAIN_MAX))?;
    let index = operand.index.map_or(Some(0.0), |r| advance(context, id, r, CHAIN_MAX))?;
    Some(base + index * f64::from(operand.scale.max(1)))
}

fn advance(context: &ProcedureContext, id: usize, register: Register, chain: usize) -> Option<f64> {
    match context.facts.loops.step(id, register) {
        None => Some(0.0),
        Some(Step::Constant(bytes)) => Some(bytes as f64),
        Some(Step::Defined(i)) if chain > 0 => {
            advance_by(context, id, &context.instructions[i], register, chain - 1)
        }
        Some(_) => None,
    }
}

/// Returns the advance of a register that one instruction computes from others in each iteration.
fn advance_by(
    context: &ProcedureContext,
    id: usize,
    made_by: &Instruction,
    made: Register,
    chain: usize,
) -> Option<f64> {
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
            // The width is the last operand of `ubfiz x0, x1, #shift, #width`.
            let bits = if made_by.mnemonic.contains("bfiz") { 4 } else { bits };
            f64::from(1u32 << bits.clamp(0, 12))
        }
        _ => return None,
    };
    if is_own_source {
        return None;
    }
    sources.map(|r| advance(context, id, r, chain)).sum::<Option<f64>>().map(|sum| sum * factor)
}

/// Returns the factor of a shifted operand: `add x0, x1, x2, lsl #3` multiplies by 8.
fn shift_of(text: &str) -> f64 {
    let bits = text.split_once("lsl #").or_else(|| text.split_once("sxtw #")).map(|(_, bits)| bits.trim());
    f64::from(1u32 << bits.and_then(|b| b.parse::<u32>().ok()).unwrap_or(0).min(12))
}

/// Whether two operands differ by a constant only, as long as none of their registers is written between them.
pub fn same_base(a: &MemoryOperand, b: &MemoryOperand) -> bool {
    match (a.address, b.address) {
        (Some(_), Some(_)) => true,
        (None, None) => a.base == b.base && a.index == b.index && (a.index.is_none() || a.scale == b.scale),
        _ => false,
    }
}

/// Returns by how many bytes `to` lies behind `from`. The two operands must have the [`same_base`].
pub fn distance_bytes(from: &MemoryOperand, to: &MemoryOperand) -> i64 {
    match (from.address, to.address) {
        (Some(a), Some(b)) => b.0.wrapping_sub(a.0) as i64,
        _ => to.displacement.wrapping_sub(from.displacement),
    }
}
