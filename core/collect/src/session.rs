//! A running collection: source, collector and an epoch of the database, driven round by round.
//!
//! One function of the caller (`record`, `daemon`) owns the control flow; each round drains the source, counts what is
//! old enough, lets the source tend to itself and, when it is time, stores.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use dwell_profile::{
    Cpu, DatabaseError, DimensionSet, Epoch, EpochId, Event, EventRecord, Pid, Scope, Unit, Writer,
    stacks_note,
};
use jiff::Timestamp;

mod counting;
mod epochs;
mod keep;
mod notes;

pub use counting::Counting;
pub use epochs::{InKernel, Next};
use keep::Keeping;

use crate::{
    CollectError,
    collector::{Collector, Tally},
    events::Plan,
    items::{Item, RawBurst},
    linux_host::LinuxHost,
    live_processes::all_pids,
    machine::{self, MeasuredClock},
    merge::Merger,
    options::{BackendChoice, Progress, Rate},
    paths::Paths,
    source::{
        Backend, ROUND_MIN, Source, SourceTally, Tasks,
        choose::{Chosen, Wish, open_source},
        closed::Closed,
        now_ns, paranoid, sees_all_processes,
        times::EventTimes,
    },
    store::Store,
    sys::heap,
};
use dwell_attribution::{Apart, Interval};

/// How long after its time stamp a record may become visible in its ring.
const MERGE_WINDOW: Duration = Duration::from_millis(5);
/// Entries in memory that make us store before it is time: about 4 MB.
pub const ENTRIES_MAX: usize = 1 << 18;
/// Entries that are kept while the database refuses them: about 400 MB.
pub const UNSTORED_MAX: usize = 1 << 22;
/// Progress is told so often.
const SECOND: Duration = Duration::from_secs(1);
/// The core clock is measured so often: it takes a while of spinning.
const MEASURE_EVERY: Duration = Duration::from_secs(10);
/// Where processes end by the thousand, or modules of the kernel come and go, its tables are taken no more often than that, so
/// that these are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(4);
/// After losses, processes are looked at again no more often than that.
const REFRESH_EVERY: Duration = Duration::from_secs(2);

/// What a session collects.
pub struct Setup {
    /// As the epoch records it.
    pub scope: Scope,
    /// Who is to sample.
    pub backend: BackendChoice,
    /// The events asked for; none: the best there is.
    pub events: Vec<Event>,
    /// How often.
    pub rate: Rate,
    /// The epoch's name.
    pub name: Option<String>,
    /// Sample registers.
    pub branches: bool,
    /// Which executions are kept apart.
    pub apart: Apart,
    /// What is kept of each sample beside its place.
    pub dimensions: DimensionSet,
    /// Count what data sampled instructions refer to.
    pub data: bool,
    /// What finds out executions beside samples.
    pub counting: Counting,
    /// Stacks of branches per second of a busy CPU; 0: none.
    pub branch_stacks_hz: u32,
    /// Sampled images are copied aside, up to so many bytes; `None`: those alone that no path leads to.
    pub keep_images_bytes: Option<u64>,
    /// Entries in memory that make us store before it is time.
    pub entries_max: usize,
    /// Entries that are kept while the database refuses them. Beyond, samples are lost, and counted so.
    pub unstored_max: usize,
}

/// A running collection.
pub struct Session {
    source: Box<dyn Source>,
    malformed: u64,
    /// What the source had told when the epoch began.
    at_epoch: SourceTally,
    /// For how long its events had counted by then; nothing at first.
    times_at_epoch: Vec<EventTimes>,
    collector: Collector<LinuxHost>,
    merger: Merger<Item>,
    plans: Vec<Plan>,
    clock: MeasuredClock,
    counting: Counting,
    /// Which of the epoch's notes tells of branch stacks.
    stacks_note: Option<usize>,
    /// Which of them tells of samples that are missing where tasks were born.
    births_note: Option<usize>,
    /// Which of them tells of generated code whose names are not certain.
    names_note: Option<usize>,
    store: Store,
    keeping: Keeping,
    started: Instant,
    epoch_started: Instant,
    cpu_at_start: Duration,
    next_second: Instant,
    next_measurement: Instant,
    next_refresh: Instant,
    next_forgetting: Instant,
    /// Whether what the kernel had aggregated was taken before.
    was_cut: bool,
    entries_max: usize,
    unstored_max: usize,
}

