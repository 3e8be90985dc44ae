//! The flow through a procedure that agrees best with the samples of its classes (the "global constraint solver" that
//! DCPI §6.1.4 experimented with).
//!
//! Input: the graph, and for each block and edge samples E collected in W cycles per execution, so that by itself its
//! frequency would be E / W. Output: the frequency of each edge and block: never negative, conserved at every block.
//! Complexity: a bounded number of Newton steps, each the solution of a Laplacian system
//! ([`laplacian`](super::laplacian)).
//!
//! The flow minimises Σ W·z − E·ln z, the Poisson likelihood of the samples: convex, weighted by evidence, and steep at 0
//! where a relative L1 loss is flat. Each arc, a block or an edge, has a flow z, and conservation couples them. A Newton
//! step of such a problem is a resistor network with conductances z²/E.
//!
//! Counts that are known up to a factor add −n·ln z for each, and N·ln Σ x·z for all of a scale: their likelihood at the
//! factor that suits the flow best. The step takes the curvature of that term too (Sherman and Morrison, one more system
//! for each scale), because with a constant factor the flow would hardly move from its first guess.

use super::{
    laplacian::Laplacian,
    markov::{Elimination, Pattern},
};
use crate::cfg::{Cfg, Node};

/// Greatest number of Newton steps. A start near the solution needs few, and flows near zero keep shrinking for ever.
const STEPS_MAX: usize = 20;
/// The relative change at which the search ends; the remaining error is about its square.
pub const CONVERGED: f64 = 1e-3;
/// The part of the way to zero that a step may go.
const BOUNDARY_PART: f64 = 0.9;

/// The least part of a scale's samples by which the flow determines its factor. It damps the step where almost nothing
/// does.
const HELD_PART: f64 = 1e-3;

/// Evidence for a block or an edge by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// E: the number of samples, more than 0.
    pub samples: f64,
    /// W: the cycles per execution in which they are collected.
    pub cycles: f64,
}

/// Counts on one scale of their own. Their samples are included in [`Known::samples`]; their exposures are not included
/// in its cycles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scaled {
    /// For each count the arc, the samples, and the samples expected per execution, up to the scale's factor.
    pub counts: Vec<(usize, f64, f64)>,
}

impl Scaled {
    /// Returns the factor at which the flow is expected to have as many samples as there are.
    pub fn factor(&self, flow: &[f64]) -> f64 {
        let expected: f64 = self.counts.iter().map(|&(arc, _, exposure)| exposure * flow[arc]).sum();
        self.samples() / expected.max(f64::MIN_POSITIVE)
    }

    fn samples(&self) -> f64 {
        self.counts.iter().map(|c| c.1).sum()
    }
}

/// The response of the flow to a change of a scale's factor.
struct Response {
    /// For each count the arc, and the samples for its flow.
    slope: Vec<(usize, f64)>,
    /// The response of each arc.
    change: Vec<f64>,
    /// The samples that the flow does not respond to; they determine the factor.
    held: f64,
}

impl Response {
    /// Corrects the flow's step, which was computed for a fixed factor.
    fn follow(&self, changes: &mut [f64]) {
        let along = self.along(changes) / self.held;
        changes.iter_mut().zip(&self.change).for_each(|(to, change)| *to += along * change);
    }

    fn along(&self, changes: &[f64]) -> f64 {
        self.slope.iter().map(|&(arc, slope)| slope * changes[arc]).sum()
    }
}

/// A flow through the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The frequency of each block.
    pub blocks: Vec<f64>,
    /// The frequency of each edge.
    pub edges: Vec<f64>,
    /// The frequency of each entry from outside, with the block that it enters.
    pub entries: Vec<(Node, f64)>,
}

/// The graph, prepared for fitting. Each block is an arc from its start to its end; entry and exit are joined to one
/// ground.
pub struct FlowFit<'a> {
    cfg: &'a Cfg,
    entries: &'a [Node],
    arcs: Vec<(usize, usize)>,
    laplacian: Laplacian,
    pattern: Pattern,
}

