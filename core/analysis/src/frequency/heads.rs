//! The odds of a conditional branch from the samples of both instructions that follow it, though mispredictions stall
//! both.
//!
//! Input: samples, M, and the flow so far. Output: for a branch, the number of observed directions that would be equally
//! certain. Complexity: linear in branches.
//!
//! If each target of an unpredictable branch has no issue point but its first instruction (its head), the mixture of each
//! target alone leaves the odds open: a few executions with stalls, or many without. Both together determine them. With F
//! executions of the branch, a part p of which goes to target T, the samples are S_T = p·F·M_T + c·m_T and S_N = (1 −
//! p)·F·M_N + c·m_N, where m are the mispredictions of each direction and c is the cost of one: two equations for p and
//! two kinds of m. If history leaves an even chance, mispredictions are about equally frequent in either direction; a
//! predictor that always predicts the likelier direction mispredicts the other alone, so m_T / m_N lies between 1 and the
//! inverse odds. Near even odds that hardly matters; farther away it increases the variance. The paper has no
//! counterpart: it estimates each class alone (§6.1.3).

use super::{Evidence, flow_fit::Flow};
use crate::{
    cfg::{Cfg, EdgeKind},
    schedule::Risks,
};

/// Variance of the logarithm of the odds, for other causes that stall a head. On the programs of role "tune" any value
/// from 0.02 to 0.15 is as good.
const ODDS_LOG_VARIANCE: f64 = 0.1;
/// The least part of either direction.
const PART_MIN: f64 = 1e-4;
/// The least samples of both heads together.
const SAMPLES_MIN: f64 = 10.0;

/// A conditional branch whose two targets have heads that wait for nothing but the branch.
#[derive(Clone, Debug, PartialEq)]
pub struct Fork {
    /// The index of the block that ends in the branch.
    block: usize,
    targets: [BranchTarget; 2],
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct BranchTarget {
    edge: usize,
    block: usize,
    /// Whether no other edge leads to the target.
    alone: bool,
}

/// The directions that the samples of both heads are worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirectionEvidence {
    /// The index of the block that ends in the branch.
    pub block: usize,
    /// The two edges, each with the equivalent number of observations.
    pub edges: [(usize, f64); 2],
    /// The blocks whose heads are used up by this evidence.
    pub heads: [Option<usize>; 2],
}

/// Returns the forks of a procedure.
pub fn forks(evidence: &Evidence) -> Vec<Fork> {
    let cfg = evidence.cfg;
    (0..cfg.blocks.len()).filter_map(|block| fork(evidence, block)).collect()
}

fn fork(evidence: &Evidence, block: usize) -> Option<Fork> {
    let cfg = evidence.cfg;
    let of = |kind| cfg.successors[block].iter().copied().find(|&e| cfg.edges[e].kind == kind);
    let (taken, not_taken) = (of(EdgeKind::Taken)?, of(EdgeKind::NotTaken)?);
    let targets = [branch_target(evidence, taken)?, branch_target(evidence, not_taken)?];
    (targets[0].block != targets[1].block).then_some(Fork { block, targets })
}

fn branch_target(evidence: &Evidence, edge: usize) -> Option<BranchTarget> {
    let Cfg { blocks, edges, predecessors, .. } = evidence.cfg;
    let target = edges[edge].to;
    let head = blocks.get(target)?.start;
    let others = predecessors[target].iter().filter(|&&e| e != edge);
    // Other edges into the target must not be mispredicted, and the head must wait for nothing but its fetch.
    let mut others_kinds = others.clone().map(|&e| edges[e].kind);
    let is_sure = others_kinds.all(|k| matches!(k, EdgeKind::FallThrough | EdgeKind::Jump));
    let waits = |r: &Risks| r.data || r.store || r.unit;
    let is_pure = evidence.schedule.risks.get(head).is_some_and(|r| !waits(r));
    (is_sure && is_pure).then_some(BranchTarget { edge, block: target, alone: others.count() == 0 })
}

impl Fork {
    /// Returns the evidence of the heads, given the flow so far. `cycles` are M by instruction.
    pub fn evidence(&self, evidence: &Evidence, cycles: &[f64], flow: &Flow) -> Option<DirectionEvidence> {
        let heads = self.targets.map(|target| Head::new(evidence, target, cycles, flow));
        let executions = flow.blocks[self.block];
        let samples = heads[0].samples + heads[1].samples;
        if samples < SAMPLES_MIN || heads.iter().any(|h| h.stall_cycles <= 0.0) || executions <= 0.0 {
            return None;
        }
        let odds = Odds::from_heads(&heads, executions)?;
        let times = 1.0 / (odds.log_variance * odds.part * (1.0 - odds.part));
        let decided = |target: BranchTarget| target.alone.then_some(target.block);
        let seen = DirectionEvidence {
            block: self.block,
            edges: [
                (self.targets[0].edge, odds.part * times),
                (self.targets[1].edge, (1.0 - odds.part) * times),
            ],
            heads: self.targets.map(decided),
        };
        debug_assert_eq!(verify_evidence(&seen, evidence.cfg), Ok(()));
        Some(seen)
    }
}

