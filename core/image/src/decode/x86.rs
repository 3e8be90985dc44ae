//! Decodes x86-64: Capstone's results, with stack slots, zeroing idioms and addresses without access corrected.

use capstone::arch::x86::{X86Insn, X86OpMem, X86Operand, X86OperandType, X86Reg};
use capstone::arch::{ArchDetail, DetailsArchInsn};
use capstone::{Insn, InsnDetail, RegId};

use super::decoder::{Decoder, Parts};
use super::x86_access;
use crate::x86::{RBP, RIP, RSP};
use crate::{Flow, ImageAddress, MemoryOperand, Operand, Register};

/// Numbers of Capstone's instruction groups, which are the same for all architectures.
const GROUP_JUMP: u8 = 1;
const GROUP_CALL: u8 = 2;
const GROUP_RETURN: u8 = 3;
const GROUP_INTERRUPT_RETURN: u8 = 5;
const GROUP_BRANCH_RELATIVE: u8 = 7;

pub(super) fn parts(decoder: &Decoder, insn: &Insn<'_>, detail: &InsnDetail<'_>) -> Parts {
    let arch = detail.arch_detail();
    let ArchDetail::X86Detail(x86) = arch else { unreachable!("an x86 decoder") };
    let id = X86Insn::from(insn.id().0);
    let operands: Vec<X86Operand> = x86.operands().collect();
    let mut parts = Parts {
        reads: decoder.set(detail.regs_read()),
        writes: decoder.set(detail.regs_write()),
        operands: operands
            .iter()
            .enumerate()
            .map(|(place, o)| operand(decoder, insn, id, place, o))
            .collect(),
        flow: flow(id, detail, &operands),
    };
    parts.operands.extend(stack_slot(id, &operands).map(Operand::Memory));
    x86_access::correct(bare_mnemonic(insn), &mut parts);
    correct(decoder, id, &operands, &mut parts);
    parts
}

/// Returns the mnemonic without prefixes such as `lock`, `rep`, `notrack`.
fn bare_mnemonic<'a>(insn: &'a Insn<'_>) -> &'a str {
    insn.mnemonic().and_then(|m| m.rsplit(' ').next()).unwrap_or_default()
}

fn operand(decoder: &Decoder, insn: &Insn<'_>, id: X86Insn, place: usize, operand: &X86Operand) -> Operand {
    match &operand.op_type {
        X86OperandType::Reg(register) => match decoder.sized_register(*register) {
            Some((register, width_bits)) => Operand::Register { register, width_bits },
            None => Operand::Immediate(0),
        },
        X86OperandType::Imm(value) => Operand::Immediate(*value),
        X86OperandType::Mem(memory) => {
            Operand::Memory(memory_operand(decoder, insn, id, place, operand, memory))
        }
        X86OperandType::Invalid => Operand::Immediate(0),
    }
}

fn memory_operand(
    decoder: &Decoder,
    insn: &Insn<'_>,
    id: X86Insn,
    place: usize,
    operand: &X86Operand,
    memory: &X86OpMem,
) -> MemoryOperand {
    let base = decoder.register(memory.base());
    let index = decoder.register(memory.index());
    let accessed = !is_address_only(id);
    let (read, written) =
        if place == 0 { x86_access::first_operand(bare_mnemonic(insn)) } else { (true, false) };
    MemoryOperand {
        base,
        index,
        scale: memory.scale() as u8,
        displacement: memory.disp(),
        address: absolute(insn, memory, base, index),
        width_bytes: operand.size.into(),
        read: accessed && read,
        written: accessed && written,
    }
}

fn absolute(
    insn: &Insn<'_>,
    memory: &X86OpMem,
    base: Option<Register>,
    index: Option<Register>,
) -> Option<ImageAddress> {
    let segment = u32::from(memory.segment().0);
    let of_thread = segment == X86Reg::X86_REG_FS || segment == X86Reg::X86_REG_GS;
    match (base, index) {
        _ if of_thread => None,
        (Some(RIP), None) => {
            let end = insn.address().wrapping_add(insn.len() as u64);
            Some(ImageAddress(end.wrapping_add_signed(memory.disp())))
        }
        (None, None) => Some(ImageAddress(memory.disp() as u64)),
        _ => None,
    }
}

/// Returns whether the memory operand is an address that the instruction does not access.
fn is_address_only(id: X86Insn) -> bool {
    use X86Insn::*;
    matches!(
        id,
        X86_INS_LEA
            | X86_INS_NOP
            | X86_INS_PREFETCH
            | X86_INS_PREFETCHNTA
            | X86_INS_PREFETCHT0
            | X86_INS_PREFETCHT1
            | X86_INS_PREFETCHT2
            | X86_INS_PREFETCHW
            | X86_INS_CLFLUSH
            | X86_INS_CLFLUSHOPT
            | X86_INS_CLWB
            | X86_INS_INVLPG
    )
}

