//! Tests of exports with call stacks, by readers where a library has one.

use std::collections::BTreeMap;

use dwell_query::answer::{
    InstructionPlace, PlaceEvent, Places, ProcedurePlaces, StackFunction, StackNode, Stacks,
};
use opentelemetry_proto::tonic::profiles::v1development::ProfilesData;
use prost::Message;

use super::{Format, Stacked, export, flame_graph};
use crate::pprof::Profile;

fn event() -> PlaceEvent {
    PlaceEvent { name: "cpu-clock".into(), period: 1_000_000, unit: "ns".into() }
}

/// Stacks of two applications: `main` calls `parse`, into which `next` is inlined, and the kernel; one stack is incomplete.
fn stacks() -> Stacks {
    let function = |name: &str, image: &str| StackFunction {
        name: name.into(),
        image: image.into(),
        path: format!("/usr/bin/{image}"),
        build_id: if image == "kernel" { "kernel".into() } else { "abcdef".into() },
        image_base: 0x40_0000,
        kernel: image == "kernel",
    };
    let node = |parent: Option<u32>, app, function, inlined, samples| StackNode {
        parent,
        app,
        function,
        inlined,
        address: 0x40_1000 + u64::from(function),
        offset: 0x1000 + u64::from(function),
        line: (!inlined).then(|| ("/src/a.c".to_owned(), 7)),
        samples,
    };
    Stacks {
        epochs: vec!["e1".into()],
        event: event(),
        all_samples: 20,
        apps: vec!["prog".into(), "other".into()],
        functions: vec![
            function("main", "prog"),
            function("parse", "prog"),
            function("next", "prog"),
            function("do_read", "kernel"),
            function("[incomplete]", ""),
        ],
        nodes: vec![
            node(None, 0, 0, false, 1),
            node(Some(0), 0, 1, false, 2),
            node(Some(1), 0, 2, true, 4),
            node(Some(2), 0, 3, false, 3),
            node(None, 1, 4, false, 0),
            node(Some(4), 1, 1, false, 2),
        ],
        incomplete: BTreeMap::from([(("cut".into(), "prog".into()), 2)]),
        notes: Vec::new(),
    }
}

/// All samples of these places: 20, of which 12 have a stack.
fn places() -> Places {
    let place = |address: u64, samples: u64| InstructionPlace {
        address,
        samples: vec![samples],
        head_samples: samples as f64,
        executions: None,
        frames: Vec::new(),
    };
    let procedure = |name: &str, image: &str, instructions| ProcedurePlaces {
        procedure: name.into(),
        demangled: name.into(),
        image: format!("/usr/bin/{image}"),
        build_id: if image == "kernel" { "kernel".into() } else { "abcdef".into() },
        address: 0x1000,
        image_base: 0,
        address_over_offset: 0,
        file: None,
        line: None,
        instructions,
    };
    Places {
        epochs: vec!["e1".into()],
        events: vec![event()],
        period_cycles: None,
        start_ns: 1,
        duration_ns: 1,
        // One sample with a stack in `next` is at an address that has no place, as if the binary was another one.
        procedures: vec![
            procedure("main", "prog", vec![place(0x40_1000, 3)]),
            procedure("parse", "prog", vec![place(0x40_1001, 9), place(0x40_1002, 3)]),
            procedure("do_read", "kernel", vec![place(0x40_1003, 5)]),
        ],
        notes: Vec::new(),
    }
}

fn exported(format: Format, all_samples: bool) -> Vec<u8> {
    export(&places(), Some(Stacked { stacks: &stacks(), all_samples }), format)
}

const FOLDED: &str = "\
[incomplete];parse 2
main 1
main;parse 2
main;parse;next 4
main;parse;next;do_read 3
";

#[test]
fn folded_stacks_are_whole_and_the_others_can_be_added() {
    let text = |all| String::from_utf8(exported(Format::Folded, all)).unwrap();
    assert_eq!(text(false), FOLDED);
    let all = text(true);
    let samples = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    assert_eq!(all.lines().map(samples).sum::<u64>(), 20);
    let others: Vec<&str> = all.lines().filter(|line| line.starts_with("[no stack];")).collect();
    assert_eq!(others, ["[no stack];kernel;do_read 2", "[no stack];prog;main 1", "[no stack];prog;parse 5"]);
}

#[test]
fn pprof_and_otlp_can_have_every_sample_once() {
    let profile = Profile::decode(&exported(Format::Pprof, true)[..]).unwrap();
    assert_eq!(profile.sample.iter().map(|sample| sample.value[0]).sum::<i64>(), 20);
    assert_eq!(profile.sample.iter().map(|sample| sample.value[1]).sum::<i64>(), 20_000_000);
    let alone = profile.sample.iter().filter(|sample| sample.location_id.len() == 1);
    assert_eq!(alone.map(|sample| sample.value[0]).sum::<i64>(), 8 + 1, "also that of `main` alone");

    let data = ProfilesData::decode(&exported(Format::Otlp, true)[..]).unwrap();
    let [profile] = &data.resource_profiles[0].scope_profiles[0].profiles[..] else { panic!("one event") };
    assert_eq!(profile.samples.iter().map(|sample| sample.values[0]).sum::<i64>(), 20);
}

