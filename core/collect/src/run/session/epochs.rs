//! Epochs of a running collection: ends one and begins the next, perhaps at another rate, and reports about them.

use std::{collections::BTreeMap, iter, thread};

use dwell_profile::{CollectorRecord, EpochId, Event, EventRecord, ImageRecord, TableRecord, Writer};

use super::{MERGE_WINDOW, Session, new_epoch, notes::Subject};
use crate::{
    CollectError,
    run::{machine::MeasuredClock, store::Store},
    source::SourceTally,
    sys::{clock::now_ns, event_times::EventTimes},
};

/// The settings of the next epoch.
#[derive(Clone, Debug, Default)]
pub struct Next {
    /// Its name.
    pub name: Option<String>,
    /// Its periods by event, in the order of the configurations. `None`: unchanged.
    pub periods: Option<Vec<u64>>,
    /// The applications whose samples are kept; empty: all. `None`: unchanged.
    pub apps: Option<Vec<String>>,
}

/// Statistics of sampling in the kernel, in one epoch. A field is `None` where the backend does not keep it.
#[derive(Clone, Copy, Debug, Default)]
pub struct InKernel {
    /// Statistics of the aggregation.
    pub table: Option<TableRecord>,
    /// Samples in the idle task.
    pub idle: Option<u64>,
    /// Samples whose registers could not be handed out.
    pub registers_lost: Option<u64>,
    /// Samples in the kernel that could not be charged to the user code that entered it.
    pub kernel_time_lost: Option<u64>,
    /// Executions of programs that could not be reported.
    pub executions_lost: Option<u64>,
    /// How long events did not count because perf had given them up, in ns.
    pub given_up_ns: Option<u64>,
}

impl InKernel {
    fn between(then: &SourceTally, now: &SourceTally) -> Self {
        let since = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then.unwrap_or(0)));
        let before = then.table.unwrap_or_default();
        InKernel {
            table: now.table.map(|now| TableRecord {
                samples: now.samples.saturating_sub(before.samples),
                found: now.found.saturating_sub(before.found),
            }),
            idle: since(now.idle, then.idle),
            registers_lost: since(now.registers_lost, then.registers_lost),
            kernel_time_lost: since(now.kernel_time_lost, then.kernel_time_lost),
            executions_lost: since(now.executions_lost, then.executions_lost),
            given_up_ns: since(now.given_up_ns, then.given_up_ns),
        }
    }
}

impl Session {
    /// Ends the epoch and begins the next one, while sampling continues. On an error the old epoch continues, with its
    /// counts in memory and its periods.
    ///
    /// If periods change, samples of the old ones belong to the old epoch and those of the new ones to the new epoch. They
    /// are separated by their time.
    pub fn begin_epoch(&mut self, writer: &Writer, next: Next) -> Result<EpochId, CollectError> {
        let then: Vec<u64> = self.configs.iter().map(|p| p.period).collect();
        let mut configs = self.configs.clone();
        for (config, period) in configs.iter_mut().zip(next.periods.iter().flatten()) {
            config.rate_hz = config.rate_hz_at(*period);
            config.period = *period;
        }
        let mut notes = self.notes.clone();
        for about_old_epoch in [Subject::UncertainNames, Subject::Paused, Subject::OtherApps] {
            notes.remove(about_old_epoch);
        }
        let scope = self.store.epoch.scope.clone();
        let epoch = new_epoch(scope, next.name, self.backend, &configs, notes.texts());
        let id = epoch.id.clone();
        // This comes first because it is the most likely to fail. Nothing has changed so far.
        let store = Store::begin(writer, epoch, self.unstored_max)?;
        self.take_aggregated();
        if next.periods.is_some() {
            self.change_periods(&configs.iter().map(|p| p.period).collect::<Vec<_>>());
        }
        self.end_odometers();
        if let Err(error) = self.end_epoch() {
            self.restart_counting();
            self.change_periods(&then);
            drop(store);
            let _ = writer.database().remove(&id); // An epoch that cannot be removed stays, empty.
            return Err(error);
        }
        (self.store, self.configs, self.notes) = (store, configs, notes);
        next.apps.into_iter().for_each(|apps| self.collector.keep_only(apps));
        self.begin_tallies();
        self.restart_counting();
        Ok(id)
    }

