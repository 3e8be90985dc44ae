//! Code → the instructions that add a constant to a word in memory, and how their addresses follow from registers.
//!
//! Enters: bytes of x86-64 code at an instruction's boundary. Leaves: a [`Run`]: the instructions of a straight line of code,
//! the [`Writer`]s among them, and for each instruction the writers whose address is known from the registers there. Never
//! here: memory of the program, samples.
//!
//! A writer is `add`, `sub`, `inc`, `dec` or `xadd` of memory by a constant, or the store of a register that was loaded from the
//! same operand before and changed by constants only. Without an index register, an `fs` or `gs` base and the stack pointer: such
//! words have no address that many samples share.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

/// Bytes of code that are worth reading at a time.
pub const CODE_BYTES: usize = 192;
/// Instructions of a run.
const INSTRUCTIONS_MAX: usize = 40;
/// Steps beyond are no counting of executions.
const STEP_MAX: i64 = 4096;
/// Registers that a call leaves as they are: rbx, rbp, r12 to r15.
const CALLEE_SAVED: u16 = 1 << 3 | 1 << 5 | 0xf000;
const RSP: u8 = 4;

/// An instruction that adds a constant to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Its address.
    pub pc: u64,
    /// The address of the instruction after it, where a watchpoint finds the thread.
    pub next_pc: u64,
    /// The word.
    pub operand: Operand,
    /// What it adds.
    pub step: i64,
    /// Whether it excludes other threads.
    pub is_locked: bool,
}

/// A word in memory as an instruction names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The register that the address is relative to, by hardware number; `None`: the address is known.
    pub base: Option<u8>,
    /// The displacement, or the address.
    pub displacement: u64,
    /// Bytes: 4 or 8.
    pub size: u8,
}

impl Operand {
    /// The address, given the value of the base register.
    pub fn address(&self, base: impl FnOnce(u8) -> u64) -> u64 {
        self.base.map_or(0, base).wrapping_add(self.displacement)
    }
}

/// A straight line of code: where conditional branches and calls do not lead away from it.
#[derive(Clone, Debug, Default)]
pub struct Run {
    instructions: Vec<Decoded>,
    writers: Vec<(usize, Writer)>,
    /// Where direct branches and jumps of it lead to.
    pub targets: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Decoded {
    pc: u64,
    /// Registers that it, or what it calls, may change.
    written: u16,
}

/// What is known of a register's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Value {
    #[default]
    Unknown,
    Constant(i64),
    /// The word that was loaded, plus a constant.
    Word(Operand, i64),
}

