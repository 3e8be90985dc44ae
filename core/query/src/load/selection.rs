//! One or several merged epochs: samples by image and offset.
//!
//! Cost: one pass over the rows of the epochs. Memory: one point for each distinct (image, offset).

use std::collections::{BTreeMap, BTreeSet};

use dwell_profile::{
    Database, Dimension, DimensionSet, Epoch, EpochProfile, Event, EventRecord, ExecutionCount, ImageKind,
    SourceRecord, Unit,
};

use crate::{
    QueryError, SampleFilter,
    answer::EventCounts,
    load::{
        breakpoint_counts::BreakpointCounts,
        bursts::BurstTransfers,
        execution_counts::ExecutionCounts,
        merge::{Merge, Places},
        period_weights::{PeriodWeights, Weighing, mean_period},
        programs::Programs,
        samples::{AppCounts, CountsByEvent, DataCounts, DimensionCounts, ImageSamples},
        transfers::TransferSums,
    },
    parallel::in_parallel,
};

/// All data of one or several merged epochs.
pub struct Selection {
    /// The merged epochs, the oldest first; never empty.
    pub epochs: Vec<Epoch>,
    /// Every event with samples or a period, the primary one first.
    pub events: Vec<Event>,
    /// Images that were recorded. Images without samples have no points.
    pub images: Vec<ImageSamples>,
    /// Samples by application, instance and image (an index).
    pub apps: AppCounts,
    /// Samples by thread, CPU or control group, and image (an index), for the epochs that recorded them.
    pub dimensions: DimensionCounts,
    /// Dimensions that each epoch recorded.
    pub kept: Vec<DimensionSet>,
    /// Samples by the data that they refer to, for the epochs that recorded it.
    pub data: DataCounts,
    /// All samples, including those that the filter does not take.
    pub total: CountsByEvent,
    /// Source files as they were when the samples were taken, by epoch (an index).
    pub sources: Vec<Vec<SourceRecord>>,
    /// Control transfers in path bursts and branch stacks.
    pub transfers: TransferSums,
    /// Path bursts of which it is known how long the thread itself took for them.
    pub bursts: BurstTransfers,
    /// Whose they are.
    pub programs: Programs,
    /// Executions counted by hardware breakpoints.
    pub breakpoint_counts: BreakpointCounts,
    /// Executions counted while programs ran at full speed.
    pub execution_counts: ExecutionCounts,
    /// Notes for the reader of an answer.
    pub notes: Vec<String>,
}

