//! Tests of what is counted, and of each malformed input.

use std::fmt::Write;

use expect_test::{Expect, expect};
use prost::Message;

use super::{
    Form,
    message::{
        AnyValue, Attribute, Dictionary, Function, KeyValue, Line, Location, Mapping, Profile, ProfilesData,
        Resource, ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
    },
    read,
};
use crate::{
    ImportFile,
    import::{
        imported::{ImportedProfile, Target},
        locate::Locator,
    },
};

const TEXTS: [&str; 16] = [
    "",
    "samples",
    "count",
    "cpu",
    "nanoseconds",
    "/bin/program",
    "main",
    "a.c",
    "process.executable.build_id.gnu",
    "thread.name",
    "profile.frame.type",
    "kernel",
    "vmlinux",
    "cpython",
    "off_cpu",
    "process.executable.build_id.htlhash",
];

fn attribute(key_strindex: i32, value: &str) -> Attribute {
    let value = AnyValue { string_value: value.into(), ..AnyValue::default() };
    Attribute { key_strindex, value: Some(value) }
}

fn location(mapping_index: i32, address: u64, function: i32, kind: Option<i32>) -> Location {
    let line = Line { function_index: function, line: 7 };
    Location {
        mapping_index,
        address,
        lines: if function > 0 { vec![line] } else { Vec::new() },
        attribute_indices: kind.into_iter().collect(),
    }
}

fn mapping(start: u64, limit: u64, offset: u64, name: i32, attributes: &[i32]) -> Mapping {
    Mapping {
        memory_start: start,
        memory_limit: limit,
        file_offset: offset,
        filename_strindex: name,
        attribute_indices: attributes.to_vec(),
    }
}

/// Returns a message as the eBPF profiler writes it: a process, its samples on the CPU and off it.
fn message() -> ProfilesData {
    let dictionary = Dictionary {
        mapping_table: vec![
            Mapping::default(),
            mapping(0x401000, 0x402000, 0x1000, 5, &[1]),
            mapping(0, 0, 0, 12, &[]),
            mapping(0x1000, 0x2000, 0, 6, &[5]),
        ],
        location_table: vec![
            Location::default(),
            location(1, 0x401010, 0, None),
            location(1, 0x40101f, 1, None),
            location(2, 0x77, 2, Some(3)),
            location(0, 5, 1, Some(4)),
            location(0, 0x99, 0, None),
            location(3, 0x1040, 0, None),
        ],
        function_table: vec![
            Function::default(),
            Function { name_strindex: 6, filename_strindex: 7, ..Function::default() },
            Function { name_strindex: 6, ..Function::default() },
        ],
        string_table: TEXTS.map(|text| text.as_bytes().to_vec()).to_vec(),
        attribute_table: vec![
            Attribute::default(),
            attribute(8, "abcdef0123"),
            attribute(9, "worker"),
            attribute(10, "kernel"),
            attribute(10, "cpython"),
            attribute(15, "0011"),
        ],
        stack_table: [vec![], vec![1, 2], vec![3, 1], vec![4, 2], vec![5], vec![6]]
            .map(|location_indices| Stack { location_indices })
            .to_vec(),
    };
    let sample = |stack_index, values: &[i64], times: u64| Sample {
        stack_index,
        attribute_indices: vec![2],
        link_index: i32::from(stack_index == 4),
        values: values.to_vec(),
        timestamps_unix_nano: (0..times).collect(),
    };
    let on_cpu = Profile {
        sample_type: Some(ValueType { type_strindex: 1, unit_strindex: 2 }),
        samples: vec![
            sample(1, &[], 3),
            sample(2, &[], 2),
            sample(3, &[], 1),
            sample(4, &[], 1),
            sample(5, &[], 1),
        ],
        duration_nano: 5_000_000_000,
        period_type: Some(ValueType { type_strindex: 3, unit_strindex: 4 }),
        period: 50_000_000,
        ..Profile::default()
    };
    let off_cpu = Profile {
        sample_type: Some(ValueType { type_strindex: 14, unit_strindex: 4 }),
        samples: vec![sample(1, &[1_000, 3_000], 2)],
        ..Profile::default()
    };
    let of = |key: &str, text: &str, number| KeyValue {
        key: key.into(),
        value: Some(AnyValue { string_value: text.into(), int_value: number, ..AnyValue::default() }),
        key_strindex: 0,
    };
    let attributes =
        vec![of("process.pid", "", Some(42)), of("process.executable.path", "/bin/program", None)];
    ProfilesData {
        resource_profiles: vec![ResourceProfiles {
            resource: Some(Resource { attributes }),
            scope_profiles: vec![ScopeProfiles { scope: None, profiles: vec![on_cpu, off_cpu] }],
        }],
        dictionary: Some(dictionary),
    }
}

