//! Tests breakpoint counts of a real program: counting does not change its result, and the ratios of the counts are right.
//!
//! The sampled program is this test itself, which spins if its environment requests it.

#![cfg(target_arch = "x86_64")]

use std::time::Duration;

use dwell_collect::{CollectError, Rate, RecordOptions, Stop, Target, record};
use dwell_profile::{Database, ExecutionEvidence};

const SPIN: &str = "DWELL_TEST_WINDOWS_MS";

/// Helper of other tests, not a test: spins if the environment requests it.
#[test]
fn spin() {
    let Some(ms) = std::env::var(SPIN).ok().and_then(|v| v.parse().ok()) else { return };
    let time = Duration::from_millis(ms);
    let mut x = 1_u64;
    loop {
        for i in 0..100_000_u64 {
            x = std::hint::black_box(x.wrapping_mul(i | 1) ^ i);
            if i & 3 == 0 {
                x = std::hint::black_box(x / (i | 7));
            }
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        if Duration::new(now.tv_sec as u64, now.tv_nsec as u32) > time {
            std::process::exit(7);
        }
    }
}

#[test]
fn breakpoints_do_not_change_the_end_of_a_command() {
    let name = "breakpoints_do_not_change_the_end_of_a_command";
    let own = std::env::current_exe().unwrap();
    let assignment = format!("{SPIN}=700");
    let words = ["env", &assignment, own.to_str().unwrap(), "--exact", "spin", "--nocapture"];
    let target = Target::Command(words.iter().map(Into::into).collect());
    let options = RecordOptions {
        rate: Rate::Frequency(2000),
        breakpoints_percent: 30.0,
        ..RecordOptions::new(target)
    };
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("db")).unwrap();
    let recorded = match record(options, &database.writer().unwrap(), &Stop::new(), &mut |_| ()) {
        Err(error @ (CollectError::Denied { .. } | CollectError::Open { .. })) => {
            return println!("SKIPPED {name}: {error}");
        }
        recorded => recorded.unwrap(),
    };
    assert_eq!(recorded.exit.and_then(|e| e.code()), Some(7));
    let record = recorded.epoch.breakpoints.as_ref().expect("a record of what was counted");
    assert_eq!(record.budget_percent, 30.0);
    if record.windows == 0 {
        return println!("SKIPPED {name}: no window was counted: {:?}", record.refused);
    }
    let read = database.read(&recorded.epoch.id).unwrap();
    assert_eq!(read.warnings, []);
    let counts = |evidence: &ExecutionEvidence| match evidence {
        ExecutionEvidence::BreakpointCounts(counts) => counts.iter().map(|(_, n)| *n).collect(),
        other => panic!("{other:?}"),
    };
    let windows: Vec<Vec<u64>> = read.evidence.iter().map(counts).collect();
    assert_eq!(windows.len() as u64, record.windows);
    assert_eq!(windows.iter().flatten().sum::<u64>(), record.executions);
    assert!(windows.iter().all(|w| w.len() <= 4));
    assert!(record.execution_ns > 0.0);
    // One batch may exceed the small budget before the next one has to wait.
    let batch_ns = 60e6;
    assert!(record.cost_ns as f64 <= 0.3 * record.cpu_ns as f64 + batch_ns, "{record:?}");
}
