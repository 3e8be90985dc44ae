//! Electrical networks: potentials of a weighted graph's nodes, the step inside each Newton iteration of the flow fit.
//!
//! Input: a graph once, then conductances and currents again and again. Output: potentials, the last node's being 0.
//! Complexity: once the elimination's symbolic part, then linear in its fill-in, which is small for the graphs of
//! programs; beyond a budget there is no network.
//!
//! Gaussian elimination of a Laplacian by star–mesh transforms: removing a node joins its neighbours i and j by
//! cᵢ·cⱼ/Σc. Nothing is ever subtracted from a conductance, so networks whose conductances differ by many orders of
//! magnitude (a loop of a million rounds beside its entry) stay exact. Nodes go in the order of fewest neighbours.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

/// Pairs of neighbours that elimination may join in all.
const WORK_MAX: usize = 2_000_000;

/// A graph, ready to be solved for any conductances.
pub struct Network {
    nodes: usize,
    /// Where each arc's conductance goes; `None` for an arc from a node to itself.
    slot_of_arc: Vec<Option<usize>>,
    slots: usize,
    elimination: Vec<Step>,
    /// For each pair of neighbours of each eliminated node, in order: the slot between them.
    pair_slots: Vec<usize>,
}

struct Step {
    node: usize,
    /// Neighbours left at that time, and the slot of the conductance to each.
    neighbours: Vec<(usize, usize)>,
}

impl Network {
    /// Orders the elimination; node `nodes - 1` is the ground. `None` if it would fill in too much.
    pub fn new(nodes: usize, arcs: &[(usize, usize)]) -> Option<Network> {
        let mut slots = FxHashMap::default();
        let mut adjacent: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); nodes];
        let slot_of_arc = arcs
            .iter()
            .map(|&(a, b)| {
                (a != b).then(|| {
                    adjacent[a].insert(b);
                    adjacent[b].insert(a);
                    slot_between(&mut slots, a, b)
                })
            })
            .collect();
        let mut network =
            Network { nodes, slot_of_arc, slots: 0, elimination: Vec::new(), pair_slots: Vec::new() };
        network.eliminate_all(adjacent, &mut slots)?;
        network.slots = slots.len();
        Some(network)
    }

    fn eliminate_all(
        &mut self,
        mut adjacent: Vec<BTreeSet<usize>>,
        slots: &mut FxHashMap<(usize, usize), usize>,
    ) -> Option<()> {
        let ground = self.nodes - 1;
        let mut queue: BTreeSet<(usize, usize)> = (0..ground).map(|n| (adjacent[n].len(), n)).collect();
        while let Some((_, node)) = queue.pop_first() {
            let around: Vec<usize> = std::mem::take(&mut adjacent[node]).into_iter().collect();
            if self.pair_slots.len() + around.len() * around.len() > WORK_MAX {
                return None;
            }
            for &n in &around {
                queue.remove(&(adjacent[n].len(), n));
                adjacent[n].remove(&node);
            }
            for (i, &a) in around.iter().enumerate() {
                for &b in &around[i + 1..] {
                    self.pair_slots.push(slot_between(slots, a, b));
                    adjacent[a].insert(b);
                    adjacent[b].insert(a);
                }
            }
            queue.extend(around.iter().filter(|&&n| n != ground).map(|&n| (adjacent[n].len(), n)));
            let neighbours = around.iter().map(|&n| (n, slot_between(slots, node, n))).collect();
            self.elimination.push(Step { node, neighbours });
        }
        Some(())
    }

    /// Potentials such that at each node but the ground the currents along arcs, conductance × difference of
    /// potentials, add up to what is `injected`.
    pub fn potentials(&self, conductances: &[f64], injected: &[f64]) -> Vec<f64> {
        let mut conductance = vec![0.0; self.slots];
        for (slot, c) in self.slot_of_arc.iter().zip(conductances) {
            if let Some(slot) = slot {
                conductance[*slot] += c;
            }
        }
        let mut current = injected.to_vec();
        let mut pairs = self.pair_slots.iter();
        for step in &self.elimination {
            let sum: f64 = step.neighbours.iter().map(|&(_, slot)| conductance[slot]).sum();
            let sum = sum.max(f64::MIN_POSITIVE);
            for (i, &(a, slot_a)) in step.neighbours.iter().enumerate() {
                let part = conductance[slot_a] / sum;
                current[a] += part * current[step.node];
                for &(_, slot_b) in &step.neighbours[i + 1..] {
                    let Some(&slot) = pairs.next() else { continue };
                    conductance[slot] += part * conductance[slot_b];
                }
            }
        }
        let mut potential = vec![0.0; self.nodes];
        for step in self.elimination.iter().rev() {
            let sum: f64 = step.neighbours.iter().map(|&(_, slot)| conductance[slot]).sum();
            let weighted: f64 =
                step.neighbours.iter().map(|&(n, slot)| conductance[slot] * potential[n]).sum();
            potential[step.node] = (current[step.node] + weighted) / sum.max(f64::MIN_POSITIVE);
        }
        potential
    }
}

fn slot_between(slots: &mut FxHashMap<(usize, usize), usize>, a: usize, b: usize) -> usize {
    let next = slots.len();
    *slots.entry((a.min(b), a.max(b))).or_insert(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_of_resistors_is_solved() {
        let arcs = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 3)];
        let conductances = [1.0, 1e-6, 1e9, 3.0, 1e3, 5.0];
        let injected = [1.0, -0.25, 0.5, 0.0];
        let network = Network::new(4, &arcs).unwrap();
        let potential = network.potentials(&conductances, &injected);
        let mut sum = [0.0; 4];
        for (&(a, b), c) in arcs.iter().zip(conductances) {
            sum[a] += c * (potential[a] - potential[b]);
            sum[b] -= c * (potential[a] - potential[b]);
        }
        assert_eq!(potential[3], 0.0);
        (0..3).for_each(|n| assert!((sum[n] - injected[n]).abs() < 1e-6, "{sum:?}"));
    }
}
