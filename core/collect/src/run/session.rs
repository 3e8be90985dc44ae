//! A running collection: source, collector and an epoch of the database, driven round by round.
//!
//! One function of the caller (`record`, `daemon`) owns the control flow. Each round drains the source, counts the records
//! that are old enough, lets the source do its periodic maintenance and, when it is due, stores.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use dwell_profile::{
    Cpu, DatabaseError, DimensionSet, Epoch, EpochId, Event, EventIndex, EventRecord, Pid, Scope, Unit,
    Writer, stacks_note,
};
use jiff::Timestamp;

mod call_stacks;
mod counting;
mod epochs;
mod keep;
mod notes;
mod waits;

pub use counting::Counting;
pub use epochs::{InKernel, Next};
use keep::Keeping;
use notes::{Notes, Subject, add_notes, branch_stacks_note};

use crate::{
    CollectError,
    collector::{Collector, Tally, Waits},
    evidence::bursts::BurstRecorder,
    host::{linux_host::LinuxHost, live_processes::all_pids},
    run::{
        machine::{self, MeasuredClock},
        options::Progress,
        store::Store,
        timer::Timer,
    },
    source::{
        Backend, BackendChoice, KernelTables, ROUND_MIN, Rate, Source, SourceTally, Tasks,
        choose::{OpenedSource, SourceRequest, open_source},
        events::EventConfig,
        merge::Merger,
        owned_record::{OwnedRecord, RawBurst},
        sees_all_processes, wait_for,
    },
    sys::{clock::now_ns, event_times::EventTimes, heap},
};
use dwell_attribution::{InstanceLimits, Interval};

/// The longest time between a record's time stamp and the moment at which the record becomes visible in its ring.
const MERGE_WINDOW: Duration = Duration::from_millis(5);
/// Number of entries in memory that triggers storing before it is due: about 4 MB.
pub const ENTRIES_MAX: usize = 1 << 18;
/// Number of entries that are kept while the database refuses them: about 400 MB.
pub const UNSTORED_MAX: usize = 1 << 22;
/// Interval between two progress reports.
const SECOND: Duration = Duration::from_secs(1);
/// Interval between two measurements of the core clock. A measurement spins for a while.
const MEASURE_EVERY: Duration = Duration::from_secs(10);
/// Shortest interval between two batches that are cut only so that ended processes and unloaded kernel modules can be
/// forgotten. It matters where processes end by the thousand, or modules are often loaded and unloaded.
const FORGET_EVERY: Duration = Duration::from_secs(4);
/// Longest time of a round without a source.
const CLOSED_ROUND: Duration = Duration::from_millis(250);
/// Shortest interval between two scans of all processes after losses.
const REFRESH_EVERY: Duration = Duration::from_secs(2);

/// The settings of a session.
pub struct Setup {
    /// The scope, as the epoch records it.
    pub scope: Scope,
    /// The backend that was requested.
    pub backend: BackendChoice,
    /// The events that were requested. If empty, the best events of this machine are used.
    pub events: Vec<Event>,
    /// The sampling rate.
    pub rate: Rate,
    /// The name of the epoch.
    pub name: Option<String>,
    /// Whether to sample registers.
    pub branches: bool,
    /// Which executions are kept apart.
    pub apart: InstanceLimits,
    /// The applications whose samples are kept; empty: all.
    pub apps: Vec<String>,
    /// The dimensions that are kept of each sample beside its place.
    pub dimensions: DimensionSet,
    /// Whether to count which data the sampled instructions refer to.
    pub data: bool,
    /// The methods that measure executions beside sampling.
    pub counting: Counting,
    /// Branch stacks per second of a busy CPU; 0: none.
    pub branch_stacks_hz: u32,
    /// Number of samples per second of a thread or CPU that carry a call stack; 0: none.
    pub stacks_hz: u32,
    /// Sampled images are copied into the database, up to this many bytes. `None`: only images that no path leads to are
    /// copied.
    pub keep_images_bytes: Option<u64>,
    /// Number of entries in memory that triggers storing before it is due.
    pub entries_max: usize,
    /// Number of entries that are kept while the database refuses them. Further samples are lost, and counted as lost.
    pub unstored_max: usize,
}

