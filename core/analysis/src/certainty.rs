//! How certain the estimates of a procedure are: the kind of their scale, and an interval for each figure.
//!
//! Enters: estimates, the schedule, what the rest of the program says of the scale. Leaves: the estimates, none of them
//! above what the processor can do in the time that was sampled, with their scale and the interval of each. Complexity:
//! O(n log n). Never here: an interval that is narrower than its evidence.

use crate::{
    CHANCE_SAMPLES_MAX, Confidence, Interval, OuterScale, ProcedureAnalysis, Scale, ScaleKind,
    bounds::{Bounds, samples_max},
    cfg::Cfg,
    frequency::{Estimate, Estimates},
};

/// A scale is absolute if the standard deviation of the estimates' logarithms, as a root mean square over time samples,
/// is at most this: a 90 % interval of a factor of 1.6 between its ends.
const ABSOLUTE_DEVIATION_MAX: f64 = 0.143;
/// Estimates contradict the limits of the processor if blocks with more than this part of the time exceed them
/// significantly.
const IMPOSSIBLE_PART_MAX: f64 = 0.05;
/// A block exceeds the limits significantly if it does by more than this many standard deviations.
const IMPOSSIBLE_DEVIATIONS: f64 = 2.0;
/// Standard deviations by confidence, where the evidence is time in order or retired instructions.
const LOW_DEVIATION: f64 = 0.15;
const MEDIUM_DEVIATION: f64 = 0.06;
const HIGH_DEVIATION: f64 = 0.04;
/// A 90 % interval within 10 % of the estimate.
const HIGH_DEVIATION_MAX: f64 = 0.061;
/// A 90 % interval within 15 % of the estimate (DCPI §6.1.5).
const MEDIUM_DEVIATION_MAX: f64 = 0.091;

/// How certain each figure of a procedure is.
pub struct Certainty {
    /// The kind of scale, with its evidence.
    pub scale: Scale,
    /// The limits of the processor.
    pub bounds: Bounds,
    /// The standard deviation of the logarithm of each block's frequency, including that of the scale; infinite without
    /// an absolute scale.
    deviations: Vec<f64>,
    /// Whether the deviations were derived from the estimates' confidences.
    is_by_confidence: bool,
}

impl Certainty {
    /// Brings the estimates to the known scale, limits them to what is possible, and determines how certain they are.
    pub fn new(estimates: &mut Estimates, bounds: Bounds, cfg: &Cfg, outer: &OuterScale) -> Certainty {
        let samples = block_samples(estimates, cfg);
        let is_own = estimates.scale.kind == ScaleKind::Absolute;
        let is_counted = is_own && !estimates.deviations.is_empty();
        let mut is_impossible = match is_counted {
            true => is_impossible_at(estimates, &bounds, &samples, &estimates.deviations),
            false => is_own && is_impossible_together(estimates, &bounds, &samples, LOW_DEVIATION),
        };
        if !is_own || is_impossible {
            // Nothing in the procedure fixes the factor, so it is chosen such that the frequencies are possible.
            estimates.multiply(headroom(estimates, &bounds, &samples).min(1.0));
            if outer.factor.is_finite() && outer.factor > 0.0 {
                estimates.multiply(outer.factor);
            }
        }
        let (mut scale, mut deviations) = scale(estimates, &samples, outer);
        if !is_own && scale.kind == ScaleKind::Absolute {
            is_impossible = is_impossible_at(estimates, &bounds, &samples, &deviations);
        }
        if is_impossible {
            let why = match is_own {
                true => "more executions were counted than the processor can complete in the sampled time",
                false => {
                    "other functions or the time of bursts imply more executions than the processor can complete"
                }
            };
            scale = Scale { evidence: vec![why.into()], ..not_absolute(outer) };
        }
        scale.headroom = headroom(estimates, &bounds, &samples);
        if scale.kind == ScaleKind::Absolute {
            // In order, and where instructions were counted, each estimate is already based on its own block's samples.
            // Blocks without samples may have run there, as the second of two instructions that issue together.
            if !estimates.deviations.is_empty() {
                limit_each(estimates, &bounds, &samples, &mut deviations, cfg);
            }
            limit_all(estimates, &bounds, &samples);
        }
        Certainty { scale, bounds, deviations, is_by_confidence: estimates.deviations.is_empty() }
    }

