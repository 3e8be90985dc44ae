//! Frequency equivalence: which blocks and edges are executed equally often in every run (DCPI §6.1.2).
//!
//! Input: the control-flow graph. Output: a class for each block and each edge. Complexity: linear in blocks + edges.
//!
//! The algorithm is cycle equivalence by bracket lists: Johnson, Pearson and Pingali, "The Program Structure Tree",
//! PLDI 1994, §3. Two edges of a strongly connected graph are executed equally often iff every cycle has both or
//! none, and that holds iff it holds without the edges' directions. Each block becomes an edge by splitting its node,
//! and an edge from the exit to the entry closes the graph. Endless loops were given a way out by [`Cfg::build`],
//! which is DCPI's extension. With missing edges nothing is known: each block and edge is a class of its own.

use crate::cfg::Cfg;

/// The classes of blocks and edges. Classes are numbered densely from 0, blocks' first, in the order of their first
/// member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equivalence {
    /// The class of each block.
    pub block_class: Vec<usize>,
    /// The class of each edge.
    pub edge_class: Vec<usize>,
    /// Number of classes.
    pub classes: usize,
}

impl Equivalence {
    /// Computes the classes of a graph.
    pub fn new(cfg: &Cfg) -> Equivalence {
        let blocks = cfg.blocks.len();
        if cfg.missing_edges {
            return Equivalence {
                block_class: (0..blocks).collect(),
                edge_class: (blocks..blocks + cfg.edges.len()).collect(),
                classes: blocks + cfg.edges.len(),
            };
        }
        // Each node is split in two: 2n is entered, 2n + 1 is left.
        let mut edges: Vec<(usize, usize)> = (0..blocks).map(|b| (2 * b, 2 * b + 1)).collect();
        edges.extend(cfg.edges.iter().map(|e| (2 * e.from + 1, 2 * e.to)));
        edges.extend([cfg.entry(), cfg.exit()].map(|n| (2 * n, 2 * n + 1)));
        edges.push((2 * cfg.exit() + 1, 2 * cfg.entry()));
        let raw = cycle_equivalence(2 * (blocks + 2), &edges);
        let (numbered, classes) = number_densely(&raw[..blocks + cfg.edges.len()]);
        let equivalence = Equivalence {
            block_class: numbered[..blocks].to_vec(),
            edge_class: numbered[blocks..].to_vec(),
            classes,
        };
        debug_assert_eq!(equivalence.verify(cfg), Ok(()));
        equivalence
    }

    /// Returns the blocks of each class.
    pub fn blocks_by_class(&self) -> Vec<Vec<usize>> {
        let mut blocks = vec![Vec::new(); self.classes];
        self.block_class.iter().enumerate().for_each(|(b, &c)| blocks[c].push(b));
        blocks
    }

    /// Checks what follows directly from flow conservation: a node's only way in (or out) is as frequent as the node.
    pub fn verify(&self, cfg: &Cfg) -> Result<(), String> {
        if cfg.missing_edges {
            return Ok(());
        }
        for (block, &class) in self.block_class.iter().enumerate() {
            for list in [&cfg.successors[block], &cfg.predecessors[block]] {
                if let [only] = list[..]
                    && self.edge_class[only] != class
                {
                    return Err(format!("block {block} and its only edge {only} are in different classes"));
                }
            }
        }
        Ok(())
    }
}

fn number_densely(raw: &[usize]) -> (Vec<usize>, usize) {
    let mut numbers = rustc_hash::FxHashMap::default();
    let numbered = raw
        .iter()
        .map(|&class| {
            let next = numbers.len();
            *numbers.entry(class).or_insert(next)
        })
        .collect();
    (numbered, numbers.len())
}

const NONE: usize = usize::MAX;

