//! Reads the call stacks of several epochs and adds up equal ones.
//!
//! Input: a database, epochs. Output: one tree of frames by place. Cost: one pass over the frames.

use dwell_profile::{CallParent, CallTree, CodePlace, Database, Epoch, Event, StackRoot, StoredCallTree};

use super::period_weights::{PeriodWeights, Weighing};
use crate::{QueryError, SampleFilter};

/// Reads the call stacks of epochs, of one event and of the samples that `filter` takes, each with its weight. Damaged files are left
/// out; the notes of the selection name them.
pub fn read(
    database: &Database,
    epochs: &[Epoch],
    event: &Event,
    filter: &SampleFilter,
) -> Result<StoredCallTree, QueryError> {
    let mut merged = StoredCallTree::default();
    let weights = PeriodWeights::new(&epochs.iter().collect::<Vec<_>>());
    let mut weighing = Weighing::default();
    for (number, epoch) in epochs.iter().enumerate() {
        let (tree, _) = database.read_call_stacks(&epoch.id)?;
        let weight = weights.of(number, event);
        let is_wanted = |root: &StackRoot| {
            root.event == *event && filter.app.as_ref().is_none_or(|app| **app == *root.app)
        };
        let weigh = |samples| if weight == 1.0 { samples } else { weighing.weigh(samples, weight) };
        absorb(&mut merged, &tree, is_wanted, weigh);
    }
    Ok(merged)
}

/// Adds the stacks under those roots that are wanted, their samples weighed.
fn absorb(
    merged: &mut CallTree<StackRoot, CodePlace>,
    tree: &StoredCallTree,
    is_wanted: impl Fn(&StackRoot) -> bool,
    mut weigh: impl FnMut(u64) -> u64,
) {
    let mut numbers: Vec<Option<CallParent>> = Vec::with_capacity(tree.nodes().len());
    for node in tree.nodes() {
        let parent = match node.parent {
            CallParent::Root(number) => {
                let root = &tree.roots()[number as usize];
                // Instances are not told apart.
                is_wanted(root).then(|| merged.root(StackRoot { instance: 0, ..root.clone() }))
            }
            CallParent::Node(number) => numbers[number as usize],
        };
        let add =
            |parent| CallParent::Node(merged.add_under(parent, node.frame.clone(), weigh(node.samples)));
        numbers.push(parent.map(add));
    }
}
