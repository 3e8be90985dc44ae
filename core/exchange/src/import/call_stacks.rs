//! Sums of samples by call stack, while a profile is read, and their conversion to what the database stores.
//!
//! Enters: the places of a sample's frames, and its period. Leaves: trees of whole samples, and how many of their stacks are
//! incomplete. Never here: how frames were found, files, more frames than [`FRAMES_IN_ALL_MAX`].
//!
//! A sample counts in its stack what it counts at its place: its period in proportion to the mean period of its event.

use std::collections::BTreeMap;

use dwell_attribution::ExecutionId;
use dwell_profile::{
    CallParent, CallStacksRecord, CallTree, CodePlace, MAX_SEGMENT_ROWS, StackEnd, StackRoot, StoredCallTree,
};
use dwell_unwind::FRAMES_MAX;
use rustc_hash::FxHashMap;

use super::imported::EventTally;

/// Largest number of frames in the tree of all stacks. A frame takes some 60 bytes, and a perf.data file of a gigabyte
/// rarely has more than a million.
const FRAMES_IN_ALL_MAX: usize = 4 << 20;
const _: () = assert!(FRAMES_IN_ALL_MAX <= MAX_SEGMENT_ROWS);

/// A target and an offset in it.
pub(super) type Place = (u32, u64);

/// What all samples under one root have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Root {
    pub event: u16,
    pub execution: ExecutionId,
    pub end: StackEnd,
}

/// Sums of periods by call stack.
#[derive(Default)]
pub(super) struct ImportedStacks {
    /// Frames are numbers of `places`.
    tree: CallTree<Root, u32>,
    places: Vec<Place>,
    numbers: FxHashMap<Place, u32>,
    /// Number of samples whose stack had no room.
    pub left_out: u64,
}

impl ImportedStacks {
    /// Adds samples with `periods` in all to a stack, whose frames are given from the innermost to the outermost. Frames beyond
    /// [`FRAMES_MAX`] are left out.
    pub fn add(&mut self, mut root: Root, frames: &[Place], periods: u64, samples: u64) {
        if self.tree.nodes().len() > FRAMES_IN_ALL_MAX - FRAMES_MAX {
            self.left_out = self.left_out.saturating_add(samples);
            return;
        }
        let kept = &frames[..frames.len().min(FRAMES_MAX)];
        if kept.len() < frames.len() {
            root.end = StackEnd::TooDeep;
        }
        let ImportedStacks { tree, places, numbers, .. } = self;
        let number = |place: &Place| {
            *numbers.entry(*place).or_insert_with(|| {
                places.push(*place);
                places.len() as u32 - 1
            })
        };
        tree.add(root, kept.iter().rev().map(number), periods);
    }

    /// Forgets all stacks.
    pub fn clear(&mut self) {
        *self = ImportedStacks::default();
    }

    /// Returns the places of all frames, each once.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Returns the executions that have stacks, some more than once.
    pub fn executions(&self) -> impl Iterator<Item = ExecutionId> {
        self.tree.roots().iter().map(|root| root.execution)
    }

    /// Returns the executions that have a frame in one of some targets, with the targets.
    pub fn in_targets(&self, is_one: impl Fn(u32) -> bool) -> impl Iterator<Item = (ExecutionId, u32)> {
        let roots = self.tree.roots_of_nodes();
        self.tree.nodes().iter().zip(roots).filter_map(move |(node, root)| {
            let (target, _) = self.places[node.frame as usize];
            is_one(target).then(|| (self.tree.roots()[root as usize].execution, target))
        })
    }

    /// Returns the tree to store. `root` returns what is stored for a root, and `place` for a frame of an execution.
    pub fn stored(
        self,
        events: &[EventTally],
        root: impl Fn(&Root) -> StackRoot,
        place: impl Fn(ExecutionId, Place) -> CodePlace,
    ) -> StoredCallTree {
        let nodes = self.tree.nodes();
        let of_nodes = self.tree.roots_of_nodes();
        let samples = self.whole_samples(&of_nodes, events);
        let mut inclusive = samples.clone();
        for (number, node) in nodes.iter().enumerate().rev() {
            if let CallParent::Node(caller) = node.parent {
                inclusive[caller as usize] |= inclusive[number];
            }
        }
        let mut stored = StoredCallTree::default();
        let roots: Vec<CallParent> = self.tree.roots().iter().map(|of| stored.root(root(of))).collect();
        let mut positions: Vec<CallParent> = Vec::with_capacity(nodes.len());
        for (number, node) in nodes.iter().enumerate() {
            let parent = match node.parent {
                CallParent::Root(root) => roots[root as usize],
                CallParent::Node(caller) => positions[caller as usize],
            };
            // Some stacks have less than half a sample. What they alone call has no position of its own.
            if inclusive[number] == 0 {
                positions.push(parent);
                continue;
            }
            let execution = self.tree.roots()[of_nodes[number] as usize].execution;
            let frame = place(execution, self.places[node.frame as usize]);
            positions.push(CallParent::Node(stored.add_under(parent, frame, samples[number])));
        }
        stored
    }

