//! One or several epochs merged: samples by image and offset, ready to be asked about.
//!
//! Cost: one pass over the epochs' rows; memory: one point for each distinct (image, offset).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dwell_profile::{
    Database, Dimension, DimensionSet, DimensionValues, Epoch, EpochProfile, Event, ImageId, ImageKind,
    ImageOffset, ImageRecord, SampleRun, SourceRecord, Unit,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    QueryError, SampleFilter, answer::EventCounts, counts::ExecutionCounts, points::Points, stepped::Stepped,
    windows::Windows,
};

/// Counts by index into [`Selection::events`].
pub type CountsByEvent = SmallVec<[u64; 4]>;

/// Epochs merged.
pub struct Selection {
    /// Oldest first; never empty.
    pub epochs: Vec<Epoch>,
    /// Every event with samples or a period, the primary one first.
    pub events: Vec<Event>,
    /// Images that were recorded; those without samples have no points.
    pub images: Vec<ImageSamples>,
    /// Samples by application, instance and image (an index).
    pub apps: AppCounts,
    /// Samples by thread, CPU and control group and image (an index), of the epochs that kept them.
    pub dimensions: DimensionCounts,
    /// What each epoch kept of these.
    pub kept: Vec<DimensionSet>,
    /// What data samples refer to, of the epochs that kept it.
    pub data: DataCounts,
    /// All samples, those that were not taken too.
    pub total: CountsByEvent,
    /// Sources as they were when the samples were taken, by epoch (an index).
    pub sources: Vec<Vec<SourceRecord>>,
    /// What threads did while they were single-stepped.
    pub stepped: Stepped,
    /// What was counted in windows.
    pub windows: Windows,
    /// What was counted while programs ran undisturbed.
    pub execution_counts: ExecutionCounts,
    /// What one must know to read it.
    pub notes: Vec<String>,
}

/// Samples by application, instance and image.
pub type AppCounts = BTreeMap<(Arc<str>, u32, usize), CountsByEvent>;

/// Samples by one dimension's value and image.
pub type DimensionCounts = BTreeMap<(DimensionValue, usize), CountsByEvent>;

/// Samples by the data that they refer to: the image (an index), whether it is kept apart by page only, the distance from the
/// image's first byte in memory.
pub type DataCounts = BTreeMap<(usize, bool, u64), u64>;

/// What a sample has of one dimension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DimensionValue {
    /// A thread's name.
    Thread(Arc<str>),
    /// A CPU.
    Cpu(Option<u32>),
    /// A control group's path.
    Cgroup(Arc<str>),
}

impl DimensionValue {
    /// Which it is of.
    pub fn dimension(&self) -> Dimension {
        match self {
            DimensionValue::Thread(_) => Dimension::Thread,
            DimensionValue::Cpu(_) => Dimension::Cpu,
            DimensionValue::Cgroup(_) => Dimension::Cgroup,
        }
    }

    fn of(values: &DimensionValues, dimension: Dimension) -> Self {
        match dimension {
            Dimension::Thread => DimensionValue::Thread(values.thread.clone().unwrap_or_default()),
            Dimension::Cpu => DimensionValue::Cpu(values.cpu.map(|cpu| cpu.0)),
            Dimension::Cgroup => DimensionValue::Cgroup(values.cgroup.clone().unwrap_or_default()),
        }
    }
}

/// One image's samples.
pub struct ImageSamples {
    /// The image.
    pub record: ImageRecord,
    /// The epochs it was sampled in (indices), ascending.
    pub epochs: Vec<usize>,
    /// By ascending offset.
    pub points: Points,
    /// Sum over `points`.
    pub total: CountsByEvent,
}

impl Selection {
    /// Reads and merges the epochs; of their samples those that `filter` takes.
    pub fn read(database: &Database, epochs: &[Epoch], filter: &SampleFilter) -> Result<Self, QueryError> {
        let mut all = epochs.iter().map(|e| database.read_rows(&e.id)).collect::<Result<Vec<_>, _>>()?;
        all.sort_by_key(|rows| rows.profile.epoch.start);
        let mut merge = Merge { filter: filter.clone(), ..Merge::default() };
        let mut profiles: Vec<EpochProfile> = Vec::new();
        for (epoch, mut rows) in all.into_iter().enumerate() {
            std::mem::take(&mut rows.profile.images).into_iter().for_each(|r| merge.add_image(r));
            rows.each(&mut |run| merge.add(epoch, run));
            profiles.push(rows.profile);
        }
        let events = events_primary_first(&profiles, &merge.events);
        let notes = notes(&profiles);
        merge.end_run();
        let kept = (0..profiles.len()).map(|at| merge.kept.get(&at).copied().unwrap_or_default()).collect();
        let data = std::mem::take(&mut merge.data);
        let (images, apps, dimensions, total) = merge.finish(&events);
        let (mut epochs, mut sources, mut bursts, mut counts) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for profile in profiles {
            epochs.push(profile.epoch);
            sources.push(profile.sources);
            bursts.extend(profile.paths);
            counts.extend(profile.execution_counts);
        }
        let stepped = Stepped::new(&bursts, &images);
        let windows = Windows::new(&bursts, &images);
        // Threads, CPUs and groups were not counted apart.
        if filter.has_dimensions() {
            counts.clear();
        }
        let execution_counts = ExecutionCounts::new(&counts, &images, &apps, epochs.len());
        let selection = Selection {
            epochs,
            events,
            images,
            apps,
            dimensions,
            kept,
            data,
            total,
            sources,
            stepped,
            windows,
            execution_counts,
            notes,
        };
        filter.check(&selection)?;
        Ok(selection)
    }

