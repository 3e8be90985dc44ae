//! The most likely flow through a procedure, given observed branches and the cycles of its blocks.
//!
//! Input: the graph; for each edge how often it was observed to be taken; for some equivalence classes a frequency
//! suggested by their cycles, with a variance. Output: frequencies that conserve flow exactly, on the scale that fits the
//! classes best. Complexity: a bounded number of eliminations ([`markov`](super::markov)) and of solutions by them, each
//! linear in the fill-in.
//!
//! The unknowns are the logarithms θ of the branches' odds. The flow follows from them as visits of a Markov chain, so it
//! is conserved whatever they are. The likelihood has four parts: multinomial for the observed directions, Poisson for
//! samples of retired instructions, Student's t for the logarithm of a class's frequency against the suggested one
//! (cycles are off by factors, sometimes by large ones), and a weak normal prior on θ. It is maximised by Gauss-Newton
//! steps with line search. Each step's linear system is solved by conjugate gradients; the Jacobian is applied by a
//! solution with the elimination, its transpose by a transposed one (adjoint method), so no matrix is ever formed.

use super::markov::{Elimination, Pattern};
use crate::{
    cfg::{Cfg, Node},
    linear::{Signs, conjugate_gradients},
};

/// The search ends when the logarithm of the likelihood increases by less.
const GAIN_MIN: f64 = 0.05;
/// Greatest number of conjugate-gradient steps in one Gauss-Newton step.
const INNER_STEPS_MAX: usize = 48;
/// Relative residual of a Gauss-Newton step; the next step corrects the rest (an inexact Newton method: Dembo, Eisenstat
/// and Steihaug, SIAM Journal on Numerical Analysis 19, 1982).
const STEP_RESIDUAL_PART: f64 = 0.03;
/// Relative residual of a draw.
const DRAW_RESIDUAL_PART: f64 = 1e-3;
/// Standard deviation of θ about its start.
const PRIOR_DEVIATION: f64 = 1.0;
/// Degrees of freedom of Student's t.
const FREEDOM: f64 = 10.0;
/// Greatest change of any θ in a step.
const CHANGE_MAX: f64 = 3.0;
/// Odds beyond e^±this are treated alike.
const ODDS_LOG_MAX: f64 = 20.0;
/// Number of draws from which deviations are estimated.
const DRAWS: usize = 16;

/// The frequency of a class that its cycles suggest.
#[derive(Clone, Copy, Debug)]
pub struct Suggestion {
    /// The index of any block of the class.
    pub block: Node,
    /// The logarithm of its frequency.
    pub log_frequency: f64,
    /// The variance of that logarithm.
    pub variance: f64,
}

/// A number of samples that is proportional to a class's frequency.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// The index of any block of the class.
    pub block: Node,
    /// The number of samples.
    pub samples: f64,
    /// The number of samples to expect per execution.
    pub exposure: f64,
    /// The part of the samples that is independent, if they are few.
    pub independent: f64,
    /// The relative error that remains however many samples there are.
    pub error: f64,
    /// The number of their scale, from 0 on. Only counts of the same scale can be compared; the fit finds each scale.
    pub scale: usize,
}

impl Count {
    /// Returns the factor by which samples count less than their number, because many are not as certain as that.
    pub fn reliance(&self) -> f64 {
        1.0 / (1.0 / self.independent + self.error * self.error * self.samples)
    }
}

/// The evidence that the flow is fitted to.
pub struct Evidence<'a> {
    /// How often each edge was observed to be taken.
    pub seen: &'a [f64],
    /// A first guess of each edge's frequency.
    pub guess: &'a [f64],
    /// The frequencies suggested by cycles.
    pub suggestions: &'a [Suggestion],
    /// The counts.
    pub counts: &'a [Count],
    /// The scale of counts that is the flow's own, if there is one.
    pub flow_scale: usize,
}

/// Frequencies that conserve flow.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The frequency of each block.
    pub blocks: Vec<f64>,
    /// The frequency of each edge.
    pub edges: Vec<f64>,
}

