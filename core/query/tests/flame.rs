//! Flame graphs of stacks that are written into a database by name: trees, events and their units, comparisons.

use dwell_profile::{
    CodePlace, Counts, Cpu, Database, Epoch, EpochId, Event, EventRecord, Host, ImageId, ImageKind,
    ImageOffset, ImageRecord, ImageSymbol, SampleKey, Scope, StackEnd, StackRoot, StoredCallTree, Unit,
};
use dwell_query::{
    Cancel, FlameDiffRequest, FlameRequest, Options, Query, QueryError, SampleFilter,
    answer::{Flame, FlameDiff, FlameKind},
};

/// A recording: events with their units and periods, and stacks: event, application, frames, samples. A stack whose outermost
/// frame is `…` is incomplete.
struct Recording<'a> {
    events: &'a [(&'a str, Unit, u64)],
    stacks: &'a [(&'a str, &'a str, &'a str, u64)],
}

const FUNCTION_BYTES: u64 = 16;

/// A database, and the functions in it, each at a place of its own in one image.
struct Scene {
    folder: tempfile::TempDir,
    functions: Vec<&'static str>,
    recordings: i64,
}

impl Scene {
    fn new(functions: &[&'static str]) -> Self {
        Scene { folder: tempfile::tempdir().unwrap(), functions: functions.to_vec(), recordings: 0 }
    }

    fn place(&self, name: &str) -> CodePlace {
        let at = self.functions.iter().position(|function| *function == name).unwrap() as u64;
        CodePlace { image: ImageId::named("jit:prog"), offset: ImageOffset(at * FUNCTION_BYTES + 4) }
    }

    fn record(&mut self, recording: &Recording<'_>) -> String {
        self.recordings += 1;
        let start = jiff::Timestamp::from_second(1_790_000_000 + 100 * self.recordings).unwrap();
        let symbols = self.functions.iter().enumerate().map(|(at, name)| ImageSymbol {
            offset: ImageOffset(at as u64 * FUNCTION_BYTES),
            size_bytes: FUNCTION_BYTES,
            name: (*name).to_owned(),
        });
        let image = ImageRecord {
            symbols: symbols.collect(),
            ..ImageRecord::new(ImageId::named("jit:prog"), ImageKind::Jit, "prog")
        };
        let (mut tree, mut counts) = (StoredCallTree::default(), Counts::default());
        for (event, app, frames, samples) in recording.stacks {
            let names: Vec<&str> = frames.split(';').collect();
            let (end, names) = match names[..] {
                ["…", ref known @ ..] => (StackEnd::Cut, known),
                ref known => (StackEnd::Root, known),
            };
            let event = Event::named(event);
            let root = StackRoot { event: event.clone(), app: (*app).into(), instance: 0, end };
            tree.add(root, names.iter().map(|name| self.place(name)), *samples);
            let CodePlace { image, offset } = self.place(names[names.len() - 1]);
            let key = SampleKey { image, event, offset, app: (*app).into(), instance: 0, dimensions: None };
            *counts.entry(key).or_default() += samples;
        }
        let events = recording.events.iter().map(|(name, unit, period)| {
            let of_event = recording.stacks.iter().filter(|stack| stack.0 == *name);
            let record = EventRecord {
                period: *period,
                unit: *unit,
                samples: of_event.map(|stack| stack.3).sum(),
                lost: 0,
                throttled: 0,
                unknown: 0,
                running_share: None,
            };
            (Event::named(name), record)
        });
        let epoch = Epoch {
            id: EpochId::new(start),
            name: None,
            start,
            end: None,
            host: Host { name: "here".into(), kernel_release: "6.1".into() },
            cpu: Cpu {
                arch: "x86_64".into(),
                vendor: "AuthenticAMD".into(),
                model_name: "simulated".into(),
                family: 25,
                model: 1,
                stepping: 1,
                count: 2,
                clock_hz: Some(3e9),
                clock_hz_range: None,
                machine_model: None,
            },
            backend: "perf".to_owned(),
            scope: Scope::System,
            events: events.collect(),
            notes: vec![],
            bursts: None,
            breakpoints: None,
            counts: None,
            call_stacks: None,
            collector: None,
        };
        let id = epoch.id.to_string();
        let writer = Database::open(self.folder.path()).unwrap().writer().unwrap();
        let mut writer = writer.begin(epoch).unwrap();
        writer.append(&counts, &[image]).unwrap();
        writer.append_stacks(&tree).unwrap();
        writer.finish(start).unwrap();
        id
    }

    fn flame(&self, events: &[&str], nodes_max: usize) -> Result<Flame, QueryError> {
        let request = FlameRequest {
            epochs: Vec::new(),
            events: events.iter().map(|event| (*event).to_owned()).collect(),
            filter: SampleFilter::default(),
            nodes_max,
            analyse: true,
        };
        Query::open(Options::for_database(self.folder.path())).unwrap().flame(&request, &Cancel::new())
    }

    fn diff(&self, a: &[&String], b: &[&String]) -> Result<FlameDiff, QueryError> {
        let ids = |side: &[&String]| side.iter().map(|id| (*id).clone()).collect();
        let request = FlameDiffRequest {
            a: ids(a),
            b: ids(b),
            event: None,
            filter: SampleFilter::default(),
            nodes_max: 100,
        };
        Query::open(Options::for_database(self.folder.path())).unwrap().flame_diff(&request, &Cancel::new())
    }
}

/// Writes a tree: each node indented, with what is in it and what ends in it.
fn drawn(flame: &Flame) -> Vec<String> {
    let line = |node: &dwell_query::answer::FlameNode| {
        let depth = std::iter::successors(node.parent, |at| flame.nodes[*at as usize].parent).count();
        let name = node.function.map_or_else(
            || format!("{} more", node.merged),
            |function| flame.functions[function as usize].name.clone(),
        );
        format!("{}{name} {} {}", "-".repeat(depth), node.total, node.own)
    };
    flame.nodes.iter().map(line).collect()
}

const TIME: (&str, Unit, u64) = ("cpu-clock", Unit::Nanoseconds, 1000);

#[test]
fn stacks_of_applications_are_one_tree_that_counts_every_sample() {
    let mut scene = Scene::new(&["main", "parse", "read"]);
    scene.record(&Recording {
        events: &[TIME],
        stacks: &[
            ("cpu-clock", "prog", "main;parse;read", 5),
            ("cpu-clock", "prog", "main;parse", 2),
            ("cpu-clock", "prog", "…;read", 1),
            ("cpu-clock", "other", "main;parse;parse", 3),
        ],
    });
    let flame = scene.flame(&[], 100).unwrap();
    let lines = [
        "prog 8 0",
        "-main 7 0",
        "--parse 7 2",
        "---read 5 5",
        "-[incomplete] 1 0",
        "--read 1 1",
        "other 3 0",
        "-main 3 0",
        "--parse 3 0",
        "---parse 3 3",
    ];
    assert_eq!(drawn(&flame), lines);
    assert_eq!((flame.total, flame.unit.as_str(), flame.events[0].period), (11, "samples", 1000));
    let of = |name: &str| flame.functions.iter().find(|function| function.name == name).unwrap();
    assert_eq!((of("parse").total, of("parse").own), (10, 5), "recursion counts once");
    assert_eq!((of("prog").kind, of("[incomplete]").kind), (FlameKind::Application, FlameKind::Incomplete));
    assert_eq!((of("read").image.as_str(), of("read").id.as_deref()), ("jit:prog", Some("jit:prog:read")));
    assert_eq!(flame.incomplete[0].samples, 1);
    assert!(
        of("read").analysis.is_none() && flame.analysed_share == 0.0,
        "code without a file is not analysed"
    );

    let small = scene.flame(&[], 3).unwrap();
    let lines = ["prog 8 0", "-main 7 0", "--parse 7 2", "--1 more", "-2 more", "4 more"];
    for (line, start) in drawn(&small).iter().zip(lines) {
        assert!(line.trim_start_matches('-').starts_with(start.trim_start_matches('-')), "{line}");
    }
    assert_eq!((small.total, small.merged), (11, 7));
    assert_eq!(small.functions, flame.functions, "functions are counted wherever their frames are");
}

#[test]
fn events_are_added_up_only_in_one_unit() {
    let mut scene = Scene::new(&["main", "compute", "wait"]);
    scene.record(&Recording {
        events: &[TIME, ("off-cpu", Unit::Nanoseconds, 250), ("page-faults", Unit::Events, 1)],
        stacks: &[
            ("cpu-clock", "prog", "main;compute", 6),
            ("off-cpu", "prog", "main;wait", 40),
            ("page-faults", "prog", "main;compute", 9),
        ],
    });
    assert_eq!(drawn(&scene.flame(&[], 100).unwrap()), ["main 6 0", "-compute 6 6"]);
    assert_eq!(drawn(&scene.flame(&["off-cpu"], 100).unwrap()), ["main 40 0", "-wait 40 40"]);
    let both = scene.flame(&["cpu-clock", "off-cpu"], 100).unwrap();
    let lines = [
        "off-cpu 10000 0",
        "-main 10000 0",
        "--wait 10000 10000",
        "cpu-clock 6000 0",
        "-main 6000 0",
        "--compute 6000 6000",
    ];
    assert_eq!(drawn(&both), lines);
    assert_eq!((both.unit.as_str(), both.functions[0].kind), ("ns", FlameKind::Event));

    let refused = |events: &[&str]| scene.flame(events, 100).unwrap_err().to_string();
    assert!(
        refused(&["cpu-clock", "page-faults"])
            .contains("events of different units have no sum: cpu-clock in ns, page-faults in events"),
        "{}",
        refused(&["cpu-clock", "page-faults"])
    );
    assert!(refused(&["nothing"]).contains("its events are cpu-clock"), "{}", refused(&["nothing"]));
}

#[test]
fn a_change_is_significant_only_beyond_chance() {
    let mut scene = Scene::new(&["main", "same", "grows", "gone"]);
    let mut run = |same, grows, gone| {
        scene.record(&Recording {
            events: &[TIME],
            stacks: &[
                ("cpu-clock", "prog", "main;same", same),
                ("cpu-clock", "prog", "main;grows", grows),
                ("cpu-clock", "prog", "main;gone", gone),
            ],
        })
    };
    let (a, b) = (run(1000, 500, 300), run(2020, 1960, 0));
    let diff = scene.diff(&[&a], &[&b]).unwrap();
    let of = |name: &str| {
        let is_it = |node: &&dwell_query::answer::FlameDiffNode| {
            node.function.is_some_and(|function| diff.functions[function as usize].name == name)
        };
        diff.nodes.iter().find(is_it).unwrap().change
    };
    assert_eq!((diff.samples_a, diff.samples_b), (1800, 3980));
    assert!(!of("main").significant && of("main").change.abs() < 1e-9, "{:?}", of("main"));
    let grows = of("grows");
    assert!(grows.significant && (grows.change_share - (1960.0 / 3980.0 - 500.0 / 1800.0)).abs() < 1e-9);
    assert!(of("gone").significant && of("gone").samples_b == 0.0);

    let again = scene.diff(&[&a], &[&a]).unwrap();
    assert!(again.nodes.iter().all(|node| !node.change.significant));
    assert!(diff.notes.iter().any(|note| note.starts_with("one run on each side")), "{:?}", diff.notes);
}
