//! Emulation of a stopped thread: what it would do next, on a copy of its registers and memory.
//!
//! Enters: a thread's registers and a way to read its memory. Leaves: the program counters that it would reach, up to a
//! system call or anything else that cannot be known from a copy. Never here: ptrace, and never a change of the thread: its
//! writes are kept in copies ([`memory`]), so that it has done nothing when it continues.
//!
//! There are two ways. Usually whole blocks of code are compiled ([`blocks`]): they execute the thread's own instructions, with
//! its memory accesses redirected to the copies. What cannot be compiled is interpreted one instruction at a time
//! ([`Interpreter`]). A single step by ptrace takes 11 to 50 µs, during which
//! the thread stands still.

mod bit_strings;
mod blocks;
pub mod calls;
mod instruction;
pub mod memory;
pub mod moments;
mod pieces;
mod recent_pages;
pub mod strings;
mod translate;
mod zeros;

use blocks::Blocks;
use calls::Calls;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use instruction::{Access, Kind, PreparedInstruction};
use memory::{Fetch, Memory, Refused};
use moments::Moments;
use rustc_hash::FxHashMap;

use crate::{
    path::{Path, PathCounter},
    sys::native::{Fault, Full, Operand, Processor, Registers},
    x86::{Flags, INSTRUCTION_BYTES_MAX, MemoryOperand, Segment, register_number},
};

/// Number of prepared instructions that are kept.
const INSTRUCTIONS_MAX: usize = 32 << 10;
/// Most steps that are executed while the thread itself runs.
const STEPS_BESIDE_MAX: usize = 128 << 20;
/// Number of steps after which the clock is read again.
const CLOCK_EVERY: usize = 64;

/// Why emulation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All steps were made.
    Complete,
    /// A system call is next whose effect is unknown.
    SystemCall,
    /// The thread itself made another system call.
    Differs,
    /// The next instruction is unknown, or only the thread itself can execute it.
    Unknown,
    /// The next instruction accesses memory that cannot be read.
    Unreadable,
    /// The thread accessed more memory than may be copied.
    TooMuchMemory,
    /// The next instruction raises an exception.
    Fault,
    /// A string instruction has too many repetitions.
    Repeating,
    /// Emulation took too long.
    Late,
}

impl From<Refused> for End {
    fn from(refused: Refused) -> End {
        match refused {
            Refused::Unreadable => End::Unreadable,
            Refused::TooMuch => End::TooMuchMemory,
        }
    }
}

/// This is how long a thread stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// While all its instructions are executed here.
    Whole,
    /// While the first ones are. It is not worth the time to make sure that its code is still the same; that is found out later, and
    /// these instructions do not count.
    Short,
    /// While all is copied that it can change.
    Copied,
}

/// The state of an emulated thread.
pub struct Thread<F> {
    /// All registers except the program counter and the bases of segments.
    pub registers: Box<Registers>,
    /// The address of the next instruction.
    pub pc: u64,
    /// The base address of segment fs.
    pub fs: u64,
    /// The base address of segment gs.
    pub gs: u64,
    /// The memory as the thread would see it.
    pub memory: Memory<F>,
    /// Its next system calls, if it made them already.
    pub calls: Calls,
    /// Number of repetitions of a string instruction after which emulation ends.
    pub repetitions_max: u64,
}

/// Receives the addresses of the instructions of each block, if they are wanted.
pub type Note<'n> = Option<&'n mut dyn FnMut(&[u64])>;

/// An emulator executes the next instructions of threads on copies.
pub struct Emulator {
    interpreter: Interpreter,
    /// `None` where blocks cannot be compiled.
    blocks: Option<Blocks>,
    /// Whether the thread makes so few steps that they are interpreted.
    is_short: bool,
    /// Counts what is only interpreted.
    counter: PathCounter,
}

impl Emulator {
    /// Creates an emulator and handles all exceptions of this process from now on. Fails where code cannot be generated.
    pub fn new() -> std::io::Result<Emulator> {
        let processor = Processor::new()?;
        processor.take_exceptions();
        let (interpreter, blocks) = (Interpreter::new(processor), Blocks::new().ok());
        Ok(Emulator { interpreter, blocks, is_short: false, counter: PathCounter::default() })
    }

    /// Begins with another thread. Copies what it is likely to need, or to change if it goes on before all its instructions are executed
    /// here.
    pub fn begin<F: Fetch>(&mut self, thread: &mut Thread<F>, stay: Stay) {
        self.is_short = stay != Stay::Whole;
        if let Some(blocks) = &mut self.blocks {
            blocks.begin(thread, &mut self.interpreter, stay);
        }
    }

