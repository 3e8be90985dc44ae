//! `dwell daemon`: collects the whole machine permanently, in the foreground under a supervisor.
//!
//! Enters: what to collect and at what cost; requests. Leaves: epochs. Each of its tasks beside sampling has a file of its
//! own: it keeps the cost within a [`budget`], begins new epochs ([`rotate`]), removes old ones ([`retain`](mod@retain)), watches the
//! events for [`silence`], and keeps an [`account`] of all this. Never here: how samples are taken.

pub(crate) mod account;
mod budget;
mod compacting;
mod notify;
mod retain;
mod rotate;
mod silence;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use account::Account;
use budget::{Budget, Load};
use compacting::Compacting;
use dwell_attribution::InstanceLimits;
use dwell_profile::{Epoch, Pid, Scope, Writer};
use jiff::Timestamp;
use notify::Supervisor;
use retain::{Limits, retain};
use rotate::{Rotation, Schedule};
use silence::Silence;

use crate::{
    CollectError, Renew, Stop,
    host::live_processes::all_pids,
    run::{
        control::{Answer, ControlServer, Request, Status},
        options::{DaemonOptions, Progress},
        record::Flushing,
        session::{Counting, Next, Session, Setup},
        timer::Timer,
    },
    source::{Rate, Tasks},
    sys::{
        clocks::{ClockWatch, Clocks},
        event::Counter,
        heap, interrupt, usage,
    },
};

/// Interval between two checks of the clocks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval between two returns of unused memory to the system. It is also returned after storing; the amount is checked
/// first.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(60);
/// Intervals between removals of epochs that exceed the limits. They are also removed whenever an epoch begins, and again
/// soon if an epoch was in use.
const RETAIN_FIRST: Duration = Duration::from_secs(5);
const RETAIN_EVERY: Duration = Duration::from_secs(3600);
/// Delays before silent events are opened again: the first one; each next one is twice as long; the last one.
const REOPEN_FIRST: Duration = Duration::from_secs(1);
const REOPEN_LAST: Duration = Duration::from_secs(300);
/// Delay after which an epoch that could not begin is tried again.
const ROTATE_AGAIN: Duration = Duration::from_secs(60);
/// Cost of an interrupt that is assumed where it cannot be measured: the value of a 2-core VM on a quiet host.
const INTERRUPT_ASSUMED: Duration = Duration::from_nanos(2500);
/// Interval between two measurements of that cost. A measurement takes about 20 ms.
const INTERRUPT_EVERY: Duration = Duration::from_secs(600);
/// The size limit of all epochs is divided by this number to get that of a single one. Without that limit, retention could
/// not remove the oldest ones.
const EPOCHS_KEPT_MIN: u64 = 8;

/// The reason of an epoch that began on request.
const ON_REQUEST: &str = "asked";

/// Collects until `stop` is set; then stores the counts, ends the epoch and returns it. In the meantime [`crate::status`],
/// [`crate::flush`] and [`crate::new_epoch`] talk to the daemon, and `renew` makes it begin a new epoch. The writer's lock
/// refuses a second daemon for the same database on the same host.
pub fn daemon(
    options: DaemonOptions,
    writer: &Writer,
    stop: &Stop,
    renew: &Renew,
    progress: &mut dyn FnMut(Progress),
) -> Result<Epoch, CollectError> {
    heap::keep_small();
    let control = ControlServer::listen(writer.database())?;
    let mut supervisor = Supervisor::from_environment();
    let mut daemon = Daemon::start(options, writer, progress)?;
    supervisor.ready();
    let mut reported = None;
    while !stop.is_requested() {
        daemon.session.round(Duration::MAX, control.request_fd(), progress);
        daemon.tend(progress);
        if renew.take() {
            let _ = daemon.begin_epoch("asked (SIGHUP)", Next::default(), progress);
        }
        control.answer(|request| daemon.answer(request, progress));
        daemon.reopen_if_silent(progress);
        supervisor.alive();
        if reported.as_ref() != Some(&daemon.session.epoch().id) {
            reported = Some(daemon.session.epoch().id.clone());
            supervisor.status(&format!("collecting epoch {}", daemon.session.epoch().id));
        }
    }
    supervisor.stopping();
    daemon.finish(progress)
}

