//! How an instruction computes one register that it writes, in the few forms that lead to a jump table.
//!
//! Input: an instruction and a register. Output: a [`Step`]; everything else is opaque. Complexity: constant.

use dwell_image::{Arch, Instruction, MemoryOperand, Operand, Register};

/// How a register gets its value. `Opaque` stands for everything else.
#[derive(Debug)]
pub enum Step<'a> {
    Constant(u64),
    Copy(Register),
    /// The low bits of a register, extended.
    Extend {
        from: Register,
        bits: u8,
        sign: bool,
    },
    /// A shift to the left, or to the right if the number is negative.
    Shift(Register, i8),
    Offset(Register, i64),
    /// `a + (extended b) × 2^shift`.
    Sum {
        a: Register,
        b: Register,
        extend: Option<(u8, bool)>,
        shift: i8,
    },
    /// The address of the memory operand.
    Address(&'a MemoryOperand),
    Load {
        memory: &'a MemoryOperand,
        bytes: u8,
        signed: bool,
    },
    Opaque,
}

/// Returns how `instruction` computes `register`.
pub fn step(arch: Arch, instruction: &Instruction, register: Register) -> Step<'_> {
    // Implicit operands; gcc -O0 widens the entry in this way.
    if arch == Arch::X86_64 && &*instruction.mnemonic == "cdqe" {
        return Step::Extend { from: register, bits: 32, sign: true };
    }
    // Base registers that a load or store updates, and implicit results, are not considered.
    match instruction.operands.first() {
        Some(Operand::Register { register: first, .. }) if *first == register => {}
        _ => return Step::Opaque,
    }
    match arch {
        Arch::X86_64 | Arch::X86 => x86(instruction, register),
        Arch::Aarch64 => aarch64(instruction, register),
        Arch::Riscv64 => riscv(instruction, register),
    }
}

fn x86(i: &Instruction, register: Register) -> Step<'_> {
    let m = &*i.mnemonic;
    match (m, &i.operands[..]) {
        ("lea", [_, Operand::Memory(memory)]) => match (memory.base, memory.index) {
            (Some(a), Some(b)) if memory.scale <= 1 && memory.displacement == 0 => {
                Step::Sum { a, b, extend: None, shift: 0 }
            }
            _ => Step::Address(memory),
        },
        ("mov" | "movabs", [_, Operand::Immediate(value)]) => Step::Constant(*value as u64),
        ("xor" | "sub", [_, Operand::Register { register: other, .. }]) if *other == register => {
            Step::Constant(0)
        }
        ("mov", [_, Operand::Register { register, .. }]) => Step::Copy(*register),
        ("movzx" | "movsx" | "movsxd", [_, Operand::Register { register, width_bits }]) => {
            Step::Extend { from: *register, bits: *width_bits as u8, sign: m != "movzx" }
        }
        (
            "mov" | "movzx" | "movsx" | "movsxd",
            [Operand::Register { width_bits, .. }, Operand::Memory(memory)],
        ) => {
            let bytes = if m == "mov" { width_bits / 8 } else { memory.width_bytes };
            let bytes = if m == "movsxd" { 4 } else { bytes as u8 };
            Step::Load { memory, bytes, signed: m.starts_with("movs") }
        }
        ("add", [_, Operand::Register { register: other, .. }]) => {
            Step::Sum { a: register, b: *other, extend: None, shift: 0 }
        }
        ("add", [_, Operand::Immediate(by)]) => Step::Offset(register, *by),
        ("shl", [_, Operand::Immediate(by @ 0..=63)]) => Step::Shift(register, *by as i8),
        _ => Step::Opaque,
    }
}

