//! Samples by call stack: a tree of frames that shares the common outer frames.
//!
//! A frame of a caller is the address of the last byte of its call, so it is inside the call instruction and differs from
//! every sampled address. A sampled address, and one that a signal interrupted, is the instruction itself.

use std::{collections::BTreeMap, hash::Hash, sync::Arc};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{CodePlace, Event};

/// Why a stack has no further frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackEnd {
    /// The outermost frame was reached: the stack is complete.
    Root,
    /// The outermost frame is in code without information on its caller.
    NoUnwindInformation,
    /// The file of the outermost frame could not be read.
    NoImage,
    /// The stack is deeper than the bytes that were recorded of it.
    Cut,
    /// The stack has more frames than are recorded.
    TooDeep,
    /// The stack goes on in memory that was not recorded: another stack, as coroutines and signal handlers have.
    OtherStack,
    /// What should be the next frame is none: its address is in no code, or the frame is not further out.
    Broken,
    /// The registers of the user's code were not recorded (32-bit code).
    NoRegisters,
    /// The stack was recorded by frame pointers, and the code of the outermost frame keeps none.
    NoFramePointer,
    /// The end has a name that this version of Dwell does not know.
    Unknown,
}

impl StackEnd {
    /// All ends that have a name.
    pub const ALL: [StackEnd; 9] = [
        StackEnd::Root,
        StackEnd::NoUnwindInformation,
        StackEnd::NoImage,
        StackEnd::Cut,
        StackEnd::TooDeep,
        StackEnd::OtherStack,
        StackEnd::Broken,
        StackEnd::NoRegisters,
        StackEnd::NoFramePointer,
    ];

    /// Returns the name as files and answers spell it.
    pub fn name(self) -> &'static str {
        match self {
            StackEnd::Root => "root",
            StackEnd::NoUnwindInformation => "no-unwind-information",
            StackEnd::NoImage => "no-image",
            StackEnd::Cut => "cut",
            StackEnd::TooDeep => "too-deep",
            StackEnd::OtherStack => "other-stack",
            StackEnd::Broken => "broken",
            StackEnd::NoRegisters => "no-registers",
            StackEnd::NoFramePointer => "no-frame-pointer",
            StackEnd::Unknown => "unknown",
        }
    }

    /// Returns the end with this name; [`StackEnd::Unknown`] if there is none.
    pub fn named(name: &str) -> StackEnd {
        StackEnd::ALL.into_iter().find(|end| end.name() == name).unwrap_or(StackEnd::Unknown)
    }

    /// Returns whether all frames are known.
    pub fn is_complete(self) -> bool {
        self == StackEnd::Root
    }
}

/// What all samples under one root of a stored tree have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackRoot {
    /// The sampled event.
    pub event: Event,
    /// The application, named as in its samples.
    pub app: Arc<str>,
    /// Number of the application's execution in the epoch, from 1; 0 if executions are not kept apart.
    pub instance: u32,
    /// How the stacks end at their outermost frame.
    pub end: StackEnd,
}

/// The position of a node in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallParent {
    /// The node is an outermost frame, under the root with this number.
    Root(u32),
    /// The node is called by the node with this number.
    Node(u32),
}

/// A frame in a tree of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallNode<F> {
    /// The caller's frame, which has a smaller number.
    pub parent: CallParent,
    /// The place of the frame.
    pub frame: F,
    /// Number of samples whose innermost frame this is.
    pub samples: u64,
}

/// Samples by call stack. `R` is what all samples under one root share, `F` the place of a frame.
#[derive(Clone, Debug)]
pub struct CallTree<R, F> {
    roots: Vec<R>,
    nodes: Vec<CallNode<F>>,
    root_numbers: FxHashMap<R, u32>,
    node_numbers: FxHashMap<(CallParent, F), u32>,
}

/// A tree as it is stored.
pub type StoredCallTree = CallTree<StackRoot, CodePlace>;

impl<R, F> Default for CallTree<R, F> {
    fn default() -> Self {
        CallTree {
            roots: Vec::new(),
            nodes: Vec::new(),
            root_numbers: FxHashMap::default(),
            node_numbers: FxHashMap::default(),
        }
    }
}

impl<R: Clone + Eq + Hash, F: Clone + Eq + Hash> CallTree<R, F> {
    /// Adds samples of one stack, whose frames are given from the outermost to the innermost. A stack without frames is
    /// ignored.
    pub fn add(&mut self, root: R, frames: impl IntoIterator<Item = F>, samples: u64) {
        let mut at = self.root(root);
        for frame in frames {
            at = CallParent::Node(self.child(at, frame));
        }
        self.add_samples(at, samples);
    }

    /// Adds all samples of another tree, whose roots and frames are given in the order of their numbers, perhaps converted.
    pub fn absorb<S, G>(&mut self, other: &CallTree<S, G>, roots: &[R], frames: impl IntoIterator<Item = F>) {
        let roots: Vec<CallParent> = roots.iter().map(|root| self.root(root.clone())).collect();
        let mut numbers: Vec<CallParent> = Vec::with_capacity(other.nodes.len());
        for (node, frame) in other.nodes.iter().zip(frames) {
            let parent = match node.parent {
                CallParent::Root(number) => roots[number as usize],
                CallParent::Node(number) => numbers[number as usize],
            };
            numbers.push(CallParent::Node(self.add_under(parent, frame, node.samples)));
        }
    }

    /// Returns the position of a root, which is added if it is new.
    pub fn root(&mut self, root: R) -> CallParent {
        let roots = &mut self.roots;
        CallParent::Root(*self.root_numbers.entry(root).or_insert_with_key(|root| {
            roots.push(root.clone());
            roots.len() as u32 - 1
        }))
    }

