//! The rule that the divider and the multiplier share: which operations may occupy the unit, or have computed an operand
//! in it.
//!
//! Complexity: linear in the instructions looked back at, at most [`LOOK_BACK`] in each predecessor.

use crate::{
    Cause,
    culprits::{
        LOOK_BACK, candidate::Candidate, context::ProcedureContext, producers, stalled::StalledInstruction,
    },
    machine::{Opcode, OpcodeClass},
};

/// A functional unit whose latency varies.
pub struct Unit {
    /// The cause that stands for it.
    pub cause: Cause,
    /// Whether an operation uses the unit.
    pub uses: fn(Opcode) -> bool,
    /// The ratio of the longest latency to the least, which is the model's.
    pub times: f64,
}

/// Adds the unit's operations that were not ruled out. The modelled latency is no dynamic stall: within the block only
/// what exceeds it counts, and of an operation in another block all that is left of it.
pub fn candidates(stalled: &StalledInstruction, unit: &Unit, candidates: &mut Vec<Candidate>) {
    let StalledInstruction { context, i, .. } = *stalled;
    let mut add = |culprit: usize| {
        let cycles_max = cycles_max(stalled, unit, culprit);
        candidates.push(Candidate { cause: unit.cause, cycles_max, culprit: Some(culprit) });
    };
    let uses = |j: usize| (unit.uses)(context.opcode(j));
    if !context.is_in_order() {
        if uses(i) {
            return add(i);
        }
        if producers::is_own_candidate(stalled.context, stalled.i) {
            return;
        }
    }
    stalled.producers().filter(|&p| uses(p)).for_each(&mut add);
    if context.is_in_order()
        && let Some(user) = busy_since(stalled, unit)
    {
        add(user);
    }
    if let Some(cycles_max) = busy_from_elsewhere(stalled, unit) {
        candidates.push(Candidate { cause: unit.cause, cycles_max, culprit: None });
    }
}

/// Returns, in order, the cycles during which an operation of a caller or callee may still occupy the unit. Only the
/// first user of the unit waits for it.
fn busy_from_elsewhere(stalled: &StalledInstruction, unit: &Unit) -> Option<f64> {
    let StalledInstruction { context, i, .. } = *stalled;
    let (from, part) = producers::since_elsewhere(context, i)?;
    let pool = |j: usize| context.model.cost(context.opcode(j).class).unit.as_deref();
    let own = pool(i)?;
    if (from..i).any(|j| pool(j) == Some(own)) {
        return None;
    }
    let keeps = |class: OpcodeClass| (unit.uses)(Opcode { class, load: false, store: false });
    let costs = context
        .model
        .classes
        .iter()
        .filter(|(class, cost)| keeps(**class) && cost.unit.as_deref() == Some(own));
    let busy = costs.map(|(_, cost)| cost.busy).filter(|&busy| busy > 1.0).reduce(f64::max)?;
    let passed: f64 = (from..i).map(|j| context.schedule.issue_cycles_min[j]).sum();
    Some(part * (unit.times * busy - passed)).filter(|&cycles| cycles > 0.0)
}

fn cycles_max(stalled: &StalledInstruction, unit: &Unit, culprit: usize) -> f64 {
    let context = stalled.context;
    let latency = context.model.cost(context.opcode(culprit).class).latency;
    let is_modelled =
        context.block_of(culprit) == stalled.block && (culprit < stalled.i || !context.is_in_order());
    if is_modelled { (unit.times - 1.0) * latency } else { unit.times * latency }
}

/// Returns, in order, the last operation before that uses the same unit.
fn busy_since(stalled: &StalledInstruction, unit: &Unit) -> Option<usize> {
    let StalledInstruction { context, block, i, .. } = *stalled;
    let pool = |j: usize| context.model.cost(context.opcode(j).class).unit.as_deref();
    let own = pool(i)?;
    let keeps = |j: &usize| {
        let is_long = context.model.cost(context.opcode(*j).class).busy > 1.0;
        is_long && (unit.uses)(context.opcode(*j)) && pool(*j) == Some(own)
    };
    let start = context.cfg.blocks[block].start.max(i.saturating_sub(LOOK_BACK));
    (start..i).rev().find(keeps).or_else(|| before_block(context, block).find(keeps))
}

/// Returns the last instructions of the blocks that run right before, in reverse order.
fn before_block<'a>(context: &'a ProcedureContext, block: usize) -> impl Iterator<Item = usize> + 'a {
    let ranges = context.predecessors(block).filter_map(|(_, range)| range);
    ranges.flat_map(|range| (range.start.max(range.end.saturating_sub(LOOK_BACK))..range.end).rev())
}
