//! Call stacks ⇄ the bytes of a Parquet file beside the segments, with the same metadata, checksum and checks as a segment.

use std::sync::Arc;

use parquet::data_type::{Int32Type, Int64Type};

use crate::{
    CallParent, CodePlace, EpochId, Event, ImageId, ImageOffset, StackEnd, StackRoot, StoredCallTree,
    database::SegmentRange,
};

use super::{
    MAX_SEGMENT_ROWS, SEGMENT_VERSION, SegmentError,
    columns::{APP, COUNT, END, EVENT, IMAGE, INSTANCE, OFFSET, PARENT, STACKS_SCHEMA},
    decode::{BesideFile, Group, contain, open, read_beside},
    encode::{column, encode_group, texts},
    metadata::Metadata,
};

/// Encodes a file. Each node of the tree is a row, behind the row of its caller.
pub(crate) fn encode_stacks(
    epoch: &EpochId,
    range: SegmentRange,
    tree: &StoredCallTree,
) -> Result<Vec<u8>, SegmentError> {
    SegmentError::limit("rows", tree.nodes().len() as u64, MAX_SEGMENT_ROWS as u64)?;
    let (order, roots) = (tree.preorder(), tree.roots_of_nodes());
    let mut row_of = vec![0_u32; order.len()];
    (1..).zip(&order).for_each(|(row, node)| row_of[*node as usize] = row);
    let node = |number: u32| &tree.nodes()[number as usize];
    let root = |number: u32| &tree.roots()[roots[number as usize] as usize];
    let parent = |number: u32| match node(number).parent {
        CallParent::Root(_) => 0,
        CallParent::Node(parent) => row_of[parent as usize] as i32,
    };
    let metadata = Metadata::new(epoch, range, &[])?;
    encode_group(&STACKS_SCHEMA, &metadata, |group| {
        column::<Int32Type>(group, order.iter().map(|n| parent(*n)).collect())?;
        texts(group, &order, |n| node(*n).frame.image.as_str())?;
        column::<Int64Type>(group, order.iter().map(|n| node(*n).frame.offset.0 as i64).collect())?;
        column::<Int64Type>(group, order.iter().map(|n| node(*n).samples as i64).collect())?;
        texts(group, &order, |n| root(*n).event.name())?;
        texts(group, &order, |n| &root(*n).app)?;
        column::<Int32Type>(group, order.iter().map(|n| root(*n).instance as i32).collect())?;
        texts(group, &order, |n| root(*n).end.name())
    })
}

/// A tree that is read, and the rows so far.
#[derive(Default)]
struct Reading {
    tree: StoredCallTree,
    /// The position of each row's node in the tree.
    rows: Vec<CallParent>,
}

/// Reads a file of call stacks completely. Hostile bytes return an error that says what is wrong, and never panic.
/// Without `verify` the checksum is not checked.
pub(crate) fn read_stacks(bytes: &[u8], verify: bool) -> Result<BesideFile<StoredCallTree>, SegmentError> {
    let schema = |_| &**STACKS_SCHEMA;
    let file = read_beside(bytes, verify, SEGMENT_VERSION, schema, Reading::default(), read_group)?;
    Ok(file.map(|reading| reading.tree))
}

/// Verifies the checksum of a file of call stacks, without decoding it.
pub(crate) fn check_stacks(bytes: Vec<u8>) -> Result<(), SegmentError> {
    contain(|| open(bytes.into(), true, SEGMENT_VERSION).map(|_| ()))
}

