//! Tests a live daemon: its budget, its epochs, and which epochs it removes. If the machine does not permit sampling, each
//! test says so.

use std::{
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use dwell_collect::{
    CollectError, DaemonOptions, Rate, Renew, Status, Stop, daemon, flush, new_epoch, status,
};
use dwell_profile::{Database, Epoch};

/// The longest time to wait for a state, because the machine may be busy with other work.
const PATIENCE: Duration = Duration::from_secs(120);

struct Running {
    database: Database,
    stop: Stop,
    renew: Renew,
    thread: Option<JoinHandle<Result<Epoch, CollectError>>>,
    folder: Arc<tempfile::TempDir>,
}

impl Running {
    /// Starts a daemon. Returns `None` and prints a message if the machine does not permit sampling.
    fn start(name: &str, options: DaemonOptions) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path().join("db")).unwrap();
        let (writer, stop, renew) = (database.writer().unwrap(), Stop::new(), Renew::new());
        let thread = std::thread::spawn({
            let (stop, renew) = (stop.clone(), renew.clone());
            move || daemon(options, &writer, &stop, &renew, &mut |_| ())
        });
        let start = Instant::now();
        while let Err(error) = status(&database) {
            assert!(start.elapsed() < PATIENCE, "{error}");
            if thread.is_finished() {
                println!("SKIPPED {name}: {}", thread.join().unwrap().unwrap_err());
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Running { database, stop, renew, thread: Some(thread), folder: folder.into() })
    }

    fn status(&self) -> Status {
        status(&self.database).unwrap()
    }

    /// Uses CPU time until a condition holds, which is checked repeatedly.
    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < PATIENCE, "never came: {what}; {:#?}", self.status());
            (0..3_000_000_u64).for_each(|n| {
                std::hint::black_box(n);
            });
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn epochs(&self) -> Vec<Epoch> {
        self.database.epochs().unwrap().epochs
    }

    fn end(mut self) -> (Database, Arc<tempfile::TempDir>) {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap().unwrap();
        (self.database.clone(), self.folder.clone())
    }
}

/// Ends the daemon, so that a failed test leaves none behind.
impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        self.thread.take().map(JoinHandle::join);
    }
}

/// Returns the stored samples of an epoch's sampled events.
fn stored(database: &Database, epoch: &Epoch) -> u64 {
    let profile = database.read(&epoch.id).unwrap();
    profile.counts.iter().filter(|(key, _)| !key.event.is_derived()).map(|(_, n)| n).sum()
}

#[test]
fn the_rate_is_lowered_if_the_cost_exceeds_the_budget() {
    let options = DaemonOptions {
        budget_percent: 0.01,
        budget_window: Duration::from_millis(200),
        rate: Some(Rate::Frequency(2000)),
        ..DaemonOptions::default()
    };
    let Some(running) = Running::start("the_rate_is_lowered_if_the_cost_exceeds_the_budget", options) else {
        return;
    };
    running.until("a lower rate", |r| r.status().collector.rate_lowered >= 1);
    let status = running.status();
    assert!(status.collector.rate_share < 0.5 && status.collector.cost_percent > 0.0);
    let (database, _folder) = running.end();
    let epochs = database.epochs().unwrap().epochs;
    let period = |e: &Epoch| e.events.values().next().unwrap().period;
    assert!(epochs.len() >= 2, "an epoch for each rate");
    for pair in epochs.windows(2) {
        assert!(period(&pair[0]) < period(&pair[1]), "{pair:#?}");
        let began = &pair[1].collector.as_ref().unwrap().began;
        assert!(began.starts_with("rate: ") && began.contains("budget 0.01%"), "{began}");
    }
    for epoch in &epochs {
        let tallied: u64 = epoch.events.values().map(|r| r.samples).sum();
        assert_eq!(stored(&database, epoch), tallied, "no sample is lost between epochs");
        assert!(epoch.end.is_some_and(|end| end >= epoch.start));
    }
}

#[test]
fn epochs_begin_on_request_and_old_ones_are_removed() {
    let options = DaemonOptions { keep_bytes: Some(1), budget_percent: 0.0, ..DaemonOptions::default() };
    let Some(running) = Running::start("epochs_begin_on_request_and_old_ones_are_removed", options) else {
        return;
    };
    let first = running.status().epoch;
    running.database.rename(&first, "dear").unwrap();
    running.until("samples", |r| flush(&r.database).unwrap() > 0);
    running.renew.ask();
    running.until("an epoch by signal", |r| r.status().epoch != first);
    let second = running.status();
    assert_eq!(second.collector.began, "asked (SIGHUP)");
    assert!(second.collector.memory_bytes > 1 << 20 && second.collector.elapsed_ns > 0);
    new_epoch(&running.database, None).unwrap();
    running.until("retention", |r| r.epochs().iter().all(|e| e.id != second.epoch));
    assert!(running.epochs().iter().any(|e| e.id == first), "what was named stays");
    let account = running.epochs()[0].collector.clone().unwrap();
    assert_eq!(account.began, "start");
    assert!(account.samples_by_cpu.values().flatten().sum::<u64>() > 0);
    running.end();
}

#[test]
fn sampled_images_are_copied_into_the_database() {
    let options = DaemonOptions {
        keep_images_bytes: Some(2 << 30),
        flush_every: Duration::from_millis(300),
        budget_percent: 0.0,
        ..DaemonOptions::default()
    };
    let Some(running) = Running::start("sampled_images_are_copied_into_the_database", options) else {
        return;
    };
    let own = std::env::current_exe().unwrap();
    let is_kept = |r: &Running| {
        let epoch = r.database.resolve("latest").unwrap();
        let images = r.database.read(&epoch.id).unwrap().images;
        let record = images.into_iter().find(|record| record.path == own);
        record.is_some_and(|record| r.database.kept_image(&record.id).unwrap().is_some())
    };
    running.until("a copy of this very program", is_kept);
    let epoch = running.database.resolve("latest").unwrap();
    let images = running.database.read(&epoch.id).unwrap().images;
    let record = images.iter().find(|record| record.path == own).unwrap();
    let kept = running.database.kept_image(&record.id).unwrap().unwrap();
    assert!(kept == std::fs::read(&own).unwrap(), "another file was kept");
    running.end();
}
