//! A tree of frames by function, with values of one or several runs.
//!
//! Input: named call stacks. Output: the tree in the order in which it is drawn, at most so many nodes large. What does not fit
//! is added up, never dropped. Cost: O(n log n) of the frames.

use std::{cmp::Reverse, hash::Hash};

use rustc_hash::FxHashMap;

use crate::answer::Stacks;

/// A frame under the frame of its caller.
#[derive(Clone, Copy)]
struct Frame {
    parent: Option<u32>,
    function: u32,
    inlined: bool,
}

/// Frames under the frames of their callers. `F` identifies a function.
pub struct FrameTree<F> {
    functions: Vec<F>,
    numbers: FxHashMap<F, u32>,
    frames: Vec<Frame>,
    known: FxHashMap<(Option<u32>, u32, bool), u32>,
    /// Number of runs: each frame has one value for each.
    runs: usize,
    /// Values of the stacks that end in each frame, by frame and run.
    own: Vec<u64>,
}

/// A tree in the order in which it is drawn.
pub struct Drawing<F> {
    /// The functions, as the nodes number them.
    pub functions: Vec<FunctionValues<F>>,
    /// Nodes. A caller precedes what it calls; nodes of one caller are in descending order of their values.
    pub nodes: Vec<DrawnNode>,
    /// Number of frames that share a node with others.
    pub merged: usize,
}

/// A function with its values by run.
pub struct FunctionValues<F> {
    /// The function.
    pub function: F,
    /// Values of the stacks that contain it; a recursive function counts once.
    pub total: Vec<u64>,
    /// Values of the stacks that end in it.
    pub own: Vec<u64>,
}

/// A node of a [`Drawing`].
pub struct DrawnNode {
    /// Index of the caller's node.
    pub parent: Option<u32>,
    /// Index of the function; `None` if the node stands for several frames.
    pub function: Option<u32>,
    /// Whether the function was inlined.
    pub inlined: bool,
    /// Values of the stacks through the node, by run.
    pub total: Vec<u64>,
    /// Values of the stacks that end here, by run.
    pub own: Vec<u64>,
    /// Number of frames that the node stands for if it has no function.
    pub merged: u64,
}

impl DrawnNode {
    /// Makes a node that stands for no frame yet.
    fn of_small_frames(parent: Option<u32>, runs: usize) -> Self {
        DrawnNode {
            parent,
            function: None,
            inlined: false,
            total: vec![0; runs],
            own: vec![0; runs],
            merged: 0,
        }
    }
}

impl<F: Clone + Eq + Hash + Ord> FrameTree<F> {
    /// Makes an empty tree for so many runs.
    pub fn new(runs: usize) -> Self {
        FrameTree {
            functions: Vec::new(),
            numbers: FxHashMap::default(),
            frames: Vec::new(),
            known: FxHashMap::default(),
            runs,
            own: Vec::new(),
        }
    }

    /// Returns the number of a function.
    pub fn function(&mut self, function: F) -> u32 {
        let functions = &mut self.functions;
        *self.numbers.entry(function).or_insert_with_key(|function| {
            functions.push(function.clone());
            functions.len() as u32 - 1
        })
    }

    /// Returns the frame of a function under its caller.
    pub fn frame(&mut self, parent: Option<u32>, function: u32, inlined: bool) -> u32 {
        let (frames, own, runs) = (&mut self.frames, &mut self.own, self.runs);
        *self.known.entry((parent, function, inlined)).or_insert_with(|| {
            frames.push(Frame { parent, function, inlined });
            own.resize(frames.len() * runs, 0);
            frames.len() as u32 - 1
        })
    }

    /// Adds the stacks of one run under a frame. `functions` and `apps` have the numbers of the stacks' functions and, if
    /// applications are to be told apart, of the applications. Each sample adds `value`.
    pub fn add(
        &mut self,
        stacks: &Stacks,
        under: Option<u32>,
        (functions, apps): (&[u32], Option<&[u32]>),
        (run, value): (usize, u64),
    ) {
        let mut placed: Vec<u32> = Vec::with_capacity(stacks.nodes.len());
        for node in &stacks.nodes {
            let parent = match (node.parent, apps) {
                (Some(parent), _) => Some(placed[parent as usize]),
                (None, Some(apps)) => Some(self.frame(under, apps[node.app as usize], false)),
                (None, None) => under,
            };
            let frame = self.frame(parent, functions[node.function as usize], node.inlined);
            self.own[frame as usize * self.runs + run] += value * node.samples;
            placed.push(frame);
        }
    }

