//! What data samples refer to, end to end: a program that loads from one kind after the other is recorded, and each kind has
//! its share.
#![cfg(target_arch = "x86_64")]

mod support;

use std::{path::Path, process::Command};

use support::{Scratch, can_sample};

/// Each of the program's nine parts has about a ninth of the samples; some of them fall on an instruction of its loop that
/// loads nothing. What the machine's other users do moves them by less than half of that.
const SHARE_MIN: f64 = 0.045;

#[test]
fn each_kind_of_data_has_the_expected_share() {
    if !can_sample("the data that samples access") {
        return;
    }
    let scratch = Scratch::new();
    let (source, program) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data.c"), scratch.path("loads"));
    let built = Command::new("gcc").args(["-O1", "-g", "-pthread", "-o"]).arg(&program).arg(source).status();
    assert!(built.unwrap().success());
    let file = scratch.path("mapped-file");
    let (program, file) = (program.to_str().unwrap(), file.to_str().unwrap());
    let arguments =
        ["record", "--data", "-e", "cpu-clock", "-F", "2000", "--paths", "0", "--windows", "0", "--"];
    scratch.text(&[&arguments[..], &[program, "200", file]].concat());

    let top = scratch.json(&["top", "--by", "data", "-n", "0"]);
    let rows = top["rows"].as_array().unwrap();
    let share = |kind: &str, name: &str| {
        let row = rows.iter().find(|row| row["data_kind"] == kind && row["data"] == name);
        row.unwrap_or_else(|| panic!("no {kind} {name}: {top:#}"))["share"].as_f64().unwrap()
    };
    for (kind, name) in [
        ("symbol", "table_of_constants"),
        ("symbol", "table_of_zeros"),
        ("heap", "[heap]"),
        ("anonymous", "[anonymous]"),
        ("file", file),
        ("thread-local", "[thread-local]"),
    ] {
        assert!(share(kind, name) > SHARE_MIN, "{kind} {name}: {top:#}");
    }
    assert!(share("stack", "[stack]") > 2.0 * SHARE_MIN, "of two threads: {top:#}");
    let (all, sum) = (rows.last().unwrap()["cumulative_share"].as_f64().unwrap(), &top["total"]["cpu-clock"]);
    assert!((all - 1.0).abs() < 1e-9, "{top:#}");
    let samples: u64 = rows.iter().map(|row| row["samples"]["cpu-clock"].as_u64().unwrap()).sum();
    assert_eq!(sum.as_u64(), Some(samples));
    let symbol = rows.iter().find(|row| row["data"] == "table_of_zeros").unwrap();
    assert_eq!(symbol["image"], program);

    let of_program = scratch.json(&["top", "--by", "data", "--image", program]);
    let kinds = of_program["rows"].as_array().unwrap().iter().map(|row| row["data_kind"].as_str().unwrap());
    assert!(kinds.into_iter().all(|kind| ["symbol", "image"].contains(&kind)), "{of_program:#}");
    assert!(scratch.text(&["top", "--by", "data"]).contains("table_of_zeros"));
    let images = scratch.json(&["top", "--by", "image", "-n", "0"]);
    let ids = images["rows"].as_array().unwrap().iter().map(|row| row["build_id"].as_str().unwrap());
    assert!(ids.into_iter().all(|id| !id.starts_with("data:")), "data is no image: {images:#}");

    scratch.text(&["record", "-e", "cpu-clock", "--", "true"]);
    let refused = scratch.dwell(&["top", "--by", "data"]);
    assert!(refused.status == Some(1) && refused.stderr.contains("record with '--data'"), "{refused:?}");
}