    /// Returns the interval of a block's frequency; `None` without an absolute scale.
    pub fn frequency_interval(&self, block: usize, frequency: Option<f64>, samples: f64) -> Option<Interval> {
        let frequency = frequency.filter(|_| self.is_absolute())?;
        let interval = Interval::about(frequency, self.deviations[block]);
        // A block that was hardly observed may not have run at all.
        let min = if interval.is_precise() { interval.min } else { 0.0 };
        Some(Interval { min, ..interval }.within(0.0, self.bounds.frequency_max(block, samples)))
    }

    /// Returns the interval of the cycles per execution of something in a block that has this number of samples and takes
    /// at least `least` cycles.
    pub fn cycles_interval(
        &self,
        block: usize,
        frequency: Option<f64>,
        samples: f64,
        least: f64,
    ) -> Interval {
        let unknown = Interval { min: least, max: f64::INFINITY };
        let Some(frequency) = frequency.filter(|f| *f > 0.0) else { return unknown };
        let cycles = (samples / frequency).min(f64::MAX);
        if !self.is_absolute() {
            return Interval { min: (cycles / self.scale.times_max()).max(least), ..unknown };
        }
        if samples < 1.0 {
            let max = CHANCE_SAMPLES_MAX / frequency;
            return Interval { min: least, max: max.max(least) };
        }
        let deviation = (self.deviations[block].powi(2) + 1.0 / samples).sqrt();
        let interval = Interval::about(cycles, deviation);
        let is_precise = Interval::about(frequency, self.deviations[block]).is_precise();
        let max = if is_precise { interval.max } else { f64::INFINITY };
        Interval { max, ..interval }.within(least, f64::INFINITY)
    }

    /// Returns the confidence in a block's frequency: by its interval if its scale was counted, otherwise that of the
    /// estimate.
    pub fn confidence(&self, block: usize, estimate: Option<Estimate>) -> Confidence {
        let Some(estimate) = estimate else { return Confidence::Low };
        match self.deviations[block] {
            _ if !self.is_absolute() || self.is_by_confidence => estimate.confidence,
            d if d <= HIGH_DEVIATION_MAX => Confidence::High,
            d if d <= MEDIUM_DEVIATION_MAX => Confidence::Medium,
            _ => Confidence::Low,
        }
    }

    /// Checks that a result is possible in the time that was sampled: no CPI is below what retiring takes, with an absolute
    /// scale not all blocks together were executed more often, and if that was counted, no block was.
    pub fn verify(&self, analysis: &ProcedureAnalysis) -> Result<(), String> {
        const ROUNDING: f64 = 1e-6;
        let slot = self.bounds.slot * (1.0 - ROUNDING);
        if let Some(cost) = analysis.instructions.iter().find(|cost| cost.cpi.is_some_and(|cpi| cpi < slot)) {
            return Err(format!("fewer cycles than retiring takes: {cost:?}"));
        }
        let (mut all, mut least_of_all) = (0.0, 0.0);
        for (block, least) in analysis.blocks.iter().zip(&self.bounds.blocks) {
            let samples: f64 =
                block.instructions.clone().map(|i| analysis.instructions[i].head_samples).sum();
            if block.cpi.is_some_and(|cpi| cpi * (block.instructions.len() as f64) < least * (1.0 - ROUNDING))
            {
                return Err(format!("fewer cycles than {least}: {block:?}"));
            }
            let most = samples_max(samples) * (1.0 + ROUNDING);
            let executed = [block.frequency, block.frequency_interval.map(|i| i.max)];
            if self.is_counted() && executed.iter().flatten().any(|frequency| frequency * least > most) {
                return Err(format!("{least} cycles do not fit into {samples} samples: {block:?}"));
            }
            all += samples;
            least_of_all += block.frequency.unwrap_or(0.0) * least;
        }
        let is_possible = !self.is_absolute() || least_of_all <= samples_max(all) * (1.0 + ROUNDING);
        if is_possible { Ok(()) } else { Err(format!("{least_of_all} of {all} samples at least")) }
    }

