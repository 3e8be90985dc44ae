//! Bytes of x86-64 code → a [`Run`]: its instructions, the registers that they write, and those that add a constant to memory.
//!
//! Enters: bytes at an instruction's boundary. Leaves: a [`Run`]. Never here: other code, samples.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use super::{Decoded, Operand, Run, Writer, Written};
use crate::branch::Registers;

/// Instructions of a run.
const INSTRUCTIONS_MAX: usize = 40;
/// Steps beyond are no counting of executions.
const STEP_MAX: i64 = 4096;
/// Registers that a call leaves as they are: rbx, rbp, r12 to r15.
const CALLEE_SAVED: u16 = 1 << 3 | 1 << 5 | 0xf000;
const RSP: u8 = 4;
/// The longest instruction.
const INSTRUCTION_BYTES_MAX: usize = 15;

/// What is known of a register's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Value {
    #[default]
    Unknown,
    Constant(i64),
    /// The word that was loaded, plus a constant.
    Word(Operand, i64),
}

/// Decodes code from the boundary of an instruction at `pc` on.
pub fn run(code: &[u8], pc: u64) -> Run {
    let mut run = Run::default();
    let mut state = State { values: [Value::Unknown; 16] };
    let mut factory = InstructionInfoFactory::new();
    let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while run.instructions.len() < INSTRUCTIONS_MAX && decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            break;
        }
        if let Some(writer) = state.writer(&instruction) {
            run.writers.push((run.instructions.len(), writer));
        }
        let is_call = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
            || instruction.mnemonic() == Mnemonic::Syscall;
        let written = if is_call { !CALLEE_SAVED } else { registers_written(&mut factory, &instruction) };
        state.apply(&instruction, written, is_call);
        run.instructions.push(Decoded { pc: instruction.ip(), written });
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {}
            FlowControl::ConditionalBranch => run.targets.push(instruction.near_branch_target()),
            FlowControl::UnconditionalBranch => {
                run.targets.push(instruction.near_branch_target());
                break;
            }
            _ => break,
        }
    }
    run
}

/// See [`super::written`].
pub fn written(code: &[u8], next_pc: u64, address: u64, registers: &Registers) -> Option<Written> {
    let lengths = (2..=code.len().min(INSTRUCTION_BYTES_MAX)).rev();
    lengths.filter_map(|length| written_by(&code[code.len() - length..], next_pc, address, registers)).next()
}

/// How the instruction that these bytes are wrote to the word at an address, if they are one that did.
fn written_by(bytes: &[u8], next_pc: u64, address: u64, registers: &Registers) -> Option<Written> {
    let pc = next_pc.wrapping_sub(bytes.len() as u64);
    let instruction = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
    let is_whole = !instruction.is_invalid() && instruction.len() == bytes.len();
    let writes = is_whole && instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Memory;
    let has_segment = matches!(instruction.memory_segment(), Register::FS | Register::GS);
    if !writes || has_segment || instruction.virtual_address(0, 0, value_in(registers))? != address {
        return None;
    }
    let size = instruction.memory_size().size();
    if instruction.mnemonic() == Mnemonic::Mov && immediate(&instruction).is_some() {
        return Some(Written::Set);
    }
    // Which words it writes to beside this one, its address does not say where it has an index.
    let named = memory_operand(&instruction);
    let base = named.map_or(Some(RSP), |operand| operand.base);
    let operand = Operand { base, displacement: address, size: matches!(size, 4 | 8).then_some(size as u8)? };
    let step = match instruction.mnemonic() {
        Mnemonic::Inc => 1,
        Mnemonic::Dec => -1,
        Mnemonic::Add => immediate(&instruction)?,
        Mnemonic::Sub => immediate(&instruction)?.checked_neg()?,
        _ => return None,
    };
    let step = if operand.size == 4 { i64::from(step as i32) } else { step };
    let is_step = step != 0 && step.abs() <= STEP_MAX;
    let is_locked = instruction.has_lock_prefix();
    is_step.then_some(Written::Added(Writer {
        pc,
        next_pc,
        operand: named.unwrap_or(operand),
        step,
        is_locked,
    }))
}

/// The value of a register, as [`Instruction::virtual_address`] asks for it.
fn value_in(registers: &Registers) -> impl FnMut(Register, usize, usize) -> Option<u64> {
    |register, _, _| match register {
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        register if register.is_gpr64() => Some(registers.general(general(register)?)),
        register if register.is_gpr32() => Some(registers.general(general(register)?) & 0xffff_ffff),
        _ => None,
    }
}

/// What is known while code is gone through.
struct State {
    values: [Value; 16],
}