impl Session {
    /// Opens the events, disabled, and begins an epoch.
    pub fn open(setup: Setup, tasks: &Tasks, writer: &Writer) -> Result<Self, CollectError> {
        let mut clock = MeasuredClock::default();
        (0..5).for_each(|_| clock.measure());
        let wish = Wish {
            backend: setup.backend,
            events: &setup.events,
            rate: setup.rate,
            registers: setup.branches,
            one_by_one: setup.counting.paths.is_some() || setup.counting.windows.is_some(),
            dimensions: setup.dimensions,
            branch_stacks_hz: setup.branch_stacks_hz,
            clock_hz: clock.median_hz(),
        };
        let mut chosen = open_source(&wish, tasks)?;
        if matches!(tasks, Tasks::All) {
            heap::give_back_code(); // What opening took: reading the kernel's symbols is where a daemon's memory is at its most.
        }
        let host = LinuxHost::new();
        add_notes(&mut chosen, &host, setup.branches, matches!(tasks, Tasks::All));
        let stacks_note = note_branch_stacks(&mut chosen, setup.branch_stacks_hz);
        let Chosen { source, plans, notes } = chosen;
        let epoch = new_epoch(setup.scope, setup.name, source.backend(), &plans, notes);
        let events = plans.iter().map(|p| p.event.clone()).collect();
        let mut collector = Collector::new(host, events, setup.apart);
        if !sees_all_processes() {
            collector.call_hidden_processes();
        }
        collector.keep_dimensions(setup.dimensions);
        if setup.data {
            collector.keep_data();
        }
        if setup.counting.windows.is_some() {
            collector.keep_recent();
        }
        if setup.counting.exits.is_some() && !source.features().aggregates {
            collector.keep_loops();
        }
        if source.features().aggregates {
            collector.keep_spaces();
        }
        let mut session = Session {
            at_epoch: source.tally(),
            times_at_epoch: Vec::new(),
            source,
            malformed: 0,
            collector,
            merger: Merger::default(),
            plans,
            clock,
            counting: setup.counting,
            stacks_note,
            births_note: None,
            names_note: None,
            store: Store::begin(writer, epoch, setup.unstored_max)?,
            keeping: Keeping::new(setup.keep_images_bytes),
            started: Instant::now(),
            epoch_started: Instant::now(),
            cpu_at_start: process_cpu_time(),
            next_second: Instant::now() + SECOND,
            next_measurement: Instant::now() + SECOND,
            next_refresh: Instant::now(),
            next_forgetting: Instant::now(),
            was_cut: false,
            entries_max: setup.entries_max,
            unstored_max: setup.unstored_max,
        };
        session.start_odometers();
        Ok(session)
    }

    /// Takes in the processes that run already and starts sampling. Who is born, executes or maps meanwhile is told by the
    /// side band; of the whole machine no sample is taken before all are known.
    pub fn start(&mut self, pids: impl FnOnce() -> Vec<Pid>, tasks: &Tasks) -> Result<(), CollectError> {
        let is_quiet = matches!(tasks, Tasks::All);
        if is_quiet {
            self.source.enable_side_band()?;
        } else {
            self.source.enable()?;
        }
        self.collector.discover(pids());
        if is_quiet { self.source.enable() } else { Ok(()) }
    }

    /// Stops sampling for a while. Where the side band rides on the sampling events it stops with them, so what was
    /// missed is looked up afterwards.
    pub fn pause(&mut self) -> Result<(), CollectError> {
        self.source.disable()
    }

    /// Samples again.
    pub fn resume(&mut self) -> Result<(), CollectError> {
        self.source.enable()?;
        self.collector.refresh(all_pids(), now_ns());
        Ok(())
    }

