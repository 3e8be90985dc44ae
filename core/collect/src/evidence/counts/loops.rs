//! Loops around an instruction, and the registers that count how often an instruction in them is executed (x86-64).
//!
//! Enters: a way to read code at offsets of an image, and the offset of an instruction. Leaves: the [`Loops`] around it, with their
//! [`Counter`]s. Never here: samples, processes, symbols, I/O.
//!
//! Direct control flow is explored from the instruction, within bounds. Code that leads back to it is a loop. A register
//! is a counter of instruction W within a part of the loop, the counter's *body*, if W adds a constant to it and nothing
//! else in the body writes it: as long as a thread stays in the body, the register's change over the constant is the
//! exact number of executions of W. The body is the strongly connected component of W after all other blocks that write
//! the register were removed, so that neither loop headers nor dominators are needed, and W may be conditional. Unknown
//! code (the targets of indirect jumps, code beyond the bounds) is outside of the body: control leaves a body through one
//! of its *exits*, which can be watched. A call returns, and may change the registers that the System V ABI lets it
//! change. Cost: O(instructions) to explore, O(blocks) for each counter.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    ops::Range,
};

use rustc_hash::{FxHashMap, FxHashSet};

mod decode;

pub use decode::InstructionDecoder;

use crate::{
    registers::{Registers, position},
    x86::INSTRUCTION_BYTES_MAX,
};

/// Number of instructions that are explored.
const INSTRUCTIONS_MAX: usize = 4096;
/// Number of counters of one instruction.
const COUNTERS_MAX: usize = 24;
/// Number of blocks that may add to one register in one body.
const WRITERS_MAX: usize = 8;
/// Number of bytes of code that are read at a time.
const PIECE_BYTES: usize = 1024;

/// A general register, identified by its position in [`Registers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register(u8);

impl Register {
    /// The stack pointer.
    pub const RSP: Register = Register(7);

    /// Returns the register with this hardware number (see [`crate::x86`]).
    pub fn of_number(number: usize) -> Option<Register> {
        (number < 16).then(|| Register(position(number as u8) as u8))
    }

    /// Returns its value in a sample.
    pub fn value(self, registers: &Registers) -> u64 {
        registers.0.get(usize::from(self.0)).copied().unwrap_or(0)
    }
}

/// A set of general registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterSet(u32);

impl RegisterSet {
    /// Returns the registers that a called function need not preserve (System V ABI).
    pub fn clobbered_by_calls() -> Self {
        [0, 1, 2, 6, 7, 8, 9, 10, 11].into_iter().filter_map(Register::of_number).collect()
    }

    /// Returns all general registers.
    pub fn all() -> Self {
        (0..16).filter_map(Register::of_number).collect()
    }

    /// Whether the set contains the register.
    pub fn contains(self, register: Register) -> bool {
        self.0 >> register.0 & 1 == 1
    }

    /// Returns the union of both sets.
    pub fn union(self, other: Self) -> Self {
        RegisterSet(self.0 | other.0)
    }

    /// Returns the registers that are in both sets.
    pub fn intersection(self, other: Self) -> Self {
        RegisterSet(self.0 & other.0)
    }

    /// Whether the set contains no register.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the registers that are in this set and not in the other.
    pub fn without(self, other: Self) -> Self {
        RegisterSet(self.0 & !other.0)
    }

    /// Returns the registers, in the order of samples.
    pub fn iter(self) -> impl Iterator<Item = Register> {
        (0..32).map(Register).filter(move |register| self.contains(*register))
    }
}

impl FromIterator<Register> for RegisterSet {
    fn from_iter<T: IntoIterator<Item = Register>>(registers: T) -> Self {
        RegisterSet(registers.into_iter().fold(0, |set, register| set | 1 << register.0))
    }
}

/// What one execution adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A constant, which is never 0.
    Constant(i64),
    /// The value of a register that the body does not write.
    Register(Register),
    /// The negated value of such a register.
    Negated(Register),
}

