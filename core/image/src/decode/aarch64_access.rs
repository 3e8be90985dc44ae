//! Corrects which registers AArch64 instructions read and write, where Capstone 5's tables are wrong or incomplete. The
//! errors were found by listing every form in libc, libm and libstdc++; the reference is the Arm ARM, C6 and C7.

use smallvec::SmallVec;

use super::decoder::Parts;
use crate::aarch64::{LR, NZCV, PC, SP, V0};
use crate::{Flow, Operand, Register, RegisterSet};

/// Read-modify-write instructions of the large system extensions. `ldset` and others begin like loads.
pub(super) const ATOMIC: [&str; 9] =
    ["swp", "ldadd", "ldclr", "ldeor", "ldset", "ldsmax", "ldsmin", "ldumax", "ldumin"];

/// Corrects the sets of registers. `lane`: an operand is one element of a vector; `writeback`: the base is updated.
pub(super) fn correct(mnemonic: &str, lane: bool, writeback: bool, parts: &mut Parts) {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| mnemonic.starts_with(p));
    let registers = registers(&parts.operands);
    match mnemonic {
        "cmp" | "cmn" | "tst" => {
            parts.reads = parts.reads.union(registers.iter().copied().collect());
            parts.writes = [NZCV].into_iter().collect();
        }
        "adds" | "subs" | "ands" => registers.iter().take(1).for_each(|r| parts.writes.insert(*r)),
        "cbz" | "cbnz" | "tbz" | "tbnz" => parts.reads.remove(NZCV),
        "svc" | "hvc" | "smc" => parts.writes.remove(LR),
        "fmov" if registers.len() == 1 => parts.reads.remove(registers[0]),
        _ if starts(&["cas"]) => {
            let compared = if mnemonic.starts_with("casp") { 2 } else { 1 };
            registers.iter().for_each(|r| parts.reads.insert(*r));
            registers.iter().take(compared).for_each(|r| parts.writes.insert(*r));
        }
        _ if starts(&ATOMIC) => {
            registers.iter().take(1).for_each(|r| parts.reads.insert(*r));
            registers.iter().skip(1).take(1).for_each(|r| parts.writes.insert(*r));
        }
        _ if starts(&["ld1", "ld2", "ld3", "ld4"]) && !lane => {
            registers.iter().filter(|r| r.0 >= V0.0).for_each(|r| parts.reads.remove(*r));
            registers.iter().filter(|r| is_vector(**r)).for_each(|r| parts.writes.insert(*r));
        }
        _ if starts(&["st"]) => store(&registers, starts(&["stx", "stlx"]), writeback, parts),
        _ => {}
    }
    unknown_forms(&registers, parts);
    implicit(mnemonic, parts);
    addresses(&parts.operands).into_iter().for_each(|r| parts.reads.insert(r));
}

/// A store writes no registers except its status and, with writeback, its base.
fn store(registers: &[Register], exclusive: bool, writeback: bool, parts: &mut Parts) {
    let status = usize::from(exclusive);
    parts.writes = registers[..status.min(registers.len())].iter().copied().collect();
    registers.iter().skip(status).for_each(|r| parts.reads.insert(*r));
    let base = parts.operands.iter().find_map(|o| match o {
        Operand::Memory(memory) => memory.base,
        _ => None,
    });
    base.filter(|_| writeback).into_iter().for_each(|r| parts.writes.insert(r));
}

/// For whole extensions (SVE, tags), Capstone reports nothing. The first register is assumed to be written, the others to be
/// read.
fn unknown_forms(registers: &[Register], parts: &mut Parts) {
    let all: RegisterSet = registers.iter().copied().collect();
    let known = parts.reads.union(parts.writes).intersection(all);
    if known.is_empty() && !registers.is_empty() {
        registers.iter().take(1).for_each(|r| parts.writes.insert(*r));
        registers.iter().skip(1).for_each(|r| parts.reads.insert(*r));
    }
}

fn implicit(mnemonic: &str, parts: &mut Parts) {
    parts.reads.remove(PC);
    parts.writes.remove(PC);
    match parts.flow {
        Flow::Call { .. } => parts.writes.insert(LR),
        Flow::Return if !mnemonic.starts_with('e') && parts.operands.is_empty() => parts.reads.insert(LR),
        _ => {}
    }
}

/// Returns the registers that addresses use.
fn addresses(operands: &[Operand]) -> SmallVec<[Register; 2]> {
    let of = |operand: &Operand| match operand {
        Operand::Memory(memory) => [memory.base, memory.index],
        _ => [None, None],
    };
    operands.iter().flat_map(of).flatten().filter(|r| *r != PC).collect()
}

fn registers(operands: &[Operand]) -> SmallVec<[Register; 4]> {
    let register = |operand: &Operand| match operand {
        Operand::Register { register, .. } => Some(*register),
        _ => None,
    };
    operands.iter().filter_map(register).collect()
}

fn is_vector(register: Register) -> bool {
    register > SP && (V0.0..V0.0 + 32).contains(&register.0)
}
