//! Tests imports of OpenTelemetry's profiles: what the eBPF profiler writes, files of the collector, and Dwell's own exports.

use std::{collections::BTreeMap, fs, path::PathBuf};

use dwell_exchange::{Format, ImportFile, Imported, Stacked, export, import_perf_data};
use dwell_image::Image;
use dwell_profile::Database;
use dwell_query::{
    Cancel, Options, Query, SampleFilter, TopBy, TopRequest,
    answer::{InstructionPlace, PlaceEvent, Places, ProcedurePlaces, StackFunction, StackNode, Stacks},
};
use expect_test::expect;
use jiff::Timestamp;
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    profiles::v1development::{
        Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesData, ProfilesDictionary,
        ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
    },
    resource::v1::Resource,
};
use prost::Message;

mod support;
use support::{SPIN, compile};

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        Scene { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn import(&self, bytes: &[u8]) -> Imported {
        fs::write(self.path("profile"), bytes).unwrap();
        self.import_file(self.path("profile"))
    }

    fn import_file(&self, path: PathBuf) -> Imported {
        let database = Database::open(self.path("db")).unwrap();
        import_perf_data(&database, &ImportFile { path, ..ImportFile::default() }, Timestamp::now()).unwrap()
    }

    fn query(&self) -> Query {
        Query::open(Options::for_database(self.path("db"))).unwrap()
    }

    /// Returns the samples of the newest epoch by image and function, of each event.
    fn procedures(&self) -> BTreeMap<String, Vec<(String, u64)>> {
        let top = self.query().top(&TopRequest::default(), &Cancel::new()).unwrap();
        let named = |row: dwell_query::answer::TopRow| {
            let samples =
                row.samples.iter().filter(|(_, n)| **n > 0).map(|(event, n)| (event.to_string(), *n));
            let image = row.image.unwrap_or_default();
            let image = image.strip_prefix(self.folder.path().to_str().unwrap()).unwrap_or(&image).to_owned();
            (format!("{image} {}", row.demangled.unwrap_or_default()), samples.collect())
        };
        top.rows.into_iter().map(named).collect()
    }

    fn applications(&self) -> Vec<String> {
        let request = TopRequest { by: TopBy::App, ..TopRequest::default() };
        let top = self.query().top(&request, &Cancel::new()).unwrap();
        let row = |row: dwell_query::answer::TopRow| {
            format!("{} {}", row.app.unwrap_or_default(), row.samples.values().sum::<u64>())
        };
        top.rows.into_iter().map(row).collect()
    }

    /// Returns the functions and frames of all call stacks.
    fn stacks(&self) -> (Vec<StackFunction>, Vec<StackNode>) {
        let stacks = self.query().stacks(&[], &SampleFilter::default(), &Cancel::new()).unwrap();
        (stacks.functions, stacks.nodes)
    }

    fn exported(&self) -> Places {
        self.query().places(&[], &None, &Cancel::new()).unwrap()
    }
}

/// The tables of a message while it is built.
#[derive(Default)]
struct Writer(ProfilesDictionary);

impl Writer {
    fn new() -> Writer {
        Writer(ProfilesDictionary {
            mapping_table: vec![Mapping::default()],
            location_table: vec![Location::default()],
            function_table: vec![Function::default()],
            link_table: vec![Link::default()],
            string_table: vec![String::new()],
            attribute_table: vec![KeyValueAndUnit::default()],
            stack_table: vec![Stack::default()],
        })
    }

    fn text(&mut self, text: &str) -> i32 {
        let known = self.0.string_table.iter().position(|known| known == text);
        known.unwrap_or_else(|| pushed(&mut self.0.string_table, text.to_owned()) as usize) as i32
    }