/// A register that counts executions of an instruction while a thread stays in `body`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The offset of the instruction whose executions are counted: the first that adds to the register.
    pub writer: u64,
    /// The register.
    pub register: Register,
    /// The change of the register from one execution of `writer` to the next.
    pub step: Step,
    /// Number of instructions that together add the step. With more than one, a number of executions is exact to ±1.
    pub parts: u32,
    /// Number of bits of the register that the additions write: 32 or 64. Additions of 32 bits clear the others.
    pub width_bits: u32,
    /// The ranges of offsets of the body's blocks, ascending.
    pub body: Vec<Range<u64>>,
    /// The offsets that control reaches when it leaves the body, ascending.
    pub exits: Vec<u64>,
    /// The registers that nothing in the body writes.
    pub invariants: RegisterSet,
    /// Whether the body calls functions.
    pub has_calls: bool,
    /// The fewest instructions from one execution of `writer` to the next. A comparison and its branch count as one.
    pub instructions_min: u32,
}

impl Counter {
    /// Whether the instruction at this offset is in the body.
    pub fn holds(&self, offset: u64) -> bool {
        holds(&self.body, offset)
    }
}

/// All loops through one instruction, and hence through each instruction that can be reached from it and leads back to it.
#[derive(Debug, Default)]
pub struct Loops {
    /// The ranges of offsets of their blocks, ascending.
    body: Vec<Range<u64>>,
    /// Their counters, sorted by writer and register.
    counters: Vec<Counter>,
    /// Whether the bounds of exploration left nothing out and no instructions overlap: then the loops look the same from each
    /// instruction in them.
    is_complete: bool,
}

impl Loops {
    /// Explores the code around the instruction at `start`. `read` fills a buffer with bytes of code from an offset on and returns
    /// their number.
    pub fn explore(start: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> usize) -> Loops {
        let graph = Graph::explore(start, read);
        let Some(at) = graph.block_of(start) else { return Loops::default() };
        let around = graph.connected(at, &|_| true);
        if around.is_empty() {
            return Loops::default();
        }
        let registers = RegisterSet::all().iter().filter(|register| *register != Register::RSP);
        let mut counters: Vec<Counter> =
            registers.flat_map(|register| graph.counters_of(register, &around)).collect();
        counters.sort_by_key(|counter| (counter.writer, counter.register));
        debug_assert!(counters.iter().all(verify_counter));
        let body = around.iter().map(|block| graph.blocks[*block].range.clone()).collect();
        Loops { body, counters, is_complete: graph.is_complete }
    }

    /// Returns the counters whose bodies contain the instruction at this offset.
    pub fn counters_at(&self, offset: u64) -> impl Iterator<Item = &Counter> {
        self.counters.iter().filter(move |counter| counter.holds(offset)).take(COUNTERS_MAX)
    }

    /// Whether these are the loops of the instruction at this offset too, as exploring from there would show.
    pub fn are_those_of(&self, offset: u64) -> bool {
        self.is_complete && holds(&self.body, offset)
    }
}

/// Whether one of the ascending blocks contains the offset.
fn holds(blocks: &[Range<u64>], offset: u64) -> bool {
    let after = blocks.partition_point(|block| block.start <= offset);
    after.checked_sub(1).is_some_and(|at| blocks[at].contains(&offset))
}

/// Checks the properties of a counter.
fn verify_counter(counter: &Counter) -> bool {
    let ascends = counter.body.is_sorted_by(|a, b| a.start < b.start);
    let counts = !counter.invariants.contains(counter.register) && counter.step != Step::Constant(0);
    let leaves = counter.exits.iter().all(|exit| !counter.holds(*exit));
    ascends && counts && leaves && counter.holds(counter.writer)
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To a function, and then to the next instruction.
    Call,
    /// To this offset.
    Jump(u64),
    /// To this offset or to the next instruction.
    Branch(u64),
    /// Elsewhere: the instruction returns, jumps indirectly, or stops.
    End,
}

/// An addition to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add {
    /// The register.
    pub register: Register,
    /// What is added.
    pub step: Step,
    /// Number of bits that are written: 32, which clears the others, or 64.
    pub width_bits: u32,
}

