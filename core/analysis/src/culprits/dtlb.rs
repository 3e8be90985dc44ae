//! Data TLB: the page of a load or store had no translation at hand (DCPI §6.3).
//!
//! An address is translated before its access may go on, so the access itself waits, not who uses what it loads (in the
//! paper's Figure 2 the stores carry the `D`). Out of order a load's close user is suspect too, as for the data cache.
//! Ruled out and bounded by pages as lines are there; a page is missing less often than a line of it, so a load whose user
//! does not wait is innocent, unless it walks from page to page and leaves most lines of each alone.

use dwell_image::{MemoryOperand, Register};

use super::{
    address::{Step, advance_bytes},
    dcache,
    reuse::{Grain, fresh_part},
    scene::{Scene, Stalled, Suspect},
    witness::load_missed_part,
};
use crate::Cause;

/// Adds the accesses that were not ruled out.
pub fn suspects(stalled: &Stalled, suspects: &mut Vec<Suspect>) {
    let Stalled { scene, i, .. } = *stalled;
    let own = (scene.opcode(i).load || scene.opcode(i).store).then_some(i);
    let elders = if scene.is_in_order() { Vec::new() } else { dcache::loads(stalled) };
    for access in own.into_iter().chain(elders) {
        let witnessed = if strides_pages(scene, access) { 1.0 } else { load_missed_part(scene, access) };
        let part = fresh_part(scene, access, Grain::page(scene)).min(witnessed);
        let cycles_max = part * scene.model.memory.dtlb_miss_cycles;
        suspects.push(Suspect { cause: Cause::DtlbMiss, cycles_max, culprit: Some(access) });
    }
}

/// Whether an access leaves a page with every few of its executions.
fn strides_pages(scene: &Scene, access: usize) -> bool {
    const ACCESSES_IN_PAGE: f64 = 4.0;
    let Some(id) = scene.facts.loops.innermost(scene.block_of(access)) else { return false };
    let is_long = |m: &MemoryOperand| match advance_bytes(scene, id, m) {
        Some(bytes) => bytes * ACCESSES_IN_PAGE >= scene.model.memory.page_bytes as f64,
        None => [m.base, m.index].into_iter().flatten().any(|r| adds_up(scene, id, r)),
    };
    scene.instructions[access].memory().any(is_long)
}

/// Whether a register advances in each iteration of a loop by a number that the loop does not say.
fn adds_up(scene: &Scene, id: usize, register: Register) -> bool {
    let Some(Step::Defined(i)) = scene.facts.loops.step(id, register) else { return false };
    let instruction = &scene.instructions[i];
    matches!(&*instruction.mnemonic, "add" | "sub" | "addw") && instruction.reads.contains(register)
}
