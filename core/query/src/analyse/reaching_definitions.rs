//! Finds the instructions that wrote the registers which an instruction reads. "Go to definition" on an operand uses this.
//!
//! Input: a procedure's instructions, blocks and edges. Output: for each register, as the text spells it, the instructions
//! that may have written it last (reaching definitions, searched backwards). Cost: a walk over at most `BLOCKS_MAX` blocks
//! for each register that a block reads before it writes it.

use dwell_analysis::{Block, Edge};
use dwell_image::{Arch, Instruction, Register, RegisterSet};
use rustc_hash::FxHashMap;

use crate::answer::ListingOperand;

/// Number of blocks after which the search ends. A writer further back would not help a reader.
const BLOCKS_MAX: usize = 64;

/// Finds writers of registers in one procedure.
pub struct Writers<'a> {
    arch: Arch,
    instructions: &'a [Instruction],
    blocks: &'a [Block],
    /// Registers that each block writes.
    written: Vec<RegisterSet>,
    /// Predecessors of each block.
    before: Vec<Vec<usize>>,
    /// Addresses of the instructions that wrote a register last when a block begins, as far as they were asked for.
    at_start: FxHashMap<(usize, Register), Vec<u64>>,
}

impl<'a> Writers<'a> {
    /// Prepares the search. `edges` connect `blocks`, and the blocks' ranges index `instructions`.
    pub fn new(arch: Arch, instructions: &'a [Instruction], blocks: &'a [Block], edges: &[Edge]) -> Self {
        let mut before = vec![Vec::new(); blocks.len()];
        for edge in edges {
            before[edge.to].push(edge.from);
        }
        let written = blocks.iter().map(|b| {
            let all = instructions[b.instructions.clone()].iter().flat_map(|i| i.writes.iter());
            all.collect()
        });
        Writers {
            arch,
            instructions,
            blocks,
            written: written.collect(),
            before,
            at_start: FxHashMap::default(),
        }
    }

    /// Returns the registers that the instruction's text names and the instruction reads, each with its writers.
    pub fn operands(&mut self, index: usize) -> Vec<ListingOperand> {
        let instructions = self.instructions;
        let instruction = &instructions[index];
        let mut operands: Vec<ListingOperand> = Vec::new();
        for word in instruction.text.split(|c: char| !c.is_ascii_alphanumeric()).skip(1) {
            if operands.iter().any(|operand| operand.text == word) {
                continue;
            }
            let register = Register::named(self.arch, word).filter(|r| instruction.reads.contains(*r));
            let writers = register.map_or_else(Vec::new, |register| self.last_writers(index, register));
            if !writers.is_empty() {
                operands.push(ListingOperand { text: word.to_owned(), writers });
            }
        }
        operands
    }

    /// Returns the addresses of the instructions that may have written a register last, in ascending order.
    fn last_writers(&mut self, index: usize, register: Register) -> Vec<u64> {
        let own = self.blocks.partition_point(|b| b.instructions.end <= index);
        if self.blocks.get(own).is_none_or(|b| !b.instructions.contains(&index)) {
            return Vec::new();
        }
        if let Some(writer) = self.last_in(own, index, register) {
            return vec![writer];
        }
        if let Some(found) = self.at_start.get(&(own, register)) {
            return found.clone();
        }
        let found = self.search_back(own, register);
        self.at_start.insert((own, register), found.clone());
        found
    }

    /// Searches the blocks that lead to the start of a block.
    fn search_back(&self, block: usize, register: Register) -> Vec<u64> {
        let (mut found, mut seen, mut next) = (Vec::new(), Vec::new(), self.before[block].clone());
        while let Some(block) = next.pop() {
            if seen.len() >= BLOCKS_MAX {
                break;
            }
            if seen.contains(&block) {
                continue;
            }
            seen.push(block);
            match self.last_in(block, self.blocks[block].instructions.end, register) {
                Some(writer) => found.push(writer),
                None => next.extend(&self.before[block]),
            }
        }
        found.sort_unstable();
        found
    }

    /// Returns the address of the last instruction of a block before `end` that writes a register.
    fn last_in(&self, block: usize, end: usize, register: Register) -> Option<u64> {
        if !self.written[block].contains(register) {
            return None;
        }
        let mut before = self.instructions[self.blocks[block].instructions.start..end].iter().rev();
        before.find(|i| i.writes.contains(register)).map(|i| i.address.0)
    }
}

#[cfg(test)]
mod tests {
    use dwell_analysis::Confidence;
    use dwell_image::{ImageAddress, instructions};

    use super::*;

    /// ```text
    ///  0  mov eax, edi         block 0
    ///  2  test eax, eax
    ///  4  je b
    ///  6  mov eax, 1           block 1
    ///  b  add eax, esi         block 2, a loop
    ///  d  dec edi
    ///  f  jne b
    /// 11  ret                  block 3
    /// ```
    const CODE: [u8; 18] =
        [0x89, 0xf8, 0x85, 0xc0, 0x74, 5, 0xb8, 1, 0, 0, 0, 1, 0xf0, 0xff, 0xcf, 0x75, 0xfa, 0xc3];
    const BLOCKS: [std::ops::Range<usize>; 4] = [0..3, 3..4, 4..7, 7..8];
    const EDGES: [(usize, usize); 5] = [(0, 1), (0, 2), (1, 2), (2, 2), (2, 3)];

    fn block(instructions: std::ops::Range<usize>) -> Block {
        let (frequency, confidence, cpi) = (None, Confidence::Low, None);
        let cpi_interval = dwell_analysis::Interval { min: 0.0, max: f64::INFINITY };
        let frequency_interval = None;
        Block {
            instructions,
            frequency,
            frequency_interval,
            confidence,
            cpi,
            cpi_interval,
            best_case_cpi: 1.0,
            per_entry: None,
            class: 0,
        }
    }

    fn operands(index: usize) -> Vec<(String, Vec<u64>)> {
        let code = instructions(Arch::X86_64, &CODE, ImageAddress(0));
        let edge = |(from, to)| Edge { from, to, frequency: None, confidence: Confidence::Low };
        let (blocks, edges) = (BLOCKS.map(block), EDGES.map(edge));
        let found = Writers::new(Arch::X86_64, &code, &blocks, &edges).operands(index);
        found.into_iter().map(|operand| (operand.text, operand.writers)).collect()
    }

    #[test]
    fn the_last_writer_in_the_block_is_the_only_one() {
        assert_eq!(operands(1), [("eax".to_owned(), vec![0])]);
    }

    #[test]
    fn definitions_reach_a_block_along_every_edge_and_around_its_loop() {
        // No instruction writes esi, because it is an argument.
        assert_eq!(operands(4), [("eax".to_owned(), vec![0, 6, 0xb])]);
        assert_eq!(operands(5), [("edi".to_owned(), vec![0xd])]);
    }

    #[test]
    fn instructions_that_read_no_register_have_no_writers() {
        assert!(operands(3).is_empty());
        assert!(operands(7).is_empty());
    }
}
