//! Visits of a Markov chain: from branch probabilities to frequencies that conserve flow, and their derivatives.
//!
//! Input: transition probabilities of a strongly connected chain. Output: the visits of each node per visit of the last,
//! and the products with their derivatives that a fit needs. Complexity: linear in the transitions and in the fill-in of
//! elimination, which is small for the graphs of programs; beyond a budget nothing is returned.
//!
//! The method is state reduction (Grassmann, Taksar and Heyman, "Regenerative Analysis and Steady State Distributions for
//! Markov Chains", Operations Research 33(5), 1985): Gaussian elimination without a subtraction, so that trip counts of
//! millions are exact. Nodes are eliminated in the order of least fill-in. The order and the places of the fill-in depend
//! on the graph alone ([`Pattern`]); the numbers ([`Elimination`]) are computed anew for each set of probabilities.

use std::collections::BTreeSet;

/// Greatest number of transitions that elimination may touch in all.
const WORK_MAX: usize = 2_000_000;

/// The order in which nodes are eliminated, and where their transitions are stored.
pub struct Pattern {
    nodes: usize,
    steps: Vec<Step>,
    /// The slot of each transition of the input.
    slot_of: Vec<usize>,
    slots: usize,
}

/// The elimination of one node.
struct Step {
    node: usize,
    /// Remaining nodes that lead to it, each with the slot of the transition.
    ins: Vec<(usize, usize)>,
    /// Remaining nodes that it leads to, each with the slot of the transition.
    outs: Vec<(usize, usize)>,
    /// For each pair of `ins` and `outs`, the slot of the transition that bypasses the node.
    bypasses: Vec<usize>,
}

impl Pattern {
    /// Determines the pattern of a graph whose last node stays. Returns `None` if the fill-in exceeds the budget.
    pub fn new(nodes: usize, transitions: impl Iterator<Item = (usize, usize)>) -> Option<Pattern> {
        let mut graph = Graph { to: vec![Links::new(); nodes], from: vec![Links::new(); nodes], slots: 0 };
        let slot_of = transitions.map(|(from, to)| graph.slot(from, to)).collect();
        let last = nodes - 1;
        let mut queue: BTreeSet<(usize, usize)> = (0..last).map(|n| (graph.fill_in(n), n)).collect();
        let (mut steps, mut work) = (Vec::with_capacity(last), 0);
        while let Some((fill_in, node)) = queue.pop_first() {
            work += fill_in + 1;
            if work > WORK_MAX {
                return None;
            }
            let mut neighbours: Vec<usize> =
                graph.from[node].iter().chain(&graph.to[node]).map(|(n, _)| *n).collect();
            neighbours.retain(|&n| n != node && n != last);
            neighbours.sort_unstable();
            neighbours.dedup();
            neighbours.iter().for_each(|&n| _ = queue.remove(&(graph.fill_in(n), n)));
            steps.push(graph.eliminate(node));
            queue.extend(neighbours.iter().map(|&n| (graph.fill_in(n), n)));
        }
        Some(Pattern { nodes, steps, slot_of, slots: graph.slots })
    }
}

/// Nodes that a node leads to or is led to by, ascending, each with the slot of the transition. Usually there are few.
type Links = Vec<(usize, usize)>;

/// The remaining graph, with a slot for each transition.
struct Graph {
    to: Vec<Links>,
    /// The transitions of `to`, by target.
    from: Vec<Links>,
    slots: usize,
}

fn place(links: &Links, node: usize) -> Result<usize, usize> {
    links.binary_search_by_key(&node, |(n, _)| *n)
}

fn remove(links: &mut Links, node: usize) {
    if let Ok(at) = place(links, node) {
        links.remove(at);
    }
}

impl Graph {
    fn slot(&mut self, from: usize, to: usize) -> usize {
        match place(&self.to[from], to) {
            Ok(at) => self.to[from][at].1,
            Err(at) => {
                let slot = self.slots;
                self.slots += 1;
                self.to[from].insert(at, (to, slot));
                let back = place(&self.from[to], from).unwrap_or_else(|at| at);
                self.from[to].insert(back, (from, slot));
                slot
            }
        }
    }

    fn fill_in(&self, node: usize) -> usize {
        self.to[node].len() * self.from[node].len()
    }

    fn eliminate(&mut self, node: usize) -> Step {
        let (mut outs, mut ins) = (std::mem::take(&mut self.to[node]), std::mem::take(&mut self.from[node]));
        remove(&mut outs, node);
        remove(&mut ins, node);
        outs.iter().for_each(|(to, _)| remove(&mut self.from[*to], node));
        ins.iter().for_each(|(from, _)| remove(&mut self.to[*from], node));
        let mut bypasses = Vec::with_capacity(ins.len() * outs.len());
        for &(from, _) in &ins {
            bypasses.extend(outs.iter().map(|&(to, _)| self.slot(from, to)));
        }
        Step { node, ins, outs, bypasses }
    }
}

/// A chain with its probabilities.
pub struct Elimination<'p> {
    pattern: &'p Pattern,
    /// The probability in each slot at the time when one of its ends was eliminated.
    probability: Vec<f64>,
    /// For each step the visits of the node until it is left for another: 1 over the probability of leaving, which is a sum rather
    /// than 1 minus the rest. A product is sooner there than a quotient, and each step waits for those before.
    stays: Vec<f64>,
}