    /// Whether the scale is absolute because executions were counted.
    fn is_counted(&self) -> bool {
        self.is_absolute() && !self.is_by_confidence
    }

    /// Whether the scale is absolute.
    pub fn is_absolute(&self) -> bool {
        self.scale.kind == ScaleKind::Absolute
    }
}

/// Returns the time samples of each block.
fn block_samples(estimates: &Estimates, cfg: &Cfg) -> Vec<f64> {
    cfg.blocks.iter().map(|range| range.clone().map(|i| estimates.head_samples[i]).sum()).collect()
}

/// Returns the kind of scale, and the standard deviation of the logarithm of each block's frequency.
fn scale(estimates: &Estimates, samples: &[f64], outer: &OuterScale) -> (Scale, Vec<f64>) {
    let own = &estimates.scale;
    let deviations: Vec<f64> = match (own.kind, outer.kind) {
        // The deviations of the procedure's own counts include that of the scale.
        (ScaleKind::Absolute, _) if !estimates.deviations.is_empty() => estimates.deviations.clone(),
        (ScaleKind::Absolute, _) => {
            let of = |e: &Option<Estimate>| e.map_or(LOW_DEVIATION, |e| deviation(e.confidence));
            estimates.blocks.iter().map(of).collect()
        }
        (_, ScaleKind::Absolute) if !estimates.deviations.is_empty() => {
            estimates.deviations.iter().map(|d| d.hypot(outer.deviation)).collect()
        }
        _ => vec![f64::INFINITY; samples.len()],
    };
    let total: f64 = samples.iter().sum();
    let squares: f64 =
        samples.iter().zip(&deviations).filter(|(s, _)| **s > 0.0).map(|(s, d)| s * d * d).sum();
    let deviation = (squares / total.max(f64::MIN_POSITIVE)).sqrt();
    let is_counted_or_in_order = own.kind == ScaleKind::Absolute && estimates.deviations.is_empty();
    if total > 0.0 && (is_counted_or_in_order || deviation <= ABSOLUTE_DEVIATION_MAX) {
        let evidence = own.evidence.iter().chain(&outer.evidence).cloned().collect();
        return (Scale { kind: ScaleKind::Absolute, deviation, evidence, headroom: 1.0 }, deviations);
    }
    (not_absolute(outer), vec![f64::INFINITY; samples.len()])
}

/// Returns the scale of a procedure whose factor is not known well enough.
fn not_absolute(outer: &OuterScale) -> Scale {
    let kind = outer.kind.min(ScaleKind::Program);
    let evidence = if outer.kind == ScaleKind::Program { outer.evidence.clone() } else { Vec::new() };
    Scale { kind, deviation: f64::INFINITY, evidence, headroom: 1.0 }
}

fn deviation(confidence: Confidence) -> f64 {
    match confidence {
        Confidence::Low => LOW_DEVIATION,
        Confidence::Medium => MEDIUM_DEVIATION,
        Confidence::High => HIGH_DEVIATION,
    }
}

/// Whether the estimates exceed the limits of the processor: together, if they were counted in the code, which cannot be
/// mistaken for something else, while samples of a short block often land on its neighbours; otherwise if too much of the time is
/// in blocks that do.
fn is_impossible_at(estimates: &Estimates, bounds: &Bounds, samples: &[f64], deviations: &[f64]) -> bool {
    if estimates.counted_in_code {
        let largest = deviations.iter().copied().filter(|d| d.is_finite()).fold(0.0, f64::max);
        return is_impossible_together(estimates, bounds, samples, largest.min(ABSOLUTE_DEVIATION_MAX));
    }
    let impossible: f64 = (0..samples.len())
        .filter(|&block| exceeds(block, estimates, bounds, samples, deviations))
        .map(|block| samples[block])
        .sum();
    impossible > IMPOSSIBLE_PART_MAX * samples.iter().sum::<f64>()
}