/// Returns the stack slot that an instruction accesses in addition to its operands.
fn stack_slot(id: X86Insn, operands: &[X86Operand]) -> Option<MemoryOperand> {
    use X86Insn::*;
    let width_bytes = match (id, operands.first()) {
        // `push word` exists; immediates are extended to the width of the stack.
        (X86_INS_PUSH | X86_INS_POP, Some(o))
            if o.size == 2 && !matches!(o.op_type, X86OperandType::Imm(_)) =>
        {
            2
        }
        _ => 8,
    };
    let slot = |base, displacement, written: bool| MemoryOperand {
        base: Some(base),
        scale: 1,
        displacement,
        width_bytes,
        read: !written,
        written,
        ..MemoryOperand::default()
    };
    match id {
        X86_INS_PUSH | X86_INS_PUSHF | X86_INS_PUSHFQ | X86_INS_CALL | X86_INS_LCALL | X86_INS_ENTER => {
            Some(slot(RSP, -i64::from(width_bytes), true))
        }
        X86_INS_POP | X86_INS_POPF | X86_INS_POPFQ | X86_INS_RET | X86_INS_RETF | X86_INS_RETFQ
        | X86_INS_IRET | X86_INS_IRETD | X86_INS_IRETQ => Some(slot(RSP, 0, false)),
        X86_INS_LEAVE => Some(slot(RBP, 0, false)),
        _ => None,
    }
}

fn flow(id: X86Insn, detail: &InsnDetail<'_>, operands: &[X86Operand]) -> Flow {
    use X86Insn::*;
    let target = match operands.first().map(|o| &o.op_type) {
        Some(X86OperandType::Imm(target)) if operands.len() == 1 => Some(ImageAddress(*target as u64)),
        _ => None,
    };
    let in_group = |group: u8| detail.groups().iter().any(|g| g.0 == group);
    match id {
        X86_INS_JMP => target.map_or(Flow::IndirectJump, |target| Flow::Jump { target }),
        X86_INS_LJMP => Flow::IndirectJump,
        X86_INS_CALL => Flow::Call { target },
        X86_INS_LCALL => Flow::Call { target: None },
        X86_INS_UD0 | X86_INS_UD1 | X86_INS_UD2 | X86_INS_HLT | X86_INS_INT3 => Flow::Stop,
        X86_INS_SYSEXIT | X86_INS_SYSEXITQ | X86_INS_SYSRET | X86_INS_SYSRETQ => Flow::Return,
        X86_INS_SYSCALL | X86_INS_SYSENTER | X86_INS_INT | X86_INS_INTO => Flow::Next,
        _ if in_group(GROUP_RETURN) || in_group(GROUP_INTERRUPT_RETURN) => Flow::Return,
        _ if in_group(GROUP_CALL) => Flow::Call { target },
        _ if in_group(GROUP_JUMP) || in_group(GROUP_BRANCH_RELATIVE) || id == X86_INS_XBEGIN => {
            target.map_or(Flow::Next, |target| Flow::Branch { target })
        }
        _ => Flow::Next,
    }
}

/// Corrects the sets of registers. The instruction pointer is read only by addresses, and an instruction whose result
/// depends on nothing reads nothing.
fn correct(decoder: &Decoder, id: X86Insn, operands: &[X86Operand], parts: &mut Parts) {
    parts.reads.remove(RIP);
    parts.writes.remove(RIP);
    if is_zeroing(id, operands) {
        for register in sources(operands).filter_map(|id| decoder.register(id)) {
            parts.reads.remove(register);
        }
    }
    if operands.iter().any(rip_relative) {
        parts.reads.insert(RIP);
    }
}

fn rip_relative(operand: &X86Operand) -> bool {
    matches!(&operand.op_type, X86OperandType::Mem(m) if u32::from(m.base().0) == X86Reg::X86_REG_RIP)
}

fn sources(operands: &[X86Operand]) -> impl Iterator<Item = RegId> {
    operands.iter().filter_map(|o| match o.op_type {
        X86OperandType::Reg(id) => Some(id),
        _ => None,
    })
}

/// Returns whether the result is independent of the operands: a register combined with itself. Parts of registers are
/// excluded, since the rest of the register is kept.
fn is_zeroing(id: X86Insn, operands: &[X86Operand]) -> bool {
    use X86Insn::*;
    let whole = operands.first().is_some_and(|o| o.size >= 4);
    let registers: Vec<RegId> = sources(operands).collect();
    let same = match registers.as_slice() {
        [a, b] => a == b && operands.len() == 2,
        [_, a, b] => a == b && operands.len() == 3,
        _ => false,
    };
    whole
        && same
        && matches!(
            id,
            X86_INS_XOR
                | X86_INS_SUB
                | X86_INS_PXOR
                | X86_INS_XORPS
                | X86_INS_XORPD
                | X86_INS_PSUBB
                | X86_INS_PSUBW
                | X86_INS_PSUBD
                | X86_INS_PSUBQ
                | X86_INS_PCMPEQB
                | X86_INS_PCMPEQW
                | X86_INS_PCMPEQD
                | X86_INS_PCMPEQQ
                | X86_INS_PCMPGTB
                | X86_INS_PCMPGTW
                | X86_INS_PCMPGTD
                | X86_INS_VPXOR
                | X86_INS_VPXORD
                | X86_INS_VPXORQ
                | X86_INS_VXORPS
                | X86_INS_VXORPD
                | X86_INS_VPSUBB
                | X86_INS_VPSUBW
                | X86_INS_VPSUBD
                | X86_INS_VPSUBQ
                | X86_INS_VPCMPEQB
                | X86_INS_VPCMPEQW
                | X86_INS_VPCMPEQD
                | X86_INS_VPCMPGTB
                | X86_INS_VPCMPGTW
                | X86_INS_VPCMPGTD
        )
}
