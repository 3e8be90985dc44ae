//! Tests of the daemon's internals, for situations that cannot be caused from outside.

use std::time::{Duration, Instant};

use dwell_profile::{Database, Event};

use super::*;
use crate::source::BackendChoice;

fn start<'w>(writer: &'w Writer, backend: BackendChoice) -> Option<Daemon<'w>> {
    let options = DaemonOptions { backend, rate: Some(Rate::Frequency(1000)), ..DaemonOptions::default() };
    match Daemon::start(options, writer, &mut |_| ()) {
        Ok(daemon) => Some(daemon),
        Err(error) => {
            println!("SKIPPED silent_events_are_opened_again with {backend:?}: {error}");
            None
        }
    }
}

/// Returns the samples that came while one CPU was busy.
fn samples_of_a_busy_moment(daemon: &mut Daemon) -> u64 {
    let (before, start) = (daemon.session.samples_seen(), Instant::now());
    let mut x = 1_u64;
    while start.elapsed() < Duration::from_millis(300) {
        x = std::hint::black_box(x.wrapping_mul(3));
    }
    daemon.session.round(Duration::ZERO, None, &mut |_| ());
    daemon.session.samples_seen() - before
}

fn check_silence(backend: BackendChoice) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("db")).unwrap();
    let writer = database.writer().unwrap();
    let Some(mut daemon) = start(&writer, backend) else { return };
    let mut warnings = Vec::new();
    let mut warn = |progress| {
        if let Progress::Warning(text) = progress {
            warnings.push(text);
        }
    };
    let first = daemon.session.epoch().id.clone();
    assert!(samples_of_a_busy_moment(&mut daemon) > 30);

    daemon.session.pause().unwrap(); // The daemon does not know of this.
    assert!(samples_of_a_busy_moment(&mut daemon) < 30);
    daemon.silence = Silence::fallen();
    let works = std::mem::replace(&mut daemon.options.events, vec![Event::named("no-such-event")]);
    daemon.reopen_if_silent(&mut warn);
    assert_eq!(samples_of_a_busy_moment(&mut daemon), 0, "they are closed");
    assert_eq!(daemon.status().epoch, first, "and all else goes on");
    daemon.flushing.now(&mut daemon.session, &mut warn).unwrap();

    daemon.options.events = works;
    daemon.reopen_if_silent(&mut warn);
    assert_eq!(daemon.account.reopened, 0, "not at once");
    daemon.reopening.as_mut().unwrap().at = Instant::now();
    daemon.reopen_if_silent(&mut warn);
    assert_eq!((daemon.account.reopened, daemon.reopening.is_some()), (1, false));
    assert!(samples_of_a_busy_moment(&mut daemon) > 30);
    let second = daemon.finish(&mut warn).unwrap();
    assert_ne!(second.id, first);
    for epoch in [&first, &second.id] {
        let read = database.read(epoch).unwrap();
        assert!(read.epoch.end.is_some() && read.epoch.events.values().all(|e| e.samples > 30));
    }
    assert_eq!(warnings.len(), 2, "the events stopped, and there is no such event: {warnings:?}");
}

#[test]
fn silent_events_are_opened_again() {
    check_silence(BackendChoice::Perf);
    check_silence(BackendChoice::Bpf);
}