/// Whether all estimates together exceed the limits of the processor significantly, if they are this uncertain.
fn is_impossible_together(estimates: &Estimates, bounds: &Bounds, samples: &[f64], deviation: f64) -> bool {
    let times = (IMPOSSIBLE_DEVIATIONS * deviation).exp();
    least_samples(estimates, bounds) > times * samples_max(samples.iter().sum())
}

/// Whether a block's estimate exceeds the limits of the processor significantly.
fn exceeds(
    block: usize,
    estimates: &Estimates,
    bounds: &Bounds,
    samples: &[f64],
    deviations: &[f64],
) -> bool {
    let times = (IMPOSSIBLE_DEVIATIONS * deviations[block]).exp();
    let frequency = estimates.blocks[block].map_or(0.0, |e| e.frequency);
    frequency > times * bounds.frequency_max(block, samples[block])
}

/// Returns the least number of samples that all executions of the procedure take.
fn least_samples(estimates: &Estimates, bounds: &Bounds) -> f64 {
    let blocks = estimates.blocks.iter().zip(&bounds.blocks);
    blocks.map(|(e, least)| e.map_or(0.0, |e| e.frequency * least)).sum()
}

/// Returns the factor by which all frequencies can grow before too much of the time is in blocks that exceed the limits.
fn headroom(estimates: &Estimates, bounds: &Bounds, samples: &[f64]) -> f64 {
    let room = |(block, e): (usize, &Option<Estimate>)| {
        let frequency = e.map(|e| e.frequency).filter(|f| *f > 0.0)?;
        Some((bounds.frequency_max(block, samples[block]) / frequency, samples[block]))
    };
    let mut rooms: Vec<(f64, f64)> = estimates.blocks.iter().enumerate().filter_map(room).collect();
    rooms.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let most = IMPOSSIBLE_PART_MAX * rooms.iter().map(|r| r.1).sum::<f64>();
    let mut below = 0.0;
    let first = rooms.iter().find(|(_, samples)| {
        below += samples;
        below > most
    });
    first.map_or(1.0, |r| r.0).max(f64::MIN_POSITIVE)
}

/// Limits each frequency to what its block can have executed in the time that was sampled. Where that is significantly less,
/// the block's samples are not its own, and its deviation becomes infinite.
fn limit_each(
    estimates: &mut Estimates,
    bounds: &Bounds,
    samples: &[f64],
    deviations: &mut [f64],
    cfg: &Cfg,
) {
    for block in 0..samples.len() {
        if exceeds(block, estimates, bounds, samples, deviations) {
            deviations[block] = f64::INFINITY;
        }
    }
    let most: Vec<f64> = (0..samples.len()).map(|b| bounds.frequency_max(b, samples[b])).collect();
    for (estimate, most) in estimates.blocks.iter_mut().zip(&most) {
        estimate.iter_mut().for_each(|e| e.frequency = e.frequency.min(*most));
    }
    let of_end = |block: usize| most.get(block).copied().unwrap_or(f64::MAX);
    for (estimate, edge) in estimates.edges.iter_mut().zip(&cfg.edges) {
        let most = of_end(edge.from).min(of_end(edge.to));
        estimate.iter_mut().for_each(|e| e.frequency = e.frequency.min(most));
    }
}

/// Limits all frequencies together to what the procedure can have executed in the time that was sampled.
fn limit_all(estimates: &mut Estimates, bounds: &Bounds, samples: &[f64]) {
    let least = least_samples(estimates, bounds);
    let possible = samples_max(samples.iter().sum());
    if least > possible {
        let estimates = estimates.blocks.iter_mut().chain(&mut estimates.edges).flatten();
        estimates.for_each(|e| e.frequency *= possible / least);
    }
}