/// A graph, prepared for fitting.
pub struct Fitter<'a> {
    cfg: &'a Cfg,
    pattern: Pattern,
}

impl<'a> Fitter<'a> {
    /// Prepares a graph. Returns `None` if elimination would take too much work.
    pub fn new(cfg: &'a Cfg) -> Option<Fitter<'a>> {
        // Entry and exit are one node, the outside, which is the last.
        let outside = cfg.blocks.len();
        let transitions = cfg.edges.iter().map(|e| (e.from.min(outside), e.to.min(outside)));
        Some(Fitter { cfg, pattern: Pattern::new(outside + 1, transitions)? })
    }

    /// Returns the most likely flow, searched for from `evidence.guess` in a bounded number of Gauss-Newton steps.
    /// Returns `None` if visits overflow.
    pub fn fit<'e>(&'e self, evidence: &'e Evidence<'e>, steps_max: usize) -> Option<Fitted<'e>> {
        let problem = Problem::new(self.cfg, evidence, &self.pattern);
        let mut best = problem.at(problem.start.clone())?;
        for _ in 0..steps_max {
            let direction = problem.direction(&best);
            let Some(next) = problem.search(&best, &direction) else { break };
            let gain = best.loss - next.loss;
            best = next;
            if gain < GAIN_MIN {
                break;
            }
        }
        let flow = problem.flow(&best);
        debug_assert_eq!(verify(self.cfg, &flow), Ok(()));
        Some(Fitted { flow, problem, point: best })
    }
}

/// The most likely flow, with the point of the search where it was found.
pub struct Fitted<'a> {
    /// The flow.
    pub flow: Flow,
    problem: Problem<'a>,
    point: Point<'a>,
}

impl Fitted<'_> {
    /// Returns for each block the standard deviation of the logarithm of its frequency, including that of the scale.
    ///
    /// Near its maximum the likelihood is a normal distribution whose inverse covariance is the Gauss-Newton matrix H =
    /// JᵀWJ + D. A solution x of H·x = Jᵀ√W·ε + √D·ε′ with independent ε of variance 1 is a draw of it ("randomize then
    /// optimize", Bardsley et al., SIAM Journal on Scientific Computing 36, 2014), so that [`DRAWS`] solutions give the
    /// variance of every block to about a fifth. The signs ε come from a generator with a fixed seed: the same input has
    /// the same output.
    pub fn deviations(&self) -> Vec<f64> {
        let Fitted { problem, point, .. } = self;
        let (_, stiffness) = problem.pulls(point);
        let curvature = problem.curvature(point);
        let mut signs = Signs::new();
        let mut squares = vec![0.0; problem.outside];
        for _ in 0..DRAWS {
            let forces: Vec<f64> = stiffness.iter().map(|w| signs.next() * w.sqrt()).collect();
            let mut downhill = problem.transposed(point, &problem.centred(forces.clone(), &stiffness));
            downhill.iter_mut().zip(&curvature).for_each(|(d, c)| *d += signs.next() * c.sqrt());
            let solved = problem.solve(point, &stiffness, &curvature, &downhill, DRAW_RESIDUAL_PART);
            let moved = problem.moved(point, &solved);
            let scale = problem.flow_scale_change(&moved, &forces, &stiffness);
            squares.iter_mut().zip(&moved).for_each(|(s, m)| *s += (m + scale) * (m + scale));
        }
        squares.into_iter().map(|s| (s / DRAWS as f64).sqrt()).collect()
    }
}

/// Checks that what enters a block equals what leaves it.
pub fn verify(cfg: &Cfg, flow: &Flow) -> Result<(), String> {
    for (block, &frequency) in flow.blocks.iter().enumerate() {
        for edges in [&cfg.predecessors[block], &cfg.successors[block]] {
            let sum: f64 = edges.iter().map(|&e| flow.edges[e]).sum();
            if (sum - frequency).abs() > 1e-6 * frequency.max(1e-300) {
                return Err(format!("block {block} has {frequency}, its edges {sum}"));
            }
        }
    }
    Ok(())
}

