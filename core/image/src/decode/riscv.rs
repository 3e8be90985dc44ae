//! Decodes 64-bit RISC-V. Capstone provides the text. Registers, memory and control flow are decoded here from the encoding
//! (RISC-V Unprivileged ISA 20191213, §24 "RV32/64G Instruction Set Listings"), since Capstone 5 does not report them.
//!
//! The rounding mode and the exception flags of floating point are omitted, since they delay no instruction in practice.

use capstone::{Insn, InsnDetail};

use super::decoder::{Decoder, Parts};
use super::riscv_builder::{Builder, f, field, signed, x};
use super::riscv_compressed;
use crate::riscv::{FCSR, PC};
use crate::{Flow, ImageAddress, Instruction, Operand};

pub(super) fn parts(_decoder: &Decoder, insn: &Insn<'_>, _detail: &InsnDetail<'_>) -> Parts {
    let mut out = Builder::new(insn.address());
    match *insn.bytes() {
        [a, b] => riscv_compressed::decode(u16::from_le_bytes([a, b]).into(), &mut out),
        [a, b, c, d] => decode(u32::from_le_bytes([a, b, c, d]), &mut out),
        _ => {}
    }
    out.parts
}

/// Replaces the target of a jump in the operands' text by its address: Capstone prints the distance.
pub(super) fn absolute_target(operands: &str, flow: Flow) -> String {
    let target = match flow {
        Flow::Branch { target } | Flow::Jump { target } | Flow::Call { target: Some(target) } => target,
        _ => return operands.to_owned(),
    };
    let before = operands.rfind(' ').map_or("", |space| &operands[..=space]);
    format!("{before}0x{target}")
}

/// Sets the targets of calls of the form `auipc t, upper; jalr link, lower(t)`, whose address is known.
pub(super) fn resolve_far_calls(instructions: &mut [Instruction]) {
    for i in 1..instructions.len() {
        let (before, after) = instructions.split_at_mut(i);
        let (upper, jump) = (&before[i - 1], &mut after[0]);
        let [Operand::Register { register: set, .. }, Operand::Immediate(upper_address)] = upper.operands[..]
        else {
            continue;
        };
        let [_, Operand::Register { register: through, .. }, Operand::Immediate(lower)] = jump.operands[..]
        else {
            continue;
        };
        if set != through || !upper.reads.contains(PC) {
            continue;
        }
        let target = ImageAddress(upper_address.wrapping_add(lower) as u64);
        match jump.flow {
            Flow::Call { target: None } => jump.flow = Flow::Call { target: Some(target) },
            Flow::IndirectJump => jump.flow = Flow::Jump { target },
            _ => {}
        }
    }
}

fn decode(word: u32, out: &mut Builder) {
    let (rd, rs1, rs2) = (field(word, 7, 5), field(word, 15, 5), field(word, 20, 5));
    let funct3 = field(word, 12, 3);
    let immediate_i = signed(word >> 20, 12);
    let immediate_s = signed(field(word, 25, 7) << 5 | rd, 12);
    let size = 1 << (funct3 & 3);
    match field(word, 2, 5) {
        0x00 => out.write(x(rd)).load(x(rs1), immediate_i, size),
        0x01 if (1..=4).contains(&funct3) => out.write(f(rd)).load(x(rs1), immediate_i, 1 << funct3),
        0x04 | 0x06 => _ = out.write(x(rd)).read(x(rs1)).immediate(immediate_i),
        0x05 => {
            let upper = out.address.wrapping_add_signed(i64::from((word & 0xffff_f000) as i32));
            out.parts.reads.insert(PC);
            out.write(x(rd)).immediate(upper as i64);
        }
        0x08 => out.read(x(rs2)).store(x(rs1), immediate_s, size),
        0x09 if (1..=4).contains(&funct3) => out.read(f(rs2)).store(x(rs1), immediate_s, 1 << funct3),
        0x0b => atomic(word, out),
        0x0c | 0x0e => _ = out.write(x(rd)).read(x(rs1)).read(x(rs2)),
        0x0d => _ = out.write(x(rd)).immediate(i64::from((word & 0xffff_f000) as i32)),
        0x10..=0x13 => _ = out.write(f(rd)).read(f(rs1)).read(f(rs2)).read(f(field(word, 27, 5))),
        0x14 => floating(word, out),
        0x18 => out.read(x(rs1)).read(x(rs2)).branch(branch_distance(word)),
        0x19 => {
            out.write(x(rd)).read(x(rs1)).immediate(immediate_i);
            out.jump_register(x(rd), x(rs1));
        }
        0x1b => out.write(x(rd)).jump(x(rd), jump_distance(word)),
        0x1c => system(word, out),
        _ => {}
    }
}

