//! Issue points for the mixture likelihood (DCPI §6.1.3), including the latencies that predecessors leave behind.
//!
//! Input: samples, the schedule, and how often each edge is taken. Output: the points of each block with their least
//! cycles and the probability that each stalls. Complexity: linear in instructions and in the distances from producers to
//! consumers.

use super::{Evidence, mixture::Point};
use crate::schedule::Risks;

/// Probabilities that a point stalls at run time by at least 2% of its cycles, by the possible cause. Counted on the
/// programs of role "tune" (`npm run accuracy`), each point weighted by the square root of its samples.
const STALLS_ANYWAY: f64 = 0.005;
const STALLS_ENTERED: f64 = 0.5;
const STALLS_LINE: f64 = 0.13;
const STALLS_DATA: f64 = 0.2;
const STALLS_LOAD: f64 = 0.06;
const STALLS_STORE: f64 = 0.1;
const STALLS_UNIT: f64 = 0.05;
/// An instruction with fewer cycles is not a point.
const CYCLES_MIN: f64 = 0.5;
/// An instruction that may issue together with predecessors for more than the rest of its M is not a point.
const CERTAIN_PART: f64 = 0.9;

/// Returns M by instruction: the block's own and, weighted by each edge's part of its entries, what the edge's source
/// changes.
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

/// Returns the issue points of each block.
///
/// A dynamic stall between a producer and its consumer overlaps the producer's latency, so the consumer waits less than
/// M. The paper then takes the ratio over the whole span; such spans overlap and share each other's stalls. Here the
/// point stays by itself, and with the probability that something in between stalls its cycles may be anything down to M
/// without the latency.
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
    // An instruction that may issue with the end of a predecessor says little.
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

/// Checks that each point takes time, no less than without the latencies that it waits for, and that probabilities are
/// between 0 and 1.
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