fn framed(messages: &[&[u8]]) -> Vec<u8> {
    let frame = |bytes: &&[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
    messages.iter().flat_map(frame).collect()
}

fn imported(bytes: &[u8]) -> Result<ImportedProfile, String> {
    let form = Form::detect(bytes).ok_or("another format")?;
    read(bytes, form, &Locator::new(&ImportFile::default(), None, None))
}

/// Describes events, targets, sums and remarks.
fn described(imported: ImportedProfile) -> String {
    let mut text = String::new();
    for ((name, _), tally) in imported.attributes.iter().zip(&imported.events) {
        let unit = if imported.in_ns.contains(name) { "ns" } else { "events" };
        writeln!(
            text,
            "{name}: {} samples, {} unknown, {} {unit}",
            tally.samples, tally.unknown, tally.periods
        )
        .unwrap();
    }
    let sums = imported.sums.finish();
    let mut rows: Vec<String> = Vec::new();
    for (number, slot) in sums.slots().enumerate() {
        for (offset, periods) in sums.of(number) {
            let image = match &imported.targets[slot.target as usize] {
                Target::File(named) => format!(
                    "{} {}",
                    String::from_utf8_lossy(&named.path),
                    named.build_id.as_ref().map_or("-".to_owned(), ToString::to_string)
                ),
                Target::Numbered(path) => format!("named {}", String::from_utf8_lossy(path)),
                Target::Recorded(id, _, path) => format!("{} {path}", id.as_str()),
                other => format!("{other:?}"),
            };
            let place = imported.names.at(slot.target, offset).and_then(|place| place.procedure());
            let name = place.map_or("", |procedure| &procedure.function);
            let offset = if image.starts_with("named") { "-".to_owned() } else { format!("{offset:#x}") };
            rows.push(format!(
                "  {} {image} {offset} {name} {periods}",
                imported.attributes[slot.event as usize].0
            ));
        }
    }
    rows.sort();
    rows.into_iter().chain(imported.remarks).for_each(|row| writeln!(text, "{row}").unwrap());
    text
}

#[test]
fn samples_are_counted_in_every_form() {
    let bytes = message().encode_to_vec();
    let expected = expect![[r#"
        cpu-clock: 8 samples, 1 unknown, 400000000 ns
        off-cpu: 2 samples, 0 unknown, 4000 ns
          cpu-clock /bin/program abcdef0123 0x1010  150000000
          cpu-clock Kernel 0x77 main 100000000
          cpu-clock Other("unknown") 0x99  50000000
          cpu-clock file:0011 main 0x40  50000000
          cpu-clock named [cpython] - main 50000000
          off-cpu /bin/program abcdef0123 0x1010  4000
        the profile does not say which of its call stacks are incomplete
        1 samples are linked to spans of traces; the links were left out
        attributes that were left out: thread.name
        a profile of OpenTelemetry contains neither the processor nor executions
    "#]];
    expected.assert_eq(&described(imported(&bytes).unwrap()));
    let packed = zstd::encode_all(&bytes[..], 1).unwrap();
    for file in [framed(&[&bytes]), framed(&[&packed])] {
        expected.assert_eq(&described(imported(&file).unwrap()));
    }
    let twice = described(imported(&framed(&[&bytes, &packed])).unwrap());
    assert!(twice.starts_with("cpu-clock: 16 samples, 2 unknown, 800000000 ns"), "{twice}");
}

#[test]
fn values_mean_what_the_types_say() {
    let texts = ["events", "cycles", "page-faults", "bytes", "milliseconds", "alloc_space", "block"];
    let number = |text: &str| {
        let known = TEXTS.iter().chain(&texts).position(|known| *known == text);
        known.unwrap_or_else(|| panic!("{text}")) as i32
    };
    let check = |of: [&str; 2], by: [&str; 2], period: i64, values: &[i64], times: u64| {
        let mut message = message();
        let dictionary = message.dictionary.as_mut().unwrap();
        dictionary.string_table.extend(texts.map(|text| text.as_bytes().to_vec()));
        let kind = |[kind, unit]: [&str; 2]| {
            Some(ValueType { type_strindex: number(kind), unit_strindex: number(unit) })
        };
        let profile = Profile {
            sample_type: kind(of),
            period_type: kind(by),
            period,
            samples: vec![Sample {
                stack_index: 1,
                values: values.to_vec(),
                timestamps_unix_nano: (0..times).collect(),
                ..Sample::default()
            }],
            ..Profile::default()
        };
        message.resource_profiles[0].scope_profiles[0].profiles = vec![profile];
        let text = described(imported(&message.encode_to_vec()).unwrap());
        text.lines().next().unwrap().to_owned()
    };
    let rows = [
        check(["samples", "count"], ["cpu", "nanoseconds"], 1000, &[], 4),
        check(["samples", "count"], ["cpu", "nanoseconds"], 1000, &[5, 6], 2),
        check(["samples", "count"], ["cycles", "cycles"], 1000, &[5], 0),
        check(["page-faults", "count"], ["page-faults", "events"], 1, &[5], 0),
        check(["cpu", "nanoseconds"], ["cpu", "nanoseconds"], 1000, &[5000], 0),
        check(["cpu", "milliseconds"], ["", ""], 0, &[5, 6], 2),
        check(["off_cpu", "nanoseconds"], ["", ""], 0, &[1, 2, 3], 3),
        check(["block", "nanoseconds"], ["", ""], 0, &[7], 0),
        check(["alloc_space", "bytes"], ["alloc_space", "bytes"], 524288, &[4096], 0),
        check(["events", "count"], ["", ""], 0, &[], 9),
        check(["", ""], ["", ""], 0, &[2], 0),
    ];
    expect![[r#"
        cpu-clock: 4 samples, 0 unknown, 4000 ns
        cpu-clock: 11 samples, 0 unknown, 11000 ns
        cycles: 5 samples, 0 unknown, 5000 events
        page-faults: 5 samples, 0 unknown, 5 events
        cpu-clock: 5 samples, 0 unknown, 5000 ns
        cpu-clock: 2 samples, 0 unknown, 11000000 ns
        off-cpu: 3 samples, 0 unknown, 6 ns
        block: 1 samples, 0 unknown, 7 ns
        alloc_space: 4096 samples, 0 unknown, 4096 events
        events: 9 samples, 0 unknown, 9 events
        : 2 samples, 0 unknown, 2 events"#]]
    .assert_eq(&rows.join("\n"));
}

#[test]
fn times_of_samples_that_are_counted_are_left_out() {
    let mut message = message();
    let profiles = &mut message.resource_profiles[0].scope_profiles[0].profiles;
    let mut times = profiles[0].clone();
    times.sample_type = times.period_type;
    times.samples.iter_mut().for_each(|sample| sample.values = vec![50_000_000]);
    profiles.insert(0, times);
    let text = described(imported(&message.encode_to_vec()).unwrap());
    assert!(text.starts_with("cpu-clock: 8 samples, 1 unknown, 400000000 ns"), "{text}");
    assert!(text.contains("1 profiles have the time of samples that another profile counts"), "{text}");
}

fn fails(bytes: &[u8], expected: &Expect) {
    expected.assert_eq(&imported(bytes).err().unwrap_or_else(|| "no error".to_owned()));
}

fn damaged(damage: impl FnOnce(&mut ProfilesData), expected: &Expect) {
    let mut message = message();
    damage(&mut message);
    fails(&message.encode_to_vec(), expected);
}

fn tables(message: &mut ProfilesData) -> &mut Dictionary {
    message.dictionary.as_mut().unwrap()
}

fn profile(message: &mut ProfilesData) -> &mut Profile {
    &mut message.resource_profiles[0].scope_profiles[0].profiles[0]
}

#[test]
fn what_refers_to_nothing_is_an_error() {
    damaged(
        |m| profile(m).samples[0].stack_index = 99,
        &expect!["index 99 is outside its table of stacks, which has 6 entries"],
    );
    damaged(
        |m| profile(m).samples[0].stack_index = -1,
        &expect!["index -1 is outside its table of stacks, which has 6 entries"],
    );
    damaged(
        |m| profile(m).samples[0].attribute_indices = vec![6],
        &expect!["index 6 is outside its table of attributes, which has 6 entries"],
    );
    damaged(
        |m| tables(m).stack_table[1].location_indices[1] = 7,
        &expect!["index 7 is outside its table of locations, which has 7 entries"],
    );
    damaged(
        |m| tables(m).location_table[1].mapping_index = 4,
        &expect!["index 4 is outside its table of mappings, which has 4 entries"],
    );
    damaged(
        |m| tables(m).location_table[2].lines[0].function_index = i32::MIN,
        &expect!["index -2147483648 is outside its table of functions, which has 3 entries"],
    );
    damaged(
        |m| tables(m).function_table[1].name_strindex = 16,
        &expect!["index 16 is outside its table of strings, which has 16 entries"],
    );
    damaged(
        |m| tables(m).mapping_table[1].filename_strindex = 16,
        &expect!["index 16 is outside its table of strings, which has 16 entries"],
    );
    damaged(
        |m| tables(m).attribute_table[1].key_strindex = 16,
        &expect!["index 16 is outside its table of strings, which has 16 entries"],
    );
    damaged(
        |m| profile(m).period_type = Some(ValueType { type_strindex: 0, unit_strindex: 16 }),
        &expect!["index 16 is outside its table of strings, which has 16 entries"],
    );
}

#[test]
fn impossible_numbers_are_errors() {
    damaged(
        |m| profile(m).samples[0].values = vec![3, -7, 1],
        &expect!["a sample has the negative value -7"],
    );
    damaged(|m| profile(m).period = -1, &expect!["the negative period -1"]);
    damaged(
        |m| profile(m).period = i64::MAX,
        &expect!["the values of an event add up to over 4611686018427387904"],
    );
    damaged(
        |m| profile(m).samples.iter_mut().for_each(|s| s.values = vec![i64::MAX; 9]),
        &expect!["the values of an event add up to over 4611686018427387904"],
    );
    let many = |m: &mut ProfilesData| {
        let first = tables(m).string_table.len() as i32;
        tables(m).string_table.extend((0..256).map(|n| format!("event-{n}").into_bytes()));
        let of = |n| Profile {
            sample_type: Some(ValueType { type_strindex: first + n, unit_strindex: 2 }),
            samples: vec![Sample { values: vec![1], ..Sample::default() }],
            ..Profile::default()
        };
        m.resource_profiles[0].scope_profiles[0].profiles = (0..256).map(of).collect();
    };
    damaged(many, &expect!["its profiles are of over 255 events"]);
}

#[test]
fn other_versions_and_signals_are_errors() {
    damaged(
        |m| m.dictionary = None,
        &expect!["it has no dictionary: written for opentelemetry-proto before 1.7, or not profiles"],
    );
    damaged(
        |m| tables(m).string_table[0] = b"x".to_vec(),
        &expect!["the first entry of its table of strings is not empty: another version of the schema"],
    );
    damaged(
        |m| tables(m).stack_table.clear(),
        &expect!["it has no table of stacks: written for opentelemetry-proto before 1.8"],
    );
    fails(
        br#"{"resourceSpans":[{"scopeSpans":[]}]}"#,
        &expect!["message 1: it has no profiles; traces, metrics and logs are not read"],
    );
    fails(b"{}", &expect!["message 1: it has no profiles; traces, metrics and logs are not read"]);
    fails(
        &[0x0a, 0],
        &expect!["it has no dictionary: written for opentelemetry-proto before 1.7, or not profiles"],
    );
}

#[test]
fn damaged_files_are_errors() {
    let bytes = message().encode_to_vec();
    fails(
        &bytes[..bytes.len() - 3],
        &expect![
            "it is cut off or damaged: failed to decode Protobuf message: ProfilesData.dictionary: buffer underflow"
        ],
    );
    let file = framed(&[&bytes, &bytes]);
    fails(&file[..file.len() - 3], &expect!["message 2: it is cut off after 667 of 670 bytes"]);
    fails(&file[..bytes.len() + 6], &expect!["message 2: its length is cut off"]);
    let long = [&framed(&[&bytes])[..], &[0xff; 9]].concat();
    fails(&long, &expect!["message 2: a length of 4294967295 bytes, and at most 134217728 are read"]);
    let packed = zstd::encode_all(&bytes[..], 1).unwrap();
    fails(
        &framed(&[&packed[..packed.len() / 2]]),
        &expect!["message 1: it is compressed by zstd, and cannot be unpacked: incomplete frame"],
    );
    let empty: Vec<u8> = [0x12, 0].repeat(1 << 24);
    let mut length = Vec::new();
    prost::encoding::encode_varint(empty.len() as u64, &mut length);
    fails(
        &[&[0x12][..], &length, &[0x0a, 0], &empty].concat(),
        &expect!["its tables have over 16777216 entries"],
    );
}

#[test]
fn damaged_json_is_an_error() {
    let json = |text: &str, expected: &Expect| fails(text.as_bytes(), expected);
    json(
        r#"{"dictionary":{"stringTable":[1]}}"#,
        &expect![
            "message 1: not the JSON of OTLP: invalid type: integer `1`, expected a string at line 1 column 32"
        ],
    );
    json(
        r#"{"dictionary":{"mappingTable":{}}}"#,
        &expect!["message 1: not the JSON of OTLP: invalid type: map, expected a list at line 1 column 31"],
    );
    json(
        r#"{"dictionary":{"mappingTable":[{"memoryStart":"-1"}]}}"#,
        &expect!["message 1: not the JSON of OTLP: -1 is out of range at line 1 column 51"],
    );
    json(
        r#"{"dictionary":{"mappingTable":[{"memoryStart":"many"}]}}"#,
        &expect![[r#"message 1: not the JSON of OTLP: "many" is not an integer at line 1 column 53"#]],
    );
    json(
        r#"{"dictionary":{"mappingTable":[{"memoryStart":1.5}]}}"#,
        &expect![
            "message 1: not the JSON of OTLP: expected an integer, as a number or a string at line 1 column 50"
        ],
    );
    json(
        r#"{"dictionary":{"stackTable":[{"locationIndices":[4294967296]}]}}"#,
        &expect!["message 1: not the JSON of OTLP: 4294967296 is out of range at line 1 column 61"],
    );
    json(
        "{\"dictionary\":{}}\n{\"dictionary\":",
        &expect!["message 2: it is cut off: EOF while parsing a value at line 2 column 14"],
    );
    json(
        "{\"dictionary\":{}}\nnot JSON",
        &expect!["message 2: not the JSON of OTLP: expected ident at line 2 column 2"],
    );
}

#[test]
fn flipped_bits_and_cuts_never_panic() {
    let bytes = message().encode_to_vec();
    for at in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        let _ = imported(&damaged);
        let _ = imported(&bytes[..at / 8]);
    }
}

#[test]
fn forms_are_detected() {
    let bytes = message().encode_to_vec();
    let found =
        [&bytes[..], &framed(&[&bytes]), b" \n{ \"a\"", b"PERFILE2", &[0x0a, 4, 8, 1, 0x10, 2], b"{x", b""]
            .map(Form::detect);
    expect!["[Some(Protobuf), Some(Framed), Some(Json), None, None, None, None]"]
        .assert_eq(&format!("{found:?}"));
}
