//! Bytes of x86-64 code → a [`Run`]: its instructions, the registers that they write, and the increments among them.
//!
//! Enters: bytes at an instruction's boundary. Leaves: a [`Run`]. Never here: other code, samples.

use dwell_profile::VirtualAddress;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};

use super::{Decoded, Increment, Run, WordOperand, Written};
use crate::{
    registers::Registers,
    x86::{
        Base, INSTRUCTION_BYTES_MAX, MemoryOperand, RSP, Segment, immediate, register_number,
        registers_written,
    },
};

/// Number of instructions of a run.
const INSTRUCTIONS_MAX: usize = 40;
/// The largest step. A larger one does not count executions.
const STEP_MAX: i64 = 4096;
/// Registers that a call preserves, as bits: rbx, rbp, r12 to r15.
const CALLEE_SAVED: u16 = 1 << 3 | 1 << 5 | 0xf000;

/// What is known of a register's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Value {
    #[default]
    Unknown,
    Constant(i64),
    /// A word that was loaded, plus a constant.
    Word(WordOperand, i64),
}

/// Decodes code from the boundary of an instruction at `pc` on.
pub fn run(code: &[u8], pc: VirtualAddress) -> Run {
    let mut run = Run::default();
    let mut state = State { values: [Value::Unknown; 16] };
    let mut factory = InstructionInfoFactory::new();
    let mut decoder = Decoder::with_ip(64, code, pc.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while run.instructions.len() < INSTRUCTIONS_MAX && decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            break;
        }
        if let Some(increment) = state.increment(&instruction) {
            run.increments.push((run.instructions.len(), increment));
        }
        let is_call = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
            || instruction.mnemonic() == Mnemonic::Syscall;
        let written = if is_call {
            !CALLEE_SAVED
        } else {
            registers_written(&mut factory, &instruction).fold(0, |bits, register| bits | 1 << register)
        };
        state.apply(&instruction, written, is_call);
        run.instructions.push(Decoded { pc: VirtualAddress(instruction.ip()), written });
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {}
            FlowControl::ConditionalBranch => run.targets.push(target(&instruction)),
            FlowControl::UnconditionalBranch => {
                run.targets.push(target(&instruction));
                break;
            }
            _ => break,
        }
    }
    run
}

fn target(branch: &Instruction) -> VirtualAddress {
    VirtualAddress(branch.near_branch_target())
}

/// Returns how an instruction wrote to a word: see [`super::written`].
pub fn written(
    code: &[u8],
    next_pc: VirtualAddress,
    address: VirtualAddress,
    registers: &Registers,
) -> Option<Written> {
    let lengths = (2..=code.len().min(INSTRUCTION_BYTES_MAX)).rev();
    lengths.filter_map(|length| written_by(&code[code.len() - length..], next_pc, address, registers)).next()
}

/// Returns how the instruction that consists of these bytes wrote to the word at an address, if it did.
fn written_by(
    bytes: &[u8],
    next_pc: VirtualAddress,
    address: VirtualAddress,
    registers: &Registers,
) -> Option<Written> {
    let pc = next_pc.back(bytes.len() as u64);
    let instruction = Decoder::with_ip(64, bytes, pc.0, DecoderOptions::NONE).decode();
    let is_whole = !instruction.is_invalid() && instruction.len() == bytes.len();
    let writes = is_whole && instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Memory;
    let memory = MemoryOperand::from_instruction(&instruction).filter(|_| writes)?;
    let written = memory.effective_address(pc.0, |number| registers.general(number));
    if memory.segment != Segment::Flat || VirtualAddress(written) != address {
        return None;
    }
    if instruction.mnemonic() == Mnemonic::Mov && immediate(&instruction).is_some() {
        return Some(Written::Set);
    }
    let step = match instruction.mnemonic() {
        Mnemonic::Inc => 1,
        Mnemonic::Dec => -1,
        Mnemonic::Add => immediate(&instruction)?,
        Mnemonic::Sub => immediate(&instruction)?.checked_neg()?,
        _ => return None,
    };
    increment(&instruction, word_operand(&instruction)?, step).map(Written::Added)
}

/// Returns the increment of a word by a step, if the step is small and not 0.
fn increment(instruction: &Instruction, word: WordOperand, step: i64) -> Option<Increment> {
    let step = if word.size == 4 { i64::from(step as i32) } else { step };
    (step != 0 && step.abs() <= STEP_MAX).then_some(Increment {
        pc: VirtualAddress(instruction.ip()),
        next_pc: VirtualAddress(instruction.next_ip()),
        word,
        step,
        is_locked: instruction.has_lock_prefix(),
    })
}