    /// Waits for records, no longer than `left` and until `wake` can be read, and counts them.
    pub fn round(
        &mut self,
        left: Duration,
        wake: Option<BorrowedFd<'_>>,
        progress: &mut dyn FnMut(Progress),
    ) {
        self.source.wait(self.source.round().min(left), wake);
        let complete_ns = self.source.drain(&mut self.merger);
        let bursts = self.counting.paths.as_mut().map(Paths::take);
        let stepping_since_ns = self.take_in(bursts.unwrap_or_default());
        let watching_since_ns = self.drop_watched();
        let horizon_ns = complete_ns.saturating_sub(MERGE_WINDOW.as_nanos() as u64);
        let horizon_ns = horizon_ns.min(stepping_since_ns).min(watching_since_ns);
        self.apply_until(horizon_ns);
        self.exchange_odometers(horizon_ns);
        self.source.tend(&mut |warning| progress(Progress::Warning(warning)));
        if let Some(executables) = self.collector.take_by_process() {
            self.source.by_process(&executables);
        }
        let aggregates = self.source.features().aggregates;
        if aggregates && self.collector.is_past_long() && Instant::now() >= self.next_forgetting {
            self.next_forgetting = Instant::now() + FORGET_EVERY;
            self.take_aggregated();
        }
        self.collector.name_code_when_due();
        self.offer_thread();
        if Instant::now() >= self.next_refresh && self.collector.take_gaps() {
            // Mappings and exits may be among what was lost. Reading all of /proc is dear, and losses come when the
            // machine is busy.
            self.collector.refresh(all_pids(), now_ns());
            self.next_refresh = Instant::now() + REFRESH_EVERY;
        }
        if Instant::now() >= self.next_second {
            self.next_second = Instant::now() + SECOND;
            self.note_withheld(progress);
            self.keeping.go_on(&self.store.writer(), progress);
            if Instant::now() >= self.next_measurement {
                self.next_measurement = Instant::now() + MEASURE_EVERY;
                self.clock.measure();
            }
            let (elapsed, samples, lost) = (self.started.elapsed(), self.samples(), self.lost());
            progress(Progress::Running { elapsed, samples, lost });
        }
    }

    /// Puts bursts among the records; up to when these are complete as far as bursts are concerned.
    fn take_in(&mut self, bursts: Vec<(u64, RawBurst)>) -> u64 {
        for (begin_ns, burst) in bursts {
            self.merger.push(begin_ns, Item::Burst(Box::new(burst)));
        }
        self.counting.paths.as_ref().and_then(Paths::since_ns).unwrap_or(u64::MAX)
    }

    /// The target's CPU time as its samples tell.
    fn cpu_ns(&self) -> f64 {
        /// Where it was not measured; only the budget depends on it.
        const CLOCK_HZ: f64 = 3e9;
        let Some((plan, tally)) = self.tallies().find(|(p, _)| p.event.is_time()) else { return 0.0 };
        let period_ns = match plan.unit {
            Unit::Nanoseconds => plan.period as f64,
            _ => plan.period as f64 * 1e9 / self.clock.median_hz().unwrap_or(CLOCK_HZ),
        };
        period_ns * tally.samples as f64
    }

    /// Applies records up to a time, and batches of entries in their turn: after the records of their interval, before
    /// any later one.
    fn apply_until(&mut self, horizon_ns: u64) {
        while let Some(batch) = self.source.batch().filter(|b| b.interval.until_ns < horizon_ns) {
            self.apply_records(batch.interval.until_ns + 1);
            self.take_batch(batch.interval);
            if batch.ends {
                self.collector.end_interval(batch.interval.until_ns);
            }
        }
        self.apply_records(horizon_ns);
    }

