//! Reads images from bytes: ELF headers, symbols, DWARF lines and inlined calls, instructions; all as plain data.
//!
//! Input: the bytes of ELF files, which may be hostile. Output: symbols, source locations, instructions. This crate knows no
//! samples, no machine models and no processes. A panic on any input is a bug.

mod data;
mod data_symbols;
mod debug_files;
mod decode;
mod demangle;
mod dwarf;
mod elf;
mod elf32;
mod elf_file;
mod error;
mod fuzzing;
mod image;
mod instruction;
mod kernel;
mod landing_pads;
mod lru_cache;
mod minidebug;
mod paths;
mod plt;
mod procedure;
mod procedure_offsets;
mod registers;
mod relocations;
mod symbols;
mod unwind;
mod unwind_rows;
mod unwind_rules;

pub use data_symbols::DataPlace;
pub use debug_files::{DebugSearch, DebugState};
pub use decode::instructions;
pub use demangle::{demangle, without_parameters};
pub use dwarf::{CompiledFrame, Frame};
pub use dwell_profile::{BuildId, ImageAddress, ImageOffset};
pub use error::ImageError;
pub use fuzzing::{fuzz_elf, fuzz_image};
pub use image::{Image, build_id_in_notes, build_id_of_file};
pub use instruction::{Flow, Instruction, MemoryOperand, Operand, fall_throughs};
pub use lru_cache::LruCache;
pub use procedure::{Procedure, ProcedureTable};
pub use procedure_offsets::ProcedureOffsets;
pub use registers::{Arch, Register, RegisterSet, aarch64, riscv, x86};
pub use unwind_rows::{Caller, CallerRbp, UnwindRow};
pub use unwind_rules::UnwindRules;
