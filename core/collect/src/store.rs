//! An epoch on its way to the database: what was counted and is not on disk yet.
//!
//! Enters: batches of counts, tallies. Leaves: segments and `epoch.json`. While the database refuses, counts are kept
//! up to a bound; beyond, samples are lost and counted so. Never here: where counts come from.

use std::collections::BTreeMap;

use dwell_profile::{
    Counts, DatabaseError, Epoch, EpochWriter, Event, EventRecord, ImageId, ImageRecord, PathBurst, Writer,
};
use jiff::Timestamp;

use crate::{
    collector::{Batch, Tally},
    events::Plan,
    machine::MeasuredClock,
};

/// Entries that are kept while the database refuses them: about 400 MB. Beyond, samples are lost, and counted so.
const UNSTORED_MAX: usize = 1 << 22;

/// An epoch on disk, and what is not there yet.
pub struct Store {
    writer: EpochWriter,
    /// The epoch as last written, and as it will be next.
    pub epoch: Epoch,
    counts: Counts,
    images: BTreeMap<ImageId, ImageRecord>,
    paths: Vec<PathBurst>,
    /// Samples by event that were given up, since the database had refused them for too long.
    dropped: BTreeMap<Event, u64>,
}

impl Store {
    /// Begins the epoch on disk.
    pub fn begin(writer: &Writer, epoch: Epoch) -> Result<Self, DatabaseError> {
        let (counts, images, dropped) = (Counts::default(), BTreeMap::new(), BTreeMap::new());
        Ok(Store { writer: writer.begin(epoch.clone())?, epoch, counts, images, paths: Vec::new(), dropped })
    }

    /// Takes in what was counted, to be written with the next [`Store::write`].
    pub fn add(&mut self, batch: Batch) {
        if self.counts.is_empty() && batch.counts.len() <= UNSTORED_MAX {
            self.counts = batch.counts; // As a rule: the last batch was stored.
        } else {
            self.keep(batch.counts);
        }
        self.images.extend(batch.images.into_iter().map(|record| (record.id.clone(), record)));
        self.paths.extend(batch.paths);
    }

    fn keep(&mut self, counts: Counts) {
        for (key, count) in counts {
            if self.counts.len() >= UNSTORED_MAX && !self.counts.contains_key(&key) {
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
        let images: Vec<ImageRecord> = self.images.values().cloned().collect();
        self.writer.append(&self.counts, &images)?;
        self.counts.clear();
        self.images.clear();
        self.writer.append_paths(&self.paths)?;
        self.paths.clear();
        for (plan, tally) in plans.iter().zip(tallies) {
            let dropped = self.dropped.get(&plan.event).copied().unwrap_or(0);
            let record = EventRecord {
                samples: tally.samples.saturating_sub(dropped),
                lost: tally.lost + dropped,
                throttled: tally.throttled,
                unknown: tally.unknown,
                period: plan.period,
                unit: plan.unit,
            };
            self.epoch.events.insert(plan.event.clone(), record);
        }
        if let Some(first) = plans.first().and_then(|p| self.epoch.events.get_mut(&p.event)) {
            first.lost += malformed;
        }
        clock.write_to(&mut self.epoch.cpu);
        self.writer.update(&self.epoch)
    }

    /// Marks the epoch as ended.
    pub fn end(&mut self) -> Result<Epoch, DatabaseError> {
        self.writer.update(&Epoch { end: Some(Timestamp::now()), ..self.epoch.clone() })?;
        self.epoch = self.writer.epoch().clone();
        Ok(self.epoch.clone())
    }

    /// Samples that are not on disk.
    pub fn unstored_samples(&self) -> u64 {
        self.counts.iter().filter(|(key, _)| !key.event.is_derived()).map(|(_, count)| count).sum()
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
