//! What the divider and the multiplier have in common: who may keep a unit busy, or have made an operand in it.
//!
//! Complexity: linear in the instructions looked back at, at most [`LOOK_BACK`] in each predecessor.

use super::{
    LOOK_BACK, producers,
    scene::{Scene, Stalled, Suspect},
};
use crate::{
    Cause,
    machine::{Opcode, OpcodeClass},
};

/// Operations of one unit, and how much longer than the model's least one may take.
pub struct Unit {
    /// The cause that they are named by.
    pub cause: Cause,
    /// Which operations.
    pub uses: fn(Opcode) -> bool,
    /// The longest over the least latency.
    pub times: f64,
}

/// Adds the unit's operations that were not ruled out. What the model knows of them is no dynamic stall: in the block
/// only what operands make longer is, and from another block what is left of it.
pub fn suspects(stalled: &Stalled, unit: &Unit, suspects: &mut Vec<Suspect>) {
    let Stalled { scene, i, .. } = *stalled;
    let mut accuse = |culprit: usize| {
        let cycles_max = cycles_max(stalled, unit, culprit);
        suspects.push(Suspect { cause: unit.cause, cycles_max, culprit: Some(culprit) });
    };
    let uses = |j: usize| (unit.uses)(scene.opcode(j));
    if !scene.is_in_order() {
        if uses(i) {
            return accuse(i);
        }
        if producers::is_own_suspect(stalled) {
            return;
        }
    }
    stalled.producers().filter(|&p| uses(p)).for_each(&mut accuse);
    if scene.is_in_order()
        && let Some(user) = busy_since(stalled, unit)
    {
        accuse(user);
    }
    if let Some(cycles_max) = busy_from_elsewhere(stalled, unit) {
        suspects.push(Suspect { cause: unit.cause, cycles_max, culprit: None });
    }
}

/// In order, the cycles during which a caller's or callee's last operation may still keep the unit: whoever needs it first
/// waits.
fn busy_from_elsewhere(stalled: &Stalled, unit: &Unit) -> Option<f64> {
    let Stalled { scene, i, .. } = *stalled;
    let (from, part) = producers::since_elsewhere(stalled)?;
    let pool = |j: usize| scene.model.cost(scene.opcode(j).class).unit.as_deref();
    let own = pool(i)?;
    if (from..i).any(|j| pool(j) == Some(own)) {
        return None;
    }
    let keeps = |class: OpcodeClass| (unit.uses)(Opcode { class, load: false, store: false });
    let costs = scene
        .model
        .classes
        .iter()
        .filter(|(class, cost)| keeps(**class) && cost.unit.as_deref() == Some(own));
    let busy = costs.map(|(_, cost)| cost.busy).filter(|&busy| busy > 1.0).reduce(f64::max)?;
    let passed: f64 = (from..i).map(|j| scene.schedule.issue_cycles_min[j]).sum();
    Some(part * (unit.times * busy - passed)).filter(|&cycles| cycles > 0.0)
}

fn cycles_max(stalled: &Stalled, unit: &Unit, culprit: usize) -> f64 {
    let scene = stalled.scene;
    let latency = scene.model.cost(scene.opcode(culprit).class).latency;
    let is_modelled =
        scene.block_of(culprit) == stalled.block && (culprit < stalled.i || !scene.is_in_order());
    if is_modelled { (unit.times - 1.0) * latency } else { unit.times * latency }
}

/// In order, the last operation before that uses the same unit.
fn busy_since(stalled: &Stalled, unit: &Unit) -> Option<usize> {
    let Stalled { scene, block, i, .. } = *stalled;
    let pool = |j: usize| scene.model.cost(scene.opcode(j).class).unit.as_deref();
    let own = pool(i)?;
    let keeps = |j: &usize| {
        let is_long = scene.model.cost(scene.opcode(*j).class).busy > 1.0;
        is_long && (unit.uses)(scene.opcode(*j)) && pool(*j) == Some(own)
    };
    let start = scene.cfg.blocks[block].start.max(i.saturating_sub(LOOK_BACK));
    (start..i).rev().find(keeps).or_else(|| before_block(scene, block).find(keeps))
}

/// The ends of the blocks that run right before, backwards.
fn before_block<'a>(scene: &'a Scene, block: usize) -> impl Iterator<Item = usize> + 'a {
    let ranges = scene.predecessors(block).filter_map(|(_, range)| range);
    ranges.flat_map(|range| (range.start.max(range.end.saturating_sub(LOOK_BACK))..range.end).rev())
}
