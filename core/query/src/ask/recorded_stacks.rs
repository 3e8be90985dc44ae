//! The call stacks of an epoch, one by one: rows of `dwell sql`.
//!
//! Input: an epoch. Output: its stacks and their frames, with names if they are wanted. Cost: one pass over the frames, and one
//! look-up of each distinct place for the names.

use std::sync::Arc;

use dwell_profile::{CallParent, CodePlace, StackRoot, StoredCallTree};
use rustc_hash::FxHashMap;

use super::stacks::{NamedPlace, Names};
use crate::{Cancel, Query, QueryError};

/// The call stacks of an epoch.
#[derive(Default)]
pub struct RecordedStacks {
    tree: StoredCallTree,
    /// Number of the root above each node.
    roots: Vec<u32>,
    ids: Vec<u64>,
    /// The innermost frames of all stacks that have samples.
    sampled: Vec<u32>,
    /// The names of places; empty if they are not wanted.
    places: FxHashMap<CodePlace, NamedPlace>,
    functions: Vec<Arc<str>>,
}

/// A call stack of an epoch: samples of one event in one execution of an application.
#[derive(Clone, Copy, Debug)]
pub struct RecordedStack<'a> {
    /// A number that is computed from the frames and the end, so it is the same in every epoch.
    pub id: u64,
    /// What the samples have in common.
    pub root: &'a StackRoot,
    /// Number of samples.
    pub samples: u64,
    /// Number of the innermost frame.
    node: u32,
}

/// A frame of a call stack.
#[derive(Clone, Copy, Debug)]
pub struct RecordedFrame<'a> {
    /// The sampled instruction, or the last byte of the call.
    pub place: &'a CodePlace,
    /// Demangled name of the function; `[BINARY]` if no symbol is known.
    pub function: &'a Arc<str>,
    /// Whether the function was inlined into its caller.
    pub inlined: bool,
    /// Source file and line.
    pub line: Option<&'a (String, u32)>,
}

impl Query {
    /// Returns the call stacks of an epoch, of all events; none if none were recorded, or if the query is narrowed to a service: call
    /// stacks are not kept by control group.
    pub fn recorded_stacks(
        &self,
        epoch: &str,
        with_names: bool,
        cancel: &Cancel,
    ) -> Result<RecordedStacks, QueryError> {
        if self.service.is_some() {
            return Ok(RecordedStacks::default());
        }
        let view = self.view(&[epoch.to_owned()])?;
        let mut tree = StoredCallTree::default();
        for epoch in &view.selection.epochs {
            tree = self.database.read_call_stacks(&epoch.id)?.0;
        }
        let mut names = Names::new(self, &view);
        for (number, node) in tree.nodes().iter().enumerate().filter(|_| with_names) {
            if number % 4096 == 0 {
                cancel.check()?;
            }
            names.place(&node.frame);
        }
        let functions = names.functions.iter().map(|function| function.name.as_str().into()).collect();
        let places = names.places;
        let sampled =
            (0..).zip(tree.nodes()).filter(|(_, node)| node.samples > 0).map(|(at, _)| at).collect();
        Ok(RecordedStacks { roots: tree.roots_of_nodes(), ids: ids(&tree), sampled, tree, places, functions })
    }
}

impl RecordedStacks {
    /// Returns the number of stacks that have samples.
    pub fn len(&self) -> usize {
        self.sampled.len()
    }

    /// Returns whether no stack has samples.
    pub fn is_empty(&self) -> bool {
        self.sampled.is_empty()
    }

    /// Returns the stack at a position below [`RecordedStacks::len`].
    pub fn stack(&self, at: usize) -> RecordedStack<'_> {
        let node = self.sampled[at] as usize;
        RecordedStack {
            id: self.ids[node],
            root: &self.tree.roots()[self.roots[node] as usize],
            samples: self.tree.nodes()[node].samples,
            node: self.sampled[at],
        }
    }

    /// Returns the frames of a stack, the innermost first, with those of inlined functions; none if names are not wanted.
    pub fn frames(&self, stack: RecordedStack<'_>) -> Vec<RecordedFrame<'_>> {
        let (mut frames, mut at) = (Vec::new(), CallParent::Node(stack.node));
        while let CallParent::Node(number) = at {
            let node = &self.tree.nodes()[number as usize];
            let named = self.places.get(&node.frame);
            frames.extend(named.into_iter().flat_map(|named| named.frames.iter().rev()).map(|frame| {
                RecordedFrame {
                    place: &node.frame,
                    function: &self.functions[frame.function as usize],
                    inlined: frame.inlined,
                    line: frame.line.as_ref(),
                }
            }));
            at = node.parent;
        }
        frames
    }
}

/// Returns the number of the stack that ends at each node, by the FNV-1a hash of its end and of its frames from the outermost
/// one: such a number must be the same in every version and on every machine.
fn ids(tree: &StoredCallTree) -> Vec<u64> {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    let with = |state: u64, bytes: &[u8]| {
        bytes.iter().fold(state, |state, byte| (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
    };
    let mut ids: Vec<u64> = Vec::with_capacity(tree.nodes().len());
    for node in tree.nodes() {
        let outer = match node.parent {
            CallParent::Node(caller) => ids[caller as usize],
            CallParent::Root(root) => with(START, tree.roots()[root as usize].end.name().as_bytes()),
        };
        let named = with(with(outer, node.frame.image.as_str().as_bytes()), &[0xff]);
        ids.push(with(named, &node.frame.offset.0.to_le_bytes()));
    }
    ids
}
