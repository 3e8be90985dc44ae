//! Reads the call stacks of several epochs and adds up equal ones.
//!
//! Input: a database, epochs. Output: one tree of frames by place. Cost: one pass over the frames.

use dwell_profile::{CallParent, CallTree, CodePlace, Database, Epoch, Event, StackRoot, StoredCallTree};

use crate::{QueryError, SampleFilter};

/// Reads the call stacks of epochs, of one event and of the samples that `filter` takes. Damaged files are left out; the notes
/// of the selection name them.
pub fn read(
    database: &Database,
    epochs: &[Epoch],
    event: &Event,
    filter: &SampleFilter,
) -> Result<StoredCallTree, QueryError> {
    let mut merged = StoredCallTree::default();
    for epoch in epochs {
        let (tree, _) = database.read_call_stacks(&epoch.id)?;
        absorb(&mut merged, &tree, |root| {
            root.event == *event && filter.app.as_ref().is_none_or(|app| **app == *root.app)
        });
    }
    Ok(merged)
}

/// Adds the stacks under those roots that are wanted.
fn absorb(
    merged: &mut CallTree<StackRoot, CodePlace>,
    tree: &StoredCallTree,
    is_wanted: impl Fn(&StackRoot) -> bool,
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
        let add = |parent| CallParent::Node(merged.add_under(parent, node.frame.clone(), node.samples));
        numbers.push(parent.map(add));
    }
}
