//! Frequencies on out-of-order machines: branch directions, flow conservation, one scale.
//!
//! Input: [`Evidence`]. Output: estimates that conserve flow exactly. Complexity: linear, except for the elimination of
//! [`markov`](super::markov), for a constant number of rounds.
//!
//! The cycles of a block are 0.6 to 10 times the model's, so they say little about frequency; branch probabilities
//! determine nearly everything up to a scale (docs/measured.md). Each round:
//!
//! 1. undoes the skid, with the flow known so far;
//! 2. estimates each class from its cycles, with a large variance, blended with the flow known so far;
//! 3. fits the most likely flow to them, to the observed directions and to counts ([`likely_flow`]);
//! 4. if no instructions were counted, scales it by a low quantile of cycles over expected cycles, since stalls only ever
//!    add cycles. This scale is the weak point: where every block stalls alike, all frequencies are too high by the same
//!    factor, so their confidence is low.

use super::{
    Estimate, Estimates, Evidence, absolute, basis, counted,
    likely_flow::{self, Count, Fitter, Flow, Suggestion},
    retired, skid, stepped, typical_cycles,
};
use crate::{
    Basis, Scale, ScaleKind,
    cfg::{CfgEdge, EdgeKind, Node},
};

/// Steps of the fit in each round. The first round only shows where the samples belong.
const STEPS_MAX: [usize; 3] = [4, 4, 12];
/// Variance of the logarithm of one class's cycles over its expected cycles: a factor of two either way.
const CYCLES_LOG_VARIANCE: f64 = 0.5;
/// Variance of the logarithm of a direction's odds in samples over its true odds: a sample on a branch prefers the
/// direction that waits longer for it. Chosen on the programs of role "tune".
const DIRECTION_LOG_VARIANCE: f64 = 0.15;
/// The same two variances where there are path bursts too: the error of the other evidence is the same from sample to
/// sample. Chosen on the programs of role "tune".
const STEPPED_LOG_VARIANCE: f64 = 3.0;
/// The scale is such that this part of the samples is in classes that cost less than expected.
const SCALE_QUANTILE: f64 = 0.35;
/// The least samples of a block for its peak to be considered.
const PEAK_SAMPLES_MIN: f64 = 50.0;
/// The part of a peak's samples that may be on the instruction before it instead of after it (docs/measured.md): a busy
/// host takes the processor in the middle of a wait, and returns it with the timer due.
const UNSKIDDED_PART: f64 = 0.1;

/// Estimates a procedure. Returns `None` if the graph has missing edges or elimination would take too much work.
pub fn estimate(evidence: &Evidence) -> Option<Estimates> {
    let cfg = evidence.cfg;
    if cfg.blocks.is_empty() {
        return None;
    }
    if cfg.missing_edges {
        return retired::by_block(evidence);
    }
    let mut shares = skid::edge_shares_by_samples(cfg, evidence.samples);
    let mut flow: Option<Flow> = None;
    let mut head_samples = Vec::new();
    let seen = seen_edges(evidence);
    let counts = counts(evidence);
    let fitter = Fitter::new(cfg)?;
    let is_absolute = evidence.retired.is_none() && absolute::number(evidence) > 0;
    let mut deviations = Vec::new();
    for (round, steps_max) in STEPS_MAX.into_iter().enumerate() {
        head_samples = skid::undo(evidence, &shares);
        let classes = ClassCycles::new(evidence, &head_samples, flow.as_ref());
        let guess = guess_edges(evidence, &classes, flow.as_ref());
        let suggestions = suggestions(evidence, &classes);
        let shown = likely_flow::Evidence {
            seen: &seen,
            guess: &guess,
            suggestions: &suggestions,
            counts: &counts,
            flow_scale: counts.last().map_or(0, |c| if is_absolute { c.scale } else { 0 }),
        };
        let fitted = fitter.fit(&shown, steps_max)?;
        let is_last = round + 1 == STEPS_MAX.len();
        if is_last && (is_absolute || evidence.is_anchored) {
            deviations = fitted.deviations();
        }
        // Counts need no guess of the scale.
        let is_scaled = evidence.retired.is_some() || is_absolute;
        let solved = if is_scaled { fitted.flow } else { scale(fitted.flow, evidence, &classes) };
        shares = skid::edge_shares(cfg, &solved.edges);
        flow = Some(solved);
    }
    let flow = flow?;
    if is_absolute {
        let of_scale: Vec<Count> =
            counts.iter().filter(|c| Some(c.scale) == counts.last().map(|c| c.scale)).copied().collect();
        let times = absolute::disagreement(&of_scale, &flow);
        let least = absolute::least_deviation(evidence);
        deviations.iter_mut().for_each(|d| *d = (*d * times).max(least));
    }
    // However well the ratios between blocks are known, samples of time alone leave the scale a guess.
    let confidences = retired::Confidences::new(evidence);
    let estimate = |(&frequency, &class): (&f64, &usize)| {
        Some(Estimate { frequency, confidence: confidences.get(class, frequency) })
    };
    let (blocks, edges) = (&evidence.equivalence.block_class, &evidence.equivalence.edge_class);
    let basis = basis::from_evidence(evidence);
    Some(Estimates {
        blocks: flow.blocks.iter().zip(blocks).map(estimate).collect(),
        edges: flow.edges.iter().zip(edges).map(estimate).collect(),
        head_samples,
        notes: vec![note(&basis)],
        basis,
        scale: own_scale(is_absolute, &basis),
        deviations,
        counted_in_code: is_absolute && absolute::is_in_code(evidence),
    })
}

