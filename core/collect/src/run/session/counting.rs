//! Methods that measure executions beside sampling, and their scheduling.
//!
//! Enters: what was requested, the thread sampled last. Leaves: path bursts and breakpoint counts among the records, and
//! notes about them. Never here: how threads are emulated ([`crate::evidence::bursts`]) and executions counted
//! ([`crate::evidence::breakpoint_counts`]).

use dwell_profile::{BreakpointRecord, BurstsRecord, CountsRecord, Event, Pid, Tid};

use super::Session;
use crate::{
    CollectError,
    evidence::{
        breakpoint_counts::BreakpointCounter,
        bursts::BurstRecorder,
        code_counters::CodeCounters,
        counts::{Odometers, exits::ExitWatcher},
    },
    run::options::RecordOptions,
    source::owned_record::OwnedRecord,
    sys::guard::{Protection, Turns},
};

/// Shortest interval between two deliveries of samples to the odometers: each one wakes their thread.
const OFFER_EVERY_NS: u64 = 50_000_000;
/// The budget of breakpoints at the exits of loops, as a part of that of odometers.
const EXITS_PART: f64 = 0.6;

/// The methods that measure executions beside sampling. By default there are none.
#[derive(Default)]
pub struct Counting {
    /// Percent of the target's CPU time that bursts and odometers may cost together.
    pub percent: f64,
    /// Takes path bursts of threads.
    pub bursts: Option<BurstRecorder>,
    /// Counts executions by hardware breakpoints.
    pub breakpoints: Option<BreakpointCounter>,
    /// Watches the exits of loops whose registers count iterations. Without it no such counter is trusted.
    pub exits: Option<ExitWatcher>,
    /// Percent of the target's CPU time that breakpoints may cost once it is found that threads cannot be emulated.
    pub stand_in_percent: Option<f64>,
    /// Percent of the target's CPU time that odometers may cost; 0: none are read.
    pub odometers_percent: f64,
    /// Whether odometers are worth it that samples arrive one by one.
    pub odometers_are_requested: bool,
    /// Reads words of memory in which programs count, once sampling begins.
    pub odometers: Option<Odometers>,
    /// Counts executions in the code of programs.
    pub code_counters: Option<CodeCounters>,
    /// How threads are protected while breakpoints or watchpoints are set in them; `None` if none are set.
    protection: Option<Protection>,
    /// End of the samples that were delivered to the odometers, plus [`OFFER_EVERY_NS`].
    offer_next_ns: u64,
}

impl Counting {
    /// Starts the methods. Call this early: the process that emulates threads is a fork of this one, so it is smaller then.
    /// Methods that stop threads are left out if the time off the CPU is recorded, because these stops would be part of it.
    pub fn start(options: &mut RecordOptions) -> Result<Self, CollectError> {
        if options.events.contains(&Event::OFF_CPU) {
            options.bursts_percent = 0.0;
            options.breakpoints_percent = 0.0;
            options.odometers_percent = 0.0;
        }
        let (percent, stand_in) = (options.bursts_percent, options.breakpoints_stand_in);
        let turns = Turns::default();
        let is_watched = options.odometers_percent > 0.0 || options.breakpoints_percent > 0.0;
        let protection = is_watched.then(|| Protection::start(&turns));
        let bursts = match (percent > 0.0).then(|| BurstRecorder::start(percent, !stand_in, &turns)) {
            Some(Err(error)) if !stand_in => return Err(CollectError::Bursts(error)),
            started => started.and_then(Result::ok),
        };
        let percent = options.breakpoints_percent;
        let (now, later) = if stand_in && bursts.is_some() { (0.0, percent) } else { (percent, 0.0) };
        Ok(Counting {
            percent: options.counting_percent,
            bursts,
            breakpoints: protection.clone().filter(|_| now > 0.0).map(|p| BreakpointCounter::start(now, p)),
            exits: exit_watcher(options.odometers_percent, protection.as_ref()),
            stand_in_percent: (later > 0.0).then_some(later),
            odometers_percent: options.odometers_percent,
            odometers_are_requested: false,
            odometers: None,
            code_counters: options
                .code_counter
                .take()
                .map(|(counter, when)| CodeCounters::start(counter, when)),
            protection,
            offer_next_ns: 0,
        })
    }
}

impl Counting {
    /// Starts the methods by which a daemon may count. They may cost these percentages of the CPU time; 0: there are none. Call
    /// this early, as [`Counting::start`].
    pub fn of_daemon(odometers_percent: f64, bursts_percent: f64) -> Result<Self, CollectError> {
        let turns = Turns::default();
        let reads_counters = odometers_percent > 0.0;
        let protection = reads_counters.then(|| Protection::start(&turns));
        let bursts = (bursts_percent > 0.0).then(|| BurstRecorder::of_daemon(bursts_percent, &turns));
        Ok(Counting {
            percent: f64::INFINITY, // Each has its own limit.
            bursts: bursts.transpose().map_err(CollectError::Bursts)?,
            exits: exit_watcher(odometers_percent, protection.as_ref()),
            odometers_percent,
            odometers_are_requested: reads_counters,
            protection,
            ..Counting::default()
        })
    }

