//! Stalls for want of the instruction itself: instruction cache, instruction TLB, branch prediction (DCPI §6.3).
//!
//! An instruction cannot stall for the instruction cache if it lies in the line of all that can run right before it.
//! In order the one that comes first out of a new line stalls. Out of order, with the skid undone, the samples of a
//! fetch stall are on the instruction before the line (whose successor is missing) and on the line's first, and those of
//! a misprediction on the branch and on the first instruction of its target (DESIGN.md §5).

use dwell_image::{Flow, Instruction};

use super::{Scene, Suspect, is_in_order, predecessors};
use crate::{Cause, machine::OpcodeClass};

/// Adds what was not ruled out.
pub fn suspects(scene: &Scene, block: usize, i: usize, suspects: &mut Vec<Suspect>) {
    let memory = &scene.model.memory;
    mispredict_suspects(scene, block, i, suspects);
    if stays_fetched(scene, block) {
        return;
    }
    if may_cross(scene, block, i, memory.line_bytes) {
        suspects.push(Suspect { cause: Cause::ICacheMiss, cycles_max: memory.memory_cycles, culprit: None });
    }
    if may_cross(scene, block, i, memory.page_bytes) {
        let cycles_max = memory.itlb_miss_cycles + memory.memory_cycles;
        suspects.push(Suspect { cause: Cause::ItlbMiss, cycles_max, culprit: None });
    }
}

/// Whether the block, as a rule, has itself just run, and nothing else: then its lines are at hand.
fn stays_fetched(scene: &Scene, block: usize) -> bool {
    const BYTES_MAX: u64 = 4096;
    let range = scene.cfg.blocks[block].clone();
    let bytes =
        scene.instructions[range.end - 1].end().0.wrapping_sub(scene.instructions[range.start].address.0);
    let calls = range
        .clone()
        .any(|i| matches!(scene.schedule.opcodes[i].class, OpcodeClass::Call | OpcodeClass::System));
    let mut before = predecessors(scene, block).peekable();
    !calls && bytes <= BYTES_MAX && before.peek().is_some() && before.all(|(_, b)| b.as_ref() == Some(&range))
}

/// Whether some instruction that can run right before `i` (out of order: or right after it) lies in another unit of
/// `bytes`.
fn may_cross(scene: &Scene, block: usize, i: usize, bytes: u64) -> bool {
    let unit = |address: u64| address / bytes;
    let last_byte = |i: &Instruction| i.end().0.wrapping_sub(1);
    let crosses =
        |before: &Instruction, after: &Instruction| unit(last_byte(before)) != unit(last_byte(after));
    let own = &scene.instructions[i];
    let range = scene.cfg.blocks[block].clone();
    let comes_new = if i > range.start {
        crosses(&scene.instructions[i - 1], own)
    } else {
        predecessors(scene, block).any(|(_, before)| match before {
            Some(before) => crosses(&scene.instructions[before.end - 1], own),
            None => true,
        })
    };
    comes_new || (!is_in_order(scene) && successor_is_new(scene, block, i, &crosses))
}

fn successor_is_new(
    scene: &Scene,
    block: usize,
    i: usize,
    crosses: &dyn Fn(&Instruction, &Instruction) -> bool,
) -> bool {
    let own = &scene.instructions[i];
    let next = head_after(scene, i);
    if next < scene.cfg.blocks[block].end {
        return crosses(own, &scene.instructions[next]);
    }
    let cfg = scene.cfg;
    cfg.successors[block].iter().any(|&e| {
        let target = cfg.blocks.get(cfg.edges[e].to).map(|b| &scene.instructions[b.start]);
        !super::is_rare(scene, e, block) && target.is_some_and(|t| crosses(own, t))
    })
}

/// The index after `i` and its fused branch.
fn head_after(scene: &Scene, i: usize) -> usize {
    let next = i + 1;
    if scene.schedule.is_fused.get(next) == Some(&true) { next + 1 } else { next }
}

fn mispredict_suspects(scene: &Scene, block: usize, i: usize, suspects: &mut Vec<Suspect>) {
    let range = scene.cfg.blocks[block].clone();
    if i == range.start {
        // Guilty is the worst of the branches that lead here.
        let worst = predecessors(scene, block)
            .filter(|(edge, _)| scene.cfg.edges[*edge].kind.is_predicted())
            .filter_map(|(_, before)| before.map(|b| b.end - 1))
            .map(|branch| (mispredict_cycles_max(scene, branch), branch))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((cycles_max, branch)) = worst {
            suspects.push(Suspect { cause: Cause::BranchMispredict, cycles_max, culprit: Some(branch) });
        }
    }
    let after = head_after(scene, i);
    let branch = after - 1;
    if !is_in_order(scene) && after == range.end && is_predicted(&scene.instructions[branch], scene, branch) {
        let cycles_max = mispredict_cycles_max(scene, branch);
        suspects.push(Suspect { cause: Cause::BranchMispredict, cycles_max, culprit: Some(branch) });
    }
}

fn is_predicted(branch: &Instruction, scene: &Scene, i: usize) -> bool {
    matches!(branch.flow, Flow::Branch { .. } | Flow::IndirectJump | Flow::Call { target: None })
        || scene.schedule.opcodes[i].class == OpcodeClass::Return
}

/// A predictor does no worse than always guessing the more frequent side. The branch itself waits for its operands before
/// the misprediction is known, so its penalty is doubled.
fn mispredict_cycles_max(scene: &Scene, branch: usize) -> f64 {
    let penalty = 2.0 * scene.model.mispredict_cycles;
    if !matches!(scene.instructions[branch].flow, Flow::Branch { .. }) {
        return penalty;
    }
    let (taken, not_taken) = scene.directions.get(branch).copied().unwrap_or((0, 0));
    let (taken, not_taken) = (taken as f64, not_taken as f64);
    let seen = taken + not_taken;
    if seen < 1.0 {
        return penalty * rarer_side_max(scene, branch);
    }
    let rarer = taken.min(not_taken);
    // Three standard errors and a half more than were seen.
    penalty * ((rarer + 3.0 * rarer.max(1.0).sqrt() + 0.5) / seen).min(1.0)
}

/// The part of a branch's executions that can at most go the rarer way, where no direction was sampled: ten times the
/// estimate, which may be a guess.
fn rarer_side_max(scene: &Scene, branch: usize) -> f64 {
    const TIMES: f64 = 10.0;
    let block = scene.cfg.blocks.partition_point(|b| b.start <= branch) - 1;
    let sides = &scene.cfg.successors[block];
    let rarer =
        sides.iter().filter_map(|&e| scene.estimates.edges[e]).map(|e| e.frequency).fold(f64::MAX, f64::min);
    let own = scene.estimates.blocks[block].map_or(0.0, |e| e.frequency);
    if own > 0.0 && rarer < f64::MAX { (TIMES * rarer / own).min(1.0) } else { 1.0 }
}
