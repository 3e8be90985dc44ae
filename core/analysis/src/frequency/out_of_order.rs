//! Frequencies on out-of-order machines: branch directions, flow conservation, one scale.
//!
//! Input: as [`Evidence`]. Output: estimates that conserve flow exactly. Complexity: linear, but for the elimination of
//! [`markov`](super::markov), for a constant number of rounds.
//!
//! Cycles of a block over the model's spread 0.6–10×, so cycles say little about frequency, and branch probabilities
//! nearly everything up to a scale (DESIGN.md §5). Each round:
//!
//! 1. undoes the skid, with the flow known so far;
//! 2. estimates each class from its cycles, as loosely as they deserve, blended with the flow known so far;
//! 3. finds each branch's probability: the most likely given the directions seen (binomial) and the classes'
//!    estimates (a log-normal prior on its odds);
//! 4. solves for the flow that these probabilities imply;
//! 5. scales it: by a low quantile of cycles over expected cycles, since stalls only ever add cycles. This scale is the
//!    weak point: where every block stalls alike, all frequencies come out too high by one factor. Hence all are of low
//!    confidence.

use super::{Estimate, Estimates, Evidence, markov, skid};
use crate::{
    Confidence,
    cfg::{EdgeKind, Node},
};

const ROUNDS: usize = 3;
/// Variance of the logarithm of one class's cycles over its expected cycles: a factor of about e either way.
const CYCLES_LOG_VARIANCE: f64 = 1.0;
/// The same of an edge that no class's cycles speak of.
const UNKNOWN_LOG_VARIANCE: f64 = 3.0;
/// Odds beyond e^±ODDS_LOG_MAX are not told apart.
const ODDS_LOG_MAX: f64 = 20.0;
/// The scale is where this part of the samples lies in classes that cost less than it says.
const SCALE_QUANTILE: f64 = 0.35;
/// Cycles over the front end's bound that a block takes at least, as a rule: programs rarely fill more than half of it.
const FRONT_END_TIMES: f64 = 2.0;
/// Samples below which a block's peak says nothing.
const PEAK_SAMPLES_MIN: f64 = 50.0;

/// `None` where the graph has missing edges or is too tangled for elimination.
pub fn estimate(evidence: &Evidence) -> Option<Estimates> {
    let cfg = evidence.cfg;
    if cfg.missing_edges || cfg.blocks.is_empty() {
        return None;
    }
    let mut shares = skid::edge_shares_by_samples(cfg, evidence.samples);
    let mut flow: Option<Flow> = None;
    let mut head_samples = Vec::new();
    for _ in 0..ROUNDS {
        head_samples = skid::undo(evidence, &shares);
        let classes = ClassCycles::of(evidence, &head_samples);
        let weights = edge_weights(evidence, &classes, flow.as_ref());
        let solved = Flow::solve(evidence, &weights)?.scaled(evidence, &classes);
        shares = skid::edge_shares(cfg, &solved.edges);
        flow = Some(solved);
    }
    let flow = flow?;
    debug_assert_eq!(flow.verify(evidence), Ok(()));
    // However well the ratios between blocks are known, samples of time alone leave the scale a guess.
    let guess = |f: &f64| Some(Estimate { frequency: *f, confidence: Confidence::Low });
    Some(Estimates {
        blocks: flow.blocks.iter().map(guess).collect(),
        edges: flow.edges.iter().map(guess).collect(),
        head_samples,
        notes: vec![note(evidence)],
    })
}

/// What cycles alone say of each class.
struct ClassCycles {
    /// Samples at the head of the machine.
    samples: Vec<f64>,
    /// Cycles that one execution of all the class's blocks should take; 0 for classes without blocks.
    expected: Vec<f64>,
}

impl ClassCycles {
    fn of(evidence: &Evidence, head_samples: &[f64]) -> Self {
        let classes = evidence.equivalence.classes;
        let mut cycles = ClassCycles { samples: vec![0.0; classes], expected: vec![0.0; classes] };
        for (block, &class) in evidence.equivalence.block_class.iter().enumerate() {
            let range = evidence.cfg.blocks[block].clone();
            cycles.samples[class] += range.map(|i| head_samples[i]).sum::<f64>();
            cycles.expected[class] += expected_cycles(evidence, block, head_samples);
        }
        cycles
    }

    fn has_blocks(&self, class: usize) -> bool {
        self.expected[class] > 0.0
    }

    /// Half a sample more than there are: a block without samples is rare, not impossible.
    fn frequency(&self, class: usize) -> f64 {
        (self.samples[class] + 0.5) / self.expected[class]
    }
}

