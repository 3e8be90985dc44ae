//! One or several epochs merged: samples by image and offset, ready to be asked about.
//!
//! Cost: one pass over the epochs' rows; memory: one point for each distinct (image, offset).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dwell_profile::{
    Database, Epoch, EpochProfile, Event, ImageId, ImageKind, ImageOffset, ImageRecord, SampleKey,
    SourceRecord, Unit,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{QueryError, answer::EventCounts, stepped::Stepped};

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
    /// All samples.
    pub total: CountsByEvent,
    /// Sources as they were when the samples were taken, by epoch (an index).
    pub sources: Vec<Vec<SourceRecord>>,
    /// What threads did while they were single-stepped.
    pub stepped: Stepped,
    /// What one must know to read it.
    pub notes: Vec<String>,
}

/// Samples by application, instance and image.
pub type AppCounts = BTreeMap<(Arc<str>, u32, usize), CountsByEvent>;

/// One image's samples.
pub struct ImageSamples {
    /// The image.
    pub record: ImageRecord,
    /// The epochs it was sampled in (indices), ascending.
    pub epochs: Vec<usize>,
    /// By ascending offset.
    pub points: Vec<Point>,
    /// Sum over `points`.
    pub total: CountsByEvent,
}

/// The samples at one offset.
pub struct Point {
    /// Where.
    pub offset: ImageOffset,
    /// How many.
    pub counts: CountsByEvent,
}

impl Selection {
    /// Reads and merges the epochs that `selectors` name (`["latest"]` where there are none).
    pub fn read(database: &Database, epochs: &[Epoch]) -> Result<Self, QueryError> {
        let mut profiles = epochs.iter().map(|e| database.read(&e.id)).collect::<Result<Vec<_>, _>>()?;
        profiles.sort_by_key(|p| p.epoch.start);
        let epochs: Vec<Epoch> = profiles.iter().map(|p| p.epoch.clone()).collect();
        let events = events_primary_first(&profiles);
        let notes = notes(&profiles);
        let mut merge = Merge::new(&events);
        let (mut sources, mut bursts) = (Vec::new(), Vec::new());
        for (epoch, profile) in profiles.into_iter().enumerate() {
            sources.push(profile.sources);
            bursts.extend(profile.paths);
            profile.images.into_iter().for_each(|r| merge.add_image(r));
            profile.counts.into_iter().for_each(|(key, count)| merge.add(epoch, &key, count));
        }
        let (images, apps, total) = merge.finish();
        let stepped = Stepped::new(&bursts, &images);
        Ok(Selection { epochs, events, images, apps, total, sources, stepped, notes })
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

    /// The epochs' ids, joined by `+`.
    pub fn name(&self) -> String {
        self.epochs.iter().map(|e| e.id.to_string()).collect::<Vec<_>>().join("+")
    }
}

/// Adds rows to images and applications.
struct Merge {
    event_index: FxHashMap<Event, usize>,
    image_index: FxHashMap<ImageId, usize>,
    images: Vec<MergedImage>,
    apps: AppCounts,
}

/// An image while its samples are being added up.
struct MergedImage {
    record: ImageRecord,
    epochs: BTreeSet<usize>,
    points: FxHashMap<ImageOffset, CountsByEvent>,
}

impl Merge {
    fn new(events: &[Event]) -> Self {
        Merge {
            event_index: events.iter().enumerate().map(|(i, e)| (e.clone(), i)).collect(),
            image_index: FxHashMap::default(),
            images: Vec::new(),
            apps: BTreeMap::new(),
        }
    }

    fn add_image(&mut self, record: ImageRecord) {
        match self.image_index.get(&record.id) {
            Some(&i) => absorb(&mut self.images[i].record, record),
            None => {
                self.image_index.insert(record.id.clone(), self.images.len());
                let (epochs, points) = Default::default();
                self.images.push(MergedImage { record, epochs, points });
            }
        }
    }

    fn add(&mut self, epoch: usize, key: &SampleKey, count: u64) {
        let Some(&event) = self.event_index.get(&key.event) else { return };
        if !self.image_index.contains_key(&key.image) {
            self.add_image(unrecorded(&key.image));
        }
        let index = self.image_index[&key.image];
        let image = &mut self.images[index];
        image.epochs.insert(epoch);
        let events = self.event_index.len();
        bump(image.points.entry(key.offset).or_default(), events, event, count);
        bump(self.apps.entry((key.app.clone(), key.instance, index)).or_default(), events, event, count);
    }

    /// Every image that was recorded, those without samples too, so that indices stay.
    fn finish(self) -> (Vec<ImageSamples>, AppCounts, CountsByEvent) {
        let events = self.event_index.len();
        let mut all = CountsByEvent::from_elem(0, events);
        let mut images = Vec::new();
        for MergedImage { record, epochs, points } in self.images {
            let mut total = CountsByEvent::from_elem(0, events);
            points.values().for_each(|c| add_counts(&mut total, c));
            add_counts(&mut all, &total);
            let mut points: Vec<Point> =
                points.into_iter().map(|(offset, counts)| Point { offset, counts }).collect();
            points.sort_by_key(|p| p.offset);
            images.push(ImageSamples { record, epochs: epochs.into_iter().collect(), points, total });
        }
        (images, self.apps, all)
    }
}

/// Adds `more` to `sum`, index by index.
pub fn add_counts(sum: &mut CountsByEvent, more: &CountsByEvent) {
    if sum.len() < more.len() {
        sum.resize(more.len(), 0);
    }
    sum.iter_mut().zip(more).for_each(|(s, m)| *s += m);
}

fn bump(counts: &mut CountsByEvent, events: usize, event: usize, count: u64) {
    counts.resize(events, 0);
    counts[event] += count;
}

/// Joins what two epochs know of one image: the newer path, the symbols of both.
fn absorb(known: &mut ImageRecord, newer: ImageRecord) {
    let mut symbols = std::mem::take(&mut known.symbols);
    symbols.extend(newer.symbols.iter().cloned());
    symbols.sort();
    symbols.dedup();
    *known = ImageRecord { symbols, ..newer };
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
    }
}

fn events_primary_first(profiles: &[EpochProfile]) -> Vec<Event> {
    let mut samples: BTreeMap<&Event, u64> = BTreeMap::new();
    for (event, record) in profiles.iter().flat_map(|p| &p.epoch.events) {
        *samples.entry(event).or_default() += record.samples;
    }
    // Derived events have rows but no record.
    for event in profiles.iter().flat_map(|p| p.counts.keys()).map(|k| &k.event) {
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
