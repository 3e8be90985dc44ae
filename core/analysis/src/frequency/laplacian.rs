//! Solver of Laplacian systems: the potentials of an electrical network, the step inside each Newton iteration of the
//! flow fit.
//!
//! Input: a graph once, then conductances and currents any number of times. Output: the potential of each node; the last
//! node, the ground, is at 0. Complexity: the symbolic part of the elimination once, then linear in its fill-in, which is
//! small for the graphs of programs. If it exceeds a budget, there is no solver.
//!
//! Gaussian elimination of a Laplacian is a sequence of star–mesh transforms: removing a node connects its neighbours i
//! and j by cᵢ·cⱼ/Σc. Nothing is ever subtracted from a conductance, so that networks whose conductances differ by many
//! orders of magnitude (a loop of a million rounds beside its entry) are solved accurately. Nodes are eliminated in the
//! order of fewest neighbours.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

/// Greatest number of pairs of neighbours that elimination may connect in all.
const WORK_MAX: usize = 2_000_000;

/// A graph, ready to be solved for any conductances.
pub struct Laplacian {
    nodes: usize,
    /// The slot of each arc's conductance; `None` for an arc from a node to itself.
    slot_of_arc: Vec<Option<usize>>,
    slots: usize,
    elimination: Vec<Step>,
    /// For each eliminated node in order, its neighbours at that time, with the slot of the conductance to each.
    neighbours: Vec<(usize, usize)>,
    /// For each pair of neighbours of each eliminated node in order, the slot between them.
    pair_slots: Vec<usize>,
}

struct Step {
    node: usize,
    /// The end of its neighbours; they begin at the end of the step before.
    end: usize,
}

impl Laplacian {
    /// Determines the order of elimination; node `nodes - 1` is the ground. Returns `None` if the fill-in exceeds the
    /// budget.
    pub fn new(nodes: usize, arcs: &[(usize, usize)]) -> Option<Laplacian> {
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
        let mut network = Laplacian {
            nodes,
            slot_of_arc,
            slots: 0,
            elimination: Vec::with_capacity(nodes),
            neighbours: Vec::with_capacity(2 * nodes),
            pair_slots: Vec::with_capacity(2 * nodes),
        };
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
            self.neighbours.extend(around.iter().map(|&n| (n, slot_between(slots, node, n))));
            self.elimination.push(Step { node, end: self.neighbours.len() });
        }
        Some(())
    }

    /// Returns potentials such that at each node except the ground the currents along arcs, conductance × difference of
    /// potentials, add up to the `injected` current.
    pub fn solve(&self, conductances: &[f64], injected: &[f64]) -> Vec<f64> {
        let mut conductance = vec![0.0; self.slots];
        for (slot, c) in self.slot_of_arc.iter().zip(conductances) {
            if let Some(slot) = slot {
                conductance[*slot] += c;
            }
        }
        let mut current = injected.to_vec();
        let mut sums = Vec::with_capacity(self.elimination.len());
        let (mut pairs, mut start) = (&self.pair_slots[..], 0);
        for step in &self.elimination {
            let neighbours = &self.neighbours[start..step.end];
            start = step.end;
            let sum: f64 = neighbours.iter().map(|&(_, slot)| conductance[slot]).sum();
            let sum = sum.max(f64::MIN_POSITIVE);
            sums.push(sum);
            let entering = current[step.node];
            for (i, &(a, slot_a)) in neighbours.iter().enumerate() {
                let part = conductance[slot_a] / sum;
                current[a] += part * entering;
                let others = &neighbours[i + 1..];
                let (joined, rest) = pairs.split_at(others.len());
                pairs = rest;
                for (&slot, &(_, slot_b)) in joined.iter().zip(others) {
                    conductance[slot] += part * conductance[slot_b];
                }
            }
        }
        let mut potential = vec![0.0; self.nodes];
        let mut end = start;
        for (at, (step, sum)) in self.elimination.iter().zip(&sums).enumerate().rev() {
            let start = at.checked_sub(1).map_or(0, |before| self.elimination[before].end);
            let neighbours = &self.neighbours[start..end];
            end = start;
            let weighted: f64 = neighbours.iter().map(|&(n, slot)| conductance[slot] * potential[n]).sum();
            potential[step.node] = (current[step.node] + weighted) / sum;
        }
        potential
    }
}

fn slot_between(slots: &mut FxHashMap<(usize, usize), usize>, a: usize, b: usize) -> usize {
    let next = slots.len();
    *slots.entry((a.min(b), a.max(b))).or_insert(next)
}

/// Checks Kirchhoff's law at each node except the ground, up to rounding relative to the current through the node.
#[cfg(test)]
fn verify_potentials(
    arcs: &[(usize, usize)],
    conductances: &[f64],
    injected: &[f64],
    potential: &[f64],
) -> Result<(), String> {
    let ground = potential.len() - 1;
    let (mut sum, mut through) = (vec![0.0; potential.len()], vec![0.0; potential.len()]);
    for (&(a, b), c) in arcs.iter().zip(conductances).filter(|((a, b), _)| a != b) {
        let current = c * (potential[a] - potential[b]);
        (sum[a], sum[b]) = (sum[a] + current, sum[b] - current);
        let rounded = c * (potential[a].abs() + potential[b].abs());
        (through[a], through[b]) = (through[a] + rounded, through[b] + rounded);
    }
    let leaks = |n: &usize| (sum[*n] - injected[*n]).abs() > 1e-9 * (through[*n] + injected[*n].abs());
    match (0..ground).find(leaks) {
        Some(n) => Err(format!("{} of {} flow out of node {n}", sum[n], injected[n])),
        None if potential[ground] != 0.0 => Err(format!("the ground is at {}", potential[ground])),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ladder_of_very_unequal_resistors_is_solved() {
        let rungs = 40;
        let rails = (0..rungs - 1).flat_map(|k| [(2 * k, 2 * k + 2), (2 * k + 1, 2 * k + 3)]);
        let mut arcs: Vec<(usize, usize)> = rails.chain((0..rungs).map(|k| (2 * k, 2 * k + 1))).collect();
        arcs.extend([(0, 2 * rungs), (2 * rungs - 1, 2 * rungs), (7, 7)]);
        let conductances: Vec<f64> = (0..arcs.len()).map(|a| 10f64.powi((a * 7 % 19) as i32 - 9)).collect();
        let injected: Vec<f64> = (0..=2 * rungs).map(|n| (n * 5 % 11) as f64 - 5.0).collect();
        let network = Laplacian::new(2 * rungs + 1, &arcs).unwrap();
        let potential = network.solve(&conductances, &injected);
        assert_eq!(verify_potentials(&arcs, &conductances, &injected, &potential), Ok(()));
        let mut wrong = potential.clone();
        wrong[5] += 1.0;
        assert!(verify_potentials(&arcs, &conductances, &injected, &wrong).is_err());
    }

    #[test]
    fn a_bridge_of_resistors_is_solved() {
        let arcs = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 3)];
        let conductances = [1.0, 1e-6, 1e9, 3.0, 1e3, 5.0];
        let injected = [1.0, -0.25, 0.5, 0.0];
        let network = Laplacian::new(4, &arcs).unwrap();
        let potential = network.solve(&conductances, &injected);
        assert_eq!(verify_potentials(&arcs, &conductances, &injected, &potential), Ok(()));
    }
}