/// The properties of an instruction that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The offset after it.
    pub next: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Where control goes.
    pub flow: Flow,
    /// The general registers that it may write; for a call those that the function may write.
    pub writes: RegisterSet,
    /// The addition that it is, if it is one.
    pub add: Option<Add>,
}

/// A basic block.
struct Block {
    range: Range<u64>,
    /// Number of instructions. A comparison and its branch count as one.
    instructions: u32,
    /// Indices of the successors.
    next: Vec<usize>,
    /// Indices of the predecessors.
    previous: Vec<usize>,
    /// Offsets of successors that were not explored.
    beyond: Vec<u64>,
    writes: RegisterSet,
    /// Additions to registers, in order.
    adds: Vec<(u64, Add)>,
    /// Registers that are written in other ways.
    overwrites: RegisterSet,
    has_call: bool,
}

/// The explored blocks, ascending.
struct Graph {
    blocks: Vec<Block>,
    /// Whether the bounds left nothing out and no blocks overlap.
    is_complete: bool,
}

impl Graph {
    fn explore(start: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> usize) -> Graph {
        let mut code = Code { read, pieces: FxHashMap::default() };
        let mut found: FxHashMap<u64, Instruction> = FxHashMap::default();
        let mut leaders: FxHashSet<u64> = FxHashSet::default();
        let mut left = VecDeque::from([start]);
        let mut decoder = InstructionDecoder::default();
        while let Some(mut at) = left.pop_front() {
            // The nearest code is explored first, so that a loop is complete long before the code after it.
            while found.len() < INSTRUCTIONS_MAX && !found.contains_key(&at) {
                let Some(instruction) = decoder.decode(&code.bytes(at), at) else { break };
                let (flow, next) = (instruction.flow, instruction.next);
                found.insert(at, instruction);
                match flow {
                    Flow::Next | Flow::Call => at = next,
                    Flow::Branch(target) => {
                        leaders.extend([target, next]);
                        left.extend([target, next]);
                        break;
                    }
                    Flow::Jump(target) => {
                        leaders.insert(target);
                        left.push_back(target);
                        break;
                    }
                    Flow::End => break,
                }
            }
        }
        let mut instructions: Vec<(u64, Instruction)> = found.into_iter().collect();
        instructions.sort_unstable_by_key(|(at, _)| *at);
        let blocks = blocks(&instructions, &leaders);
        let overlap = blocks.iter().zip(blocks.iter().skip(1)).any(|(a, b)| a.range.end > b.range.start);
        Graph { is_complete: instructions.len() < INSTRUCTIONS_MAX && !overlap, blocks }
    }

    /// Returns the index of the block that contains an instruction.
    fn block_of(&self, offset: u64) -> Option<usize> {
        self.blocks.iter().position(|block| block.range.contains(&offset))
    }

    /// Returns the strongly connected component of block `at` among the allowed blocks; empty if it is not on a cycle.
    fn connected(&self, at: usize, allowed: &dyn Fn(usize) -> bool) -> Vec<usize> {
        if !allowed(at) {
            return Vec::new();
        }
        let forward = self.reached(at, allowed, |block| &block.next);
        if !forward[at] {
            return Vec::new();
        }
        let backward = self.reached(at, &|block| forward[block], |block| &block.previous);
        (0..self.blocks.len()).filter(|block| backward[*block]).collect()
    }

    /// Returns which of the allowed blocks are reached from a block by at least one step.
    fn reached(
        &self,
        start: usize,
        allowed: &dyn Fn(usize) -> bool,
        next: impl Fn(&Block) -> &[usize],
    ) -> Vec<bool> {
        let mut seen = vec![false; self.blocks.len()];
        let mut left = vec![start];
        while let Some(block) = left.pop() {
            for to in next(&self.blocks[block]) {
                if allowed(*to) && !std::mem::replace(&mut seen[*to], true) {
                    left.push(*to);
                }
            }
        }
        seen
    }

