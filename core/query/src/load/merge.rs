//! Sums the rows of epochs: samples by image and offset, by application and by dimension.
//!
//! Input: runs of rows, as segments contain them. Output: sums. Cost: one pass over the rows. Memory: one point for each
//! distinct (image, offset), and some rows that have not been summed yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dwell_profile::{
    DimensionSet, DimensionValues, Event, ImageId, ImageKind, ImageOffset, ImageRecord, SampleRun,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    SampleFilter,
    load::{
        sampled_offsets::SampledOffsets,
        samples::{
            AppCounts, CountsByEvent, DataCounts, DimensionCounts, DimensionValue, ImageSamples, add_counts,
        },
    },
};

/// Adds rows to images and applications. Events are numbered in the order of appearance until all of them are known.
#[derive(Default)]
pub struct Merge {
    filter: SampleFilter,
    /// Every event with samples, in the order of appearance.
    pub events: Vec<Event>,
    image_index: FxHashMap<ImageId, usize>,
    images: Vec<MergedImage>,
    apps: BTreeMap<(Arc<str>, u32, usize), EventSums>,
    dimensions: BTreeMap<(DimensionValue, usize), EventSums>,
    /// Dimensions that each epoch (an index) recorded.
    pub kept: BTreeMap<usize, DimensionSet>,
    /// Samples by the data that they refer to.
    pub data: DataCounts,
    /// Samples that the filter does not take, by event.
    others: EventSums,
    /// What the last rows have in common. Rows come in long runs with the same image, event and execution.
    run: Option<Run>,
}

/// Samples by the number of the event.
type EventSums = SmallVec<[u64; 4]>;

/// An image while its samples are being summed.
struct MergedImage {
    record: ImageRecord,
    epochs: BTreeSet<usize>,
    rows: Vec<MergedRow>,
}

/// Samples of one event at one offset.
#[derive(Clone, Copy)]
struct MergedRow {
    offset: ImageOffset,
    /// Number of the event in the lowest byte, number of samples above it.
    event_and_count: u64,
}

/// Consecutive rows of one image, event and execution.
struct Run {
    epoch: usize,
    image: ImageId,
    event: Event,
    app: Arc<str>,
    instance: u32,
    dimensions: Option<Arc<DimensionValues>>,
    image_at: usize,
    event_at: usize,
    /// Whether the event's offsets refer to data, so that its rows are not samples of the image's code.
    is_of_data: bool,
    is_taken: bool,
    count: u64,
}

/// Largest number of events: their number takes one byte.
const EVENTS_MAX: usize = 256;
/// Least number of rows of an image that are collected before the rows of equal offsets are summed.
const ROWS_MIN: usize = 1 << 12;

impl Merge {
    /// Creates an empty sum over the samples that `filter` takes.
    pub fn new(filter: &SampleFilter) -> Self {
        Merge { filter: filter.clone(), ..Merge::default() }
    }

    /// Adds the record of an image from an epoch.
    pub fn add_image(&mut self, record: ImageRecord) {
        match self.image_index.get(&record.id) {
            Some(&i) => self.images[i].record.absorb(record),
            None => {
                self.image_index.insert(record.id.clone(), self.images.len());
                let (epochs, rows) = Default::default();
                self.images.push(MergedImage { record, epochs, rows });
            }
        }
    }

    /// Adds rows of an epoch (an index).
    pub fn add(&mut self, epoch: usize, rows: SampleRun<'_>) {
        let same = |run: &Run| {
            (run.epoch, run.instance) == (epoch, rows.instance)
                && run.image == *rows.image
                && run.event == *rows.event
                && run.app == *rows.app
                && run.dimensions == *rows.dimensions
        };
        if !self.run.as_ref().is_some_and(same) {
            self.begin_run(epoch, rows);
        }
        let Some(run) = &mut self.run else { return };
        let image = &mut self.images[run.image_at];
        for &(offset, count) in rows.rows {
            if run.is_of_data {
                if run.is_taken {
                    let place = (run.image_at, run.event == Event::DATA_PAGE, offset.0);
                    let sum = self.data.entry(place).or_default();
                    *sum = sum.saturating_add(count);
                }
                continue;
            }
            run.count = run.count.saturating_add(count);
            if run.is_taken {
                image.add(offset, run.event_at, count);
            }
        }
    }

    /// Looks up where the rows of this kind belong. If there are too many events, there is no run and the rows are ignored.
    fn begin_run(&mut self, epoch: usize, rows: SampleRun<'_>) {
        self.end_run();
        let is_of_data = rows.event.is_of_data();
        let event_at = match self.events.iter().position(|e| e == rows.event) {
            Some(at) => at,
            None if is_of_data => 0,
            None if self.events.len() == EVENTS_MAX => return,
            None => {
                self.events.push(rows.event.clone());
                self.events.len() - 1
            }
        };
        if !self.image_index.contains_key(rows.image) {
            self.add_image(unrecorded(rows.image));
        }
        let (image_at, is_taken) = (self.image_index[rows.image], self.filter.takes(&rows));
        if is_taken && !is_of_data {
            self.images[image_at].epochs.insert(epoch);
        }
        self.run = Some(Run {
            epoch,
            image: rows.image.clone(),
            event: rows.event.clone(),
            app: rows.app.clone(),
            instance: rows.instance,
            dimensions: rows.dimensions.clone(),
            image_at,
            event_at,
            is_of_data,
            is_taken,
            count: 0,
        });
    }

