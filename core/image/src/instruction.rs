//! One machine instruction as plain data: what the analysis needs, and its text for people.

use smallvec::SmallVec;

use crate::{ImageAddress, Register, RegisterSet};

/// A decoded instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its first byte.
    pub address: ImageAddress,
    /// Its length in bytes, at least 1.
    pub length: u8,
    /// The mnemonic as the disassembler spells it, lower case, prefixes apart (`rep`, `lock` stay in `text`).
    pub mnemonic: Box<str>,
    /// Mnemonic and operands as people read them (AT&T never; Intel syntax on x86).
    pub text: Box<str>,
    /// Registers it reads, flags and address registers included. Zeroing idioms (`xor eax, eax`) read none.
    pub reads: RegisterSet,
    /// Registers it writes, flags included.
    pub writes: RegisterSet,
    /// Explicit operands in the disassembler's order.
    pub operands: SmallVec<[Operand; 3]>,
    /// Where control goes next.
    pub flow: Flow,
}

impl Instruction {
    /// The address after it.
    pub fn end(&self) -> ImageAddress {
        self.address.offset(u64::from(self.length))
    }

    /// Its memory operand that is read, if any (stack pops and returns included).
    pub fn load(&self) -> Option<&MemoryOperand> {
        self.memory().find(|m| m.read)
    }

    /// Its memory operand that is written, if any (pushes and calls included).
    pub fn store(&self) -> Option<&MemoryOperand> {
        self.memory().find(|m| m.written)
    }

    /// Every memory operand, implicit stack slots last.
    pub fn memory(&self) -> impl Iterator<Item = &MemoryOperand> {
        self.operands.iter().filter_map(|o| match o {
            Operand::Memory(m) => Some(m),
            _ => None,
        })
    }
}

/// Where straight-line code goes on behind its conditional branches: the address of each, and of what comes next.
pub fn fall_throughs(code: &[Instruction]) -> impl Iterator<Item = (ImageAddress, ImageAddress)> {
    code.iter().filter(|i| matches!(i.flow, Flow::Branch { .. })).map(|i| (i.address, i.end()))
}

/// An operand of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register and the width of the part that is used, in bits.
    Register {
        /// Which.
        register: Register,
        /// How much of it.
        width_bits: u16,
    },
    /// A constant, sign-extended.
    Immediate(i64),
    /// A location in memory.
    Memory(MemoryOperand),
}

/// `segment:[base + index × scale + displacement]`. An address computation without access (`lea`, prefetch) has
/// neither `read` nor `written`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryOperand {
    /// Base register; the instruction pointer for pc-relative operands.
    pub base: Option<Register>,
    /// Index register.
    pub index: Option<Register>,
    /// Factor of the index: 1, 2, 4 or 8.
    pub scale: u8,
    /// Constant part.
    pub displacement: i64,
    /// Absolute address, where it is known from the instruction alone (pc-relative, absolute).
    pub address: Option<ImageAddress>,
    /// Bytes accessed; 0 where unknown.
    pub width_bytes: u16,
    /// It is read.
    pub read: bool,
    /// It is written.
    pub written: bool,
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction (system calls included).
    Next,
    /// To `target`, or to the next.
    Branch {
        /// Where it goes when taken.
        target: ImageAddress,
    },
    /// To `target`.
    Jump {
        /// Where it goes.
        target: ImageAddress,
    },
    /// To wherever a register or memory says.
    IndirectJump,
    /// To a procedure (`None`: an indirect call) and, as a rule, back to the next instruction.
    Call {
        /// The procedure's first instruction.
        target: Option<ImageAddress>,
    },
    /// Out of the procedure.
    Return,
    /// Nowhere: `ud2`, `hlt`, `brk`, `ebreak`, bytes that decode to nothing.
    Stop,
}
