//! Tests of each format with its real reader, if that is installed, and of the texts as they are.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use dwell_query::answer::{InstructionPlace, PlaceEvent, PlaceFrame, Places, ProcedurePlaces};
use expect_test::expect;
use opentelemetry_proto::tonic::profiles::v1development::ProfilesData;

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
        image_base: 0,
        address_over_offset: 0x400,
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
    String::from_utf8(export(&places(), None, format)).unwrap()
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

/// Returns the output of a program that reads such files; `None` if it is not installed.
fn read(program: &str, arguments: &[&str], format: Format) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile");
    std::fs::write(&file, export(&places(), None, format)).unwrap();
    match Command::new(program).args(arguments).arg(&file).env("PPROF_TMPDIR", folder.path()).output() {
        Ok(ended) => {
            let complaints = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success(), "{program}: {complaints}");
            let output = String::from_utf8(ended.stdout).unwrap();
            let is_quiet = ["WARNING", "malformed"]
                .iter()
                .all(|word| !(complaints.to_string() + &output).contains(word));
            assert!(is_quiet, "{program}: {complaints} {output}");
            Some(output)
        }
        Err(error) => {
            println!("SKIPPED export read by {program}: {error}");
            None
        }
    }
}

#[test]
fn callgrind_annotate_reads_it() {
    let Some(output) = read("callgrind_annotate", &["--auto=no", "--threshold=100"], Format::Callgrind)
    else {
        return;
    };
    assert!(output.contains("200,000,000 (100.0%)") && output.contains("PROGRAM TOTALS"), "{output}");
    assert!(output.contains("/src/a.c:hot") && output.contains("/src/a.c:cold;1"), "{output}");
}

#[test]
fn go_tool_pprof_reads_it() {
    let arguments = ["tool", "pprof", "-top", "-symbolize=none", "-nodecount=10"];
    let Some(output) = read("go", &arguments, Format::Pprof) else { return };
    assert!(output.contains("Duration: 5s, Total samples = 100ms"), "{output}");
    let row =
        |name: &str| output.lines().find(|l| l.split_whitespace().nth(5) == Some(name)).unwrap().to_owned();
    assert!(row("hot").contains("70ms") && row("hot").contains("90ms"), "{output}");
    assert!(row("mix").contains("20ms"), "{output}");
    let executed = read(
        "go",
        &["tool", "pprof", "-top", "-symbolize=none", "-sample_index=instructions"],
        Format::Pprof,
    );
    assert!(executed.is_some_and(|t| t.contains("Total samples = 203")));
}

