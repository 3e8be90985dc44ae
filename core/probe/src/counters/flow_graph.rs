//! Which blocks to count so that the executions of all others follow.
//!
//! Enters: a control-flow graph, weights, and the blocks that can be counted. Leaves: blocks to count ([`FlowGraph::choose`]), and
//! from their counts those of the others ([`FlowGraph::solve`]).
//!
//! What enters a node leaves it, so the counts of all edges follow from those outside of a spanning tree, and a tree of
//! the heaviest edges leaves the cheapest to be counted (Knuth and Stevenson, "Optimal measurement points for program frequency
//! counts", BIT 13, 1973; Ball and Larus, "Optimally profiling and tracing programs", TOPLAS 16, 1994, §3). Here a block
//! is an edge too, from where it is entered to where it is left, and an edge is counted in a block that is executed as often
//! (DCPI §6.1.2). What cannot be counted is put into the tree first.

use std::collections::BTreeSet;

use dwell_analysis::{cfg::Cfg, equivalence::Equivalence};

/// Executions may differ by that many because threads were within the procedure when counting began or ended.
const SLACK: i64 = 64;
/// Part of the largest count that may enter by ways that the code does not show before those ways are believed.
const UNSEEN_MAX: f64 = 1e-3;

/// A procedure's flow, with each block split into an edge.
#[derive(Clone, Debug)]
pub struct FlowGraph {
    blocks: usize,
    nodes: usize,
    edges: Vec<Edge>,
    /// Edges by node.
    incident: Vec<Vec<usize>>,
    /// Edges by class.
    of_class: Vec<Vec<usize>>,
    /// Whether flow is conserved as far as the code shows.
    is_closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    from: usize,
    to: usize,
    /// The class of edges and blocks that are executed equally often; none for the edge that closes the graph.
    class: Option<usize>,
    is_unseen: bool,
}

impl FlowGraph {
    /// Builds the graph. The first edges are the blocks.
    pub fn new(cfg: &Cfg) -> Self {
        let equivalence = Equivalence::new(cfg);
        let blocks = cfg.blocks.len();
        let of_block = |block| {
            let class = Some(equivalence.block_class[block]);
            Edge { from: 2 * block, to: 2 * block + 1, class, is_unseen: false }
        };
        let mut edges: Vec<Edge> = (0..blocks).map(of_block).collect();
        edges.extend(cfg.edges.iter().zip(&equivalence.edge_class).map(|(edge, class)| Edge {
            from: 2 * edge.from + 1,
            to: 2 * edge.to,
            class: Some(*class),
            is_unseen: edge.kind.is_pseudo(),
        }));
        edges.push(Edge { from: 2 * cfg.exit(), to: 2 * cfg.entry() + 1, class: None, is_unseen: false });
        let nodes = 2 * (blocks + 2);
        let mut incident = vec![Vec::new(); nodes];
        for (at, edge) in edges.iter().enumerate() {
            incident[edge.from].push(at);
            if edge.from != edge.to {
                incident[edge.to].push(at);
            }
        }
        let mut of_class = vec![Vec::new(); equivalence.classes];
        for (at, edge) in edges.iter().enumerate() {
            if let Some(class) = edge.class {
                of_class[class].push(at);
            }
        }
        FlowGraph { blocks, nodes, edges, incident, of_class, is_closed: !cfg.missing_edges }
    }

    /// Chooses blocks to count. `weights` are what counting each block costs, as its executions do. If the targets of a jump are
    /// not known, all blocks that can be counted are chosen.
    pub fn choose(&self, weights: &[f64], is_countable: &[bool]) -> Vec<usize> {
        if !self.is_closed {
            return (0..self.blocks).filter(|block| is_countable[*block]).collect();
        }
        let classes = self.of_class.len();
        let mut block_of_class: Vec<Option<usize>> = vec![None; classes];
        let mut weight_of_class = vec![0.0_f64; classes];
        for (block, edge) in self.edges[..self.blocks].iter().enumerate() {
            let class = edge.class.unwrap_or_default();
            weight_of_class[class] = weight_of_class[class].max(weights[block]);
            if is_countable[block] {
                block_of_class[class].get_or_insert(block);
            }
        }
        let weight = |edge: &Edge| match edge.class {
            Some(class) if block_of_class[class].is_some() => weight_of_class[class],
            _ => f64::INFINITY,
        };
        let mut heaviest_first: Vec<&Edge> = self.edges.iter().collect();
        heaviest_first.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        let mut trees = Trees::new(self.nodes);
        let outside = heaviest_first.into_iter().filter(|edge| !trees.join(edge.from, edge.to));
        let mut chosen: BTreeSet<usize> = outside.filter_map(|edge| block_of_class[edge.class?]).collect();
        // Where not even the edges outside of the tree can be counted, more blocks are needed. What follows from what does not
        // depend on the counts.
        let mut known = Known::new(self);
        chosen.iter().for_each(|block| known.set(*block, 0));
        known.spread();
        let mut cheapest_first: Vec<usize> = (0..self.blocks).filter(|block| is_countable[*block]).collect();
        cheapest_first.sort_by(|a, b| weights[*a].total_cmp(&weights[*b]));
        for block in cheapest_first {
            if known.counts[block].is_none() {
                chosen.insert(block);
                known.set(block, 0);
                known.spread();
            }
        }
        chosen.into_iter().collect()
    }

