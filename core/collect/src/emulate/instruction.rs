//! Instruction bytes → how to emulate them.
//!
//! Enters: code. Leaves: a [`PreparedInstruction`]. Preparing decodes one instruction and encodes a few; it is done once for
//! each address.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind,
};

use crate::{
    sys::native::{Entry, Full, Processor},
    x86::MemoryOperand,
};

/// How to execute an instruction.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// The processor executes it, perhaps with a memory operand.
    Native(Entry, Option<Access>),
    /// It changes nothing that affects the next instructions.
    Nothing,
    Lea,
    /// A direct jump.
    Jump,
    /// A jump to an address in a register or in memory.
    JumpTo,
    /// A conditional branch, with the low four bits of its opcode.
    Branch(u8),
    /// A branch that depends on rcx.
    Loop,
    /// A direct call.
    Call,
    /// A call of an address in a register or in memory.
    CallTo,
    Return,
    /// `push` of eight bytes.
    Push,
    /// `pop` of eight bytes into a register.
    Pop,
    Leave,
    /// A string instruction, with or without repetition.
    String,
    /// The instruction tests or changes a bit of memory, whose number is in a register.
    Bit,
    SystemCall,
    /// Only the thread itself can execute it.
    Refused,
}

/// How an instruction accesses its memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The operand's size.
    pub bytes: usize,
    /// Whether its bytes must be loaded, because the instruction reads them or overwrites only a part of them.
    pub is_read: bool,
    pub is_written: bool,
    /// Whether a mask may exclude some or all of its bytes.
    pub is_partial: bool,
}

/// An instruction that is ready to be executed.
pub struct PreparedInstruction {
    /// Its bytes, and a mask of those that are part of it.
    code: u128,
    mask: u128,
    /// Its address.
    pub pc: u64,
    /// The address of the instruction after it.
    pub next_pc: u64,
    pub instruction: Instruction,
    pub kind: Kind,
    /// The memory operand that it names.
    pub memory: Option<MemoryOperand>,
    /// The emulator's generation when its code was last compared with memory.
    pub compared: u64,
    /// Index of the instruction that was executed after it last time.
    pub successor: u32,
}

impl PreparedInstruction {
    /// Prepares the instruction at the start of `code`. Returns [`Full`] if the processor has no room.
    pub fn new(pc: u64, code: &[u8], processor: &mut Processor) -> Result<PreparedInstruction, Full> {
        let mut prepared = PreparedInstruction::refused(pc, code);
        let instruction = prepared.instruction;
        prepared.kind = match interpreted(&instruction) {
            Some(kind) => kind,
            None => match (
                access(&instruction, &mut InstructionInfoFactory::new()),
                processor.prepare(&instruction)?,
            ) {
                (Ok(access), Some(entry)) => Kind::Native(entry, access),
                _ => Kind::Refused,
            },
        };
        Ok(prepared)
    }

    /// Decodes the instruction at the start of `code`, but refuses to execute it.
    pub fn refused(pc: u64, code: &[u8]) -> PreparedInstruction {
        let instruction = Decoder::with_ip(64, code, pc, DecoderOptions::NONE).decode();
        let length = instruction.len().min(code.len());
        let mut bytes = [0; 16];
        bytes[..length].copy_from_slice(&code[..length]);
        PreparedInstruction {
            code: u128::from_le_bytes(bytes),
            mask: (1 << (8 * length)) - 1,
            pc,
            next_pc: instruction.next_ip(),
            memory: MemoryOperand::from_instruction(&instruction),
            instruction,
            kind: Kind::Refused,
            compared: 0,
            successor: 0,
        }
    }

    /// Returns whether these bytes, padded with zeros, begin with this instruction.
    pub fn matches(&self, code: [u8; 16]) -> bool {
        self.mask > 0 && u128::from_le_bytes(code) & self.mask == self.code
    }
}

