//! Following a stopped thread: what it would do next, found out on a copy of its registers and memory.
//!
//! Enters: a thread's registers and a way to read its memory. Leaves: the program counters that it would go through, up
//! to a system call or anything else that cannot be known from a copy. Never here: ptrace, and never a change of the
//! thread: what it would write is kept in copies ([`memory`]), so it has done nothing when it goes on.
//!
//! Control flow, the stack and string instructions are interpreted here; all other instructions the processor executes on
//! registers apart ([`crate::sys::native`]). Cost: some 0.1 µs for each instruction that was met before, a few µs for a
//! new one. A single step by ptrace takes 11 to 50 µs, in which the thread stands still.

pub mod memory;
mod recipe;
mod strings;

use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};
use rustc_hash::FxHashMap;

use crate::sys::native::{Fault, Full, Operand, Processor, Registers};
use memory::{Fetch, Memory, Refused};
use recipe::{Access, Kind, Place, Recipe};

/// The longest instruction.
const CODE_BYTES: usize = 15;
/// Recipes that are kept.
const RECIPES_MAX: usize = 32 << 10;
/// How often the clock is looked at, in steps.
const CLOCK_EVERY: usize = 64;

/// Why it could not be followed further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All steps were made.
    Complete,
    /// A system call is next.
    SystemCall,
    /// An instruction that is not known, or that only the thread itself can execute.
    Unknown,
    /// Memory that cannot be read.
    Unreadable,
    /// It read more memory than is copied.
    TooMuchMemory,
    /// An exception.
    Fault,
    /// A string instruction goes on and on.
    Repeating,
    /// It took too long.
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

/// A thread's state.
pub struct Thread<F> {
    /// Registers but for the next three.
    pub registers: Box<Registers>,
    /// Where it is.
    pub pc: u64,
    /// Where segment fs begins.
    pub fs: u64,
    /// Where segment gs begins.
    pub gs: u64,
    /// Its memory.
    pub memory: Memory<F>,
}

/// What is kept from thread to thread: instructions made ready. They are compared with memory once for each thread, and again
/// after something was written near code.
pub struct Follower {
    processor: Processor,
    recipes: Vec<Recipe>,
    /// Which recipe is of which place.
    by_pc: FxHashMap<u64, u32>,
    /// Counts threads that were followed, and writes near code: what was compared with this number is as it was then.
    number: u64,
    operand: Operand,
}

impl Follower {
    /// Fails where code cannot be made. Exceptions of this process are taken from now on.
    pub fn new() -> std::io::Result<Follower> {
        let processor = Processor::new()?;
        processor.take_exceptions();
        Ok(Follower::with(processor))
    }

    fn with(processor: Processor) -> Follower {
        let (recipes, by_pc) = (Vec::new(), FxHashMap::default());
        Follower { processor, recipes, by_pc, number: 0, operand: Operand([0; 64]) }
    }

    /// Follows for so many steps at most; `note` is told where each one begins and where the last one ends.
    pub fn follow<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        steps_max: usize,
        mut note: impl FnMut(u64),
        mut is_late: impl FnMut() -> bool,
    ) -> End {
        note(thread.pc);
        self.number += 1;
        let mut code_writes = thread.memory.code_writes();
        let mut at = self.recipe_at(thread, None);
        for step in 1..=steps_max {
            if let Err(end) = self.step(thread, at) {
                return end;
            }
            note(thread.pc);
            if step % CLOCK_EVERY == 0 && is_late() {
                return End::Late;
            }
            if thread.memory.code_writes() != code_writes {
                code_writes = thread.memory.code_writes();
                self.number += 1;
            }
            at = self.recipe_at(thread, Some(at));
        }
        End::Complete
    }

    fn step<F: Fetch>(&mut self, thread: &mut Thread<F>, at: usize) -> Result<(), End> {
        let Recipe { instruction, kind, place, next_pc, .. } = &self.recipes[at];
        thread.pc = match *kind {
            Kind::Native(entry, access) => {
                let operand = &mut self.operand;
                let address =
                    access.map(|a| thread.operand_in(instruction, *place, a, operand)).transpose()?;
                self.processor.execute(entry, &mut thread.registers, operand).map_err(|Fault| End::Fault)?;
                if let (Some(access), Some(address)) = (access.filter(|a| a.is_written), address) {
                    thread.memory.write(address, &operand.0[..access.bytes])?;
                }
                *next_pc
            }
            kind => thread.control(instruction, *place, kind, *next_pc)?,
        };
        Ok(())
    }

    /// The recipe of what comes next, which is what memory holds there; `last` was executed before it.
    fn recipe_at<F: Fetch>(&mut self, thread: &mut Thread<F>, last: Option<usize>) -> usize {
        let pc = thread.pc;
        let likely = last.map(|last| self.recipes[last].successor as usize);
        let known = match likely.filter(|at| self.recipes.get(*at).is_some_and(|recipe| recipe.pc == pc)) {
            Some(at) => Some(at),
            None => self.by_pc.get(&pc).map(|at| *at as usize),
        };
        if let Some(at) = known.filter(|at| self.recipes[*at].compared == self.number) {
            self.leads(last, at);
            return at;
        }
        let mut code = [0; 16];
        let length = thread.memory.read_some(pc, &mut code[..CODE_BYTES]);
        let at = match known.filter(|at| self.recipes[*at].is_of(code)) {
            Some(at) => at,
            None => self.learn(pc, &code[..length], known),
        };
        self.recipes[at].compared = self.number;
        self.leads(last, at);
        at
    }

    fn leads(&mut self, last: Option<usize>, at: usize) {
        if let Some(recipe) = last.and_then(|last| self.recipes.get_mut(last)) {
            recipe.successor = at as u32;
        }
    }

    /// Makes an instruction ready; `known` is the recipe of what was there before.
    fn learn(&mut self, pc: u64, code: &[u8], known: Option<usize>) -> usize {
        if self.recipes.len() >= RECIPES_MAX {
            self.forget();
        }
        let recipe = match Recipe::of(pc, code, &mut self.processor) {
            Ok(recipe) => recipe,
            Err(Full) => {
                self.forget();
                Recipe::of(pc, code, &mut self.processor).unwrap_or_else(|Full| Recipe::refused(pc, code))
            }
        };
        match known.filter(|at| *at < self.recipes.len()) {
            Some(at) => {
                self.recipes[at] = recipe;
                at
            }
            None => {
                self.recipes.push(recipe);
                let at = self.recipes.len() - 1;
                self.by_pc.insert(pc, at as u32);
                at
            }
        }
    }

    fn forget(&mut self) {
        self.recipes.clear();
        self.by_pc.clear();
        self.processor.clear();
    }
}