    /// Returns the counters in this register of instructions of the blocks `around`.
    fn counters_of(&self, register: Register, around: &[usize]) -> Vec<Counter> {
        let writes = |block: usize| self.blocks[block].writes.contains(register);
        let adds = |block: usize| writes(block) && !self.blocks[block].overwrites.contains(register);
        let inside = |block: usize| around.binary_search(&block).is_ok();
        let mut counters = Vec::new();
        let mut done: Vec<usize> = Vec::new();
        for writer in around.iter().copied().filter(|block| adds(*block)) {
            if done.contains(&writer) || done.len() >= WRITERS_MAX {
                continue;
            }
            let body = self.connected(writer, &|block| inside(block) && (adds(block) || !writes(block)));
            let others: Vec<usize> = body.iter().copied().filter(|b| adds(*b) && *b != writer).collect();
            done.push(writer);
            if others.is_empty() {
                counters.extend(self.counter(register, &[writer], body));
            } else if self.alternate(writer, &others, &body) {
                done.extend(&others);
                let all: Vec<usize> = std::iter::once(writer).chain(others).collect();
                counters.extend(self.counter(register, &all, body));
            } else {
                let alone = |block: usize| inside(block) && (block == writer || !writes(block));
                counters.extend(self.counter(register, &[writer], self.connected(writer, &alone)));
            }
        }
        counters
    }

    /// Whether between two executions of any of these blocks there is one of each other.
    fn alternate(&self, first: usize, others: &[usize], body: &[usize]) -> bool {
        let all: Vec<usize> = std::iter::once(first).chain(others.iter().copied()).collect();
        all.len() <= WRITERS_MAX
            && all.iter().all(|out| {
                let left = |block: usize| block != *out && body.binary_search(&block).is_ok();
                all.iter().filter(|b| *b != out).all(|block| self.connected(*block, &left).is_empty())
            })
    }

    fn counter(&self, register: Register, writers: &[usize], body: Vec<usize>) -> Option<Counter> {
        let blocks = || body.iter().map(|block| &self.blocks[*block]);
        let written = blocks().fold(RegisterSet::default(), |set, block| set.union(block.writes));
        let invariants = RegisterSet::all().without(written);
        let adds: Vec<(u64, Add)> = writers
            .iter()
            .flat_map(|block| self.blocks[*block].adds.iter().copied())
            .filter(|(_, add)| add.register == register)
            .collect();
        let (writer, first) = *adds.first()?;
        let step = adds.iter().skip(1).try_fold(first.step, |sum, (_, add)| match (sum, add.step) {
            (Step::Constant(a), Step::Constant(b)) => Some(Step::Constant(a.checked_add(b)?)),
            _ => None,
        })?;
        let counts = match step {
            Step::Constant(step) => step != 0,
            Step::Register(step) | Step::Negated(step) => invariants.contains(step),
        };
        let width_bits = first.width_bits;
        if !counts || body.is_empty() || adds.iter().any(|(_, add)| add.width_bits != width_bits) {
            return None;
        }
        let mut exits: Vec<u64> = blocks()
            .flat_map(|block| {
                let outside = block.next.iter().filter(|next| body.binary_search(next).is_err());
                outside.map(|next| self.blocks[*next].range.start).chain(block.beyond.iter().copied())
            })
            .collect();
        exits.sort_unstable();
        exits.dedup();
        let counter = Counter {
            writer,
            register,
            step,
            parts: adds.len() as u32,
            width_bits,
            exits,
            invariants,
            has_calls: blocks().any(|block| block.has_call),
            instructions_min: self.shortest_cycle(writers[0], &body),
            body: blocks().map(|block| block.range.clone()).collect(),
        };
        // Where instructions overlap, it is unknown which of them an offset belongs to.
        let overlaps = counter.exits.iter().any(|exit| counter.holds(*exit));
        (!overlaps).then_some(counter)
    }

