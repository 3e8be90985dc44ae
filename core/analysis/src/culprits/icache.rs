//! Instruction cache: the instruction's line was not at hand (DCPI §6.3: the rule of lines and predecessors).

use super::{
    fetch::new_part,
    scene::{Stalled, Suspect},
};
use crate::Cause;

/// A loop of as many bytes stays in the smallest first-level instruction cache that we know, twice over.
const BYTES_KEPT: u64 = 16 << 10;

/// Adds the miss, if it was not ruled out.
pub fn suspects(stalled: &Stalled, suspects: &mut Vec<Suspect>) {
    let memory = &stalled.scene.model.memory;
    let cycles_max = new_part(stalled, memory.line_bytes, BYTES_KEPT) * memory.memory_cycles;
    suspects.push(Suspect { cause: Cause::ICacheMiss, cycles_max, culprit: None });
}