/// What concerns the thread alone.
impl<F: Fetch> Thread<F> {
    /// Reads what an instruction will see in memory; its address.
    fn operand_in(
        &mut self,
        instruction: &Instruction,
        place: Option<Place>,
        access: Access,
        operand: &mut Operand,
    ) -> Result<u64, End> {
        let address = match place {
            Some(place) => place.address(&self.registers.general),
            None => self.address(instruction, access.operand)?,
        };
        let bytes = &mut operand.0[..access.bytes];
        // Masked loads may reach beyond what is mapped.
        let read = if access.is_read { self.memory.read(address, bytes) } else { Ok(()) };
        match read {
            Err(refused) if !access.is_partial => Err(refused.into()),
            _ => Ok(address),
        }
    }

    fn address(&self, instruction: &Instruction, operand: u32) -> Result<u64, End> {
        let value = |register: Register, _: usize, _: usize| match register {
            Register::FS => Some(self.fs),
            Register::GS => Some(self.gs),
            r if r.is_segment_register() => Some(0),
            r => self.value(r),
        };
        instruction.virtual_address(operand, 0, value).ok_or(End::Unknown)
    }

    /// The value of a general register or a part of it.
    fn value(&self, register: Register) -> Option<u64> {
        let full =
            *self.registers.general.get(register.full_register().number()).filter(|_| register.is_gpr())?;
        Some(match (register.size(), register) {
            (8, _) => full,
            (4, _) => full & 0xffff_ffff,
            (2, _) => full & 0xffff,
            (_, Register::AH | Register::CH | Register::DH | Register::BH) => full >> 8 & 0xff,
            _ => full & 0xff,
        })
    }

    /// Executes what is not [`Kind::Native`]; where it goes.
    fn control(
        &mut self,
        instruction: &Instruction,
        place: Option<Place>,
        kind: Kind,
        next: u64,
    ) -> Result<u64, End> {
        let target = instruction.near_branch_target();
        Ok(match kind {
            Kind::Nothing | Kind::Native(..) => next,
            Kind::Lea => {
                let slowly = || {
                    instruction.virtual_address(1, 0, |r, _, _| {
                        if r.is_segment_register() { Some(0) } else { self.value(r) }
                    })
                };
                let address = place.map(|place| place.address(&self.registers.general)).or_else(slowly);
                self.set(instruction.op0_register(), address.ok_or(End::Unknown)?);
                next
            }
            Kind::Jump => target,
            Kind::JumpTo => self.read_operand(instruction)?,
            Kind::Branch if holds(self.registers.flags, instruction.condition_code()) => target,
            Kind::Branch => next,
            Kind::Loop => {
                if self.loops(instruction) {
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
                let target = self.read_operand(instruction)?;
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
                let value = self.read_operand(instruction)?;
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
            Kind::SystemCall => return Err(End::SystemCall),
            Kind::Refused => return Err(End::Unknown),
        })
    }

    /// The first operand, of 8 bytes.
    fn read_operand(&mut self, instruction: &Instruction) -> Result<u64, End> {
        match instruction.op0_kind() {
            OpKind::Register => self.value(instruction.op0_register()).ok_or(End::Unknown),
            OpKind::Memory => {
                let address = self.address(instruction, 0)?;
                Ok(self.memory.read_word(address)?)
            }
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

    /// `loop` and its kin; `jrcxz` and `jecxz`.
    fn loops(&mut self, instruction: &Instruction) -> bool {
        let is_zero = self.registers.flags & ZERO != 0;
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

const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ADJUST: u64 = 1 << 4;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const DIRECTION: u64 = 1 << 10;
const OVERFLOW: u64 = 1 << 11;

fn holds(flags: u64, condition: ConditionCode) -> bool {
    let is = |flag: u64| flags & flag != 0;
    match condition {
        ConditionCode::o => is(OVERFLOW),
        ConditionCode::no => !is(OVERFLOW),
        ConditionCode::b => is(CARRY),
        ConditionCode::ae => !is(CARRY),
        ConditionCode::e => is(ZERO),
        ConditionCode::ne => !is(ZERO),
        ConditionCode::be => is(CARRY) || is(ZERO),
        ConditionCode::a => !is(CARRY) && !is(ZERO),
        ConditionCode::s => is(SIGN),
        ConditionCode::ns => !is(SIGN),
        ConditionCode::p => is(PARITY),
        ConditionCode::np => !is(PARITY),
        ConditionCode::l => is(SIGN) != is(OVERFLOW),
        ConditionCode::ge => is(SIGN) == is(OVERFLOW),
        ConditionCode::le => is(ZERO) || is(SIGN) != is(OVERFLOW),
        ConditionCode::g => !is(ZERO) && is(SIGN) == is(OVERFLOW),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
