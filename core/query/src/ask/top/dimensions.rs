//! Rows by thread, CPU or control group, for epochs that recorded these dimensions.
//!
//! Input: merged samples. Output: rows, and a note on the samples that they leave out. Nothing is guessed: if an epoch did
//! not record a dimension, the note says so.

use std::collections::BTreeMap;

use dwell_profile::Dimension;

use crate::{
    QueryError,
    answer::TopRow,
    load::{
        containers::container,
        samples::{CountsByEvent, DimensionValue, add_counts},
        selection::Selection,
    },
};

/// Returns the samples of each value of the dimension, for the wanted images.
pub fn by_dimension(
    selection: &Selection,
    wanted: &[bool],
    dimension: Dimension,
) -> Result<Vec<(TopRow, CountsByEvent)>, QueryError> {
    if !selection.kept.iter().any(|kept| kept.has(dimension)) {
        return Err(QueryError::NoDimension { dimension, epoch: selection.name() });
    }
    let mut sums: BTreeMap<&DimensionValue, CountsByEvent> = BTreeMap::new();
    for ((value, image), counts) in &selection.dimensions {
        if value.dimension() == dimension && wanted[*image] {
            add_counts(sums.entry(value).or_default(), counts);
        }
    }
    Ok(sums.into_iter().map(|(value, counts)| (row(value), counts)).collect())
}

fn row(value: &DimensionValue) -> TopRow {
    match value {
        DimensionValue::Thread(name) => TopRow { thread: Some(name.to_string()), ..TopRow::default() },
        DimensionValue::Cpu(cpu) => TopRow { cpu: Some(*cpu), ..TopRow::default() },
        DimensionValue::Cgroup(path) => {
            TopRow { cgroup: Some(path.to_string()), container: container(path), ..TopRow::default() }
        }
    }
}

/// Returns a note that names those epochs that did not record the dimension, if only some of them did. Their samples are in
/// no row.
pub fn note(selection: &Selection, dimension: Dimension) -> Option<String> {
    let without = selection.epochs.iter().zip(&selection.kept).filter(|(_, kept)| !kept.has(dimension));
    let ids: Vec<String> = without.map(|(epoch, _)| epoch.id.to_string()).collect();
    (!ids.is_empty())
        .then(|| format!("no {dimension} was kept in {}: samples of it are in no row", ids.join(", ")))
}
