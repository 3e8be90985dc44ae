//! Instruction bytes → what to do with them.
//!
//! Enters: code. Leaves: a [`Recipe`]. Cost: decoding, and encoding a few instructions; done once for each place.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

use crate::sys::native::{Entry, Full, Processor};

/// How to execute an instruction.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// By the processor, with a memory operand perhaps.
    Native(Entry, Option<Access>),
    /// It changes nothing that matters.
    Nothing,
    /// An address, computed.
    Lea,
    /// To a place that it names.
    Jump,
    /// To where a register or memory says.
    JumpTo,
    /// Perhaps to a place that it names, as flags say.
    Branch,
    /// The same, as rcx says.
    Loop,
    /// Of a place that it names.
    Call,
    /// Of where a register or memory says.
    CallTo,
    /// To the caller.
    Return,
    /// Of eight bytes.
    Push,
    /// Of eight bytes, into a register.
    Pop,
    /// The frame is given back.
    Leave,
    /// With or without repetition.
    String,
    /// Into the kernel.
    SystemCall,
    /// Nobody but the thread can.
    Refused,
}

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which operand.
    pub operand: u32,
    /// Its size.
    pub bytes: usize,
    /// Whether its bytes are needed: read, or kept in part.
    pub is_read: bool,
    /// Whether it is written.
    pub is_written: bool,
    /// A mask may leave out some or all of it.
    pub is_partial: bool,
}

/// An instruction made ready.
pub struct Recipe {
    /// Its bytes, and which of these count.
    code: u128,
    mask: u128,
    /// Where it is.
    pub pc: u64,
    /// Where the next one is.
    pub next_pc: u64,
    /// Decoded.
    pub instruction: Instruction,
    /// What to do.
    pub kind: Kind,
    /// How its memory operand's address is made, where that is of the usual kind.
    pub place: Option<Place>,
    /// Its code was compared with memory last when the follower had this number.
    pub compared: u64,
    /// The recipe that was next when it was executed last.
    pub successor: u32,
}

/// The usual kind of address: registers by their number, a scale, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    base: Option<u8>,
    index: Option<(u8, u8)>,
    displacement: u64,
}

impl Place {
    /// That of the instruction's memory operand, if it has one of this kind.
    fn of(instruction: &Instruction) -> Option<Place> {
        let has_any = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
        let is_flat = !matches!(instruction.memory_segment(), Register::FS | Register::GS);
        let displacement = instruction.memory_displacement64();
        let index = match instruction.memory_index() {
            Register::None => None,
            index if index.is_gpr64() => {
                Some((index.number() as u8, instruction.memory_index_scale().trailing_zeros() as u8))
            }
            _ => return None,
        };
        let base = match instruction.memory_base() {
            // The displacement of an address relative to the next instruction is the whole of it.
            Register::None | Register::RIP => None,
            base if base.is_gpr64() => Some(base.number() as u8),
            _ => return None,
        };
        (has_any && is_flat).then_some(Place { base, index, displacement })
    }

    /// The address.
    pub fn address(self, general: &[u64; 16]) -> u64 {
        let base = self.base.map_or(0, |base| general[usize::from(base)]);
        let index = self.index.map_or(0, |(index, shift)| general[usize::from(index)] << shift);
        base.wrapping_add(index).wrapping_add(self.displacement)
    }
}

impl Recipe {
    /// Of the instruction at the start of `code`. `Full`: the processor has no room.
    pub fn of(pc: u64, code: &[u8], processor: &mut Processor) -> Result<Recipe, Full> {
        let mut recipe = Recipe::refused(pc, code);
        let instruction = recipe.instruction;
        recipe.kind = match control(&instruction) {
            Some(kind) => kind,
            None => match (access(&instruction), processor.prepare(&instruction)?) {
                (Ok(access), Some(entry)) => Kind::Native(entry, access),
                _ => Kind::Refused,
            },
        };
        Ok(recipe)
    }

    /// Without knowing how.
    pub fn refused(pc: u64, code: &[u8]) -> Recipe {
        let instruction = Decoder::with_ip(64, code, pc, DecoderOptions::NONE).decode();
        let length = instruction.len().min(code.len());
        let mut bytes = [0; 16];
        bytes[..length].copy_from_slice(&code[..length]);
        Recipe {
            code: u128::from_le_bytes(bytes),
            mask: (1 << (8 * length)) - 1,
            pc,
            next_pc: instruction.next_ip(),
            place: Place::of(&instruction),
            instruction,
            kind: Kind::Refused,
            compared: 0,
            successor: 0,
        }
    }

    /// Whether these bytes, zeros where there are none, begin with this instruction.
    pub fn is_of(&self, code: [u8; 16]) -> bool {
        self.mask > 0 && u128::from_le_bytes(code) & self.mask == self.code
    }
}

/// What is not for the processor; `None` for all else.
fn control(instruction: &Instruction) -> Option<Kind> {
    if instruction.is_invalid() {
        return Some(Kind::Refused);
    }
    let is_near = matches!(instruction.op0_kind(), OpKind::NearBranch64);
    Some(match instruction.flow_control() {
        FlowControl::Next => return plain(instruction),
        FlowControl::UnconditionalBranch if is_near => Kind::Jump,
        FlowControl::IndirectBranch if instruction.code() == Code::Jmp_rm64 => Kind::JumpTo,
        FlowControl::ConditionalBranch if is_near && is_loop(instruction) => Kind::Loop,
        FlowControl::ConditionalBranch if is_near => Kind::Branch,
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
        _ if instruction.is_stack_instruction() => Kind::Refused,
        _ if instruction.is_string_instruction() => Kind::String,
        _ => return None,
    })
}

fn is_word(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Push_r64 | Code::Push_rm64 | Code::Pushq_imm8 | Code::Pushq_imm32)
}

/// The memory operand; an error where its size is unknown.
fn access(instruction: &Instruction) -> Result<Option<Access>, ()> {
    let Some(operand) = (0..instruction.op_count()).find(|&i| instruction.op_kind(i) == OpKind::Memory)
    else {
        return Ok(None);
    };
    let mut factory = InstructionInfoFactory::new();
    let mut access = Access { operand, bytes: 0, is_read: false, is_written: false, is_partial: false };
    for used in factory.info(instruction).used_memory() {
        let (reads, writes, partial) = match used.access() {
            OpAccess::Read => (true, false, false),
            OpAccess::CondRead => (true, false, true),
            OpAccess::Write => (false, true, false),
            // What a mask leaves out must stay as it was.
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