    fn attribute(&mut self, key: &str, value: &str) -> i32 {
        let key_strindex = self.text(key);
        let value = Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) });
        pushed(&mut self.0.attribute_table, KeyValueAndUnit { key_strindex, value, unit_strindex: 0 })
    }

    fn mapping(&mut self, name: &str, range: (u64, u64, u64), build_id: &str) -> i32 {
        let filename_strindex = self.text(name);
        let attribute_indices = vec![self.attribute("process.executable.build_id.gnu", build_id)];
        let (memory_start, memory_limit, file_offset) = range;
        let mapping =
            Mapping { memory_start, memory_limit, file_offset, filename_strindex, attribute_indices };
        pushed(&mut self.0.mapping_table, mapping)
    }

    fn location(
        &mut self,
        kind: &str,
        mapping_index: i32,
        address: u64,
        line: Option<(&str, &str, i64)>,
    ) -> i32 {
        let attribute_indices = vec![self.attribute("profile.frame.type", kind)];
        let line = line.map(|(name, file, line)| {
            let (name_strindex, filename_strindex) = (self.text(name), self.text(file));
            let function = Function { name_strindex, filename_strindex, ..Function::default() };
            Line { function_index: pushed(&mut self.0.function_table, function), line, column: 0 }
        });
        let lines = line.into_iter().collect();
        pushed(&mut self.0.location_table, Location { mapping_index, address, lines, attribute_indices })
    }

    /// Returns a sample with times alone, as the eBPF profiler writes those on a CPU.
    fn sample(&mut self, stack: &[i32], thread: &str, times: u64) -> Sample {
        let stack_index = pushed(&mut self.0.stack_table, Stack { location_indices: stack.to_vec() });
        let attribute_indices = vec![self.attribute("thread.name", thread)];
        let timestamps_unix_nano = (1..=times).collect();
        Sample { stack_index, attribute_indices, timestamps_unix_nano, ..Sample::default() }
    }
}

fn pushed<T>(table: &mut Vec<T>, row: T) -> i32 {
    table.push(row);
    table.len() as i32 - 1
}

fn resource(attributes: &[(&str, Value)], profiles: Vec<Profile>) -> ResourceProfiles {
    let attribute = |(key, value): &(&str, Value)| KeyValue {
        key: (*key).to_owned(),
        value: Some(AnyValue { value: Some(value.clone()) }),
        ..KeyValue::default()
    };
    let resource = Resource { attributes: attributes.iter().map(attribute).collect(), ..Resource::default() };
    let scope = InstrumentationScope { name: "ebpf-profiler".to_owned(), ..InstrumentationScope::default() };
    let scoped = ScopeProfiles { scope: Some(scope), profiles, ..ScopeProfiles::default() };
    ResourceProfiles { resource: Some(resource), scope_profiles: vec![scoped], ..ResourceProfiles::default() }
}

/// A program with the functions `spin` and `main`, which lie in one page.
struct Program {
    path: String,
    build_id: String,
    /// Image addresses of the functions.
    spin: u64,
    main: u64,
    /// Offset of their page in the file.
    file_offset: u64,
}

impl Program {
    fn of(path: PathBuf) -> Program {
        let image = Image::open(&path).unwrap();
        let procedure = |name| image.procedures().iter().find(|p| p.name() == name).unwrap().address;
        let (spin, main) = (procedure("spin"), procedure("main"));
        Program {
            path: path.display().to_string(),
            build_id: image.build_id().unwrap().to_string(),
            spin: spin.0,
            main: main.0,
            file_offset: image.offset_of(spin).unwrap().0 - (spin.0 & 0xfff),
        }
    }

    /// Returns a program that is on no machine.
    fn elsewhere() -> Program {
        let build_id = "0123456789abcdef0123456789abcdef01234567".to_owned();
        Program {
            path: "/srv/spin".to_owned(),
            build_id,
            spin: 0x40_1010,
            main: 0x40_1080,
            file_offset: 0x1000,
        }
    }
}

