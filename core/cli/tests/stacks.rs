//! Call stacks of samples, from the recording to the answers, of a program whose calls are known.
//!
//! The program has neither frame pointers nor debug information, as most of a distribution's programs.

mod support;

use std::{path::PathBuf, process::Command};

use serde_json::Value;
use support::{Scratch, can_sample};

/// Builds the program into the scratch folder.
fn built(scratch: &Scratch) -> PathBuf {
    let (source, program) =
        (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stacks.c"), scratch.path("stacks-program"));
    let flags = ["-O2", "-fomit-frame-pointer", "-g0", "-pthread", "-o"];
    let compiled = Command::new("gcc").args(flags).arg(&program).arg(source).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// Records one way through the program, and returns its folded stacks: frames, outermost first, and samples.
fn recorded(scratch: &Scratch, what: &str) -> Vec<(Vec<String>, u64)> {
    let program = built(scratch);
    let program = program.to_str().unwrap();
    let options = ["-e", "cpu-clock", "-F", "4000", "--stacks", "2000"];
    let ended = scratch.dwell(&[&["record"], &options[..], &["--", program, what]].concat());
    assert_eq!(ended.status, Some(0), "{ended:?}");
    folded(&scratch.text(&["export", "-f", "folded"]))
}

fn folded(text: &str) -> Vec<(Vec<String>, u64)> {
    let line = |line: &str| {
        let (frames, samples) = line.rsplit_once(' ').unwrap();
        (frames.split(';').map(str::to_owned).collect(), samples.parse().unwrap())
    };
    text.lines().map(line).collect()
}

/// Returns the share of the samples in `leaf` whose stack satisfies a condition.
fn share(stacks: &[(Vec<String>, u64)], is_so: impl Fn(&[String]) -> bool) -> f64 {
    let leaf = |(frames, _): &&(Vec<String>, u64)| frames.last().is_some_and(|frame| frame == "leaf");
    let all: u64 = stacks.iter().filter(leaf).map(|(_, samples)| samples).sum();
    assert!(all > 50, "too few samples: {stacks:?}");
    let such = stacks.iter().filter(leaf).filter(|(frames, _)| is_so(frames));
    such.map(|(_, samples)| samples).sum::<u64>() as f64 / all as f64
}

fn ends(frames: &[String], with: &[&str]) -> bool {
    frames.len() >= with.len() && frames[frames.len() - with.len()..].iter().eq(with)
}

#[test]
fn callers_have_their_shares_and_stacks_are_complete() {
    if !can_sample("stacks: callers") {
        return;
    }
    let scratch = Scratch::new();
    let stacks = recorded(&scratch, "callers");
    let whole = |frames: &[String], caller| frames[0] == "_start" && ends(frames, &["main", caller, "leaf"]);
    let (parse, load) = (share(&stacks, |f| whole(f, "parse")), share(&stacks, |f| whole(f, "load")));
    assert!(parse + load > 0.98 && (0.65..0.85).contains(&parse), "{parse} {load}");

    let callers = scratch.json(&["callers", "leaf", "--depth", "2", "--min-share", "2"]);
    let row = &callers["rows"][0];
    assert_eq!(
        (&row["function"], &row["rows"][0]["function"]),
        (&Value::from("parse"), &Value::from("main"))
    );
    assert!((row["share"].as_f64().unwrap() - parse).abs() < 0.05, "{callers}");
    let callees = scratch.json(&["callees", "main"]);
    let names = callees["rows"].as_array().unwrap().iter().map(|row| row["function"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["parse", "load"]);
    let flat = scratch.json(&["top", "--by", "caller", "--of", "leaf"]);
    assert_eq!(flat["rows"][0]["function"], "parse");
    let inclusive = scratch.json(&["top", "--inclusive", "-n", "0"]);
    let main = inclusive["rows"].as_array().unwrap().iter().find(|row| row["function"] == "main").unwrap();
    assert!(main["share"].as_f64().unwrap() > 0.97, "{main}");

    let under = scratch.json(&["summary", "--under", "parse"]);
    let of_parse = under["under"]["share"].as_f64().unwrap();
    assert!(under["scope"]["kind"] == "under" && (of_parse - parse).abs() < 0.05, "{under}");
    assert_eq!(under["under"]["samples"], under["samples"]);
    let text = scratch.text(&["summary", "--under", "parse"]);
    assert!(
        text.contains("*** under stacks-program:parse") && text.contains("of the recording are under it"),
        "{text}"
    );

    // A sample with a stack is one of all samples.
    let total = |line: &(Vec<String>, u64)| line.1;
    let all = folded(&scratch.text(&["export", "-f", "folded", "--all-samples"]));
    let samples: u64 = all.iter().map(total).sum();
    let without: u64 = all.iter().filter(|line| line.0[0] == "[no stack]").map(total).sum();
    let top = scratch.json(&["top"]);
    assert_eq!(samples, top["total"]["cpu-clock"].as_u64().unwrap());
    assert_eq!(samples - without, stacks.iter().map(total).sum::<u64>());
    let part = without as f64 / samples as f64;
    assert!((0.4..0.6).contains(&part), "half of 2,000 a second have a stack, not {part}");

    let svg = scratch.path("flame.svg");
    scratch.text(&["flame", "-o", svg.to_str().unwrap()]);
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<?xml") && svg.contains("parse") && svg.contains("_start"));

    let by_thread = scratch.dwell(&["top", "--by", "caller", "--of", "leaf", "--cpu", "0"]);
    assert_eq!(by_thread.status, Some(1), "stacks are not kept by CPU");
    assert_eq!(scratch.dwell(&["summary", "--under", "nobody"]).status, Some(1));
    let flame = scratch.json(&["flame"]);
    let whole = |flame: &Value| {
        flame["nodes"].as_array().unwrap().iter().map(|n| n["own"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(whole(&flame), samples - without, "each stack ends in one frame");
    let functions = flame["functions"].as_array().unwrap();
    let leaf = functions.iter().find(|f| f["name"] == "leaf" && f["image"] == "stacks-program").unwrap();
    assert!(leaf["own"].as_u64().unwrap() as f64 > 0.9 * flame["total"].as_f64().unwrap(), "{leaf}");
    let analysis = &leaf["analysis"];
    let shares = analysis["causes"].as_array().unwrap().iter().map(|c| c["share_min"].as_f64().unwrap());
    assert!(analysis["samples"].as_f64().unwrap() > 100.0 && shares.sum::<f64>() <= 1.001, "{leaf}");
    assert_eq!(analysis["cpi"].is_number(), analysis["scale"] == "absolute", "{leaf}");
    let small = scratch.json(&["flame", "--frames", "2"]);
    assert_eq!((whole(&small), small["merged"].as_u64() > Some(0)), (samples - without, true));

    let svg = |options: &[&str]| {
        let file = scratch.path("flame.svg");
        scratch.text(&[&["flame", "-o", file.to_str().unwrap()], options].concat());
        std::fs::read_to_string(file).unwrap()
    };
    let binaries = svg(&["--color-by", "binary", "-e", "cpu-clock"]);
    assert!(binaries.contains("rgb(119,170,221)") && binaries.contains("leaf ("), "{binaries}");
    assert_ne!(svg(&["--color-by", "cause"]), svg(&["--color-by", "cpi"]));
    let same = svg(&["--diff", "latest", "latest"]);
    assert!(same.contains("may be chance; 0.0 % of A is gone") && !same.contains("leaf +"), "{same}");
    for (options, why) in [
        (&["-e", "nothing", "-o", "-"][..], "event 'nothing': not in recording"),
        (&["-e", "cpu-clock"][..], "flame: name a file for the picture: --output FILE"),
        (&["--diff", "latest", "nothing", "-o", "-"][..], "no recording 'nothing'"),
    ] {
        let refused = scratch.dwell(&[&["flame"], options].concat());
        assert_eq!(refused.status, Some(1), "{refused:?}");
        assert!(refused.stderr.starts_with("dwell: ") && refused.stderr.contains(why), "{refused:?}");
    }

    let unknown = scratch.dwell(&["callers", "nobody"]);
    assert_eq!(unknown.status, Some(1));
    assert!(
        unknown.stderr.starts_with("dwell: function 'nobody': in no call stack of recording"),
        "{unknown:?}"
    );
}

#[test]
fn frames_are_found_through_alignment_signals_threads_and_coroutines() {
    if !can_sample("stacks: frames") {
        return;
    }
    let scratch = Scratch::new();
    let aligned = recorded(&scratch, "aligned");
    let is_whole = |f: &[String]| f[0] == "_start" && ends(f, &["main", "aligned", "leaf"]);
    assert!(share(&aligned, is_whole) > 0.98, "{aligned:?}");
    let signal = recorded(&scratch, "signal");
    let handled = |f: &[String]| {
        let main = f.iter().position(|frame| frame == "main");
        f[0] == "_start" && main.is_some_and(|at| f[at + 1] == "interrupted") && ends(f, &["handler", "leaf"])
    };
    assert!(share(&signal, handled) > 0.98, "{signal:?}");
    let thread = recorded(&scratch, "thread");
    let started = |f: &[String]| f[0] != "[incomplete]" && f[0] != "_start" && ends(f, &["worker", "leaf"]);
    assert!(share(&thread, started) > 0.98, "{thread:?}");
    let coroutine = recorded(&scratch, "coroutine");
    // The C library gives the function that coroutines return to no unwind information.
    let routine = |f: &[String]| ends(f, &["routine", "leaf"]);
    assert!(share(&coroutine, routine) > 0.98, "{coroutine:?}");
}

#[test]
fn a_stack_that_is_too_deep_is_kept_as_far_as_it_goes_and_counted() {
    if !can_sample("stacks: deep") {
        return;
    }
    let scratch = Scratch::new();
    let stacks = recorded(&scratch, "deep");
    let cut = |f: &[String]| f[0] == "[incomplete]" && ends(f, &["deep", "deep", "deep", "leaf"]);
    assert!(share(&stacks, cut) > 0.98);
    let answer = scratch.json(&["callers", "leaf"]);
    let cause = &answer["incomplete"][0]["cause"];
    assert!(cause == "cut" || cause == "too-deep", "{answer}");
    let text = scratch.text(&["callers", "leaf"]);
    assert!(
        text.contains("of the stacks are deeper than the bytes that are recorded of a stack: stacks-program"),
        "{text}"
    );
}

#[test]
fn without_stacks_the_answers_say_how_to_record_them() {
    if !can_sample("stacks: none") {
        return;
    }
    let scratch = Scratch::new();
    let program = built(&scratch);
    let program = program.to_str().unwrap();
    let ended = scratch.dwell(&["record", "-e", "cpu-clock", "--stacks", "0", "--", program, "callers"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let refused = scratch.dwell(&["callers", "leaf"]);
    assert_eq!(refused.status, Some(1));
    assert!(
        refused.stderr.contains("no call stacks were recorded: record with '--stacks 500'"),
        "{refused:?}"
    );
    let lines = folded(&scratch.text(&["export", "-f", "folded"]));
    assert!(
        lines.iter().any(|(frames, _)| frames[0] == "stacks-program"),
        "one frame deep, as without stacks"
    );
}
