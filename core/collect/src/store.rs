//! An epoch on its way to the database: what was counted and is not on disk yet.
//!
//! Enters: batches of counts, tallies. Leaves: segments and `epoch.json`. While the database refuses, counts are kept
//! up to a bound; beyond, samples are lost and counted so. Never here: where counts come from.

use std::{collections::BTreeMap, time::Duration};

use dwell_profile::{
    Counts, DatabaseError, Epoch, EpochWriter, Event, EventRecord, ImageId, ImageRecord, PathBurst, Writer,
};
use jiff::Timestamp;

use crate::{
    clocks::Clocks,
    collector::{Batch, Tally},
    events::Plan,
    machine::MeasuredClock,
};

/// Path bursts that are kept while the database refuses them; each is a few KB, and none is worth more than samples.
const PATHS_MAX: usize = 1 << 12;

/// An epoch on disk, and what is not there yet.
pub struct Store {
    writer: EpochWriter,
    /// The epoch as last written, and as it will be next.
    pub epoch: Epoch,
    counts: Counts,
    images: BTreeMap<ImageId, ImageRecord>,
    paths: Vec<PathBurst>,
    /// Images of the segment that was written last, without their symbols.
    written: Vec<ImageRecord>,
    unstored_max: usize,
    /// CLOCK_BOOTTIME at the epoch's start: what its end is reckoned by, as the wall clock may be set meanwhile.
    began_boot_ns: u64,
    /// How often the database refused.
    pub failures: u64,
    /// Samples by event that were given up, since the database had refused them for too long.
    dropped: BTreeMap<Event, u64>,
}

impl Store {
    /// Begins the epoch on disk.
    ///
    /// While the database refuses, up to `unstored_max` entries are kept; beyond, samples are lost, and counted so.
    pub fn begin(writer: &Writer, epoch: Epoch, unstored_max: usize) -> Result<Self, DatabaseError> {
        Ok(Store {
            writer: writer.begin(epoch.clone())?,
            epoch,
            counts: Counts::default(),
            images: BTreeMap::new(),
            paths: Vec::new(),
            written: Vec::new(),
            unstored_max,
            began_boot_ns: Clocks::now().boot_ns,
            failures: 0,
            dropped: BTreeMap::new(),
        })
    }

    /// Takes in what was counted, to be written with the next [`Store::write`].
    pub fn add(&mut self, batch: Batch) {
        if self.counts.is_empty() && batch.counts.len() <= self.unstored_max {
            self.counts = batch.counts; // As a rule: the last batch was stored.
        } else {
            self.keep(batch.counts);
        }
        self.images.extend(batch.images.into_iter().map(|record| (record.id.clone(), record)));
        self.paths.extend(batch.paths);
        self.paths.truncate(PATHS_MAX);
    }

    fn keep(&mut self, counts: Counts) {
        for (key, count) in counts {
            if self.counts.len() >= self.unstored_max && !self.counts.contains_key(&key) {
                *self.dropped.entry(key.event).or_default() += count;
            } else {
                *self.counts.entry(key).or_default() += count;
            }
        }
    }

    /// Writes what was taken in, and the tallies. On an error the former is kept.
    pub fn write(
        &mut self,
        plans: &[Plan],
        tallies: &[Tally],
        malformed: u64,
        clock: &MeasuredClock,
    ) -> Result<(), DatabaseError> {
        let written = self.try_write(plans, tallies, malformed, clock);
        self.failures += u64::from(written.is_err());
        written
    }

    fn try_write(
        &mut self,
        plans: &[Plan],
        tallies: &[Tally],
        malformed: u64,
        clock: &MeasuredClock,
    ) -> Result<(), DatabaseError> {
        let images: Vec<ImageRecord> = self.images.values().cloned().collect();
        self.writer.append(&self.counts, &images)?;
        self.counts = Counts::default(); // With its memory: the next batch brings its own.
        self.images.clear();
        self.written = images.into_iter().map(|r| ImageRecord { symbols: Vec::new(), ..r }).collect();
        self.writer.append_paths(&self.paths)?;
        self.paths.clear();
        self.epoch.events = self.records(plans, tallies, malformed);
        clock.write_to(&mut self.epoch.cpu);
        self.writer.update(&self.epoch)
    }

    /// Periods and tallies by event; `malformed` records count as losses of the first.
    pub fn records(&self, plans: &[Plan], tallies: &[Tally], malformed: u64) -> BTreeMap<Event, EventRecord> {
        let pairs = plans.iter().zip(tallies).enumerate();
        let record = |(at, (plan, tally)): (usize, (&Plan, &Tally))| {
            let dropped = self.dropped.get(&plan.event).copied().unwrap_or(0);
            let record = EventRecord {
                samples: tally.samples.saturating_sub(dropped),
                lost: tally.lost + dropped + if at == 0 { malformed } else { 0 },
                throttled: tally.throttled,
                unknown: tally.unknown,
                period: plan.period,
                unit: plan.unit,
            };
            (plan.event.clone(), record)
        };
        pairs.map(record).collect()
    }

    /// Marks the epoch as ended.
    pub fn end(&mut self) -> Result<Epoch, DatabaseError> {
        let passed_ns = Clocks::now().boot_ns.saturating_sub(self.began_boot_ns);
        let end = self.epoch.start.checked_add(Duration::from_nanos(passed_ns)).unwrap_or(Timestamp::MAX);
        self.writer.update(&Epoch { end: Some(end), ..self.epoch.clone() })?;
        self.epoch = self.writer.epoch().clone();
        Ok(self.epoch.clone())
    }

    /// Samples that are not on disk.
    pub fn unstored_samples(&self) -> u64 {
        self.counts.iter().filter(|(key, _)| !key.event.is_derived()).map(|(_, count)| count).sum()
    }

    /// Samples that were given up, since the database had refused them for too long.
    pub fn dropped_samples(&self) -> u64 {
        self.dropped.iter().filter(|(event, _)| !event.is_derived()).map(|(_, count)| count).sum()
    }

    /// The images of what was written last, without symbols; once.
    pub fn take_written(&mut self) -> Vec<ImageRecord> {
        std::mem::take(&mut self.written)
    }

    /// Entries that are not on disk.
    pub fn entries(&self) -> usize {
        self.counts.len()
    }

    /// The right to write.
    pub fn writer(&self) -> Writer {
        self.writer.writer()
    }
}