/// Returns all counts.
fn counts(evidence: &Evidence) -> Vec<Count> {
    if evidence.retired.is_some() {
        return retired::counts(evidence);
    }
    let mut counts = stepped::counts(evidence);
    counts.extend(counted::counts(evidence, next_scale(&counts)));
    counts.extend(absolute::counts(evidence, next_scale(&counts)));
    counts
}

/// Returns the scale that the procedure's own counts fix.
fn own_scale(is_absolute: bool, basis: &Basis) -> Scale {
    if !is_absolute {
        return Scale::default();
    }
    Scale {
        kind: ScaleKind::Absolute,
        evidence: basis::absolute(basis).into_iter().collect(),
        ..Scale::default()
    }
}

fn next_scale(counts: &[Count]) -> usize {
    counts.iter().map(|c| c.scale + 1).max().unwrap_or(0)
}

/// The cycles of each class.
struct ClassCycles {
    /// Samples during which the class's instructions were the oldest to retire.
    samples: Vec<f64>,
    /// The least cycles of one execution of all the class's blocks; 0 for classes without blocks. They fix the scale,
    /// since stalls only ever add cycles.
    least: Vec<f64>,
    /// Cycles that one execution typically takes; they distinguish classes.
    typical: Vec<f64>,
}

impl ClassCycles {
    fn new(evidence: &Evidence, head_samples: &[f64], flow: Option<&Flow>) -> Self {
        let classes = evidence.equivalence.classes;
        let zeros = || vec![0.0; classes];
        let mut cycles = ClassCycles { samples: zeros(), least: zeros(), typical: zeros() };
        for (block, &class) in evidence.equivalence.block_class.iter().enumerate() {
            let range = evidence.cfg.blocks[block].clone();
            cycles.samples[class] += range.clone().map(|i| head_samples[i]).sum::<f64>();
            let front_end: f64 = range.clone().map(|i| evidence.schedule.slot_cycles[i]).sum();
            let best = evidence.schedule.best_case_cycles[block];
            let (least, typical) = (
                typical_cycles::FRONT_END_TIMES * front_end,
                typical_cycles::typical_cycles(evidence, block, flow),
            );
            cycles.least[class] += with_peak(evidence, block, head_samples, best.max(least));
            cycles.typical[class] += with_peak(evidence, block, head_samples, best.max(typical));
        }
        cycles
    }

    /// Returns the frequency by cycles. Half a sample is added, because a block without samples is rare, not impossible.
    fn frequency(&self, class: usize) -> f64 {
        (self.samples[class] + 0.5) / self.typical[class]
    }
}

/// Lengthens what a block should take, `best`, where a load, a store or a locked operation has far more samples than the
/// model expects. The true length lies between `best` and what the rest of the block says (all stalls at the peak); we
/// take the geometric mean, and for a load's latency that between the first level and memory.
fn with_peak(evidence: &Evidence, block: usize, head_samples: &[f64], best: f64) -> f64 {
    let Evidence { cfg, schedule, model, .. } = *evidence;
    let range = cfg.blocks[block].clone();
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
    let of_others = total - head_samples[peak] - unskidded(evidence, block, peak, head_samples);
    let rest_samples = of_others.max(1.0);
    let cycles_by_rest = total / (rest_samples / rest_cycles);
    let middle = (best * cycles_by_rest.max(best)).sqrt();
    middle.clamp(best, best + middle_latency)
}

/// Returns the samples of the instruction before `peak` in its block or loop that may belong to the peak.
fn unskidded(evidence: &Evidence, block: usize, peak: usize, head_samples: &[f64]) -> f64 {
    let Evidence { cfg, schedule, .. } = *evidence;
    let range = cfg.blocks[block].clone();
    let is_loop = || cfg.predecessors[block].iter().any(|&edge| cfg.edges[edge].from == block);
    let before = match peak > range.start {
        true => peak - 1,
        false if is_loop() && range.len() > 1 => range.end - 1,
        false => return 0.0,
    };
    let before = if schedule.is_fused[before] { before - 1 } else { before };
    head_samples[before].min(UNSKIDDED_PART * head_samples[peak])
}

