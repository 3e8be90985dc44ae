//! What the heads behind a conditional branch say together of its odds, though mispredictions stall both.
//!
//! Input: samples, M, and the flow so far. Output: for a branch, how many times one would have to see it decided to
//! know its odds as well. Complexity: linear in branches.
//!
//! Where each side of an unpredictable branch has no issue point but its first, the mixture of each side alone leaves the
//! odds open: a few executions with stalls, or many without. Together they do not. With F executions of the branch, of
//! which a part p goes to side T, the samples are S_T = p·F·M_T + c·m_T and S_N = (1 − p)·F·M_N + c·m_N, where m are the
//! mispredictions of each direction and c what one costs: two equations for p and two kinds of m. Mispredictions come
//! about as often in either direction where history leaves an even chance; a predictor that always says the likelier
//! direction mispredicts the other alone, so m_T / m_N lies between 1 and the inverse odds. Near even odds that hardly
//! matters, and farther away the variance says that it does.
//! The paper has nothing of the kind: it takes each class alone (§6.1.3).

use super::{Evidence, flow_fit::Flow};
use crate::{
    cfg::{Cfg, EdgeKind},
    schedule::Risks,
};

/// Variance of the logarithm of the odds for what else stalls a head. On the programs of role "tune" anything from 0.02
/// to 0.15 is as good.
const ODDS_LOG_VARIANCE: f64 = 0.1;
/// Parts that are not told from none and all.
const PART_MIN: f64 = 1e-4;
/// Samples of both heads below which they say nothing.
const SAMPLES_MIN: f64 = 10.0;

/// A conditional branch whose two targets' heads wait for nothing but it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fork {
    /// The block that ends in the branch.
    block: usize,
    sides: [Side; 2],
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Side {
    edge: usize,
    target: usize,
    /// No other edge leads to the target.
    alone: bool,
}

/// What the heads of a fork say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The block that ends in the branch.
    pub block: usize,
    /// Each edge with the times one would have seen it taken.
    pub edges: [(usize, f64); 2],
    /// Blocks whose heads have said what they can.
    pub heads: [Option<usize>; 2],
}

/// The forks of a procedure.
pub fn forks(evidence: &Evidence) -> Vec<Fork> {
    let cfg = evidence.cfg;
    (0..cfg.blocks.len()).filter_map(|block| fork(evidence, block)).collect()
}

fn fork(evidence: &Evidence, block: usize) -> Option<Fork> {
    let cfg = evidence.cfg;
    let of = |kind| cfg.successors[block].iter().copied().find(|&e| cfg.edges[e].kind == kind);
    let (taken, not_taken) = (of(EdgeKind::Taken)?, of(EdgeKind::NotTaken)?);
    let sides = [side(evidence, taken)?, side(evidence, not_taken)?];
    (sides[0].target != sides[1].target).then_some(Fork { block, sides })
}

fn side(evidence: &Evidence, edge: usize) -> Option<Side> {
    let Cfg { blocks, edges, predecessors, .. } = evidence.cfg;
    let target = edges[edge].to;
    let head = blocks.get(target)?.start;
    let others = predecessors[target].iter().filter(|&&e| e != edge);
    // What else enters must not be mispredicted, nor the head wait for anything but its fetch.
    let mut others_kinds = others.clone().map(|&e| edges[e].kind);
    let is_sure = others_kinds.all(|k| matches!(k, EdgeKind::FallThrough | EdgeKind::Jump));
    let waits = |r: &Risks| r.data || r.store || r.unit;
    let is_pure = evidence.schedule.risks.get(head).is_some_and(|r| !waits(r));
    (is_sure && is_pure).then_some(Side { edge, target, alone: others.count() == 0 })
}

