//! Opcode classes: the distinctions that a machine model makes between instructions.

use dwell_image::{Arch, Instruction};
use serde::Deserialize;

use super::{class_a64, class_riscv, class_x86};

/// Operations with the same cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpcodeClass {
    /// No operation: `nop`, `endbr64`, `bti`.
    Nop,
    /// Moves between registers, and constants.
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
    /// Moves between the register files, and conversions.
    Transfer,
    /// Floating-point addition, subtraction, comparison, minimum and maximum.
    FpAdd,
    /// Floating-point multiplication, fused or not.
    FpMultiply,
    /// Floating-point division.
    FpDivide,
    /// Floating-point square root.
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
    /// A repeated string instruction.
    String,
    /// System calls, traps, control registers.
    System,
    /// A prefetch.
    Prefetch,
    /// An instruction that the tables do not contain. It costs little, so that M is rather too small.
    Unknown,
}

/// The properties of an instruction that a machine model needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    /// Its class. `Load` and `Store` mean that it does nothing else.
    pub class: OpcodeClass,
    /// Whether it reads memory.
    pub load: bool,
    /// Whether it writes memory.
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

    /// Whether it makes other instructions wait until memory is consistent.
    pub fn synchronizes(self) -> bool {
        matches!(self.class, OpcodeClass::Atomic | OpcodeClass::Barrier)
    }

    /// Whether it occupies a divider, which computes integer and floating-point quotients and square roots.
    pub fn divides(self) -> bool {
        matches!(self.class, OpcodeClass::Divide | OpcodeClass::FpDivide | OpcodeClass::FpSqrt)
    }

    /// Whether it is an integer multiplication, scalar or vector.
    pub fn multiplies(self) -> bool {
        matches!(self.class, OpcodeClass::Multiply | OpcodeClass::VectorMultiply)
    }
}