impl<'p> Elimination<'p> {
    /// Eliminates all nodes but the last. `probabilities` are in the order of the pattern's transitions.
    pub fn new(pattern: &'p Pattern, probabilities: &[f64]) -> Elimination<'p> {
        let mut probability = vec![0.0; pattern.slots];
        pattern.slot_of.iter().zip(probabilities).for_each(|(&slot, p)| probability[slot] += p);
        let mut stays = Vec::with_capacity(pattern.steps.len());
        for step in &pattern.steps {
            let sum: f64 = step.outs.iter().map(|&(_, slot)| probability[slot]).sum();
            let stay = 1.0 / sum.max(f64::MIN_POSITIVE);
            stays.push(stay);
            let mut bypasses = step.bypasses.iter();
            for &(_, into) in &step.ins {
                let visits = probability[into] * stay;
                for (&(_, out), &bypass) in step.outs.iter().zip(bypasses.by_ref()) {
                    probability[bypass] += visits * probability[out];
                }
            }
        }
        Elimination { pattern, probability, stays }
    }

    /// Returns the visits of each node per visit of the last; `None` if one overflows.
    pub fn visits(&self) -> Option<Vec<f64>> {
        let mut visits = vec![0.0; self.pattern.nodes];
        visits[self.pattern.nodes - 1] = 1.0;
        self.substitute_visits(&mut visits);
        let visits = visits.iter().all(|v| v.is_finite()).then_some(visits)?;
        debug_assert_eq!(verify_visits(&visits), Ok(()));
        Some(visits)
    }

    /// Returns the visits of each node if `sources` enter and all leave at the last: the change of the visits for a
    /// change of what enters each node. Signs may mix.
    pub fn visits_from(&self, mut sources: Vec<f64>) -> Vec<f64> {
        for (step, stay) in self.pattern.steps.iter().zip(&self.stays) {
            let passed = sources[step.node] * stay;
            step.outs.iter().for_each(|&(to, slot)| sources[to] += passed * self.probability[slot]);
        }
        sources[self.pattern.nodes - 1] = 0.0;
        self.substitute_visits(&mut sources);
        sources
    }

    fn substitute_visits(&self, visits: &mut [f64]) {
        for (step, stay) in self.pattern.steps.iter().zip(&self.stays).rev() {
            // What entered at the node itself was not moved until now.
            let entered: f64 =
                step.ins.iter().map(|&(from, slot)| visits[from] * self.probability[slot]).sum();
            visits[step.node] = (visits[step.node] + entered) * stay;
        }
    }

    /// Returns what a visit of each node is worth until the chain is back at the last: the transpose of
    /// [`visits_from`](Self::visits_from).
    pub fn worth(&self, mut rewards: Vec<f64>) -> Vec<f64> {
        for (step, stay) in self.pattern.steps.iter().zip(&self.stays) {
            let passed = rewards[step.node] * stay;
            step.ins.iter().for_each(|&(from, slot)| rewards[from] += passed * self.probability[slot]);
        }
        rewards[self.pattern.nodes - 1] = 0.0;
        for (step, stay) in self.pattern.steps.iter().zip(&self.stays).rev() {
            let ahead: f64 = step.outs.iter().map(|&(to, slot)| rewards[to] * self.probability[slot]).sum();
            rewards[step.node] = (rewards[step.node] + ahead) * stay;
        }
        rewards
    }
}

/// Checks that no number of visits is negative and that the last node is visited once.
fn verify_visits(visits: &[f64]) -> Result<(), String> {
    match visits.iter().position(|&v| v < 0.0) {
        Some(node) => Err(format!("node {node} is visited {} times", visits[node])),
        None if visits.last() != Some(&1.0) => {
            Err(format!("the last node is visited {:?} times", visits.last()))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_of_a_million_rounds_is_exact() {
        let exit = 1e-6;
        let transitions = [(2, 0), (0, 1), (1, 0), (1, 2)];
        let pattern = Pattern::new(3, transitions.into_iter()).unwrap();
        let visits = Elimination::new(&pattern, &[1.0, 1.0, 1.0 - exit, exit]).visits().unwrap();
        assert!((visits[0] / 1e6 - 1.0).abs() < 1e-12, "{visits:?}");
    }

    /// A diamond in a loop; entering at node 1 instead of node 0 skips one visit of it.
    #[test]
    fn sources_and_worth_are_transposes() {
        let transitions = [(4, 0), (0, 1), (0, 2), (1, 3), (2, 3), (3, 0), (3, 4)];
        let probabilities = [1.0, 0.3, 0.7, 1.0, 1.0, 0.9, 0.1];
        let pattern = Pattern::new(5, transitions.into_iter()).unwrap();
        let chain = Elimination::new(&pattern, &probabilities);
        let visits = chain.visits().unwrap();
        let same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(same(&visits, &[10.0, 3.0, 7.0, 10.0, 1.0]), "{visits:?}");
        let (sources, rewards) = (vec![0.3, -1.0, 2.0, 0.5, 0.0], vec![1.0, -2.0, 0.7, 0.1, 0.0]);
        let (from, worth) = (chain.visits_from(sources.clone()), chain.worth(rewards.clone()));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        assert!((dot(&from, &rewards) - dot(&worth, &sources)).abs() < 1e-9);
    }
}