    /// Returns the whole samples of each node: its periods divided by the mean period of its event. The remainder of rounding
    /// at one stack is carried to the next.
    fn whole_samples(&self, roots: &[u32], events: &[EventTally]) -> Vec<u64> {
        let mut before = vec![0_u128; events.len()];
        let nodes = self.tree.nodes().iter().zip(roots);
        let whole = nodes.map(|(node, root)| {
            let event = usize::from(self.tree.roots()[*root as usize].event);
            let counted = events[event].whole_samples(before[event]);
            before[event] += u128::from(node.samples);
            u64::try_from(events[event].whole_samples(before[event]) - counted).unwrap_or(u64::MAX)
        });
        whole.collect()
    }
}

/// Returns the numbers of the stacks of an epoch; `None` if there are none.
pub(super) fn record(tree: &StoredCallTree) -> Option<CallStacksRecord> {
    let mut incomplete: BTreeMap<String, u64> = BTreeMap::new();
    for (node, root) in tree.nodes().iter().zip(tree.roots_of_nodes()) {
        let end = tree.roots()[root as usize].end;
        if !end.is_complete() && node.samples > 0 {
            *incomplete.entry(end.name().to_owned()).or_default() += node.samples;
        }
    }
    let samples = tree.samples();
    (samples > 0).then_some(CallStacksRecord { hz: 0, samples, incomplete })
}

#[cfg(test)]
mod tests {
    use dwell_profile::{Event, ImageId, ImageOffset};

    use super::*;

    fn root(event: u16, end: StackEnd) -> Root {
        Root { event, execution: ExecutionId(3), end }
    }

    fn stored(stacks: ImportedStacks, tallies: &[EventTally]) -> StoredCallTree {
        let root = |root: &Root| StackRoot {
            event: Event::named(&format!("e{}", root.event)),
            app: "app".into(),
            instance: root.execution.0,
            end: root.end,
        };
        let place = |_, (target, offset): Place| CodePlace {
            image: ImageId::named(&format!("i{target}")),
            offset: ImageOffset(offset),
        };
        stacks.stored(tallies, root, place)
    }

    #[test]
    fn stacks_have_the_weights_of_their_samples() {
        let mut stacks = ImportedStacks::default();
        stacks.add(root(0, StackEnd::Root), &[(1, 5), (1, 4), (0, 1)], 30, 1);
        stacks.add(root(0, StackEnd::Root), &[(1, 4), (0, 1)], 5, 1);
        stacks.add(root(0, StackEnd::Cut), &[(1, 4), (0, 1)], 5, 1);
        stacks.add(root(1, StackEnd::Root), &[(1, 4)], 700, 7);
        // The event has a fourth sample, without a stack.
        let tally = |samples, periods| EventTally { samples, periods, ..EventTally::default() };
        let tree = stored(stacks, &[tally(4, 40), tally(7, 700)]);
        let lines: Vec<String> = (tree.nodes().iter().zip(tree.roots_of_nodes()))
            .map(|(node, root)| {
                let root = &tree.roots()[root as usize];
                format!(
                    "{} {} {:#x} {}",
                    root.event.name(),
                    root.end.name(),
                    node.frame.offset.0,
                    node.samples
                )
            })
            .collect();
        assert_eq!(lines, ["e0 root 0x1 0", "e0 root 0x4 1", "e0 root 0x5 3", "e1 root 0x4 7"]);
        assert_eq!(
            record(&tree),
            Some(CallStacksRecord { hz: 0, samples: 11, ..CallStacksRecord::default() })
        );
    }

    #[test]
    fn a_stack_that_is_too_deep_keeps_its_inner_frames() {
        let mut stacks = ImportedStacks::default();
        let frames: Vec<Place> = (0..3000).map(|offset| (0, offset)).collect();
        stacks.add(root(0, StackEnd::Root), &frames, 1, 1);
        let tree = stored(stacks, &[EventTally { samples: 1, periods: 1, ..EventTally::default() }]);
        let nodes = tree.nodes();
        assert_eq!(
            (nodes.len(), nodes[0].frame.offset.0, nodes[FRAMES_MAX - 1].frame.offset.0),
            (FRAMES_MAX, 1023, 0)
        );
        assert_eq!(record(&tree).unwrap().incomplete, BTreeMap::from([("too-deep".to_owned(), 1)]));
    }
}