    /// Writes other periods, and counts the samples of the old ones.
    fn change_periods(&mut self, periods: &[u64]) {
        let Some(source) = &mut self.source else { return };
        source.set_periods(periods);
        let changed_ns = now_ns();
        if source.tables().is_some() {
            return self.take_aggregated(); // No batch waits, so this cuts one now.
        }
        thread::sleep(MERGE_WINDOW); // Until then, older records may become visible.
        source.drain(&mut self.merger);
        self.apply_until(changed_ns);
    }

    fn begin_tallies(&mut self) {
        self.set_wait_period();
        self.epoch_started = std::time::Instant::now();
        self.clock = MeasuredClock::default();
        self.clock.measure();
        self.malformed = 0;
        self.at_epoch = self.source_tally();
        self.times_at_epoch = self.source_times();
        self.collector.begin_epoch();
        self.keeping.began();
    }

    /// Sets the collector's account of itself. The epoch contains it from the next time that it is stored.
    pub fn set_account(&mut self, account: CollectorRecord) {
        self.store.epoch.collector = Some(account);
        self.note_account();
    }

    /// Updates the account's counts of samples: it may have been set before the last batch came.
    pub(super) fn refresh_account(&mut self) {
        let (lost, unknown) = (self.lost_by_cause(), self.unknown_by_cause());
        let (samples_by_cpu, in_kernel) = (self.samples_by_cpu(), self.in_kernel());
        let other_apps = self.other_apps();
        if let Some(account) = &mut self.store.epoch.collector {
            let InKernel { table, idle, registers_lost, kernel_time_lost, executions_lost, given_up_ns } =
                in_kernel;
            *account = CollectorRecord {
                lost,
                unknown,
                other_apps,
                samples_by_cpu,
                table,
                idle,
                registers_lost,
                kernel_time_lost,
                executions_lost,
                given_up_ns,
                ..std::mem::take(account)
            };
        }
        self.note_account();
    }

    /// Returns the applications whose samples are kept; empty: all.
    pub fn kept_apps(&self) -> &[String] {
        self.collector.kept_apps()
    }

    /// Returns the samples of other applications in the epoch so far; `None` if those of all are kept.
    pub fn other_apps(&self) -> Option<u64> {
        (!self.kept_apps().is_empty()).then(|| self.collector.counts.other_apps())
    }

    /// Returns the samples since the source was opened, including those still in the kernel where the source reports them.
    pub fn samples_seen(&self) -> u64 {
        self.source_tally().by_cpu.values().sum()
    }

    /// Returns the samples lost in the epoch so far, by cause.
    pub fn lost_by_cause(&self) -> BTreeMap<String, u64> {
        let in_source = self.collector.counts.lost().iter().map(|(cause, n)| (cause.name(), *n));
        let causes = [("malformed", self.malformed), ("memory-full", self.store.dropped_samples())];
        in_source.chain(causes).filter(|(_, n)| *n > 0).map(|(cause, n)| (cause.to_owned(), n)).collect()
    }

    /// Returns how often the database refused to store in the epoch so far.
    pub fn stores_failed(&self) -> u64 {
        self.store.failures
    }

    /// Returns the images that were stored since the last call, without symbols.
    pub fn take_written(&mut self) -> Vec<ImageRecord> {
        self.store.take_written()
    }

    /// Returns the number of records that came too late for their order since the start, and the largest delay in ns.
    pub fn late(&self) -> (u64, u64) {
        (self.merger.late, self.merger.late_ns_max)
    }

    /// Sets other periods at the very start, before anything was sampled.
    pub fn set_first_periods(&mut self, periods: &[u64]) {
        self.source.iter_mut().for_each(|source| source.set_periods(periods));
        for (config, period) in self.configs.iter_mut().zip(periods) {
            config.rate_hz = config.rate_hz_at(*period);
            config.period = *period;
        }
        self.set_wait_period();
    }

    /// Returns periods and tallies of the epoch so far, as they will be stored.
    pub fn records(&self) -> BTreeMap<Event, EventRecord> {
        self.store.records(&self.configs, self.collector.counts.tallies(), self.malformed)
    }

    /// Returns the same as [`Session::records`], including the samples that the kernel still holds, where the source reports
    /// them. The places of these are not known yet, nor their applications: if only some are kept, they are not included.
    pub fn records_now(&mut self) -> BTreeMap<Event, EventRecord> {
        self.store.running_shares = self.running_shares();
        let mut records = self.records();
        if !self.kept_apps().is_empty() {
            return records;
        }
        for (event, by_cpu) in self.samples_by_cpu() {
            if let Some(record) = records.get_mut(&event) {
                let counted: u64 = by_cpu.iter().sum();
                record.samples = record.samples.max(counted.saturating_sub(record.lost));
            }
        }
        records
    }

