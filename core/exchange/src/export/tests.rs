//! Each format as its real reader reads it, where that is installed; the texts as they are.

use std::process::Command;

use dwell_query::answer::{InstructionPlace, PlaceEvent, PlaceFrame, Places, ProcedurePlaces};
use expect_test::expect;

use super::{Format, export};

fn frame(function: &str, line: u32) -> PlaceFrame {
    PlaceFrame { function: Some(function.into()), file: Some("/src/a.c".into()), line: Some(line) }
}

fn places() -> Places {
    let instruction =
        |address: u64, samples: u64, executions: f64, frames: Vec<PlaceFrame>| InstructionPlace {
            address,
            samples: vec![samples, samples / 10],
            head_samples: samples as f64,
            executions: Some(executions),
            frames,
        };
    let procedure = |name: &str, address: u64, instructions: Vec<InstructionPlace>| ProcedurePlaces {
        procedure: name.into(),
        demangled: name.into(),
        image: "/usr/bin/prog".into(),
        build_id: "abcdef".into(),
        address,
        file: Some("/src/a.c".into()),
        line: Some(3),
        instructions,
    };
    Places {
        epochs: vec!["e1".into()],
        events: vec![
            PlaceEvent { name: "cpu-clock".into(), period: 1_000_000, unit: "ns".into() },
            PlaceEvent { name: "page-faults".into(), period: 1, unit: "events".into() },
        ],
        period_cycles: Some(2e6),
        start_ns: 1,
        duration_ns: 5_000_000_000,
        procedures: vec![
            procedure(
                "hot",
                0x1000,
                vec![
                    instruction(0x1000, 70, 100.0, vec![frame("hot", 4)]),
                    instruction(0x1004, 20, 100.0, vec![frame("mix", 9), frame("hot", 5)]),
                ],
            ),
            procedure("cold;1", 0x2000, vec![instruction(0x2000, 10, 3.0, vec![frame("cold", 12)])]),
        ],
        notes: vec!["a note".into()],
    }
}

fn text(format: Format) -> String {
    String::from_utf8(export(&places(), format)).unwrap()
}

#[test]
fn folded() {
    expect![[r#"
        prog;cold:1 10
        prog;hot 70
        prog;hot;mix 20
    "#]]
    .assert_eq(&text(Format::Folded));
}

#[test]
fn speedscope_has_every_sample_in_its_schema() {
    let file: serde_json::Value = serde_json::from_str(&text(Format::Speedscope)).unwrap();
    let profile = &file["profiles"][0];
    assert_eq!((&profile["type"], &profile["unit"]), (&"sampled".into(), &"nanoseconds".into()));
    assert_eq!(profile["endValue"], 100_000_000);
    let frames = file["shared"]["frames"].as_array().unwrap();
    let (samples, weights) = (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
    assert_eq!(samples.len(), weights.len());
    for index in samples.iter().flat_map(|s| s.as_array().unwrap()) {
        assert!(frames[index.as_u64().unwrap() as usize]["name"].is_string());
    }
}

/// What a program that reads such files says; `None` where it is not installed.
fn read(program: &str, arguments: &[&str], format: Format) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile");
    std::fs::write(&file, export(&places(), format)).unwrap();
    match Command::new(program).args(arguments).arg(&file).env("PPROF_TMPDIR", folder.path()).output() {
        Ok(ended) => {
            assert!(ended.status.success(), "{program}: {}", String::from_utf8_lossy(&ended.stderr));
            Some(String::from_utf8(ended.stdout).unwrap())
        }
        Err(error) => {
            println!("SKIPPED export read by {program}: {error}");
            None
        }
    }
}

#[test]
fn callgrind_annotate_reads_it() {
    let Some(told) = read("callgrind_annotate", &["--auto=no", "--threshold=100"], Format::Callgrind) else {
        return;
    };
    assert!(told.contains("200,000,000 (100.0%)") && told.contains("PROGRAM TOTALS"), "{told}");
    assert!(told.contains("/src/a.c:hot") && told.contains("/src/a.c:cold;1"), "{told}");
}

#[test]
fn go_tool_pprof_reads_it() {
    let arguments = ["tool", "pprof", "-top", "-symbolize=none", "-nodecount=10"];
    let Some(told) = read("go", &arguments, Format::Pprof) else { return };
    assert!(told.contains("Duration: 5s, Total samples = 100ms"), "{told}");
    let row =
        |name: &str| told.lines().find(|l| l.split_whitespace().nth(5) == Some(name)).unwrap().to_owned();
    assert!(row("hot").contains("70ms") && row("hot").contains("90ms"), "{told}");
    assert!(row("mix").contains("20ms"), "{told}");
    let executed = read(
        "go",
        &["tool", "pprof", "-top", "-symbolize=none", "-sample_index=instructions"],
        Format::Pprof,
    );
    assert!(executed.is_some_and(|t| t.contains("Total samples = 203")));
}
