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
        period_weights::{PeriodWeights, Weighing},
        sampled_offsets::SampledOffsets,
        samples::{
            AppCounts, CountsByEvent, DataCounts, DimensionCounts, DimensionValue, ImageSamples, add_counts,
        },
    },
    parallel::in_parallel,
};

/// Chooses what is kept of where samples are in their image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Places {
    /// Each sampled offset is kept.
    #[default]
    Each,
    /// Nothing is kept: the samples of an image are one sum, as if all of them were at offset 0. Counting them takes a fraction of the time and memory.
    None,
}

/// Adds rows to images and applications. Events are numbered in the order of appearance until all of them are known.
#[derive(Default)]
pub struct Merge {
    filter: SampleFilter,
    places: Places,
    weights: PeriodWeights,
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
    /// By the number of the event, and one for data.
    weighings: Vec<Weighing>,
    /// What the last rows have in common. Rows come in long runs with the same image, event and execution.
    run: Option<Run>,
}

/// Samples by the number of the event.
type EventSums = SmallVec<[u64; 4]>;

/// An image while its samples are being summed.
struct MergedImage {
    record: ImageRecord,
    epochs: BTreeSet<usize>,
    /// The applications that have samples in it, whether they are taken or not.
    apps: BTreeSet<Arc<str>>,
    /// Samples by the number of the event.
    rows: Vec<Rows>,
}

/// Samples of one event, by offset.
#[derive(Default)]
struct Rows(Vec<(ImageOffset, u64)>);

/// Least number of rows that are collected before those of equal offsets are summed.
const ROWS_MIN: usize = 1 << 12;

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
    /// What a sample counts.
    weight: f64,
    count: u64,
}

/// Largest number of events.
const EVENTS_MAX: usize = 256;

impl Merge {
    /// Creates an empty sum over the samples that `filter` takes, each with its weight.
    pub fn new(filter: &SampleFilter, places: Places, weights: &PeriodWeights) -> Self {
        Merge { filter: filter.clone(), places, weights: weights.clone(), ..Merge::default() }
    }

    /// Adds the record of an image from an epoch. Returns the number of the image.
    pub fn add_image(&mut self, record: ImageRecord) -> usize {
        let at = *self.image_index.entry(record.id.clone()).or_insert(self.images.len());
        match self.images.get_mut(at) {
            Some(image) => image.record.absorb(record),
            None => {
                let (epochs, apps, rows) = Default::default();
                self.images.push(MergedImage { record, epochs, apps, rows });
            }
        }
        at
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
        let weighed: Vec<(ImageOffset, u64)>;
        let rows = if run.weight == 1.0 {
            rows.rows
        } else {
            let at = if run.is_of_data { EVENTS_MAX } else { run.event_at };
            self.weighings.resize_with(self.weighings.len().max(at + 1), Weighing::default);
            let weighing = &mut self.weighings[at];
            let weigh = |&(offset, count): &(ImageOffset, u64)| (offset, weighing.weigh(count, run.weight));
            weighed = rows.rows.iter().map(weigh).filter(|(_, count)| *count > 0).collect();
            &weighed
        };
        if run.is_of_data {
            if run.is_taken {
                for &(offset, count) in rows {
                    let place = (run.image_at, run.event == Event::DATA_PAGE, offset.0);
                    let sum = self.data.entry(place).or_default();
                    *sum = sum.saturating_add(count);
                }
            }
            return;
        }
        run.count = rows.iter().fold(run.count, |sum, (_, count)| sum.saturating_add(*count));
        if run.is_taken && self.places == Places::Each {
            self.images[run.image_at].rows_of(run.event_at).add(rows);
        }
    }

    /// Adds the sums of other epochs with the same filter.
    pub fn absorb(&mut self, mut other: Merge) {
        self.end_run();
        other.end_run();
        if self.images.is_empty() {
            *self = other;
            return;
        }
        // Numbers of events here, in the order of the other's. There is none for those that are too many.
        let events: Vec<Option<usize>> = other.events.iter().map(|event| self.event_at(event)).collect();
        let moved = |sums: &mut EventSums, more: EventSums| {
            for (count, event) in more.into_iter().zip(&events) {
                event.iter().for_each(|&event| add_to_event(sums, event, count));
            }
        };
        let mut images = Vec::new();
        for image in other.images {
            let at = self.add_image(image.record);
            self.images[at].epochs.extend(image.epochs);
            self.images[at].apps.extend(image.apps);
            for (rows, event) in image.rows.into_iter().zip(&events) {
                event.iter().for_each(|&event| self.images[at].rows_of(event).append(&rows));
            }
            images.push(at);
        }
        for ((app, instance, image), sums) in other.apps {
            moved(self.apps.entry((app, instance, images[image])).or_default(), sums);
        }
        for ((value, image), sums) in other.dimensions {
            moved(self.dimensions.entry((value, images[image])).or_default(), sums);
        }
        for ((image, is_page, offset), count) in other.data {
            let sum = self.data.entry((images[image], is_page, offset)).or_default();
            *sum = sum.saturating_add(count);
        }
        moved(&mut self.others, other.others);
        self.kept.extend(other.kept);
    }

