//! What goes wrong at users' places: one clear line that says what, why and what to do, the right exit status, and
//! nothing lost that had been collected.

mod support;

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use std::{fs, io};

use serde_json::Value;
use support::{Ended, Scratch, can_sample, is_root, workload};

/// It failed, and said so in one line with all of `parts` in it.
fn assert_fails(ended: &Ended, parts: &[&str]) {
    assert_fails_with(1, ended, parts);
}

fn assert_fails_with(status: i32, ended: &Ended, parts: &[&str]) {
    assert_eq!(ended.status, Some(status), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(ended.stderr.starts_with("dwell: "), "{ended:?}");
    assert_says(&ended.stderr, parts);
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no '{part}' in: {text}");
    }
}

/// A database with one epoch of a program that was copied into the scratch folder under this name.
fn recorded(scratch: &Scratch, name: &str) -> PathBuf {
    let program = scratch.path(name);
    fs::copy(workload("divide"), &program).unwrap();
    assert_eq!(scratch.record(&program, "60").status, Some(0));
    program
}

fn notes(answer: &Value) -> String {
    answer["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
}

/// The row of the image that was recorded.
fn row_of<'a>(top: &'a Value, image: &Path) -> &'a Value {
    let rows = top["rows"].as_array().unwrap();
    rows.iter().find(|row| row["image"] == image.to_str().unwrap()).unwrap_or_else(|| panic!("{top:#}"))
}