impl Fork {
    /// What its heads say at the flow so far; `cycles` are M by instruction.
    pub fn seen(&self, evidence: &Evidence, cycles: &[f64], flow: &Flow) -> Option<Seen> {
        let heads = self.sides.map(|side| Head::of(evidence, side, cycles, flow));
        let executions = flow.blocks[self.block];
        let samples = heads[0].samples + heads[1].samples;
        if samples < SAMPLES_MIN || heads.iter().any(|h| h.stall_cycles <= 0.0) || executions <= 0.0 {
            return None;
        }
        let odds = Odds::of(&heads, executions)?;
        let times = 1.0 / (odds.log_variance * odds.part * (1.0 - odds.part));
        let said = |side: Side| side.alone.then_some(side.target);
        let seen = Seen {
            block: self.block,
            edges: [(self.sides[0].edge, odds.part * times), (self.sides[1].edge, (1.0 - odds.part) * times)],
            heads: self.sides.map(said),
        };
        debug_assert_eq!(verify_seen(&seen, evidence.cfg), Ok(()));
        Some(seen)
    }
}

/// Checks that both edges leave the branch's block for different ones, that both were seen no less than never and no surer
/// than the variance allows, and that only heads to which no other edge leads have said all.
fn verify_seen(seen: &Seen, cfg: &Cfg) -> Result<(), String> {
    let ends = seen.edges.map(|(edge, _)| (cfg.edges[edge].from, cfg.edges[edge].to));
    let is_fork = ends.iter().all(|e| e.0 == seen.block) && ends[0].1 != ends[1].1;
    let [first, second] = seen.edges.map(|e| e.1);
    // A binomial's variance of the logarithm of the odds.
    let variance = first.recip() + second.recip();
    let is_some = first >= 0.0 && second >= 0.0 && variance >= ODDS_LOG_VARIANCE * (1.0 - 1e-9);
    let is_alone = |(head, end): (&Option<usize>, &(usize, usize))| {
        head.is_none_or(|block| block == end.1 && cfg.predecessors[block].len() == 1)
    };
    let are_alone = seen.heads.iter().zip(&ends).all(is_alone);
    if is_fork && is_some && are_alone { Ok(()) } else { Err(format!("{seen:?} of {ends:?}")) }
}

/// The first instruction behind a branch.
struct Head {
    samples: f64,
    /// M.
    cycles: f64,
    /// What a misprediction adds.
    stall_cycles: f64,
    /// Its executions where they do not depend on the branch alone.
    executions: Option<f64>,
}

impl Head {
    fn of(evidence: &Evidence, side: Side, cycles: &[f64], flow: &Flow) -> Head {
        let head = evidence.cfg.blocks[side.target].start;
        let cycles = cycles[head];
        Head {
            samples: evidence.samples[head] as f64,
            cycles,
            // Operands arrive while the right instructions are fetched.
            stall_cycles: evidence.model.mispredict_cycles + 1.0 - cycles.max(1.0),
            executions: (!side.alone).then(|| flow.blocks[side.target]),
        }
    }

    /// Mispredictions were no execution here, and how many fewer they are for each.
    fn mispredictions(&self) -> (f64, f64) {
        let per_execution = self.cycles / self.stall_cycles;
        let all = self.samples / self.stall_cycles;
        self.executions.map_or((all, per_execution), |f| ((all - f * per_execution).max(0.0), 0.0))
    }
}

/// Odds of a fork.
struct Odds {
    /// The first side's part.
    part: f64,
    /// The variance of the logarithm of the odds.
    log_variance: f64,
}

impl Odds {
    /// Where both directions are mispredicted equally often, moved by half of what a predictor that mispredicts in
    /// inverse proportion would make of it (to first order), with the variance of all between. Of `executions`.
    fn of(heads: &[Head; 2], executions: f64) -> Option<Odds> {
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

    /// `mispredicted` of the first direction; of the second as many times the odds to the power of `exponent`.
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
    fn odds_follow_from_both_heads_though_both_stall() {
        for part in [0.3, 0.5, 0.6] {
            for exponent in [0.0, 0.5, 1.0] {
                let odds = Odds::of(&heads(part, 1000.0, 90.0, exponent), 1000.0).unwrap();
                let off = (odds.part / (1.0 - odds.part)).ln() - (part / (1.0 - part)).ln();
                assert!(off * off < 4.0 * odds.log_variance, "{part} {exponent}: {}", odds.part);
            }
        }
    }

    #[test]
    fn without_mispredictions_heads_count() {
        let odds = Odds::of(&heads(0.9, 1000.0, 0.0, 0.0), 1000.0).unwrap();
        assert!((odds.part - 0.9).abs() < 1e-6, "{}", odds.part);
    }
}
