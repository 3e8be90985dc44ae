//! `dwell record -- CMD` ends as CMD does, and keeps its own failures apart.

mod support;

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use support::{Ended, Scratch, can_sample};

fn record(scratch: &Scratch, options: &[&str], script: &str) -> Ended {
    let words = [&["--json", "record", "-e", "cpu-clock"], options, &["--", "sh", "-c", script]].concat();
    scratch.dwell(&words)
}

/// The answer in JSON exists whatever the command returned.
fn answer(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    if !can_sample("the_exit_status_is_that_of_the_command") {
        return;
    }
    let cases: [(&[&str], &str, i32, Value); 7] = [
        (&[], "exit 0", 0, 0.into()),
        (&[], "exit 7", 7, 7.into()),
        (&[], "exit 255", 255, 255.into()),
        (&[], "kill -SEGV $$", 128 + 11, Value::Null),
        (&[], "kill -KILL $$", 128 + 9, Value::Null),
        (&["-a", "--backend", "perf"], "exit 3", 3, 3.into()),
        (&["--paths", "0", "--windows", "0"], "exit 4", 4, 4.into()),
    ];
    let scratch = Scratch::new();
    for (options, script, status, told) in cases {
        let ended = record(&scratch, options, script);
        if options.contains(&"-a") && ended.stderr.contains("kernel.perf_event_paranoid") {
            println!("SKIPPED the_exit_status_is_that_of_the_command -a: {}", ended.stderr.trim());
            continue;
        }
        assert_eq!(ended.status, Some(status), "{script} {ended:?}");
        assert_eq!(answer(&ended)["exit_status"], told, "{script} {ended:?}");
    }
}

#[test]
fn failures_of_dwell_have_statuses_of_their_own() {
    let scratch = Scratch::new();
    let not_executable = scratch.path("text");
    fs::write(&not_executable, "no program").unwrap();
    let occupied = scratch.path("occupied");
    fs::write(&occupied, "no database").unwrap();
    let [not_executable, occupied] = [&not_executable, &occupied].map(|path| path.to_str().unwrap());
    let cases: [(&[&str], i32); 5] = [
        (&["record", "--", "/no/such/program"], 127),
        (&["record", "--", not_executable], 126),
        (&["record", "-e", "no-such-event", "--", "true"], 125),
        (&["--db", occupied, "record", "--", "false"], 125),
        (&["record", "--no-such-flag", "--", "true"], 2),
    ];
    for (words, status) in cases {
        let ended = scratch.dwell(words);
        assert_eq!(ended.status, Some(status), "{words:?} {ended:?}");
        assert!(ended.stderr.starts_with("dwell: "), "{ended:?}");
    }
}

#[test]
fn the_command_keeps_running_after_the_duration() {
    if !can_sample("the_command_keeps_running_after_the_duration") {
        return;
    }
    let scratch = Scratch::new();
    let (ended_file, done) = (scratch.path("ended"), scratch.path("done"));
    let script = format!(
        "until [ -e '{}' ]; do sleep 0.1; done; echo done >'{}'",
        ended_file.display(),
        done.display()
    );
    // The command closes its output; otherwise the test would wait for the end of that output.
    let ended = record(&scratch, &["--duration", "1"], &format!("exec >/dev/null 2>&1; {script}"));
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert_eq!(answer(&ended)["exit_status"], Value::Null);
    std::fs::write(&ended_file, "").unwrap();
    let start = Instant::now();
    while !done.exists() {
        assert!(start.elapsed() < Duration::from_secs(30), "the command was ended");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_signal_is_passed_to_the_command_and_ends_it() {
    if !can_sample("a_signal_is_passed_to_the_command_and_ends_it") {
        return;
    }
    let scratch = Scratch::new();
    let marker = scratch.path("started");
    let script = format!("echo >'{}'; sleep 30", marker.display());
    let mut command = scratch.command(&["record", "-e", "cpu-clock", "--", "sh", "-c", &script]);
    let mut dwell = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !marker.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let killed = Command::new("kill").args(["-TERM", &dwell.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(dwell.wait().unwrap().code(), Some(128 + 15));
}

/// With `--report-fd` the output of the command is separate from the answer, and the command does not inherit the
/// descriptor.
#[test]
fn the_answer_goes_to_the_named_descriptor() {
    let scratch = Scratch::new();
    let closed = scratch.dwell(&["record", "--report-fd", "77", "--", "true"]);
    assert_eq!(closed.status, Some(125), "{closed:?}");
    assert!(closed.stderr.starts_with("dwell: record: --report-fd 77: "), "{closed:?}");
    if !can_sample("the_answer_goes_to_the_named_descriptor") {
        return;
    }
    let report = scratch.path("report");
    let words = [
        "record",
        "-e",
        "cpu-clock",
        "--report-fd",
        "3",
        "--",
        "sh",
        "-c",
        "echo '{'; test -e /proc/self/fd/3",
    ];
    let dwell = scratch.command(&words);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", r#"exec 3>"$0"; exec "$@""#])
        .arg(&report)
        .arg(dwell.get_program())
        .args(dwell.get_args());
    shell.env("DWELL_DB", scratch.path("database")).stdin(Stdio::null());
    let ended = Ended::from(shell.output().unwrap());
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(1), "{\n"), "{ended:?}");
    let answer: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    assert_eq!(answer["exit_status"], 1, "{answer}");
}

/// With `--report` people see what they always see, and a program finds the answer in a file.
#[test]
fn the_answer_is_also_in_the_named_file() {
    let scratch = Scratch::new();
    let nowhere = scratch.dwell(&["record", "--report", "/nonexistent/report", "--", "true"]);
    assert_eq!(nowhere.status, Some(125), "{nowhere:?}");
    assert!(nowhere.stderr.starts_with("dwell: record: --report /nonexistent/report: "), "{nowhere:?}");
    if !can_sample("the_answer_is_also_in_the_named_file") {
        return;
    }
    let report = scratch.path("report");
    let words = ["record", "-e", "cpu-clock", "--report", report.to_str().unwrap(), "--"];
    let ended = scratch.dwell(&[&words[..], &["sh", "-c", "echo out; exit 3"]].concat());
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(3), "out\n"), "{ended:?}");
    assert!(ended.stderr.contains("0 lost"), "{ended:?}");
    let answer: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    assert_eq!(answer["exit_status"], 3, "{answer}");
}