/// Checks that both edges leave the branch's block for different blocks, that their counts are not negative and no more
/// certain than the variance allows, and that only targets without other predecessors are used up.
fn verify_evidence(seen: &DirectionEvidence, cfg: &Cfg) -> Result<(), String> {
    let ends = seen.edges.map(|(edge, _)| (cfg.edges[edge].from, cfg.edges[edge].to));
    let is_fork = ends.iter().all(|e| e.0 == seen.block) && ends[0].1 != ends[1].1;
    let [first, second] = seen.edges.map(|e| e.1);
    // The variance of the logarithm of the odds of a binomial distribution.
    let variance = first.recip() + second.recip();
    let is_some = first >= 0.0 && second >= 0.0 && variance >= ODDS_LOG_VARIANCE * (1.0 - 1e-9);
    let is_alone = |(head, end): (&Option<usize>, &(usize, usize))| {
        head.is_none_or(|block| block == end.1 && cfg.predecessors[block].len() == 1)
    };
    let are_alone = seen.heads.iter().zip(&ends).all(is_alone);
    if is_fork && is_some && are_alone { Ok(()) } else { Err(format!("{seen:?} of {ends:?}")) }
}

/// The first instruction after a branch.
struct Head {
    samples: f64,
    /// M: its least cycles.
    cycles: f64,
    /// Cycles that a misprediction adds.
    stall_cycles: f64,
    /// Its executions, where they do not depend on the branch alone.
    executions: Option<f64>,
}

impl Head {
    fn new(evidence: &Evidence, target: BranchTarget, cycles: &[f64], flow: &Flow) -> Head {
        let head = evidence.cfg.blocks[target.block].start;
        let cycles = cycles[head];
        Head {
            samples: evidence.samples[head] as f64,
            cycles,
            // Operands become ready while the right instructions are fetched.
            stall_cycles: evidence.model.mispredict_cycles + 1.0 - cycles.max(1.0),
            executions: (!target.alone).then(|| flow.blocks[target.block]),
        }
    }

    /// Returns how many mispredictions its samples would be if it were never executed, and how many fewer for each
    /// execution.
    fn mispredictions(&self) -> (f64, f64) {
        let per_execution = self.cycles / self.stall_cycles;
        let all = self.samples / self.stall_cycles;
        self.executions.map_or((all, per_execution), |f| ((all - f * per_execution).max(0.0), 0.0))
    }
}

/// The odds of a fork.
struct Odds {
    /// The part that goes to the first target.
    part: f64,
    /// The variance of the logarithm of the odds.
    log_variance: f64,
}

impl Odds {
    /// Computes the odds for `executions` of the branch if both directions are mispredicted equally often, moved (to
    /// first order) half way to the odds if they are mispredicted in inverse proportion; the variance covers the range
    /// between.
    fn from_heads(heads: &[Head; 2], executions: f64) -> Option<Odds> {
        let [(first, first_fewer), (second, second_fewer)] = heads.each_ref().map(Head::mispredictions);
        let slope = executions * (first_fewer + second_fewer);
        if slope <= 0.0 {
            return None;
        }
        let within = |part: f64| part.clamp(PART_MIN, 1.0 - PART_MIN);
        let even = within((first - second + executions * second_fewer) / slope);
        let mispredicted = (first - even * executions * first_fewer).max(0.0);
        let log_odds = (even / (1.0 - even)).ln();
        let range = mispredicted * log_odds / slope;
        let part = within(even + 0.5 * range);
        let spread = part * (1.0 - part);
        let samples = heads.iter().map(|h| h.samples / h.stall_cycles / h.stall_cycles).sum::<f64>();
        let part_variance = range * range / 12.0 + samples / (slope * slope);
        Some(Odds { part, log_variance: ODDS_LOG_VARIANCE + part_variance / (spread * spread) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first direction has `mispredicted` mispredictions; the second has as many times the odds to the power of
    /// `exponent`.
    fn heads(part: f64, executions: f64, mispredicted: f64, exponent: f64) -> [Head; 2] {
        let (cycles, stall_cycles) = ([1.0, 2.0], [8.0, 7.0]);
        let other = mispredicted * (part / (1.0 - part)).powf(exponent);
        let head = |k: usize, times: f64, missed: f64| Head {
            samples: times * cycles[k] + missed * stall_cycles[k],
            cycles: cycles[k],
            stall_cycles: stall_cycles[k],
            executions: None,
        };
        [head(0, part * executions, mispredicted), head(1, (1.0 - part) * executions, other)]
    }

    #[test]
    fn odds_are_estimated_although_both_heads_stall() {
        for part in [0.3, 0.5, 0.6] {
            for exponent in [0.0, 0.5, 1.0] {
                let odds = Odds::from_heads(&heads(part, 1000.0, 90.0, exponent), 1000.0).unwrap();
                let off = (odds.part / (1.0 - odds.part)).ln() - (part / (1.0 - part)).ln();
                assert!(off * off < 4.0 * odds.log_variance, "{part} {exponent}: {}", odds.part);
            }
        }
    }

    #[test]
    fn without_mispredictions_heads_count() {
        let odds = Odds::from_heads(&heads(0.9, 1000.0, 0.0, 0.0), 1000.0).unwrap();
        assert!((odds.part - 0.9).abs() < 1e-6, "{}", odds.part);
    }
}
