//! Runs compiled blocks of a thread's code, one after the other.
//!
//! Enters: a thread, and how many steps to make. Leaves: the path that it would take, added up ([`counts`]). Never here: how an
//! instruction is compiled ([`super::translate`]), where code lies ([`crate::sys::native::area`]).
//!
//! A block is compiled when the thread first reaches it, and kept for the next threads. Before a thread runs, all pages with
//! compiled code are read again and compared; if it stands still for very few steps only ([`Stay::Short`]), after these. A thread that
//! writes to one of them ends its run there, once they were compared.

mod compile;
mod counts;
mod watch;

use std::io;

use counts::Counts;
use rustc_hash::FxHashMap;
use watch::Watch;

use super::{
    CLOCK_EVERY, End, Interpreter, Note, RBP, RSP, Stay, Thread,
    memory::{Fetch, PAGE_BYTES, Page},
    moments::Moments,
    recent_pages::RecentPages,
    translate::{Exit, MemoryAccess, Target, Translator, Ways},
};
use crate::{
    path::{Path, Span},
    sys::native::area::{Area, Left},
    x86::Segment,
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
/// Least and greatest number of loops and indirect jumps that run before they are looked at.
const TURNS_MIN: usize = 16;
const TURNS_MAX: usize = 64 << 10;
/// Number of parts of the beginning of a path after which it is noted what was counted.
const PARTS: usize = 8;

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
    ways: Ways,
    /// The addresses at which the code of blocks begins, in order, with the blocks' numbers.
    starts: Vec<(u64, u32)>,
    /// The accesses of compiled code to memory, by the address of that code.
    accesses: FxHashMap<u64, MemoryAccess>,
    /// The pages that compiled code came from, by number, and what was there.
    sources: FxHashMap<u64, Box<Page>>,
    jumps: Vec<[u64; 2]>,
    counts: Counts,
    /// Number of loops and indirect jumps before the steps are counted again.
    turns: usize,
    /// Whether each block is left, so that it can be noted.
    is_noting: bool,
    pages: RecentPages,
    /// Pages near them that are still to be copied while the thread goes on, the nearest ones first; `None` before the first of them.
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
    /// The path counts after so many steps.
    before: usize,
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
    /// The code at this address of the area, within a block.
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

/// The run is over. The instruction at the address is the first one that does not count.
struct Over(End, u64);

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
            ways: Ways::default(),
            starts: Vec::new(),
            accesses: FxHashMap::default(),
            sources: FxHashMap::default(),
            jumps: Vec::new(),
            counts: Counts::default(),
            turns: 0,
            is_noting: false,
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
        match stay {
            Stay::Whole => thread.memory.read_ahead(&self.pages.accessed_last()),
            Stay::Short => thread.memory.read_ahead(&self.pages.all()),
            Stay::Copied => {}
        }
        self.is_compared = stay == Stay::Whole;
        if self.is_compared {
            self.compare_sources(&mut thread.memory);
        }
        self.near = None;
        self.pages.begin();
        interpreter.begin();
    }

    /// Copies more of what the thread is likely to change, before it goes on.
    pub fn let_go<F: Fetch>(&mut self, thread: &mut Thread<F>) {
        thread.memory.accessed().for_each(|(page, is_written)| self.pages.note(page, is_written));
        let pointers = thread.registers.general.map(|pointer| pointer / PAGE_BYTES as u64);
        thread.memory.read_present(&self.pages.next(&pointers));
        self.near = None;
    }

    /// Copies a part of what the thread may change or give back while it goes on already. Returns whether that was all for now: a file that
    /// it has mapped (`mapped`: pages) comes to memory as it reads it.
    pub fn copy_near<F: Fetch>(&mut self, thread: &mut Thread<F>, mapped: &[u64]) -> bool {
        if self.near.as_ref().is_none_or(Vec::is_empty) {
            thread.memory.read_present(mapped);
            thread.memory.read_present(&self.pages.all());
        }
        let near = self.near.get_or_insert_with(|| self.pages.near());
        thread.memory.read_present(&near[..near.len().min(NEAR_AT_ONCE)]);
        near.drain(..near.len().min(NEAR_AT_ONCE));
        near.is_empty()
    }

    /// Executes about `steps_max` instructions, of which the first `before` do not count. Returns why it ended, and the address of the
    /// first instruction that does not count: the first one that was not executed, or that of its block. `note` receives the addresses of
    /// each block, if they are wanted. `interpreter` executes what cannot be compiled.
    pub fn run<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        interpreter: &mut Interpreter,
        (steps_max, before): (usize, usize),
        note: Note,
        is_late: impl FnMut() -> bool,
    ) -> (End, u64) {
        self.is_noting = note.is_some();
        if self.is_noting {
            self.forget();
        }
        let mut wanted = Wanted { note, before, moments: None };
        let ended = self.run_prepared(thread, interpreter, steps_max, &mut wanted, is_late);
        self.is_noting = false;
        ended
    }

    /// Executes at most `steps_max` instructions, until nothing more can be learned of `moments`. Returns why it ended.
    pub fn find<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        interpreter: &mut Interpreter,
        steps_max: usize,
        moments: &mut Moments,
        is_late: impl FnMut() -> bool,
    ) -> End {
        if !self.is_compared {
            self.compare_sources(&mut thread.memory);
        }
        self.cut(moments);
        self.watch(Some(moments));
        let mut wanted = Wanted { note: None, before: 0, moments: Some(moments) };
        let (end, _) = self.run_prepared(thread, interpreter, steps_max, &mut wanted, is_late);
        self.watch(None);
        self.cuts.clear();
        end
    }

    /// Returns the number of instructions that the last thread made in its last run.
    pub fn made(&mut self) -> usize {
        self.counts.made(self.area.edges(), &self.ways.edges)
    }

    /// Returns the path of the last run so far, with its beginning. Its last step leads to the instruction at `end`.
    fn path(&mut self, end: u64) -> Path {
        self.counts.path(self.area.edges(), &self.ways.edges, end)
    }

    /// Returns the part of the path of the last run that counts. Its last step leads to the instruction at `end`.
    pub fn path_to(&mut self, end: u64) -> Path {
        let path = self.path(end);
        self.counts.without_beginning(path)
    }

    fn run_prepared<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        interpreter: &mut Interpreter,
        steps_max: usize,
        wanted: &mut Wanted,
        mut is_late: impl FnMut() -> bool,
    ) -> (End, u64) {
        let _stack = self.area.take_stack();
        self.area.set_segments(thread.fs, thread.gs);
        self.area.edges()[..self.ways.edges.len()].fill(0);
        self.counts = Counts::new(thread.pc, wanted.before);
        match thread.memory.close() {
            Some(base) if self.area.set_window(base).is_ok() => {}
            _ => return (End::TooMuchMemory, thread.pc),
        }
        self.area.registers().clone_from(&thread.registers);
        let (mut rounds, mut made) = (0_usize, 0);
        let mut next = Next::Pc(thread.pc, Link::Nothing);
        let mut noted = None;
        self.turns = 0;
        let Over(end, last) = loop {
            let steps = match (&wanted.moments, wanted.before) {
                (Some(moments), _) => moments.steps_left(made),
                (None, before) if made < 2 * before => before / PARTS,
                _ => steps_max.saturating_sub(made),
            };
            if self.turns == 0 {
                self.turns = (steps / BLOCK_STEPS).clamp(TURNS_MIN, TURNS_MAX);
            }
            next = match self.go(thread, interpreter, next) {
                Ok(next) => next,
                Err(over) => break over,
            };
            rounds += 1;
            let is_long = self.turns == 0 || self.is_noting || rounds.is_multiple_of(CLOCK_EVERY);
            let pc = match next {
                Next::Pc(pc, _) | Next::Look(pc) => pc,
                Next::Block(number) => self.first(number),
                Next::Code(code) if is_long && is_late() => break Over(End::Late, self.first_of(code)),
                // Within a block nothing is decided.
                Next::Code(_) => {
                    self.turns = self.turns.max(1);
                    continue;
                }
            };
            if let (Some(number), Some(note)) = (noted.take(), &mut wanted.note) {
                note(&self.block(number).pcs);
            }
            if let Next::Block(number) = next {
                noted = Some(number);
            }
            if let Some(moments) = &mut wanted.moments {
                let found = self.look(moments, next, thread.calls.made(), is_long);
                if let Some(found) = found {
                    // Other moments are awaited, after other steps.
                    (made, self.turns) = (found, 0);
                }
                if found.is_some_and(|made| moments.is_over(made)) {
                    break Over(End::Complete, pc);
                }
            }
            if is_long {
                (made, self.turns) = (self.made(), 0);
                if made < 2 * wanted.before {
                    let path = self.path(pc);
                    self.counts.note_beginning(path);
                }
                if made >= steps_max {
                    break Over(End::Complete, pc);
                }
                if is_late() {
                    break Over(End::Late, pc);
                }
            }
        };
        (*thread.registers).clone_from(self.area.registers());
        // Those that only interpreted instructions accessed were not noted yet.
        thread.memory.accessed().for_each(|(page, is_written)| self.pages.note(page, is_written));
        thread.pc = last;
        (end, last)
    }

    /// Adds the indirect jumps of the code that was left.
    fn add_jumps(&mut self) {
        let mut jumps = std::mem::take(&mut self.jumps);
        for [to, number] in jumps.drain(..) {
            let span = self.block(number as u32).span;
            self.counts.add(span.last, to, span.steps);
        }
        self.jumps = jumps;
    }

    /// Returns the address of the block whose code contains an address of the area.
    fn first_of(&self, code: u64) -> u64 {
        let after = self.starts.partition_point(|start| start.0 <= code);
        after.checked_sub(1).map_or(0, |at| self.first(self.starts[at].1))
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
        let left = self.area.run(code, self.turns, &mut self.jumps);
        self.turns = self.turns.min(self.area.turns_left()).saturating_sub(self.jumps.len());
        self.add_jumps();
        match left {
            Left::Fault(at) => Err(Over(End::Fault, self.first_of(at))),
            Left::Access { at, distance } => {
                let end = match self.accesses.get(&at).copied() {
                    Some(access) => self.permit(thread, access, distance).err(),
                    None => Some(End::Fault),
                };
                end.map_or(Ok(Next::Code(at)), |end| Err(Over(end, self.first_of(at))))
            }
            Left::Full(code) => {
                self.turns = 0;
                Ok(Next::Code(code))
            }
            Left::By(exit) => Ok(match self.ways.exits[exit as usize] {
                Exit::Interpret { pc } => Next::Pc(pc, Link::Nothing),
                Exit::Indirect => Next::Pc(self.area.pc(), Link::Jumps),
                Exit::To { pc, patch } => Next::Pc(pc, Link::Branch(patch)),
                Exit::Look { pc } => Next::Look(pc),
                Exit::Turns { pc } => Next::Pc(pc, Link::Nothing),
            }),
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
        if let Err(end) = interpreter.one(thread, pc, self.area.registers()) {
            // Perhaps its code could not be read.
            self.by_pc.remove(&pc);
            return Err(Over(end, pc));
        }
        if thread.memory.code_writes() > 0 {
            return Err(Over(End::Unknown, pc));
        }
        self.counts.add(pc, thread.pc, 1);
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
        if let Some(code) = self.block(number).code.filter(|_| is_kept && !self.is_noting) {
            match link {
                Link::Nothing => {}
                Link::Branch(patch) => self.area.patch(patch, code),
                Link::Jumps => self.area.add_block(pc, code),
            }
        }
        number
    }

    /// Lets code access the page at a distance from the beginning of the window. Fails if that is the end of the run.
    fn permit<F: Fetch>(
        &mut self,
        thread: &mut Thread<F>,
        MemoryAccess { pc, target, access, .. }: MemoryAccess,
        distance: u64,
    ) -> Result<(), End> {
        let first = self.address(thread, pc, target);
        // An operand may be on two pages. What compiled code addresses has the lower half of the program's address.
        let beyond = (distance as u32).wrapping_sub(first as u32);
        if beyond as usize >= access.bytes.max(1) {
            return Err(End::Fault);
        }
        let address = first.wrapping_add(beyond.into());
        let number = address / PAGE_BYTES as u64;
        let is_written = access.is_written || self.pages.was_written(number);
        let is_permitted = thread.memory.permit(address, is_written)?;
        self.pages.note(number, is_written);
        if is_permitted { Ok(()) } else { Err(End::Unknown) }
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
}