impl Selection {
    /// Reads and merges the epochs, with the samples that `filter` takes.
    pub fn read(
        database: &Database,
        epochs: &[Epoch],
        filter: &SampleFilter,
        places: Places,
    ) -> Result<Self, QueryError> {
        let mut in_order: Vec<&Epoch> = epochs.iter().collect();
        in_order.sort_by_key(|epoch| epoch.start);
        let weights = PeriodWeights::new(&in_order);
        let new_merge = || Merge::new(filter, places, &weights);
        let (profiles, mut merge) = read_in_parallel(database, in_order, &new_merge)?;
        let events = events_primary_first(&profiles, &merge.events);
        let notes = notes(&profiles);
        let kept = (0..profiles.len()).map(|at| merge.kept.get(&at).copied().unwrap_or_default()).collect();
        let data = std::mem::take(&mut merge.data);
        let image_apps = merge.image_apps();
        let (images, apps, dimensions, total) = merge.finish(&events);
        let programs = Programs::new(image_apps, &apps, filter.app.as_deref());
        // Bursts were not timed by thread, CPU or control group, and one thread may be slower than another in the same code.
        let bursts = match filter.has_dimensions() {
            true => BurstTransfers::default(),
            false => BurstTransfers::new(&profiles, &images, &programs, events.first()),
        };
        let (mut epochs, mut sources, mut evidence, mut counts) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (number, profile) in profiles.into_iter().enumerate() {
            let weight = events.first().map_or(1.0, |event| weights.of(number, event));
            let weighed = |count: ExecutionCount| ExecutionCount {
                samples: Weighing::default().weigh(count.samples, weight),
                ..count
            };
            epochs.push(profile.epoch);
            sources.push(profile.sources);
            evidence.extend(profile.evidence);
            counts.extend(profile.execution_counts.into_iter().map(weighed));
        }
        let transfers = TransferSums::new(&evidence, &images);
        let breakpoint_counts = BreakpointCounts::new(&evidence, &images);
        // Executions were not counted by thread, CPU or control group.
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
            transfers,
            bursts,
            programs,
            breakpoint_counts,
            execution_counts,
            notes,
        };
        selection.check_filter(filter)?;
        Ok(selection)
    }

    /// Returns the primary event, by which rows are ordered and which shares refer to. It is an event of time if there is
    /// one.
    pub fn primary(&self) -> Option<&Event> {
        self.events.first()
    }

    /// Returns the number of samples of the primary event.
    pub fn primary_total(&self) -> u64 {
        self.total.first().copied().unwrap_or(0)
    }

    /// Returns the number of samples of the primary event that are not in the kernel's own code.
    pub fn user_samples(&self) -> f64 {
        let is_user =
            |image: &&ImageSamples| !matches!(image.record.kind, ImageKind::Kernel | ImageKind::Module);
        let samples = |image: &ImageSamples| image.total.first().copied().unwrap_or(0);
        self.images.iter().filter(is_user).map(samples).sum::<u64>() as f64
    }

    /// Returns the number of samples of an event.
    pub fn samples_of(&self, event: &Event) -> u64 {
        let index = self.events.iter().position(|known| known == event);
        index.and_then(|index| self.total.get(index)).copied().unwrap_or(0)
    }

    /// Returns the share of the primary event's samples, 0 to 1.
    pub fn share(&self, counts: &CountsByEvent) -> f64 {
        let samples = counts.first().copied().unwrap_or(0);
        if samples == 0 { 0.0 } else { samples as f64 / self.primary_total() as f64 }
    }

    /// Converts counts to the form of answers: by event name, without zeros.
    pub fn named(&self, counts: &CountsByEvent) -> EventCounts {
        let pairs = self.events.iter().zip(counts);
        pairs.filter(|(_, n)| **n > 0).map(|(e, n)| (e.name().to_owned(), *n)).collect()
    }

    /// Returns the mean number of cycles between two samples of the primary event, weighted by the samples of the epochs.
    /// Returns `None` if the event does not measure time or the clock rate was not measured.
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

    /// Returns the CPU time in seconds between two samples of the primary event, weighted in the same way. Returns `None` if
    /// the event does not measure time or the clock rate was not measured.
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

    /// Returns an error that names the filter if the filter took no samples.
    fn check_filter(&self, filter: &SampleFilter) -> Result<(), QueryError> {
        let kept = |dimension: &Dimension| self.kept.iter().any(|kept| kept.has(*dimension));
        if let Some(dimension) = filter.dimensions().iter().find(|d| !kept(d)) {
            return Err(QueryError::NoDimension { dimension, epoch: self.name() });
        }
        let is_empty = self.images.iter().all(|image| image.points.is_empty());
        if *filter == SampleFilter::default() || !is_empty {
            return Ok(());
        }
        Err(QueryError::NothingTaken { filter: filter.to_string(), epoch: self.name() })
    }

    /// Returns the ids of the epochs of each run, for comparisons. If there are several hosts, a run is all of one host, since recordings of one
    /// machine have its peculiarities in common; otherwise it is one epoch.
    pub fn runs(&self) -> Vec<Vec<String>> {
        let mut of_hosts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for epoch in &self.epochs {
            of_hosts.entry(&epoch.host.name).or_default().push(epoch.id.to_string());
        }
        if of_hosts.len() > 1 {
            return of_hosts.into_values().collect();
        }
        self.epochs.iter().map(|epoch| vec![epoch.id.to_string()]).collect()
    }

    /// Returns the ids of the epochs, joined by `+`.
    pub fn name(&self) -> String {
        self.epochs.iter().map(|e| e.id.to_string()).collect::<Vec<_>>().join("+")
    }
}

/// Most threads that read epochs at once. Each has sums of its own, which take memory.
const READERS_MAX: usize = 4;

/// Reads epochs, given the oldest first, and sums their rows.
fn read_in_parallel(
    database: &Database,
    in_order: Vec<&Epoch>,
    new_merge: &(dyn Fn() -> Merge + Sync),
) -> Result<(Vec<EpochProfile>, Merge), QueryError> {
    let numbered: Vec<(usize, &Epoch)> = in_order.into_iter().enumerate().collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(READERS_MAX);
    let parts: Vec<_> = numbered.chunks(numbered.len().div_ceil(threads).max(1)).collect();
    let read = in_parallel(parts, |part| {
        let (mut profiles, mut merge) = (Vec::new(), new_merge());
        for &(at, epoch) in part {
            let mut rows = match database.read_rows(&epoch.id) {
                Ok(rows) => rows,
                Err(error) => return Some(Err(error)),
            };
            for record in std::mem::take(&mut rows.profile.images) {
                merge.add_image(record);
            }
            rows.each(&mut |run| merge.add(at, run));
            profiles.push(rows.profile);
        }
        Some(Ok((profiles, merge)))
    });
    let (mut profiles, mut merge) = (Vec::new(), new_merge());
    for part in read {
        let (of_part, sums) = part?;
        profiles.extend(of_part);
        merge.absorb(sums);
    }
    Ok((profiles, merge))
}