/// A name in Latin-1: the program is recorded, found again, and its source is shown.
#[test]
fn names_that_are_not_utf8() {
    if !can_sample("names_that_are_not_utf8") {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.path("").join(OsStr::from_bytes(b"f\xe9"));
    fs::create_dir(&folder).unwrap();
    let (source, program) =
        (folder.join(OsStr::from_bytes(b"s\xe9.c")), folder.join(OsStr::from_bytes(b"pr\xe9g")));
    fs::copy(support::source("divide.c"), &source).unwrap();
    fs::copy(support::source("workload.h"), folder.join("workload.h")).unwrap();
    // Without a build ID, only the path leads to the image.
    let built = Command::new("gcc")
        .args(["-O2", "-g", "-Wl,--build-id=none", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    let record =
        scratch.command(&["record", "-e", "cpu-clock", "-F", "2000", "--"]).arg(&program).arg("200").output();
    assert_eq!(record.unwrap().status.code(), Some(0));
    let top = scratch.json(&["top", "--user", "-n", "1", "--image", "\u{fffd}E9g"]);
    let image = top["rows"][0]["image"].as_str().unwrap();
    assert!(image.ends_with("/f\u{fffd}E9/pr\u{fffd}E9g"), "{image}");
    let named = [b"pr\xe9g:".as_slice(), top["rows"][0]["procedure"].as_str().unwrap().as_bytes()].concat();
    let listing = scratch.command(&["annotate", "--json"]).arg(OsStr::from_bytes(&named)).output().unwrap();
    let listing: Value = serde_json::from_slice(&listing.stdout).unwrap();
    let lines = listing["source_lines"].as_object().unwrap();
    assert!(lines.keys().any(|file| file.ends_with("/s\u{fffd}E9.c")), "{lines:?}");
    let list = scratch.command(&["list"]).arg(&source).output().unwrap();
    let hot = support::line_text("divide.c", support::hot_line("divide.c"));
    // The text is cut off at the edge of the terminal: long causes leave little of it.
    assert!(list.status.success() && String::from_utf8_lossy(&list.stdout).contains(&hot[..12]), "{list:?}");
}

#[test]
fn no_such_process() {
    let scratch = Scratch::new();
    assert_fails(&scratch.dwell(&["record", "-p", "4194304"]), &["4194304", "process"]);
}

#[test]
fn a_live_table_needs_a_terminal() {
    assert_fails(&Scratch::new().dwell(&["top", "--tui"]), &["--tui", "terminal"]);
}

#[test]
fn no_such_command() {
    let scratch = Scratch::new();
    assert_fails_with(127, &scratch.dwell(&["record", "--", "/no/such/program"]), &["/no/such/program"]);
    assert!(!scratch.dwell(&["epoch", "list"]).stdout.contains("/no/such"), "no epoch of nothing");
}

#[test]
fn no_such_event() {
    let scratch = Scratch::new();
    assert_fails_with(125, &scratch.dwell(&["record", "-e", "moods", "--", "true"]), &["moods"]);
}

#[test]
fn an_empty_database() {
    let scratch = Scratch::new();
    for verb in ["top", "annotate"] {
        assert_fails(&scratch.dwell(&[verb]), &["empty", "dwell record"]);
    }
    assert_eq!(scratch.json(&["epoch", "list"])["epochs"], Value::Array(vec![]));
}

#[test]
fn no_such_epoch_or_procedure() {
    if !can_sample("names of nothing") {
        return;
    }
    let scratch = Scratch::new();
    recorded(&scratch, "program");
    assert_fails(&scratch.dwell(&["top", "--epoch", "yesterday"]), &["yesterday"]);
    assert_fails(&scratch.dwell(&["annotate", "no_such_procedure"]), &["no_such_procedure", "dwell top"]);
    assert_fails(&scratch.dwell(&["epoch", "remove", "yesterday"]), &["yesterday"]);
}

#[test]
fn an_image_that_is_gone() {
    if !can_sample("an image that is gone") {
        return;
    }
    let scratch = Scratch::new();
    let program = recorded(&scratch, "program");
    fs::remove_file(&program).unwrap();
    let top = scratch.json(&["top"]);
    assert_says(&notes(&top), &[program.to_str().unwrap()]);
    assert!(row_of(&top, &program)["share"].as_f64() > Some(0.5), "its samples still count: {top:#}");
    let procedure = format!("program:{}", row_of(&top, &program)["procedure"].as_str().unwrap());
    assert_fails(&scratch.dwell(&["annotate", &procedure]), &["program"]);
}

#[test]
fn an_image_that_changed() {
    if !can_sample("an image that changed") {
        return;
    }
    let scratch = Scratch::new();
    let program = recorded(&scratch, "program");
    fs::remove_file(&program).unwrap();
    fs::copy(workload("chase"), &program).unwrap();
    let top = scratch.json(&["top"]);
    assert_says(&notes(&top), &[program.to_str().unwrap(), "build"]);
    let row = row_of(&top, &program);
    assert!(row["share"].as_f64() > Some(0.5) && row["procedure"] != "chase", "nothing is guessed: {top:#}");
}

#[test]
fn an_image_that_is_cut_off() {
    if !can_sample("an image that is cut off") {
        return;
    }
    let scratch = Scratch::new();
    let program = recorded(&scratch, "program");
    let bytes = fs::read(&program).unwrap();
    for length in [0, 1, 63, 64, 100, 1000, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&program, &bytes[..length]).unwrap();
        let top = scratch.json(&["top"]);
        assert!(row_of(&top, &program)["share"].as_f64() > Some(0.5), "{length}: {top:#}");
        let annotated = scratch.dwell(&["annotate"]);
        assert!(matches!(annotated.status, Some(0 | 1)), "{length}: {annotated:?}");
    }
}

#[test]
fn a_stripped_binary() {
    if !can_sample("a stripped binary") {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.path("stripped");
    let strip = Command::new("strip")
        .args(["-o".as_ref(), program.as_os_str(), workload("divide").as_os_str()])
        .status();
    assert!(strip.unwrap().success());
    assert_eq!(scratch.record(&program, "60").status, Some(0));
    let top = scratch.json(&["top"]);
    let row = row_of(&top, &program);
    assert!(row["share"].as_f64() > Some(0.5), "{top:#}");
    let procedure = format!("stripped:{}", row["procedure"].as_str().unwrap());
    let listing = scratch.json(&["annotate", &procedure]);
    let divides = |text: &Value| text.as_str().unwrap().starts_with("div");
    assert!(listing["instructions"].as_array().unwrap().iter().any(|i| divides(&i["text"])), "{listing:#}");
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(segments(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "parquet") {
            found.push(entry);
        }
    }
    found
}

#[test]
fn a_corrupt_segment() {
    if !can_sample("a corrupt segment") {
        return;
    }
    let scratch = Scratch::new();
    recorded(&scratch, "program");
    let whole = scratch.json(&["top"]);
    let found = segments(&scratch.path("database"));
    assert!(!found.is_empty());
    // A truncated copy lies beside the good segment: the good one is read, and a warning names the other.
    let good = fs::read(&found[0]).unwrap();
    let torn = found[0].with_file_name("0000000099.parquet");
    fs::write(&torn, &good[..good.len() / 2]).unwrap();
    let answer = scratch.dwell(&["top", "--json"]);
    assert_eq!(answer.status, Some(0), "{answer:?}");
    let top: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(top["total"], whole["total"]);
    assert_says(&(notes(&top) + &answer.stderr), &["0000000099.parquet"]);
    // Every byte of the only segment is overwritten: nothing can be read, and nothing crashes.
    fs::remove_file(&torn).unwrap();
    fs::write(&found[0], vec![0xa5; good.len()]).unwrap();
    let answer = scratch.dwell(&["top"]);
    assert!(matches!(answer.status, Some(0 | 1)), "{answer:?}");
    let name = found[0].file_name().unwrap().to_str().unwrap();
    assert_says(&(answer.stdout + &answer.stderr), &[name]);
}

#[test]
fn an_interrupt_in_the_middle() {
    if !can_sample("an interrupt in the middle") {
        return;
    }
    let scratch = Scratch::new();
    let program = workload("divide");
    let arguments = ["record", "-e", "cpu-clock", "--", program.to_str().unwrap(), "100000"];
    let mut child =
        scratch.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_secs(2));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{stderr}");
    let top = scratch.json(&["top"]);
    assert!(top["total"]["cpu-clock"].as_u64() > Some(20), "what was collected is there: {top:#}");
    assert!(scratch.json(&["epoch", "list"])["epochs"][0]["end"].is_string());
    let still_there =
        Command::new("pgrep").args(["-f", &format!("{} 100000", program.display())]).output().unwrap();
    assert!(still_there.stdout.is_empty(), "the command was left running");
}

/// Runs `dwell` as nobody, from places that nobody may read.
fn as_nobody(scratch: &Scratch, arguments: &[&str]) -> io::Result<Ended> {
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777));
    let (dwell, database) = (scratch.path("dwell"), scratch.path("nobody"));
    // Not by this process: one that another test forks meanwhile would have the file open for writing.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_dwell")).arg(&dwell).status()?;
    assert!(copied.success());
    fs::create_dir_all(&database)?;
    open(&database)?;
    open(scratch.path("").as_path())?;
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(&dwell)
        .args(arguments)
        .env("DWELL_DB", &database)
        .current_dir(scratch.path(""))
        .output()?;
    Ok(Ended::from(output))
}

