//! An epoch on its way to the database: the counts that are not on disk yet.
//!
//! Enters: batches of counts, tallies. Leaves: segments and `epoch.json`. While the database refuses, counts are kept up to
//! a bound; further samples are lost, and counted as lost. Never here: where counts come from.

use std::{collections::BTreeMap, time::Duration};

use dwell_profile::{
    Counts, DatabaseError, Epoch, EpochWriter, Event, EventRecord, ExecutionCount, ExecutionEvidence,
    ImageId, ImageRecord, StoredCallTree, Writer,
};
use jiff::Timestamp;

use crate::{
    collector::{Batch, Rows, Tally},
    run::machine::MeasuredClock,
    source::events::EventConfig,
    sys::clocks::Clocks,
};

/// Maximum number of pieces of evidence that are kept while the database refuses them. Each takes a few KB, and none is
/// worth more than samples.
const EVIDENCE_MAX: usize = 1 << 12;
/// Maximum number of execution counts that are kept while the database refuses them.
const EXECUTIONS_MAX: usize = 1 << 16;
/// Maximum number of frames of call stacks that are kept while the database refuses them, beyond one batch.
const STACK_FRAMES_MAX: usize = 1 << 18;

/// An epoch on disk, and the counts that are not there yet.
pub struct Store {
    writer: EpochWriter,
    /// The epoch's record, as last written plus changes for the next write.
    pub epoch: Epoch,
    counts: Counts,
    images: BTreeMap<ImageId, ImageRecord>,
    evidence: Vec<ExecutionEvidence>,
    executions: Vec<ExecutionCount>,
    stacks: StoredCallTree,
    /// Images of the written segments, without their symbols, until the caller takes them.
    written: BTreeMap<ImageId, ImageRecord>,
    unstored_max: usize,
    /// CLOCK_BOOTTIME at the epoch's start. The end is computed from it, because the wall clock may be set in the meantime.
    began_boot_ns: u64,
    /// How often the database refused to store.
    pub failures: u64,
    /// For each event, the share of its enabled time that the event counted, at the last query.
    pub running_shares: Vec<Option<f64>>,
    /// Samples by event that were dropped because the database had refused them for too long.
    dropped: BTreeMap<Event, u64>,
}

impl Store {
    /// Begins the epoch on disk.
    ///
    /// While the database refuses, up to `unstored_max` entries are kept, and one batch. Further samples are lost, and
    /// counted as lost.
    pub fn begin(writer: &Writer, epoch: Epoch, unstored_max: usize) -> Result<Self, DatabaseError> {
        Ok(Store {
            writer: writer.begin(epoch.clone())?,
            epoch,
            counts: Counts::default(),
            images: BTreeMap::new(),
            evidence: Vec::new(),
            executions: Vec::new(),
            stacks: StoredCallTree::default(),
            written: BTreeMap::new(),
            unstored_max,
            began_boot_ns: Clocks::now().boot_ns,
            failures: 0,
            running_shares: Vec::new(),
            dropped: BTreeMap::new(),
        })
    }

    /// Stores a batch. If the database refuses, the batch is kept, up to the bound, and the next call tries again.
    pub fn put(&mut self, batch: Batch) -> Result<(), DatabaseError> {
        ImageRecord::absorb_all(&mut self.images, batch.images);
        self.evidence.extend(batch.evidence);
        self.evidence.truncate(EVIDENCE_MAX);
        self.executions.extend(batch.executions);
        self.executions.truncate(EXECUTIONS_MAX);
        self.add_stacks(batch.stacks);
        let stored = self.append(&batch.rows);
        self.failures += u64::from(stored.is_err());
        stored
    }

    /// Keeps these rows, in addition to those that were refused before, up to the bound.
    fn keep(&mut self, rows: &Rows) {
        for (key, count) in rows.counts() {
            if self.counts.len() >= self.unstored_max && !self.counts.contains_key(&key) {
                *self.dropped.entry(key.event).or_default() += count;
            } else {
                *self.counts.entry(key).or_default() += count;
            }
        }
    }

    /// Adds call stacks to those that were refused before, up to the bound.
    fn add_stacks(&mut self, stacks: StoredCallTree) {
        if self.stacks.is_empty() {
            self.stacks = stacks;
        } else if self.stacks.nodes().len() < STACK_FRAMES_MAX {
            self.stacks.absorb(&stacks, stacks.roots(), stacks.nodes().iter().map(|n| n.frame.clone()));
        }
    }

    fn append(&mut self, rows: &Rows) -> Result<(), DatabaseError> {
        let images: Vec<ImageRecord> = self.images.values().cloned().collect();
        if self.counts.is_empty() && rows.is_empty() && images.is_empty() {
            return self.append_evidence();
        }
        if self.counts.is_empty() {
            let stored = self.writer.append_runs(&images, rows.dimensions(), |sink| rows.hand_out(sink));
            // The bound applies to what was refused before: one batch is kept whatever its size.
            stored.inspect_err(|_| self.counts = rows.counts())?;
        } else {
            self.keep(rows);
            self.writer.append(&self.counts, &images)?;
            self.counts = Counts::default(); // Frees its memory, which is rarely needed.
        }
        self.images.clear();
        let bare = images.into_iter().map(|r| (r.id.clone(), ImageRecord { symbols: Vec::new(), ..r }));
        self.written.extend(bare);
        self.append_evidence()
    }

    fn append_evidence(&mut self) -> Result<(), DatabaseError> {
        self.writer.append_evidence(&self.evidence)?;
        self.evidence.clear();
        self.writer.append_execution_counts(&self.executions)?;
        self.executions.clear();
        self.writer.append_stacks(&self.stacks)?;
        self.stacks = StoredCallTree::default();
        Ok(())
    }

