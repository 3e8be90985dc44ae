//! Estimates beside the truth: the points that an estimator is judged by.
//!
//! Input: samples, true executions and estimates of a procedure. Output: one [`Point`] for each sampled instruction or each edge whose
//! executions are known. Complexity: linear.

use crate::{
    estimators::Estimates,
    metrics::Point,
    program::{TrueEdge, Truth},
};

/// Returns a point for each sampled instruction whose executions are known, weighted by its samples.
pub fn instruction_points(samples: &[u64], truth: &Truth, estimates: &Estimates) -> Vec<Point> {
    indexed_instruction_points(samples, truth, estimates).map(|(_, point)| point).collect()
}

/// Returns the same points, each with the index of its instruction.
pub fn indexed_instruction_points<'a>(
    samples: &'a [u64],
    truth: &'a Truth,
    estimates: &'a Estimates,
) -> impl Iterator<Item = (usize, Point)> + 'a {
    (0..samples.len()).filter(|&i| samples[i] > 0).filter_map(|i| {
        let truth = truth.executions[i]? as f64;
        Some((i, Point { weight: samples[i] as f64, estimate: estimates.instructions[i], truth }))
    })
}

/// Returns a point for each edge, weighted by its executions.
pub fn edge_points(truth: &Truth, estimates: &Estimates) -> Vec<Point> {
    let point = |e: &TrueEdge| Point {
        weight: e.executions as f64,
        estimate: estimates.edges.get(&(e.from, e.to)).copied(),
        truth: e.executions as f64,
    };
    truth.edges.iter().map(point).collect()
}