    /// Returns whether samples must arrive one by one.
    pub fn needs_single_samples(&self) -> bool {
        self.odometers_are_requested
            || self.bursts.is_some()
            || self.breakpoints.is_some()
            || self.code_counters.is_some()
    }

    /// Returns the time in ns that bursts may cost in all, `cpu_ns` being the target's CPU time so far.
    fn left_for_bursts(&self, cpu_ns: f64) -> f64 {
        let exits_ns = self.exits.as_ref().map_or(0, ExitWatcher::cost_ns);
        let odometers_ns = self.odometers.as_ref().map_or(0, Odometers::cost_ns);
        self.percent / 100.0 * cpu_ns.max(1.0) - (exits_ns + odometers_ns) as f64
    }

    /// Returns the process that traces threads, if there is one.
    pub fn tracer(&self) -> Option<Pid> {
        let of_counters = self.code_counters.as_ref().map(CodeCounters::tracer);
        of_counters.or(self.bursts.as_ref().and_then(BurstRecorder::tracer))
    }
}

impl Session {
    /// Offers the thread that was sampled last for path bursts.
    pub(super) fn offer_thread(&mut self) {
        let latest = self.collector.feed.take_latest();
        let cpu_ns = self.cpu_ns();
        // Before new bursts are requested, since threads cannot be guarded until those are over.
        self.watch_exits(cpu_ns);
        let most_ns = self.counting.left_for_bursts(cpu_ns);
        if let (Some(bursts), Some((pid, tid))) = (&mut self.counting.bursts, latest)
            && pid != Pid(std::process::id())
            && Some(pid) != bursts.tracer()
        {
            bursts.offer(pid, tid, cpu_ns, most_ns);
        }
        self.stand_in();
        self.count_at_breakpoints(latest, cpu_ns);
    }

    /// Switches to breakpoints if it is found that threads cannot be emulated.
    fn stand_in(&mut self) {
        if self.counting.bursts.as_ref().is_some_and(BurstRecorder::is_on) {
            return;
        }
        if let Some(percent) = self.counting.stand_in_percent.take()
            && let Some(protection) = self.counting.protection.clone()
        {
            self.counting.breakpoints = Some(BreakpointCounter::start(percent, protection));
            self.collector.feed.keep_places();
        }
    }

    /// Counts executions of the most sampled places, in windows of that thread's time. The windows begin after all records
    /// that were applied.
    fn count_at_breakpoints(&mut self, latest: Option<(Pid, Tid)>, cpu_ns: f64) {
        let recent = self.collector.feed.take_places();
        let Some(counter) = self.counting.breakpoints.as_mut().filter(|c| c.is_on()) else { return };
        recent.into_iter().for_each(|(pid, pc)| counter.sample(pid, pc));
        if let Some((pid, tid)) = latest.filter(|(pid, _)| *pid != Pid(std::process::id())) {
            for (begin_ns, counts) in counter.count(pid, tid, cpu_ns) {
                self.merger.push(begin_ns, OwnedRecord::BreakpointCounts(Box::new(counts)));
            }
        }
    }

    /// Watches the exits of a loop that the latest samples are in, if it is due. The window begins after all records that
    /// were applied.
    fn watch_exits(&mut self, cpu_ns: f64) {
        let Some(exits) = self.counting.exits.as_mut().filter(|exits| exits.is_due(cpu_ns)) else { return };
        let Some(watch) = self.collector.loop_to_watch().filter(|w| w.pid != Pid(std::process::id())) else {
            return;
        };
        if let Some((begin_ns, raw)) = exits.watch(&watch, cpu_ns) {
            self.merger.push(begin_ns, OwnedRecord::Exits(Box::new(raw)));
        }
    }

    /// Starts odometers if samples are single records with registers.
    pub(super) fn start_odometers(&mut self) {
        let percent = self.counting.odometers_percent;
        let registers = self.source.as_ref().is_some_and(|source| source.features().registers);
        if cfg!(target_arch = "x86_64")
            && percent > 0.0
            && registers
            && self.tables().is_none()
            && let Some(protection) = self.counting.protection.clone()
        {
            self.counting.odometers = Some(Odometers::start(percent, protection));
            self.collector.feed.keep_seen();
        }
    }

