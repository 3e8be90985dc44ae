//! Corrects which registers x86 instructions read and write, where Capstone 5's tables are wrong or incomplete. The errors
//! were found by listing every form in libc, libm and libstdc++; the reference is the Intel SDM, vol. 2.

use super::decoder::Parts;
use crate::x86::{FLAGS, K0, RAX};
use crate::{MemoryOperand, Operand, Register};

const RCX: Register = crate::x86::RCX;
const R11: Register = Register(11);
/// Top of the x87 stack, which all x87 instructions use.
const ST0: Register = Register(24);

/// Beginnings of the mnemonics of instructions that write their first operand without reading it.
const WRITE_ONLY: [&str; 34] = [
    "mov",
    "vmov",
    "set",
    "stos",
    "ins",
    "fst",
    "fist",
    "fnst",
    "fnsave",
    "fsave",
    "fbstp",
    "stmxcsr",
    "vstmxcsr",
    "fxsave",
    "xsave",
    "pextr",
    "vpextr",
    "extractps",
    "vextract",
    "vpmov",
    "vcvtps2ph",
    "vmaskmov",
    "vpmaskmov",
    "vcompress",
    "vpcompress",
    "vscatter",
    "vpscatter",
    "pop",
    "sgdt",
    "sidt",
    "sldt",
    "smsw",
    "str",
    "rdssp",
];

/// Beginnings of the mnemonics of instructions that read and write their first operand.
const READ_WRITE: [&str; 30] = [
    "add",
    "adc",
    "sub",
    "sbb",
    "and",
    "or",
    "xor",
    "not",
    "neg",
    "inc",
    "dec",
    "rol",
    "ror",
    "rcl",
    "rcr",
    "shl",
    "shr",
    "sar",
    "sal",
    "shld",
    "shrd",
    "btc",
    "btr",
    "bts",
    "xadd",
    "xchg",
    "cmpxchg",
    "cmpxchg8b",
    "cmpxchg16b",
    "aadd",
];

/// Returns whether a memory operand in first place is (read, written).
pub(super) fn first_operand(mnemonic: &str) -> (bool, bool) {
    match () {
        _ if READ_WRITE.contains(&mnemonic) => (true, true),
        _ if WRITE_ONLY.iter().any(|w| mnemonic.starts_with(w)) => (false, true),
        _ => (true, false),
    }
}

/// Corrects the sets of registers.
pub(super) fn correct(mnemonic: &str, parts: &mut Parts) {
    if mnemonic.starts_with("nop") {
        parts.reads = Default::default();
        return;
    }
    let registers = registers(&parts.operands);
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| mnemonic.starts_with(p));
    // All operands after the first one are read, except the second half of a wide product.
    let sources = if mnemonic == "mulx" { 2 } else { 1 };
    registers.iter().filter(|(place, _)| *place >= sources).for_each(|(_, r)| parts.reads.insert(*r));
    let first = registers.first().filter(|(place, _)| *place == 0).map(|(_, r)| *r);
    match mnemonic {
        "test" | "cmp" => {
            first.into_iter().for_each(|r| parts.reads.insert(r));
            parts.writes.insert(FLAGS);
        }
        _ if starts(&["ktest", "kortest"]) => {
            first.into_iter().for_each(|r| parts.reads.insert(r));
            parts.writes.insert(FLAGS);
        }
        _ if starts(&["cmov", "cvtsi2s", "cvtss2sd", "cvtsd2ss", "sqrts", "rcpss", "rsqrtss", "rounds"]) => {
            // The old value, or its upper part, is kept.
            first.into_iter().for_each(|r| parts.reads.insert(r));
        }
        "cmpxchg" => [RAX, FLAGS].iter().for_each(|r| parts.writes.insert(*r)),
        "xadd" => parts.writes.insert(FLAGS),
        "syscall" => [RAX, RCX, R11].iter().for_each(|r| parts.writes.insert(*r)),
        _ if starts(&["vptestm", "vptestnm"]) => {
            first.into_iter().for_each(|r| replace_read(parts, r));
        }
        _ if starts(&["movs", "stos", "lods", "scas", "ins", "outs"]) && is_string(&parts.operands) => {
            // Only the direction flag is read, which programs practically never set. A dependency on flags would be
            // misleading.
            parts.reads.remove(FLAGS);
        }
        _ if mnemonic.starts_with('f') && !starts(&["fnst", "fldcw", "fxsave", "fxrstor"]) => {
            first.into_iter().chain([ST0]).for_each(|r| {
                parts.reads.insert(r);
                parts.writes.insert(r);
            });
        }
        _ => {}
    }
    if let Some(first) = first
        && !parts.reads.contains(first)
        && !parts.writes.contains(first)
    {
        parts.writes.insert(first);
    }
}

/// Moves a mask register in first place from the read to the written registers: Capstone reports it as read.
fn replace_read(parts: &mut Parts, register: Register) {
    let masks = K0.0..K0.0 + 8;
    if masks.contains(&register.0) {
        parts.reads.remove(register);
        parts.writes.insert(register);
    }
}

fn is_string(operands: &[Operand]) -> bool {
    use crate::x86::{RDI, RSI};
    let through = |m: &MemoryOperand| [Some(RSI), Some(RDI)].contains(&m.base) && m.displacement == 0;
    let memories: Vec<_> = operands.iter().filter_map(memory).collect();
    !memories.is_empty() && memories.into_iter().all(through)
}

fn memory(operand: &Operand) -> Option<&MemoryOperand> {
    match operand {
        Operand::Memory(memory) => Some(memory),
        _ => None,
    }
}

/// Returns the register operands as (position among the operands, register).
fn registers(operands: &[Operand]) -> Vec<(usize, Register)> {
    let register = |(place, operand): (usize, &Operand)| match operand {
        Operand::Register { register, .. } => Some((place, *register)),
        _ => None,
    };
    operands.iter().enumerate().filter_map(register).collect()
}