#[test]
fn inferno_folds_the_records_of_perf_script_to_the_same_stacks() {
    use inferno::collapse::{Collapse, perf::Folder};
    let mut folded = Vec::new();
    Folder::default().collapse(&exported(Format::PerfScript, false)[..], &mut folded).unwrap();
    let folded = String::from_utf8(folded).unwrap().replace("000000\n", "\n");
    let mut lines: Vec<String> =
        folded.lines().map(|line| line.split_once(';').unwrap().1.to_owned() + "\n").collect();
    lines.sort();
    assert_eq!(lines.concat(), FOLDED, "each begins with the command");
}

#[test]
fn pprof_and_otlp_have_a_location_for_each_frame() {
    let profile = Profile::decode(&exported(Format::Pprof, false)[..]).unwrap();
    let function = |id: u64| &profile.string_table[profile.function[id as usize - 1].name as usize];
    let frames = |sample: &crate::pprof::Sample| {
        let lines = sample.location_id.iter().flat_map(|id| &profile.location[*id as usize - 1].line);
        let mut names: Vec<&str> = lines.map(|line| function(line.function_id).as_str()).collect();
        names.reverse();
        format!("{} {}\n", names.join(";"), sample.value[0])
    };
    let mut lines: Vec<String> = profile.sample.iter().map(frames).collect();
    lines.sort();
    assert_eq!(lines.concat(), FOLDED);
    let deepest = profile.sample.iter().map(|sample| sample.location_id.len()).max();
    assert_eq!(deepest, Some(3), "an inlined function shares the location of its caller");

    let data = ProfilesData::decode(&exported(Format::Otlp, false)[..]).unwrap();
    let tables = data.dictionary.unwrap();
    let samples = &data.resource_profiles[0].scope_profiles[0].profiles[0].samples;
    let named = |index: i32| {
        let function = &tables.function_table[index as usize];
        tables.string_table[function.name_strindex as usize].as_str()
    };
    let mut lines: Vec<String> = samples
        .iter()
        .map(|sample| {
            let locations = &tables.stack_table[sample.stack_index as usize].location_indices;
            let lines = locations.iter().flat_map(|at| &tables.location_table[*at as usize].lines);
            let mut names: Vec<&str> = lines.map(|line| named(line.function_index)).collect();
            names.reverse();
            format!("{} {}\n", names.join(";"), sample.values[0])
        })
        .collect();
    lines.sort();
    assert_eq!(lines.concat(), FOLDED);
}

#[test]
fn browsers_formats_have_the_same_stacks() {
    let file: serde_json::Value = serde_json::from_slice(&exported(Format::Firefox, false)).unwrap();
    let thread = &file["threads"][0];
    let list = |table: &str, column: &str| thread[table][column].as_array().unwrap().clone();
    let (prefix, frame) = (list("stackTable", "prefix"), list("stackTable", "frame"));
    let (functions, names) = (list("frameTable", "func"), list("funcTable", "name"));
    let mut lines = Vec::new();
    for (stack, weight) in list("samples", "stack").iter().zip(list("samples", "weight")) {
        let (mut at, mut path) = (stack.as_u64(), Vec::new());
        while let Some(index) = at {
            let function = functions[frame[index as usize].as_u64().unwrap() as usize].as_u64().unwrap();
            let name = names[function as usize].as_u64().unwrap();
            path.insert(0, thread["stringArray"][name as usize].as_str().unwrap().to_owned());
            at = prefix[index as usize].as_u64();
        }
        lines.push(format!("{} {weight}\n", path.join(";")));
    }
    lines.sort();
    assert_eq!(lines.concat(), FOLDED);

    let file: serde_json::Value = serde_json::from_slice(&exported(Format::Speedscope, false)).unwrap();
    let profile = &file["profiles"][0];
    assert_eq!((&profile["endValue"], &profile["unit"]), (&12_000_000.into(), &"nanoseconds".into()));
    assert_eq!(profile["samples"].as_array().unwrap().len(), FOLDED.lines().count());
}

#[test]
fn a_flame_graph_shows_each_function_with_its_share() {
    let svg = String::from_utf8(flame_graph(&stacks(), false).unwrap()).unwrap();
    for title in ["prog (10 samples, 83.33%)", "next (7 samples, 58.33%)", "do_read (3 samples, 25.00%)"] {
        assert!(svg.contains(title), "{title}: {svg}");
    }
    let inverted = String::from_utf8(flame_graph(&stacks(), true).unwrap()).unwrap();
    assert!(inverted.contains("do_read (3 samples, 25.00%)") && inverted != svg);
}
