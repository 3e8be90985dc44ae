//! Tables of call stacks: `stacks` and `frames`. Rows are made epoch by epoch.
//!
//! A stack has the same number in each scan and each epoch, since it is computed from the frames.

use std::{collections::HashSet, sync::Arc};

use dwell_query::{Cancel, RecordedFrame, RecordedStack, RecordedStacks};

use super::{Context, address, count, text};
use crate::{
    duckdb::{Cell, CellRows, Column},
    selected::Selection,
};

pub const STACKS: &[(&str, Column)] = &[
    ("epoch", Column::Text),
    ("stack", Column::Integer),
    ("event", Column::Text),
    ("app", Column::Text),
    ("instance", Column::Integer),
    ("count", Column::Integer),
    ("depth", Column::Integer),
    ("end", Column::Text),
];
const DEPTH_AT: usize = 6;

pub fn stacks(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    wanted: &[bool],
) -> Result<CellRows, String> {
    // The number of inlined functions is not known without names.
    let needs_names = wanted[DEPTH_AT];
    Ok(by_stack(context, selections, cancel, needs_names, |epoch, stacks, stack, _| {
        vec![vec![
            epoch.clone(),
            address(stack.id),
            text(stack.root.event.name()),
            text(&stack.root.app),
            Cell::Integer(stack.root.instance.into()),
            count(stack.samples),
            count(stacks.frames(stack).len() as u64),
            text(stack.root.end.name()),
        ]]
    }))
}

pub const FRAMES: &[(&str, Column)] = &[
    ("epoch", Column::Text),
    ("stack", Column::Integer),
    ("depth", Column::Integer),
    ("image", Column::Text),
    ("offset", Column::Integer),
    ("demangled", Column::Text),
    ("inlined", Column::Integer),
    ("file", Column::Text),
    ("line", Column::Integer),
];

pub fn frames(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    _: &[bool],
) -> Result<CellRows, String> {
    Ok(by_stack(context, selections, cancel, true, |epoch, stacks, stack, known| {
        // Several events and executions may have one stack.
        if !known.insert(stack.id) {
            return Vec::new();
        }
        let row = |(depth, frame): (u64, RecordedFrame<'_>)| {
            vec![
                epoch.clone(),
                address(stack.id),
                count(depth),
                text(frame.place.image.as_str()),
                address(frame.place.offset.0),
                Cell::Text(frame.function.clone()),
                Cell::Integer(frame.inlined.into()),
                frame.line.map_or(Cell::Null, |(file, _)| text(file)),
                frame.line.map_or(Cell::Null, |(_, line)| Cell::Integer((*line).into())),
            ]
        };
        (0..).zip(stacks.frames(stack)).map(row).collect()
    }))
}

/// Returns the rows of a stack, given with the cell of its epoch, all stacks of the epoch, and the numbers of those before.
type RowsOf = fn(&Cell, &RecordedStacks, RecordedStack<'_>, &mut HashSet<u64>) -> Vec<Vec<Cell>>;

/// Returns the rows of each stack of the epochs that any of the selections takes.
fn by_stack(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    needs_names: bool,
    rows_of: RowsOf,
) -> CellRows {
    let (epochs, context) = (context.epochs_taken(&selections), context.clone());
    Box::new(epochs.into_iter().flat_map(move |at| {
        let epoch = &context.epochs[at].id.0;
        let stacks = context.query.recorded_stacks(epoch, needs_names, &cancel);
        let (stacks, error) = match stacks {
            Ok(stacks) => (Some(stacks), None),
            Err(error) => (None, Some(Err(error.to_string()))),
        };
        let (epoch, cancel) = (text(epoch), cancel.clone());
        let rows = stacks.into_iter().flat_map(move |stacks| {
            let (epoch, cancel, mut known) = (epoch.clone(), cancel.clone(), HashSet::new());
            (0..stacks.len()).flat_map(move |at| match cancel.check() {
                Err(error) => vec![Err(error.to_string())],
                Ok(()) => {
                    rows_of(&epoch, &stacks, stacks.stack(at), &mut known).into_iter().map(Ok).collect()
                }
            })
        });
        rows.chain(error)
    }))
}