    /// Counts a batch. It may have many times the entries that memory is meant to hold, so it is stored as it comes; what
    /// the database refuses is told by the next [`Session::flush`].
    fn take_batch(&mut self, interval: Interval) {
        let (collector, store, entries_max) = (&mut self.collector, &mut self.store, self.entries_max);
        self.source.hand_out(&mut |entries| {
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

    /// Counts what the kernel has aggregated so far; takes a few milliseconds, for the records of that time to come.
    pub fn take_aggregated(&mut self) {
        if !self.source.features().aggregates {
            return;
        }
        self.source.cut_batch();
        self.was_cut = true;
        let cut_ns = now_ns();
        loop {
            let complete_ns = self.source.drain(&mut self.merger);
            let horizon_ns = complete_ns.saturating_sub(MERGE_WINDOW.as_nanos() as u64);
            self.apply_until(horizon_ns);
            if horizon_ns > cut_ns {
                return;
            }
            self.source.wait(MERGE_WINDOW, None);
        }
    }

    /// The same if it was never done before.
    pub fn take_aggregated_first(&mut self) {
        if !self.was_cut {
            self.take_aggregated();
        }
    }

    /// Whether so much is in memory that it should be stored now.
    pub fn is_full(&self) -> bool {
        self.collector.entries() >= self.entries_max || self.collector.has_many_executions()
    }

    /// Stores what was counted. On an error it is kept, to be stored with the next call.
    pub fn flush(&mut self) -> Result<(), DatabaseError> {
        self.take_aggregated();
        self.store_counted()
    }

    /// The same without what the kernel has aggregated since.
    pub fn store_counted(&mut self) -> Result<(), DatabaseError> {
        let batch = self.collector.take();
        for record in &batch.images {
            self.keeping.met(record, || self.collector.file(&record.id)); // Which may be closed a moment later.
        }
        self.collector.reap(now_ns());
        let stored = self.store.put(batch);
        self.store.epoch.paths = self.paths_record();
        self.store.epoch.windows = self.windows_record();
        self.store.epoch.counts = self.counts_record();
        if let Some(at) = self.stacks_note {
            let (stacks, branches) = self.collector.branch_stacks();
            self.store.epoch.notes[at] = stacks_note(stacks, branches);
        }
        self.note_births();
        self.note_uncertain_names();
        self.store.running_shares = self.running_shares();
        self.malformed += self.source.take_malformed();
        self.refresh_account();
        stored?; // Else the tallies would tell of samples that are not there.
        self.store.write_epoch(&self.plans, self.collector.tallies(), self.malformed, &self.clock)
    }

    /// Stops sampling, counts what is still on its way, stores it and ends the epoch.
    pub fn finish(mut self) -> Result<Epoch, CollectError> {
        self.close();
        self.store_counted().map_err(|source| self.not_stored(source))?;
        let failed = self.keeping.finish(&self.store.writer());
        failed.into_iter().for_each(|failed| self.note(&failed));
        self.end_epoch()
    }

    /// Stops sampling, counts what is still on its way, and lets go of the kernel's events. The epoch goes on without samples.
    pub fn close(&mut self) {
        // A full ring tells what it lost with its next record only: make room, and let one come, before we stop.
        self.source.drain(&mut self.merger);
        self.source.wait(ROUND_MIN, None);
        let _ = self.source.disable(); // Where it fails, a few more samples come in than we take.
        self.source.drain(&mut self.merger);
        self.source.cut_batch();
        self.source.drain(&mut self.merger); // Tells what that lost.
        let bursts = self.counting.paths.as_mut().map(Paths::take_last);
        self.take_in(bursts.unwrap_or_default());
        self.drop_watched();
        self.apply_until(u64::MAX);
        self.exchange_odometers(u64::MAX);
        self.malformed += self.source.take_malformed();
        self.source = Box::new(Closed::of(&mut *self.source));
    }

    /// Has the epoch tell something of itself.
    pub fn note(&mut self, text: &str) {
        self.store.epoch.notes.push(text.to_owned());
    }

    /// Ends without an epoch: nothing was sampled. What cannot be removed stays as an empty epoch.
    pub fn discard(self) {
        let (writer, id) = (self.store.writer(), self.store.epoch.id.clone());
        drop(self);
        let _ = writer.database().remove(&id);
    }

    /// With what was counted so far: see [`Session::take_aggregated`].
    fn end_epoch(&mut self) -> Result<Epoch, CollectError> {
        self.clock.measure();
        self.store_counted().map_err(|source| self.not_stored(source))?;
        self.store.end().map_err(|source| self.not_stored(source))
    }

    fn not_stored(&self, source: DatabaseError) -> CollectError {
        let (samples, epoch) = (self.store.unstored_samples(), self.store.epoch.id.clone());
        CollectError::NotStored { samples, epoch, source }
    }

    /// The epoch as last stored.
    pub fn epoch(&self) -> &Epoch {
        &self.store.epoch
    }

    /// Tallies of the epoch so far, by event.
    pub fn tallies(&self) -> impl Iterator<Item = (&Plan, Tally)> {
        self.plans.iter().zip(self.collector.tallies().iter().copied())
    }

    /// Samples counted in the epoch so far.
    pub fn samples(&self) -> u64 {
        self.collector.tallies().iter().map(|t| t.samples).sum()
    }

    fn lost(&self) -> u64 {
        self.collector.tallies().iter().map(|t| t.lost).sum()
    }

    /// Processes, images and entries in memory.
    pub fn tracked(&self) -> (usize, usize, usize) {
        let (processes, images) = self.collector.tracked();
        (processes, images, self.collector.entries() + self.store.entries())
    }

    /// Our own share of one CPU since the start.
    pub fn own_cpu_share(&self) -> f64 {
        let used = process_cpu_time().saturating_sub(self.cpu_at_start);
        used.as_secs_f64() / self.started.elapsed().as_secs_f64().max(1e-9)
    }

    /// How long the epoch has been going on.
    pub fn epoch_elapsed(&self) -> Duration {
        self.epoch_started.elapsed()
    }

    /// How long it has been running.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// What the user should know of how it is sampled.
fn add_notes(chosen: &mut Chosen, host: &LinuxHost, branches: bool, is_whole_machine: bool) {
    let features = chosen.source.features();
    if features.user_only {
        chosen.notes.push(format!("user mode only: perf_event_paranoid is {}", paranoid()));
    } else if !host.sees_kernel_addresses() {
        let note = "kernel symbols are hidden: kernel.kptr_restrict forbids reading addresses";
        chosen.notes.push(note.to_owned());
    }
    if is_whole_machine && !sees_all_processes() {
        let note = "in a pid namespace: what runs outside of it is [outside], most of it unknown";
        chosen.notes.push(note.to_owned());
    }
    if features.escaped > 0 {
        let note = format!(
            "{} threads were born while their processes were attached to: some may not be sampled",
            features.escaped
        );
        chosen.notes.push(note);
    }
    if branches && !features.registers {
        let note = "no branch directions: this kernel gives no registers with samples";
        chosen.notes.push(note.to_owned());
    }
}

/// Tells of branch stacks where a processor might have them; which note it is, if they come.
fn note_branch_stacks(chosen: &mut Chosen, hz: u32) -> Option<usize> {
    if chosen.source.features().branch_stacks {
        chosen
            .notes
            .push(format!("branch stacks (LBR, BRBE) are recorded, some {hz} a second of a busy CPU"));
        return Some(chosen.notes.len() - 1);
    }
    let is_asked = hz > 0 && chosen.source.backend() == Backend::Perf;
    if is_asked && chosen.plans.iter().any(Plan::is_hardware) {
        chosen.notes.push("no branch stacks: this machine gives none (LBR, BRBE)".to_owned());
    }
    None
}

fn new_epoch(
    scope: Scope,
    name: Option<String>,
    backend: Backend,
    plans: &[Plan],
    notes: Vec<String>,
) -> Epoch {
    let start = Timestamp::now();
    let none = |plan: &Plan| EventRecord {
        period: plan.period,
        unit: plan.unit,
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
        events: plans.iter().map(|p| (p.event.clone(), none(p))).collect(),
        notes,
        paths: None,
        windows: None,
        counts: None,
        collector: None,
    }
}

/// CPU time of this process.
fn process_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