fn events_primary_first(profiles: &[EpochProfile], counted: &[Event]) -> Vec<Event> {
    let mut samples: BTreeMap<&Event, u64> = BTreeMap::new();
    for (event, record) in profiles.iter().flat_map(|p| &p.epoch.events) {
        *samples.entry(event).or_default() += record.samples;
    }
    // Derived events have samples but no record of a period.
    for event in counted {
        samples.entry(event).or_default();
    }
    let mut events: Vec<(&Event, u64)> = samples.into_iter().collect();
    events.sort_by_key(|(e, n)| (!e.is_time(), e.is_derived(), std::cmp::Reverse(*n)));
    events.into_iter().map(|(e, _)| e.clone()).collect()
}

/// Describes events that recordings sampled with different periods.
fn uneven_periods(profiles: &[EpochProfile]) -> Vec<String> {
    let mut periods: BTreeMap<&Event, Vec<&EventRecord>> = BTreeMap::new();
    for (event, record) in profiles.iter().flat_map(|p| &p.epoch.events).filter(|(_, r)| r.samples > 0) {
        periods.entry(event).or_default().push(record);
    }
    let note = |(event, records): (&Event, Vec<&EventRecord>)| {
        let all = || records.iter().map(|record| record.period);
        let (least, most) = (all().min()?, all().max()?);
        let unit = records.first()?.unit.name();
        let mean = mean_period(profiles.iter().map(|p| &p.epoch), event);
        (least < most).then(|| match mean {
            Some((mean, _)) => format!(
                "{event}: recordings with periods from {least} to {most} {unit} are merged: their samples count as many of {mean:.0} {unit}"
            ),
            None => format!("{event}: recordings with periods of different units are merged: shares are of samples"),
        })
    };
    periods.into_iter().filter_map(note).collect()
}

/// Most notes of recordings that a selection repeats; those of a thousand machines would hide the answer.
const NOTES_MAX: usize = 20;

/// Returns what is lost, merged or left out in recordings, and their own notes.
fn notes(profiles: &[EpochProfile]) -> Vec<String> {
    let mut notes: Vec<String> = profiles.iter().flat_map(|p| &p.warnings).map(ToString::to_string).collect();
    // Lost, throttled and stored samples, by event.
    let mut lost: BTreeMap<&Event, (u64, u64, u64)> = BTreeMap::new();
    for (event, record) in profiles.iter().flat_map(|p| &p.epoch.events) {
        let sum = lost.entry(event).or_default();
        sum.0 = sum.0.saturating_add(record.lost);
        sum.1 = sum.1.saturating_add(record.throttled);
        sum.2 = sum.2.saturating_add(record.samples);
    }
    for (event, (lost, throttled, samples)) in lost {
        if lost > 0 || throttled > 0 {
            notes.push(format!(
                "{event}: {lost} samples lost, throttled {throttled} times ({samples} stored)"
            ));
        }
    }
    notes.extend(uneven_periods(profiles));
    let models: BTreeSet<&str> = profiles.iter().map(|p| p.epoch.cpu.model_name.as_str()).collect();
    if models.len() > 1 {
        let list = models.into_iter().collect::<Vec<_>>().join("; ");
        notes.push(format!(
            "recordings of different processors are merged ({list}): the model of the newest one is used"
        ));
    }
    let mut own: Vec<String> = Vec::new();
    for p in profiles {
        own.extend(p.epoch.notes.iter().cloned());
        own.extend(p.epoch.events.iter().filter_map(|(event, record)| record.multiplexing_note(event)));
        if p.epoch.events.values().all(|r| r.samples == 0) {
            own.push(format!("epoch {} has no samples", p.epoch.id));
        }
        if p.epoch.end.is_none() {
            own.push(format!(
                "epoch {} has no end: it is being collected, or its collector died",
                p.epoch.id
            ));
        }
    }
    own.dedup();
    let others = own.len().saturating_sub(NOTES_MAX);
    own.truncate(NOTES_MAX);
    notes.extend(own);
    if others > 0 {
        notes.push(format!("{others} more notes of these recordings: ask for fewer of them to see all"));
    }
    notes
}
