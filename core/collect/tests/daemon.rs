//! Tests a live daemon: its budget, its epochs, and which epochs it removes. If the machine does not permit sampling, each
//! test says so.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use dwell_collect::{
    BackendChoice, CollectError, DaemonOptions, Rate, Renew, Status, Stop, daemon, flush, new_epoch, pause,
    resume, status,
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
#[cfg(target_arch = "x86_64")]
fn threads_are_followed_on_request_in_each_epoch() {
    let name = "threads_are_followed_on_request_in_each_epoch";
    let options = DaemonOptions { bursts_percent: 10.0, ..DaemonOptions::default() };
    let Some(running) = Running::start(name, options) else { return };
    let busy = Busy::start();
    let bursts = |r: &Running| r.status().paths.expect("bursts are taken").bursts;
    running.until("bursts", |r| {
        let paths = r.status().paths.unwrap();
        paths.bursts >= 3 || paths.refused.contains_key("not permitted")
    });
    if bursts(&running) == 0 {
        println!("SKIPPED {name}: this machine does not let us trace");
        return;
    }
    let first = running.status().epoch;
    let before = bursts(&running);
    new_epoch(&running.database, None).unwrap();
    assert!(bursts(&running) < before, "each epoch counts its own");
    running.until("bursts of the second epoch", |r| bursts(r) > 0);
    drop(busy);
    let (database, _folder) = running.end();
    for epoch in database.epochs().unwrap().epochs {
        let paths = epoch.bursts.as_ref().expect("it is stored what bursts came to");
        assert!(paths.bursts > 0 && paths.budget_percent == 10.0, "{paths:#?}");
        assert!(paths.stepping_ns < paths.cpu_ns / 5, "{paths:#?}");
        let evidence = database.read(&epoch.id).unwrap().evidence;
        assert!(epoch.id != first || !evidence.is_empty());
    }
}

#[test]
fn paused_time_is_not_sampled_time() {
    let name = "paused_time_is_not_sampled_time";
    let Some(running) = Running::start(name, DaemonOptions::default()) else { return };
    running.until("samples", |r| flush(&r.database).unwrap() > 0);
    let first = running.status();
    assert_eq!((first.paused_since, first.collector.paused_ns), (None, 0));
    pause(&running.database).unwrap();
    let before = running.status();
    std::thread::sleep(Duration::from_millis(300));
    pause(&running.database).unwrap(); // It is paused already, and goes on to be.
    let after = running.status();
    assert!(after.paused_since.is_some() && after.paused_since == before.paused_since);
    assert_eq!(after.collector.elapsed_ns, before.collector.elapsed_ns);
    assert!(after.collector.paused_ns >= before.collector.paused_ns + 300_000_000);
    assert_eq!(after.epoch, first.epoch, "the epoch goes on");
    assert!(after.processes > 1, "and what is known of processes remains");

    let second = new_epoch(&running.database, None).unwrap();
    let status = running.status();
    assert_eq!((status.epoch, status.paused_since), (second.clone(), before.paused_since));
    resume(&running.database, None).unwrap();
    assert_eq!(running.status().paused_since, None);
    running.until("samples again", |r| flush(&r.database).unwrap() > 0);
    let (database, _folder) = running.end();
    let epochs = database.epochs().unwrap().epochs;
    assert_eq!(epochs.len(), 2);
    for epoch in &epochs {
        let paused_ns = epoch.collector.as_ref().unwrap().paused_ns;
        let lasted_ns = epoch.end.unwrap().duration_since(epoch.start).as_nanos() as u64;
        assert!(paused_ns > 0 && epoch.sampled_ns() + paused_ns == lasted_ns, "{epoch:#?}");
        let note = format!("sampling was paused for {:.1} s", paused_ns as f64 / 1e9);
        assert!(epoch.notes.contains(&note), "{note}: {:?}", epoch.notes);
        let tallied: u64 = epoch.events.values().map(|r| r.samples).sum();
        assert_eq!(stored(&database, epoch), tallied);
    }
}

/// A program that keeps a CPU busy until this is dropped.
struct Busy(std::process::Child);