/// A running daemon.
struct Daemon<'w> {
    options: DaemonOptions,
    writer: &'w Writer,
    session: Session,
    /// The requested rate.
    rate: Rate,
    /// The periods of the requested rate, by event. The budget's share refers to them.
    requested_periods: Vec<u64>,
    flushing: Flushing,
    compacting: Compacting,
    budget: Budget,
    rotation: Rotation,
    account: Account,
    clocks: ClockWatch,
    silence: Silence,
    /// The next attempt to open the events, while they are closed.
    reopening: Option<Reopening>,
    /// When sampling was paused on request.
    paused_since: Option<Timestamp>,
    timers: Timers,
    window: Window,
    too_large: bool,
}

/// When the tasks beside sampling are due.
struct Timers {
    clocks: Timer,
    memory: Timer,
    /// The end of the budget's window.
    window: Timer,
    interrupt: Timer,
    retention: Timer,
    rotation: Timer,
}

/// The next attempt to open the events, and the delay after it.
#[derive(Clone, Copy, Debug)]
struct Reopening {
    at: Instant,
    wait: Duration,
}

/// Start of the budget's window.
#[derive(Clone, Copy)]
struct Window {
    start: Clocks,
    own_cpu: Duration,
    samples: u64,
    seen: u64,
}

impl<'w> Daemon<'w> {
    fn start(
        mut options: DaemonOptions,
        writer: &'w Writer,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, CollectError> {
        options.apps = in_order(options.apps);
        let counting = Counting::of_daemon(options.odometers_percent, options.bursts_percent)?;
        let interrupt = measure_interrupt().unwrap_or(INTERRUPT_ASSUMED);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut budget = Budget::new(options.budget_percent / 100.0, cpus, interrupt);
        // For hardware events the lower cost is used, which may give too high a rate: the budget's share then follows the
        // measured cost.
        let hz_max = rate_within(&options, interrupt.min(INTERRUPT_ASSUMED));
        let rate = options.rate.unwrap_or(Rate::Continuous { hz_max });
        let mut session =
            Session::open(setup(&options, counting, rate, options.name.clone()), &Tasks::All, writer)?;
        if options.rate.is_none() {
            budget.begin(session.interrupts_hz());
        }
        let requested = requested_periods(&session);
        session.set_first_periods(&periods(&requested, budget.share()));
        session.start(all_pids, &Tasks::All)?;
        heap::give_back(); // This returns the memory that was needed to examine the machine.
        heap::give_back_code();
        let schedule = Schedule {
            every: options.rotate_every,
            bytes: options.keep_bytes.map(|b| b / EPOCHS_KEPT_MIN),
            rebuilt: options.rotate_on_rebuild.clone(),
        };
        let clocks = Clocks::now();
        let mut daemon = Daemon {
            rate,
            requested_periods: requested,
            flushing: Flushing::new(options.flush_every),
            compacting: Compacting::default(),
            rotation: Rotation::new(schedule),
            account: Account::new("start", clocks),
            clocks: ClockWatch::new(clocks),
            silence: Silence::default(),
            reopening: None,
            paused_since: None,
            timers: Timers {
                clocks: Timer::new(Duration::ZERO, LOOK_EVERY),
                memory: Timer::new(2 * RETAIN_FIRST, GIVE_BACK_EVERY), // The first time is after the start is complete.
                window: Timer::new(options.budget_window, options.budget_window),
                interrupt: Timer::new(INTERRUPT_EVERY, INTERRUPT_EVERY),
                retention: Timer::new(RETAIN_FIRST, RETAIN_EVERY), // The start itself has enough to do.
                rotation: Timer::new(Duration::ZERO, ROTATE_AGAIN),
            },
            window: Window { start: clocks, own_cpu: own_cpu(), samples: 0, seen: 0 },
            too_large: false,
            options,
            writer,
            session,
            budget,
        };
        daemon.update_account();
        progress(Progress::Started(Box::new(daemon.session.epoch().clone())));
        Ok(daemon)
    }

    /// Performs the tasks beside sampling that are due.
    fn tend(&mut self, progress: &mut dyn FnMut(Progress)) {
        if self.timers.clocks.take_due() {
            self.look_at_clocks(progress);
        }
        if self.timers.memory.take_due() {
            heap::give_back();
            heap::give_back_code();
        }
        if self.is_sampling() && self.options.budget_percent > 0.0 && self.timers.interrupt.take_due() {
            measure_interrupt().into_iter().for_each(|interrupt| self.budget.measured(interrupt));
        }
        if self.is_sampling() && self.timers.window.take_due() {
            self.judge(progress);
        }
        if self.flushing.is_due(&self.session) {
            self.update_account();
            if self.flushing.when_due(&mut self.session, progress) {
                self.flushed(progress);
            }
        }
        if self.timers.retention.take_due() {
            self.retain(progress);
        }
        if self.timers.rotation.is_due()
            && let Some(why) = self.rotation.due(self.session.epoch_elapsed(), self.account.disk_bytes)
        {
            self.timers.rotation.restart();
            let _ = self.begin_epoch(&why, Next::default(), progress); // It was reported, and is tried again.
        }
    }