    /// Returns the number of an event, unless there are too many.
    fn event_at(&mut self, event: &Event) -> Option<usize> {
        let known = self.events.iter().position(|e| e == event);
        if known.is_none() && self.events.len() < EVENTS_MAX {
            self.events.push(event.clone());
            return Some(self.events.len() - 1);
        }
        known
    }

    /// Looks up where the rows of this kind belong. If there are too many events, or the rows are not of the service that is asked for, there
    /// is no run and the rows are ignored.
    fn begin_run(&mut self, epoch: usize, rows: SampleRun<'_>) {
        self.end_run();
        if !self.filter.is_of_service(&rows) {
            return rows.dimensions.iter().for_each(|values| self.keep(epoch, values));
        }
        let is_of_data = rows.event.is_of_data();
        let event_at = match is_of_data {
            true => 0,
            false => match self.event_at(rows.event) {
                Some(at) => at,
                None => return,
            },
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
            weight: self.weights.of(epoch, rows.event),
            count: 0,
        });
    }

    /// Notes the dimensions that an epoch recorded.
    fn keep(&mut self, epoch: usize, values: &DimensionValues) {
        let kept = self.kept.entry(epoch).or_default();
        *kept = kept.union(values.set());
    }

    /// Sums the current run. Call it after the last rows of all.
    pub fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        run.dimensions.iter().for_each(|values| self.keep(run.epoch, values));
        if run.is_of_data {
            return;
        }
        self.images[run.image_at].apps.insert(run.app.clone());
        if !run.is_taken {
            return add_to_event(&mut self.others, run.event_at, run.count);
        }
        if self.places == Places::None {
            self.images[run.image_at].rows_of(run.event_at).add(&[(ImageOffset(0), run.count)]);
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

    /// Returns the applications that have samples in each image. Call it after the last rows of all.
    pub fn image_apps(&mut self) -> Vec<BTreeSet<Arc<str>>> {
        self.end_run();
        self.images.iter_mut().map(|image| std::mem::take(&mut image.apps)).collect()
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
        let images = in_parallel(self.images, |image| Some(image.finish(&places, events.len())));
        images.iter().for_each(|image| add_counts(&mut all, &image.total));
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
    /// Returns the samples of an event.
    fn rows_of(&mut self, event: usize) -> &mut Rows {
        if self.rows.len() <= event {
            self.rows.resize_with(event + 1, Rows::default);
        }
        &mut self.rows[event]
    }

    /// Sums the samples by offset, with counts in the order of `places`.
    fn finish(self, places: &[usize], events: usize) -> ImageSamples {
        let mut rows: Vec<(ImageOffset, usize, u64)> =
            Vec::with_capacity(self.rows.iter().map(|r| r.0.len()).sum());
        for (of_event, &event) in self.rows.into_iter().zip(places) {
            rows.extend(of_event.0.into_iter().map(|(offset, count)| (offset, event, count)));
        }
        rows.sort_by_key(|&(offset, ..)| offset);
        let offsets = rows.chunk_by(|a, b| a.0 == b.0).count();
        let mut points = SampledOffsets::with_capacity(offsets, events);
        let mut total = CountsByEvent::from_elem(0, events);
        for (offset, event, count) in rows {
            points.push(offset);
            points.add(event, count);
            total[event] = total[event].saturating_add(count);
        }
        let epochs = self.epochs.into_iter().collect();
        ImageSamples { record: self.record, epochs, points, total }
    }
}

impl Rows {
    fn add(&mut self, mut rows: &[(ImageOffset, u64)]) {
        while !rows.is_empty() {
            if self.0.len() == self.0.capacity() {
                self.add_up();
                // If summing did not reduce the rows much, there are that many different places.
                if self.0.len() * 4 >= self.0.capacity() * 3 {
                    self.0.reserve_exact((self.0.len() / 2).max(ROWS_MIN));
                }
            }
            let (now, later) = rows.split_at(rows.len().min(self.0.capacity() - self.0.len()));
            self.0.extend_from_slice(now);
            rows = later;
        }
    }

    fn append(&mut self, other: &Rows) {
        self.0.reserve_exact(other.0.len());
        self.0.extend_from_slice(&other.0);
    }

    /// Combines the rows of equal offsets into one row.
    fn add_up(&mut self) {
        // A stable sort benefits from the sorted runs in which the rows came.
        self.0.sort_by_key(|&(offset, _)| offset);
        self.0.dedup_by(|next, sum| {
            let same = next.0 == sum.0;
            if same {
                sum.1 = sum.1.saturating_add(next.1);
            }
            same
        });
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