impl<'a> FlowFit<'a> {
    /// Prepares a graph whose blocks `entries` may also be entered from outside. Returns `None` if elimination would take
    /// too much work.
    pub fn new(cfg: &'a Cfg, entries: &'a [Node]) -> Option<FlowFit<'a>> {
        let blocks = cfg.blocks.len();
        let ground = 2 * blocks;
        let mut arcs: Vec<(usize, usize)> = (0..blocks).map(|b| (2 * b, 2 * b + 1)).collect();
        let start = |n: usize| if n < blocks { 2 * n + 1 } else { ground };
        let end = |n: usize| if n < blocks { 2 * n } else { ground };
        arcs.extend(cfg.edges.iter().map(|e| (start(e.from), end(e.to))));
        arcs.extend(entries.iter().map(|&b| (ground, end(b))));
        let laplacian = Laplacian::new(ground + 1, &arcs)?;
        let transitions = cfg.edges.iter().map(|e| (e.from.min(blocks), e.to.min(blocks)));
        let entering = entries.iter().map(|&b| (blocks, b));
        let pattern = Pattern::new(blocks + 1, transitions.chain(entering))?;
        Some(FlowFit { cfg, entries, arcs, laplacian, pattern })
    }

    /// Returns the best flow, or one near it: the search ends with a step that changes no arc by more than the part
    /// `converged`. `known` and the first guess `start` are indexed by block, then by edge, then by entry.
    pub fn solve(&self, known: &[Known], scales: &[Scaled], start: &[f64], converged: f64) -> Option<Flow> {
        let mut flow: Vec<f64> = start.iter().map(|f| f.max(f64::MIN_POSITIVE)).collect();
        for _ in 0..STEPS_MAX {
            if self.step(known, scales, &mut flow)? < converged {
                break;
            }
        }
        let flow = self.conserved(&flow[self.cfg.blocks.len()..])?;
        debug_assert_eq!(flow.verify(self.cfg), Ok(()));
        Some(flow)
    }

    /// Makes one damped Newton step. Returns the largest relative change.
    fn step(&self, known: &[Known], scales: &[Scaled], flow: &mut [f64]) -> Option<f64> {
        let mut cycles: Vec<f64> = known.iter().map(|k| k.cycles).collect();
        for scaled in scales {
            let factor = scaled.factor(flow);
            scaled.counts.iter().for_each(|&(arc, _, exposure)| cycles[arc] += factor * exposure);
        }
        let conductances: Vec<f64> = flow.iter().zip(known).map(|(&z, k)| z * (z / k.samples)).collect();
        let arcs = flow.iter().zip(&cycles).zip(&conductances);
        let mut changes: Vec<f64> = arcs.map(|((&z, w), conductance)| 2.0 * z - w * conductance).collect();
        self.conserve(&conductances, &mut changes);
        changes.iter_mut().zip(flow.iter()).for_each(|(change, z)| *change -= z);
        for response in self.responses(scales, flow, &conductances) {
            response.follow(&mut changes);
        }
        let relative = || changes.iter().zip(flow.iter()).map(|(change, z)| change / z);
        let most_down = relative().fold(0.0, |least: f64, r| least.min(r));
        let part = if most_down < -BOUNDARY_PART { BOUNDARY_PART / -most_down } else { 1.0 };
        let largest = relative().fold(0.0, |most: f64, r| most.max(r.abs()));
        if !largest.is_finite() {
            return None;
        }
        flow.iter_mut().zip(&changes).for_each(|(z, change)| *z += part * change);
        Some(largest)
    }

    /// Returns the conserved flow nearest to what each arc would carry by itself. The conductances are the variances.
    fn conserve(&self, conductances: &[f64], wanted: &mut [f64]) {
        let mut injected = vec![0.0; 2 * self.cfg.blocks.len() + 1];
        for (&target, &(from, to)) in wanted.iter().zip(&self.arcs) {
            injected[from] -= target;
            injected[to] += target;
        }
        let potential = self.laplacian.solve(conductances, &injected);
        for ((target, conductance), &(from, to)) in wanted.iter_mut().zip(conductances).zip(&self.arcs) {
            *target -= conductance * (potential[to] - potential[from]);
        }
    }

    /// Returns the response to each scale's factor, those of the scales before being free.
    fn responses(&self, scales: &[Scaled], flow: &[f64], conductances: &[f64]) -> Vec<Response> {
        let mut responses: Vec<Response> = Vec::with_capacity(scales.len());
        for scaled in scales {
            let of_count = |&(arc, samples, _): &(usize, f64, f64)| (arc, samples / flow[arc]);
            let slope: Vec<(usize, f64)> = scaled.counts.iter().map(of_count).collect();
            let mut change = vec![0.0; flow.len()];
            slope.iter().for_each(|&(arc, slope)| change[arc] += slope * conductances[arc]);
            self.conserve(conductances, &mut change);
            responses.iter().for_each(|before| before.follow(&mut change));
            let samples = scaled.samples();
            let mut response = Response { slope, change, held: samples };
            response.held = (samples - response.along(&response.change)).max(HELD_PART * samples);
            responses.push(response);
        }
        responses
    }

    /// Returns the flow that the branch probabilities imply, which is conserved exactly. `arcs` are edges, then entries.
    fn conserved(&self, arcs: &[f64]) -> Option<Flow> {
        let cfg = self.cfg;
        let outside = cfg.blocks.len();
        let from = |a: usize| cfg.edges.get(a).map_or(outside, |e| e.from.min(outside));
        let mut leaving = vec![0.0; outside + 1];
        arcs.iter().enumerate().for_each(|(a, z)| leaving[from(a)] += z);
        let probability: Vec<f64> = arcs.iter().enumerate().map(|(a, z)| z / leaving[from(a)]).collect();
        let visits = Elimination::new(&self.pattern, &probability).visits()?;
        let scaled: Vec<f64> = visits.iter().map(|v| leaving[outside] * v).collect();
        let mut edges: Vec<f64> = probability.iter().enumerate().map(|(a, p)| scaled[from(a)] * p).collect();
        let entries = self.entries.iter().copied().zip(edges.split_off(cfg.edges.len())).collect();
        let flow = Flow { blocks: scaled[..outside].to_vec(), edges, entries };
        flow.blocks.iter().chain(&flow.edges).all(|f| f.is_finite()).then_some(flow)
    }
}

impl Flow {
    /// Returns the frequencies by block, then by edge, then by entry.
    pub fn all(&self) -> Vec<f64> {
        let entries = self.entries.iter().map(|e| e.1);
        self.blocks.iter().chain(&self.edges).copied().chain(entries).collect()
    }

    /// Checks that the flow is conserved at each block and that nothing is negative.
    pub fn verify(&self, cfg: &Cfg) -> Result<(), String> {
        if let Some(e) = self.edges.iter().position(|f| f.is_nan() || *f < 0.0) {
            return Err(format!("edge {e} carries {}", self.edges[e]));
        }
        for (block, &frequency) in self.blocks.iter().enumerate() {
            let entering: f64 = self.entries.iter().filter(|e| e.0 == block).map(|e| e.1).sum();
            for (edges, more) in [(&cfg.predecessors[block], entering), (&cfg.successors[block], 0.0)] {
                let sum: f64 = edges.iter().map(|&e| self.edges[e]).sum::<f64>() + more;
                if (sum - frequency).abs() > 1e-6 * frequency.max(sum) {
                    return Err(format!("block {block} is executed {frequency}, its edges {sum}"));
                }
            }
        }
        Ok(())
    }
}
