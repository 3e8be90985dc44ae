//! Issue points for the mixture likelihood (DCPI §6.1.3), with what predecessors leave behind.
//!
//! Input: samples, the schedule, and how often each edge is taken. Output: by block, the points with their least cycles
//! and how likely each stalls. Complexity: linear in instructions and in the distances from
//! producers to consumers.

use super::{Evidence, mixture::Point};
use crate::schedule::Risks;

/// How often a point stalls at run time by at least 2% of its cycles, by what could stall it. Counted on the programs of
/// role "tune" (`npm run accuracy`), each point weighted by the root of its samples.
const STALLS_ANYWAY: f64 = 0.005;
const STALLS_ENTERED: f64 = 0.5;
const STALLS_LINE: f64 = 0.13;
const STALLS_DATA: f64 = 0.2;
const STALLS_LOAD: f64 = 0.06;
const STALLS_STORE: f64 = 0.1;
const STALLS_UNIT: f64 = 0.05;
/// A point of fewer cycles is none.
const CYCLES_MIN: f64 = 0.5;
/// Nor is one that loses more than the rest of its M to issuing with predecessors.
const CERTAIN_PART: f64 = 0.9;

/// M by instruction: the block's own and, for each edge's part of its entries, what its source changes.
pub fn issue_cycles(evidence: &Evidence, edge_shares: &[f64]) -> Vec<f64> {
    let mut cycles = evidence.schedule.issue_cycles_min.clone();
    for (carried, share) in evidence.schedule.carried.iter().zip(edge_shares) {
        for c in carried {
            cycles[c.instruction] += share * c.cycles;
        }
    }
    cycles.iter_mut().for_each(|c| *c = c.max(0.0));
    cycles
}

/// Issue points by block.
///
/// A dynamic stall between a producer and its consumer overlaps the producer's latency, so the consumer waits less than
/// M. The paper then takes the ratio over all that lies between; such spans overlap and share each other's stalls. Here
/// the point stays alone, and anything down to its M without the latency is possible as often as something in between
/// stalls.
pub fn by_block(evidence: &Evidence, cycles: &[f64]) -> Vec<Vec<Point>> {
    let Evidence { cfg, schedule, samples, .. } = *evidence;
    let prior = |i: usize| stall_prior(schedule.risks.get(i).copied().unwrap_or_default());
    let point = |start: usize, i: usize| {
        let own = schedule.issue_cycles_min[i];
        let producer = schedule.waits_for[i].filter(|j| (start..i).contains(j));
        let free_between = producer.map_or(1.0, |j| (j + 1..i).map(|k| 1.0 - prior(k)).product());
        Point {
            samples: samples[i] as f64,
            cycles: cycles[i],
            cycles_floor: schedule.issue_cycles_floor[i].min(cycles[i]),
            hidden_prior: if schedule.issue_cycles_floor[i] < own { 1.0 - free_between } else { 0.0 },
            stall_prior: prior(i),
            is_head: i == start,
        }
    };
    // What may also issue with a predecessor's end tells little.
    let is_point = |i: usize| {
        let own = schedule.issue_cycles_min[i];
        cycles[i] >= CYCLES_MIN && cycles[i] >= CERTAIN_PART * own
    };
    let of_block =
        |r: &std::ops::Range<usize>| r.clone().filter(|&i| is_point(i)).map(|i| point(r.start, i)).collect();
    let points: Vec<_> = cfg.blocks.iter().map(of_block).collect();
    debug_assert_eq!(verify_points(&points), Ok(()));
    points
}

/// Checks that each point takes time, no less than without what it waits for, and that probabilities are some.
fn verify_points(blocks: &[Vec<Point>]) -> Result<(), String> {
    let is_probability = |p: f64| (0.0..=1.0).contains(&p);
    let is_sound = |p: &Point| {
        p.cycles > 0.0
            && (0.0..=p.cycles).contains(&p.cycles_floor)
            && p.samples >= 0.0
            && is_probability(p.stall_prior)
            && is_probability(p.hidden_prior)
    };
    match blocks.iter().flatten().find(|p| !is_sound(p)) {
        Some(point) => Err(format!("{point:?}")),
        None => Ok(()),
    }
}

fn stall_prior(risks: Risks) -> f64 {
    let parts = [
        (risks.entered, STALLS_ENTERED),
        (risks.line, STALLS_LINE),
        (risks.data, STALLS_DATA),
        (risks.load, STALLS_LOAD),
        (risks.store, STALLS_STORE),
        (risks.unit, STALLS_UNIT),
    ];
    let free = parts.iter().filter(|p| p.0).fold(1.0 - STALLS_ANYWAY, |free, p| free * (1.0 - p.1));
    1.0 - free
}
