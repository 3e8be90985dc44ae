//! Runs compiled blocks of a thread's code, one after the other.
//!
//! Enters: a thread, and how many steps to make. Leaves: the addresses of the instructions that it would execute, block by
//! block. Never here: how an instruction is compiled ([`super::translate`]), where code lies ([`crate::sys::native::area`]).
//!
//! A block is compiled when the thread first reaches it, and kept for the next threads. Before a thread runs, all pages with
//! compiled code are read again and compared; if it stands still for very few steps only ([`Stay::Short`]), after these. A thread that
//! writes to one of them ends its run there, once they were compared.

mod watch;

use std::io;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use rustc_hash::FxHashMap;
use watch::Watch;

use super::{
    CLOCK_EVERY, End, Interpreter, Note, RBP, RSP, Stay, Thread,
    memory::{Fetch, Memory, PAGE_BYTES, Page, Refused},
    moments::Moments,
    recent_pages::RecentPages,
    translate::{Compilable, Exit, MemoryAccess, Target, Translator},
};
use crate::{
    path::{PathCounter, Span},
    sys::native::area::{Area, Left, PASSES_MAX},
    x86::{INSTRUCTION_BYTES_MAX, Segment},
};

/// Most instructions of a block.
const BLOCK_STEPS_MAX: usize = 64;
/// Most blocks that are kept.
const BLOCKS_MAX: usize = 64 << 10;
/// Assumed number of steps in a block, when blocks are counted to make some steps.
const BLOCK_STEPS: usize = 8;
/// Most pages of code that are compared before a run.
const SOURCES_MAX: usize = 1024;
/// Number of pages that are copied at once while a thread runs, in some 30 µs.
const NEAR_AT_ONCE: usize = 64;
/// Number of blocks after which the clock is read.
const PASSES_TIMED: usize = 512;
/// Least number of blocks that run before they are looked at.
const PASSES_MIN: usize = 16;

/// A block: instructions that follow each other, of which only the last one may go elsewhere.
struct Block {
    span: Span,
    /// The addresses of its instructions.
    pcs: Box<[u64]>,
    /// The address of its code; `None` if its only instruction is interpreted.
    code: Option<u64>,
}

impl Block {
    fn interpreted(pc: u64) -> Block {
        Block { span: Span { first: pc, last: pc, steps: 1 }, pcs: [pc].into(), code: None }
    }
}

/// Compiled blocks and what they need.
pub struct Blocks {
    area: Area,
    translator: Translator,
    blocks: Vec<Block>,
    /// The number of the first block. Numbers are not used again.
    from: u32,
    by_pc: FxHashMap<u64, u32>,
    exits: Vec<Exit>,
    /// What code accesses, by its address.
    accesses: FxHashMap<u64, MemoryAccess>,
    /// The pages that compiled code came from, by number, and what was there.
    sources: FxHashMap<u64, Box<Page>>,
    passed: Vec<u32>,
    pages: RecentPages,
    /// Pages near them that are still to be copied, the nearest ones first; `None` before the first of them.
    near: Option<Vec<u64>>,
    /// Addresses at which a block begins and none goes on, in order: those of moments.
    cuts: Vec<u64>,
    /// Blocks whose registers are looked at before they begin.
    watched: Vec<Watch>,
    /// Number of other choices of registers to look at, in this run.
    choices: u32,
    /// Whether the code that was compiled was compared with that of this thread.
    is_compared: bool,
    /// Blocks of one instruction that is interpreted, whatever other block is at its address.
    single: FxHashMap<u64, u32>,
}

/// What is wanted of a run beside the sums.
struct Wanted<'w, 'm> {
    /// Receives the addresses of each block.
    note: Note<'w>,
    /// They are looked for, and the run is over when nothing more can be learned of them.
    moments: Option<&'w mut Moments<'m>>,
}

/// What is executed next.
#[derive(Clone, Copy)]
enum Next {
    /// The instruction at this address of the program.
    Pc(u64, Link),
    /// The block with this number.
    Block(u32),
    /// The code at this address of the area. It is within the block that was passed last.
    Code(u64),
    /// The instruction at this address of the program, whose registers are to be looked at.
    Look(u64),
}