impl Busy {
    fn start() -> Busy {
        Busy(std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }

    /// Returns the name of its executable.
    fn app(&self) -> String {
        let path = std::fs::read_link(format!("/proc/{}/exe", self.0.id())).unwrap();
        path.file_name().unwrap().to_str().unwrap().to_owned()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a daemon that keeps samples of this program only, whose name is returned too.
fn start_for_us(name: &str, backend: BackendChoice) -> Option<(Running, String)> {
    let own = std::env::current_exe().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let options = DaemonOptions {
        backend,
        apps: vec![own.clone()],
        rate: Some(Rate::Frequency(500)),
        budget_percent: 0.0,
        ..DaemonOptions::default()
    };
    Some((Running::start(&format!("{name} with {backend:?}"), options)?, own))
}

fn check_that_others_are_counted(backend: BackendChoice) {
    let busy = Busy::start();
    let name = "samples_of_other_applications_are_counted";
    let Some((running, own)) = start_for_us(name, backend) else { return };
    running.until("samples of others", |r| {
        let samples = flush(&r.database).unwrap();
        samples > 10 && r.status().collector.other_apps > Some(10)
    });
    let (database, _folder) = running.end();
    drop(busy);
    let epoch = &database.resolve("latest").unwrap();
    let account = epoch.collector.as_ref().unwrap();
    let samples = stored(&database, epoch);
    assert_eq!(apps(&database, epoch), BTreeMap::from([(own, samples)]));
    let taken: u64 = account.samples_by_cpu.values().flatten().sum();
    assert_eq!(samples + account.other_apps.unwrap(), taken, "none is missing: {epoch:#?}");
}

#[test]
fn samples_of_other_applications_are_counted() {
    check_that_others_are_counted(BackendChoice::Perf);
    check_that_others_are_counted(BackendChoice::Bpf);
}

fn check_applications(backend: BackendChoice) {
    let busy = Busy::start();
    let name = "only_samples_of_chosen_applications_are_kept";
    let Some((running, own)) = start_for_us(name, backend) else { return };
    let other_app = busy.app();
    let enough = |r: &Running| {
        flush(&r.database).unwrap();
        let apps = apps(&r.database, &r.database.resolve("latest").unwrap());
        let named = |app: &str| apps.get(app).is_some_and(|n| *n > 10);
        let kept = r.status().collector.apps;
        if kept.is_empty() { named(&own) && named(&other_app) } else { named(&kept[0]) }
    };
    running.until("samples of the first", enough);
    resume(&running.database, Some(vec![other_app.clone()])).unwrap();
    running.until("samples of the second", enough);
    let status = running.status();
    resume(&running.database, Some(vec![other_app.clone()])).unwrap();
    assert_eq!(running.status().epoch, status.epoch, "the same applications need no new epoch");
    resume(&running.database, Some(Vec::new())).unwrap();
    running.until("samples of both", enough);
    let (database, _folder) = running.end();
    let epochs = database.epochs().unwrap().epochs;
    let began: Vec<_> = epochs.iter().map(|e| e.collector.clone().unwrap().began).collect();
    assert_eq!(began, ["start", &format!("applications: {other_app}"), "applications: all"]);
    for (epoch, kept) in epochs.iter().zip([Some(&own), Some(&other_app), None]) {
        let account = epoch.collector.as_ref().unwrap();
        let samples: u64 = epoch.events.values().map(|r| r.samples).sum();
        assert_eq!(stored(&database, epoch), samples);
        assert_eq!(account.apps, kept.into_iter().cloned().collect::<Vec<_>>());
        let Some(kept) = kept else { continue };
        let others = account.other_apps.unwrap();
        let note =
            format!("only samples of {kept} are kept: {others} samples of other applications were not");
        assert!(others > 0 && epoch.notes.contains(&note), "{note}: {:?}", epoch.notes);
        assert!(apps(&database, epoch).into_keys().eq([kept.clone()]));
    }
}

/// Returns the stored samples of an epoch by application.
fn apps(database: &Database, epoch: &Epoch) -> BTreeMap<String, u64> {
    let mut apps = BTreeMap::new();
    let counts = database.read(&epoch.id).unwrap().counts;
    for (key, count) in counts.into_iter().filter(|(key, _)| !key.event.is_derived()) {
        *apps.entry(key.app.to_string()).or_default() += count;
    }
    apps
}

#[test]
fn only_samples_of_chosen_applications_are_kept() {
    check_applications(BackendChoice::Perf);
    check_applications(BackendChoice::Bpf);
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
