//! Opcode classes: what a machine model tells instructions apart by.

use dwell_image::{Arch, Instruction};
use serde::Deserialize;

use super::{class_a64, class_riscv, class_x86};

/// Operations that cost alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpcodeClass {
    /// Does nothing: `nop`, `endbr64`, `bti`.
    Nop,
    /// Register to register, and constants.
    Move,
    /// Integer arithmetic and logic, compares, address computations, conditional moves and sets.
    Alu,
    /// Shifts, rotates, bit fields.
    Shift,
    /// Integer multiplication.
    Multiply,
    /// Integer division.
    Divide,
    /// A plain load, of any width.
    Load,
    /// A plain store, of any width.
    Store,
    /// Between the register files, and conversions.
    Transfer,
    /// Floating addition, subtraction, comparison, minimum and maximum.
    FpAdd,
    /// Floating multiplication, fused or not.
    FpMultiply,
    /// Floating division.
    FpDivide,
    /// Floating square root.
    FpSqrt,
    /// Vector integer arithmetic, logic, shuffles.
    Vector,
    /// Vector integer multiplication.
    VectorMultiply,
    /// A conditional branch.
    Branch,
    /// An unconditional jump, direct or not.
    Jump,
    /// A call.
    Call,
    /// A return.
    Return,
    /// A locked or atomic read-modify-write, load-acquire-exclusive and its store.
    Atomic,
    /// A fence, a barrier, a serializing instruction.
    Barrier,
    /// A string instruction that repeats.
    String,
    /// System calls, traps, control registers.
    System,
    /// A prefetch.
    Prefetch,
    /// Unknown to the tables: costs little, so that M errs on the small side.
    Unknown,
}

/// What one instruction does, for a machine model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    /// Its operation; `Load` and `Store` only where it does nothing else.
    pub class: OpcodeClass,
    /// It reads memory.
    pub load: bool,
    /// It writes memory.
    pub store: bool,
}

impl Opcode {
    /// Classifies an instruction.
    pub fn from_instruction(arch: Arch, instruction: &Instruction) -> Opcode {
        let class = match arch {
            Arch::X86_64 | Arch::X86 => class_x86::classify(instruction),
            Arch::Aarch64 => class_a64::classify(instruction),
            Arch::Riscv64 => class_riscv::classify(instruction),
        };
        Opcode {
            class,
            load: class == OpcodeClass::Load || instruction.load().is_some(),
            store: class == OpcodeClass::Store || instruction.store().is_some(),
        }
    }

    /// Whether it makes others wait until memory agrees.
    pub fn synchronizes(self) -> bool {
        matches!(self.class, OpcodeClass::Atomic | OpcodeClass::Barrier)
    }

    /// Whether it keeps a divider: integer or floating, square roots too.
    pub fn divides(self) -> bool {
        matches!(self.class, OpcodeClass::Divide | OpcodeClass::FpDivide | OpcodeClass::FpSqrt)
    }

    /// Whether it is an integer multiplication (the vector kind too).
    pub fn multiplies(self) -> bool {
        matches!(self.class, OpcodeClass::Multiply | OpcodeClass::VectorMultiply)
    }
}