/// A link is what shall lead to the next block directly from now on.
#[derive(Clone, Copy)]
enum Link {
    Nothing,
    /// The branch whose distance is at this address.
    Branch(u64),
    /// The table of indirect jumps.
    Jumps,
}

/// The run is over, before the instruction at an address. `None`: within or at the end of the block that was passed last, which does
/// not count then.
struct Over(End, Option<u64>);

impl Blocks {
    /// Returns an error where blocks cannot be compiled.
    pub fn new() -> io::Result<Blocks> {
        let area = Area::new()?;
        Ok(Blocks {
            translator: Translator::new(&area),
            area,
            blocks: Vec::new(),
            from: 0,
            by_pc: FxHashMap::default(),
            exits: Vec::new(),
            accesses: FxHashMap::default(),
            sources: FxHashMap::default(),
            passed: Vec::new(),
            pages: RecentPages::default(),
            near: None,
            cuts: Vec::new(),
            watched: Vec::new(),
            choices: 0,
            is_compared: false,
            single: FxHashMap::default(),
        })
    }

    /// Begins with another thread. Copies what it is likely to need, or to change if it goes on before it is emulated.
    pub fn begin<F: Fetch>(&mut self, thread: &mut Thread<F>, interpreter: &mut Interpreter, stay: Stay) {
        let pages = if stay == Stay::Whole { self.pages.accessed_last() } else { self.pages.all() };
        thread.memory.read_ahead(&pages);
        self.is_compared = false;
        if stay != Stay::Short {
            self.compare_sources(&mut thread.memory);
        }
        self.pages.begin();
        interpreter.begin();
    }

    /// Copies more of what the thread is likely to change, before it goes on.
    pub fn let_go<F: Fetch>(&mut self, thread: &mut Thread<F>) {
        let pointers = thread.registers.general.map(|pointer| pointer / PAGE_BYTES as u64);
        thread.memory.read_present(&self.pages.next(&pointers));
        self.near = None;
    }

    /// Copies a part of what the thread may change while it goes on already. Returns whether that was all.
    pub fn copy_near<F: Fetch>(&mut self, thread: &mut Thread<F>) -> bool {
        let near = self.near.get_or_insert_with(|| self.pages.near());
        thread.memory.read_present(&near[..near.len().min(NEAR_AT_ONCE)]);
        near.drain(..near.len().min(NEAR_AT_ONCE));
        near.is_empty()
    }

