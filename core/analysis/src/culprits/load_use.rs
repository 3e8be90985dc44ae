//! How often a load can have missed, given how long the first instruction that uses its value waited.
//!
//! Input: a load. Output: an upper bound on the part of its executions that missed the first-level cache. Complexity: linear in the
//! instructions up to its first use, at most [`AHEAD`].
//!
//! In order the first user of the value waits for it. A page is missing less often than a line of it, since TLBs reach further than
//! first-level caches, so the bound holds for TLB misses too.

use super::context::ProcedureContext;

/// Number of instructions in which the first use of a loaded value is looked for.
const AHEAD: usize = 16;
/// Standard errors that are added to the user's samples.
const ERRORS: f64 = 2.0;

/// Returns an upper bound on the part of a load's executions whose line was missing. It is 1 out of order, and where the
/// instructions before the first user hide the latency.
pub fn load_missed_part(context: &ProcedureContext, load: usize) -> f64 {
    let end = context.cfg.blocks[context.block_of(load)].end.min(load + AHEAD);
    let frequency = context.frequency(context.block_of(load));
    let made = context.instructions[load].writes;
    let user = (load + 1..end).find(|&j| !context.instructions[j].reads.intersection(made).is_empty());
    let Some(user) = user.filter(|_| context.is_in_order() && frequency > 0.0) else { return 1.0 };
    let hidden: f64 = (load + 1..=user).map(|j| context.schedule.issue_cycles_min[j]).sum();
    let exposed = context.model.memory.l2_cycles - hidden;
    if exposed < 0.5 * context.model.memory.l2_cycles || (load + 1..user).any(|j| context.leaves(j)) {
        return 1.0;
    }
    let samples = context.estimates.head_samples[user];
    let excess = samples - context.schedule.issue_cycles_min[user] * frequency;
    let most = excess.max(0.0) + ERRORS * samples.max(1.0).sqrt();
    (most / frequency / exposed).min(1.0)
}