/// A running collection.
pub struct Session {
    /// `None` once the events are closed.
    source: Option<Box<dyn Source>>,
    backend: Backend,
    /// The statistics of the source when it was closed.
    at_close: (SourceTally, Vec<EventTimes>),
    malformed: u64,
    /// The source's tally when the epoch began.
    at_epoch: SourceTally,
    /// How long each event had counted when the epoch began; empty at first.
    times_at_epoch: Vec<EventTimes>,
    collector: Collector<LinuxHost>,
    merger: Merger<OwnedRecord>,
    configs: Vec<EventConfig>,
    clock: MeasuredClock,
    counting: Counting,
    notes: Notes,
    store: Store,
    keeping: Keeping,
    started: Instant,
    epoch_started: Instant,
    cpu_at_start: Duration,
    each_second: Timer,
    measuring: Timer,
    refreshing: Timer,
    forgetting: Timer,
    /// The time up to which records were applied.
    applied_until_ns: u64,
    /// Whether the kernel's aggregated entries have ever been taken.
    was_cut: bool,
    entries_max: usize,
    unstored_max: usize,
}

impl Session {
    /// Opens the events, disabled, and begins an epoch.
    pub fn open(setup: Setup, tasks: &Tasks, writer: &Writer) -> Result<Self, CollectError> {
        let mut clock = MeasuredClock::default();
        (0..5).for_each(|_| clock.measure());
        let request = SourceRequest {
            backend: setup.backend,
            events: &setup.events,
            rate: setup.rate,
            registers: setup.branches,
            one_by_one: setup.counting.needs_single_samples(),
            dimensions: setup.dimensions,
            branch_stacks_hz: setup.branch_stacks_hz,
            stacks_hz: setup.stacks_hz,
            clock_hz: clock.median_hz(),
        };
        let mut opened = open_source(&request, tasks)?;
        if matches!(tasks, Tasks::All) {
            heap::give_back_code(); // A daemon's memory peaks while opening reads the kernel's symbols.
        }
        let host = LinuxHost::new();
        add_notes(&mut opened, &host, setup.branches, matches!(tasks, Tasks::All));
        let stacks_note = branch_stacks_note(&opened, setup.branch_stacks_hz);
        let OpenedSource { mut source, configs, notes: texts } = opened;
        let mut notes = Notes::default();
        texts.into_iter().for_each(|text| notes.add(text));
        match stacks_note {
            Some(text) if source.features().branch_stacks => notes.set(Subject::BranchStacks, text),
            text => text.into_iter().for_each(|text| notes.add(text)),
        }
        if setup.stacks_hz > 0 && !source.features().call_stacks {
            notes.add(call_stacks::refused(source.backend()));
        }
        let (backend, aggregates) = (source.backend(), source.tables().is_some());
        let epoch = new_epoch(setup.scope, setup.name, backend, &configs, notes.texts());
        let events = configs.iter().map(|p| p.event.clone()).collect();
        let mut collector = Collector::new(host, events, setup.apart);
        if !sees_all_processes() {
            collector.call_hidden_processes();
        }
        collector.keep_only(setup.apps);
        collector.keep_dimensions(setup.dimensions);
        collector.set_stacks_rate(setup.stacks_hz);
        if setup.data {
            collector.keep_data();
        }
        if let Some((index, config)) = (0..).zip(&configs).find(|(_, config)| config.is_wait()) {
            collector.keep_waits(Waits::new(EventIndex(index), config.period, now_ns()));
        }
        if setup.counting.breakpoints.is_some() {
            collector.feed.keep_places();
        }
        if setup.counting.exits.is_some() && !aggregates {
            collector.keep_loops();
        }
        if aggregates {
            collector.keep_spaces();
        }
        let mut session = Session {
            at_epoch: source.tally(),
            times_at_epoch: Vec::new(),
            source: Some(source),
            backend,
            at_close: Default::default(),
            malformed: 0,
            collector,
            merger: Merger::default(),
            configs,
            clock,
            counting: setup.counting,
            notes,
            store: Store::begin(writer, epoch, setup.unstored_max)?,
            keeping: Keeping::new(setup.keep_images_bytes),
            started: Instant::now(),
            epoch_started: Instant::now(),
            cpu_at_start: process_cpu_time(),
            each_second: Timer::new(SECOND, SECOND),
            measuring: Timer::new(SECOND, MEASURE_EVERY),
            refreshing: Timer::new(Duration::ZERO, REFRESH_EVERY),
            forgetting: Timer::new(Duration::ZERO, FORGET_EVERY),
            applied_until_ns: 0,
            was_cut: false,
            entries_max: setup.entries_max,
            unstored_max: setup.unstored_max,
        };
        session.start_odometers();
        session.start_code_counters();
        Ok(session)
    }

