//! How an x86-64 instruction addresses memory.

use iced_x86::{Instruction, OpKind, Register, UsedMemory};

use super::register_number;

/// A memory operand: base + index × scale + displacement, in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    pub base: Base,
    /// The index register's number and the binary logarithm of the scale.
    pub index: Option<(u8, u8)>,
    pub displacement: u64,
    pub segment: Segment,
    /// Whether the address is computed with 32 bits (prefix 0x67).
    pub is_32_bit: bool,
}

/// What the displacement is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    None,
    /// A general register.
    Register(u8),
    /// The address of the instruction itself; its length is part of the displacement.
    Instruction,
}

/// The segment that an address is in. Segments other than fs and gs begin at 0 in 64-bit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    Flat,
    Fs,
    Gs,
}

impl MemoryOperand {
    /// Returns the operand that an instruction names. Returns `None` if it names none, or one whose index is a vector register
    /// (a gather or scatter).
    pub fn from_instruction(instruction: &Instruction) -> Option<MemoryOperand> {
        let has_memory = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
        let registers = (instruction.memory_base(), instruction.memory_index());
        let scale = instruction.memory_index_scale();
        let (displacement, segment) = (instruction.memory_displacement64(), instruction.memory_segment());
        has_memory.then(|| MemoryOperand::new(instruction, registers, scale, displacement, segment)).flatten()
    }

    /// Returns one of the memory operands that an instruction uses, including implicit ones such as that of `push`. Returns
    /// `None` if the index is a vector register.
    pub fn from_used(instruction: &Instruction, used: &UsedMemory) -> Option<MemoryOperand> {
        let registers = (used.base(), used.index());
        MemoryOperand::new(instruction, registers, used.scale(), used.displacement(), used.segment())
    }

    fn new(
        instruction: &Instruction,
        (base, index): (Register, Register),
        scale: u32,
        displacement: u64,
        segment: Register,
    ) -> Option<MemoryOperand> {
        let is_relative = instruction.is_ip_rel_memory_operand()
            && matches!(base, Register::None | Register::RIP | Register::EIP);
        let base_of = |register| match register {
            Register::None => Some(Base::None),
            register => register_number(register).map(Base::Register),
        };
        let index_number = match index {
            Register::None => None,
            index => Some((register_number(index)?, scale.trailing_zeros() as u8)),
        };
        Some(MemoryOperand {
            base: if is_relative { Base::Instruction } else { base_of(base)? },
            index: index_number,
            // The decoder has added the address of the next instruction to a relative displacement.
            displacement: displacement.wrapping_sub(if is_relative { instruction.ip() } else { 0 }),
            segment: match segment {
                Register::FS => Segment::Fs,
                Register::GS => Segment::Gs,
                _ => Segment::Flat,
            },
            is_32_bit: [base, index].iter().any(|r| r.is_gpr32() || *r == Register::EIP),
        })
    }

    /// Returns the address within the segment. `pc` is the address of the instruction; `general` returns the value of a
    /// general register before the instruction.
    pub fn effective_address(&self, pc: u64, general: impl Fn(u8) -> u64) -> u64 {
        let base = match self.base {
            Base::None => 0,
            Base::Register(number) => general(number),
            Base::Instruction => pc,
        };
        let index = self.index.map_or(0, |(number, shift)| general(number) << shift);
        let address = base.wrapping_add(index).wrapping_add(self.displacement);
        if self.is_32_bit { address & 0xffff_ffff } else { address }
    }
}