/// What is known of the registers between two instructions.
struct State {
    values: [Value; 16],
}

impl State {
    /// Returns the increment that an instruction is.
    fn increment(&self, instruction: &Instruction) -> Option<Increment> {
        let word = shared_word(instruction)?;
        let step = match instruction.mnemonic() {
            Mnemonic::Inc => 1,
            Mnemonic::Dec => -1,
            Mnemonic::Add | Mnemonic::Xadd => self.constant(instruction)?,
            Mnemonic::Sub => self.constant(instruction)?.checked_neg()?,
            Mnemonic::Mov => match self.value(register(instruction, 1)?) {
                Value::Word(loaded, added) if loaded == word => added,
                _ => return None,
            },
            _ => return None,
        };
        increment(instruction, word, step)
    }

    /// Returns the second operand's value, if that is a known constant.
    fn constant(&self, instruction: &Instruction) -> Option<i64> {
        if let Some(register) = register(instruction, 1) {
            return match self.value(register) {
                Value::Constant(value) => Some(value),
                _ => None,
            };
        }
        immediate(instruction)
    }

    fn value(&self, register: u8) -> Value {
        self.values[usize::from(register)]
    }

    /// Applies the effects of an instruction.
    fn apply(&mut self, instruction: &Instruction, written: u16, is_call: bool) {
        let new = self.new_value(instruction);
        for (register, value) in (0_u8..).zip(&mut self.values) {
            let is_gone = match value {
                // A called function may change the word.
                Value::Word(word, _) => is_call || word.depends_on(written),
                _ => false,
            };
            if is_gone || written & 1 << register != 0 {
                *value = Value::Unknown;
            }
        }
        if let Some((register, value)) = new {
            let lost_base = matches!(value, Value::Word(word, _) if word.depends_on(written));
            self.values[usize::from(register)] = if lost_base { Value::Unknown } else { value };
        }
    }

    /// Returns the register that an instruction writes as its first operand, and the new value, where that is known.
    fn new_value(&self, instruction: &Instruction) -> Option<(u8, Value)> {
        let target = register(instruction, 0)?;
        let value = match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movsxd => match (register(instruction, 1), immediate(instruction)) {
                (Some(source), _) => self.value(source),
                (None, Some(constant)) => Value::Constant(constant),
                (None, None) => Value::Word(shared_word(instruction)?, 0),
            },
            Mnemonic::Xor if register(instruction, 1) == Some(target) => Value::Constant(0),
            Mnemonic::Add => self.plus(target, self.constant(instruction)?),
            Mnemonic::Sub => self.plus(target, self.constant(instruction)?.checked_neg()?),
            Mnemonic::Inc => self.plus(target, 1),
            Mnemonic::Dec => self.plus(target, -1),
            Mnemonic::Lea if instruction.memory_index() == Register::None => {
                let base = register_number(instruction.memory_base())?;
                self.plus(base, instruction.memory_displacement64() as i64)
            }
            _ => return None,
        };
        Some((target, value))
    }

    fn plus(&self, register: u8, constant: i64) -> Value {
        match self.value(register) {
            Value::Constant(value) => Value::Constant(value.wrapping_add(constant)),
            Value::Word(word, added) => Value::Word(word, added.wrapping_add(constant)),
            Value::Unknown => Value::Unknown,
        }
    }
}

/// Returns the number of the general register of 32 or 64 bits that an operand is.
fn register(instruction: &Instruction, operand: u32) -> Option<u8> {
    if operand >= instruction.op_count() || instruction.op_kind(operand) != OpKind::Register {
        return None;
    }
    let register = instruction.op_register(operand);
    (register.is_gpr32() || register.is_gpr64()).then(|| register_number(register)).flatten()
}

/// Returns the word of 4 or 8 bytes that an instruction names.
fn word_operand(instruction: &Instruction) -> Option<WordOperand> {
    let mut memory = MemoryOperand::from_instruction(instruction)?;
    if memory.base == Base::Instruction {
        memory.base = Base::None;
        memory.displacement = memory.displacement.wrapping_add(instruction.ip());
    }
    let size = instruction.memory_size().size();
    matches!(size, 4 | 8).then_some(WordOperand { memory, size: size as u8 })
}

/// Returns the word of 4 or 8 bytes that an instruction names, if many samples can share its address.
fn shared_word(instruction: &Instruction) -> Option<WordOperand> {
    word_operand(instruction).filter(|WordOperand { memory, .. }| {
        let is_plain = memory.index.is_none() && memory.segment == Segment::Flat && !memory.is_32_bit;
        is_plain && memory.base != Base::Register(RSP)
    })
}
