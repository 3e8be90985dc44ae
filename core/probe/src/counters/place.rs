//! Where in a block a counter fits.
//!
//! Enters: a procedure's code and the addresses at which its blocks begin. Leaves: for each block a region that can be replaced by a
//! jump, and before which of its instructions the counter goes; none if the block has no such region.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction};

use super::flags;
use crate::patch::{
    function_code::{FunctionCode, is_call},
    plan::{JUMP_BYTES, Region, region},
};

/// A place for a counter.
#[derive(Clone, Debug)]
pub struct CounterPlace {
    /// What is replaced by a jump.
    pub region: Region,
    /// Index of the instruction of the region before which the counter goes.
    pub before: usize,
    /// Whether the counter must keep the flags.
    pub keeps_flags: bool,
}

/// Returns a place for each block of the function's first part. A block begins at each of the ascending `starts`.
pub fn places(code: &FunctionCode, starts: &[u64]) -> Vec<Option<CounterPlace>> {
    let instructions = &code.parts[0].instructions;
    let alive = flags::alive_before(instructions);
    let index = |start: &u64| instructions.binary_search_by_key(start, Instruction::ip).ok();
    let begins: Vec<Option<usize>> = starts.iter().map(index).collect();
    let ends = begins.iter().skip(1).copied().chain([Some(instructions.len())]);
    begins.iter().zip(ends).map(|(begin, end)| place(code, (*begin)?..end?, &alive)).collect()
}

/// Returns the best place of a block: one where flags need not be kept, without branches, with few bytes.
fn place(code: &FunctionCode, block: Range<usize>, alive: &[bool]) -> Option<CounterPlace> {
    let part = &code.parts[0];
    let instructions = &part.instructions;
    let mut best: Option<((bool, bool, usize), CounterPlace)> = None;
    for first in block.clone() {
        let bytes = |last: usize| (instructions[last].next_ip() - instructions[first].ip()) as usize;
        let Some(last) = (first..block.end).find(|last| bytes(*last) >= JUMP_BYTES) else { break };
        let moved = &instructions[first..=last];
        if moved.iter().any(is_call) {
            continue;
        }
        let Ok(region) = region(code, part, first..last + 1, false) else { continue };
        let dead = (first..=last).find(|at| !alive[*at]);
        let branches = moved.iter().any(|instruction| instruction.flow_control() != FlowControl::Next);
        let rank = (dead.is_none(), branches, bytes(last));
        if best.as_ref().is_none_or(|(other, _)| rank < *other) {
            let before = dead.map_or(0, |at| at - first);
            best = Some((rank, CounterPlace { region, before, keeps_flags: dead.is_none() }));
        }
    }
    best.map(|(_, place)| place)
}