/// A block's best case, or what the front end takes as a rule, lengthened where a load, a store or a locked operation
/// gathers far more samples than the model expects. The true length then lies between that and what the rest of the block says (all stalls at the
/// peak); we take the geometric middle, and of a load's latency the one between first level and memory.
fn expected_cycles(evidence: &Evidence, block: usize, head_samples: &[f64]) -> f64 {
    let Evidence { cfg, schedule, model, .. } = *evidence;
    let range = cfg.blocks[block].clone();
    let front_end: f64 = range.clone().map(|i| schedule.slot_cycles[i]).sum();
    let best = schedule.best_case_cycles[block].max(FRONT_END_TIMES * front_end);
    let total: f64 = range.clone().map(|i| head_samples[i]).sum();
    if total < PEAK_SAMPLES_MIN {
        return best;
    }
    let Some(peak) = range.max_by(|&a, &b| head_samples[a].total_cmp(&head_samples[b])) else { return best };
    let opcode = schedule.opcodes[peak];
    if !(opcode.load || opcode.store || opcode.synchronizes()) {
        return best;
    }
    let memory = &model.memory;
    let middle_latency = (memory.l1_cycles * memory.memory_cycles).sqrt();
    let is_chased = schedule.chased_load[block] == Some(peak);
    let expected_at_peak = if is_chased { memory.l1_cycles } else { schedule.expected_cycles(peak) };
    let rest_cycles = (best - expected_at_peak).max(schedule.slot_cycles[peak]);
    let rest_samples = (total - head_samples[peak]).max(1.0);
    let cycles_by_rest = total / (rest_samples / rest_cycles);
    let middle = (best * cycles_by_rest.max(best)).sqrt();
    middle.clamp(best, best + middle_latency)
}

/// A guess of each edge's frequency, and how sure its logarithm is.
struct EdgeWeights {
    frequency: Vec<f64>,
    log_variance: Vec<f64>,
}

/// Edges of a class with blocks begin with its estimate, others with the rarer of their ends'; then all are fitted to
/// their ends.
fn edge_weights(evidence: &Evidence, classes: &ClassCycles, flow: Option<&Flow>) -> EdgeWeights {
    let Evidence { cfg, equivalence, .. } = *evidence;
    // The flow knows more than the cycles do, and the cycles keep it from drifting.
    let blended = |(block, &class): (usize, &usize)| {
        let by_cycles = classes.frequency(class);
        flow.map_or(by_cycles, |f| (by_cycles * f.blocks[block]).sqrt())
    };
    let blocks: Vec<f64> = equivalence.block_class.iter().enumerate().map(blended).collect();
    let mut weights = EdgeWeights { frequency: Vec::new(), log_variance: Vec::new() };
    for (index, (edge, &class)) in cfg.edges.iter().zip(&equivalence.edge_class).enumerate() {
        let end = |node: Node| blocks.get(node).copied().unwrap_or(f64::INFINITY);
        let rarer_end = end(edge.from).min(end(edge.to));
        weights.frequency.push(match (edge.kind, flow) {
            // Nothing seen ever takes these.
            (kind, _) if kind.is_pseudo() => rarer_end * 1e-6,
            (_, Some(flow)) => flow.edges[index],
            _ => rarer_end,
        });
        weights.log_variance.push(match classes.has_blocks(class) {
            true => CYCLES_LOG_VARIANCE + 1.0 / (classes.samples[class] + 0.5),
            false => UNKNOWN_LOG_VARIANCE,
        });
    }
    fit_to_blocks(evidence, &blocks, &mut weights.frequency);
    weights
}

/// Iterative proportional fitting (Deming and Stephan, Annals of Mathematical Statistics 11, 1940), damped: what enters
/// and what leaves each block drifts towards the block's own estimate. The estimates contradict each other, so a few
/// rounds are as good as many.
fn fit_to_blocks(evidence: &Evidence, blocks: &[f64], edges: &mut [f64]) {
    const FITTING_ROUNDS: usize = 8;
    const LEAST: f64 = 1e-12;
    let cfg = evidence.cfg;
    for _ in 0..FITTING_ROUNDS {
        let missing = |lists: &[Vec<usize>]| -> Vec<f64> {
            let sum = |list: &Vec<usize>| list.iter().map(|&e| edges[e]).sum::<f64>().max(LEAST);
            (0..lists.len()).map(|n| blocks.get(n).map_or(1.0, |b| b.max(LEAST) / sum(&lists[n]))).collect()
        };
        let (out, into) = (missing(&cfg.successors), missing(&cfg.predecessors));
        for (frequency, edge) in edges.iter_mut().zip(&cfg.edges) {
            let fitted = *frequency * (out[edge.from] * into[edge.to]).sqrt();
            *frequency = fitted.clamp(LEAST, f64::MAX.sqrt());
        }
    }
}

/// Frequencies that conserve flow.
struct Flow {
    blocks: Vec<f64>,
    edges: Vec<f64>,
}

impl Flow {
    fn solve(evidence: &Evidence, weights: &EdgeWeights) -> Option<Flow> {
        let cfg = evidence.cfg;
        let probability = edge_probabilities(evidence, weights);
        // Entry and exit are one node, the outside, and the last.
        let outside = cfg.blocks.len();
        let transitions =
            cfg.edges.iter().zip(&probability).map(|(e, &p)| (e.from.min(outside), e.to.min(outside), p));
        let visits = markov::visits(outside + 1, transitions)?;
        let edges =
            cfg.edges.iter().zip(&probability).map(|(e, p)| visits[e.from.min(outside)] * p).collect();
        Some(Flow { blocks: visits[..outside].to_vec(), edges })
    }

