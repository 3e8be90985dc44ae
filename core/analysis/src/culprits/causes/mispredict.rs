//! Branch misprediction (DCPI §6.3).
//!
//! In order the first instruction after a mispredicted branch stalls: the head of a block that a predicted edge leads to,
//! or what a return comes back to. Out of order the samples of the refill land on the first and, mostly, the second
//! instruction of the target (docs/measured.md), which is on the branch and on its target once the skid is undone.
//!
//! A predictor does no worse than always guessing the more frequent side, so each side of a branch is mispredicted at
//! most as often as the rarer side is taken.

use dwell_image::Flow;

use crate::{
    Cause, Confidence,
    cfg::EdgeKind,
    culprits::{candidate::Candidate, context::ProcedureContext, stalled::StalledInstruction},
    machine::OpcodeClass,
};

/// An estimated frequency of the rarer side may be this much too small where it is a guess …
const GUESS_TIMES: f64 = 10.0;
/// … and this much where it is not.
const ESTIMATE_TIMES: f64 = 2.0;

/// Adds the branches that were not ruled out.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    let context = stalled.context;
    let mut add = |part: f64, branch| {
        let cycles_max = part * penalty_cycles(context);
        candidates.push(Candidate { cause: Cause::BranchMispredict, cycles_max, culprit: Some(branch) });
    };
    for (edge, branch) in branches_before(stalled) {
        add(part_by_edge(context, edge, branch, stalled.block), branch);
    }
    if !stalled.is_head() && context.is_in_order() && context.opcode(stalled.i - 1).class == OpcodeClass::Call
    {
        // Its return may have been mispredicted.
        add(1.0, stalled.i - 1);
    }
    let after = context.head_after(stalled.i);
    let is_last = after == context.cfg.blocks[stalled.block].end;
    if !context.is_in_order() && is_last && is_predicted(context, after - 1) {
        add(part_by_branch(context, after - 1), after - 1);
    }
}

/// Adds the branches right before that the rarer side's rule acquitted, for cycles that nothing else explains: branches
/// that share a predictor's entry spoil each other's prediction, however one-sided each may be.
pub fn second_look(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    let context = stalled.context;
    for (edge, branch) in branches_before(stalled) {
        let cycles_max = context.edge_part(edge, stalled.block) * penalty_cycles(context);
        candidates.push(Candidate { cause: Cause::BranchMispredict, cycles_max, culprit: Some(branch) });
    }
}

/// Edges into the block that a predictor had to choose, with their branches.
fn branches_before(stalled: &StalledInstruction) -> Vec<(usize, usize)> {
    let StalledInstruction { context, block, .. } = *stalled;
    if !stalled.is_head() {
        return Vec::new();
    }
    let edges = context.predecessors(block).filter_map(|(edge, before)| Some((edge, before?.end - 1)));
    let is_predicted = |&(edge, branch): &(usize, usize)| {
        context.cfg.edges[edge].kind.is_predicted() || context.instructions[branch].flow == Flow::IndirectJump
    };
    edges.filter(is_predicted).collect()
}

fn penalty_cycles(context: &ProcedureContext) -> f64 {
    times_known_late(context) * context.model.mispredict_cycles
}

/// The most that one costs.
pub fn penalty_cycles_max(context: &ProcedureContext) -> f64 {
    times_known_late(context) * context.model.mispredict_cycles_at_most()
}

/// Out of order the branch waits for its operands before the misprediction is known: twice the penalty.
fn times_known_late(context: &ProcedureContext) -> f64 {
    if context.is_in_order() { 1.0 } else { 2.0 }
}

fn is_predicted(context: &ProcedureContext, i: usize) -> bool {
    let flow = context.instructions[i].flow;
    matches!(flow, Flow::Branch { .. } | Flow::IndirectJump | Flow::Call { target: None })
        || context.opcode(i).class == OpcodeClass::Return
}

/// The most part of a branch's executions that are mispredicted.
fn part_by_branch(context: &ProcedureContext, branch: usize) -> f64 {
    match sides(context, branch) {
        Some((taken, not_taken)) => rarer_part(taken, not_taken),
        None => 1.0,
    }
}

/// The most part of the executions of a block that come mispredicted by one edge.
fn part_by_edge(context: &ProcedureContext, edge: usize, branch: usize, block: usize) -> f64 {
    let came = context.edge_part(edge, block);
    let Some((taken, not_taken)) = sides(context, branch) else { return came };
    let own = if context.cfg.edges[edge].kind == EdgeKind::Taken { taken } else { not_taken };
    let all = taken.count + not_taken.count;
    // As often as the rarer side is taken, but no more often than this one.
    let by_side = rarer_part(taken, not_taken) * all / own.count.max(f64::MIN_POSITIVE);
    came * by_side.min(1.0)
}

/// How often one side of a branch was taken, and how far more that may truly have been.
#[derive(Clone, Copy)]
struct Side {
    count: f64,
    at_most: f64,
}

fn rarer_part(taken: Side, not_taken: Side) -> f64 {
    let rarer = if taken.count < not_taken.count { taken } else { not_taken };
    (rarer.at_most / (taken.count + not_taken.count).max(f64::MIN_POSITIVE)).min(1.0)
}

/// Both sides of a conditional branch: as sampled, else by estimates; `None` where neither says anything.
fn sides(context: &ProcedureContext, branch: usize) -> Option<(Side, Side)> {
    if !matches!(context.instructions[branch].flow, Flow::Branch { .. }) {
        return None;
    }
    let (taken, not_taken) = context.directions.get(branch).copied().unwrap_or((0, 0));
    if taken > 0 || not_taken > 0 {
        // Three standard errors and a half more than were seen.
        let seen = |count: u64| {
            let count = count as f64;
            Side { count, at_most: count + 3.0 * count.max(1.0).sqrt() + 0.5 }
        };
        return Some((seen(taken), seen(not_taken)));
    }
    estimated_sides(context, context.block_of(branch))
}

fn estimated_sides(context: &ProcedureContext, block: usize) -> Option<(Side, Side)> {
    let side = |kind: EdgeKind| {
        let edge = context.cfg.successors[block].iter().find(|&&e| context.cfg.edges[e].kind == kind)?;
        let estimate = context.estimates.edges[*edge]?;
        let times = if estimate.confidence > Confidence::Low { ESTIMATE_TIMES } else { GUESS_TIMES };
        Some(Side { count: estimate.frequency, at_most: times * estimate.frequency })
    };
    let sides = (side(EdgeKind::Taken)?, side(EdgeKind::NotTaken)?);
    (sides.0.count + sides.1.count > 0.0).then_some(sides)
}