    /// Records the processes that already run, then starts sampling. The side band reports processes that are created,
    /// execute or map meanwhile. If the whole machine is sampled, sampling starts only after all processes are known.
    pub fn start(&mut self, pids: impl FnOnce() -> Vec<Pid>, tasks: &Tasks) -> Result<(), CollectError> {
        let Some(source) = &mut self.source else { return Ok(()) };
        let is_quiet = matches!(tasks, Tasks::All);
        if is_quiet { source.enable_side_band() } else { source.enable() }?;
        let since_ns = now_ns();
        let pids = pids();
        self.collector.discover(pids.iter().copied());
        if is_quiet { source.enable() } else { Ok(()) }?;
        self.find_waiting(&pids, since_ns);
        Ok(())
    }

    /// Pauses sampling. If the side band comes from the sampling events it pauses with them, so [`Session::resume`] looks up
    /// what was missed.
    pub fn pause(&mut self) -> Result<(), CollectError> {
        self.source.as_mut().map_or(Ok(()), |source| source.disable())?;
        self.take_records(&mut |_| {}); // What a thread does from now on is not known.
        self.collector.settle_waits(self.applied_until_ns);
        self.forget_waits();
        Ok(())
    }

    /// Resumes sampling after [`Session::pause`].
    pub fn resume(&mut self) -> Result<(), CollectError> {
        self.forget_waits();
        self.source.as_mut().map_or(Ok(()), |source| source.enable())?;
        self.collector.refresh(all_pids(), now_ns());
        Ok(())
    }

    /// Waits for records, for `left` at most or until `wake` becomes readable, and counts them.
    pub fn round(
        &mut self,
        left: Duration,
        wake: Option<BorrowedFd<'_>>,
        progress: &mut dyn FnMut(Progress),
    ) {
        match &mut self.source {
            Some(source) => {
                source.wait(source.round().min(left), wake);
                self.take_records(progress);
            }
            None => wait_for(CLOSED_ROUND.min(left), wake),
        }
        self.collector.name_code_when_due();
        if self.each_second.take_due() {
            self.note_withheld(progress);
            self.keeping.go_on(&self.store.writer(), progress);
            if self.measuring.take_due() {
                self.clock.measure();
            }
            let (elapsed, samples, lost) = (self.started.elapsed(), self.samples(), self.lost());
            progress(Progress::Running { elapsed, samples, lost });
        }
    }

