//! One machine instruction as plain data: what the analysis needs, and its text for users.

use smallvec::SmallVec;

use crate::{ImageAddress, Register, RegisterSet};

/// A decoded instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Address of the first byte.
    pub address: ImageAddress,
    /// Length in bytes, at least 1.
    pub length: u8,
    /// Mnemonic as the disassembler spells it, in lower case, without prefixes (`rep`, `lock` are only in `text`).
    pub mnemonic: Box<str>,
    /// Mnemonic and operands as text, in Intel syntax on x86.
    pub text: Box<str>,
    /// Registers that it reads, including flags and address registers. Zeroing idioms (`xor eax, eax`) read none.
    pub reads: RegisterSet,
    /// Registers that it writes, including flags.
    pub writes: RegisterSet,
    /// Explicit operands in the disassembler's order.
    pub operands: SmallVec<[Operand; 3]>,
    /// Where control goes next.
    pub flow: Flow,
}

impl Instruction {
    /// Returns the address after the last byte.
    pub fn end(&self) -> ImageAddress {
        self.address.offset(u64::from(self.length))
    }

    /// Returns the memory operand that is read, if any (including stack pops and returns).
    pub fn load(&self) -> Option<&MemoryOperand> {
        self.memory().find(|m| m.read)
    }

    /// Returns the memory operand that is written, if any (including pushes and calls).
    pub fn store(&self) -> Option<&MemoryOperand> {
        self.memory().find(|m| m.written)
    }

    /// Iterates over the memory operands; implicit stack slots come last.
    pub fn memory(&self) -> impl Iterator<Item = &MemoryOperand> {
        self.operands.iter().filter_map(|o| match o {
            Operand::Memory(m) => Some(m),
            _ => None,
        })
    }
}

/// Returns for each conditional branch its address and the address of the instruction after it.
pub fn fall_throughs(code: &[Instruction]) -> impl Iterator<Item = (ImageAddress, ImageAddress)> {
    code.iter().filter(|i| matches!(i.flow, Flow::Branch { .. })).map(|i| (i.address, i.end()))
}

/// An operand of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register, with the width of the part that is used.
    Register {
        /// The whole register.
        register: Register,
        /// Width in bits of the part that is used.
        width_bits: u16,
    },
    /// A constant, sign-extended.
    Immediate(i64),
    /// A location in memory.
    Memory(MemoryOperand),
}

/// A memory operand `segment:[base + index × scale + displacement]`. If the instruction only computes the address (`lea`,
/// prefetch), neither `read` nor `written` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryOperand {
    /// Base register; the instruction pointer for pc-relative operands.
    pub base: Option<Register>,
    /// Index register.
    pub index: Option<Register>,
    /// Factor of the index: 1, 2, 4 or 8.
    pub scale: u8,
    /// Constant part of the address.
    pub displacement: i64,
    /// Absolute address, if the instruction alone determines it (pc-relative, absolute).
    pub address: Option<ImageAddress>,
    /// Number of bytes accessed; 0 if unknown.
    pub width_bytes: u16,
    /// Whether the memory is read.
    pub read: bool,
    /// Whether the memory is written.
    pub written: bool,
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction (including system calls).
    Next,
    /// To `target` or to the next instruction.
    Branch {
        /// Address of the instruction that a taken branch goes to.
        target: ImageAddress,
    },
    /// Always to `target`.
    Jump {
        /// Address of the instruction that the jump goes to.
        target: ImageAddress,
    },
    /// To an address in a register or in memory.
    IndirectJump,
    /// To a procedure (`None` for an indirect call) and usually back to the next instruction.
    Call {
        /// Address of the procedure's first instruction.
        target: Option<ImageAddress>,
    },
    /// Back to the caller of the procedure.
    Return,
    /// Nowhere: `ud2`, `hlt`, `brk`, `ebreak`, bytes that cannot be decoded.
    Stop,
}