    /// Drops the samples of processes while a watchpoint was set in them. Returns the time before which records may be
    /// applied.
    pub(super) fn drop_watched(&mut self) -> u64 {
        let Some(odometers) = &self.counting.odometers else { return u64::MAX };
        let (watched, since_ns) = odometers.take_watched();
        for watched in watched {
            let (pid, until_ns) = (watched.pid, watched.until_ns);
            self.merger.push(watched.begin_ns, OwnedRecord::Watched { pid, until_ns });
        }
        since_ns
    }

    /// Delivers the applied samples to the odometers, and takes their counts.
    pub(super) fn exchange_odometers(&mut self, complete_ns: u64) {
        let cpu_ns = self.cpu_ns();
        let Some(odometers) = &mut self.counting.odometers else { return };
        let is_last = complete_ns == u64::MAX;
        if !is_last && complete_ns < self.counting.offer_next_ns {
            return;
        }
        self.counting.offer_next_ns = complete_ns.saturating_add(OFFER_EVERY_NS);
        let seen = self.collector.feed.take_seen();
        if is_last {
            odometers.finish(seen, cpu_ns);
        } else {
            odometers.offer(seen, complete_ns, cpu_ns);
        }
        for raw in odometers.take() {
            self.collector.add_executions(&raw);
        }
    }

    /// Ends the odometers, and takes their counts into the epoch.
    pub(super) fn end_odometers(&mut self) {
        self.exchange_odometers(u64::MAX);
        self.drop_watched();
    }

    /// Starts to count the executions of a new epoch, whose CPU time begins at 0. Words that were known are searched again.
    pub(super) fn restart_counting(&mut self) {
        self.counting.bursts.iter_mut().for_each(BurstRecorder::begin_epoch);
        if self.counting.odometers.take().is_some() {
            self.counting.offer_next_ns = 0;
            self.start_odometers();
        }
        if self.counting.exits.is_some() {
            self.counting.exits =
                exit_watcher(self.counting.odometers_percent, self.counting.protection.as_ref());
        }
    }

    /// Starts to keep samples for the counters in code.
    pub(super) fn start_code_counters(&mut self) {
        if self.counting.code_counters.is_some() {
            self.collector.feed.keep_seen();
        }
    }

    /// Takes note of code that counters have added. Returns the time before which records may be applied.
    pub(super) fn take_moved(&mut self) -> u64 {
        let Some(counters) = &self.counting.code_counters else { return u64::MAX };
        let (moved, since_ns) = counters.take_moved();
        moved.into_iter().for_each(|(pid, spans)| self.collector.moved.add(pid, &spans));
        since_ns
    }

    /// Delivers the applied samples to the counters in code, and takes their counts.
    pub(super) fn exchange_code_counters(&mut self, complete_ns: u64) {
        let Some(counters) = &mut self.counting.code_counters else { return };
        let seen = self.collector.feed.take_seen();
        if complete_ns == u64::MAX {
            counters.finish(seen);
        } else {
            counters.offer(seen, complete_ns);
        }
        for raw in counters.take() {
            self.collector.add_executions(&raw);
        }
    }

    /// Returns what counting executions came to in the epoch so far, if they are counted.
    pub fn counts_record(&self) -> Option<CountsRecord> {
        let odometers = self.counting.odometers.as_ref().map(Odometers::record);
        let in_code = self.counting.code_counters.as_ref().map(CodeCounters::record);
        let has_any = odometers.is_some() || in_code.is_some() || self.counting.exits.is_some();
        if !has_any {
            return None;
        }
        let record = odometers.or(in_code).unwrap_or_default();
        let mut record = CountsRecord { cpu_ns: self.cpu_ns() as u64, ..record };
        self.collector.add_counts_to(&mut record);
        if let Some(exits) = &self.counting.exits {
            exits.add_to(&mut record);
            if self.counting.breakpoints.is_none() {
                record.samples_dropped += self.collector.disturbances.dropped().counted;
            }
        }
        Some(record)
    }

    /// Returns what path bursts came to in the epoch so far, if there are any.
    pub fn bursts_record(&self) -> Option<BurstsRecord> {
        self.counting.bursts.as_ref().map(|bursts| BurstsRecord {
            cpu_ns: self.cpu_ns() as u64,
            samples_dropped: self.collector.disturbances.dropped().stepped,
            opaque_steps: self.collector.opaque_steps(),
            ..bursts.record().clone()
        })
    }

    pub(super) fn breakpoint_record(&self) -> Option<BreakpointRecord> {
        self.counting.breakpoints.as_ref().map(|counter| BreakpointRecord {
            cpu_ns: self.cpu_ns() as u64,
            samples_dropped: self.collector.disturbances.dropped().counted,
            ..counter.record().clone()
        })
    }
}

fn exit_watcher(odometers_percent: f64, protection: Option<&Protection>) -> Option<ExitWatcher> {
    let protection = protection.filter(|_| odometers_percent > 0.0)?;
    Some(ExitWatcher::start(EXITS_PART * odometers_percent, protection.clone()))
}