    /// Returns the fewest instructions on a path from a block back to it within a body, including the block's own.
    fn shortest_cycle(&self, start: usize, body: &[usize]) -> u32 {
        let mut costs: FxHashMap<usize, u32> = FxHashMap::default();
        let mut queue = BinaryHeap::from([(Reverse(0), start)]);
        while let Some((Reverse(cost), block)) = queue.pop() {
            if block == start && cost > 0 {
                return cost;
            }
            let after = cost + self.blocks[block].instructions;
            for next in self.blocks[block].next.iter().copied().filter(|n| body.binary_search(n).is_ok()) {
                if costs.get(&next).is_none_or(|known| after < *known) {
                    costs.insert(next, after);
                    queue.push((Reverse(after), next));
                }
            }
        }
        1
    }
}

/// Divides instructions (ascending) into blocks.
fn blocks(instructions: &[(u64, Instruction)], leaders: &FxHashSet<u64>) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut ends: Vec<Vec<u64>> = Vec::new();
    let mut goes_on_at: Option<u64> = None;
    for (at, instruction) in instructions {
        if goes_on_at != Some(*at) || leaders.contains(at) {
            blocks.push(Block::at(*at));
            ends.push(Vec::new());
        }
        let (Some(block), Some(end)) = (blocks.last_mut(), ends.last_mut()) else { continue };
        block.add(*at, instruction);
        let next = instruction.next;
        *end = match instruction.flow {
            Flow::Next | Flow::Call => vec![next],
            Flow::Branch(target) if target != next => vec![target, next],
            Flow::Branch(target) | Flow::Jump(target) => vec![target],
            Flow::End => Vec::new(),
        };
        goes_on_at = matches!(instruction.flow, Flow::Next | Flow::Call).then_some(next);
    }
    let by_start: FxHashMap<u64, usize> = blocks.iter().map(|block| block.range.start).zip(0..).collect();
    for (block, end) in blocks.iter_mut().zip(ends) {
        for to in end {
            match by_start.get(&to) {
                Some(next) => block.next.push(*next),
                None => block.beyond.push(to),
            }
        }
    }
    for from in 0..blocks.len() {
        for to in blocks[from].next.clone() {
            blocks[to].previous.push(from);
        }
    }
    blocks
}

impl Block {
    fn at(start: u64) -> Block {
        Block {
            range: start..start,
            instructions: 0,
            next: Vec::new(),
            previous: Vec::new(),
            beyond: Vec::new(),
            writes: RegisterSet::default(),
            adds: Vec::new(),
            overwrites: RegisterSet::default(),
            has_call: false,
        }
    }

    fn add(&mut self, at: u64, instruction: &Instruction) {
        self.range.end = at.wrapping_add(instruction.length);
        // A branch may be fused with the instruction before it.
        self.instructions +=
            u32::from(!matches!(instruction.flow, Flow::Branch(_)) || self.instructions == 0);
        self.writes = self.writes.union(instruction.writes);
        let mut other = instruction.writes;
        if let Some(add) = instruction.add {
            self.adds.push((at, add));
            other = other.without([add.register].into_iter().collect());
        }
        self.overwrites = self.overwrites.union(other);
        self.has_call |= instruction.flow == Flow::Call;
    }
}

/// Code that is read when it is needed.
struct Code<'a> {
    read: &'a mut dyn FnMut(u64, &mut [u8]) -> usize,
    pieces: FxHashMap<u64, Vec<u8>>,
}

impl Code<'_> {
    /// Returns the bytes of an instruction, perhaps followed by others.
    fn bytes(&mut self, at: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(INSTRUCTION_BYTES_MAX);
        let mut from = at;
        while bytes.len() < INSTRUCTION_BYTES_MAX {
            let (number, within) = (from / PIECE_BYTES as u64, (from % PIECE_BYTES as u64) as usize);
            let read = &mut self.read;
            let piece = self.pieces.entry(number).or_insert_with(|| {
                let mut piece = vec![0; PIECE_BYTES];
                let length = read(number * PIECE_BYTES as u64, &mut piece);
                piece.truncate(length);
                piece
            });
            let Some(rest) = piece.get(within..).filter(|rest| !rest.is_empty()) else { break };
            let wanted = rest.len().min(INSTRUCTION_BYTES_MAX - bytes.len());
            bytes.extend_from_slice(&rest[..wanted]);
            let Some(next) = from.checked_add(wanted as u64) else { break };
            from = next;
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
