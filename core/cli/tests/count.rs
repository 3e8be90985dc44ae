//! `dwell record --count`: a program's executions, counted in its code, are what the program has counted itself.
#![cfg(target_arch = "x86_64")]

mod support;

use std::{path::PathBuf, process::Command};

use serde_json::Value;
use support::{Scratch, can_sample};

/// The machine is shared: what its neighbours do to clocks and caches shows in recordings of some seconds.
const RECORDINGS_MAX: usize = 4;

/// Records `count.c` and returns how far the executions of the function's entry and of its loop are off, as factors; or why there are
/// none.
fn recorded(option: &str) -> Result<[f64; 2], String> {
    let scratch = Scratch::new();
    let program = scratch.path("count");
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/count.c");
    assert!(
        Command::new("gcc").args(["-O2", "-g", "-o"]).args([&program, &source]).status().unwrap().success()
    );
    let ended = scratch.dwell(&["record", option, "--", program.to_str().unwrap(), "2000000"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let own: Vec<f64> = ended.stdout.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let listing = scratch.json(&["annotate", "count:mix"]);
    if listing["scale"]["kind"] != "absolute" {
        return Err(format!("{}, {}", listing["scale"], ended.stderr));
    }
    let executions = |instruction: &Value| instruction["executions"].as_f64();
    let all = listing["instructions"].as_array().unwrap();
    let entry = executions(&all[0]).ok_or("the entry has no executions")?;
    let most = all.iter().filter_map(executions).fold(0.0, f64::max);
    Ok([entry / own[0], most / own[1]])
}

fn check(option: &str, tolerance: f64) {
    if !can_sample(&format!("record {option}")) {
        return;
    }
    let mut failures = Vec::new();
    for _ in 0..RECORDINGS_MAX {
        match recorded(option) {
            Ok(off) if off.iter().all(|factor| factor.ln().abs() < tolerance) => return,
            other => failures.push(other),
        }
    }
    panic!("{option}, in each of {RECORDINGS_MAX} recordings: {failures:?}");
}

#[test]
fn all_executions_are_counted() {
    check("--count=always", 0.05);
}

#[test]
fn windows_show_all_executions() {
    check("--count", 0.15);
}