    /// Executes about `steps_max` instructions, and adds them to `counter`. Returns why it ended, and the address of the first
    /// instruction that does not count: the first one that was not executed, or that of its block. `note` receives the addresses of
    /// each block, if they are wanted. `interpreter` executes what cannot be compiled.
    pub fn run<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        interpreter: &mut Interpreter,
        steps_max: usize,
        counter: &mut PathCounter,
        note: Note,
        is_late: impl FnMut() -> bool,
    ) -> (End, u64) {
        let mut wanted = Wanted { note, moments: None };
        self.run_prepared(thread, interpreter, steps_max, counter, &mut wanted, is_late)
    }

    /// Executes at most `steps_max` instructions, and adds them to `counter`, until nothing more can be learned of `moments`. Returns why
    /// it ended.
    pub fn find<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        interpreter: &mut Interpreter,
        steps_max: usize,
        counter: &mut PathCounter,
        moments: &mut Moments,
        is_late: impl FnMut() -> bool,
    ) -> End {
        if !self.is_compared {
            self.compare_sources(&mut thread.memory);
        }
        self.cut(moments);
        self.watch(Some(moments));
        let mut wanted = Wanted { note: None, moments: Some(moments) };
        let (end, _) = self.run_prepared(thread, interpreter, steps_max, counter, &mut wanted, is_late);
        self.watch(None);
        self.cuts.clear();
        end
    }

    fn run_prepared<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        interpreter: &mut Interpreter,
        steps_max: usize,
        counter: &mut PathCounter,
        wanted: &mut Wanted,
        mut is_late: impl FnMut() -> bool,
    ) -> (End, u64) {
        let _stack = self.area.take_stack();
        self.area.set_segments(thread.fs, thread.gs);
        match thread.memory.close() {
            Some(base) if self.area.set_window(base).is_ok() => {}
            _ => return (End::TooMuchMemory, thread.pc),
        }
        self.area.registers().clone_from(&thread.registers);
        let from = self.from;
        let mut rounds = 0_usize;
        let mut next = Next::Pc(thread.pc, Link::Nothing);
        let Over(end, last) = loop {
            let passes =
                (steps_max.saturating_sub(counter.made()) / BLOCK_STEPS).clamp(PASSES_MIN, PASSES_MAX);
            next = match self.go(thread, interpreter, next, passes) {
                Ok(next) => next,
                Err(over) => break over,
            };
            rounds += 1;
            let is_long = self.passed.len() >= PASSES_TIMED;
            let pc = match next {
                Next::Pc(pc, _) => Some(pc),
                Next::Block(number) => Some(self.first(number)),
                Next::Look(pc) => Some(pc),
                Next::Code(_) => None,
            };
            if let Some(pc) = pc {
                self.note_passed(from, counter, &mut wanted.note);
                if let Some(moments) = &mut wanted.moments
                    && self.is_found(moments, next, thread.calls.made(), counter)
                {
                    break Over(End::Complete, Some(pc));
                }
            }
            match pc {
                Some(pc) if counter.made() >= steps_max => break Over(End::Complete, Some(pc)),
                pc if (is_long || rounds.is_multiple_of(CLOCK_EVERY)) && is_late() => {
                    break Over(End::Late, pc);
                }
                _ => {}
            }
        };
        let unfinished = if last.is_none() { self.passed.pop() } else { None };
        self.note_passed(from, counter, &mut wanted.note);
        (*thread.registers).clone_from(self.area.registers());
        // Those that only interpreted instructions accessed were not noted yet.
        thread.memory.accessed().for_each(|(page, is_written)| self.pages.note(page, is_written));
        let last = last.or(unfinished.map(|number| self.first(number))).unwrap_or(thread.pc);
        thread.pc = last;
        (end, last)
    }

    /// Adds the passed blocks. `from` was the number of the first block when the thread began.
    fn note_passed(&mut self, from: u32, counter: &mut PathCounter, note: &mut Note) {
        let mut passed = std::mem::take(&mut self.passed);
        for number in passed.drain(..) {
            counter.pass(number - from, || self.block(number).span);
            if let Some(note) = note {
                note(&self.block(number).pcs);
            }
        }
        self.passed = passed;
    }

    fn block(&self, number: u32) -> &Block {
        &self.blocks[(number - self.from) as usize]
    }

    /// Returns the address of a block.
    fn first(&self, number: u32) -> u64 {
        self.block(number).span.first
    }

    /// Executes one block or more.
    fn go<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        interpreter: &mut Interpreter,
        next: Next,
        passes: usize,
    ) -> Result<Next, Over> {
        let code = match next {
            Next::Pc(pc, link) => return Ok(Next::Block(self.linked(thread, pc, link))),
            Next::Code(code) => code,
            Next::Look(pc) => {
                let number = self.single_at(pc);
                return self.interpret_block(thread, interpreter, number);
            }
            Next::Block(number) => match self.block(number).code {
                Some(code) => code,
                None if self.is_watched(self.first(number)) => return Ok(Next::Look(self.first(number))),
                None => return self.interpret_block(thread, interpreter, number),
            },
        };
        match self.area.run(code, passes, &mut self.passed) {
            Left::Fault => Err(Over(End::Fault, None)),
            Left::Access { at, distance } => {
                let Some(access) = self.accesses.get(&at).copied() else {
                    return Err(Over(End::Fault, None));
                };
                self.permit(thread, access, distance)?;
                Ok(Next::Code(at))
            }
            Left::Full(number) => Ok(Next::Block(number)),
            Left::By(exit) => match self.exits[exit as usize] {
                Exit::Interpret { pc } => Ok(Next::Pc(pc, Link::Nothing)),
                Exit::Indirect => Ok(Next::Pc(self.area.pc(), Link::Jumps)),
                Exit::To { pc, patch } => Ok(Next::Pc(pc, Link::Branch(patch))),
                Exit::Look { pc } => Ok(Next::Look(pc)),
            },
        }
    }

    /// Executes a block of one instruction that is not compiled.
    fn interpret_block<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        interpreter: &mut Interpreter,
        number: u32,
    ) -> Result<Next, Over> {
        let pc = self.first(number);
        if let Err(end) = self.interpret(thread, interpreter, pc) {
            // Perhaps its code could not be read.
            self.by_pc.remove(&pc);
            return Err(Over(end, Some(pc)));
        }
        self.passed.push(number);
        self.has_kept_code(thread)?;
        Ok(Next::Pc(thread.pc, Link::Nothing))
    }

    /// Returns the number of a block of the instruction at an address, which is interpreted.
    fn single_at(&mut self, pc: u64) -> u32 {
        let new = self.from + self.blocks.len() as u32;
        let number = *self.single.entry(pc).or_insert(new);
        if number == new {
            self.blocks.push(Block::interpreted(pc));
        }
        number
    }

    /// Returns the number of the block at an address, after making the link to it.
    fn linked<F: Fetch>(&mut self, thread: &mut Thread<F>, pc: u64, link: Link) -> u32 {
        let from = self.from;
        let number = self.block_at(thread, pc);
        // If all blocks were forgotten, so was the branch.
        let is_kept = self.from == from;
        if let Some(code) = self.block(number).code.filter(|_| is_kept) {
            match link {
                Link::Nothing => {}
                Link::Branch(patch) => self.area.patch(patch, code),
                Link::Jumps => self.area.add_block(pc, code),
            }
        }
        number
    }

    /// Lets code access the page at a distance from the beginning of the window.
    fn permit<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        MemoryAccess { pc, target, access, .. }: MemoryAccess,
        distance: u64,
    ) -> Result<(), Over> {
        let first = self.address(thread, pc, target);
        // An operand may be on two pages. What compiled code addresses has the lower half of the program's address.
        let beyond = (distance as u32).wrapping_sub(first as u32);
        if beyond as usize >= access.bytes.max(1) {
            return Err(Over(End::Fault, None));
        }
        let address = first.wrapping_add(beyond.into());
        let number = address / PAGE_BYTES as u64;
        let is_written = access.is_written || self.pages.was_written(number);
        let refused = |refused: Refused| Over(refused.into(), None);
        let is_permitted = thread.memory.permit(address, is_written).map_err(refused)?;
        self.pages.note(number, is_written);
        if is_permitted { Ok(()) } else { Err(Over(End::Unknown, None)) }
    }

    /// Returns the address that an instruction accesses.
    fn address<F>(&mut self, thread: &Thread<F>, pc: u64, target: Target) -> u64 {
        let general = &self.area.registers().general;
        match target {
            Target::Stack(distance) => general[RSP].wrapping_add_signed(distance),
            Target::Frame => general[RBP],
            Target::Operand(operand) => {
                let segment = match operand.segment {
                    Segment::Flat => 0,
                    Segment::Fs => thread.fs,
                    Segment::Gs => thread.gs,
                };
                segment
                    .wrapping_add(operand.effective_address(pc, |number| general[usize::from(number & 15)]))
            }
        }
    }

    /// Executes one instruction without its block.
    fn interpret<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        interpreter: &mut Interpreter,
        pc: u64,
    ) -> Result<(), End> {
        interpreter.one(thread, pc, self.area.registers())
    }

    /// Fails after a write near code.
    fn has_kept_code<F: Fetch>(&mut self, thread: &Thread<F>) -> Result<(), Over> {
        if thread.memory.code_writes() == 0 { Ok(()) } else { Err(Over(End::Unknown, None)) }
    }

    /// Returns the number of the block at an address.
    fn block_at<F: Fetch>(&mut self, thread: &mut Thread<F>, pc: u64) -> u32 {
        if let Some(number) = self.by_pc.get(&pc) {
            return *number;
        }
        let is_known = self.blocks.len() < BLOCKS_MAX;
        let made = if is_known { self.compiled(&mut thread.memory, pc) } else { None };
        let block = made.unwrap_or_else(|| {
            self.forget();
            let made = self.compiled(&mut thread.memory, pc);
            made.unwrap_or_else(|| Block::interpreted(pc))
        });
        let number = self.from + self.blocks.len() as u32;
        let code = block.code;
        self.by_pc.insert(pc, number);
        self.blocks.push(block);
        self.watch_block(pc, code);
        number
    }

    /// Compiles the block at an address. Returns `None` if there is no room for it.
    fn compiled<F: Fetch>(&mut self, memory: &mut Memory<F>, pc: u64) -> Option<Block> {
        let (instructions, then_interpret) = self.decoded(memory, pc);
        let Some(last) = instructions.last() else { return Some(Block::interpreted(pc)) };
        let number = self.from + self.blocks.len() as u32;
        let (at, exits) = (self.area.next(), &mut self.exits);
        let Some(code) = self.translator.block(at, number, &instructions, then_interpret, exits) else {
            return Some(Block::interpreted(pc));
        };
        self.accesses.extend(code.accesses.iter().map(|access| (access.at, *access)));
        let code = self.area.append(&code.bytes)?;
        let span = Span { first: pc, last: last.instruction.ip(), steps: instructions.len() as u8 };
        let pcs = instructions.iter().map(|each| each.instruction.ip()).collect();
        Some(Block { span, pcs, code: Some(code) })
    }

    /// Returns the instructions of the block at an address, and whether the one after them must be interpreted.
    fn decoded<F: Fetch>(&mut self, memory: &mut Memory<F>, pc: u64) -> (Vec<Compilable>, bool) {
        let mut instructions = Vec::new();
        let mut at = pc;
        while instructions.len() < BLOCK_STEPS_MAX {
            if at != pc && self.cuts.binary_search(&at).is_ok() {
                break;
            }
            let mut code = [0; INSTRUCTION_BYTES_MAX];
            let length = memory.read_some(at, &mut code);
            let instruction = Decoder::with_ip(64, &code[..length], at, DecoderOptions::NONE).decode();
            let (next, is_last) = (instruction.next_ip(), instruction.flow_control() != FlowControl::Next);
            self.keep_source(memory, at);
            self.keep_source(memory, next.wrapping_sub(1));
            let Some(compilable) = self.translator.compilable(instruction) else {
                return (instructions, true);
            };
            at = next;
            instructions.push(compilable);
            if is_last {
                break;
            }
        }
        (instructions, false)
    }

    /// Remembers the page that code came from.
    fn keep_source<F: Fetch>(&mut self, memory: &mut Memory<F>, address: u64) {
        let number = address / PAGE_BYTES as u64;
        if !self.sources.contains_key(&number)
            && let Some(page) = memory.code_page(number)
        {
            self.sources.insert(number, Box::new(page.clone()));
        }
    }

    /// Forgets all blocks unless their code is still there.
    fn compare_sources<F: Fetch>(&mut self, memory: &mut Memory<F>) {
        if self.sources.len() > SOURCES_MAX {
            self.forget();
        }
        let mut numbers: Vec<u64> = self.sources.keys().copied().collect();
        numbers.sort_unstable();
        memory.read_ahead(&numbers);
        let is_same =
            |number: &u64| memory.code_page(*number).is_some_and(|page| self.sources[number].0 == page.0);
        if !numbers.iter().all(is_same) {
            memory.forget_code();
            self.forget();
        }
        self.is_compared = true;
    }

    fn forget(&mut self) {
        self.from += self.blocks.len() as u32;
        self.blocks.clear();
        self.by_pc.clear();
        self.exits.clear();
        self.accesses.clear();
        self.sources.clear();
        self.single.clear();
        self.watched.iter_mut().for_each(Watch::forget);
        self.area.forget_blocks();
    }
}