    /// Takes the records that have arrived, counts those that are old enough, and runs periodic maintenance.
    fn take_records(&mut self, progress: &mut dyn FnMut(Progress)) {
        let Some(source) = &mut self.source else { return };
        let complete_ns = source.drain(&mut self.merger);
        let bursts = self.counting.bursts.as_mut().map(BurstRecorder::take);
        let stepping_since_ns = self.take_in(bursts.unwrap_or_default());
        let watching_since_ns = self.drop_watched();
        let horizon_ns = complete_ns.saturating_sub(MERGE_WINDOW.as_nanos() as u64);
        let horizon_ns = horizon_ns.min(stepping_since_ns).min(watching_since_ns).min(self.take_moved());
        self.apply_until(horizon_ns);
        self.exchange_odometers(horizon_ns);
        self.exchange_code_counters(horizon_ns);
        if let Some(source) = &mut self.source {
            source.tend(&mut |warning| progress(Progress::Warning(warning)));
        }
        let executables = self.collector.take_by_process();
        if let Some(tables) = self.tables() {
            executables.into_iter().for_each(|executables| tables.by_process(&executables));
            if self.collector.is_past_long() && self.forgetting.take_due() {
                self.take_aggregated();
            }
        }
        self.offer_thread();
        if self.refreshing.is_due() && self.collector.take_gaps() {
            // Mappings and exits may be among the lost records. Scanning all of /proc is expensive, and losses occur when
            // the machine is busy.
            self.collector.refresh(all_pids(), now_ns());
            self.refreshing.restart();
        }
    }

    /// Returns the kernel's tables if samples are counted there.
    fn tables(&mut self) -> Option<&mut dyn KernelTables> {
        self.source.as_mut()?.tables()
    }

    /// Returns the statistics of the source since it was opened.
    fn source_tally(&self) -> SourceTally {
        self.source.as_ref().map_or_else(|| self.at_close.0.clone(), |source| source.tally())
    }

    /// Returns how long each event has counted since it was opened.
    fn source_times(&mut self) -> Vec<EventTimes> {
        self.source.as_mut().map_or_else(|| self.at_close.1.clone(), |source| source.times())
    }

    /// Adds bursts to the records. Returns the time before which the records contain all bursts.
    fn take_in(&mut self, bursts: Vec<(u64, RawBurst)>) -> u64 {
        for (begin_ns, burst) in bursts {
            self.merger.push(begin_ns, OwnedRecord::Burst(Box::new(burst)));
        }
        self.counting.bursts.as_ref().and_then(BurstRecorder::since_ns).unwrap_or(u64::MAX)
    }

    /// Estimates the target's CPU time from its samples.
    fn cpu_ns(&self) -> f64 {
        /// The clock that is assumed where none was measured. Only the budget depends on it.
        const CLOCK_HZ: f64 = 3e9;
        let Some((config, tally)) = self.tallies().find(|(p, _)| p.event.is_time()) else { return 0.0 };
        let period_ns = match config.unit {
            Unit::Nanoseconds => config.period as f64,
            _ => config.period as f64 * 1e9 / self.clock.median_hz().unwrap_or(CLOCK_HZ),
        };
        period_ns * tally.samples as f64
    }

    /// Applies records up to a time, and batches of entries in order of time: a batch follows the records of its interval
    /// and precedes all later ones.
    fn apply_until(&mut self, horizon_ns: u64) {
        while let Some(batch) =
            self.tables().and_then(|t| t.batch()).filter(|b| b.interval.until_ns < horizon_ns)
        {
            self.apply_records(batch.interval.until_ns + 1);
            self.take_batch(batch.interval);
            if batch.ends {
                self.collector.end_interval(batch.interval.until_ns);
            }
        }
        self.apply_records(horizon_ns);
        self.collector.unwind_waits();
        self.applied_until_ns = horizon_ns.min(now_ns());
    }

    /// Counts a batch. A batch may have many times the entries that memory should hold, so it is stored piece by piece. If
    /// the database refuses some, the next [`Session::flush`] returns the error.
    fn take_batch(&mut self, interval: Interval) {
        let (collector, store, entries_max) = (&mut self.collector, &mut self.store, self.entries_max);
        let Some(tables) = self.source.as_mut().and_then(|source| source.tables()) else { return };
        tables.hand_out(&mut |entries| {
            collector.apply_entries(entries, interval);
            if collector.entries() >= entries_max {
                let _ = store.put(collector.take());
            }
        });
    }