    /// Orders the tree for drawing and keeps the `nodes_max` largest frames by `size`, which is a sum over runs: a frame is at
    /// least as large as what it calls. The others of each caller become one more node.
    pub fn draw(self, nodes_max: usize, size: &dyn Fn(&[u64]) -> u64) -> Drawing<F> {
        let totals = self.totals();
        let sizes: Vec<u64> = totals.chunks(self.runs).map(size).collect();
        let none = |function: &F| FunctionValues {
            function: function.clone(),
            total: vec![0; self.runs],
            own: vec![0; self.runs],
        };
        let mut functions: Vec<FunctionValues<F>> = self.functions.iter().map(none).collect();
        let order = self.in_order(&sizes, |at, is_outermost| {
            let function = &mut functions[self.frames[at as usize].function as usize];
            add(&mut function.own, self.values(&self.own, at));
            if is_outermost {
                add(&mut function.total, self.values(&totals, at));
            }
        });
        let mut largest: Vec<usize> = (0..order.len()).collect();
        largest.sort_by_key(|place| (Reverse(sizes[order[*place] as usize]), *place));
        let mut is_kept = vec![false; order.len()];
        largest.iter().take(nodes_max).for_each(|place| is_kept[order[*place] as usize] = true);
        let merged = order.len().saturating_sub(nodes_max);
        Drawing { functions, nodes: self.nodes(&order, &is_kept, &totals), merged }
    }

    /// Returns the values of the stacks through each frame.
    fn totals(&self) -> Vec<u64> {
        let mut totals = self.own.clone();
        for at in (0..self.frames.len()).rev() {
            let Some(parent) = self.frames[at].parent else { continue };
            for run in 0..self.runs {
                totals[parent as usize * self.runs + run] += totals[at * self.runs + run];
            }
        }
        totals
    }

    /// Returns the values of one frame.
    fn values<'v>(&self, of: &'v [u64], at: u32) -> &'v [u64] {
        &of[at as usize * self.runs..][..self.runs]
    }

    /// Returns the nodes of the frames that are kept, and after them the nodes that stand for the others.
    fn nodes(&self, order: &[u32], is_kept: &[bool], totals: &[u64]) -> Vec<DrawnNode> {
        let mut nodes: Vec<DrawnNode> = Vec::new();
        // The node that each frame is drawn in, or that the node of the merged frames is drawn under.
        let mut drawn: Vec<Option<u32>> = vec![None; order.len()];
        let mut small: Vec<DrawnNode> = Vec::new();
        let mut small_of: FxHashMap<Option<u32>, usize> = FxHashMap::default();
        for at in order {
            let Frame { parent, function, inlined } = self.frames[*at as usize];
            let above = parent.and_then(|parent| drawn[parent as usize]);
            let total = self.values(totals, *at);
            if is_kept[*at as usize] {
                drawn[*at as usize] = Some(nodes.len() as u32);
                let (total, own) = (total.to_vec(), self.values(&self.own, *at).to_vec());
                nodes.push(DrawnNode {
                    parent: above,
                    function: Some(function),
                    inlined,
                    total,
                    own,
                    merged: 0,
                });
                continue;
            }
            drawn[*at as usize] = above;
            let index = *small_of.entry(above).or_insert_with(|| {
                small.push(DrawnNode::of_small_frames(above, self.runs));
                small.len() - 1
            });
            let node = &mut small[index];
            node.merged += 1;
            // What a merged frame calls is part of its total.
            if parent.is_none_or(|parent| is_kept[parent as usize]) {
                add(&mut node.total, total);
                add(&mut node.own, total);
            }
        }
        nodes.append(&mut small);
        nodes
    }

    /// Visits each frame before what it calls, and the largest of its neighbours first; returns the order. `visit` is told
    /// whether no caller of the frame is of the same function.
    fn in_order(&self, sizes: &[u64], mut visit: impl FnMut(u32, bool)) -> Vec<u32> {
        let mut callees: Vec<Vec<u32>> = vec![Vec::new(); self.frames.len()];
        let mut roots = Vec::new();
        for (at, frame) in (0..).zip(&self.frames) {
            frame.parent.map_or(&mut roots, |parent| &mut callees[parent as usize]).push(at);
        }
        // The next frame to visit is at the end.
        let sort = |frames: &mut Vec<u32>| {
            frames.sort_by(|a, b| {
                let key = |at: &u32| {
                    let frame = self.frames[*at as usize];
                    (Reverse(sizes[*at as usize]), &self.functions[frame.function as usize], frame.inlined)
                };
                key(b).cmp(&key(a))
            });
        };
        sort(&mut roots);
        callees.iter_mut().for_each(sort);
        let mut active = vec![0u32; self.functions.len()];
        let mut order = Vec::with_capacity(self.frames.len());
        let mut path: Vec<u32> = Vec::new();
        let mut waiting = roots;
        while let Some(at) = waiting.pop() {
            let Frame { parent, function, .. } = self.frames[at as usize];
            while path.last().copied() != parent {
                let left = path.pop().expect("the caller is on the path");
                active[self.frames[left as usize].function as usize] -= 1;
            }
            visit(at, active[function as usize] == 0);
            active[function as usize] += 1;
            path.push(at);
            order.push(at);
            waiting.append(&mut callees[at as usize]);
        }
        order
    }
}