#[test]
fn perf_script() {
    let text = text(Format::PerfScript);
    assert_eq!(text.matches("cpu-clock").count(), 100, "a record for each sample");
    let last = text.rfind("prog").map_or("", |_| text.split("\n\n").nth(89).unwrap());
    expect![[r#"
        prog             0 0.089000:    1000000 cpu-clock: 
        	            1004 mix (inlined)
        	            1004 hot+0x4 (/usr/bin/prog)"#]]
    .assert_eq(last);
}

#[test]
fn otlp_decodes_by_the_published_schema_and_every_index_is_in_its_table() {
    let data = <ProfilesData as prost::Message>::decode(&export(&places(), None, Format::Otlp)[..]).unwrap();
    let d = data.dictionary.unwrap();
    let profiles = &data.resource_profiles[0].scope_profiles[0].profiles;
    let name = |i: i32| d.string_table[i as usize].as_str();
    let sums: Vec<(&str, &str, i64)> = profiles
        .iter()
        .map(|p| {
            let kind = p.sample_type.as_ref().unwrap();
            let sum = p.samples.iter().flat_map(|s| &s.values).sum();
            (name(kind.type_strindex), name(p.period_type.as_ref().unwrap().type_strindex), sum)
        })
        .collect();
    assert_eq!(
        sums,
        [
            ("samples", "cpu-clock", 100),
            ("page-faults", "page-faults", 10),
            ("instructions", "instructions", 203)
        ]
    );
    for sample in profiles.iter().flat_map(|p| &p.samples) {
        for &location in &d.stack_table[sample.stack_index as usize].location_indices {
            let location = &d.location_table[location as usize];
            assert_eq!(
                name(d.mapping_table[location.mapping_index as usize].filename_strindex),
                "/usr/bin/prog"
            );
            for line in &location.lines {
                assert!(!name(d.function_table[line.function_index as usize].name_strindex).is_empty());
            }
        }
    }
    assert!(d.string_table[0].is_empty() && d.stack_table[0].location_indices.is_empty(), "index 0 is none");
    let inlined = d.location_table.iter().find(|l| l.lines.len() == 2).unwrap();
    let names: Vec<_> = inlined
        .lines
        .iter()
        .map(|l| (name(d.function_table[l.function_index as usize].name_strindex), l.line))
        .collect();
    assert_eq!(names, [("mix", 9), ("hot", 5)], "innermost first");
}

/// Returns the program in `tests/otlp-collector`, built with the collector's own library. Returns `None` and prints a
/// message if it cannot be built.
fn collector(folder: &Path) -> Option<PathBuf> {
    let go = |arguments: &[&str]| {
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/otlp-collector");
        let mut command = Command::new("go");
        command
            .current_dir(sources)
            .env("GOTOOLCHAIN", "local")
            .env("GOFLAGS", "-buildvcs=false")
            .args(arguments);
        match command.output() {
            Ok(ended) if ended.status.success() => Ok(()),
            Ok(ended) => Err(String::from_utf8_lossy(&ended.stderr).trim().replace('\n', "; ")),
            Err(error) => Err(error.to_string()),
        }
    };
    // The Go version may be older than the sources require, or there may be no network for missing modules.
    if let Err(why) = go(&["mod", "download"]) {
        println!("SKIPPED the_opentelemetry_collector_reads_it: go mod download: {why}");
        return None;
    }
    let program = folder.join("collector");
    go(&["build", "-o", program.to_str().unwrap(), "."]).unwrap();
    Some(program)
}

/// Returns a message with defaults in place of missing parts, because the collector writes them out.
fn with_defaults(message: &[u8]) -> ProfilesData {
    let mut data = <ProfilesData as prost::Message>::decode(message).unwrap();
    for resource in &mut data.resource_profiles {
        resource.resource.get_or_insert_default();
    }
    for attribute in &mut data.dictionary.as_mut().unwrap().attribute_table {
        attribute.value.get_or_insert_default();
    }
    data
}

#[test]
fn the_opentelemetry_collector_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = collector(folder.path()) else { return };
    let [sent, onward] = ["sent", "onward"].map(|name| folder.path().join(name));
    std::fs::write(&sent, export(&places(), None, Format::Otlp)).unwrap();
    let ended = Command::new(program).args([&sent, &onward]).output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
    expect![[r#"
        samples: 100 count of cpu-clock, one each 1000000 nanoseconds, in 5000000000 ns
          10 0x2000 cold;1@/src/a.c:12
          20 0x1004 mix@/src/a.c:9 hot@/src/a.c:5
          70 0x1000 hot@/src/a.c:4
        page-faults: 10 count of page-faults, one each 1 events, in 5000000000 ns
          1 0x2000 cold;1@/src/a.c:12
          2 0x1004 mix@/src/a.c:9 hot@/src/a.c:5
          7 0x1000 hot@/src/a.c:4
        instructions: 203 count of instructions, one each 1 events, in 5000000000 ns
          100 0x1000 hot@/src/a.c:4
          100 0x1004 mix@/src/a.c:9 hot@/src/a.c:5
          3 0x2000 cold;1@/src/a.c:12
        /usr/bin/prog: process.executable.build_id.gnu abcdef
    "#]]
    .assert_eq(&String::from_utf8(ended.stdout).unwrap());
    let [sent, onward] = [sent, onward].map(|file| with_defaults(&std::fs::read(file).unwrap()));
    assert_eq!(sent, onward, "the collector knows each field");
}

/// Inferno adds up the periods of records: a sample of `cpu-clock` counts as a million nanoseconds.
#[test]
fn inferno_folds_perf_script_to_our_folded_stacks() {
    use inferno::collapse::{Collapse, perf::Folder};
    let mut folded = Vec::new();
    Folder::default().collapse(&export(&places(), None, Format::PerfScript)[..], &mut folded).unwrap();
    let folded = String::from_utf8(folded).unwrap();
    assert_eq!(folded.replace("000000\n", "\n"), text(Format::Folded));
}

#[test]
fn inferno_draws_a_flame_graph_with_every_sample() {
    let mut graph = Vec::new();
    let mut options = inferno::flamegraph::Options::default();
    inferno::flamegraph::from_lines(&mut options, text(Format::Folded).lines(), &mut graph).unwrap();
    let graph = String::from_utf8(graph).unwrap();
    let titles = graph.split("<title>").skip(1).map(|rest| rest.split("</title>").next().unwrap());
    expect![[r#"
        cold:1 (10 samples, 10.00%)
        all (100 samples, 100%)
        prog (100 samples, 100.00%)
        hot (90 samples, 90.00%)
        mix (20 samples, 20.00%)
    "#]]
    .assert_eq(&titles.map(|title| format!("{title}\n")).collect::<String>());
}

/// Returns a profile as the format's own library writes it.
fn by_its_own_library() -> serde_json::Value {
    use fxprof_processed_profile::{
        CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile, ReferenceTimestamp,
        SamplingInterval, Timestamp,
    };
    let start = Timestamp::from_millis_since_reference(0.0);
    let now = ReferenceTimestamp::from_millis_since_unix_epoch(0.0);
    let mut profile = Profile::new("p", now, SamplingInterval::from_millis(1));
    let process = profile.add_process("p", 1, start);
    let thread = profile.add_thread(process, 1, start, true);
    let frame = Frame::Label(profile.intern_string("f"));
    let info = FrameInfo { frame, category_pair: CategoryHandle::OTHER.into(), flags: FrameFlags::empty() };
    let stack = profile.intern_stack_frames(thread, std::iter::once(info));
    profile.add_sample(thread, start, stack, CpuDelta::ZERO, 1);
    serde_json::to_value(&profile).unwrap()
}

/// Asserts that every key of `theirs`, including those of nested tables, is in `ours`.
fn assert_has_keys(ours: &serde_json::Value, theirs: &serde_json::Value, path: &str) {
    let Some(object) = theirs.as_object() else { return };
    for (key, value) in object.iter().filter(|(k, _)| *k != "threadCPUDelta") {
        let own = ours.get(key).unwrap_or_else(|| panic!("{path} has no {key}"));
        assert_has_keys(own, value, &format!("{path}.{key}"));
    }
}

#[test]
fn firefox_has_the_tables_that_its_own_library_writes() {
    let ours: serde_json::Value = serde_json::from_str(&text(Format::Firefox)).unwrap();
    let theirs = by_its_own_library();
    assert_eq!(ours["meta"]["preprocessedProfileVersion"], theirs["meta"]["preprocessedProfileVersion"]);
    assert_has_keys(&ours["meta"], &theirs["meta"], "meta");
    assert_has_keys(&ours["threads"][0], &theirs["threads"][0], "thread");
    for thread in ours["threads"].as_array().unwrap() {
        for (name, table) in thread.as_object().unwrap().iter().filter(|(_, t)| t["length"].is_number()) {
            for (column, values) in table.as_object().unwrap() {
                let length =
                    values.as_array().map(Vec::len).or_else(|| table["length"].as_u64().map(|n| n as usize));
                assert_eq!(length.map(|n| n as u64), table["length"].as_u64(), "{name}.{column}");
            }
        }
    }
}

#[test]
fn firefox_knows_lines_addresses_and_inlined_calls() {
    let profile: serde_json::Value = serde_json::from_str(&text(Format::Firefox)).unwrap();
    let thread = &profile["threads"][0];
    let at = |table: &str, column: &str, row: &serde_json::Value| {
        thread[table][column][row.as_u64().unwrap() as usize].clone()
    };
    let stack = &thread["samples"]["stack"][1];
    let (inner, outer) =
        (at("stackTable", "frame", stack), at("stackTable", "frame", &at("stackTable", "prefix", stack)));
    let fields = |frame: &serde_json::Value| {
        let function = at("frameTable", "func", frame);
        let name =
            thread["stringArray"][at("funcTable", "name", &function).as_u64().unwrap() as usize].clone();
        (
            name,
            at("frameTable", "line", frame),
            at("frameTable", "address", frame),
            at("frameTable", "inlineDepth", frame),
        )
    };
    assert_eq!(fields(&inner), ("mix".into(), 9.into(), 0x1004.into(), 1.into()));
    assert_eq!(fields(&outer), ("hot".into(), 5.into(), 0x1004.into(), 0.into()));
    assert_eq!(thread["samples"]["weight"], serde_json::json!([70, 20, 10]));
    assert_eq!(profile["libs"][0]["breakpadId"].as_str().unwrap().len(), 33);
}
