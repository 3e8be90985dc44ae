//! The main job, end to end: each workload is sampled for real, and its marked line must come out as the hottest.

mod support;

use serde_json::Value;
use support::{Scratch, can_sample, hot_line, line_text, source, workload};

/// Samples the workload and looks for its hot line, by line, by procedure and in the listing.
fn check(file: &str, procedure: &str, repetitions: &str) {
    if !can_sample(&format!("the hot line of {file}")) {
        return;
    }
    let (program, _) = file.split_once('.').unwrap();
    let (scratch, hot) = (Scratch::new(), hot_line(file));
    let ended = scratch.record(&workload(program), repetitions);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.stdout.starts_with(program), "the workload's own output is passed on: {ended:?}");

    let lines = scratch.json(&["top", "--by", "line"]);
    let first = &lines["rows"][0];
    assert_eq!(first["file"], source(file).to_str().unwrap(), "{lines:#}");
    assert_eq!(first["line"], hot, "{lines:#}");

    let top = scratch.json(&["top"]);
    let first = &top["rows"][0];
    let name = first["demangled"].as_str().unwrap();
    assert!(name == procedure || name.starts_with(&format!("{program}::{procedure}")), "{top:#}");
    assert!(first["share"].as_f64().unwrap() > 0.5, "{top:#}");

    let listing = scratch.json(&["annotate", &format!("{program}:{}", first["procedure"].as_str().unwrap())]);
    assert_eq!(line_waited_for_most(&listing), hot, "{listing:#}");
    assert_eq!(listing["procedure"]["name"], first["procedure"]);
    let text = scratch.text(&["annotate"]);
    let marked: String = line_text(file, hot).chars().take(40).collect(); // Every width of the terminal shows as much.
    assert!(text.contains(&marked), "the source is between the instructions: {text}");
}

/// The line whose instructions were at the head of the machine for most samples. Where those landed is not asked: past
/// a load that is part of a branch's comparison, some processors tell the branch's target, which has a line of its own.
fn line_waited_for_most(listing: &Value) -> u64 {
    let mut lines = std::collections::BTreeMap::<u64, f64>::new();
    for instruction in listing["instructions"].as_array().unwrap() {
        let samples = instruction["head_samples"].as_f64().unwrap();
        *lines.entry(instruction["line"].as_u64().unwrap_or(0)).or_default() += samples;
    }
    lines.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap().0
}

#[test]
fn copy() {
    check("copy.c", "copy", "400");
}

#[test]
fn chase() {
    check("chase.c", "chase", "12");
}

#[test]
fn divide() {
    check("divide.c", "divide", "200");
}

#[test]
fn mispredict() {
    check("mispredict.c", "walk", "200");
}

#[test]
fn hash_join() {
    check("hashjoin.rs", "probe", "20");
}

#[test]
fn sort() {
    check("sort.rs", "partition", "10");
}

#[test]
fn the_whole_machine() {
    let scratch = Scratch::new();
    let program = workload("divide");
    let ended = scratch.dwell(&["record", "-a", "-e", "cpu-clock", "--", program.to_str().unwrap(), "100"]);
    if ended.status != Some(0) || ended.stderr.contains("command") {
        println!("SKIPPED the whole machine: {}", ended.stderr.trim());
        return;
    }
    let applications = scratch.json(&["top", "--by", "app", "--limit", "0"]);
    let rows = applications["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["app"] == "divide"), "{applications:#}");
    assert!(rows.len() > 1, "others ran as well: {applications:#}");
    let epochs = scratch.json(&["epoch", "list"]);
    assert_eq!(
        epochs["epochs"][0]["scope"].as_str().map(|scope| scope.contains("system")),
        Some(true),
        "{epochs:#}"
    );
}