    /// Returns the executions of each block, as far as they follow from those that were counted.
    pub fn solve(&self, counted: &[(usize, u64)]) -> Vec<Option<u64>> {
        let mut measured = vec![None; self.blocks];
        counted.iter().for_each(|(block, count)| measured[*block] = Some(*count));
        if !self.is_closed {
            return measured;
        }
        let mut known = Known::new(self);
        for (block, count) in counted {
            known.set(*block, i64::try_from(*count).unwrap_or(i64::MAX));
        }
        if !known.spread() || !self.is_as_seen(&known.counts) {
            return measured;
        }
        let of_block =
            |block: usize| measured[block].or(known.counts[block].map(|count| count.max(0) as u64));
        (0..self.blocks).map(of_block).collect()
    }

    /// Returns whether the procedure was entered and left only as its code shows: an exception enters a landing pad, and the block
    /// that it left is then executed more often than those after it.
    fn is_as_seen(&self, counts: &[Option<i64>]) -> bool {
        let largest = counts.iter().flatten().copied().max().unwrap_or(0);
        let limit = SLACK.max((largest as f64 * UNSEEN_MAX) as i64);
        self.edges
            .iter()
            .zip(counts)
            .all(|(edge, count)| !edge.is_unseen || count.is_none_or(|count| count <= limit))
    }
}

/// The counts of edges that are known.
struct Known<'g> {
    graph: &'g FlowGraph,
    counts: Vec<Option<i64>>,
    /// Number of edges of each node that are not known.
    unknown: Vec<usize>,
    /// Nodes that one of those may follow at.
    open: Vec<usize>,
}

impl<'g> Known<'g> {
    fn new(graph: &'g FlowGraph) -> Self {
        let unknown = graph.incident.iter().map(Vec::len).collect();
        Known { graph, counts: vec![None; graph.edges.len()], unknown, open: Vec::new() }
    }

    /// Sets the count of a block, and so of all that is executed as often.
    fn set(&mut self, block: usize, count: i64) {
        let class = self.graph.edges[block].class.unwrap_or_default();
        for at in &self.graph.of_class[class] {
            self.set_edge(*at, count);
        }
    }

    fn set_edge(&mut self, at: usize, count: i64) {
        let edge = self.graph.edges[at];
        if self.counts[at].replace(count).is_none() {
            let nodes = [edge.from, edge.to];
            let distinct = if edge.from == edge.to { &nodes[..1] } else { &nodes[..] };
            for node in distinct {
                self.unknown[*node] -= 1;
                if self.unknown[*node] == 1 {
                    self.open.push(*node);
                }
            }
        }
    }

    /// Computes what follows: the last unknown edge of a node is what its other edges leave. Returns `false` if a count would be
    /// negative.
    fn spread(&mut self) -> bool {
        while let Some(node) = self.open.pop() {
            let incident = &self.graph.incident[node];
            let Some(&at) = incident.iter().find(|at| self.counts[**at].is_none()) else { continue };
            let edge = self.graph.edges[at];
            if edge.from == edge.to {
                continue;
            }
            let mut sum = 0_i64;
            for other in incident {
                let (edge, Some(count)) = (self.graph.edges[*other], self.counts[*other]) else { continue };
                sum += i64::from(edge.to == node) * count - i64::from(edge.from == node) * count;
            }
            let count = if edge.from == node { sum } else { -sum };
            if count < -SLACK {
                return false;
            }
            self.set_edge(at, count);
        }
        true
    }
}

/// Trees that grow together.
struct Trees {
    parents: Vec<usize>,
}

impl Trees {
    fn new(nodes: usize) -> Self {
        Trees { parents: (0..nodes).collect() }
    }

    fn root(&mut self, mut node: usize) -> usize {
        while self.parents[node] != node {
            self.parents[node] = self.parents[self.parents[node]];
            node = self.parents[node];
        }
        node
    }

    /// Joins the trees of two nodes. Returns `false` if it is one already.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a] = b;
        a != b
    }
}

#[cfg(test)]
#[path = "flow_graph_tests.rs"]
mod tests;