    /// Writes the tallies of what was stored.
    pub fn write_epoch(
        &mut self,
        configs: &[EventConfig],
        tallies: &[Tally],
        malformed: u64,
        clock: &MeasuredClock,
    ) -> Result<(), DatabaseError> {
        self.epoch.events = self.records(configs, tallies, malformed);
        clock.write_to(&mut self.epoch.cpu);
        let written = self.writer.update(&self.epoch);
        self.failures += u64::from(written.is_err());
        written
    }

    /// Returns periods and tallies by event. The number `malformed` of unparsable records counts as losses of the first
    /// event.
    pub fn records(
        &self,
        configs: &[EventConfig],
        tallies: &[Tally],
        malformed: u64,
    ) -> BTreeMap<Event, EventRecord> {
        let pairs = configs.iter().zip(tallies).enumerate();
        let record = |(at, (config, tally)): (usize, (&EventConfig, &Tally))| {
            let dropped = self.dropped.get(&config.event).copied().unwrap_or(0);
            let record = EventRecord {
                samples: tally.samples.saturating_sub(dropped),
                lost: tally.lost + dropped + if at == 0 { malformed } else { 0 },
                throttled: tally.throttled,
                unknown: tally.unknown,
                period: config.period,
                unit: config.unit,
                running_share: self.running_shares.get(at).copied().flatten(),
            };
            (config.event.clone(), record)
        };
        pairs.map(record).collect()
    }

    /// Marks the epoch as ended.
    pub fn end(&mut self) -> Result<Epoch, DatabaseError> {
        let passed_ns = Clocks::now().boot_ns.saturating_sub(self.began_boot_ns);
        let end = self.epoch.start.checked_add(Duration::from_nanos(passed_ns)).unwrap_or(Timestamp::MAX);
        if let Some(account) = &mut self.epoch.collector {
            let bytes = self.writer.writer().database().epoch_bytes(&self.epoch.id);
            account.disk_bytes = bytes.unwrap_or(account.disk_bytes);
        }
        self.writer.update(&Epoch { end: Some(end), ..self.epoch.clone() })?;
        self.epoch = self.writer.epoch().clone();
        Ok(self.epoch.clone())
    }

    /// Returns the number of samples that are not on disk.
    pub fn unstored_samples(&self) -> u64 {
        self.counts.iter().filter(|(key, _)| !key.event.is_derived()).map(|(_, count)| count).sum()
    }

    /// Returns the number of samples that were dropped because the database had refused them for too long.
    pub fn dropped_samples(&self) -> u64 {
        self.dropped.iter().filter(|(event, _)| !event.is_derived()).map(|(_, count)| count).sum()
    }

    /// Returns the images that were written since the last call, without symbols.
    pub fn take_written(&mut self) -> Vec<ImageRecord> {
        std::mem::take(&mut self.written).into_values().collect()
    }

    /// Returns the number of entries that are not on disk.
    pub fn entries(&self) -> usize {
        self.counts.len()
    }

    /// Returns the permission to write.
    pub fn writer(&self) -> Writer {
        self.writer.writer()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use dwell_profile::{Database, EpochId, Scope, Unit};

    use super::*;
    use crate::collector::{Texts, rows};

    fn batch(offsets: std::ops::Range<u64>) -> Batch {
        let texts = Texts {
            image: ImageId::kernel(),
            event: Event::CPU_CLOCK,
            app: "app".into(),
            instance: 1,
            dimensions: None,
        };
        Batch { rows: rows(offsets.map(|offset| (texts.clone(), offset, 1))), ..Batch::default() }
    }

    /// Returns an empty epoch of this machine.
    pub(crate) fn epoch() -> Epoch {
        let start = Timestamp::now();
        let (scope, backend) = (Scope::System, "bpf".to_owned());
        Epoch {
            id: EpochId::new(start),
            name: None,
            start,
            end: None,
            host: crate::run::machine::host(),
            cpu: crate::run::machine::cpu(),
            backend,
            scope,
            events: BTreeMap::new(),
            notes: Vec::new(),
            bursts: None,
            breakpoints: None,
            counts: None,
            call_stacks: None,
            collector: None,
        }
    }

    #[test]
    fn the_bound_applies_to_refused_batches_only() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path()).unwrap();
        let mut store = Store::begin(&database.writer().unwrap(), epoch(), 10).unwrap();
        let config =
            EventConfig { event: Event::CPU_CLOCK, unit: Unit::Nanoseconds, ..EventConfig::side_band() };
        let counted = |store: &Store, samples| {
            let tally = Tally { samples, ..Tally::default() };
            let record = store.records(std::slice::from_ref(&config), &[tally], 0)[&Event::CPU_CLOCK].clone();
            (record.samples, record.lost)
        };
        store.put(batch(0..100)).unwrap();
        assert_eq!((counted(&store, 100), store.entries()), ((100, 0), 0));
        let at = folder.path().join("epochs").join(&store.epoch.id.0);
        let aside = folder.path().join("aside");
        std::fs::rename(&at, &aside).unwrap();
        store.put(batch(100..200)).unwrap_err();
        assert_eq!(
            (counted(&store, 200), store.entries()),
            ((200, 0), 100),
            "one batch is kept whatever its size"
        );
        store.put(batch(150..250)).unwrap_err();
        assert_eq!(counted(&store, 300), (250, 50));
        std::fs::rename(&aside, &at).unwrap();
        store.put(batch(0..0)).unwrap();
        let stored: u64 = database.read(&store.epoch.id).unwrap().counts.values().sum();
        assert_eq!((stored, store.failures, store.entries()), (250, 2, 0));
    }
}