    fn is_sampling(&self) -> bool {
        self.paused_since.is_none() && self.reopening.is_none()
    }

    /// Records in the account that sampling has just stopped or begun, and begins a new window of the budget.
    fn restart_window(&mut self) {
        let (now, samples) = (Clocks::now(), self.account.samples_ever(&self.session));
        self.account.paused(!self.is_sampling(), now);
        let seen = self.session.samples_seen();
        self.window = Window { start: now, own_cpu: own_cpu(), samples, seen };
        self.timers.window.restart();
        self.silence = Silence::default();
    }

    /// Updates the account of the epoch.
    fn update_account(&mut self) {
        let record = self.account.record(&self.session, &self.budget);
        self.session.set_account(record);
    }

    fn look_at_clocks(&mut self, progress: &mut dyn FnMut(Progress)) {
        let jump = self.clocks.look(Clocks::now());
        self.account.slept_ns += jump.slept_ns.unwrap_or(0);
        let Some(step_ns) = jump.step_ns else { return };
        self.account.stepped(step_ns);
        // Later samples belong to another time of the day, but an epoch has only one start and one end.
        let why = format!("clock: set by {:+.1} s", step_ns as f64 / 1e9);
        let _ = self.begin_epoch(&why, Next::default(), progress);
    }

    /// Compares the cost of the last window with the budget.
    fn judge(&mut self, progress: &mut dyn FnMut(Progress)) {
        let (now, samples) = (Clocks::now(), self.account.samples_ever(&self.session));
        let load = Load {
            elapsed: now.awake_since(&self.window.start),
            own_cpu: own_cpu().saturating_sub(self.window.own_cpu),
            samples: samples.saturating_sub(self.window.samples),
        };
        let seen = self.session.samples_seen();
        self.silence.look(seen.saturating_sub(self.window.seen), self.session.rate_hz());
        self.window = Window { start: now, own_cpu: own_cpu(), samples, seen };
        let verdict = self.budget.judge(&load);
        self.account.end_window(&self.session, &self.budget);
        let Some(share) = verdict.filter(|_| self.options.budget_percent > 0.0) else { return };
        let cost = 100.0 * self.budget.cost();
        let (from, to) = (100.0 * self.budget.share(), 100.0 * share);
        let why = format!(
            "rate: {from:.0}% → {to:.0}% of the requested rate, because sampling cost {cost:.2}% of each CPU (budget {}%)",
            self.options.budget_percent
        );
        let next = Next { periods: Some(periods(&self.requested_periods, share)), ..Next::default() };
        if self.begin_epoch(&why, next, progress).is_ok() {
            self.budget.adopt(share);
            self.update_account();
        }
    }

    /// Does the work that follows a store.
    fn flushed(&mut self, progress: &mut dyn FnMut(Progress)) {
        let id = self.session.epoch().id.clone();
        let written = self.session.take_written();
        self.rotation.note_images(&written);
        self.account.disk_bytes = self.writer.database().epoch_bytes(&id).unwrap_or(0);
        heap::give_back();
        heap::give_back_code();
        self.compacting.flushed(self.writer, &id, progress); // This takes memory of its own.
    }

    fn retain(&mut self, progress: &mut dyn FnMut(Progress)) {
        let limits = Limits { age: self.options.keep_age, bytes: self.options.keep_bytes };
        match retain(self.writer.database(), limits, &self.session.epoch().id) {
            Ok(retained) => {
                if retained.still_too_large && !self.too_large {
                    let text = "the profiles exceed their size limit, but the rest has names, is of other hosts or has not ended";
                    progress(Progress::Warning(text.to_owned()));
                }
                self.too_large = retained.still_too_large;
                if retained.busy {
                    self.timers.retention.restart_in(RETAIN_FIRST);
                }
            }
            Err(error) => progress(Progress::Warning(format!("old epochs could not be removed: {error}"))),
        }
    }

