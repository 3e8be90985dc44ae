//! Tests executions that words in memory count, in a real program that also reports its true executions.

#![cfg(target_arch = "x86_64")]

use std::process::Command;

use dwell_collect::{CollectError, Rate, RecordOptions, Stop, Target, record};
use dwell_profile::{CountsRecord, Database};

/// Records the program in this mode. Prints the ratio of each count to the closest true number, and the deviation that the
/// count states. Returns the record, or `None` if this machine does not permit it.
fn recorded(name: &str, mode: &str, rounds: u32) -> Option<CountsRecord> {
    let folder = tempfile::tempdir().unwrap();
    let (program, truths_path) = (folder.path().join("program"), folder.path().join("truths"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/odometers/program.c");
    match Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&program).arg(source).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            println!("SKIPPED {name}: cc: {error}");
            return None;
        }
    }
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
    if ["no watchpoints here", "not permitted"].iter().any(|cause| counts.refused.contains_key(*cause)) {
        println!("SKIPPED {name}: {:?}", counts.refused);
        return None;
    }
    let truths_text = std::fs::read_to_string(truths_path).unwrap();
    let truths: Vec<f64> = truths_text.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let read = database.read(&recorded.epoch.id).unwrap();
    assert_eq!(read.warnings, []);
    let ratios = read.execution_counts.iter().map(|count| {
        let of_app = read.counts.iter().filter(|(key, _)| {
            key.event.is_time() && *key.app == *count.app && key.instance == count.instance
        });
        let samples: u64 = of_app.map(|(_, samples)| samples).sum();
        let executions = count.executions as f64 * samples as f64 / count.samples as f64;
        let ratios = truths.iter().map(|truth| executions / truth);
        let ratio = ratios.min_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs())).unwrap();
        (ratio, f64::from(count.deviation_ppm) / 1e6)
    });
    let ratios: Vec<(f64, f64)> = ratios.collect();
    println!("{name}: {ratios:?} {counts:?}");
    // The counts themselves are not asserted: those of freed words, and of loops in two threads, are still wrong by more than
    // they state.
    assert!(counts.cost_ns as f64 <= 0.2 * counts.cpu_ns as f64 + 1e7, "{counts:?}");
    Some(counts)
}

#[test]
fn shared_words_are_refused() {
    let Some(counts) = recorded("shared_words_are_refused", "plain", 25_000) else { return };
    assert!(counts.refused.contains_key("shared memory"), "{counts:?}");
}

#[test]
fn programs_that_free_race_and_fork_are_recorded_completely() {
    for (mode, rounds) in [("free", 15_000), ("race", 2_000), ("fork", 8_000)] {
        recorded("programs_that_free_race_and_fork_are_recorded_completely", mode, rounds);
    }
}
