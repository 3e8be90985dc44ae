//! One kernel for each cause of a stall, sampled for real: what the analysis says must be what the kernel's source says
//! beside its code (`test-fixtures/kernels/x86-64/README.md`).
#![cfg(target_arch = "x86_64")]

mod support;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::Value;
use support::{Scratch, can_sample};

/// The machine is shared, and what its neighbours do to caches and clocks shows in a recording of a quarter second. What
/// is wrong in the analysis is wrong each time.
const RECORDINGS_MAX: usize = 4;
/// Marked lines must hold this part of the procedure's time.
const MARKED_PART_MIN: f64 = 1.0 / 3.0;

/// What a marked line must be said to wait for: one of these.
struct Mark {
    line: u64,
    causes: Vec<(String, Option<u64>)>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../test-fixtures/kernels/x86-64").canonicalize().unwrap()
}

/// A kernel's program, all of them built if they are not.
fn program(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let into = BUILT.get_or_init(|| {
        let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
        let built = Command::new(folder().join("build.sh")).arg(&into).output().unwrap();
        assert!(built.status.success(), "build.sh: {}", String::from_utf8_lossy(&built.stderr));
        into
    });
    into.join(name)
}

fn marks(name: &str) -> Vec<Mark> {
    let text = fs::read_to_string(folder().join(format!("{name}.s"))).unwrap();
    let line_of = |label: &str| {
        let end = format!("# is {label}");
        let found = text.lines().position(|l| l.ends_with(&end));
        found.unwrap_or_else(|| panic!("{name}: no line {end}")) as u64 + 1
    };
    let mark = |(line, text): (u64, &str)| {
        let (_, causes) = text.split_once("# culprit: ")?;
        let causes = causes.split(" | ").map(|cause| match cause.split_once(" by ") {
            Some((cause, "itself")) => (cause.to_owned(), Some(line)),
            Some((cause, label)) => (cause.to_owned(), Some(line_of(label))),
            None => (cause.to_owned(), None),
        });
        Some(Mark { line, causes: causes.collect() })
    };
    (1..).zip(text.lines()).filter_map(mark).collect()
}

/// Samples a kernel and holds the listing against its marks.
fn check(name: &str) {
    if !can_sample(&format!("the kernel {name}")) {
        return;
    }
    let marks = marks(name);
    assert!(!marks.is_empty(), "{name} has no mark");
    let mut failures = Vec::new();
    let met = loop {
        match judge(name, &marks, &recorded(name)) {
            Ok(met) => break met,
            Err(why) => failures.push(why),
        }
        assert!(
            failures.len() < RECORDINGS_MAX,
            "{name}, in each of {RECORDINGS_MAX} recordings: {failures:#?}"
        );
    };
    failures.iter().for_each(|why| eprintln!("{name}, recorded again: {why}"));
    met.iter().for_each(|which| eprintln!("{name}, {which}"));
}

/// The listing of a recording of its own.
fn recorded(name: &str) -> Value {
    let (scratch, program) = (Scratch::new(), program(name));
    let path = program.to_str().unwrap();
    let ended = scratch.dwell(&["record", "-e", "cpu-clock", "-F", "5000", "--", path]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    scratch.json(&["annotate", &format!("{name}:kernel")])
}

/// Returns the alternatives of a line that were met, if the line has some; otherwise the differences between the
/// listing and its marks.
fn judge(name: &str, marks: &[Mark], listing: &Value) -> Result<Vec<String>, String> {
    let instructions = listing["instructions"].as_array().unwrap();
    let time = |i: &Value| i["head_samples"].as_f64().unwrap();
    let (mut marked, all) = (0.0, instructions.iter().map(time).sum::<f64>());
    let mut alternatives = Vec::new();
    for mark in marks {
        let own: Vec<&Value> = instructions.iter().filter(|i| i["line"] == mark.line).collect();
        assert!(!own.is_empty(), "{name}:{} has no instruction", mark.line);
        let seen: f64 = own.iter().map(|i| time(i)).sum();
        let met = |i: &&Value| !met(i, mark, instructions).is_empty();
        let right: f64 = own.iter().filter(|i| met(i)).map(|i| time(i)).sum();
        if right < 0.5 * seen {
            return Err(format!("line {}: {:#}", mark.line, own[0]));
        }
        marked += seen;
        alternatives.extend(alternatives_met(mark, &own, instructions));
    }
    match marked >= MARKED_PART_MIN * all {
        true => Ok(alternatives),
        false => Err(format!("{marked} of {all} samples are where they should be")),
    }
}

/// Returns the alternatives of a line that the analysis named, out of all that its instructions show; nothing if there
/// is only one.
fn alternatives_met(mark: &Mark, own: &[&Value], instructions: &[Value]) -> Option<String> {
    if mark.causes.len() < 2 {
        return None;
    }
    let all: BTreeSet<&str> = own.iter().flat_map(|i| met(i, mark, instructions)).collect();
    let all: Vec<&str> = all.into_iter().collect();
    Some(format!(
        "line {}: met {} of {} alternatives: {}",
        mark.line,
        all.len(),
        mark.causes.len(),
        all.join(", ")
    ))
}

/// The causes of the mark that an instruction's stalls have, with the right one to blame.
fn met<'m>(instruction: &Value, mark: &'m Mark, instructions: &[Value]) -> Vec<&'m str> {
    let stalls = instruction["stalls"].as_array().unwrap();
    let line_at = |address: &Value| {
        let culprit = instructions.iter().find(|i| !address.is_null() && i["address"] == *address)?;
        culprit["line"].as_u64()
    };
    let is_met = |(cause, line): &&(String, Option<u64>)| {
        let is_unseen = cause == "unseen" && stalls.iter().all(|s| s["kind"] != "dynamic");
        let is_named = stalls
            .iter()
            .any(|s| s["cause"] == *cause && line.is_none_or(|l| line_at(&s["culprit_address"]) == Some(l)));
        is_unseen || is_named
    };
    mark.causes.iter().filter(is_met).map(|(cause, _)| cause.as_str()).collect()
}

macro_rules! kernels {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_kernel_is_tested() {
            let tested = [$(stringify!($name)),*];
            for file in fs::read_dir(folder()).unwrap() {
                let name = file.unwrap().file_name().into_string().unwrap();
                if let Some(name) = name.strip_suffix(".s") {
                    assert!(tested.contains(&name), "{name} has no test");
                }
            }
        }
    };
}

kernels! {
    aliasing dcache_l2 dcache_l3 dcache_memory dependency divide dtlb fence forwarding icache itlb locked mispredict
    multiply page_fault store_burst system_call
}
