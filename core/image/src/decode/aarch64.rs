//! Decodes AArch64: Capstone's results, with widths, literal loads, flags and the link register added.

use capstone::arch::arm64::{
    Arm64CC, Arm64InsnDetail, Arm64OpMem, Arm64Operand, Arm64OperandType, Arm64Shift,
};
use capstone::arch::{ArchDetail, DetailsArchInsn};
use capstone::{Insn, InsnDetail};
use smallvec::SmallVec;

use super::aarch64_access::{self, ATOMIC};
use super::decoder::{Decoder, Parts};
use crate::aarch64::{NZCV, PC};
use crate::{Arch, Flow, ImageAddress, MemoryOperand, Operand};

pub(super) fn parts(decoder: &Decoder, insn: &Insn<'_>, detail: &InsnDetail<'_>) -> Parts {
    let ArchDetail::Arm64Detail(arm64) = detail.arch_detail() else { unreachable!("an AArch64 decoder") };
    let mnemonic = insn.mnemonic().unwrap_or_default();
    let access = Access::from_mnemonic(mnemonic);
    let system = SYSTEM.contains(&mnemonic);
    let raw: Vec<Arm64Operand> = if system { Vec::new() } else { arm64.operands().collect() };
    let mut operands: SmallVec<[Operand; 3]> = if system {
        general_registers(insn.op_str().unwrap_or_default())
    } else {
        raw.iter().filter_map(|o| operand(decoder, access, o)).collect()
    };
    literal(mnemonic, access, &mut operands);
    set_width(mnemonic, &mut operands);
    let mut parts = Parts {
        reads: decoder.set(detail.regs_read()),
        writes: decoder.set(detail.regs_write()),
        flow: flow(mnemonic, &operands),
        operands,
    };
    correct(mnemonic, &raw, &arm64, &mut parts);
    parts
}

/// Instructions with a system register or operation. For these, capstone 0.14 converts a number from Capstone to a Rust
/// enum, which is undefined behaviour for numbers that the enum lacks (found by fuzzing). So we never request their
/// operands.
const SYSTEM: [&str; 14] = [
    "mrs", "msr", "mrrs", "msrr", "sys", "sysl", "sysp", "ic", "dc", "at", "tlbi", "tlbip", "smstart",
    "smstop",
];

/// Returns the general registers that the text of a system instruction names.
fn general_registers(text: &str) -> SmallVec<[Operand; 3]> {
    let registers = text.split(',').filter_map(|word| crate::Register::named(Arch::Aarch64, word.trim()));
    registers.map(|register| Operand::Register { register, width_bits: 64 }).collect()
}

const ATOMIC_STORE: [&str; 8] = ["stadd", "stclr", "steor", "stset", "stsmax", "stsmin", "stumax", "stumin"];

/// What an instruction does with its memory operand.
#[derive(Clone, Copy, Default)]
struct Access {
    read: bool,
    written: bool,
}

impl Access {
    fn from_mnemonic(mnemonic: &str) -> Access {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|p| mnemonic.starts_with(p));
        match () {
            _ if starts(&["cas"]) || starts(&ATOMIC) || starts(&ATOMIC_STORE) => {
                Access { read: true, written: true }
            }
            _ if starts(&["ld"]) => Access { read: true, written: false },
            _ if starts(&["st"]) => Access { read: false, written: true },
            _ => Access::default(),
        }
    }
}

fn operand(decoder: &Decoder, access: Access, operand: &Arm64Operand) -> Option<Operand> {
    match &operand.op_type {
        Arm64OperandType::Reg(id) => {
            let (register, width_bits) = decoder.sized_register(*id)?;
            Some(Operand::Register { register, width_bits })
        }
        Arm64OperandType::Imm(value) => Some(Operand::Immediate(*value)),
        Arm64OperandType::Mem(memory) => {
            Some(Operand::Memory(memory_operand(decoder, access, operand, memory)))
        }
        _ => None,
    }
}

fn memory_operand(
    decoder: &Decoder,
    access: Access,
    operand: &Arm64Operand,
    memory: &Arm64OpMem,
) -> MemoryOperand {
    let scale = match operand.shift {
        Arm64Shift::Lsl(bits @ 0..=4) => 1 << bits,
        _ => 1,
    };
    MemoryOperand {
        base: decoder.register(memory.base()),
        index: decoder.register(memory.index()),
        scale,
        displacement: memory.disp().into(),
        read: access.read,
        written: access.written,
        ..MemoryOperand::default()
    }
}