#[test]
fn no_permission() {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if !is_root() || paranoid.trim() != "2" {
        println!("SKIPPED no permission: needs root, to become nobody, and kernel.perf_event_paranoid = 2");
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.path("program");
    fs::copy(workload("divide"), &program).unwrap();
    let ended = as_nobody(&scratch, &["record", "-e", "cpu-clock", "--", "./program", "60"]).unwrap();
    assert_eq!(ended.status, Some(0), "one's own command can be sampled: {ended:?}");
    assert_says(&ended.stderr, &["user mode"]);
    let top = as_nobody(&scratch, &["top", "--json"]).unwrap();
    let top: Value = serde_json::from_str(&top.stdout).unwrap();
    assert!(top["rows"][0]["procedure"] == "divide", "{top:#}");
    let ended = as_nobody(&scratch, &["record", "-a"]).unwrap();
    assert_fails(&ended, &["perf_event_paranoid", "whole machine"]);
}

#[test]
fn a_full_disk() {
    let unshared = Command::new("unshare").args(["-m", "true"]).status();
    if !is_root() || !unshared.is_ok_and(|status| status.success()) {
        println!("SKIPPED a full disk: needs root, to mount a small one");
        return;
    }
    if !can_sample("a full disk") {
        return;
    }
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("database")).unwrap();
    let script = "mount -t tmpfs -o size=1m none \"$DWELL_DB\" && \"$1\" record -e cpu-clock -- true 2>/dev/null || exit 99
                  cat /dev/zero 2>/dev/null >\"$DWELL_DB/filler\"
                  exec \"$@\"";
    let program = workload("divide");
    let output = Command::new("unshare")
        .args([
            "-m",
            "sh",
            "-c",
            script,
            "sh",
            env!("CARGO_BIN_EXE_dwell"),
            "record",
            "-e",
            "cpu-clock",
            "--",
        ])
        .args([program.to_str().unwrap(), "20"])
        .env("DWELL_DB", scratch.path("database"))
        .output()
        .unwrap();
    let ended = Ended::from(output);
    assert_eq!(ended.status, Some(125), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.starts_with("dwell: "), "{ended:?}");
    assert_says(last, &["No space left"]);
}