    /// Ends the epoch and begins the next. A failure is reported, and the old epoch continues.
    fn begin_epoch(
        &mut self,
        why: &str,
        next: Next,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), CollectError> {
        self.update_account();
        let ended = self.session.epoch().id.clone();
        let counted = self.account.counted(&self.session);
        if let Err(error) = self.session.begin_epoch(self.writer, next) {
            progress(Progress::Warning(format!("no new epoch could begin ({why}): {error}")));
            return Err(error);
        }
        self.account.begin_epoch(why, counted);
        self.rotation.began();
        self.update_account();
        self.compacting.ended(self.writer, &ended, progress);
        if why != ON_REQUEST {
            progress(Progress::Ended(ended));
        }
        self.timers.retention.restart_in(Duration::ZERO); // The new epoch may push others over the limits.
        progress(Progress::Started(Box::new(self.session.epoch().clone())));
        Ok(())
    }

    fn answer(&mut self, request: Request, progress: &mut dyn FnMut(Progress)) -> Answer {
        let failed = |error: &dyn std::fmt::Display| Answer::Failed { why: error.to_string() };
        match request {
            Request::Status => Answer::Status(Box::new(self.status())),
            Request::Flush => {
                self.update_account();
                match self.flushing.now(&mut self.session, progress) {
                    Ok(()) => {
                        self.flushed(progress);
                        Answer::Flushed { samples: self.session.samples() }
                    }
                    Err(error) => failed(&error),
                }
            }
            Request::NewEpoch { name } => {
                match self.begin_epoch(ON_REQUEST, Next { name, ..Next::default() }, progress) {
                    Ok(()) => Answer::Epoch { id: self.session.epoch().id.clone() },
                    Err(error) => failed(&error),
                }
            }
            Request::Pause => self.pause().map_or_else(|error| failed(&error), |()| Answer::Done),
            Request::Resume { apps } => {
                self.resume(apps, progress).map_or_else(|error| failed(&error), |()| Answer::Done)
            }
        }
    }

    fn pause(&mut self) -> Result<(), CollectError> {
        if self.paused_since.is_none() {
            self.session.pause()?;
            self.paused_since = Some(Timestamp::now());
            self.restart_window();
        }
        Ok(())
    }

    /// Samples again. Other applications are kept in another epoch: in an epoch, a sample of each was kept or none.
    fn resume(
        &mut self,
        apps: Option<Vec<String>>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), CollectError> {
        if let Some(apps) = apps.map(in_order).filter(|apps| *apps != self.options.apps) {
            let named = if apps.is_empty() { "all".to_owned() } else { apps.join(", ") };
            let next = Next { apps: Some(apps.clone()), ..Next::default() };
            self.begin_epoch(&format!("applications: {named}"), next, progress)?;
            self.options.apps = apps;
        }
        if self.paused_since.is_some() {
            self.session.resume()?;
            self.paused_since = None;
            self.restart_window();
        }
        Ok(())
    }

    fn status(&mut self) -> Status {
        // Without this, no share of resolved samples is known before the first flush. It is not done each time: a user who
        // watches the status would keep the kernel from aggregating.
        self.session.take_aggregated_first();
        self.update_account();
        let events = self.session.records_now();
        let epoch = self.session.epoch();
        let account = epoch.collector.clone().unwrap_or_default();
        let (processes, images, entries) = self.session.tracked();
        let handed_out = self.session.records();
        let unknown: u64 = handed_out.values().map(|r| r.unknown).sum();
        let share = unknown as f64 / (handed_out.values().map(|r| r.samples).sum::<u64>() as f64).max(1.0);
        let samples: u64 = events.values().map(|r| r.samples).sum();
        Status {
            pid: Pid(std::process::id()),
            backend: epoch.backend.clone(),
            epoch: epoch.id.clone(),
            epoch_start: epoch.start,
            elapsed_s: self.session.elapsed().as_secs_f64(),
            paused_since: self.paused_since,
            samples_per_second: samples as f64 * 1e9 / account.elapsed_ns.max(1) as f64,
            events,
            unknown_share: share,
            resolved_share: 1.0 - share,
            processes,
            images,
            entries,
            memory_bytes: account::memory_bytes(),
            cpu_share: self.session.own_cpu_share(),
            clock_hz: self.session.clock_hz(),
            collector: account,
            paths: self.session.bursts_record(),
            counts: self.session.counts_record(),
            notes: epoch.notes.clone(),
        }
    }

