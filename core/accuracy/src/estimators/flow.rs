//! Minimum-cost maximum flow by successive shortest paths (Ahuja, Magnanti and Orlin, *Network Flows*, §9.7), with
//! potentials, so that each path is found by Dijkstra's algorithm.
//!
//! Input: arcs with whole capacities and costs ≥ 0. Output: a maximum flow of least cost. Complexity: O(paths × arcs ×
//! log nodes).

use std::{cmp::Reverse, collections::BinaryHeap};

/// A capacity that no flow exhausts.
pub const UNLIMITED: i64 = i64::MAX / 4;

/// An arc or, at the odd index after it, its residual twin.
#[derive(Clone, Copy, Debug)]
struct Arc {
    to: usize,
    left: i64,
    cost: i64,
}

/// Nodes, arcs, and the flow so far.
#[derive(Clone, Debug, Default)]
pub struct Network {
    arcs: Vec<Arc>,
    leaving: Vec<Vec<usize>>,
}

/// The cheapest path to each node, as far as the search went.
struct Paths {
    distance: Vec<i64>,
    by: Vec<usize>,
}

impl Network {
    /// Creates a network without arcs.
    pub fn new(nodes: usize) -> Network {
        Network { arcs: Vec::new(), leaving: vec![Vec::new(); nodes] }
    }

    /// Adds an arc and returns its index.
    pub fn arc(&mut self, from: usize, to: usize, capacity: i64, cost: i64) -> usize {
        debug_assert!(capacity >= 0 && cost >= 0);
        let index = self.arcs.len();
        self.arcs.push(Arc { to, left: capacity, cost });
        self.arcs.push(Arc { to: from, left: 0, cost: -cost });
        self.leaving[from].push(index);
        self.leaving[to].push(index + 1);
        index
    }

    /// Returns the flow through the arc of that index.
    pub fn flow(&self, arc: usize) -> i64 {
        self.arcs[arc + 1].left
    }

    /// Sends as much as possible, as cheaply as possible. Returns the amount.
    pub fn maximize(&mut self, source: usize, sink: usize) -> i64 {
        let mut potentials = vec![0; self.leaving.len()];
        let mut sent = 0;
        while let Some(paths) = self.cheapest(source, sink, &potentials) {
            // The search does not settle nodes beyond the sink: their distance is at least the sink's.
            let far = paths.distance[sink];
            for (potential, distance) in potentials.iter_mut().zip(&paths.distance) {
                *potential += (*distance).min(far);
            }
            sent += self.push(source, sink, &paths);
        }
        debug_assert_eq!(self.verify(source, sink), Ok(()));
        sent
    }

    fn cheapest(&self, source: usize, sink: usize, potentials: &[i64]) -> Option<Paths> {
        let nodes = self.leaving.len();
        let mut paths = Paths { distance: vec![i64::MAX; nodes], by: vec![usize::MAX; nodes] };
        let mut queue = BinaryHeap::from([Reverse((0, source))]);
        paths.distance[source] = 0;
        while let Some(Reverse((distance, node))) = queue.pop() {
            if distance > paths.distance[node] {
                continue;
            }
            if node == sink {
                return Some(paths);
            }
            for &index in &self.leaving[node] {
                let arc = self.arcs[index];
                let reduced = arc.cost + potentials[node] - potentials[arc.to];
                if arc.left > 0 && distance + reduced < paths.distance[arc.to] {
                    paths.distance[arc.to] = distance + reduced;
                    paths.by[arc.to] = index;
                    queue.push(Reverse((distance + reduced, arc.to)));
                }
            }
        }
        None
    }

    fn push(&mut self, source: usize, sink: usize, paths: &Paths) -> i64 {
        let mut route = Vec::new();
        let mut node = sink;
        while node != source {
            route.push(paths.by[node]);
            node = self.arcs[paths.by[node] ^ 1].to;
        }
        let amount = route.iter().map(|&a| self.arcs[a].left).min().unwrap_or(0);
        for arc in route {
            self.arcs[arc].left -= amount;
            self.arcs[arc ^ 1].left += amount;
        }
        amount
    }

    /// Checks that no flow is negative and that what enters a node leaves it.
    pub fn verify(&self, source: usize, sink: usize) -> Result<(), String> {
        let mut balance = vec![0i64; self.leaving.len()];
        for (index, pair) in self.arcs.chunks(2).enumerate() {
            if pair.iter().any(|a| a.left < 0) {
                return Err(format!("arc {index} carries more than it can"));
            }
            balance[pair[1].to] -= pair[1].left;
            balance[pair[0].to] += pair[1].left;
        }
        match (0..balance.len()).find(|&n| n != source && n != sink && balance[n] != 0) {
            Some(node) => Err(format!("node {node} keeps {}", balance[node])),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two routes of cost 2 and 5 with 3 and 4 of capacity: the cheap one fills first.
    #[test]
    fn the_cheaper_route_fills_first() {
        let mut network = Network::new(4);
        let cheap = network.arc(0, 1, 3, 1);
        network.arc(1, 3, 9, 1);
        let dear = network.arc(0, 2, 4, 2);
        network.arc(2, 3, 9, 3);
        assert_eq!(network.maximize(0, 3), 7);
        assert_eq!((network.flow(cheap), network.flow(dear)), (3, 4));
    }

    /// The first shortest path must be undone in part: 0→1→2→3 blocks both others.
    #[test]
    fn a_path_is_undone_if_that_is_cheaper() {
        let mut network = Network::new(4);
        network.arc(0, 1, 1, 0);
        let middle = network.arc(1, 2, 1, 0);
        network.arc(2, 3, 1, 0);
        network.arc(0, 2, 1, 10);
        network.arc(1, 3, 1, 10);
        assert_eq!(network.maximize(0, 3), 2);
        assert_eq!(network.flow(middle), 0);
    }
}