impl State {
    /// The writer that an instruction is.
    fn writer(&self, instruction: &Instruction) -> Option<Writer> {
        let operand = memory_operand(instruction)?;
        let step = match instruction.mnemonic() {
            Mnemonic::Inc => 1,
            Mnemonic::Dec => -1,
            Mnemonic::Add | Mnemonic::Xadd => self.constant(instruction)?,
            Mnemonic::Sub => self.constant(instruction)?.checked_neg()?,
            Mnemonic::Mov => match self.value(register(instruction, 1)?) {
                Value::Word(loaded, added) if loaded == operand => added,
                _ => return None,
            },
            _ => return None,
        };
        let step = if operand.size == 4 { i64::from(step as i32) } else { step };
        (step != 0 && step.abs() <= STEP_MAX).then_some(Writer {
            pc: instruction.ip(),
            next_pc: instruction.next_ip(),
            operand,
            step,
            is_locked: instruction.has_lock_prefix(),
        })
    }

    /// The second operand, if it is a constant.
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

    /// Takes the effects of an instruction in.
    fn apply(&mut self, instruction: &Instruction, written: u16, is_call: bool) {
        let new = self.new_value(instruction);
        for (register, value) in (0_u8..).zip(&mut self.values) {
            let is_gone = match value {
                // Another function may change the word.
                Value::Word(operand, _) => {
                    is_call || operand.base.is_some_and(|base| written & 1 << base != 0)
                }
                _ => false,
            };
            if is_gone || written & 1 << register != 0 {
                *value = Value::Unknown;
            }
        }
        if let Some((register, value)) = new {
            let lost_base =
                matches!(value, Value::Word(Operand { base: Some(base), .. }, _) if written & 1 << base != 0);
            self.values[usize::from(register)] = if lost_base { Value::Unknown } else { value };
        }
    }

    /// What an instruction leaves in its first operand, a register, where that is known.
    fn new_value(&self, instruction: &Instruction) -> Option<(u8, Value)> {
        let target = register(instruction, 0)?;
        let value = match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movsxd => match (register(instruction, 1), immediate(instruction)) {
                (Some(source), _) => self.value(source),
                (None, Some(constant)) => Value::Constant(constant),
                (None, None) => Value::Word(memory_operand(instruction)?, 0),
            },
            Mnemonic::Xor if register(instruction, 1) == Some(target) => Value::Constant(0),
            Mnemonic::Add => self.plus(target, self.constant(instruction)?),
            Mnemonic::Sub => self.plus(target, self.constant(instruction)?.checked_neg()?),
            Mnemonic::Inc => self.plus(target, 1),
            Mnemonic::Dec => self.plus(target, -1),
            Mnemonic::Lea if instruction.memory_index() == Register::None => {
                let base = general(instruction.memory_base())?;
                self.plus(base, instruction.memory_displacement64() as i64)
            }
            _ => return None,
        };
        Some((target, value))
    }

    fn plus(&self, register: u8, constant: i64) -> Value {
        match self.value(register) {
            Value::Constant(value) => Value::Constant(value.wrapping_add(constant)),
            Value::Word(operand, added) => Value::Word(operand, added.wrapping_add(constant)),
            Value::Unknown => Value::Unknown,
        }
    }
}

/// The number of a general register of 32 or 64 bits in an operand.
fn register(instruction: &Instruction, operand: u32) -> Option<u8> {
    if operand >= instruction.op_count() || instruction.op_kind(operand) != OpKind::Register {
        return None;
    }
    let register = instruction.op_register(operand);
    (register.is_gpr32() || register.is_gpr64()).then(|| general(register)).flatten()
}

/// The hardware number of a general register, whatever part of it is named.
fn general(register: Register) -> Option<u8> {
    register.is_gpr().then(|| (register.full_register() as u32 - Register::RAX as u32) as u8)
}

fn immediate(instruction: &Instruction) -> Option<i64> {
    let last = instruction.op_count().checked_sub(1)?;
    matches!(
        instruction.op_kind(last),
        OpKind::Immediate8
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
    .then(|| {
        let value = instruction.immediate(last);
        if instruction.op_kind(last) == OpKind::Immediate32 { i64::from(value as i32) } else { value as i64 }
    })
}

/// The word of 4 or 8 bytes that an instruction refers to, if samples can know its address.
fn memory_operand(instruction: &Instruction) -> Option<Operand> {
    let is_memory = |operand| instruction.op_kind(operand) == OpKind::Memory;
    if !(0..instruction.op_count()).any(is_memory)
        || instruction.memory_index() != Register::None
        || matches!(instruction.memory_segment(), Register::FS | Register::GS)
    {
        return None;
    }
    let size = instruction.memory_size().size();
    let size = matches!(size, 4 | 8).then_some(size as u8)?;
    let displacement = instruction.memory_displacement64();
    let base = match instruction.memory_base() {
        Register::None | Register::RIP => None, // iced makes the address of what is relative to rip.
        register if register.is_gpr64() => Some(general(register)?),
        _ => return None,
    };
    (base != Some(RSP)).then_some(Operand { base, displacement, size })
}

fn registers_written(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> u16 {
    let used = factory.info(instruction).used_registers();
    let is_written = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let registers =
        used.iter().filter(|used| is_written(used.access())).filter_map(|used| general(used.register()));
    registers.fold(0, |bits, register| bits | 1 << register)
}