/// Returns the classes of the edges of a connected undirected multigraph. An edge in no cycle is a class of its own.
pub(crate) fn cycle_equivalence(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let tree = DepthFirst::new(nodes, edges);
    let mut state = Brackets::new(edges.len());
    let mut class_of = vec![NONE; edges.len()];
    // The highest node (the least number) that a back edge from the node's subtree reaches.
    let mut high = vec![NONE; nodes];
    let mut lists = vec![List::EMPTY; nodes];
    let mut capping_ends: Vec<Vec<usize>> = vec![Vec::new(); nodes];

    for &node in tree.order.iter().rev() {
        let own_high =
            tree.back_up[node].iter().map(|&e| tree.number[other(edges[e], node)]).min().unwrap_or(NONE);
        // The two children that reach highest: the second may need a capping bracket.
        let (mut best, mut second) = (NONE, NONE);
        let mut list = List::EMPTY;
        for &child in &tree.children[node] {
            if high[child] < best {
                (best, second) = (high[child], best);
            } else {
                second = second.min(high[child]);
            }
            list = state.concat(lists[child], list);
        }
        high[node] = own_high.min(best);
        for &bracket in &capping_ends[node] {
            state.delete(&mut list, bracket);
        }
        for &edge in &tree.back_down[node] {
            state.delete(&mut list, edge);
            if class_of[edge] == NONE {
                class_of[edge] = state.new_class();
            }
        }
        for &edge in &tree.back_up[node] {
            state.push(&mut list, edge);
        }
        if second < own_high {
            let capping = state.new_bracket();
            capping_ends[tree.order[second]].push(capping);
            state.push(&mut list, capping);
        }
        if let Some(edge) = tree.parent_edge[node] {
            class_of[edge] = state.class_of_tree_edge(&list, &mut class_of);
        }
        lists[node] = list;
    }
    class_of
}

fn other((a, b): (usize, usize), node: usize) -> usize {
    if a == node { b } else { a }
}

/// An undirected depth-first search: every edge that is not in the tree joins a node to one of its ancestors.
struct DepthFirst {
    order: Vec<usize>,
    number: Vec<usize>,
    parent_edge: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
    back_up: Vec<Vec<usize>>,
    back_down: Vec<Vec<usize>>,
}

impl DepthFirst {
    fn new(nodes: usize, edges: &[(usize, usize)]) -> DepthFirst {
        let mut incident = vec![Vec::new(); nodes];
        for (i, &(a, b)) in edges.iter().enumerate() {
            assert_ne!(a, b, "split nodes leave no self-loop");
            incident[a].push(i);
            incident[b].push(i);
        }
        let mut dfs = DepthFirst {
            order: Vec::with_capacity(nodes),
            number: vec![NONE; nodes],
            parent_edge: vec![None; nodes],
            children: vec![Vec::new(); nodes],
            back_up: vec![Vec::new(); nodes],
            back_down: vec![Vec::new(); nodes],
        };
        let mut used = vec![false; edges.len()];
        for root in 0..nodes {
            if dfs.number[root] == NONE {
                dfs.search(root, edges, &incident, &mut used);
            }
        }
        dfs
    }

    fn search(&mut self, root: usize, edges: &[(usize, usize)], incident: &[Vec<usize>], used: &mut [bool]) {
        self.visit(root);
        let mut path = vec![(root, 0)];
        while let Some((node, next)) = path.last_mut() {
            let node = *node;
            let Some(&edge) = incident[node].get(*next) else {
                path.pop();
                continue;
            };
            *next += 1;
            if std::mem::replace(&mut used[edge], true) {
                continue;
            }
            let to = other(edges[edge], node);
            if self.number[to] == NONE {
                self.visit(to);
                self.parent_edge[to] = Some(edge);
                self.children[node].push(to);
                path.push((to, 0));
            } else {
                self.back_up[node].push(edge);
                self.back_down[to].push(edge);
            }
        }
    }

    fn visit(&mut self, node: usize) {
        self.number[node] = self.order.len();
        self.order.push(node);
    }
}

/// A doubly linked list of brackets within [`Brackets`]; `top` is the one pushed last.
#[derive(Clone, Copy)]
struct List {
    top: usize,
    bottom: usize,
    size: usize,
}

impl List {
    const EMPTY: List = List { top: NONE, bottom: NONE, size: 0 };
}

