//! Visits of a Markov chain: from branch probabilities to frequencies that conserve flow.
//!
//! Input: transition probabilities of a strongly connected chain. Output: how often each node is visited for one visit
//! of the last. Complexity: linear in the transitions and in the fill-in of elimination, which is small for the graphs
//! of programs; beyond a budget nothing is returned.
//!
//! The method is state reduction (Grassmann, Taksar and Heyman, "Regenerative Analysis and Steady State Distributions
//! for Markov Chains", Operations Research 33(5), 1985): Gaussian elimination without a subtraction, so trip counts of
//! millions come out exact. Nodes go in the order of least fill-in.

use std::collections::{BTreeMap, BTreeSet};

/// Transitions that elimination may touch in all.
const WORK_MAX: usize = 4_000_000;

/// Visits of each node per visit of node `nodes - 1`; `None` if elimination would fill in too much.
pub fn visits(nodes: usize, transitions: impl Iterator<Item = (usize, usize, f64)>) -> Option<Vec<f64>> {
    let mut chain = Chain::new(nodes, transitions);
    let mut order = Vec::with_capacity(nodes);
    let mut queue: BTreeSet<(usize, usize)> = (0..nodes - 1).map(|n| (chain.fill_in(n), n)).collect();
    let mut work = 0;
    while let Some((fill_in, node)) = queue.pop_first() {
        work += fill_in + 1;
        if work > WORK_MAX {
            return None;
        }
        let neighbours: BTreeSet<usize> =
            chain.from[node].iter().chain(chain.to[node].keys()).copied().filter(|&n| n != node).collect();
        for &n in neighbours.iter().filter(|&&n| n != nodes - 1) {
            queue.remove(&(chain.fill_in(n), n));
        }
        order.push(chain.eliminate(node));
        for &n in neighbours.iter().filter(|&&n| n != nodes - 1) {
            queue.insert((chain.fill_in(n), n));
        }
    }
    let mut visits = vec![0.0; nodes];
    visits[nodes - 1] = 1.0;
    for Eliminated { node, entries } in order.into_iter().rev() {
        visits[node] = entries.iter().map(|&(from, p)| visits[from] * p).sum();
    }
    visits.iter().all(|v| v.is_finite()).then_some(visits)
}

/// A node and the expected visits of it for one visit of each node that leads to it.
struct Eliminated {
    node: usize,
    entries: Vec<(usize, f64)>,
}

struct Chain {
    to: Vec<BTreeMap<usize, f64>>,
    /// Mirrors `to`.
    from: Vec<BTreeSet<usize>>,
}

impl Chain {
    fn new(nodes: usize, transitions: impl Iterator<Item = (usize, usize, f64)>) -> Self {
        let mut chain = Chain { to: vec![BTreeMap::new(); nodes], from: vec![BTreeSet::new(); nodes] };
        for (from, to, p) in transitions {
            chain.add(from, to, p);
        }
        chain
    }

    fn add(&mut self, from: usize, to: usize, p: f64) {
        *self.to[from].entry(to).or_default() += p;
        self.from[to].insert(from);
    }

    fn fill_in(&self, node: usize) -> usize {
        self.to[node].len() * self.from[node].len()
    }

    fn eliminate(&mut self, node: usize) -> Eliminated {
        let mut out = std::mem::take(&mut self.to[node]);
        out.remove(&node);
        // What is not a self-loop, summed rather than subtracted from 1.
        let leaves: f64 = out.values().sum();
        let sources = std::mem::take(&mut self.from[node]);
        for to in out.keys() {
            self.from[*to].remove(&node);
        }
        let mut entries = Vec::with_capacity(sources.len());
        for from in sources.into_iter().filter(|&f| f != node) {
            let p = self.to[from].remove(&node).unwrap_or(0.0);
            let visits = p / leaves.max(f64::MIN_POSITIVE);
            entries.push((from, visits));
            for (&to, &q) in &out {
                self.add(from, to, visits * q);
            }
        }
        Eliminated { node, entries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_of_a_million_rounds_is_exact() {
        let exit = 1e-6;
        let visits =
            visits(3, [(2, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0 - exit), (1, 2, exit)].into_iter()).unwrap();
        assert!((visits[0] / 1e6 - 1.0).abs() < 1e-12, "{visits:?}");
    }
}