struct Problem<'a> {
    cfg: &'a Cfg,
    evidence: &'a Evidence<'a>,
    pattern: &'a Pattern,
    outside: Node,
    /// Nodes with a choice. The entry is one where some blocks are entered in unknown ways.
    choices: Vec<Node>,
    /// The nodes with a choice, entry and exit as one, each with the end of its edges in `ways`.
    chosen: Vec<(Node, usize)>,
    /// The edges of these nodes in order, each with the node that it leads to.
    ways: Vec<(usize, Node)>,
    start: Vec<f64>,
    /// The block of each suggestion, then of each count.
    observed: Vec<Node>,
    /// The scale of each suggestion, 0, then of each count, from 1 on.
    scales: Vec<usize>,
}

/// A point of the search.
struct Point<'p> {
    odds_log: Vec<f64>,
    probability: Vec<f64>,
    chain: Elimination<'p>,
    visits: Vec<f64>,
    /// 1 over the visits of each node.
    rareness: Vec<f64>,
    /// The expected samples of each count.
    expected: Vec<f64>,
    /// The logarithm of the flow's scale.
    flow_scale_log: f64,
    /// The logarithm of the frequency over the suggested one, for each suggestion.
    residuals: Vec<f64>,
    loss: f64,
}

impl<'a> Problem<'a> {
    fn new(cfg: &'a Cfg, evidence: &'a Evidence<'a>, pattern: &'a Pattern) -> Problem<'a> {
        let choices: Vec<Node> = (0..cfg.successors.len()).filter(|&n| cfg.successors[n].len() > 1).collect();
        let mut start = vec![0.0; cfg.edges.len()];
        for edges in choices.iter().map(|&n| &cfg.successors[n]) {
            let total: f64 = edges.iter().map(|&e| evidence.guess[e]).sum();
            for &e in edges {
                let odds = (evidence.guess[e] / total.max(f64::MIN_POSITIVE)).max(f64::MIN_POSITIVE).ln();
                start[e] = odds.max(-ODDS_LOG_MAX);
            }
        }
        let outside = cfg.blocks.len();
        let (mut chosen, mut ways) = (Vec::with_capacity(choices.len()), Vec::new());
        for &node in &choices {
            ways.extend(cfg.successors[node].iter().map(|&e| (e, cfg.edges[e].to.min(outside))));
            chosen.push((node.min(outside), ways.len()));
        }
        let Evidence { suggestions, counts, .. } = *evidence;
        let observed = suggestions.iter().map(|s| s.block).chain(counts.iter().map(|c| c.block)).collect();
        let scales = suggestions.iter().map(|_| 0).chain(counts.iter().map(|c| 1 + c.scale)).collect();
        Problem { cfg, evidence, pattern, outside, choices, chosen, ways, start, observed, scales }
    }

    /// Returns each node with a choice, with its edges and the nodes that they lead to.
    fn each_choice(&self) -> impl Iterator<Item = (Node, &[(usize, Node)])> {
        let mut begin = 0;
        self.chosen.iter().map(move |&(node, end)| {
            let ways = &self.ways[begin..end];
            begin = end;
            (node, ways)
        })
    }

    fn probabilities(&self, odds_log: &[f64]) -> Vec<f64> {
        let cfg = self.cfg;
        let mut probability = vec![1.0; cfg.edges.len()];
        for edges in cfg.successors.iter().filter(|edges| edges.len() > 1) {
            let largest = edges.iter().map(|&e| odds_log[e]).fold(f64::MIN, f64::max);
            let part = |e: usize| (odds_log[e] - largest).max(-2.0 * ODDS_LOG_MAX).exp();
            let total: f64 = edges.iter().map(|&e| part(e)).sum();
            edges.iter().for_each(|&e| probability[e] = part(e) / total);
        }
        probability
    }

    fn at(&self, odds_log: Vec<f64>) -> Option<Point<'a>> {
        let Evidence { seen, suggestions, .. } = *self.evidence;
        let cfg = self.cfg;
        let probability = self.probabilities(&odds_log);
        let chain = Elimination::new(self.pattern, &probability);
        let visits = chain.visits()?;
        let raw: Vec<f64> =
            suggestions.iter().map(|s| s.log_frequency - visits[s.block].max(1e-300).ln()).collect();
        let scale_log = robust_mean(&raw, suggestions);
        let residuals: Vec<f64> = raw.iter().map(|r| r - scale_log).collect();
        let (flow_scale_log, expected) = self.expected(&visits).unwrap_or((scale_log, Vec::new()));
        let counted = self.evidence.counts.iter().zip(&expected);
        let counted = counted.map(|(c, e)| -c.reliance() * c.samples * e.max(f64::MIN_POSITIVE).ln());
        let cycles = residuals.iter().zip(suggestions).map(|(r, s)| student_loss(*r, s.variance));
        let directions = self.choices.iter().flat_map(|&n| &cfg.successors[n]);
        let directions =
            directions.map(|&e| if seen[e] > 0.0 { -seen[e] * probability[e].ln() } else { 0.0 });
        let changes = odds_log.iter().zip(&self.start).map(|(a, b)| (a - b) / PRIOR_DEVIATION);
        let seen = directions.sum::<f64>() + counted.sum::<f64>();
        let loss = cycles.sum::<f64>() + seen + changes.map(|c| 0.5 * c * c).sum::<f64>();
        loss.is_finite().then_some(Point {
            odds_log,
            probability,
            chain,
            rareness: visits.iter().map(|v| 1.0 / v.max(1e-300)).collect(),
            visits,
            expected,
            flow_scale_log,
            residuals,
            loss,
        })
    }

    /// Returns the logarithm of the flow's scale, and the expected samples of each count (Poisson) at the scales at which
    /// expected and observed totals are equal.
    fn expected(&self, visits: &[f64]) -> Option<(f64, Vec<f64>)> {
        let counts = self.evidence.counts;
        let raw: Vec<f64> = counts.iter().map(|c| visits[c.block] * c.exposure).collect();
        let mut sums = vec![(0.0, 0.0); counts.iter().map(|c| c.scale + 1).max()?];
        for (count, raw) in counts.iter().zip(&raw) {
            sums[count.scale].0 += count.reliance() * count.samples;
            sums[count.scale].1 += count.reliance() * raw;
        }
        let scales: Vec<f64> = sums.into_iter().map(|(seen, raw)| seen / raw).collect();
        let is_known = counts.iter().all(|c| scales[c.scale].is_finite() && scales[c.scale] > 0.0);
        let expected = || counts.iter().zip(&raw).map(|(c, raw)| raw * scales[c.scale]).collect();
        is_known.then(|| (scales[self.evidence.flow_scale].ln(), expected()))
    }

    fn flow(&self, point: &Point) -> Flow {
        let scale = point.flow_scale_log.exp();
        let of = |node: Node| (point.visits[node.min(self.outside)] * scale).min(f64::MAX.sqrt());
        Flow {
            blocks: (0..self.outside).map(of).collect(),
            edges: self.cfg.edges.iter().zip(&point.probability).map(|(e, p)| of(e.from) * p).collect(),
        }
    }

    /// Computes the Gauss-Newton step at a point.
    fn direction(&self, point: &Point) -> Vec<f64> {
        let (pulls, stiffness) = self.pulls(point);
        let mut downhill = self.transposed(point, &self.centred(pulls, &stiffness));
        let curvature = self.curvature(point);
        for &node in &self.choices {
            let edges = &self.cfg.successors[node];
            let seen: f64 = edges.iter().map(|&e| self.evidence.seen[e]).sum();
            for &e in edges {
                let prior = (point.odds_log[e] - self.start[e]) / (PRIOR_DEVIATION * PRIOR_DEVIATION);
                downhill[e] += self.evidence.seen[e] - seen * point.probability[e] - prior;
            }
        }
        self.solve(point, &stiffness, &curvature, &downhill, STEP_RESIDUAL_PART)
    }

    /// Solves the Gauss-Newton system at a point, up to the relative residual `residual_part`.
    fn solve(
        &self,
        point: &Point,
        stiffness: &[f64],
        curvature: &[f64],
        downhill: &[f64],
        residual_part: f64,
    ) -> Vec<f64> {
        let apply = |x: &[f64]| -> Vec<f64> {
            let changes = self.jacobian(point, x);
            let forces = changes.iter().zip(stiffness).map(|(c, w)| c * w).collect();
            let mut product = self.transposed(point, &self.centred(forces, stiffness));
            product.iter_mut().zip(x).zip(curvature).for_each(|((p, x), c)| *p += c * x);
            product
        };
        conjugate_gradients(apply, downhill, curvature, residual_part, INNER_STEPS_MAX)
    }

    /// Returns the change of the logarithm of the flow's scale for a change of the blocks' and for errors of the data.
    fn flow_scale_change(&self, moved: &[f64], forces: &[f64], stiffness: &[f64]) -> f64 {
        let Evidence { suggestions, counts, flow_scale, .. } = *self.evidence;
        // Without counts the suggestions determine the scale.
        let of_suggestions = suggestions.iter().map(|_| counts.is_empty());
        let is_of_scale = of_suggestions.chain(counts.iter().map(|c| c.scale == flow_scale));
        let (mut sum, mut total) = (0.0, f64::MIN_POSITIVE);
        for (((is_of_scale, &block), force), w) in is_of_scale.zip(&self.observed).zip(forces).zip(stiffness)
        {
            if is_of_scale {
                sum += force - w * moved[block];
                total += w;
            }
        }
        sum / total
    }

    /// Returns for each suggestion, then for each count, the slope of the loss by the logarithm of the frequency,
    /// negated, and its curvature.
    fn pulls(&self, point: &Point) -> (Vec<f64>, Vec<f64>) {
        let Evidence { suggestions, counts, .. } = *self.evidence;
        let student = point.residuals.iter().zip(suggestions).map(|(r, s)| {
            let stiffness = student_stiffness(*r, s.variance);
            (r * stiffness, stiffness)
        });
        let poisson = point.expected.iter().zip(counts).map(|(e, c)| {
            let reliance = c.reliance();
            (reliance * (c.samples - e), reliance * e)
        });
        student.chain(poisson).unzip()
    }

    /// Removes from the forces the part that a change of the scales absorbs.
    fn centred(&self, mut forces: Vec<f64>, stiffness: &[f64]) -> Vec<f64> {
        let mut sums = vec![(0.0, 0.0); self.scales.iter().max().map_or(0, |scale| scale + 1)];
        for ((&scale, force), stiffness) in self.scales.iter().zip(&forces).zip(stiffness) {
            sums[scale].0 += force;
            sums[scale].1 += stiffness;
        }
        let means: Vec<f64> = sums.into_iter().map(|(force, w)| force / w.max(f64::MIN_POSITIVE)).collect();
        for ((&scale, force), stiffness) in self.scales.iter().zip(&mut forces).zip(stiffness) {
            *force -= means[scale] * stiffness;
        }
        forces
    }

    /// Returns the diagonal of the second derivatives of the directions and the prior.
    fn curvature(&self, point: &Point) -> Vec<f64> {
        let prior = 1.0 / (PRIOR_DEVIATION * PRIOR_DEVIATION);
        let mut curvature = vec![prior; point.odds_log.len()];
        for &node in &self.choices {
            let edges = &self.cfg.successors[node];
            let seen: f64 = edges.iter().map(|&e| self.evidence.seen[e]).sum();
            for &e in edges {
                curvature[e] += seen * point.probability[e] * (1.0 - point.probability[e]);
            }
        }
        curvature
    }

    /// Returns for each suggestion, then for each count, the change of its block's logarithm for a change of θ.
    fn jacobian(&self, point: &Point, change: &[f64]) -> Vec<f64> {
        let moved = self.moved(point, change);
        self.observed.iter().map(|&block| moved[block]).collect()
    }

    /// Returns for each block the change of its frequency's logarithm for a change of θ, up to that of the scale.
    fn moved(&self, point: &Point, change: &[f64]) -> Vec<f64> {
        let mut sources = vec![0.0; self.outside + 1];
        for (node, ways) in self.each_choice() {
            let mean: f64 = ways.iter().map(|&(e, _)| point.probability[e] * change[e]).sum();
            for &(e, to) in ways {
                sources[to] += point.visits[node] * point.probability[e] * (change[e] - mean);
            }
        }
        let moved = point.chain.visits_from(sources);
        let by_block = moved.iter().zip(&point.rareness).take(self.outside);
        by_block.map(|(moved, rareness)| moved * rareness).collect()
    }

    /// Applies the transpose of [`jacobian`](Self::jacobian).
    fn transposed(&self, point: &Point, forces: &[f64]) -> Vec<f64> {
        let mut rewards = vec![0.0; self.outside + 1];
        for (&block, force) in self.observed.iter().zip(forces) {
            rewards[block] += force * point.rareness[block];
        }
        let worth = point.chain.worth(rewards);
        let mut gradient = vec![0.0; self.cfg.edges.len()];
        for (node, ways) in self.each_choice() {
            let mean: f64 = ways.iter().map(|&(e, to)| point.probability[e] * worth[to]).sum();
            for &(e, to) in ways {
                gradient[e] = point.visits[node] * point.probability[e] * (worth[to] - mean);
            }
        }
        gradient
    }

    /// Returns the first better point along `direction`.
    fn search(&self, from: &Point, direction: &[f64]) -> Option<Point<'a>> {
        const HALVINGS: usize = 6;
        if direction.iter().any(|d| !d.is_finite()) {
            return None;
        }
        // One branch with a large step must not hold back the others.
        let direction: Vec<f64> = direction.iter().map(|d| d.clamp(-CHANGE_MAX, CHANGE_MAX)).collect();
        let mut step = 1.0;
        for _ in 0..HALVINGS {
            let odds_log = from.odds_log.iter().zip(&direction).map(|(o, d)| o + step * d).collect();
            match self.at(odds_log) {
                Some(point) if point.loss < from.loss => return Some(point),
                _ => step *= 0.5,
            }
        }
        None
    }
}

