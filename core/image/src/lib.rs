//! Bytes → images: ELF, symbols, DWARF lines and inlined calls, instructions; all as plain data.
//!
//! Enters: the bytes of ELF files, ours or hostile. Leaves: symbols, source locations, instructions. Never here:
//! samples, machine models, knowledge of which process ran what. A panic on any input is a bug.

mod instruction;
mod registers;

pub use dwell_profile::{BuildId, ImageAddress, ImageOffset};
pub use instruction::{Flow, Instruction, MemoryOperand, Operand};
pub use registers::{Arch, Register, RegisterSet, aarch64, riscv, x86};
