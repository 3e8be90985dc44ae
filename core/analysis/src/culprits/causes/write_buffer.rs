//! Write or store buffer: a store waits until an earlier one has left it (DCPI §6.3).
//!
//! Only stores wait for it. In a loop the buffer is full only if draining the loop's stores takes longer than everything
//! else in the loop. Draining is bounded by the stores' own misses, so a loop that stores to few lines is ruled out.

use crate::{
    Cause,
    culprits::{
        candidate::Candidate,
        context::ProcedureContext,
        reuse::{Grain, fresh_part},
        stalled::StalledInstruction,
    },
};

/// Adds the full buffer, if it was not ruled out.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    let StalledInstruction { context, block, i, excess_cycles, .. } = *stalled;
    if !context.opcode(i).store {
        return;
    }
    let bound = context
        .facts
        .loops
        .innermost(block)
        .and_then(|id| loop_cycles_max(context, id, block, excess_cycles));
    let cycles_max = bound.unwrap_or(f64::INFINITY);
    candidates.push(Candidate { cause: Cause::WriteBuffer, cycles_max, culprit: Some(i) });
}

/// Returns by how many cycles per execution of `block` the draining of a loop's stores can exceed the rest of the loop.
fn loop_cycles_max(context: &ProcedureContext, id: usize, block: usize, excess_cycles: f64) -> Option<f64> {
    let one = context.facts.loops.get(id);
    let frequency = context.frequency(block);
    if one.leaves || frequency <= 0.0 {
        return None;
    }
    let rest = one.samples / frequency - excess_cycles;
    let drain_cycles = context.facts.drain_cycles[id].get_or_init(|| drain_cycles_max(context, id));
    Some((drain_cycles / frequency - rest).max(0.0))
}

/// Returns an upper bound on the cycles, times frequency, that a loop's stores take to drain: one cycle each, and the
/// latency of memory for those that miss.
fn drain_cycles_max(context: &ProcedureContext, id: usize) -> f64 {
    let of_block = |&block: &usize| {
        let stores = context.cfg.blocks[block].clone().filter(|&j| context.opcode(j).store);
        let cycles = stores
            .map(|j| 1.0 + fresh_part(context, j, Grain::line(context)) * context.model.memory.memory_cycles);
        context.frequency(block) * cycles.sum::<f64>()
    };
    context.facts.loops.blocks(id).iter().map(of_block).sum()
}