/// Returns −ln of Student's t, up to a constant.
fn student_loss(residual: f64, variance: f64) -> f64 {
    0.5 * (FREEDOM + 1.0) * (1.0 + residual * residual / (FREEDOM * variance)).ln()
}

/// Returns the weight at which a square has the same slope.
fn student_stiffness(residual: f64, variance: f64) -> f64 {
    (FREEDOM + 1.0) / (FREEDOM * variance + residual * residual)
}

/// Returns the value that minimises the loss, by reweighting from the median.
fn robust_mean(values: &[f64], suggestions: &[Suggestion]) -> f64 {
    const ROUNDS: usize = 12;
    let mut sorted: Vec<(f64, f64)> =
        values.iter().zip(suggestions).map(|(v, s)| (*v, 1.0 / s.variance)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half: f64 = 0.5 * sorted.iter().map(|v| v.1).sum::<f64>();
    let mut below = 0.0;
    let median = sorted.iter().find(|v| {
        below += v.1;
        below >= half
    });
    let mut mean = median.map_or(0.0, |m| m.0);
    for _ in 0..ROUNDS {
        let (mut sum, mut total) = (0.0, f64::MIN_POSITIVE);
        for (value, s) in values.iter().zip(suggestions) {
            let stiffness = student_stiffness(value - mean, s.variance);
            sum += stiffness * value;
            total += stiffness;
        }
        mean = sum / total;
    }
    mean
}