    /// Scales to the samples.
    fn scaled(mut self, evidence: &Evidence, classes: &ClassCycles) -> Flow {
        let mut ratios: Vec<(f64, f64)> = evidence
            .equivalence
            .blocks_by_class()
            .iter()
            .enumerate()
            .filter_map(|(class, blocks)| {
                let frequency = self.blocks[*blocks.first()?];
                Some((classes.samples[class] / (classes.expected[class] * frequency), classes.samples[class]))
            })
            .filter(|(ratio, samples)| ratio.is_finite() && *samples > 0.0)
            .collect();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = ratios.iter().map(|r| r.1).sum();
        let mut below = 0.0;
        let quantile = ratios.iter().find(|(_, samples)| {
            below += samples;
            below >= SCALE_QUANTILE * total
        });
        let scale = quantile.map_or(1.0, |q| q.0);
        self.blocks.iter_mut().chain(&mut self.edges).for_each(|f| *f = (*f * scale).min(f64::MAX));
        self
    }

    /// What enters a block equals what leaves it.
    fn verify(&self, evidence: &Evidence) -> Result<(), String> {
        let cfg = evidence.cfg;
        for (block, &frequency) in self.blocks.iter().enumerate() {
            for edges in [&cfg.predecessors[block], &cfg.successors[block]] {
                let sum: f64 = edges.iter().map(|&e| self.edges[e]).sum();
                if (sum - frequency).abs() > 1e-6 * frequency.max(1e-300) {
                    return Err(format!("block {block} has {frequency}, its edges {sum}"));
                }
            }
        }
        Ok(())
    }
}

fn edge_probabilities(evidence: &Evidence, weights: &EdgeWeights) -> Vec<f64> {
    let cfg = evidence.cfg;
    let mut probability = vec![1.0; cfg.edges.len()];
    for (node, edges) in cfg.successors.iter().enumerate() {
        match directions_of(evidence, node, edges) {
            Some((taken, not_taken, seen)) => {
                let p = most_likely(weights, taken, not_taken, seen);
                (probability[taken], probability[not_taken]) = (p, odds_complement(p));
            }
            None => {
                let total: f64 = edges.iter().map(|&e| weights.frequency[e]).sum();
                edges.iter().for_each(|&e| probability[e] = weights.frequency[e] / total);
            }
        }
    }
    probability
}

fn odds_complement(p: f64) -> f64 {
    (1.0 - p).max((-ODDS_LOG_MAX).exp())
}

/// The two edges of a conditional branch, and how often each was seen about to be taken.
fn directions_of(evidence: &Evidence, node: Node, edges: &[usize]) -> Option<(usize, usize, (f64, f64))> {
    let block = evidence.cfg.blocks.get(node)?;
    let &(taken_seen, not_taken_seen) = evidence.directions.get(block.end - 1)?;
    let of_kind = |kind| edges.iter().copied().find(|&e| evidence.cfg.edges[e].kind == kind);
    let (taken, not_taken) = (of_kind(EdgeKind::Taken)?, of_kind(EdgeKind::NotTaken)?);
    let is_plain = edges.len() == 2 && taken_seen.saturating_add(not_taken_seen) > 0;
    is_plain.then_some((taken, not_taken, (taken_seen as f64, not_taken_seen as f64)))
}

/// The taken edge's probability: the largest of binomial likelihood × log-normal prior on the odds. The logarithm of
/// both is concave, so Newton's method, damped, finds it.
fn most_likely(weights: &EdgeWeights, taken: usize, not_taken: usize, seen: (f64, f64)) -> f64 {
    let prior =
        (weights.frequency[taken] / weights.frequency[not_taken]).ln().clamp(-ODDS_LOG_MAX, ODDS_LOG_MAX);
    let variance = weights.log_variance[taken] + weights.log_variance[not_taken];
    let n = seen.0 + seen.1;
    let slope = |odds_log: f64| seen.0 - n / (1.0 + (-odds_log).exp()) - (odds_log - prior) / variance;
    // The slope falls everywhere: bisection needs no damping and no luck.
    let (mut low, mut high) = (-ODDS_LOG_MAX, ODDS_LOG_MAX);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if slope(middle) > 0.0 { low = middle } else { high = middle }
    }
    1.0 / (1.0 + (-low).exp())
}

/// What the estimates rest on, in words.
fn note(evidence: &Evidence) -> String {
    let cfg = evidence.cfg;
    let branches = cfg.blocks.iter().enumerate().filter(|(b, _)| cfg.successors[*b].len() > 1);
    let seen = branches.map(|(_, range)| evidence.directions[range.end - 1]).any(|(t, n)| t > 0 || n > 0);
    match seen {
        true => "frequencies are relative: on an out-of-order machine samples of time do not fix their scale",
        false => "frequencies rest on cycles alone, which on an out-of-order machine say little about them",
    }
    .into()
}