/// Returns a first guess of each edge's frequency: that of the rarer of its ends at first, then the flow's; fitted to its
/// ends.
fn guess_edges(evidence: &Evidence, classes: &ClassCycles, flow: Option<&Flow>) -> Vec<f64> {
    let Evidence { cfg, equivalence, .. } = *evidence;
    // The flow knows more than the cycles do, and the cycles keep it from drifting.
    let blended = |(block, &class): (usize, &usize)| {
        let by_cycles = classes.frequency(class);
        flow.map_or(by_cycles, |f| (by_cycles * f.blocks[block]).sqrt())
    };
    let blocks: Vec<f64> = equivalence.block_class.iter().enumerate().map(blended).collect();
    let end = |node: Node| blocks.get(node).copied().unwrap_or(f64::INFINITY);
    let edge = |(index, edge): (usize, &CfgEdge)| {
        let rarer_end = end(edge.from).min(end(edge.to));
        match (edge.kind, flow) {
            // Control takes these edges by no known way.
            (kind, _) if kind.is_pseudo() => rarer_end * 1e-6,
            (_, Some(flow)) => flow.edges[index],
            _ => rarer_end,
        }
    };
    let mut guess = cfg.edges.iter().enumerate().map(edge).collect::<Vec<f64>>();
    fit_to_blocks(evidence, &blocks, &mut guess);
    guess
}

/// Damped iterative proportional fitting (Deming and Stephan, Annals of Mathematical Statistics 11, 1940): what enters
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

/// Returns how often each edge was observed to be taken, by sampled directions and in path bursts.
fn seen_edges(evidence: &Evidence) -> Vec<f64> {
    let cfg = evidence.cfg;
    let mut seen = vec![0.0; cfg.edges.len()];
    let log_variance = log_variance(evidence, DIRECTION_LOG_VARIANCE);
    for (node, block) in cfg.blocks.iter().enumerate() {
        let (taken, not_taken) = unbiased(evidence.directions[block.end - 1], log_variance);
        for &e in &cfg.successors[node] {
            seen[e] += match cfg.edges[e].kind {
                EdgeKind::Taken => taken,
                EdgeKind::NotTaken => not_taken,
                _ => 0.0,
            };
        }
    }
    stepped::add_seen(evidence, &mut seen);
    seen
}

/// Returns how many directions would be as certain if samples did not prefer the slower direction: the variance of the
/// logarithm of the odds is the sum of the binomial's and that of the preference, `log_variance`.
pub fn unbiased((taken, not_taken): (u64, u64), log_variance: f64) -> (f64, f64) {
    let (taken, not_taken) = (taken as f64, not_taken as f64);
    let seen = taken + not_taken;
    let p = (taken + 0.5) / (seen + 1.0);
    let part = 1.0 / (1.0 + seen * p * (1.0 - p) * log_variance);
    (taken * part, not_taken * part)
}

/// Returns the variance of evidence from samples of time: `alone` where there is no other evidence.
fn log_variance(evidence: &Evidence, alone: f64) -> f64 {
    let is_stepped = evidence.transfers.iter().any(|t| t.is_sound());
    if is_stepped { STEPPED_LOG_VARIANCE } else { alone }
}

/// Returns the frequencies that the classes' cycles suggest.
fn suggestions(evidence: &Evidence, classes: &ClassCycles) -> Vec<Suggestion> {
    let by_class = evidence.equivalence.blocks_by_class();
    let log_variance = log_variance(evidence, CYCLES_LOG_VARIANCE);
    let of = |(class, blocks): (usize, &Vec<usize>)| {
        let block = *blocks.first()?;
        Some(Suggestion {
            block,
            log_frequency: classes.frequency(class).ln(),
            variance: log_variance + 1.0 / (classes.samples[class] + 0.5),
        })
    };
    by_class.iter().enumerate().filter_map(of).collect()
}

/// Scales the flow to the samples.
fn scale(mut flow: Flow, evidence: &Evidence, classes: &ClassCycles) -> Flow {
    let by_class = evidence.equivalence.blocks_by_class();
    let ratio = |(class, blocks): (usize, &Vec<usize>)| {
        let frequency = flow.blocks[*blocks.first()?];
        Some((classes.samples[class] / (classes.least[class] * frequency), classes.samples[class]))
    };
    let mut ratios: Vec<(f64, f64)> = by_class
        .iter()
        .enumerate()
        .filter_map(ratio)
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
    flow.blocks.iter_mut().chain(&mut flow.edges).for_each(|f| *f = (*f * scale).min(f64::MAX));
    flow
}

/// Describes the evidence in words.
fn note(basis: &Basis) -> String {
    if basis.retired > 0 {
        return format!("frequencies rest on {}", basis::retired(basis));
    }
    if let Some(absolute) = basis::absolute(basis) {
        let others: Vec<String> =
            basis::directions(basis).into_iter().chain(basis::relative(basis)).collect();
        let all = [vec![absolute], others].concat();
        return format!("frequencies rest on {}", basis::enumeration(&all).unwrap_or_default());
    }
    let seen: Vec<String> = basis::directions(basis).into_iter().chain(basis::relative(basis)).collect();
    match basis::enumeration(&seen) {
        None => "frequencies rest on cycles alone, which say little about them on an out-of-order processor"
            .into(),
        Some(seen) => format!(
            "frequencies are relative: they rest on {seen}, which do not determine their scale on an out-of-order processor"
        ),
    }
}