    /// If the events no longer fire although the machine is busy (they were revoked, or their backend is gone), closes them
    /// and opens others, in a new epoch. Until that succeeds, everything except sampling continues.
    fn reopen_if_silent(&mut self, progress: &mut dyn FnMut(Progress)) {
        if self.silence.is_silent() && self.reopening.is_none() {
            progress(Progress::Warning(
                "the events no longer deliver samples; opening them again".to_owned(),
            ));
            self.session.close(); // This comes first: the module's device has one reader.
            self.session
                .note("the events stopped delivering samples and were closed; there are no later samples");
            self.reopening = Some(Reopening { at: Instant::now(), wait: REOPEN_FIRST });
            self.restart_window();
        }
        let Some(Reopening { at, wait }) = self.reopening else { return };
        if Instant::now() < at {
            return;
        }
        match self.reopen(progress) {
            Ok(()) => {
                self.reopening = None;
                self.restart_window();
                progress(Progress::Started(Box::new(self.session.epoch().clone())));
            }
            Err(error) => {
                progress(Progress::Warning(format!("{error}; trying again in {wait:?}")));
                let (at, wait) = (Instant::now() + wait, (wait * 2).min(REOPEN_LAST));
                self.reopening = Some(Reopening { at, wait });
            }
        }
    }

    fn reopen(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), CollectError> {
        let counting = Counting::of_daemon(self.options.odometers_percent, self.options.bursts_percent)?;
        let setup = setup(&self.options, counting, self.rate, None);
        let mut session = Session::open(setup, &Tasks::All, self.writer)?;
        let requested = requested_periods(&session); // The events may be others, if a counter is gone.
        session.set_first_periods(&periods(&requested, self.budget.share()));
        let started = session.start(all_pids, &Tasks::All);
        if let Err(error) =
            started.and_then(|()| if self.paused_since.is_some() { session.pause() } else { Ok(()) })
        {
            session.discard();
            return Err(error);
        }
        self.update_account();
        let counted = self.account.counted(&self.session);
        let old = std::mem::replace(&mut self.session, session);
        let ended = old.epoch().id.clone();
        if let Err(error) = old.finish() {
            // What was stored before remains. The rest is lost if it cannot be stored.
            progress(Progress::Warning(error.to_string()));
        }
        self.requested_periods = requested;
        self.account.begin_epoch("events: they had fallen silent", counted);
        self.account.reopened += 1;
        self.rotation.began();
        self.update_account();
        self.compacting.ended(self.writer, &ended, progress);
        progress(Progress::Ended(ended));
        self.timers.retention.restart_in(Duration::ZERO);
        Ok(())
    }

    fn finish(mut self, progress: &mut dyn FnMut(Progress)) -> Result<Epoch, CollectError> {
        self.update_account();
        let ended = self.session.finish(); // This comes first: the rings would overflow while we wait for a compaction.
        if let Ok(epoch) = &ended {
            self.compacting.ended(self.writer, &epoch.id, progress);
        }
        self.compacting.wait(progress);
        ended
    }
}

/// Returns names in order, each once, so that sets of applications can be compared.
fn in_order(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}

/// Returns the requested periods of a session that was just opened.
fn requested_periods(session: &Session) -> Vec<u64> {
    session.tallies().map(|(config, _)| config.period).collect()
}

fn setup(options: &DaemonOptions, counting: Counting, rate: Rate, name: Option<String>) -> Setup {
    Setup {
        backend: options.backend,
        scope: Scope::System,
        events: options.events.clone(),
        rate,
        name,
        branches: options.branches,
        apart: InstanceLimits::for_good(options.by_process.clone()),
        apps: options.apps.clone(),
        dimensions: options.dimensions,
        data: false, // This would read mappings more often than the budget permits.
        counting,
        branch_stacks_hz: 0,
        stacks_hz: options.stacks_hz,
        keep_images_bytes: options.keep_images_bytes,
        entries_max: options.entries_max,
        unstored_max: options.unstored_max,
    }
}

/// Returns the samples per second of a busy CPU whose interrupts take no more than their part of the budget.
fn rate_within(options: &DaemonOptions, interrupt: Duration) -> u32 {
    const ANY: f64 = 100_000.0;
    if options.budget_percent <= 0.0 {
        return ANY as u32;
    }
    let share = budget::INTERRUPTS_SHARE * options.budget_percent / 100.0;
    (share / interrupt.as_secs_f64().max(1e-9)).clamp(1.0, ANY) as u32
}

/// Returns the periods that give this share of the requested rate.
fn periods(requested: &[u64], share: f64) -> Vec<u64> {
    requested.iter().map(|period| (*period as f64 / share).round() as u64).collect()
}

/// Measures the interrupt of the timer. A counter's interrupt costs no more.
fn measure_interrupt() -> Option<Duration> {
    const PERIOD_NS: u64 = 100_000;
    interrupt::measure(Counter::CPU_CLOCK, PERIOD_NS)
}

fn own_cpu() -> Duration {
    let (user, kernel) = usage::cpu_time();
    user + kernel
}
