//! Branch misprediction (DCPI §6.3).
//!
//! In order the first instruction after a mispredicted branch waits: the head of a block that a predicted edge leads to,
//! or the instruction after a call whose return was mispredicted. Out of order the samples of the refill are on the first
//! and mostly on the second instruction of the target (docs/measured.md); with the skid undone, on the branch and on its
//! target.
//!
//! A predictor does no worse than always predicting the more frequent direction, so each direction of a branch is
//! mispredicted at most as often as the rarer direction is taken.

use dwell_image::Flow;

use crate::{
    Cause, Confidence,
    cfg::EdgeKind,
    culprits::{candidate::Candidate, context::ProcedureContext, stalled::StalledInstruction},
    machine::OpcodeClass,
};

/// The factor by which the estimated frequency of the rarer direction may be too small if confidence is low.
const GUESS_TIMES: f64 = 10.0;
/// The same factor if confidence is higher.
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
        // The return of the call may have been mispredicted.
        add(1.0, stalled.i - 1);
    }
    let after = context.head_after(stalled.i);
    let is_last = after == context.cfg.blocks[stalled.block].end;
    if !context.is_in_order() && is_last && is_predicted(context, after - 1) {
        add(part_by_branch(context, after - 1), after - 1);
    }
}

/// Adds the branches right before that the rule of the rarer direction ruled out, for cycles that nothing else explains:
/// branches that share an entry of the predictor disturb each other, however biased each is.
pub fn for_unexplained(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    let context = stalled.context;
    for (edge, branch) in branches_before(stalled) {
        let cycles_max = context.edge_part(edge, stalled.block) * penalty_cycles(context);
        candidates.push(Candidate { cause: Cause::BranchMispredict, cycles_max, culprit: Some(branch) });
    }
}

/// Returns the predicted edges into the block, each with the index of its branch.
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

/// Returns the greatest cost of a misprediction in cycles.
pub fn penalty_cycles_max(context: &ProcedureContext) -> f64 {
    times_known_late(context) * context.model.mispredict_cycles_at_most()
}

/// Returns 2 out of order, where the branch waits for its operands before the misprediction is known, otherwise 1.
fn times_known_late(context: &ProcedureContext) -> f64 {
    if context.is_in_order() { 1.0 } else { 2.0 }
}

fn is_predicted(context: &ProcedureContext, i: usize) -> bool {
    let flow = context.instructions[i].flow;
    matches!(flow, Flow::Branch { .. } | Flow::IndirectJump | Flow::Call { target: None })
        || context.opcode(i).class == OpcodeClass::Return
}

/// Returns an upper bound on the part of a branch's executions that are mispredicted.
fn part_by_branch(context: &ProcedureContext, branch: usize) -> f64 {
    match direction_counts(context, branch) {
        Some((taken, not_taken)) => rarer_part(taken, not_taken),
        None => 1.0,
    }
}

/// Returns an upper bound on the part of a block's executions that come by one edge and are mispredicted.
fn part_by_edge(context: &ProcedureContext, edge: usize, branch: usize, block: usize) -> f64 {
    let came = context.edge_part(edge, block);
    let Some((taken, not_taken)) = direction_counts(context, branch) else { return came };
    let own = if context.cfg.edges[edge].kind == EdgeKind::Taken { taken } else { not_taken };
    let all = taken.count + not_taken.count;
    // Mispredictions are at most as many as the rarer direction, and as this direction.
    let by_side = rarer_part(taken, not_taken) * all / own.count.max(f64::MIN_POSITIVE);
    came * by_side.min(1.0)
}

/// How often one direction of a branch was taken, and an upper bound on that.
#[derive(Clone, Copy)]
struct DirectionCount {
    count: f64,
    at_most: f64,
}

fn rarer_part(taken: DirectionCount, not_taken: DirectionCount) -> f64 {
    let rarer = if taken.count < not_taken.count { taken } else { not_taken };
    (rarer.at_most / (taken.count + not_taken.count).max(f64::MIN_POSITIVE)).min(1.0)
}

/// Returns the counts of both directions of a conditional branch, taken first: as sampled, otherwise as estimated.
/// Returns `None` if neither is known.
fn direction_counts(context: &ProcedureContext, branch: usize) -> Option<(DirectionCount, DirectionCount)> {
    if !matches!(context.instructions[branch].flow, Flow::Branch { .. }) {
        return None;
    }
    let (taken, not_taken) = context.directions.get(branch).copied().unwrap_or((0, 0));
    if taken > 0 || not_taken > 0 {
        // The bound is three standard errors plus a half.
        let seen = |count: u64| {
            let count = count as f64;
            DirectionCount { count, at_most: count + 3.0 * count.max(1.0).sqrt() + 0.5 }
        };
        return Some((seen(taken), seen(not_taken)));
    }
    estimated_counts(context, context.block_of(branch))
}

fn estimated_counts(context: &ProcedureContext, block: usize) -> Option<(DirectionCount, DirectionCount)> {
    let side = |kind: EdgeKind| {
        let edge = context.cfg.successors[block].iter().find(|&&e| context.cfg.edges[e].kind == kind)?;
        let estimate = context.estimates.edges[*edge]?;
        let times = if estimate.confidence > Confidence::Low { ESTIMATE_TIMES } else { GUESS_TIMES };
        Some(DirectionCount { count: estimate.frequency, at_most: times * estimate.frequency })
    };
    let counts = (side(EdgeKind::Taken)?, side(EdgeKind::NotTaken)?);
    (counts.0.count + counts.1.count > 0.0).then_some(counts)
}
