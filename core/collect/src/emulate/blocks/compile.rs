//! Compiles the block at an address, and keeps it while its code stays the same.
//!
//! Enters: an address of a thread's code. Leaves: the number of its block. Never here: a run.

use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind, Register, RflagsBits};

use super::{BLOCK_STEPS_MAX, BLOCKS_MAX, Block, Blocks, SOURCES_MAX, watch::Watch};
use crate::{
    emulate::{
        Thread,
        memory::{Fetch, Memory, PAGE_BYTES},
        translate::Compilable,
    },
    path::Span,
    x86::INSTRUCTION_BYTES_MAX,
};

impl Blocks {
    /// Returns the number of the block at an address.
    pub(super) fn block_at<F: Fetch>(&mut self, thread: &mut Thread<F>, pc: u64) -> u32 {
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
        let (at, ways) = (self.area.next(), &mut self.ways);
        let ends = [last.instruction.next_ip(), last.instruction.near_branch_target()];
        let dead = ends.map(|pc| has_dead_flags(memory, pc));
        let has_dead_flags = |pc| ends.iter().zip(dead).any(|(end, is_dead)| *end == pc && is_dead);
        let compiled =
            self.translator.block(at, number, &instructions, then_interpret, ways, &has_dead_flags);
        let Some(code) = compiled else { return Some(Block::interpreted(pc)) };
        self.accesses.extend(code.accesses.iter().map(|access| (access.at, *access)));
        let code = self.area.append(&code.bytes)?;
        self.starts.push((code, number));
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
    pub(super) fn compare_sources<F: Fetch>(&mut self, memory: &mut Memory<F>) {
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

    pub(super) fn forget(&mut self) {
        self.counts.keep(self.area.edges(), &self.ways.edges);
        self.ways.edges.clear();
        self.starts.clear();
        self.from += self.blocks.len() as u32;
        self.blocks.clear();
        self.by_pc.clear();
        self.ways.exits.clear();
        self.accesses.clear();
        self.sources.clear();
        self.single.clear();
        self.watched.iter_mut().for_each(Watch::forget);
        self.area.forget_blocks();
    }
}

/// Returns whether nothing at an address needs the flags as they are: other instructions set all of them first. Only code that was read
/// before is looked at.
fn has_dead_flags<F: Fetch>(memory: &mut Memory<F>, pc: u64) -> bool {
    const INSTRUCTIONS: usize = 12;
    let mut needed =
        RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::CF | RflagsBits::PF;
    let mut at = pc;
    for _ in 0..INSTRUCTIONS {
        let Some(code) = memory.known_code(at) else { return false };
        let instruction = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
        let next = match instruction.flow_control() {
            FlowControl::Next => instruction.next_ip(),
            FlowControl::UnconditionalBranch | FlowControl::Call
                if instruction.op0_kind() == OpKind::NearBranch64 =>
            {
                instruction.near_branch_target()
            }
            // A system call saves them.
            _ => return false,
        };
        if instruction.is_invalid() || instruction.rflags_read() & needed != 0 {
            return false;
        }
        // Shifts by nothing, and repetitions of nothing, change no flag.
        let is_sure = !instruction.is_string_instruction()
            && !(0..instruction.op_count()).any(|n| {
                instruction.op_kind(n) == OpKind::Register && instruction.op_register(n) == Register::CL
            });
        if is_sure {
            needed &= !instruction.rflags_modified();
        }
        if needed == 0 {
            return true;
        }
        at = next;
    }
    false
}