    /// Copies more of what the thread is likely to change, before it goes on.
    pub fn let_go<F: Fetch>(&mut self, thread: &mut Thread<F>) {
        if let Some(blocks) = &mut self.blocks {
            blocks.let_go(thread);
        }
    }

    /// Copies a part of what a thread that goes on already may change. Returns whether that was all for now.
    /// `mapped` are pages of files that it has mapped.
    pub fn copy_near<F: Fetch>(&mut self, thread: &mut Thread<F>, mapped: &[u64]) -> bool {
        self.blocks.as_mut().is_none_or(|blocks| blocks.copy_near(thread, mapped))
    }

    /// Returns whether this machine can execute the instructions of a thread that goes on.
    pub fn can_find(&self) -> bool {
        self.blocks.is_some()
    }

    /// Executes about `steps_max` instructions; the first `before` of them, or half of them if they are fewer than twice as many, do not
    /// count. Returns why it ended, and the address of the first instruction that does not count. `note` receives the addresses of each
    /// block, if they are wanted.
    pub fn run<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        (steps_max, before): (usize, usize),
        mut note: Note,
        is_late: impl FnMut() -> bool,
    ) -> (End, u64) {
        if let Some(blocks) = self.blocks.as_mut().filter(|_| !self.is_short) {
            return blocks.run(thread, &mut self.interpreter, (steps_max, before), note, is_late);
        }
        // To compile code, and to permit what it accesses, takes longer than few steps do.
        self.counter = PathCounter::new(before);
        let note = |pc| {
            self.counter.pass_one(pc);
            if let Some(note) = &mut note {
                note(&[pc]);
            }
        };
        let end = self.interpreter.run(thread, steps_max, note, is_late);
        (end, thread.pc)
    }

    /// Returns the number of instructions of the last run.
    pub fn made(&mut self) -> usize {
        match self.blocks.as_mut().filter(|_| !self.is_short) {
            Some(blocks) => blocks.made(),
            None => self.counter.made(),
        }
    }

    /// Returns the path of the last run, whose last step leads to the instruction at `end`.
    pub fn path_to(&mut self, end: u64) -> Path {
        match self.blocks.as_mut().filter(|_| !self.is_short) {
            Some(blocks) => blocks.path_to(end),
            None => std::mem::take(&mut self.counter).path_to(end),
        }
    }

    /// Executes instructions, while the thread itself runs, until `moments` were found or cannot be found any more. Memory that the
    /// thread changed before it is read here leads astray; then moments are not found. Returns why it ended.
    pub fn find<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        moments: &mut Moments,
        is_late: impl FnMut() -> bool,
    ) -> End {
        self.is_short = false;
        let Some(blocks) = &mut self.blocks else { return End::Unknown };
        blocks.find(thread, &mut self.interpreter, STEPS_BESIDE_MAX, moments, is_late)
    }
}

/// Executes one instruction after the other. It keeps prepared instructions from thread to thread; each is compared with memory once
/// for each thread, and again after a write near code.
pub struct Interpreter {
    processor: Processor,
    instructions: Vec<PreparedInstruction>,
    /// The index of the instruction at an address.
    by_pc: FxHashMap<u64, u32>,
    /// Number of emulated threads plus writes near code. Instructions that were compared under this number are still valid.
    generation: u64,
    operand: Operand,
}

impl Interpreter {
    fn new(processor: Processor) -> Interpreter {
        let (instructions, by_pc) = (Vec::new(), FxHashMap::default());
        Interpreter { processor, instructions, by_pc, generation: 0, operand: Operand([0; 64]) }
    }

    /// Begins to execute another thread: its code is compared before it is executed.
    fn begin(&mut self) {
        self.generation += 1;
    }

