//! Tests executions that words in memory count, in a real program that also reports its true executions.

#![cfg(target_arch = "x86_64")]

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use dwell_collect::{
    CollectError, DaemonOptions, Rate, RecordOptions, Renew, Stop, Target, daemon, new_epoch, record, status,
};
use dwell_profile::{CountsRecord, Database, EpochProfile, ExecutionCount};

/// Number of epochs of which two must have counts: on a busy machine, some are too uncertain.
const EPOCHS_MAX: usize = 12;

/// Held by each test: the daemon samples and watches the programs of the others too.
static ALONE: Mutex<()> = Mutex::new(());

/// Builds the program. Returns its path, or `None` and prints a message if there is no compiler.
fn built(name: &str, folder: &Path) -> Option<PathBuf> {
    let program = folder.join("countsitself");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/odometers/program.c");
    match Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&program).arg(source).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            println!("SKIPPED {name}: cc: {error}");
            return None;
        }
    }
    Some(program)
}

/// Returns whether this machine has watchpoints. Prints a message if it does not.
fn can_watch(name: &str, counts: &CountsRecord) -> bool {
    let is_refused =
        ["no watchpoints here", "not permitted"].iter().any(|cause| counts.refused.contains_key(*cause));
    if is_refused {
        println!("SKIPPED {name}: {:?}", counts.refused);
    }
    !is_refused
}

/// Returns the ratio of each count to the closest true number, and the deviation that the count states.
fn ratios(read: &EpochProfile, truths: &[f64]) -> Vec<(f64, f64)> {
    let ratio = |count: &ExecutionCount| {
        let of_app = read.counts.iter().filter(|(key, _)| {
            key.event.is_time() && *key.app == *count.app && key.instance == count.instance
        });
        let samples: u64 = of_app.map(|(_, samples)| samples).sum();
        let executions = count.executions as f64 * samples as f64 / count.samples as f64;
        let ratios = truths.iter().map(|truth| executions / truth);
        let ratio = ratios.min_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs())).unwrap();
        (ratio, f64::from(count.deviation_ppm) / 1e6)
    };
    read.execution_counts.iter().filter(|count| count.app == "countsitself").map(ratio).collect()
}

/// Returns whether a count is as certain as it states: one in 16,000 may be further off.
fn is_within((ratio, deviation): &(f64, f64)) -> bool {
    ratio.ln().abs() < 4.0 * deviation
}

fn truths(path: &Path) -> Vec<f64> {
    let text = std::fs::read_to_string(path).unwrap();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// Records the program in this mode. Checks and prints the ratio of each count to the closest true number, and the deviation
/// that the count states. Returns the record and the number of counts, or `None` if this machine does not permit it.
fn recorded(name: &str, mode: &str, rounds: u32) -> Option<(CountsRecord, usize)> {
    let folder = tempfile::tempdir().unwrap();
    let (program, truths_path) = (built(name, folder.path())?, folder.path().join("truths"));
    let words = [program.as_os_str(), mode.as_ref(), rounds.to_string().as_ref(), truths_path.as_os_str()]
        .map(ToOwned::to_owned);
    let target = Target::Command(words.to_vec());
    let options =
        RecordOptions { rate: Rate::Frequency(4000), odometers_percent: 10.0, ..RecordOptions::new(target) };
    let database = Database::open(folder.path().join("db")).unwrap();
    let recorded = match record(options, &database.writer().unwrap(), &Stop::new(), &mut |_| ()) {
        Err(error @ (CollectError::Denied { .. } | CollectError::Open { .. })) => {
            println!("SKIPPED {name}: {error}");
            return None;
        }
        recorded => recorded.unwrap(),
    };
    let counts = recorded.epoch.counts.expect("a record");
    if !can_watch(name, &counts) {
        return None;
    }
    let read = database.read(&recorded.epoch.id).unwrap();
    assert_eq!(read.warnings, []);
    let ratios = ratios(&read, &truths(&truths_path));
    println!("{name} {mode}: {ratios:?} {counts:?}");
    assert!(ratios.iter().all(is_within), "{ratios:?}");
    assert!(counts.cost_ns as f64 <= 0.2 * counts.cpu_ns as f64 + 1e7, "{counts:?}");
    Some((counts, ratios.len()))
}

/// The counts of a program are in the epoch in which it ran, also if it ended long before the epoch.
#[test]
fn a_daemon_counts_in_each_epoch() {
    let name = "a_daemon_counts_in_each_epoch";
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = built(name, folder.path()) else { return };
    let database = Database::open(folder.path().join("db")).unwrap();
    let (writer, stop) = (database.writer().unwrap(), Stop::new());
    let options = DaemonOptions {
        rate: Some(Rate::Frequency(2000)),
        odometers_percent: 10.0,
        budget_percent: 0.0,
        ..DaemonOptions::default()
    };
    let thread = std::thread::spawn({
        let stop = stop.clone();
        move || daemon(options, &writer, &stop, &Renew::new(), &mut |_| ())
    });
    while status(&database).is_err() && !thread.is_finished() {
        std::thread::sleep(Duration::from_millis(20));
    }
    if thread.is_finished() {
        println!("SKIPPED {name}: {}", thread.join().unwrap().unwrap_err());
        return;
    }
    let path = folder.path().join("truths");
    let run = || {
        let ended = Command::new(&program).args(["plain", "30000"]).arg(&path).status();
        assert!(ended.unwrap().success());
        truths(&path)
    };
    let mut claimed = 0;
    for _ in 0..EPOCHS_MAX {
        let truths = run();
        std::thread::sleep(Duration::from_millis(300)); // It is noticed that the process has ended.
        new_epoch(&database, None).unwrap();
        let epochs = database.epochs().unwrap().epochs;
        let ended = &epochs[epochs.len() - 2];
        let counts = ended.counts.as_ref().expect("a record");
        if !can_watch(name, counts) {
            claimed = 2;
            break;
        }
        let ratios = ratios(&database.read(&ended.id).unwrap(), &truths);
        println!("{name}: {ratios:?} {counts:?}");
        assert!(ratios.iter().all(is_within), "{ratios:?}");
        claimed += usize::from(!ratios.is_empty());
        if claimed == 2 {
            break;
        }
    }
    stop.stop();
    thread.join().unwrap().unwrap();
    assert_eq!(claimed, 2, "the others are too uncertain");
}

#[test]
fn shared_words_are_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((counts, _)) = recorded("shared_words_are_refused", "plain", 25_000) else { return };
    assert!(counts.refused.contains_key("shared memory"), "{counts:?}");
}

/// What is counted is right, and what cannot be is refused: words of memory that is freed and used again, that threads write
/// without a lock, and that several processes of an execution have.
#[test]
fn programs_that_free_race_and_fork_have_no_false_count() {
    let name = "programs_that_free_race_and_fork_have_no_false_count";
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (mode, rounds) in [("free", 15_000), ("race", 120_000)] {
        recorded(name, mode, rounds);
    }
    let Some((counts, number)) = recorded(name, "fork", 8_000) else { return };
    let is_refused = counts.refused.contains_key("other processes of the execution ran");
    assert!(number == 0 && (is_refused || counts.verified == 0), "{counts:?}");
}
