//! `dwell record`: collects one epoch in one run.

use std::{
    process::{Child, ExitStatus},
    time::{Duration, Instant},
};

use dwell_attribution::InstanceLimits;
use dwell_profile::{Dimension, DimensionSet, Event, Pid, Writer};

use crate::{
    CollectError, Stop,
    host::live_processes::{all_pids, has_ended, tree_of},
    run::{
        daemon::account::Account,
        options::{Progress, RecordOptions, Recorded, Target},
        session::{Counting, ENTRIES_MAX, Session, Setup, UNSTORED_MAX},
    },
    source::Tasks,
    sys::{
        clocks::{ClockWatch, Clocks},
        command::PausedCommand,
    },
};

/// Time that a command may continue after it was signalled to end.
const GRACE: Duration = Duration::from_secs(2);

/// Interval between two updates of the account and checks of the clocks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Delay before a full memory is stored again while the database refuses: not in each round, but soon.
const RETRY: Duration = Duration::from_secs(3);

/// Collects one epoch, until the command or the processes end, the duration has passed, or `stop` is set. The counts are
/// stored every [`RecordOptions::flush_every`], so that a killed collector loses no more than that. If the database refuses,
/// this is reported once (as a warning) and each store is a new attempt; it is an error only at the end.
pub fn record(
    mut options: RecordOptions,
    writer: &Writer,
    stop: &Stop,
    progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, CollectError> {
    let counting = Counting::start(&mut options)?;
    let setup = Setup {
        apps: Vec::new(),
        scope: options.target.scope(),
        backend: options.backend,
        events: options.events.clone(),
        rate: options.rate,
        name: options.name.clone(),
        branches: options.branches,
        apart: InstanceLimits::in_a_run(options.by_process.clone()),
        dimensions: dimensions(&options),
        data: options.data,
        counting,
        branch_stacks_hz: options.branch_stacks_hz,
        stacks_hz: options.stacks_hz,
        keep_images_bytes: None,
        entries_max: ENTRIES_MAX,
        unstored_max: UNSTORED_MAX,
    };
    let (mut session, mut running) = match &options.target {
        Target::System => {
            let mut session = Session::open(setup, &Tasks::All, writer)?;
            session.start(all_pids, &Tasks::All)?;
            (session, Running::System)
        }
        Target::Processes(pids) => open_processes(pids, setup, writer)?,
        Target::Command(words) => open_command(words, setup, writer)?,
    };
    progress(Progress::Started(Box::new(session.epoch().clone())));
    let mut account = Account::new("start", Clocks::now());
    let interrupted = run(&mut session, &mut running, &options, &mut account, stop, progress);
    session.set_account(account.record_of_a_run(&session));
    session.close();
    session.note_withheld(progress);
    let stored = session.finish();
    let exit = running.exit();
    stored.map(|epoch| Recorded { epoch, exit, interrupted })
}

/// Returns the dimensions to record. Time off the CPU is that of threads.
fn dimensions(options: &RecordOptions) -> DimensionSet {
    let is_of_threads = options.events.contains(&Event::OFF_CPU) && options.target != Target::System;
    let threads = is_of_threads.then_some(Dimension::Thread);
    options.dimensions.union(threads.into_iter().collect())
}

fn open_processes(pids: &[Pid], setup: Setup, writer: &Writer) -> Result<(Session, Running), CollectError> {
    if let Some(missing) = pids.iter().find(|pid| has_ended(**pid)) {
        return Err(CollectError::NoSuchProcess(*missing));
    }
    let mut tree: Vec<Pid> = pids.iter().flat_map(|pid| tree_of(*pid)).collect();
    tree.sort_unstable();
    tree.dedup();
    let tasks = Tasks::Running(pids.to_vec());
    let mut session = Session::open(setup, &tasks, writer)?;
    session.start(|| tree, &tasks)?;
    Ok((session, Running::Processes(pids.to_vec())))
}

fn open_command(
    words: &[std::ffi::OsString],
    setup: Setup,
    writer: &Writer,
) -> Result<(Session, Running), CollectError> {
    let first = words.first().ok_or(CollectError::NoCommand)?;
    let failed =
        |source| CollectError::Command { command: dwell_profile::name_to_text(first).into_owned(), source };
    let tracer = setup.counting.tracer();
    let paused = PausedCommand::fork(words, tracer).map_err(failed)?;
    match Session::open(setup, &Tasks::FromExec(paused.pid()), writer) {
        Ok(session) => match paused.resume() {
            Ok(child) => Ok((session, Running::Command { child, status: None, signalled: None })),
            Err(error) => {
                session.discard();
                Err(failed(error))
            }
        },
        Err(error) => {
            paused.abandon();
            Err(error)
        }
    }
}

/// The condition that the collection waits for.
enum Running {
    System,
    Processes(Vec<Pid>),
    Command { child: Child, status: Option<ExitStatus>, signalled: Option<Instant> },
}

impl Running {
    /// Returns whether there is nothing left to sample.
    fn has_ended(&mut self) -> bool {
        match self {
            Running::System => false,
            Running::Processes(pids) => pids.iter().all(|pid| has_ended(*pid)),
            Running::Command { child, status, .. } => {
                *status = child.try_wait().ok().flatten();
                status.is_some()
            }
        }
    }

    /// Signals a command to end as well. Returns whether to stop waiting for it. A command that does not end is left
    /// running.
    fn interrupt(&mut self, stop: &Stop) -> bool {
        let Running::Command { child, signalled, .. } = self else { return true };
        let signalled_at = *signalled.get_or_insert_with(|| {
            stop.pass_on(rustix::process::Pid::from_child(child));
            Instant::now()
        });
        signalled_at.elapsed() > GRACE
    }

    fn exit(self) -> Option<ExitStatus> {
        match self {
            Running::Command { status, .. } => status,
            _ => None,
        }
    }
}

/// Runs rounds until the end. Returns whether `stop` ended them.
fn run(
    session: &mut Session,
    running: &mut Running,
    options: &RecordOptions,
    account: &mut Account,
    stop: &Stop,
    progress: &mut dyn FnMut(Progress),
) -> bool {
    let start = Instant::now();
    let (mut clocks, mut next_look) = (ClockWatch::new(Clocks::now()), start);
    let mut flushing = Flushing::new(options.flush_every);
    loop {
        let left =
            options.duration.map_or(Duration::MAX, |duration| duration.saturating_sub(start.elapsed()));
        session.round(left.min(LOOK_EVERY), None, progress); // Somebody may be watching the progress.
        if Instant::now() >= next_look {
            next_look = Instant::now() + LOOK_EVERY;
            account.look_at(&mut clocks);
            session.set_account(account.record_of_a_run(session));
        }
        flushing.when_due(session, progress);
        if running.has_ended() {
            return stop.is_requested();
        }
        if stop.is_requested() {
            if running.interrupt(stop) {
                return true;
            }
        } else if options.duration.is_some_and(|d| start.elapsed() >= d) {
            return false; // The command continues, as processes do.
        }
    }
}

/// Stores at intervals, and reports a failure once.
pub struct Flushing {
    every: Duration,
    next: Instant,
    next_if_full: Instant,
    failing: bool,
}

impl Flushing {
    /// Creates a schedule whose first store comes after one interval.
    pub fn new(every: Duration) -> Self {
        let now = Instant::now();
        Flushing { every, next: now + every, next_if_full: now, failing: false }
    }

    /// Returns whether it is time to store, or memory is full.
    pub fn is_due(&self, session: &Session) -> bool {
        let now = Instant::now();
        now >= self.next || session.is_full() && now >= self.next_if_full
    }

    /// Stores if it is due. Returns whether it did. If it is due only because memory is full, the kernel keeps its tables:
    /// tables that are emptied too early aggregate little, and would fill the memory even faster.
    pub fn when_due(&mut self, session: &mut Session, progress: &mut dyn FnMut(Progress)) -> bool {
        let now = Instant::now();
        if now >= self.next {
            return self.now(session, progress).is_ok();
        }
        self.is_due(session) && self.report_failure(session.store_counted(), session, progress).is_ok()
    }

    /// Stores now.
    pub fn now(
        &mut self,
        session: &mut Session,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), dwell_profile::DatabaseError> {
        self.next = Instant::now() + self.every;
        let flushed = session.flush();
        self.report_failure(flushed, session, progress)
    }

    fn report_failure(
        &mut self,
        flushed: Result<(), dwell_profile::DatabaseError>,
        session: &Session,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), dwell_profile::DatabaseError> {
        match &flushed {
            Ok(()) => progress(Progress::Flushed { samples: session.samples() }),
            Err(error) if !self.failing => progress(Progress::Warning(format!(
                "{error}; sampling continues, and the samples are kept in memory until they can be stored"
            ))),
            Err(_) => {}
        }
        self.failing = flushed.is_err();
        if self.failing {
            self.next_if_full = Instant::now() + RETRY;
        }
        flushed
    }
}