    /// Executes at most `steps_max` instructions. `note` receives the address of each.
    fn run<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        steps_max: usize,
        mut note: impl FnMut(u64),
        mut is_late: impl FnMut() -> bool,
    ) -> End {
        self.begin();
        let mut code_writes = thread.memory.code_writes();
        let mut at = self.prepared_at(thread, None);
        for step in 1..=steps_max {
            let pc = thread.pc;
            if let Err(end) = self.step(thread, at) {
                thread.pc = pc;
                return end;
            }
            note(pc);
            if step % CLOCK_EVERY == 0 && is_late() {
                return End::Late;
            }
            if thread.memory.code_writes() != code_writes {
                code_writes = thread.memory.code_writes();
                self.generation += 1;
            }
            at = self.prepared_at(thread, Some(at));
        }
        End::Complete
    }

    /// Executes the instruction at `pc`, in code that did not change since the thread began. `registers` are those of the thread.
    fn one<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        pc: u64,
        registers: &mut Registers,
    ) -> Result<(), End> {
        thread.pc = pc;
        let at = self.prepared_at(thread, None);
        let is_native = matches!(self.instructions[at].kind, Kind::Native(..));
        let copy = |from: &Registers, to: &mut Registers| {
            if is_native {
                to.clone_from(from);
            } else {
                (to.general, to.flags) = (from.general, from.flags);
            }
        };
        copy(registers, &mut thread.registers);
        self.step(thread, at)?;
        copy(&thread.registers, registers);
        Ok(())
    }

    fn step<F: Fetch>(&mut self, thread: &mut Thread<F>, at: usize) -> Result<(), End> {
        let prepared = &self.instructions[at];
        thread.pc = match prepared.kind {
            Kind::Native(entry, access) => {
                let operand = &mut self.operand;
                let address = access.map(|a| thread.read_operand(prepared.memory, a, operand)).transpose()?;
                self.processor.execute(entry, &mut thread.registers, operand).map_err(|Fault| End::Fault)?;
                if let (Some(access), Some(address)) = (access.filter(|a| a.is_written), address) {
                    thread.memory.write(address, &operand.0[..access.bytes])?;
                }
                prepared.next_pc
            }
            _ => thread.interpret(prepared)?,
        };
        Ok(())
    }

    /// Returns the index of the next instruction, prepared from what memory holds at the pc; `last` was executed before it.
    fn prepared_at<F: Fetch>(&mut self, thread: &mut Thread<F>, last: Option<usize>) -> usize {
        let pc = thread.pc;
        let likely = last.map(|last| self.instructions[last].successor as usize);
        let known = match likely.filter(|at| self.instructions.get(*at).is_some_and(|known| known.pc == pc)) {
            Some(at) => Some(at),
            None => self.by_pc.get(&pc).map(|at| *at as usize),
        };
        if let Some(at) = known.filter(|at| self.instructions[*at].compared == self.generation) {
            self.set_successor(last, at);
            return at;
        }
        let mut code = [0; 16];
        let length = thread.memory.read_some(pc, &mut code[..INSTRUCTION_BYTES_MAX]);
        let at = match known.filter(|at| self.instructions[*at].matches(code)) {
            Some(at) => at,
            None => self.prepare(pc, &code[..length], known),
        };
        self.instructions[at].compared = self.generation;
        self.set_successor(last, at);
        at
    }

    fn set_successor(&mut self, last: Option<usize>, at: usize) {
        if let Some(prepared) = last.and_then(|last| self.instructions.get_mut(last)) {
            prepared.successor = at as u32;
        }
    }

    /// Prepares an instruction; `known` is the index of what was at its address before.
    fn prepare(&mut self, pc: u64, code: &[u8], known: Option<usize>) -> usize {
        if self.instructions.len() >= INSTRUCTIONS_MAX {
            self.clear();
        }
        let prepared = match PreparedInstruction::new(pc, code, &mut self.processor) {
            Ok(prepared) => prepared,
            Err(Full) => {
                self.clear();
                PreparedInstruction::new(pc, code, &mut self.processor)
                    .unwrap_or_else(|Full| PreparedInstruction::refused(pc, code))
            }
        };
        match known.filter(|at| *at < self.instructions.len()) {
            Some(at) => {
                self.instructions[at] = prepared;
                at
            }
            None => {
                self.instructions.push(prepared);
                let at = self.instructions.len() - 1;
                self.by_pc.insert(pc, at as u32);
                at
            }
        }
    }

    fn clear(&mut self) {
        self.instructions.clear();
        self.by_pc.clear();
        self.processor.clear();
    }
}

impl<F: Fetch> Thread<F> {
    /// Reads the bytes of a memory operand and returns its address.
    fn read_operand(
        &mut self,
        memory: Option<MemoryOperand>,
        access: Access,
        operand: &mut Operand,
    ) -> Result<u64, End> {
        let address = self.address(memory)?;
        let bytes = &mut operand.0[..access.bytes];
        bytes.fill(0);
        let read = if access.is_read { self.memory.read(address, bytes) } else { Ok(()) };
        match read {
            // A masked load may name memory that is not mapped.
            Err(refused) if !access.is_partial => Err(refused.into()),
            _ => Ok(address),
        }
    }

    /// Returns the address of a memory operand. The pc is that of its instruction.
    fn address(&self, memory: Option<MemoryOperand>) -> Result<u64, End> {
        let operand = memory.ok_or(End::Unknown)?;
        let segment_base = match operand.segment {
            Segment::Flat => 0,
            Segment::Fs => self.fs,
            Segment::Gs => self.gs,
        };
        Ok(segment_base.wrapping_add(self.effective_address(&operand)))
    }