    fn apply_records(&mut self, horizon_ns: u64) {
        let collector = &mut self.collector;
        self.merger.take_until(horizon_ns, |timed| collector.apply(timed.time_ns, timed.item));
    }

    /// Counts the entries that the kernel has aggregated so far. This takes a few milliseconds, because the side-band
    /// records of that time must arrive first.
    pub fn take_aggregated(&mut self) {
        let Some(tables) = self.tables() else { return };
        tables.cut_batch();
        self.was_cut = true;
        let cut_ns = now_ns();
        loop {
            let Some(source) = &mut self.source else { return };
            let complete_ns = source.drain(&mut self.merger);
            let horizon_ns = complete_ns.saturating_sub(MERGE_WINDOW.as_nanos() as u64);
            self.apply_until(horizon_ns);
            if horizon_ns > cut_ns {
                return;
            }
            self.source.iter_mut().for_each(|source| source.wait(MERGE_WINDOW, None));
        }
    }

    /// Calls [`Session::take_aggregated`] if the kernel's entries have never been taken.
    pub fn take_aggregated_first(&mut self) {
        if !self.was_cut {
            self.take_aggregated();
        }
    }

    /// Returns whether so many entries are in memory that they should be stored now.
    pub fn is_full(&self) -> bool {
        self.collector.entries() >= self.entries_max || self.collector.has_many_executions()
    }

    /// Stores the counts, including those that the kernel has aggregated. After an error they are kept, and the next call
    /// stores them.
    pub fn flush(&mut self) -> Result<(), DatabaseError> {
        self.take_aggregated();
        self.store_counted()
    }

    /// Stores the counts without those that the kernel has aggregated since the last batch.
    pub fn store_counted(&mut self) -> Result<(), DatabaseError> {
        self.collector.settle_waits(self.applied_until_ns);
        let batch = self.collector.take();
        for record in &batch.images {
            self.keeping.note_image(record, || self.collector.file(&record.id)); // The file may be closed soon.
        }
        self.collector.reap(now_ns());
        let stored = self.store.put(batch);
        self.store.epoch.bursts = self.bursts_record();
        self.store.epoch.breakpoints = self.breakpoint_record();
        self.store.epoch.counts = self.counts_record();
        self.store.epoch.call_stacks = self.call_stacks_record();
        if self.notes.has(Subject::BranchStacks) {
            let (stacks, branches) = self.collector.stacks.counted();
            self.set_note(Subject::BranchStacks, stacks_note(stacks, branches));
        }
        self.note_new_tasks();
        self.note_uncertain_names();
        self.store.running_shares = self.running_shares();
        self.malformed += self.source.as_mut().map_or(0, |source| source.take_malformed());
        self.refresh_account();
        stored?; // On an error the tallies must not include samples that were not stored.
        self.store.write_epoch(&self.configs, self.collector.counts.tallies(), self.malformed, &self.clock)
    }

    /// Stops sampling, counts the samples that are still on their way, stores them and ends the epoch.
    pub fn finish(mut self) -> Result<Epoch, CollectError> {
        self.close();
        self.store_counted().map_err(|source| self.not_stored(source))?;
        let failed = self.keeping.finish(&self.store.writer());
        failed.into_iter().for_each(|failed| self.note(&failed));
        self.end_epoch()
    }