fn add(sums: &mut [u64], more: &[u64]) {
    sums.iter_mut().zip(more).for_each(|(sum, value)| *sum += value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a tree of stacks such as `main;parse;read`, each with one value for each run.
    fn tree(stacks: &[(&str, &[u64])]) -> FrameTree<String> {
        let mut tree = FrameTree::new(stacks[0].1.len());
        for (frames, values) in stacks {
            let mut parent = None;
            for name in frames.split(';') {
                let function = tree.function(name.to_owned());
                parent = Some(tree.frame(parent, function, false));
            }
            let at = parent.unwrap() as usize * tree.runs;
            add(&mut tree.own[at..][..values.len()], values);
        }
        tree
    }

    /// Writes a drawing: each node with its depth, its total and what ends in it.
    fn drawn(drawing: &Drawing<String>) -> Vec<String> {
        let depth = |node: &DrawnNode| {
            std::iter::successors(node.parent, |at| drawing.nodes[*at as usize].parent).count()
        };
        let name = |node: &DrawnNode| match node.function {
            Some(function) => drawing.functions[function as usize].function.clone(),
            None => format!("{} more", node.merged),
        };
        let line = |node: &DrawnNode| {
            format!("{}{} {:?} {:?}", "-".repeat(depth(node)), name(node), node.total, node.own)
        };
        drawing.nodes.iter().map(line).collect()
    }

    fn sum(values: &[u64]) -> u64 {
        values.iter().sum()
    }

    #[test]
    fn the_largest_frame_comes_first_and_recursion_counts_once() {
        let tree = tree(&[("main;b", &[3]), ("main;a;main;a", &[4]), ("main;a", &[2]), ("other", &[1])]);
        let drawing = tree.draw(100, &sum);
        let lines =
            ["main [9] [0]", "-a [6] [2]", "--main [4] [0]", "---a [4] [4]", "-b [3] [3]", "other [1] [1]"];
        assert_eq!(drawn(&drawing), lines);
        let values = |name: &str| {
            drawing.functions.iter().find(|f| f.function == name).map(|f| (f.total[0], f.own[0]))
        };
        assert_eq!((values("main"), values("a"), values("b")), (Some((9, 0)), Some((6, 6)), Some((3, 3))));
        assert_eq!(drawing.merged, 0);
    }

    #[test]
    fn small_frames_are_merged_and_counted() {
        let stacks: [(&str, &[u64]); 5] = [
            ("main;a;deep;deeper", &[1, 0]),
            ("main;a", &[5, 5]),
            ("main;b;deep", &[1, 1]),
            ("main;c", &[0, 1]),
            ("start", &[1, 0]),
        ];
        let drawing = tree(&stacks).draw(2, &sum);
        let lines = [
            "main [7, 7] [0, 0]",
            "-a [6, 5] [5, 5]",
            "--2 more [1, 0] [1, 0]",
            "-3 more [1, 2] [1, 2]",
            "1 more [1, 0] [1, 0]",
        ];
        assert_eq!(drawn(&drawing), lines);
        assert_eq!(drawing.merged, 6);
        let ends: u64 = drawing.nodes.iter().flat_map(|node| &node.own).sum();
        assert_eq!(ends, 15, "every sample ends in one node");
    }
}