impl Run {
    /// Decodes code from the boundary of an instruction at `pc` on.
    pub fn decode(code: &[u8], pc: u64) -> Run {
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
            let written = if is_call { !CALLEE_SAVED } else { written(&mut factory, &instruction) };
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

    /// All writers.
    pub fn writers(&self) -> impl Iterator<Item = &Writer> {
        self.writers.iter().map(|(_, writer)| writer)
    }

    /// The writers whose operand's address is what registers before each instruction say: by instruction.
    pub fn seen_from(&self) -> impl Iterator<Item = (u64, Vec<Writer>)> {
        (0..self.instructions.len()).filter_map(|at| {
            let seen: Vec<Writer> = self
                .writers
                .iter()
                .filter(|(of, writer)| self.is_seen(*of, writer, at))
                .map(|(_, writer)| *writer)
                .collect();
            (!seen.is_empty()).then(|| (self.instructions[at].pc, seen))
        })
    }

    /// Whether the base register has the same value before instruction `at` as before the writer at `of`.
    fn is_seen(&self, of: usize, writer: &Writer, at: usize) -> bool {
        let Some(base) = writer.operand.base else { return true };
        let between = &self.instructions[of.min(at)..of.max(at)];
        between.iter().all(|instruction| instruction.written & 1 << base == 0)
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

fn written(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> u16 {
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

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// Bytes in hex, decoded at 0x1000: each writer, and from which instructions its address is known.
    fn check(code: &str, expect: Expect) {
        let bytes: Vec<u8> =
            code.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let run = Run::decode(&bytes, 0x1000);
        let mut text = String::new();
        for writer in run.writers() {
            let Operand { base, displacement, size } = writer.operand;
            let lock = if writer.is_locked { " locked" } else { "" };
            let base = base.map_or_else(|| "at ".to_owned(), |base| format!("r{base}+"));
            text += &format!(
                "{:x}: {:+} to {size} bytes {base}{displacement:x}{lock}, seen from",
                writer.pc, writer.step
            );
            for (pc, seen) in run.seen_from() {
                if seen.contains(writer) {
                    text += &format!(" {pc:x}");
                }
            }
            text += "\n";
        }
        expect.assert_eq(&text);
    }

    #[test]
    fn constants_added_to_memory() {
        check(
            // add dword [rbx+0x7c], 1; inc qword [rip+0x10]; sub qword [rdi], 8; lock dec dword [rsi]; ret
            "83 43 7c 01 48 ff 05 10 00 00 00 48 83 2f 08 f0 ff 0e c3",
            expect![[r#"
                1000: +1 to 4 bytes r3+7c, seen from 1000 1004 100b 100f 1012
                1004: +1 to 8 bytes at 101b, seen from 1000 1004 100b 100f 1012
                100b: -8 to 8 bytes r7+0, seen from 1000 1004 100b 100f 1012
                100f: -1 to 4 bytes r6+0 locked, seen from 1000 1004 100b 100f 1012
            "#]],
        );
        check(
            // mov eax, 1; lock xadd [rbp], eax; mov ecx, 3; add [rbp], ecx; add [rbp], edx
            "b8 01 00 00 00 f0 0f c1 45 00 b9 03 00 00 00 01 4d 00 01 55 00",
            expect![[r#"
                1005: +1 to 4 bytes r5+0 locked, seen from 1000 1005 100a 100f 1012
                100f: +3 to 4 bytes r5+0, seen from 1000 1005 100a 100f 1012
            "#]],
        );
    }

    #[test]
    fn a_word_that_is_loaded_changed_and_stored() {
        check(
            // mov rax, [rbx+8]; lea rdx, [rax+1]; cmp rcx, rdx; mov [rbx+8], rdx; mov [rbx+16], rdx
            "48 8b 43 08 48 8d 50 01 48 39 d1 48 89 53 08 48 89 53 10",
            expect![[r#"
                100b: +1 to 8 bytes r3+8, seen from 1000 1004 1008 100b 100f
            "#]],
        );
        check(
            // mov eax, [rip+0x100]; sub eax, 2; inc eax; mov [rip+0xf5], eax: the same word
            "8b 05 00 01 00 00 83 e8 02 ff c0 89 05 f5 00 00 00",
            expect![[r#"
                100b: -1 to 4 bytes at 1106, seen from 1000 1006 1009 100b
            "#]],
        );
        check(
            // mov rax, [rbx]; add rbx, 8; inc rax; mov [rbx], rax: another word
            "48 8b 03 48 83 c3 08 48 ff c0 48 89 03",
            expect![[""]],
        );
        check(
            // mov rax, [rbx]; call +0; inc rax; mov [rbx], rax: who knows
            "48 8b 03 e8 00 00 00 00 48 ff c0 48 89 03",
            expect![[""]],
        );
        check(
            // mov rbx, [rbx]; inc rbx; mov [rbx], rbx: a pointer
            "48 8b 1b 48 ff c3 48 89 1b",
            expect![[""]],
        );
    }

    #[test]
    fn what_is_none() {
        check(
            // add dword [rsp+8], 1; add dword [rbx+rcx*4], 1; add dword fs:[rbx], 1; add byte [rbx], 1; add word [rbx], 1
            "83 44 24 08 01 83 04 8b 01 64 83 03 01 80 03 01 66 83 03 01",
            expect![[""]],
        );
        check(
            // add dword [rbx], 0; add dword [rbx], 0x2000; adc dword [rbx], 1; or dword [rbx], 1; cmp dword [rbx], 1
            "83 03 00 81 03 00 20 00 00 83 13 01 83 0b 01 83 3b 01",
            expect![[""]],
        );
    }

    #[test]
    fn the_address_is_known_while_the_base_is() {
        check(
            // mov rbx, rdi; add dword [rbx], 1; call +0; add dword [rbx], 1; add dword [rdi], 1; pop rbx; nop
            "48 89 fb 83 03 01 e8 00 00 00 00 83 03 01 83 07 01 5b 90",
            expect![[r#"
                1003: +1 to 4 bytes r3+0, seen from 1003 1006 100b 100e 1011
                100b: +1 to 4 bytes r3+0, seen from 1003 1006 100b 100e 1011
                100e: +1 to 4 bytes r7+0, seen from 100b 100e 1011 1012
            "#]],
        );
        check(
            // je +2; add dword [rbx], 1; jmp -7; add dword [rbx], 1
            "74 02 83 03 01 eb f9 83 03 01",
            expect![[r#"
                1002: +1 to 4 bytes r3+0, seen from 1000 1002 1005
            "#]],
        );
    }

    #[test]
    fn any_bytes_are_decoded() {
        let mut state = 7_u64;
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..CODE_BYTES)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 33) as u8
                })
                .collect();
            let run = Run::decode(&bytes, u64::MAX - 20);
            run.seen_from().for_each(drop);
        }
    }
}