fn branch_distance(word: u32) -> i64 {
    let (low, high) = (field(word, 8, 4) << 1, field(word, 25, 6) << 5);
    signed(field(word, 31, 1) << 12 | field(word, 7, 1) << 11 | high | low, 13)
}

fn jump_distance(word: u32) -> i64 {
    let (low, middle) = (field(word, 21, 10) << 1, field(word, 20, 1) << 11);
    signed(field(word, 31, 1) << 20 | field(word, 12, 8) << 12 | middle | low, 21)
}

/// Decodes atomic instructions: `lr` only reads, `sc` only writes, all others do both.
fn atomic(word: u32, out: &mut Builder) {
    let (base, source) = (x(field(word, 15, 5)), x(field(word, 20, 5)));
    let operation = field(word, 27, 5);
    let (reads, writes) = (operation != 3, operation != 2);
    out.write(x(field(word, 7, 5)));
    if writes {
        out.read(source);
    }
    out.memory(base, 0, 1 << field(word, 12, 2), reads, writes);
}

/// Decodes OP-FP instructions. The operation determines which registers are integer ones.
fn floating(word: u32, out: &mut Builder) {
    let (rd, rs1, rs2) = (field(word, 7, 5), field(word, 15, 5), field(word, 20, 5));
    match field(word, 27, 5) {
        0x00..=0x05 => _ = out.write(f(rd)).read(f(rs1)).read(f(rs2)),
        // These are square roots and conversions between formats.
        0x0b | 0x08 => _ = out.write(f(rd)).read(f(rs1)),
        // These are comparisons.
        0x14 => _ = out.write(x(rd)).read(f(rs1)).read(f(rs2)),
        // These are conversions to integers, moves of bits, and classifications.
        0x18 | 0x1c => _ = out.write(x(rd)).read(f(rs1)),
        0x1a | 0x1e => _ = out.write(f(rd)).read(x(rs1)),
        _ => {}
    }
}

fn system(word: u32, out: &mut Builder) {
    let (rd, rs1, funct3) = (field(word, 7, 5), field(word, 15, 5), field(word, 12, 3));
    match (funct3, word >> 20) {
        (0, 0x001) => out.flow(Flow::Stop),
        // uret, sret, mret
        (0, 0x002 | 0x102 | 0x302) => out.flow(Flow::Return),
        (0, _) => {}
        // `csrrw zero, cycle, zero` writes a read-only register: assemblers use it for `unimp`.
        (1, 0xc00) if rd == 0 && rs1 == 0 => out.flow(Flow::Stop),
        (1..=3, number) => csr(number, out.write(x(rd)).immediate(number.into()).read(x(rs1))),
        (_, number) => csr(number, out.write(x(rd)).immediate(number.into()).immediate(rs1.into())),
    }
}

/// Decodes access to a control register. fflags, frm and fcsr are parts of one register; other control registers are not
/// modelled.
fn csr(number: u32, out: &mut Builder) {
    if (1..=3).contains(&number) {
        out.parts.reads.insert(FCSR);
        out.parts.writes.insert(FCSR);
    }
}
