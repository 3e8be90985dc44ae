//! Tests executions that a loop's register counts, in a real program with a known number of iterations. The loop is counted,
//! or the record contains the reason why not.
//!
//! The sampled program is this test itself, which loops if its environment requests it.

#![cfg(target_arch = "x86_64")]

use dwell_collect::{CollectError, RecordOptions, Stop, Target, record};
use dwell_profile::{CountSource, Database};

const ROUND: &str = "DWELL_TEST_LOOPS";
/// The modulus of a generator of random numbers, which is also its period.
const PERIOD: u64 = 1 << 29;

/// Helper of other tests, not a test: if the environment requests it, iterates over all numbers of a generator and counts
/// them.
#[test]
fn round() {
    if std::env::var_os(ROUND).is_none() {
        return;
    }
    let (mut x, mut steps) = (0, 0_u64);
    loop {
        x = (5 * x + 1) % PERIOD;
        steps += 1;
        if x == 0 {
            break;
        }
    }
    assert_eq!(steps, PERIOD);
    std::process::exit(7);
}

#[test]
fn the_executions_of_a_long_loop_are_counted() {
    let name = "the_executions_of_a_long_loop_are_counted";
    let own = std::env::current_exe().unwrap();
    let assignment = format!("{ROUND}=1");
    let words = ["env", &assignment, own.to_str().unwrap(), "--exact", "round", "--nocapture"];
    let target = Target::Command(words.iter().map(Into::into).collect());
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("db")).unwrap();
    let options = RecordOptions { odometers_percent: 0.6, ..RecordOptions::new(target) };
    let recorded = match record(options, &database.writer().unwrap(), &Stop::new(), &mut |_| ()) {
        Err(error @ (CollectError::Denied { .. } | CollectError::Open { .. })) => {
            return println!("SKIPPED {name}: {error}");
        }
        recorded => recorded.unwrap(),
    };
    assert_eq!(recorded.exit.and_then(|e| e.code()), Some(7));
    let record = recorded.epoch.counts.as_ref().expect("a record of what was counted");
    assert!(record.cost_ns as f64 <= 0.01 * record.cpu_ns as f64 + 2e6, "{record:?}");
    let read = database.read(&recorded.epoch.id).unwrap();
    assert_eq!(read.warnings, []);
    let registers = CountSource::InductionRegister;
    let counts: Vec<_> = read.execution_counts.iter().filter(|count| count.source == registers).collect();
    if counts.is_empty() {
        return println!("SKIPPED {name}: no loop was believed: {:?}", record.refused);
    }
    for count in counts {
        let deviation = f64::from(count.deviation_ppm) / 1e6;
        let error = (count.executions as f64 / PERIOD as f64).ln().abs();
        assert!(error < 0.03_f64.max(4.0 * deviation), "{count:?} {record:?}");
    }
}