/// Returns a message in the form that the eBPF profiler gives to it: two processes and a thread of the kernel; native, kernel and
/// interpreted frames; an event with times alone, and one with values.
fn ebpf_message(program: &Program) -> ProfilesData {
    let mut w = Writer::new();
    let start = program.spin & !0xfff;
    let range = (start, start + 0x1000, program.file_offset);
    let mapping = w.mapping("spin", range, &program.build_id);
    let kernel = w.mapping("vmlinux", (0, 0, 0), "00112233445566778899aabbccddeeff00112233");
    let module = w.mapping("ext4", (0, 0, 0), "aabb33445566778899aabbccddeeff0011223344");
    let in_spin = w.location("native", mapping, program.spin + 4, None);
    let in_main = w.location("native", mapping, program.main + 9, None);
    let copy = w.location("kernel", kernel, 0x4711, Some(("copy_to_user", "", 0)));
    let read = w.location("kernel", module, 0x120, Some(("ext4_read", "", 0)));
    let python = w.location("cpython", 0, 0, Some(("handle", "app.py", 12)));
    let nowhere = w.location("native", 0, 0x7f00_1234, None);
    let on_cpu = |w: &mut Writer, samples| Profile {
        sample_type: Some(ValueType { type_strindex: w.text("samples"), unit_strindex: w.text("count") }),
        period_type: Some(ValueType { type_strindex: w.text("cpu"), unit_strindex: w.text("nanoseconds") }),
        period: 50_000_000,
        time_unix_nano: 1_800_000_000_000_000_000,
        duration_nano: 5_000_000_000,
        samples,
        ..Profile::default()
    };
    let first = vec![
        w.sample(&[in_spin, in_main], "spin", 70),
        w.sample(&[in_spin, in_main], "worker", 10),
        w.sample(&[copy, read, in_main], "spin", 12),
        w.sample(&[nowhere], "spin", 3),
    ];
    let first = on_cpu(&mut w, first);
    let mut wait = w.sample(&[copy, in_main], "spin", 2);
    wait.values = vec![1_000_000, 3_000_000];
    let off_cpu = Profile {
        sample_type: Some(ValueType {
            type_strindex: w.text("off_cpu"),
            unit_strindex: w.text("nanoseconds"),
        }),
        samples: vec![wait],
        ..Profile::default()
    };
    let second = vec![w.sample(&[python, python], "python3", 5)];
    let second = on_cpu(&mut w, second);
    let third = vec![w.sample(&[read], "kworker/0:1", 1)];
    let third = on_cpu(&mut w, third);
    let text = |text: &str| Value::StringValue(text.to_owned());
    let resource_profiles = vec![
        resource(
            &[
                ("process.pid", Value::IntValue(41)),
                ("process.executable.path", text(&program.path)),
                ("container.id", text("c0ffee")),
                ("host.name", text("web-1")),
                ("host.arch", text("amd64")),
            ],
            vec![first, off_cpu],
        ),
        resource(
            &[
                ("process.pid", Value::IntValue(42)),
                ("process.executable.name", text("python3")),
                ("host.name", text("web-1")),
            ],
            vec![second],
        ),
        resource(&[("process.pid", Value::IntValue(7)), ("host.name", text("web-1"))], vec![third]),
    ];
    ProfilesData { resource_profiles, dictionary: Some(w.0) }
}