    /// Stops sampling, counts the samples that are still on their way, and closes the kernel's events. The epoch continues
    /// without samples.
    pub fn close(&mut self) {
        let Some(source) = &mut self.source else { return };
        // A full ring reports its losses only with its next record: make room and let one record arrive before we stop.
        source.drain(&mut self.merger);
        source.wait(ROUND_MIN, None);
        let _ = source.disable(); // If this fails, a few more samples arrive than we take.
        source.drain(&mut self.merger);
        if let Some(tables) = source.tables() {
            tables.cut_batch();
        }
        source.drain(&mut self.merger); // Takes the record of those losses.
        let bursts = self.counting.bursts.as_mut().map(BurstRecorder::take_last);
        self.take_in(bursts.unwrap_or_default());
        self.drop_watched();
        self.take_moved();
        self.apply_until(u64::MAX);
        self.exchange_odometers(u64::MAX);
        self.exchange_code_counters(u64::MAX);
        if let Some(mut source) = self.source.take() {
            self.malformed += source.take_malformed();
            self.at_close = (source.tally(), source.times());
        }
    }

    /// Ends the session and removes its epoch, because nothing was sampled. An epoch that cannot be removed stays, empty.
    pub fn discard(self) {
        let (writer, id) = (self.store.writer(), self.store.epoch.id.clone());
        drop(self);
        let _ = writer.database().remove(&id);
    }

    /// Ends the epoch with what was counted so far: see [`Session::take_aggregated`].
    fn end_epoch(&mut self) -> Result<Epoch, CollectError> {
        self.clock.measure();
        self.store_counted().map_err(|source| self.not_stored(source))?;
        self.store.end().map_err(|source| self.not_stored(source))
    }

    fn not_stored(&self, source: DatabaseError) -> CollectError {
        let (samples, epoch) = (self.store.unstored_samples(), self.store.epoch.id.clone());
        CollectError::NotStored { samples, epoch, source }
    }

    /// Returns the epoch as last stored.
    pub fn epoch(&self) -> &Epoch {
        &self.store.epoch
    }

    /// Returns the tallies of the epoch so far, by event.
    pub fn tallies(&self) -> impl Iterator<Item = (&EventConfig, Tally)> {
        self.configs.iter().zip(self.collector.counts.tallies().iter().copied())
    }

    /// Returns the number of samples counted in the epoch so far.
    pub fn samples(&self) -> u64 {
        self.collector.counts.tallies().iter().map(|t| t.samples).sum()
    }

    fn lost(&self) -> u64 {
        self.collector.counts.tallies().iter().map(|t| t.lost).sum()
    }

    /// Returns the numbers of processes, images and entries in memory.
    pub fn tracked(&self) -> (usize, usize, usize) {
        let (processes, images) = self.collector.tracked();
        (processes, images, self.collector.entries() + self.store.entries())
    }

    /// Returns this process's share of one CPU since the start.
    pub fn own_cpu_share(&self) -> f64 {
        let used = process_cpu_time().saturating_sub(self.cpu_at_start);
        used.as_secs_f64() / self.started.elapsed().as_secs_f64().max(1e-9)
    }

    /// Returns how long the epoch has lasted.
    pub fn epoch_elapsed(&self) -> Duration {
        self.epoch_started.elapsed()
    }

    /// Returns how long the session has been running.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

fn new_epoch(
    scope: Scope,
    name: Option<String>,
    backend: Backend,
    configs: &[EventConfig],
    notes: Vec<String>,
) -> Epoch {
    let start = Timestamp::now();
    let none = |config: &EventConfig| EventRecord {
        period: config.period,
        unit: config.unit,
        samples: 0,
        lost: 0,
        throttled: 0,
        unknown: 0,
        running_share: None,
    };
    let cpu: Cpu = machine::cpu();
    Epoch {
        id: EpochId::new(start),
        name,
        start,
        end: None,
        host: machine::host(),
        cpu,
        backend: backend.name().to_owned(),
        scope,
        events: configs.iter().map(|p| (p.event.clone(), none(p))).collect(),
        notes,
        bursts: None,
        breakpoints: None,
        counts: None,
        call_stacks: None,
        collector: None,
    }
}

/// Returns the CPU time that this process has used.
fn process_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