    fn effective_address(&self, operand: &MemoryOperand) -> u64 {
        operand.effective_address(self.pc, |number| self.registers.general[usize::from(number & 15)])
    }

    /// Executes an instruction that is not [`Kind::Native`] and returns the address of the next one.
    fn interpret(&mut self, prepared: &PreparedInstruction) -> Result<u64, End> {
        let (instruction, next) = (&prepared.instruction, prepared.next_pc);
        let target = instruction.near_branch_target();
        Ok(match prepared.kind {
            Kind::Nothing | Kind::Native(..) => next,
            Kind::Lea => {
                let operand = prepared.memory.ok_or(End::Unknown)?;
                self.set(instruction.op0_register(), self.effective_address(&operand));
                next
            }
            Kind::Jump => target,
            Kind::JumpTo => self.first_operand(prepared)?,
            Kind::Branch(condition) if Flags(self.registers.flags).satisfy(condition) => target,
            Kind::Branch(_) => next,
            Kind::Loop => {
                if self.counts_down(instruction) {
                    target
                } else {
                    next
                }
            }
            Kind::Call => {
                self.push(next)?;
                target
            }
            Kind::CallTo => {
                let target = self.first_operand(prepared)?;
                self.push(next)?;
                target
            }
            Kind::Return => {
                let target = self.pop()?;
                let arguments =
                    if instruction.op_count() > 0 { u64::from(instruction.immediate16()) } else { 0 };
                self.registers.general[RSP] = self.registers.general[RSP].wrapping_add(arguments);
                target
            }
            Kind::Push => {
                let value = self.first_operand(prepared)?;
                self.push(value)?;
                next
            }
            Kind::Pop => {
                let value = self.pop()?;
                self.set(instruction.op0_register(), value);
                next
            }
            Kind::Leave => {
                self.registers.general[RSP] = self.registers.general[RBP];
                self.registers.general[RBP] = self.pop()?;
                next
            }
            Kind::String => {
                self.string(instruction)?;
                next
            }
            Kind::Bit => {
                self.bit(prepared)?;
                next
            }
            Kind::SystemCall => {
                self.call(next)?;
                next
            }
            Kind::Refused => return Err(End::Unknown),
        })
    }

    /// Returns the value of the first operand, of 8 bytes.
    fn first_operand(&mut self, prepared: &PreparedInstruction) -> Result<u64, End> {
        let instruction = &prepared.instruction;
        match instruction.op0_kind() {
            OpKind::Register => {
                let number = register_number(instruction.op0_register()).ok_or(End::Unknown)?;
                Ok(self.registers.general[usize::from(number)])
            }
            OpKind::Memory => Ok(self.memory.read_word(self.address(prepared.memory)?)?),
            _ => instruction.try_immediate(0).map_err(|_| End::Unknown),
        }
    }

    fn set(&mut self, register: Register, value: u64) {
        if let Some(full) = self.registers.general.get_mut(register.full_register().number()) {
            *full = match register.size() {
                8 => value,
                4 => value & 0xffff_ffff,
                _ => *full & !0xffff | value & 0xffff,
            };
        }
    }

    fn push(&mut self, value: u64) -> Result<(), End> {
        let top = self.registers.general[RSP].wrapping_sub(8);
        self.memory.write(top, &value.to_le_bytes())?;
        self.registers.general[RSP] = top;
        Ok(())
    }

    fn pop(&mut self) -> Result<u64, End> {
        let top = self.registers.general[RSP];
        let value = self.memory.read_word(top)?;
        self.registers.general[RSP] = top.wrapping_add(8);
        Ok(value)
    }

    /// Executes `loop`, `loope`, `loopne`, `jrcxz` or `jecxz`. Returns whether it branches.
    fn counts_down(&mut self, instruction: &Instruction) -> bool {
        let is_zero = Flags(self.registers.flags).has(Flags::ZERO);
        let counter = &mut self.registers.general[RCX];
        match instruction.mnemonic() {
            Mnemonic::Jrcxz => return *counter == 0,
            Mnemonic::Jecxz => return *counter as u32 == 0,
            _ => *counter = counter.wrapping_sub(1),
        }
        *counter != 0
            && match instruction.mnemonic() {
                Mnemonic::Loope => is_zero,
                Mnemonic::Loopne => !is_zero,
                _ => true,
            }
    }
}

const RCX: usize = 1;
const RSP: usize = 4;
const RBP: usize = 5;
const RSI: usize = 6;
const RDI: usize = 7;

#[cfg(test)]
mod tests;