    /// Returns, for each event, the share of its enabled time in the epoch so far that it counted.
    pub(super) fn running_shares(&mut self) -> Vec<Option<f64>> {
        let times = self.source_times();
        let then = self.times_at_epoch.iter().copied().chain(iter::repeat(EventTimes::default()));
        times.iter().zip(then).map(|(now, then)| now.running_share_since(&then)).collect()
    }

    /// Returns the samples per second of a busy CPU that the events of time should give; 0 if there is none.
    pub fn rate_hz(&self) -> f64 {
        self.configs.iter().filter(|p| p.event.is_time()).map(|p| p.rate_hz).sum()
    }

    /// Returns the samples per second of a busy CPU, of all events, that come by interrupts and so have a cost.
    pub fn interrupts_hz(&self) -> f64 {
        self.configs.iter().filter(|p| p.interrupts()).map(|p| p.rate_hz).sum()
    }

    /// Returns the core clock as measured in the epoch, in Hz.
    pub fn clock_hz(&self) -> Option<f64> {
        self.clock.median_hz()
    }

    /// Returns the samples under `unknown` in the epoch so far, by cause.
    pub fn unknown_by_cause(&self) -> BTreeMap<String, u64> {
        let unknown = self.collector.counts.unknown();
        let causes = [
            ("no-task", unknown.no_task),
            ("no-process", unknown.no_process),
            ("no-mapping", unknown.no_mapping),
            ("ambiguous", unknown.ambiguous),
            ("no-file", unknown.no_file),
            ("kernel", unknown.kernel),
            ("no-mode", unknown.no_mode),
            ("no-place", unknown.no_place),
        ];
        causes.into_iter().filter(|(_, n)| *n > 0).map(|(cause, n)| (cause.to_owned(), n)).collect()
    }

    /// Returns the samples of the epoch so far by event and CPU, where the source reports them.
    pub fn samples_by_cpu(&self) -> BTreeMap<Event, Vec<u64>> {
        let mut by_event: BTreeMap<Event, Vec<u64>> = BTreeMap::new();
        for ((event, cpu), total) in self.source_tally().by_cpu {
            let before = self.at_epoch.by_cpu.get(&(event, cpu)).copied().unwrap_or(0);
            let Some(config) = self.configs.get(event.index()).filter(|_| total > before) else {
                continue;
            };
            let by_cpu = by_event.entry(config.event.clone()).or_default();
            by_cpu.resize(by_cpu.len().max(cpu.0 as usize + 1), 0);
            by_cpu[cpu.0 as usize] = total - before;
        }
        by_event
    }

    /// Returns the statistics of sampling in the kernel in the epoch so far.
    pub fn in_kernel(&self) -> InKernel {
        InKernel::between(&self.at_epoch, &self.source_tally())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_statistics_are_split_by_epoch() {
        let tally = |samples, idle, lost| SourceTally {
            table: Some(TableRecord { samples, found: samples / 2 }),
            idle: Some(idle),
            registers_lost: Some(lost),
            kernel_time_lost: Some(5 * lost),
            executions_lost: Some(10 * lost),
            given_up_ns: Some(100 * lost),
            ..SourceTally::default()
        };
        let statistics = |then: &SourceTally, now: &SourceTally| {
            let InKernel { table, idle, registers_lost, kernel_time_lost, executions_lost, given_up_ns } =
                InKernel::between(then, now);
            let numbers = [idle, registers_lost, kernel_time_lost, executions_lost, given_up_ns];
            (table.map(|t| (t.samples, t.found)), numbers)
        };
        let (then, now, nothing) = (tally(100, 30, 2), tally(180, 31, 3), SourceTally::default());
        assert_eq!(
            statistics(&then, &now),
            (Some((80, 40)), [Some(1), Some(1), Some(5), Some(10), Some(100)])
        );
        assert_eq!(
            statistics(&nothing, &now),
            (Some((180, 90)), [Some(31), Some(3), Some(15), Some(30), Some(300)]),
            "the first epoch"
        );
        assert_eq!(statistics(&then, &nothing), (None, [None; 5]), "it gave no answer");
        assert_eq!(statistics(&now, &then), (Some((0, 0)), [Some(0); 5]), "opened anew");
    }
}