#[test]
fn what_the_ebpf_profiler_writes_is_imported() {
    let scene = Scene::new();
    let program = Program::of(compile(scene.folder.path(), SPIN, &["-no-pie"]));
    let imported = scene.import(&ebpf_message(&program).encode_to_vec());
    assert_eq!(imported.samples, 103);
    expect![[r#"
        {
            "/spin spin": [
                (
                    "cpu-clock",
                    80,
                ),
            ],
            "[cpython] handle": [
                (
                    "cpu-clock",
                    5,
                ),
            ],
            "[ext4] ext4_read": [
                (
                    "cpu-clock",
                    1,
                ),
            ],
            "[kernel.kallsyms] copy_to_user": [
                (
                    "cpu-clock",
                    12,
                ),
                (
                    "off-cpu",
                    2,
                ),
            ],
            "[unknown] [no symbol]": [
                (
                    "cpu-clock",
                    3,
                ),
            ],
        }
    "#]]
    .assert_debug_eq(&scene.procedures());
    expect![[r#"
        [
            "spin 97",
            "python3 5",
            "kworker/0:1 1",
        ]
    "#]]
    .assert_debug_eq(&scene.applications());
    expect![[r#"
        [
            "the profile does not say which of its call stacks are incomplete",
            "attributes that were left out: container.id, thread.name",
            "a profile of OpenTelemetry contains neither the processor nor executions",
        ]
    "#]]
    .assert_debug_eq(&imported.notes);
    assert_eq!(scene.stacks().1.iter().map(|node| node.samples).sum::<u64>(), 101);
    let record = &scene.query().epochs().unwrap().epochs[0];
    assert_eq!(record.host, "web-1");
    expect![[r#"
        {
            "cpu-clock": EventSummary {
                period: 50000000,
                unit: "ns",
                samples: 101,
                lost: 0,
                throttled: 0,
                unknown: 3,
                running_share: None,
            },
            "off-cpu": EventSummary {
                period: 2000000,
                unit: "ns",
                samples: 2,
                lost: 0,
                throttled: 0,
                unknown: 0,
                running_share: None,
            },
        }
    "#]]
    .assert_debug_eq(&record.events);
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/otlp-files").join(name)
}

/// The fixtures are what a collector made of the message that this test builds: `tests/otlp-files/README.md`.
#[test]
fn files_of_the_collector_are_what_was_sent_to_it() {
    let message = ebpf_message(&Program::elsewhere()).encode_to_vec();
    fs::write(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("otlp-message.binpb"), &message).unwrap();
    let sent = Scene::new();
    let notes = sent.import(&message).notes;
    for name in ["profiles.json", "profiles.binpb", "profiles.json.zst"] {
        let scene = Scene::new();
        let imported = scene.import_file(fixture(name));
        assert_eq!((imported.samples, &imported.notes), (103, &notes), "{name}");
        assert_eq!(scene.procedures(), sent.procedures(), "{name}");
        assert_eq!(scene.applications(), sent.applications(), "{name}");
        assert_eq!(scene.stacks(), sent.stacks(), "{name}");
    }
}

#[test]
fn an_own_export_has_the_same_samples() {
    let scene = Scene::new();
    let places = pseudo_places();
    scene.import(&export(&places, None, Format::Otlp));
    let first = scene.exported();
    scene.import(&export(&first, None, Format::Otlp));
    let second = scene.exported();
    assert_eq!(rows(&first), rows(&second));
    assert_eq!(rows(&first), rows(&places));
    let events = |places: &Places| places.events.clone();
    assert_eq!(events(&first), events(&places));
}

/// An export does not name applications, so that stacks of different ones are added up.
#[test]
fn call_stacks_of_an_own_export_are_the_same() {
    let scene = Scene::new();
    scene.import(&ebpf_message(&Program::elsewhere()).encode_to_vec());
    let stacks = scene.query().stacks(&[], &SampleFilter::default(), &Cancel::new()).unwrap();
    let stacked = Stacked { stacks: &stacks, all_samples: false };
    scene.import(&export(&scene.exported(), Some(stacked), Format::Otlp));
    let second = scene.query().stacks(&[], &SampleFilter::default(), &Cancel::new()).unwrap();
    assert_eq!(frames(&second), frames(&stacks));
    assert_eq!(second.samples(), 101);
}

/// Returns the samples of each stack, whose frames are named by image, id, function, address and line.
fn frames(stacks: &Stacks) -> BTreeMap<Vec<String>, u64> {
    let mut sums = BTreeMap::new();
    for (node, path) in stacks.sampled() {
        let frame = |at: &u32| {
            let node = &stacks.nodes[*at as usize];
            let StackFunction { name, path, build_id, .. } = &stacks.functions[node.function as usize];
            format!("{path} {build_id} {name} {:#x} {:?}", node.address, node.line)
        };
        *sums.entry(path.iter().map(frame).collect()).or_default() += node.samples;
    }
    sums
}

/// Returns image, id, procedure, address and counts of every place.
fn rows(places: &Places) -> Vec<(String, String, String, u64, Vec<u64>)> {
    let mut rows = Vec::new();
    for p in &places.procedures {
        for i in &p.instructions {
            rows.push((
                p.image.clone(),
                p.build_id.clone(),
                p.demangled.clone(),
                i.address,
                i.samples.clone(),
            ));
        }
    }
    rows.sort();
    rows
}

/// Returns places in each kind of image, none of which is on this machine.
fn pseudo_places() -> Places {
    let place = |address: u64, samples: [u64; 2]| InstructionPlace {
        address,
        samples: samples.to_vec(),
        head_samples: samples[0] as f64,
        executions: None,
        frames: Vec::new(),
    };
    let procedure =
        |image: &str, id: &str, name: &str, instructions: Vec<InstructionPlace>| ProcedurePlaces {
            procedure: name.into(),
            demangled: name.into(),
            image: image.into(),
            build_id: id.into(),
            address: instructions[0].address,
            image_base: 0,
            address_over_offset: 0,
            file: None,
            line: None,
            instructions,
        };
    Places {
        epochs: vec!["e".into()],
        events: vec![
            PlaceEvent { name: "cpu-clock".into(), period: 1_000_000, unit: "ns".into() },
            PlaceEvent { name: "page-faults".into(), period: 1, unit: "events".into() },
        ],
        period_cycles: None,
        start_ns: 0,
        duration_ns: 0,
        procedures: vec![
            procedure(
                "/nowhere/prog",
                "00aabbccddeeff",
                "hot",
                vec![place(0x1000, [70, 3]), place(0x1004, [20, 0])],
            ),
            procedure("/nowhere/prog", "00aabbccddeeff", "cold", vec![place(0x2_0000_1000, [1, 1])]),
            procedure("[kernel.kallsyms]", "kernel", "do_read", vec![place(0x4711, [9, 0])]),
            procedure("[ext4]", "module:ext4", "ext4_read", vec![place(0x120, [8, 0])]),
            procedure("[vdso]", "vdso:0011223344", "clock", vec![place(0x77, [7, 0])]),
            procedure("//anon", "jit:java", "main", vec![place(0x40, [6, 0])]),
            procedure("main", "file:0123abcd", "go", vec![place(0x40, [5, 0])]),
            procedure("/nowhere/lib.so", "99aabbccddeeff", "[no symbol]", vec![place(0x40, [4, 0])]),
        ],
        notes: Vec::new(),
    }
}