#[derive(Clone, Copy)]
struct Bracket {
    above: usize,
    below: usize,
    recent_size: usize,
    recent_class: usize,
}

/// All brackets: one for each edge (used by back edges only), then the capping ones.
struct Brackets {
    brackets: Vec<Bracket>,
    edges: usize,
    classes: usize,
}

impl Brackets {
    const FRESH: Bracket = Bracket { above: NONE, below: NONE, recent_size: NONE, recent_class: NONE };

    fn new(edges: usize) -> Self {
        Brackets { brackets: vec![Self::FRESH; edges], edges, classes: 0 }
    }

    fn new_class(&mut self) -> usize {
        self.classes += 1;
        self.classes - 1
    }

    fn new_bracket(&mut self) -> usize {
        self.brackets.push(Self::FRESH);
        self.brackets.len() - 1
    }

    fn push(&mut self, list: &mut List, bracket: usize) {
        self.brackets[bracket].below = list.top;
        self.brackets[bracket].above = NONE;
        match list.top {
            NONE => list.bottom = bracket,
            top => self.brackets[top].above = bracket,
        }
        list.top = bracket;
        list.size += 1;
    }

    fn concat(&mut self, upper: List, lower: List) -> List {
        if upper.size == 0 {
            return lower;
        }
        if lower.size == 0 {
            return upper;
        }
        self.brackets[upper.bottom].below = lower.top;
        self.brackets[lower.top].above = upper.bottom;
        List { top: upper.top, bottom: lower.bottom, size: upper.size + lower.size }
    }

    fn delete(&mut self, list: &mut List, bracket: usize) {
        let Bracket { above, below, .. } = self.brackets[bracket];
        match above {
            NONE => list.top = below,
            above => self.brackets[above].below = below,
        }
        match below {
            NONE => list.bottom = above,
            below => self.brackets[below].above = above,
        }
        list.size -= 1;
    }

    /// The tree edge above the list's node is equivalent to those that had the same top and the same size.
    fn class_of_tree_edge(&mut self, list: &List, class_of: &mut [usize]) -> usize {
        if list.top == NONE {
            return self.new_class(); // a bridge: in no cycle
        }
        if self.brackets[list.top].recent_size != list.size {
            let class = self.new_class();
            self.brackets[list.top].recent_size = list.size;
            self.brackets[list.top].recent_class = class;
        }
        let class = self.brackets[list.top].recent_class;
        if list.size == 1 && list.top < self.edges {
            class_of[list.top] = class;
        }
        class
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::graph;

    /// Edge `a` can be executed without `b` iff a cycle through `a` avoids `b`.
    fn occurs_without(nodes: usize, edges: &[(usize, usize)], a: usize, b: usize) -> bool {
        let mut successors = vec![Vec::new(); nodes];
        for (i, &(from, to)) in edges.iter().enumerate() {
            if i != b {
                successors[from].push(to);
            }
        }
        graph::reachable(&successors, [edges[a].1])[edges[a].0]
    }

    fn split(nodes: usize, edges: &[(usize, usize)]) -> Vec<(usize, usize)> {
        let blocks = (0..nodes).map(|n| (2 * n, 2 * n + 1));
        blocks.chain(edges.iter().map(|&(a, b)| (2 * a + 1, 2 * b))).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn agrees_with_the_definition(
            nodes in 1usize..12,
            picks in prop::collection::vec((0usize..12, 0usize..12), 0..18),
        ) {
            // A ring makes the graph strongly connected.
            let mut edges: Vec<_> = (0..nodes).map(|n| (n, (n + 1) % nodes)).collect();
            edges.extend(picks.iter().map(|&(a, b)| (a % nodes, b % nodes)));
            let edges = split(nodes, &edges);
            let class = cycle_equivalence(2 * nodes, &edges);
            for a in 0..edges.len() {
                for b in 0..a {
                    let same = !occurs_without(2 * nodes, &edges, a, b)
                        && !occurs_without(2 * nodes, &edges, b, a);
                    prop_assert_eq!(class[a] == class[b], same, "edges {} and {} of {:?}", a, b, &edges);
                }
            }
        }
    }
}