    /// Sums the current run. Call it after the last rows of all.
    pub fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        if let Some(values) = &run.dimensions {
            let kept = self.kept.entry(run.epoch).or_default();
            *kept = kept.union(values.set());
        }
        if run.is_of_data {
            return;
        }
        if !run.is_taken {
            return add_to_event(&mut self.others, run.event_at, run.count);
        }
        if let Some(values) = &run.dimensions {
            for dimension in values.set().iter() {
                let key = (DimensionValue::of(values, dimension), run.image_at);
                add_to_event(self.dimensions.entry(key).or_default(), run.event_at, run.count);
            }
        }
        let sums = self.apps.entry((run.app, run.instance, run.image_at)).or_default();
        add_to_event(sums, run.event_at, run.count);
    }

    /// Returns the sums, with counts in the order of `events`. Images without samples are included, so that indices stay
    /// valid.
    pub fn finish(mut self, events: &[Event]) -> Merged {
        self.end_run();
        let place = |e: &Event| events.iter().position(|known| known == e).expect("all that came are known");
        let places: Vec<usize> = self.events.iter().map(place).collect();
        let in_order = |sums: EventSums| {
            let mut counts = CountsByEvent::from_elem(0, events.len());
            sums.into_iter().zip(&places).for_each(|(sum, &place)| counts[place] = sum);
            counts
        };
        let mut all = in_order(self.others);
        let mut images = Vec::new();
        for image in self.images {
            let image = image.finish(&places, events.len());
            add_counts(&mut all, &image.total);
            images.push(image);
        }
        let apps = self.apps.into_iter().map(|(key, sums)| (key, in_order(sums))).collect();
        let dimensions = self.dimensions.into_iter().map(|(key, sums)| (key, in_order(sums))).collect();
        (images, apps, dimensions, all)
    }
}

/// Sums: images, samples by application, samples by dimension, and all samples.
pub type Merged = (Vec<ImageSamples>, AppCounts, DimensionCounts, CountsByEvent);

fn add_to_event(sums: &mut EventSums, event: usize, count: u64) {
    let length = sums.len().max(event + 1);
    sums.resize(length, 0);
    sums[event] = sums[event].saturating_add(count);
}

impl MergedImage {
    fn add(&mut self, offset: ImageOffset, event: usize, count: u64) {
        if self.rows.len() == self.rows.capacity() {
            self.add_up();
            // If summing did not reduce the rows much, there are that many different places.
            if self.rows.len() * 4 > self.rows.capacity() * 3 {
                self.rows.reserve_exact((self.rows.len() / 2).max(ROWS_MIN));
            }
        }
        let event_and_count = count.min(u64::MAX >> 8) << 8 | event as u64;
        self.rows.push(MergedRow { offset, event_and_count });
    }

    /// Combines the rows with equal offset and event into one row.
    fn add_up(&mut self) {
        let event = |r: &MergedRow| r.event_and_count & 0xff;
        // A stable sort benefits from the sorted runs in which the rows came. Comparing one number is faster than comparing
        // two.
        self.rows.sort_by_key(|r| u128::from(r.offset.0) << 8 | u128::from(event(r)));
        self.rows.dedup_by(|next, sum| {
            let same = (next.offset, event(next)) == (sum.offset, event(sum));
            if same {
                let count = (sum.event_and_count >> 8).saturating_add(next.event_and_count >> 8);
                sum.event_and_count = count.min(u64::MAX >> 8) << 8 | event(sum);
            }
            same
        });
    }

    fn finish(mut self, places: &[usize], events: usize) -> ImageSamples {
        self.rows.sort_by_key(|r| r.offset); // As above.
        let offsets = self.rows.chunk_by(|a, b| a.offset == b.offset).count();
        let mut points = SampledOffsets::with_capacity(offsets, events);
        let mut total = CountsByEvent::from_elem(0, events);
        for row in self.rows {
            let (event, count) = (places[(row.event_and_count & 0xff) as usize], row.event_and_count >> 8);
            points.push(row.offset);
            points.add(event, count);
            total[event] = total[event].saturating_add(count);
        }
        let epochs = self.epochs.into_iter().collect();
        ImageSamples { record: self.record, epochs, points, total }
    }
}

/// Returns a record for an image that a segment names but no record describes. Its samples are still worth showing.
fn unrecorded(id: &ImageId) -> ImageRecord {
    ImageRecord {
        id: id.clone(),
        kind: ImageKind::Unknown,
        path: format!("[{id}]").into(),
        deleted: false,
        size_bytes: None,
        mtime_ns: None,
        symbols: Vec::new(),
        places: Default::default(),
        kernel_builds: Vec::new(),
    }
}
