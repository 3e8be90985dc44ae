//! `dwell daemon`: collects the whole machine for good, in the foreground under a supervisor.

use std::thread::JoinHandle;

use dwell_profile::{DatabaseError, Epoch, EpochId, EventRecord, Scope, Writer};

use crate::{
    CollectError, Stop,
    control::{Answer, ControlServer, Request, Status},
    linux_host::all_pids,
    options::{DaemonOptions, Progress},
    record::Flushing,
    session::{Session, Setup},
    source::Tasks,
};

/// Segments are put together after so many flushes.
const FLUSHES_PER_COMPACTION: u32 = 64;

/// Collects until `stop` is asked for; then stores what was counted and ends the epoch, which is returned. Meanwhile
/// [`crate::status`], [`crate::flush`] and [`crate::new_epoch`] talk to it. A second daemon for one database on one
/// host is refused by the writer's lock.
pub fn daemon(
    options: DaemonOptions,
    writer: &Writer,
    stop: &Stop,
    progress: &mut dyn FnMut(Progress),
) -> Result<Epoch, CollectError> {
    let setup = Setup {
        scope: Scope::System,
        backend: options.backend,
        events: options.events.clone(),
        rate: options.rate,
        name: options.name.clone(),
        branches: options.branches,
        paths: None,
    };
    let control = ControlServer::listen(writer.database())?;
    let mut session = Session::open(setup, &Tasks::All, writer)?;
    session.start(all_pids())?;
    progress(Progress::Started(Box::new(session.epoch().clone())));
    let mut flushing = Flushing::new(options.flush_every);
    let mut compacting = Compacting::default();
    while !stop.is_asked() {
        session.round(progress);
        if flushing.when_due(&mut session, progress) {
            compacting.flushed(writer, &session.epoch().id, progress);
        }
        control.answer(|request| answer(request, &mut session, &mut flushing, writer, progress));
    }
    let ended = session.finish(); // First: the rings overflow while a compaction is waited for.
    compacting.wait(progress);
    ended
}

fn answer(
    request: Request,
    session: &mut Session,
    flushing: &mut Flushing,
    writer: &Writer,
    progress: &mut dyn FnMut(Progress),
) -> Answer {
    let failed = |error: &dyn std::fmt::Display| Answer::Failed { why: error.to_string() };
    match request {
        Request::Status => Answer::Status(Box::new(status(session))),
        Request::Flush => match flushing.now(session, progress) {
            Ok(()) => Answer::Flushed { samples: session.samples() },
            Err(error) => failed(&error),
        },
        Request::NewEpoch { name } => match session.begin_epoch(writer, name) {
            Ok(id) => {
                progress(Progress::Started(Box::new(session.epoch().clone())));
                Answer::Epoch { id }
            }
            Err(error) => failed(&error),
        },
        Request::Pause => session.pause().map_or_else(|error| failed(&error), |()| Answer::Done),
        Request::Resume => session.resume().map_or_else(|error| failed(&error), |()| Answer::Done),
    }
}

fn status(session: &Session) -> Status {
    let epoch = session.epoch();
    let (processes, images, entries) = session.tracked();
    let (samples, unknown) = session.tallies().fold((0, 0), |(s, u), (_, t)| (s + t.samples, u + t.unknown));
    let record = |plan: &crate::events::Plan, tally: crate::collector::Tally| EventRecord {
        period: plan.period,
        unit: plan.unit,
        samples: tally.samples,
        lost: tally.lost,
        throttled: tally.throttled,
        unknown: tally.unknown,
    };
    Status {
        pid: std::process::id(),
        backend: epoch.backend.clone(),
        epoch: epoch.id.clone(),
        epoch_start: epoch.start,
        elapsed_s: session.elapsed().as_secs_f64(),
        samples_per_second: samples as f64 / session.epoch_elapsed().as_secs_f64().max(1e-9),
        events: session.tallies().map(|(plan, tally)| (plan.event.clone(), record(plan, tally))).collect(),
        unknown_share: unknown as f64 / (samples as f64).max(1.0),
        processes,
        images,
        entries,
        memory_bytes: resident_bytes(),
        cpu_share: session.own_cpu_share(),
        notes: epoch.notes.clone(),
    }
}

/// The second field of /proc/self/statm, in pages.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|w| w.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Puts an epoch's segments together now and then, on a thread of its own: the rings must be drained meanwhile.
#[derive(Default)]
struct Compacting {
    flushes: u32,
    running: Option<JoinHandle<Result<(), DatabaseError>>>,
}

impl Compacting {
    fn flushed(&mut self, writer: &Writer, epoch: &EpochId, progress: &mut dyn FnMut(Progress)) {
        self.flushes += 1;
        if self.flushes < FLUSHES_PER_COMPACTION || self.running.as_ref().is_some_and(|r| !r.is_finished()) {
            return;
        }
        self.wait(progress);
        self.flushes = 0;
        let (writer, epoch) = (writer.clone(), epoch.clone());
        self.running = Some(std::thread::spawn(move || writer.compact(&epoch).map(|_| ())));
    }

    fn wait(&mut self, progress: &mut dyn FnMut(Progress)) {
        if let Some(Ok(Err(error))) = self.running.take().map(JoinHandle::join) {
            progress(Progress::Warning(format!("segments could not be put together: {error}")));
        }
    }
}