    /// The event that rows are ordered by and shares are of: time where it was sampled.
    pub fn primary(&self) -> Option<&Event> {
        self.events.first()
    }

    /// Samples of the primary event.
    pub fn primary_total(&self) -> u64 {
        self.total.first().copied().unwrap_or(0)
    }

    /// Of the epoch's primary samples, 0 to 1.
    pub fn share(&self, counts: &CountsByEvent) -> f64 {
        let samples = counts.first().copied().unwrap_or(0);
        if samples == 0 { 0.0 } else { samples as f64 / self.primary_total() as f64 }
    }

    /// Counts as answers hold them: by name, without zeros.
    pub fn named(&self, counts: &CountsByEvent) -> EventCounts {
        let pairs = self.events.iter().zip(counts);
        pairs.filter(|(_, n)| **n > 0).map(|(e, n)| (e.name().to_owned(), *n)).collect()
    }

    /// Average cycles between two samples of the primary event, weighted by the epochs' samples; `None` where that
    /// is not time or the clock was not measured.
    pub fn period_cycles(&self) -> Option<f64> {
        let event = self.primary().filter(|e| e.is_time())?;
        let mut cycles = 0.0;
        let mut samples = 0;
        for epoch in &self.epochs {
            let Some(record) = epoch.events.get(event).filter(|r| r.samples > 0) else { continue };
            let period = match record.unit {
                Unit::Nanoseconds => record.period as f64 * epoch.cpu.clock_hz? / 1e9,
                Unit::Cycles | Unit::Events => record.period as f64,
            };
            cycles += period * record.samples as f64;
            samples += record.samples;
        }
        (samples > 0).then(|| cycles / samples as f64)
    }

    /// CPU time between two samples of the primary event in seconds, weighted alike; `None` where that is not time or the clock was
    /// not measured.
    pub fn period_seconds(&self) -> Option<f64> {
        let event = self.primary().filter(|e| e.is_time())?;
        let (mut seconds, mut samples) = (0.0, 0);
        for epoch in &self.epochs {
            let Some(record) = epoch.events.get(event).filter(|r| r.samples > 0) else { continue };
            let hz = match record.unit {
                Unit::Nanoseconds => 1e9,
                Unit::Cycles | Unit::Events => epoch.cpu.clock_hz?,
            };
            seconds += record.period as f64 / hz * record.samples as f64;
            samples += record.samples;
        }
        (samples > 0).then(|| seconds / samples as f64)
    }

    /// The epochs' ids, joined by `+`.
    pub fn name(&self) -> String {
        self.epochs.iter().map(|e| e.id.to_string()).collect::<Vec<_>>().join("+")
    }
}

/// Adds rows to images and applications. Events are numbered as they come, until all are known.
#[derive(Default)]
struct Merge {
    filter: SampleFilter,
    events: Vec<Event>,
    image_index: FxHashMap<ImageId, usize>,
    images: Vec<MergedImage>,
    apps: BTreeMap<(Arc<str>, u32, usize), EventSums>,
    dimensions: BTreeMap<(DimensionValue, usize), EventSums>,
    kept: BTreeMap<usize, DimensionSet>,
    data: DataCounts,
    /// Samples that were not taken.
    others: EventSums,
    /// What the last row was of: rows come in long runs.
    run: Option<Run>,
}

/// Samples by number of event.
type EventSums = SmallVec<[u64; 4]>;

/// An image while its samples are being added up.
struct MergedImage {
    record: ImageRecord,
    epochs: BTreeSet<usize>,
    rows: Vec<MergedRow>,
}

/// Samples at an offset; the event is by number.
#[derive(Clone, Copy)]
struct MergedRow {
    offset: ImageOffset,
    /// The event in the lowest byte, the count above it.
    event_and_count: u64,
}

