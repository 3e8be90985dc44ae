//! Request `top --by data`: the data that sampled loads and stores refer to.
//!
//! Input: merged samples by image and distance, or by the other kinds of data that they refer to. Output: rows. The epochs
//! do not record which instructions refer to the data or what the memory held, so neither is shown.

use std::collections::BTreeMap;

use dwell_image::DataPlace;
use dwell_profile::{ImageKind, ImageRecord, path_to_text};

use super::{
    request::{Domain, TopRequest},
    rows::image_row,
};
use crate::{
    Cancel, QueryError,
    answer::{EventCounts, Top, TopRow},
    load::{images::ImageStore, selection::Selection},
};

/// Key of a row: kind of the data, its name, and its image (an index) if it has one.
type Key = (&'static str, String, Option<usize>);

/// Prefix of the ids that stand for memory outside of images.
const PREFIX: &str = "data:";
/// Size of a page in bytes, as the collector assumes it.
const PAGE_BYTES: u64 = 4096;

/// Returns rows by data, most samples first. Shares are relative to the samples whose registers were examined.
pub fn top(
    selection: &Selection,
    store: &ImageStore,
    request: &TopRequest,
    cancel: &Cancel,
) -> Result<Top, QueryError> {
    if selection.data.is_empty() {
        return Err(QueryError::NoData { epoch: selection.name() });
    }
    let event = selection.primary().map_or("samples", |event| event.name()).to_owned();
    let counted = |samples: u64| EventCounts::from([(event.clone(), samples)]);
    let mut sums: BTreeMap<Key, u64> = BTreeMap::new();
    for (&(image, by_page, distance), count) in &selection.data {
        cancel.check()?;
        let record = &selection.images[image].record;
        if takes(request, record) {
            let size_bytes = if by_page { PAGE_BYTES } else { 1 };
            *sums.entry(key(store, image, record, (distance, size_bytes))).or_default() += count;
        }
    }
    let all: u64 = selection.data.values().sum();
    let mut rows: Vec<(Key, u64)> = sums.into_iter().collect();
    rows.sort_by(|(a, left), (b, right)| right.cmp(left).then_with(|| a.cmp(b)));
    let share = |samples: u64| samples as f64 / all.max(1) as f64;
    let (mut cumulative, found) = (0, rows.len());
    let rows = rows.into_iter().map(|((kind, name, image), samples)| {
        cumulative += samples;
        TopRow {
            data: Some(name),
            data_kind: Some(kind.to_owned()),
            samples: counted(samples),
            share: share(samples),
            cumulative_share: share(cumulative),
            ..image.map_or_else(TopRow::default, |image| image_row(&selection.images[image].record))
        }
    });
    let rows: Vec<TopRow> = rows.skip(request.offset).take(request.limit.unwrap_or(usize::MAX)).collect();
    let mut notes = selection.notes.clone();
    notes.push(format!(
        "shares refer to the {all} of {} samples that were examined in user mode; a sample counts for the data of the instruction that was \
         waited for, which is the one executed before the sampled one",
        selection.primary_total()
    ));
    Ok(Top {
        schema: 1,
        epochs: selection.epochs.iter().map(|e| e.id.to_string()).collect(),
        total: counted(all),
        omitted_rows: found.saturating_sub(request.offset + rows.len()),
        rows,
        notes,
    })
}

/// Returns whether the request includes the row. Data outside of images is selected by the name that is shown and counts as
/// user mode.
fn takes(request: &TopRequest, record: &ImageRecord) -> bool {
    if !record.id.as_str().starts_with(PREFIX) {
        return request.takes(record);
    }
    let shown = path_to_text(&record.path);
    request.domain != Domain::Kernel
        && request.image.as_ref().is_none_or(|part| shown.contains(part.as_str()))
}

fn key(store: &ImageStore, image: usize, record: &ImageRecord, (distance, size_bytes): (u64, u64)) -> Key {
    let shown = || path_to_text(&record.path).into_owned();
    let Some(what) = record.id.as_str().strip_prefix(PREFIX) else {
        let found = store.find(record);
        let place = match &found.image {
            Ok(file) if record.kind == ImageKind::File => file.data_at(distance, size_bytes),
            _ => DataPlace::Unnamed,
        };
        return match place {
            DataPlace::Symbol(name) => ("symbol", name, Some(image)),
            DataPlace::Section(name) => ("image", format!("[{name}]"), Some(image)),
            DataPlace::Unnamed => ("image", "[data]".to_owned(), Some(image)),
            DataPlace::Outside => ("anonymous", "[anonymous]".to_owned(), None),
        };
    };
    let kind = match what.split_once(':').map_or(what, |(kind, _)| kind) {
        "stack" => "stack",
        "heap" => "heap",
        "anonymous" => "anonymous",
        "thread-local" => "thread-local",
        "file" => "file",
        "none" => "none",
        _ => "mapping",
    };
    (kind, shown(), None)
}
