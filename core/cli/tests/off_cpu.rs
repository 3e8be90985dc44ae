//! The time off the CPU, from the recording to the answers, of a program whose waits are known.

mod support;

use std::{collections::HashMap, path::PathBuf, process::Command};

use serde_json::Value;
use support::{Scratch, can_sample};

/// The period of the recordings, in seconds.
const PERIOD: f64 = 1e-3;

/// Builds the program into the scratch folder.
fn built(scratch: &Scratch) -> PathBuf {
    let (source, program) =
        (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/waits.c"), scratch.path("waits-program"));
    let flags = ["-O2", "-fomit-frame-pointer", "-g", "-pthread", "-o"];
    let compiled = Command::new("gcc").args(flags).arg(&program).arg(source).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// Returns the seconds off the CPU below each function, from folded stacks.
fn seconds_by_function(folded: &str) -> HashMap<String, f64> {
    let mut seconds = HashMap::new();
    for line in folded.lines() {
        let (frames, samples) = line.rsplit_once(' ').unwrap();
        let samples: f64 = samples.parse().unwrap();
        let mut names: Vec<&str> = frames.split(';').collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            *seconds.entry(name.to_owned()).or_default() += samples * PERIOD;
        }
    }
    seconds
}

#[test]
fn waits_have_their_places_stacks_and_times() {
    if !can_sample("off-cpu: waits") {
        return;
    }
    let scratch = Scratch::new();
    let program = built(&scratch);
    let ended = scratch.dwell(&["record", "-e", "off-cpu", "-F", "1000", "--", program.to_str().unwrap()]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let truth: HashMap<&str, f64> = ended
        .stdout
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(n, s)| (n, s.parse().unwrap()))
        .collect();
    assert_eq!(truth.len(), 4, "{ended:?}");
    let found = seconds_by_function(&scratch.text(&["export", "-f", "folded"]));
    for (function, seconds) in &truth {
        // Six hundred short waits are a sample of their time.
        let ratio = found.get(*function).copied().unwrap_or_default() / seconds;
        assert!((0.85..1.1).contains(&ratio), "{function}: {ratio} of {seconds} s; {found:?}");
    }
    // The place of a wait is the instruction that made the system call, in the C library.
    let top = scratch.json(&["top", "-n", "0"]);
    assert!(!top["total"].as_object().unwrap().contains_key("cpu-clock"), "{top}");
    let rows = top["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["cycles"].is_null() && row["cpi"].is_null()), "{top}");
    let is_kernel = |row: &&Value| row["build_id"] == "kernel";
    assert_eq!(rows.iter().filter(is_kernel).count(), 0, "{top}");
    let unknown = scratch.json(&["epoch", "list"])["epochs"][0]["events"]["off-cpu"]["unknown"].as_u64();
    assert_eq!(unknown, Some(0));
    assert!(scratch.text(&["top", "-n", "3"]).contains("waits"));
}

#[test]
fn a_thread_that_waits_all_the_time_is_counted() {
    if !can_sample("off-cpu: a process that waits") {
        return;
    }
    let scratch = Scratch::new();
    let program = built(&scratch);
    let mut child = Command::new(&program).arg("sleep").spawn().unwrap();
    let asleep = || std::fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap_or_default();
    while !asleep().starts_with("230 ") && !asleep().starts_with("35 ") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    let ended = scratch.dwell(&["record", "-e", "off-cpu", "-F", "1000", "-p", &pid, "--duration", "1"]);
    let (_, _) = (child.kill(), child.wait());
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let top = scratch.json(&["top"]);
    let seconds = top["total"]["off-cpu"].as_f64().unwrap() * PERIOD;
    assert!((0.9..1.5).contains(&seconds), "{seconds} s");
    assert!(top["rows"][0]["procedure"].as_str().unwrap().contains("nanosleep"), "{top}");
}

#[test]
fn time_on_the_cpu_and_off_it_adds_up() {
    if !can_sample("off-cpu: wall-clock time") {
        return;
    }
    let scratch = Scratch::new();
    let program = built(&scratch);
    let command =
        ["record", "-e", "cpu-clock,off-cpu", "-F", "1000", "--", program.to_str().unwrap(), "wall"];
    let ended = scratch.dwell(&command);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let elapsed: f64 = ended.stdout.lines().next().unwrap()["wall ".len()..].parse().unwrap();
    let top = scratch.json(&["top", "--by", "thread"]);
    let seconds = |event: &str| top["total"][event].as_f64().unwrap_or_default() * PERIOD;
    let (on, off, preempted) = (seconds("cpu-clock"), seconds("off-cpu"), seconds("preempted"));
    // The start of the process is not in the program's own time.
    assert!((0.95 * elapsed..elapsed + 0.3).contains(&(on + off)), "{elapsed} s: {top}");
    assert!(off - preempted > 0.45 && preempted <= off, "{top}");
    assert_eq!(top["rows"].as_array().unwrap().len(), 1, "{top}");
    assert_eq!(top["rows"][0]["thread"], "waits-program");
    let refused = scratch.dwell(&["record", "-e", "off-cpu", "--paths", "1", "--", "true"]);
    assert_eq!(refused.status, Some(125), "{refused:?}");
    assert!(refused.stderr.contains("--paths, --windows and --count stop threads"), "{refused:?}");
}
