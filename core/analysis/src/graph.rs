//! Small algorithms on adjacency lists. None is recursive, so that deep graphs are no problem.

/// Returns the nodes that can be reached from `roots`. Linear.
pub fn reachable(successors: &[Vec<usize>], roots: impl IntoIterator<Item = usize>) -> Vec<bool> {
    let mut seen = vec![false; successors.len()];
    for root in roots {
        mark_reachable(successors, &mut seen, root);
    }
    debug_assert_eq!(verify_reachable(successors, &seen), Ok(()));
    seen
}

/// Checks that no edge leaves the reached nodes.
fn verify_reachable(successors: &[Vec<usize>], seen: &[bool]) -> Result<(), String> {
    let mut left = edges(successors).filter(|&(from, to)| seen[from] && !seen[to]);
    left.next().map_or(Ok(()), |(from, to)| Err(format!("{to} follows {from} and was not reached")))
}

fn edges(successors: &[Vec<usize>]) -> impl Iterator<Item = (usize, usize)> {
    successors.iter().enumerate().flat_map(|(from, all)| all.iter().map(move |to| (from, *to)))
}

/// Adds to `seen` the nodes that can be reached from `root`.
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
    /// The component of each node.
    pub of: Vec<usize>,
    /// The nodes of each component. Components are in the order in which a depth-first search finishes them.
    pub members: Vec<Vec<usize>>,
}

/// Computes the components by Tarjan's algorithm (SIAM J. Comput. 1972), without recursion. Linear.
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
    let components = Components { of, members };
    debug_assert_eq!(components.verify(successors), Ok(()));
    components
}

impl Components {
    /// Checks that each node is in one component, that within a component each node is reachable from each other, and
    /// that an edge to another component leads to an earlier one. Linear.
    fn verify(&self, successors: &[Vec<usize>]) -> Result<(), String> {
        let mut count = 0;
        for (component, members) in self.members.iter().enumerate() {
            count += members.len();
            if members.is_empty() || members.iter().any(|&m| self.of[m] != component) {
                return Err(format!("component {component} is not {members:?}"));
            }
        }
        if count != successors.len() || self.of.len() != count {
            return Err(format!("{count} members of {} nodes", successors.len()));
        }
        let (mut within, mut back) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (from, to) in edges(successors) {
            if self.of[from] < self.of[to] {
                return Err(format!("{from} leads to {to}, which was found later"));
            }
            if self.of[from] == self.of[to] {
                within[from].push(to);
                back[to].push(from);
            }
        }
        for direction in [&within, &back] {
            let mut seen = vec![false; count];
            self.members.iter().for_each(|members| mark_reachable(direction, &mut seen, members[0]));
            if let Some(node) = seen.iter().position(|seen| !seen) {
                return Err(format!("{node} is not connected with its component"));
            }
        }
        Ok(())
    }
}