    /// Returns the number of a frame under a parent; it is added if it is new.
    pub fn child(&mut self, parent: CallParent, frame: F) -> u32 {
        let nodes = &mut self.nodes;
        *self.node_numbers.entry((parent, frame)).or_insert_with_key(|(parent, frame)| {
            nodes.push(CallNode { parent: *parent, frame: frame.clone(), samples: 0 });
            nodes.len() as u32 - 1
        })
    }

    /// Adds samples whose innermost frame is `frame`, called by `parent`. Returns the number of its node.
    pub fn add_under(&mut self, parent: CallParent, frame: F, samples: u64) -> u32 {
        let number = self.child(parent, frame);
        self.add_samples(CallParent::Node(number), samples);
        number
    }

    fn add_samples(&mut self, at: CallParent, samples: u64) {
        if let CallParent::Node(number) = at {
            let node = &mut self.nodes[number as usize];
            node.samples = node.samples.saturating_add(samples);
        }
    }
}

impl<R, F> CallTree<R, F> {
    /// Returns the roots in the order of their numbers.
    pub fn roots(&self) -> &[R] {
        &self.roots
    }

    /// Returns the nodes in the order of their numbers. A caller precedes what it calls.
    pub fn nodes(&self) -> &[CallNode<F>] {
        &self.nodes
    }

    /// Returns whether there is no stack.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of samples that have a stack.
    pub fn samples(&self) -> u64 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.samples))
    }

    /// Returns the number of the root above each node.
    pub fn roots_of_nodes(&self) -> Vec<u32> {
        let mut roots: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            roots.push(match node.parent {
                CallParent::Root(number) => number,
                CallParent::Node(number) => roots[number as usize],
            });
        }
        roots
    }
}

impl<R, F: Ord> CallTree<R, F> {
    /// Returns the numbers of all nodes in the order in which a walk from the roots first meets them, so that each stack is
    /// next to those that share its outer frames. Siblings are in the order of their frames.
    pub fn preorder(&self) -> Vec<u32> {
        let mut under_roots: Vec<Vec<u32>> = vec![Vec::new(); self.roots.len()];
        let mut under_nodes: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for (number, node) in (0..).zip(&self.nodes) {
            match node.parent {
                CallParent::Root(root) => under_roots[root as usize].push(number),
                CallParent::Node(parent) => under_nodes[parent as usize].push(number),
            }
        }
        let descending = |numbers: &mut Vec<u32>| {
            numbers.sort_by(|a, b| self.nodes[*b as usize].frame.cmp(&self.nodes[*a as usize].frame));
        };
        let mut order = Vec::with_capacity(self.nodes.len());
        for mut waiting in under_roots {
            descending(&mut waiting);
            while let Some(number) = waiting.pop() {
                order.push(number);
                let mut called = std::mem::take(&mut under_nodes[number as usize]);
                descending(&mut called);
                waiting.extend(called);
            }
        }
        order
    }
}

/// The call stacks of an epoch, in numbers. Fields may be added; each has a default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallStacksRecord {
    /// Number of samples per second that should have a stack: of a thread, or of a CPU if the whole machine is sampled; 0 for
    /// an import.
    pub hz: u32,
    /// Number of samples that have a stack.
    pub samples: u64,
    /// How many of them are not complete, by [`StackEnd::name`].
    pub incomplete: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Describes a tree: a line for each stack that has samples.
    fn lines(tree: &CallTree<&'static str, char>) -> Vec<String> {
        let stack = |number: u32| {
            let (mut frames, mut at) = (String::new(), CallParent::Node(number));
            loop {
                match at {
                    CallParent::Root(root) => break format!("{}:{frames}", tree.roots()[root as usize]),
                    CallParent::Node(node) => {
                        frames.insert(0, tree.nodes()[node as usize].frame);
                        at = tree.nodes()[node as usize].parent;
                    }
                }
            }
        };
        let order = tree.preorder();
        assert_eq!(order.len(), tree.nodes().len());
        let sampled = order.into_iter().filter(|n| tree.nodes()[*n as usize].samples > 0);
        sampled.map(|n| format!("{} {}", stack(n), tree.nodes()[n as usize].samples)).collect()
    }

    #[test]
    fn stacks_share_their_outer_frames() {
        let mut tree = CallTree::default();
        tree.add("a", "mpx".chars(), 2);
        tree.add("a", "mpx".chars(), 1);
        tree.add("a", "mp".chars(), 4);
        tree.add("a", "mo".chars(), 1);
        tree.add("b", "m".chars(), 1);
        tree.add("b", "".chars(), 9);
        assert_eq!(lines(&tree), ["a:mo 1", "a:mp 4", "a:mpx 3", "b:m 1"]);
        assert_eq!((tree.nodes().len(), tree.samples()), (5, 9));
        assert_eq!(tree.roots_of_nodes(), [0, 0, 0, 0, 1]);
        let mut sum: CallTree<&str, char> = CallTree::default();
        sum.add("b", "mz".chars(), 1);
        let frames = || tree.nodes().iter().map(|node| node.frame);
        sum.absorb(&tree, tree.roots(), frames());
        sum.absorb(&tree, &["b", "b"], frames());
        assert_eq!(
            lines(&sum),
            ["b:m 2", "b:mo 1", "b:mp 4", "b:mpx 3", "b:mz 1", "a:mo 1", "a:mp 4", "a:mpx 3"]
        );
    }

    #[test]
    fn names_of_ends_lead_back() {
        for end in StackEnd::ALL {
            assert_eq!(StackEnd::named(end.name()), end);
        }
        assert_eq!(StackEnd::named("lost in a newer version"), StackEnd::Unknown);
    }
}