/// Converts the operand of `ldr x0, label` to a memory operand: Capstone reports the label as a number.
fn literal(mnemonic: &str, access: Access, operands: &mut SmallVec<[Operand; 3]>) {
    let may = matches!(mnemonic, "ldr" | "ldrsw" | "prfm");
    let has_memory = operands.iter().any(|o| matches!(o, Operand::Memory(_)));
    if let Some(last @ Operand::Immediate(_)) = operands.last_mut().filter(|_| may && !has_memory) {
        let Operand::Immediate(address) = *last else { return };
        *last = Operand::Memory(MemoryOperand {
            base: Some(PC),
            scale: 1,
            address: Some(ImageAddress(address as u64)),
            read: access.read,
            ..MemoryOperand::default()
        });
    }
}

/// Sets the number of bytes accessed, which follows from the mnemonic's suffix or else from the register that is moved.
fn set_width(mnemonic: &str, operands: &mut [Operand]) {
    let mut registers = operands.iter().filter_map(|o| match o {
        Operand::Register { width_bits, .. } => Some(width_bits / 8),
        _ => None,
    });
    // The first register of an exclusive store receives the status.
    let moved = if mnemonic.starts_with("stx") || mnemonic.starts_with("stlx") { 1 } else { 0 };
    let register_bytes = registers.nth(moved).unwrap_or(0);
    let is = |names: &[&str]| names.contains(&mnemonic);
    let width = match mnemonic.as_bytes() {
        // For structures of vector registers, the arrangement determines the width.
        [_, _, b'1'..=b'4', ..] => 0,
        _ if is(&["ldpsw"]) => 8,
        _ if is(&["ldp", "stp", "ldnp", "stnp", "ldxp", "ldaxp", "stxp", "stlxp"]) => 2 * register_bytes,
        [.., b's', b'w'] => 4,
        [.., b'b'] => 1,
        [.., b'h'] => 2,
        _ => register_bytes,
    };
    for operand in operands {
        if let Operand::Memory(memory) = operand
            && (memory.read || memory.written)
        {
            memory.width_bytes = width;
        }
    }
}

fn flow(mnemonic: &str, operands: &[Operand]) -> Flow {
    let target = match operands.last() {
        Some(Operand::Immediate(target)) => Some(ImageAddress(*target as u64)),
        _ => None,
    };
    match (mnemonic, target) {
        ("b", Some(target)) => Flow::Jump { target },
        ("cbz" | "cbnz" | "tbz" | "tbnz", Some(target)) => Flow::Branch { target },
        ("bl", target) => Flow::Call { target },
        ("brk" | "hlt" | "udf", _) => Flow::Stop,
        _ if mnemonic.starts_with("b.") || mnemonic.starts_with("bc.") => {
            target.map_or(Flow::Next, |target| Flow::Branch { target })
        }
        _ if mnemonic.starts_with("blr") => Flow::Call { target: None },
        ("br" | "braa" | "braaz" | "brab" | "brabz", _) => Flow::IndirectJump,
        _ if mnemonic.starts_with("ret") || mnemonic.starts_with("eret") => Flow::Return,
        _ => Flow::Next,
    }
}

fn correct(mnemonic: &str, raw: &[Arm64Operand], arm64: &Arm64InsnDetail<'_>, parts: &mut Parts) {
    use Arm64CC::{ARM64_CC_AL, ARM64_CC_INVALID, ARM64_CC_NV};
    let conditional = ![ARM64_CC_INVALID, ARM64_CC_AL, ARM64_CC_NV].contains(&arm64.cc());
    let with_carry = ["adc", "sbc", "ngc"].iter().any(|p| mnemonic.starts_with(p));
    if conditional || with_carry {
        parts.reads.insert(NZCV);
    }
    if arm64.update_flags() {
        parts.writes.insert(NZCV);
    }
    let lane = raw.iter().any(|o| o.vector_index.is_some());
    aarch64_access::correct(mnemonic, lane, arm64.writeback(), parts);
}