fn aarch64(i: &Instruction, _register: Register) -> Step<'_> {
    match (&*i.mnemonic, &i.operands[..]) {
        ("adr" | "adrp" | "mov" | "movz", [_, Operand::Immediate(value)]) if shift_of(i) == 0 => {
            Step::Constant(*value as u64)
        }
        ("mov", [_, Operand::Register { register, .. }]) => Step::Copy(*register),
        ("add", [_, Operand::Register { register, .. }, Operand::Immediate(by)]) => {
            Step::Offset(*register, by << shift_of(i))
        }
        ("add", [_, Operand::Register { register: a, .. }, Operand::Register { register: b, .. }]) => {
            Step::Sum { a: *a, b: *b, extend: extension_of(&i.text), shift: shift_of(i) }
        }
        ("lsl", [_, Operand::Register { register, .. }, Operand::Immediate(by @ 0..=63)]) => {
            Step::Shift(*register, *by as i8)
        }
        ("sxtw" | "sxth" | "sxtb" | "uxtw" | "uxth" | "uxtb", [_, Operand::Register { register, .. }]) => {
            let (bits, sign) = extension_of(&i.mnemonic).unwrap_or((64, false));
            Step::Extend { from: *register, bits, sign }
        }
        (m, [Operand::Register { width_bits, .. }, Operand::Memory(memory)]) => {
            let own = (*width_bits / 8) as u8;
            let (bytes, signed) = match m {
                "ldr" | "ldur" => (own, false),
                "ldrsw" | "ldursw" => (4, true),
                "ldrh" | "ldurh" => (2, false),
                "ldrsh" | "ldursh" => (2, true),
                "ldrb" | "ldurb" => (1, false),
                "ldrsb" | "ldursb" => (1, true),
                _ => return Step::Opaque,
            };
            Step::Load { memory, bytes, signed }
        }
        _ => Step::Opaque,
    }
}

/// Returns the extension in `add x1, x2, w3, sxth #2`: bits and whether it is signed.
fn extension_of(text: &str) -> Option<(u8, bool)> {
    let at = ["sxtb", "sxth", "sxtw", "uxtb", "uxth", "uxtw"].into_iter().find(|e| text.contains(e))?;
    let bits = match at.as_bytes()[3] {
        b'b' => 8,
        b'h' => 16,
        _ => 32,
    };
    Some((bits, at.starts_with('s')))
}

/// Returns the shift of the last operand: `lsl #2`, `sxth #2`.
fn shift_of(i: &Instruction) -> i8 {
    let last = i.text.rsplit(',').next().unwrap_or("").trim();
    let is_shift = ["lsl", "sxt", "uxt"].iter().any(|s| last.starts_with(s));
    let amount = last.split_once('#').filter(|_| is_shift).and_then(|(_, n)| n.trim().parse().ok());
    amount.filter(|n| (0..=63).contains(n)).unwrap_or(0)
}

fn riscv(i: &Instruction, register: Register) -> Step<'_> {
    let m = i.mnemonic.strip_prefix("c.").unwrap_or(&i.mnemonic);
    match (m, &i.operands[..]) {
        // The operands of these hold the whole value.
        ("auipc" | "lui" | "li", [_, Operand::Immediate(value)]) => Step::Constant(*value as u64),
        ("mv", [_, Operand::Register { register, .. }]) => Step::Copy(*register),
        ("addi" | "mv" | "li", [_, Operand::Register { register, .. }, Operand::Immediate(by)]) => {
            Step::Offset(*register, *by)
        }
        ("addi", [_, Operand::Immediate(by)]) => Step::Offset(register, *by),
        ("add", [_, Operand::Register { register: b, .. }]) => {
            Step::Sum { a: register, b: *b, extend: None, shift: 0 }
        }
        ("add", [_, Operand::Register { register: a, .. }, Operand::Register { register: b, .. }]) => {
            Step::Sum { a: *a, b: *b, extend: None, shift: 0 }
        }
        (
            "sh1add" | "sh2add" | "sh3add",
            [_, Operand::Register { register: a, .. }, Operand::Register { register: b, .. }],
        ) => Step::Sum { a: *b, b: *a, extend: None, shift: (m.as_bytes()[2] - b'0') as i8 },
        ("slli" | "srli", [_, rest @ ..]) => {
            let (from, by) = match rest {
                [Operand::Immediate(by)] => (register, *by),
                [Operand::Register { register, .. }, Operand::Immediate(by)] => (*register, *by),
                _ => return Step::Opaque,
            };
            let by = (by & 63) as i8;
            Step::Shift(from, if m == "slli" { by } else { -by })
        }
        (_, [_, Operand::Memory(memory)]) => {
            let (bytes, signed) = match m {
                "lb" => (1, true),
                "lbu" => (1, false),
                "lh" => (2, true),
                "lhu" => (2, false),
                "lw" => (4, true),
                "lwu" => (4, false),
                "ld" => (8, false),
                _ => return Step::Opaque,
            };
            Step::Load { memory, bytes, signed }
        }
        _ => Step::Opaque,
    }
}
