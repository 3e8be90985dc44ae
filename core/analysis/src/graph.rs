//! Small algorithms on adjacency lists; none recurses, so deep graphs are as welcome as wide ones.

/// Nodes that can be reached from `roots`. Linear.
pub fn reachable(successors: &[Vec<usize>], roots: impl IntoIterator<Item = usize>) -> Vec<bool> {
    let mut seen = vec![false; successors.len()];
    for root in roots {
        mark_reachable(successors, &mut seen, root);
    }
    seen
}

/// Adds to `seen` what can be reached from `root`.
pub fn mark_reachable(successors: &[Vec<usize>], seen: &mut [bool], root: usize) {
    let mut stack = vec![root];
    while let Some(node) = stack.pop() {
        if !std::mem::replace(&mut seen[node], true) {
            stack.extend(successors[node].iter().copied().filter(|&s| !seen[s]));
        }
    }
}

/// Strongly connected components.
pub struct Components {
    /// Each node's component.
    pub of: Vec<usize>,
    /// Each component's nodes, the first that a depth-first search finishes first.
    pub members: Vec<Vec<usize>>,
}

/// Tarjan's algorithm (SIAM J. Comput. 1972), without recursion. Linear.
pub fn strong_components(successors: &[Vec<usize>]) -> Components {
    const NONE: usize = usize::MAX;
    let n = successors.len();
    let (mut number, mut low, mut of) = (vec![NONE; n], vec![NONE; n], vec![NONE; n]);
    let mut finished = vec![NONE; n];
    let (mut open, mut members) = (Vec::new(), Vec::<Vec<usize>>::new());
    let (mut count, mut clock) = (0, 0);
    for root in 0..n {
        if number[root] != NONE {
            continue;
        }
        let mut path = vec![(root, 0)];
        while let Some((node, next)) = path.last_mut() {
            let (v, i) = (*node, *next);
            if i == 0 {
                (number[v], low[v]) = (count, count);
                count += 1;
                open.push(v);
            }
            if let Some(&s) = successors[v].get(i) {
                *next += 1;
                if number[s] == NONE {
                    path.push((s, 0));
                } else if of[s] == NONE {
                    low[v] = low[v].min(number[s]);
                }
                // A node without successors must not look new again.
                continue;
            }
            finished[v] = clock;
            clock += 1;
            path.pop();
            if let Some(&(parent, _)) = path.last() {
                low[parent] = low[parent].min(low[v]);
            }
            if low[v] == number[v] {
                let start = open.iter().rposition(|&o| o == v).unwrap_or(0);
                let mut component: Vec<usize> = open.drain(start..).collect();
                component.iter().for_each(|&m| of[m] = members.len());
                component.sort_by_key(|&m| finished[m]);
                members.push(component);
            }
        }
    }
    Components { of, members }
}