/// Returns how to interpret an instruction; `None` if the processor executes it.
pub fn interpreted(instruction: &Instruction) -> Option<Kind> {
    if instruction.is_invalid() {
        return Some(Kind::Refused);
    }
    let is_near = matches!(instruction.op0_kind(), OpKind::NearBranch64);
    Some(match instruction.flow_control() {
        FlowControl::Next => return plain(instruction),
        FlowControl::UnconditionalBranch if is_near => Kind::Jump,
        FlowControl::IndirectBranch if instruction.code() == Code::Jmp_rm64 => Kind::JumpTo,
        FlowControl::ConditionalBranch if is_near && is_loop(instruction) => Kind::Loop,
        FlowControl::ConditionalBranch if is_near => {
            // iced numbers conditions as opcodes do, but from 1 on.
            Kind::Branch((instruction.condition_code() as u8).wrapping_sub(1))
        }
        FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => Kind::SystemCall,
        FlowControl::Call if is_near => Kind::Call,
        FlowControl::IndirectCall if instruction.code() == Code::Call_rm64 => Kind::CallTo,
        FlowControl::Return if matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16) => Kind::Return,
        _ => Kind::Refused,
    })
}

fn is_loop(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(instruction.mnemonic(), Loop | Loope | Loopne | Jcxz | Jecxz | Jrcxz)
}

fn plain(instruction: &Instruction) -> Option<Kind> {
    use Mnemonic::*;
    Some(match instruction.mnemonic() {
        Lea => Kind::Lea,
        Nop | Endbr64 | Endbr32 | Pause | Prefetchnta | Prefetcht0 | Prefetcht1 | Prefetcht2 | Prefetchw
        | Lfence | Mfence | Sfence | Clflush | Clflushopt | Clwb | Reservednop => Kind::Nothing,
        Push if instruction.stack_pointer_increment() == -8 && is_word(instruction) => Kind::Push,
        Pop if instruction.code() == Code::Pop_r64 => Kind::Pop,
        Leave if instruction.stack_pointer_increment() == 0 && instruction.code() == Code::Leaveq => {
            Kind::Leave
        }
        Bt | Bts | Btr | Btc
            if instruction.op0_kind() == OpKind::Memory && instruction.op1_kind() == OpKind::Register =>
        {
            Kind::Bit
        }
        _ if instruction.is_stack_instruction() => Kind::Refused,
        _ if instruction.is_string_instruction() => Kind::String,
        _ => return None,
    })
}

fn is_word(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Push_r64 | Code::Push_rm64 | Code::Pushq_imm8 | Code::Pushq_imm32)
}

/// Returns how an instruction accesses the memory operand that it names. Fails where the operand's size is unknown.
pub fn access(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Result<Option<Access>, ()> {
    let used_memory = factory.info(instruction).used_memory();
    if !instruction.op_kinds().any(|kind| kind == OpKind::Memory) {
        // Where it accesses memory that it does not name, that is not redirected.
        return if used_memory.is_empty() { Ok(None) } else { Err(()) };
    }
    if used_memory.iter().any(|used| used.base() != used_memory[0].base()) {
        return Err(());
    }
    use Mnemonic::{Vmaskmovpd, Vmaskmovps, Vpmaskmovd, Vpmaskmovq};
    // The mask of these is an ordinary operand, of which iced does not say that it excludes bytes.
    let is_masked = matches!(instruction.mnemonic(), Vmaskmovpd | Vmaskmovps | Vpmaskmovd | Vpmaskmovq);
    let mut access = Access { bytes: 0, is_read: is_masked, is_written: false, is_partial: is_masked };
    for used in factory.info(instruction).used_memory() {
        let (reads, writes, partial) = match used.access() {
            OpAccess::Read => (true, false, false),
            OpAccess::CondRead => (true, false, true),
            OpAccess::Write => (false, true, false),
            // The bytes that a mask leaves out must stay as they were.
            OpAccess::CondWrite => (true, true, true),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true, false),
            OpAccess::None | OpAccess::NoMemAccess => continue,
        };
        access.bytes = access.bytes.max(used.memory_size().size());
        access.is_read |= reads;
        access.is_written |= writes;
        access.is_partial |= partial;
    }
    if access.bytes == 0 || access.bytes > 64 { Err(()) } else { Ok(Some(access)) }
}