/// Rows of one image, event and execution after each other.
struct Run {
    epoch: usize,
    image: ImageId,
    event: Event,
    app: Arc<str>,
    instance: u32,
    dimensions: Option<Arc<DimensionValues>>,
    image_at: usize,
    event_at: usize,
    /// Of events whose offsets are of data, which are no samples of the image.
    is_of_data: bool,
    is_taken: bool,
    count: u64,
}

/// Events that are told apart: as many as fit into a byte.
const EVENTS_MAX: usize = 256;
/// So many rows of an image wait until those of one offset are added up.
const ROWS_MIN: usize = 1 << 12;

impl Merge {
    fn add_image(&mut self, record: ImageRecord) {
        match self.image_index.get(&record.id) {
            Some(&i) => self.images[i].record.absorb(record),
            None => {
                self.image_index.insert(record.id.clone(), self.images.len());
                let (epochs, rows) = Default::default();
                self.images.push(MergedImage { record, epochs, rows });
            }
        }
    }

    fn add(&mut self, epoch: usize, rows: SampleRun<'_>) {
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

    /// Looks up where the rows of this kind belong; there is no run where there are too many events.
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

    fn end_run(&mut self) {
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

    /// Every image that was recorded, those without samples too, so that indices stay; counts in the order of `events`.
    fn finish(mut self, events: &[Event]) -> Merged {
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

/// Images, samples by application, by dimension, and all of them.
type Merged = (Vec<ImageSamples>, AppCounts, DimensionCounts, CountsByEvent);

fn add_to_event(sums: &mut EventSums, event: usize, count: u64) {
    let length = sums.len().max(event + 1);
    sums.resize(length, 0);
    sums[event] = sums[event].saturating_add(count);
}

impl MergedImage {
    fn add(&mut self, offset: ImageOffset, event: usize, count: u64) {
        if self.rows.len() == self.rows.capacity() {
            self.add_up();
            // Where that did not help much there are that many places.
            if self.rows.len() * 4 > self.rows.capacity() * 3 {
                self.rows.reserve_exact((self.rows.len() / 2).max(ROWS_MIN));
            }
        }
        let event_and_count = count.min(u64::MAX >> 8) << 8 | event as u64;
        self.rows.push(MergedRow { offset, event_and_count });
    }

    /// Makes one row of those for one offset and event.
    fn add_up(&mut self) {
        let event = |r: &MergedRow| r.event_and_count & 0xff;
        // Stable, as this sort finds the runs that the rows came in; by one number, as that is compared faster than two.
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
        let mut points = Points::with_capacity(offsets, events);
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

/// Adds `more` to `sum`, index by index.
pub fn add_counts(sum: &mut CountsByEvent, more: &[u64]) {
    if sum.len() < more.len() {
        sum.resize(more.len(), 0);
    }
    sum.iter_mut().zip(more).for_each(|(s, m)| *s += m);
}

/// A segment names an image that no record describes: the rest is still worth showing.
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

fn events_primary_first(profiles: &[EpochProfile], counted: &[Event]) -> Vec<Event> {
    let mut samples: BTreeMap<&Event, u64> = BTreeMap::new();
    for (event, record) in profiles.iter().flat_map(|p| &p.epoch.events) {
        *samples.entry(event).or_default() += record.samples;
    }
    // Derived events have rows but no record.
    for event in counted {
        samples.entry(event).or_default();
    }
    let mut events: Vec<(&Event, u64)> = samples.into_iter().collect();
    events.sort_by_key(|(e, n)| (!e.is_time(), e.is_derived(), std::cmp::Reverse(*n)));
    events.into_iter().map(|(e, _)| e.clone()).collect()
}

fn notes(profiles: &[EpochProfile]) -> Vec<String> {
    let mut notes = Vec::new();
    for p in profiles {
        notes.extend(p.epoch.notes.iter().cloned());
        notes.extend(p.warnings.iter().map(ToString::to_string));
        for (event, r) in &p.epoch.events {
            if r.lost > 0 || r.throttled > 0 {
                notes.push(format!(
                    "{event}: {} samples lost, throttled {} times ({} stored)",
                    r.lost, r.throttled, r.samples
                ));
            }
            notes.extend(r.multiplexing_note(event));
        }
        if p.epoch.events.values().all(|r| r.samples == 0) {
            notes.push(format!("epoch {} has no samples", p.epoch.id));
        }
        if p.epoch.end.is_none() {
            notes.push(format!(
                "epoch {} has no end: it is being collected, or its collector died",
                p.epoch.id
            ));
        }
    }
    let models: BTreeSet<String> = profiles.iter().map(|p| p.epoch.cpu.model_name.clone()).collect();
    if models.len() > 1 {
        let list = models.into_iter().collect::<Vec<_>>().join("; ");
        notes.push(format!("unlike processors are merged ({list}): the newest epoch's model is used"));
    }
    notes.dedup();
    notes
}
