//! Frequencies on in-order machines: the mixture likelihood of each class, then the flow that fits them all.
//!
//! Input: as [`Evidence`]. Output: estimates that conserve flow exactly. Complexity: that of [`mixture`] and
//! [`flow_fit`], for a constant number of rounds.
//!
//! Expectation and maximisation in turn (Dempster, Laird and Rubin, 1977): given frequencies, how likely each issue
//! point is free of stalls; given that, the flow that makes the free points' samples most likely. A class whose only
//! point stalls starts too high; its neighbours pull it down, its point looks stalled, and it stops pulling back.

use super::{
    Estimate, Estimates, Evidence, confidence,
    flow_fit::{FlowFit, Known},
    mixture::{self, Point, Stalls},
};
use crate::{
    cfg::EdgeKind,
    schedule::{Risks, Schedule},
};

/// The model's error by round: wide at first, so that evidence is not dropped before the neighbours have spoken.
const MODEL_ERRORS: [f64; 7] = [0.0, 0.3, 0.15, 0.08, 0.04, 0.02, 0.0];
/// What stands for knowledge where there is none, in samples: pulls towards a guess, and keeps flows above zero.
const PRIOR_SAMPLES: f64 = 0.1;
/// A class's points may all err alike by this part, however many samples they have.
const CLASS_ERROR: f64 = 0.01;

/// `None` where the graph has missing edges or is too tangled for elimination.
pub fn estimate(evidence: &Evidence) -> Option<Estimates> {
    let Evidence { model, cfg, equivalence, .. } = *evidence;
    if cfg.missing_edges || cfg.blocks.is_empty() {
        return None;
    }
    let fit = FlowFit::new(cfg, equivalence)?;
    let stalls = Stalls::of(model);
    let points = points_of_classes(evidence);
    let mut frequency = alone(evidence, &points, &stalls);
    let mut flow = None;
    for (round, &error) in MODEL_ERRORS.iter().enumerate() {
        let stalls = stalls.with_model_error(error);
        let by_class = points.iter().zip(&frequency);
        let known: Vec<Known> = by_class
            .map(|(p, &f)| {
                let doubt = if round == 0 { mixture::log_variance(p, f, &stalls) } else { 0.0 };
                known(p, f, doubt, &stalls)
            })
            .collect();
        let solved = fit.solve(&known, &frequency)?;
        for (block, &class) in equivalence.block_class.iter().enumerate() {
            frequency[class] = solved.blocks[block];
        }
        for (edge, &class) in equivalence.edge_class.iter().enumerate() {
            frequency[class] = solved.edges[edge];
        }
        flow = Some(solved);
    }
    let flow = flow?;
    let confidences: Vec<_> =
        points.iter().zip(&frequency).map(|(p, &f)| confidence::of_mixture(p, f, &stalls)).collect();
    let of = |f: &f64, class: &usize| Some(Estimate { frequency: *f, confidence: confidences[*class] });
    Some(Estimates {
        blocks: flow.blocks.iter().zip(&equivalence.block_class).map(|(f, c)| of(f, c)).collect(),
        edges: flow.edges.iter().zip(&equivalence.edge_class).map(|(f, c)| of(f, c)).collect(),
        head_samples: evidence.samples.iter().map(|&s| s as f64).collect(),
        ..Estimates::default()
    })
}

/// Issue points by class. One that waits for an earlier instruction stands for all that lies between, because a dynamic
/// stall in between shortens the wait (DCPI §6.1.3).
fn points_of_classes(evidence: &Evidence) -> Vec<Vec<Point>> {
    let Evidence { cfg, equivalence, schedule, samples, .. } = *evidence;
    let mut points = vec![Vec::new(); equivalence.classes];
    for (block, &class) in equivalence.block_class.iter().enumerate() {
        let range = cfg.blocks[block].clone();
        for i in range.clone().filter(|&i| schedule.issue_cycles_min[i] > 0.0) {
            let producer = schedule.waits_for[i].filter(|j| (range.start..i).contains(j));
            let span = producer.map_or(i, |j| j + 1)..i + 1;
            let risks = span.clone().fold(Risks::default(), |all, k| all.union(risks_of(schedule, k)));
            points[class].push(Point {
                samples: span.clone().map(|k| samples[k] as f64).sum(),
                cycles: span.map(|k| schedule.issue_cycles_min[k]).sum(),
                stall_prior: stall_prior(risks),
            });
        }
    }
    points
}

fn risks_of(schedule: &Schedule, i: usize) -> Risks {
    schedule.risks.get(i).copied().unwrap_or_default()
}

/// How often a point with these risks stalls noticeably.
fn stall_prior(risks: Risks) -> f64 {
    let parts =
        [(risks.entered, 0.5), (risks.line, 0.13), (risks.data, 0.2), (risks.store, 0.1), (risks.unit, 0.05)];
    let free = parts.iter().filter(|p| p.0).fold(0.995, |free, p| free * (1.0 - p.1));
    1.0 - free
}

/// Each class by itself; one without points from its neighbours, as well as one can tell.
fn alone(evidence: &Evidence, points: &[Vec<Point>], stalls: &Stalls) -> Vec<f64> {
    let Evidence { cfg, equivalence, .. } = *evidence;
    let mut frequency: Vec<f64> =
        points.iter().map(|p| mixture::most_likely(p, stalls).unwrap_or(0.0)).collect();
    let block = |n: usize, f: &[f64]| equivalence.block_class.get(n).map_or(f64::INFINITY, |&c| f[c]);
    let lowest = frequency.iter().copied().filter(|&f| f > 0.0).fold(f64::INFINITY, f64::min);
    for (edge, &class) in cfg.edges.iter().zip(&equivalence.edge_class) {
        if points[class].is_empty() {
            let around = block(edge.from, &frequency).min(block(edge.to, &frequency)).min(1e18);
            let part = if edge.kind.is_pseudo() { 1e-4 } else { 0.3 };
            let guess = if edge.kind == EdgeKind::Enter { lowest } else { part * around };
            frequency[class] = guess.clamp(1e-9, 1e18);
        }
    }
    frequency
}

/// What a class's free points know; the prior where they know nothing. `doubt` is a variance of the logarithm that more
/// samples would not lessen.
fn known(points: &[Point], f: f64, doubt: f64, stalls: &Stalls) -> Known {
    let (samples, cycles) = mixture::free_part(points, f, stalls);
    let worth = 1.0 / (1.0 + (doubt + CLASS_ERROR * CLASS_ERROR) * samples);
    Known {
        samples: worth * samples + PRIOR_SAMPLES,
        cycles: worth * cycles + PRIOR_SAMPLES / f.max(f64::MIN_POSITIVE),
    }
}
