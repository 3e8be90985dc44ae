//! What the decoders of x86-64 code share.
//!
//! Enters: decoded instructions, register values. Leaves: the address of a memory operand, the flags after an operation, the
//! registers that an instruction writes. Never here: which properties of the code a decoder needs, I/O, state.
//!
//! General registers are identified by their hardware number: 0 rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, 5 rbp, 6 rsi, 7 rdi, 8 r8 … 15 r15.

mod flags;
mod memory_operand;

use iced_x86::{Instruction, InstructionInfoFactory, OpAccess, OpKind, Register};

pub use flags::Flags;
pub use memory_operand::{Base, MemoryOperand, Segment};

/// Length in bytes of the longest instruction.
pub const INSTRUCTION_BYTES_MAX: usize = 15;
/// Hardware number of the stack pointer.
pub const RSP: u8 = 4;

/// Returns the hardware number of a general register, whatever part of it is named.
pub fn register_number(register: Register) -> Option<u8> {
    register.is_gpr().then(|| (register.full_register() as u32 - Register::RAX as u32) as u8)
}

/// Returns the numbers of the general registers that an instruction writes, perhaps only in part or under a condition.
pub fn registers_written(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> impl Iterator<Item = u8> {
    let is_written = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let used = factory.info(instruction).used_registers().iter();
    used.filter(move |used| is_written(used.access())).filter_map(|used| register_number(used.register()))
}

/// Returns the last operand, sign-extended from its size in the instruction, if it is an immediate.
pub fn immediate(instruction: &Instruction) -> Option<i64> {
    let last = instruction.op_count().checked_sub(1)?;
    let value = instruction.try_immediate(last).ok()?;
    match instruction.op_kind(last) {
        OpKind::Immediate32 => Some(i64::from(value as i32)),
        OpKind::Immediate16 => None,
        _ => Some(value as i64),
    }
}
