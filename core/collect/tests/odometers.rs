//! Words in memory for real: what is stored is what the program itself says of its executions, or nothing is.

#![cfg(target_arch = "x86_64")]

use std::process::Command;

use dwell_collect::{CollectError, Rate, RecordOptions, Stop, Target, record};
use dwell_profile::{CountsRecord, Database};

/// A count is right within so many standard deviations of its logarithm, as it states them itself; the smallest is 3 %.
const DEVIATIONS_MAX: f64 = 2.5;

/// Records the program in this mode. What was stored over the truth of the executions that it is closest to, and the record; `None` where
/// this machine does not let us.
fn recorded(name: &str, mode: &str, rounds: u32) -> Option<(Vec<f64>, CountsRecord)> {
    let folder = tempfile::tempdir().unwrap();
    let (program, told) = (folder.path().join("program"), folder.path().join("told"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/odometers/program.c");
    match Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&program).arg(source).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            println!("SKIPPED {name}: cc: {error}");
            return None;
        }
    }
    let words = [program.as_os_str(), mode.as_ref(), rounds.to_string().as_ref(), told.as_os_str()]
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
    let told = std::fs::read_to_string(told).unwrap();
    let truths: Vec<f64> = told.split_whitespace().map(|number| number.parse().unwrap()).collect();
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
    // A count says itself how sure it is.
    let is_right = |(ratio, deviation): &(f64, f64)| ratio.ln().abs() < DEVIATIONS_MAX * deviation;
    assert!(ratios.iter().all(is_right), "{ratios:?} {counts:?}");
    let ratios: Vec<f64> = ratios.into_iter().map(|(ratio, _)| ratio).collect();
    Some((ratios, counts))
}

#[test]
fn words_that_only_grow_are_counted_and_shared_ones_refused() {
    let name = "words_that_only_grow_are_counted_and_shared_ones_refused";
    let Some((ratios, counts)) = recorded(name, "plain", 25_000) else { return };
    assert!(ratios.len() >= 2, "{counts:?}");
    assert!(counts.refused.contains_key("shared memory"), "{counts:?}");
}

#[test]
fn words_that_are_freed_and_used_again_are_right_or_absent() {
    recorded("words_that_are_freed_and_used_again_are_right_or_absent", "free", 15_000);
}

#[test]
fn words_that_threads_race_for_are_refused() {
    let name = "words_that_threads_race_for_are_refused";
    let Some((ratios, counts)) = recorded(name, "race", 2_000) else { return };
    assert!(ratios.is_empty(), "{ratios:?} {counts:?}");
}

#[test]
fn words_of_forked_processes_are_right_or_absent() {
    recorded("words_of_forked_processes_are_right_or_absent", "fork", 8_000);
}
