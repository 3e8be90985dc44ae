//! The two stories of "Incremental Call-Path Profiling" (Bernat and Miller 2007, section 5): what is slow on one of several paths.

mod support;

use std::{collections::BTreeMap, path::PathBuf, process::Command};

use support::Scratch;

/// Runs `core/probe/tests/stories.c` and returns, by the caller of a function, its calls and the sum of a metric.
fn by_caller(story: &str, function: &str, metric: &str) -> BTreeMap<String, [u64; 2]> {
    let scratch = Scratch::new();
    let program = scratch.path("stories");
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../probe/tests/stories.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-pthread", "-o"]).args([&program, &source]);
    assert!(gcc.status().unwrap().success());
    let program = program.to_str().unwrap();
    let ended = scratch.dwell(&["callpaths", "--json", "-m", metric, function, "--", program, story]);
    let answer: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let paths = answer["functions"][0]["paths"].as_array().unwrap();
    let of = |path: &serde_json::Value| {
        let caller = path["frames"].as_array().unwrap().last().unwrap()["function"].as_str().unwrap();
        let numbers =
            [&path["calls"], &path["metrics"][metric]["sum"]].map(|number| number.as_u64().unwrap());
        (caller.to_owned(), numbers)
    };
    paths.iter().map(of).collect()
}

#[test]
fn a_wait_is_long_on_one_path() {
    let waits = by_caller("wait", "wait_gather", "blocked");
    assert_eq!(waits.values().map(|[calls, _]| *calls).collect::<Vec<_>>(), [20; 3]);
    // Elsewhere the neighbour is as late as the machine is busy.
    let blocked = |caller| waits[caller][1];
    let short = blocked("load_links").max(blocked("update_momenta"));
    assert!(blocked("conjugate_gradient") > 2 * short, "{waits:?}");
}

#[test]
fn a_look_up_is_slow_for_one_caller() {
    let lookups = by_caller("lookup", "find_symbol", "cpu");
    assert_eq!(lookups.values().map(|[calls, _]| *calls).collect::<Vec<_>>(), [200; 3]);
    let all: u64 = lookups.values().map(|[_, cpu]| cpu).sum();
    assert!(lookups["resolve_alias"][1] * 10 > all * 9, "{lookups:?}");
}
