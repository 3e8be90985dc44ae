//! Tests path bursts of a real program: stepping does not change its result, and the bursts are stored.
//!
//! The sampled program is this test itself, which spins if its environment requests it.

#![cfg(target_arch = "x86_64")]

use std::time::Duration;

use dwell_collect::{CollectError, Rate, RecordOptions, Recorded, Stop, Target, record};
use dwell_profile::{Database, ExecutionEvidence, ImageId};

const SPIN: &str = "DWELL_TEST_PATHS_MS";

/// Helper of other tests, not a test: three threads spin if the environment requests it.
#[test]
fn spin() {
    let Some(ms) = std::env::var(SPIN).ok().and_then(|v| v.parse().ok()) else { return };
    let threads: Vec<_> =
        (0..3).map(|_| std::thread::spawn(move || spin_for(Duration::from_millis(ms)))).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    std::process::exit(7);
}

/// Spins until all threads of the process have together used this much CPU time.
fn spin_for(time: Duration) {
    let mut x = 1_u64;
    loop {
        for i in 0..100_000_u64 {
            x = std::hint::black_box(x.wrapping_mul(i | 1) ^ i);
            if x & 3 == 0 {
                x = std::hint::black_box(x + 1);
            }
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        if Duration::new(now.tv_sec as u64, now.tv_nsec as u32) > time {
            return;
        }
    }
}

fn spinning(ms: u32) -> Target {
    let own = std::env::current_exe().unwrap();
    let assignment = format!("{SPIN}={ms}");
    let words = ["env", &assignment, own.to_str().unwrap(), "--exact", "spin", "--nocapture"];
    Target::Command(words.iter().map(Into::into).collect())
}

/// Returns a recording and its bursts, or `None` if this machine does not permit it.
fn recorded(
    name: &str,
    target: Target,
    stop: &Stop,
) -> Option<(Recorded, Vec<ExecutionEvidence>, tempfile::TempDir)> {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("db")).unwrap();
    let options =
        RecordOptions { rate: Rate::Frequency(2000), bursts_percent: 40.0, ..RecordOptions::new(target) };
    match record(options, &database.writer().unwrap(), stop, &mut |_| ()) {
        Err(error @ (CollectError::Denied { .. } | CollectError::Open { .. } | CollectError::Bursts(_))) => {
            println!("SKIPPED {name}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
        Ok(recorded) => {
            if recorded.epoch.bursts.as_ref().is_some_and(|p| p.refused.contains_key("not permitted")) {
                println!("SKIPPED {name}: this machine does not let us trace");
                return None;
            }
            let read = database.read(&recorded.epoch.id).unwrap();
            assert_eq!(read.warnings, []);
            Some((recorded, read.evidence, folder))
        }
    }
}

#[test]
fn stepping_does_not_change_the_end_of_a_command_with_threads() {
    let name = "stepping_does_not_change_the_end_of_a_command_with_threads";
    let Some((recorded, bursts, _folder)) = recorded(name, spinning(1500), &Stop::new()) else { return };
    assert_eq!(recorded.exit.and_then(|e| e.code()), Some(7));
    let tally = recorded.epoch.bursts.unwrap();
    assert_eq!(tally.bursts as usize, bursts.len());
    assert!(!bursts.is_empty() && tally.steps > 100, "{tally:?}");
    // One burst may exceed the budget, since no cost was measured before it.
    let allowed_ns = tally.cpu_ns as f64 * 0.4 + 400e6;
    assert!((tally.stepping_ns as f64) < allowed_ns, "{tally:?}");
    let is_burst = |b: &ExecutionEvidence| matches!(b, ExecutionEvidence::PathBurst { .. });
    assert!(bursts.iter().all(is_burst), "{bursts:?}");
    // The program spins in a loop whose back edge and conditional branch run at each iteration.
    let own = ImageId::of_build(&dwell_image::build_id_of_file(std::env::current_exe().unwrap()).unwrap());
    let within = |b: &ExecutionEvidence| {
        b.transfers().iter().filter(|t| t.from.image == own && t.to.image == own).count()
    };
    assert!(bursts.iter().any(|b| within(b) >= 2), "{bursts:?}");
}

#[test]
fn an_interrupt_during_bursts_ends_the_command() {
    let stop = Stop::new();
    let asker = stop.clone();
    let asked = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        asker.stop();
    });
    let name = "an_interrupt_during_bursts_ends_the_command";
    let Some((recorded, ..)) = recorded(name, spinning(600_000), &stop) else { return };
    asked.join().unwrap();
    assert!(recorded.interrupted);
    let signal = recorded.exit.and_then(|e| std::os::unix::process::ExitStatusExt::signal(&e));
    assert_eq!(signal, Some(15));
}

#[test]
fn no_thread_is_stepped_without_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("db")).unwrap();
    let options = RecordOptions::new(spinning(50));
    if let Ok(recorded) = record(options, &database.writer().unwrap(), &Stop::new(), &mut |_| ()) {
        assert_eq!(recorded.epoch.bursts, None);
    }
}
