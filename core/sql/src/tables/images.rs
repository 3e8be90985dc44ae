//! Tables of images: `images`, `procedures`, `lines`. Rows are made image by image.

use std::sync::Arc;

use dwell_profile::ImageRecord;
use dwell_query::Cancel;

use super::{Context, address, text};
use crate::{
    duckdb::{Cell, CellRows, Column},
    selected::Selection,
};

pub const IMAGES: &[(&str, Column)] =
    &[("image", Column::Text), ("path", Column::Text), ("arch", Column::Text), ("kind", Column::Text)];
const ARCH_AT: usize = 2;

pub fn images(
    context: &Arc<Context>,
    _: Vec<Selection>,
    cancel: Cancel,
    wanted: &[bool],
) -> Result<CellRows, String> {
    let (shared, needs_arch) = (context.clone(), wanted[ARCH_AT]);
    Ok(each_image(context, Vec::new(), cancel, move |record| {
        // Finding out the instruction set means to open the file.
        let arch = if needs_arch { shared.query.image_arch(record) } else { None };
        let arch = arch.map_or(Cell::Null, text);
        Ok(vec![vec![
            text(record.id.as_str()),
            text(dwell_query::image_path(record)),
            arch,
            text(format!("{:?}", record.kind).to_lowercase()),
        ]])
    }))
}

pub const PROCEDURES: &[(&str, Column)] = &[
    ("image", Column::Text),
    ("start", Column::Integer),
    ("end", Column::Integer),
    ("name", Column::Text),
    ("demangled", Column::Text),
];
const DEMANGLED_AT: usize = 4;

pub fn procedures(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    wanted: &[bool],
) -> Result<CellRows, String> {
    let (shared, needs_demangled) = (context.clone(), wanted[DEMANGLED_AT]);
    Ok(each_image(context, selections, cancel, move |record| {
        let image = text(record.id.as_str());
        let ranges = shared.query.procedure_ranges(record).into_iter();
        Ok(ranges
            .map(|range| {
                let demangled =
                    if needs_demangled { text(dwell_query::demangle(&range.name)) } else { Cell::Null };
                vec![image.clone(), address(range.start), address(range.end), text(&range.name), demangled]
            })
            .collect())
    }))
}

pub const LINES: &[(&str, Column)] = &[
    ("image", Column::Text),
    ("offset", Column::Integer),
    ("file", Column::Text),
    ("line", Column::Integer),
];

pub fn lines(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    _: &[bool],
) -> Result<CellRows, String> {
    let (shared, stop) = (context.clone(), cancel.clone());
    let epochs: Vec<String> = context.epochs.iter().map(|epoch| epoch.id.0.clone()).collect();
    Ok(each_image(context, selections, cancel, move |record| {
        let lines = shared.if_taken(shared.query.sampled_lines(&epochs, &record.id, &stop))?;
        let image = text(record.id.as_str());
        let row = |line: dwell_query::SampledLine| {
            vec![image.clone(), address(line.offset), Cell::Text(line.file), Cell::Integer(line.line.into())]
        };
        Ok(lines.into_iter().map(row).collect())
    }))
}

/// Returns the rows of each image that any of the selections takes; without any, of all images.
fn each_image(
    context: &Arc<Context>,
    selections: Vec<Selection>,
    cancel: Cancel,
    rows_of: impl Fn(&ImageRecord) -> Result<Vec<Vec<Cell>>, String> + Send + 'static,
) -> CellRows {
    let takes = |record: &ImageRecord| {
        selections.is_empty() || selections.iter().any(|selection| selection.takes_image(record))
    };
    let taken = (0..context.images.len()).filter(|at| takes(&context.images[*at]));
    let taken: Vec<usize> = taken.collect();
    let context = context.clone();
    Box::new(taken.into_iter().flat_map(move |at| {
        let checked = cancel.check().map_err(|e| e.to_string());
        let rows = checked.and_then(|()| rows_of(&context.images[at]));
        let (rows, error) = rows.map_or_else(|error| (Vec::new(), Some(Err(error))), |rows| (rows, None));
        rows.into_iter().map(Ok).chain(error)
    }))
}