fn read_group(group: &Group<'_>, Reading { tree, rows }: &mut Reading) -> Result<(), SegmentError> {
    let parents = group.values::<Int32Type>(PARENT)?;
    let images = group.texts(IMAGE, ImageId::named)?;
    let offsets = group.values::<Int64Type>(OFFSET)?;
    let counts = group.values::<Int64Type>(COUNT)?;
    let events = group.texts(EVENT, Event::named)?;
    let apps = group.texts(APP, |app| Arc::<str>::from(app))?;
    let instances = group.values::<Int32Type>(INSTANCE)?;
    let ends = group.texts(END, StackEnd::named)?;
    for (row, (image, parent)) in images.into_iter().zip(parents).enumerate() {
        let parent = match (parent as u32).checked_sub(1) {
            None => tree.root(StackRoot {
                event: events[row].clone(),
                app: apps[row].clone(),
                instance: instances[row] as u32,
                end: ends[row],
            }),
            Some(before) => *rows.get(before as usize).ok_or_else(|| SegmentError::Column {
                column: PARENT,
                why: format!(
                    "has the value {} in row {}, which is not an earlier row",
                    before + 1,
                    rows.len() + 1
                ),
            })?,
        };
        let frame = CodePlace { image, offset: ImageOffset(offsets[row] as u64) };
        let node = tree.add_under(parent, frame, counts[row] as u64);
        rows.push(CallParent::Node(node));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn epoch() -> EpochId {
        EpochId("20261121T110131Z-5f3a9c".into())
    }

    /// Stacks of few different frames, so that many share their outer ones.
    fn tree() -> impl Strategy<Value = StoredCallTree> {
        let frame = (prop_oneof![Just("ab12"), Just("kernel"), Just("jit:node")], 0..4_u64, any::<bool>());
        let frame = frame.prop_map(|(image, offset, is_high)| CodePlace {
            image: ImageId::named(image),
            offset: ImageOffset(if is_high { u64::MAX - offset } else { offset }),
        });
        let root = (prop_oneof![Just("xz"), Just("")], 0..2_u32, prop::sample::select(&StackEnd::ALL[..]));
        let stack = (root, prop::collection::vec(frame, 1..6), 1..u64::MAX);
        prop::collection::vec(stack, 0..20).prop_map(|stacks| {
            let mut tree = StoredCallTree::default();
            for ((app, instance, end), frames, samples) in stacks {
                let root = StackRoot { event: Event::CPU_CLOCK, app: app.into(), instance, end };
                tree.add(root, frames, samples);
            }
            tree
        })
    }

    fn stacks(tree: &StoredCallTree) -> Vec<(StackRoot, Vec<CodePlace>, u64)> {
        let roots = tree.roots_of_nodes();
        let frames = |mut number: u32| {
            let mut frames = Vec::new();
            loop {
                let node = &tree.nodes()[number as usize];
                frames.insert(0, node.frame.clone());
                match node.parent {
                    CallParent::Root(_) => return frames,
                    CallParent::Node(parent) => number = parent,
                }
            }
        };
        let root = |number: u32| tree.roots()[roots[number as usize] as usize].clone();
        let samples = |number: u32| tree.nodes()[number as usize].samples;
        let mut all: Vec<_> =
            (0..tree.nodes().len() as u32).map(|n| (root(n), frames(n), samples(n))).collect();
        all.sort();
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_is_written_is_read(tree in tree()) {
            let bytes = encode_stacks(&epoch(), SegmentRange::one(3), &tree).unwrap();
            let read = read_stacks(&bytes, true).unwrap();
            prop_assert_eq!((read.epoch, read.range), (epoch(), SegmentRange::one(3)));
            prop_assert_eq!(stacks(&read.contents), stacks(&tree));
        }

        /// The checksum does not protect against a hostile writer, so anything may follow it.
        #[test]
        fn hostile_bytes_never_panic(tree in tree(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut bytes = encode_stacks(&epoch(), SegmentRange::one(1), &tree).unwrap();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(read) = read_stacks(&bytes, false) {
                let _ = (read.contents.preorder(), read.contents.samples());
            }
            let _ = read_stacks(&bytes[..bytes.len() / 2], false);
        }
    }

    #[test]
    fn a_parent_must_be_an_earlier_row() {
        let mut tree = StoredCallTree::default();
        let place = |offset| CodePlace { image: ImageId::kernel(), offset: ImageOffset(offset) };
        let root = StackRoot { event: Event::CYCLES, app: "a".into(), instance: 0, end: StackEnd::Root };
        tree.add(root, [place(1), place(2)], 1);
        let bytes = encode_stacks(&epoch(), SegmentRange::one(1), &tree).unwrap();
        assert_eq!(read_stacks(&bytes, true).unwrap().contents.nodes().len(), 2);
        let counts = super::super::encode_counts(&epoch(), SegmentRange::one(1), &[]).unwrap();
        assert!(matches!(read_stacks(&counts, true), Err(SegmentError::Column { column: "parent", .. })));
    }
}
