//! One scale for all procedures of a program, through the calls between them.
//!
//! Input: each procedure's frequencies by themselves (right up to a factor, out of order), where it is entered and what
//! it calls. Output: a factor for each procedure. Complexity: a bounded number of passes over procedures and calls.
//!
//! Out of order the cycles of one procedure fix its scale only up to a factor of about 1.5 to 2, since any of its loops
//! may stall throughout (DESIGN.md §5). But a procedure is entered as often as it is called: flow is conserved between
//! procedures as it is between blocks, and direct calls name their callee. We minimise the squared logarithms of the
//! factors, each in units of its cycles' uncertainty, and of entries over calls; the latter with Student's t, since
//! pointers and other images may call as well. Gauss-Newton, with conjugate gradients for its linear systems.

use rustc_hash::FxHashMap;

use dwell_image::{Flow, ImageAddress, Instruction};

use crate::ProcedureAnalysis;

/// Standard deviation of a procedure's own scale, as a logarithm.
const OWN_DEVIATION: f64 = 0.6;
/// The same of entries over calls, where all calls are known.
const CALLS_DEVIATION: f64 = 0.15;
/// Degrees of freedom of Student's t.
const FREEDOM: f64 = 1.0;
const ROUNDS: usize = 12;

/// One procedure, as far as its neighbours matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Its samples: more of them make its own scale no surer, none make it void.
    pub samples: f64,
    /// How often it is entered, by its own estimate.
    pub entries: f64,
    /// Procedures that it calls, by their index, and how often, by its own estimate.
    pub calls: Vec<(usize, f64)>,
}

/// The shapes of procedures that were analysed one by one.
pub fn shapes<'a>(
    procedures: impl Iterator<Item = (&'a [Instruction], &'a ProcedureAnalysis)> + Clone,
) -> Vec<Shape> {
    let entry =
        |(at, (instructions, _)): (usize, (&[Instruction], _))| Some((instructions.first()?.address, at));
    let entries: FxHashMap<ImageAddress, usize> = procedures.clone().enumerate().filter_map(entry).collect();
    procedures.map(|(instructions, analysis)| shape(instructions, analysis, &entries)).collect()
}

fn shape(
    instructions: &[Instruction],
    analysis: &ProcedureAnalysis,
    entries: &FxHashMap<ImageAddress, usize>,
) -> Shape {
    let frequency = |block: usize| analysis.blocks.get(block).and_then(|b| b.frequency).unwrap_or(0.0);
    let mut left: Vec<f64> = (0..analysis.blocks.len()).map(frequency).collect();
    let mut entered = frequency(0);
    for edge in &analysis.edges {
        left[edge.from] -= edge.frequency.unwrap_or(0.0);
        entered -= if edge.to == 0 { edge.frequency.unwrap_or(0.0) } else { 0.0 };
    }
    let mut calls = Vec::new();
    for (b, block) in analysis.blocks.iter().enumerate() {
        for i in block.instructions.clone() {
            let (target, count) = match instructions[i].flow {
                Flow::Call { target: Some(target) } => (target, frequency(b)),
                // A tail call: what does not stay inside.
                Flow::Jump { target } | Flow::Branch { target } => (target, left[b]),
                _ => continue,
            };
            let is_own =
                instructions[0].address <= target && target <= instructions[instructions.len() - 1].address;
            let is_jump = !matches!(instructions[i].flow, Flow::Call { .. });
            if let Some(&callee) = entries.get(&target).filter(|_| count > 0.0 && !(is_own && is_jump)) {
                calls.push((callee, count));
            }
        }
    }
    let samples = analysis.instructions.iter().map(|i| i.head_samples).sum();
    Shape { samples, entries: entered.max(0.0), calls }
}

/// The factor of each procedure's frequencies.
pub fn scales(shapes: &[Shape]) -> Vec<f64> {
    let problem = Problem::new(shapes);
    let mut logs = vec![0.0; shapes.len()];
    for _ in 0..ROUNDS {
        let step = problem.step(&logs);
        let largest = step.iter().fold(0.0, |m: f64, s| m.max(s.abs()));
        let part = (1.0 / largest.max(f64::MIN_POSITIVE)).min(1.0);
        logs.iter_mut().zip(&step).for_each(|(l, s)| *l += part * s);
        if largest < 1e-4 {
            break;
        }
    }
    logs.iter().map(|l| l.exp()).collect()
}

/// Entries of one procedure against the calls of others.
struct Balance {
    callee: usize,
    entries_log: f64,
    calls: Vec<(usize, f64)>,
    variance: f64,
}

struct Problem {
    balances: Vec<Balance>,
    own_stiffness: f64,
    procedures: usize,
}

impl Problem {
    fn new(shapes: &[Shape]) -> Problem {
        let mut calls: Vec<FxHashMap<usize, f64>> = vec![FxHashMap::default(); shapes.len()];
        for (caller, shape) in shapes.iter().enumerate() {
            shape
                .calls
                .iter()
                .for_each(|&(callee, count)| *calls[callee].entry(caller).or_default() += count);
        }
        let balance = |(callee, calls): (usize, FxHashMap<usize, f64>)| {
            let entries = shapes[callee].entries;
            let mut calls: Vec<(usize, f64)> = calls.into_iter().collect();
            calls.sort_unstable_by_key(|c| c.0);
            let is_known = entries > 0.0 && !calls.is_empty();
            is_known.then(|| Balance {
                callee,
                entries_log: entries.ln(),
                calls,
                variance: CALLS_DEVIATION * CALLS_DEVIATION,
            })
        };
        Problem {
            balances: calls.into_iter().enumerate().filter_map(balance).collect(),
            own_stiffness: 1.0 / (OWN_DEVIATION * OWN_DEVIATION),
            procedures: shapes.len(),
        }
    }

    fn step(&self, logs: &[f64]) -> Vec<f64> {
        // By balance: its stiffness and its change for the changes of those that take part.
        let mut rows: Vec<(f64, Vec<(usize, f64)>)> = Vec::with_capacity(self.balances.len());
        let mut force: Vec<f64> = logs.iter().map(|l| -self.own_stiffness * l).collect();
        for balance in &self.balances {
            let counts: Vec<f64> = balance.calls.iter().map(|&(p, count)| count * logs[p].exp()).collect();
            let total: f64 = counts.iter().sum();
            let residual = logs[balance.callee] + balance.entries_log - total.max(f64::MIN_POSITIVE).ln();
            let stiffness = (FREEDOM + 1.0) / (FREEDOM * balance.variance + residual * residual);
            let mut row = vec![(balance.callee, 1.0)];
            row.extend(balance.calls.iter().zip(&counts).map(|(&(p, _), count)| (p, -count / total)));
            row.iter().for_each(|&(p, d)| force[p] -= stiffness * residual * d);
            rows.push((stiffness, row));
        }
        let apply = |x: &[f64]| -> Vec<f64> {
            let mut product: Vec<f64> = x.iter().map(|x| self.own_stiffness * x).collect();
            for (stiffness, row) in &rows {
                let change: f64 = row.iter().map(|&(p, d)| x[p] * d).sum();
                row.iter().for_each(|&(p, d)| product[p] += stiffness * change * d);
            }
            product
        };
        let mut diagonal = vec![self.own_stiffness; self.procedures];
        for (stiffness, row) in &rows {
            row.iter().for_each(|&(p, d)| diagonal[p] += stiffness * d * d);
        }
        crate::linear::conjugate_gradients(apply, &force, &diagonal, 40)
    }
}
