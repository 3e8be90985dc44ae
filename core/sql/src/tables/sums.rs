//! The table `procedure_samples`: samples by procedure, as `dwell top` counts them. Rows are made epoch by epoch.

use std::{collections::BTreeSet, sync::Arc};

use dwell_profile::ImageRecord;
use dwell_query::{Cancel, KnownNames, ProcedureCount};

use super::{Context, count, text};
use crate::{
    duckdb::{Cell, CellRows, Column},
    selected::Selection,
};

pub const PROCEDURE_SAMPLES: &[(&str, Column)] = &[
    ("epoch", Column::Text),
    ("event", Column::Text),
    ("image", Column::Text),
    ("procedure", Column::Text),
    ("demangled", Column::Text),
    ("count", Column::Integer),
];
const DEMANGLED_AT: usize = 4;

pub fn procedure_samples(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    wanted: &[bool],
) -> Result<CellRows, String> {
    let needs_demangled = wanted[DEMANGLED_AT];
    let epochs = context.epochs_taken(&selections);
    let (context, known) = (context.clone(), KnownNames::default());
    let rows = epochs.into_iter().flat_map(move |at| {
        let epoch = &context.epochs[at].id.0;
        let takes = |record: &ImageRecord| selections.iter().any(|s| s.takes_image(record));
        let counts = context.query.procedure_counts(epoch, &takes, &known, &cancel);
        let counts = context.if_taken(counts);
        let (counts, error) = counts.map_or_else(|e| (Vec::new(), Some(Err(e))), |counts| (counts, None));
        let unnamed: BTreeSet<_> =
            counts.iter().filter(|c| c.procedure.is_none()).map(|c| &c.image).collect();
        context
            .images
            .iter()
            .filter(|record| unnamed.contains(&record.id))
            .for_each(|record| context.note_on(record));
        let epoch = text(epoch);
        counts.into_iter().map(move |counted| Ok(row(epoch.clone(), counted, needs_demangled))).chain(error)
    });
    Ok(Box::new(rows))
}

fn row(epoch: Cell, counted: ProcedureCount, needs_demangled: bool) -> Vec<Cell> {
    let ProcedureCount { image, procedure, event, count: number } = counted;
    let demangled = procedure.as_ref().filter(|_| needs_demangled).map(|name| dwell_query::demangle(name));
    vec![
        epoch,
        text(event.name()),
        text(image.as_str()),
        procedure.map_or(Cell::Null, Cell::Text),
        demangled.map_or(Cell::Null, text),
        count(number),
    ]
}
