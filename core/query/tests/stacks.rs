//! Answers from call stacks, on a program compiled here with counts and stacks made up here: no sampling, no luck.

use std::{fs, path::PathBuf, process::Command};

use dwell_image::{Image, ImageAddress};
use dwell_profile::{
    CodePlace, Database, Epoch, EpochId, Event, ImageId, StackEnd, StackRoot, StoredCallTree, Unit,
};
use dwell_query::{
    CallStep, CallersRequest, Cancel, Direction, ImportRequest, Options, Query, QueryError, SampleFilter,
    SummaryRequest,
    answer::{CallPath, Callers, CallersRow, CodeLine, FileFunction, HottestPaths},
    import_counts,
};
use jiff::{SignedDuration, Timestamp};

const SOURCE: &str = "\
#include <stdint.h>
static volatile uint64_t sink;
__attribute__((noinline)) void leaf(uint64_t n) {
  for (uint64_t i = 0; i < n; i++)
    sink += i;
}
static inline __attribute__((always_inline)) void twice(uint64_t n) {
  leaf(n);
  sink += 2;
}
__attribute__((noinline)) void parse(uint64_t n) {
  twice(n);
  sink += n / 7;
}
__attribute__((noinline)) void load(uint64_t n) {
  leaf(n);
  sink += 3;
}
int main(int argc, char **argv) {
  (void)argv;
  parse(argc);
  load(argc);
  return (int)sink;
}
";

/// A program, its source, and a database with an epoch of samples and stacks of it.
struct Scene {
    dir: tempfile::TempDir,
    source: PathBuf,
    image: Image,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("calls.c"), dir.path().join("calls"));
        fs::write(&source, SOURCE).unwrap();
        let arguments =
            ["-O1", "-g", "-gdwarf-5", "-no-pie", "-fno-optimize-sibling-calls", "-Wl,--build-id"];
        let status =
            Command::new("gcc").args(arguments).arg(&source).arg("-o").arg(&program).status().unwrap();
        assert!(status.success());
        let scene = Scene { dir, source, image: Image::open(&program).unwrap() };
        scene.record(program);
        scene
    }

    /// 100 samples in the loop of `leaf`; half of them have a stack: 30 by `parse`, 18 by `load`, 2 that end in `load`. 10 are in
    /// `parse` itself, 5 of them with a stack.
    fn record(&self, program: PathBuf) {
        let (leaf, own) = (self.address("leaf", "sink += i"), self.address("parse", "n / 7"));
        let counts = self.dir.path().join("counts.tsv");
        fs::write(&counts, format!("calls\t{:x}\t100\ncalls\t{:x}\t10\n", leaf.0, own.0)).unwrap();
        let request = ImportRequest {
            counts,
            images: vec![program],
            machine: "generic-x86-64".to_owned(),
            event: "cpu-clock".to_owned(),
            period: 1_000_000,
            unit: Unit::Nanoseconds,
            clock_hz: Some(2e9),
            name: None,
        };
        let database = Database::open(self.dir.path().join("db")).unwrap();
        let imported = import_counts(&database, &request, Timestamp::now()).unwrap();
        let profile = database.read(&imported).unwrap();
        let image = profile.images[0].id.clone();
        let (parse, load, main) = (self.call("parse"), self.call("load"), ["parse(argc)", "load(argc)"]);
        let [to_parse, to_load] = main.map(|text| self.address("main", text));
        let mut tree = StoredCallTree::default();
        for (end, frames, samples) in [
            (StackEnd::Root, vec![to_parse, parse, leaf], 30),
            (StackEnd::Root, vec![to_parse, own], 5),
            (StackEnd::Root, vec![to_load, load, leaf], 18),
            (StackEnd::Cut, vec![load, leaf], 2),
        ] {
            let root = StackRoot { event: Event::named("cpu-clock"), app: "calls".into(), instance: 1, end };
            tree.add(root, frames.into_iter().map(|address| self.place(&image, address)), samples);
        }
        let now = Timestamp::now() + SignedDuration::from_secs(2);
        let epoch = Epoch { id: EpochId::new(now), start: now, end: None, ..profile.epoch.clone() };
        let mut writer = database.writer().unwrap().begin(epoch).unwrap();
        writer.append(&profile.counts, &profile.images).unwrap();
        writer.append_stacks(&tree).unwrap();
        writer.finish(now).unwrap();
    }

    fn place(&self, image: &ImageId, address: ImageAddress) -> CodePlace {
        CodePlace { image: image.clone(), offset: self.image.offset_of(address).unwrap() }
    }

    /// The last instruction of a procedure on the line with `text`.
    fn address(&self, procedure: &str, text: &str) -> ImageAddress {
        let found = self.image.procedures().iter().find(|p| p.name() == procedure).unwrap();
        let instructions = self.image.instructions(found.address, found.size_bytes);
        let is_on_line = |address: &ImageAddress| {
            self.image.frames(*address).last().is_some_and(|frame| frame.line == Some(line(text)))
        };
        instructions.iter().map(|i| i.address).filter(is_on_line).last().unwrap()
    }

    /// The last byte of the only call in a procedure.
    fn call(&self, procedure: &str) -> ImageAddress {
        let found = self.image.procedures().iter().find(|p| p.name() == procedure).unwrap();
        let instructions = self.image.instructions(found.address, found.size_bytes);
        let call = instructions.iter().find(|i| &*i.mnemonic == "call").unwrap();
        ImageAddress(call.address.0 + u64::from(call.length) - 1)
    }

    fn query(&self) -> Query {
        Query::open(Options::for_database(self.dir.path().join("db"))).unwrap()
    }

    fn callers(&self, function: &str, direction: Direction, through: Vec<CallStep>) -> Callers {
        let request = CallersRequest {
            epochs: Vec::new(),
            function: function.to_owned(),
            direction,
            event: None,
            through,
            depth: 1,
            share_min: 0.0,
            filter: SampleFilter::default(),
        };
        self.query().callers(&request, &Cancel::new()).unwrap()
    }
}

/// The number of the line with `text`, from 1.
fn line(text: &str) -> u32 {
    SOURCE.lines().position(|line| line.contains(text)).unwrap() as u32 + 1
}

fn step(function: &str, inlined: bool) -> CallStep {
    CallStep { function: function.to_owned(), image: "calls".to_owned(), inlined }
}

/// Names of rows, whether they are inlined, their samples, and the lines of their calls.
fn rows(callers: &Callers) -> Vec<(&str, bool, u64, Vec<u32>)> {
    let lines = |row: &CallersRow| row.sites.iter().map(|site| site.line).collect();
    callers.rows.iter().map(|row| (&*row.function, row.inlined, row.samples, lines(row))).collect()
}

#[test]
fn callers_are_followed_a_level_at_a_time_along_the_way_that_led_there() {
    let scene = Scene::new();
    let direct = scene.callers("leaf", Direction::Callers, Vec::new());
    let begins =
        |name: &str| Some(CodeLine { file: scene.source.to_str().unwrap().to_owned(), line: line(name) });
    assert_eq!(
        (direct.samples, direct.own, direct.total, &direct.begins),
        (50, 50, 55, &begins("void leaf"))
    );
    let calls = ["void twice", "void load"].map(|text| vec![line(text) + 1]);
    let [by_twice, by_load] = calls;
    assert_eq!(rows(&direct), [("twice", true, 30, by_twice), ("load", false, 20, by_load)]);
    assert_eq!(direct.rows.iter().map(|row| &row.begins).collect::<Vec<_>>(), [&None, &begins("void load")]);
    assert!((direct.rows[0].share - 0.6).abs() < 1e-9);

    let parse = scene.callers("leaf", Direction::Callers, vec![step("twice", true)]);
    assert_eq!(rows(&parse), [("parse", false, 30, vec![line("twice(n)")])]);
    let load = scene.callers("leaf", Direction::Callers, vec![step("load", false)]);
    assert_eq!(
        rows(&load),
        [("main", false, 18, vec![line("load(argc)")]), ("[incomplete]", false, 2, vec![])]
    );
    assert!(rows(&scene.callers("leaf", Direction::Callers, vec![step("twice", false)])).is_empty());

    let callees = scene.callers("main", Direction::Callees, Vec::new());
    assert_eq!((callees.samples, callees.own), (53, 0));
    assert_eq!(
        rows(&callees),
        [("parse", false, 35, vec![line("parse(argc)")]), ("load", false, 18, vec![line("load(argc)")])]
    );
    let inner = scene.callers("main", Direction::Callees, vec![step("parse", false)]);
    assert_eq!(rows(&inner), [("twice", true, 30, vec![line("twice(n)")])]);
}

#[test]
fn functions_of_a_file_stand_at_their_lines_as_the_file_is_now() {
    let scene = Scene::new();
    let functions = |scene: &Scene| {
        let answer = scene.query().file_functions(&[], &scene.source, &Cancel::new()).unwrap();
        let told = |f: &FileFunction| (f.function.clone(), f.line, f.lines, f.samples, f.own, f.rows.len());
        answer.functions.iter().map(told).collect::<Vec<_>>()
    };
    let (leaf, parse, load, main) =
        (line("void leaf"), line("void parse"), line("void load"), line("int main"));
    let expected = [
        ("twice".to_owned(), None, Some((line("void twice") + 1, line("void twice") + 1)), 30, 0, 1),
        ("leaf".to_owned(), Some(leaf), Some((leaf + 2, leaf + 2)), 50, 50, 2),
        ("parse".to_owned(), Some(parse), Some((parse + 1, parse + 2)), 35, 5, 1),
        ("load".to_owned(), Some(load), Some((load + 1, load + 1)), 20, 0, 2),
        ("main".to_owned(), Some(main), Some((main + 2, main + 3)), 53, 0, 0),
    ];
    assert_eq!(functions(&scene), expected);
    // Nobody knows which lines moved: no copy of the source was kept.
    fs::write(&scene.source, format!("// new\n{SOURCE}")).unwrap();
    assert_eq!(functions(&scene), []);
    let elsewhere = scene.query().file_functions(&[], &scene.dir.path().join("other.c"), &Cancel::new());
    assert!(elsewhere.unwrap().functions.is_empty());
}

#[test]
fn paths_that_differ_in_outer_frames_are_one_if_they_are_shortened() {
    let scene = Scene::new();
    let paths = |depth, limit| {
        scene.query().hottest_paths(&[], &SampleFilter::default(), limit, depth, &Cancel::new()).unwrap()
    };
    let told = |answer: &HottestPaths| {
        let names = |p: &CallPath| {
            let names: Vec<&str> = p.frames.iter().map(|f| &*f.function).collect();
            (names.join(" "), p.shortened, p.samples)
        };
        answer.paths.iter().map(names).collect::<Vec<_>>()
    };
    let whole = paths(8, 3);
    let path = |names: &str, shortened, samples| (names.to_owned(), shortened, samples);
    assert_eq!(
        told(&whole),
        [
            path("main parse twice leaf", false, 30),
            path("main load leaf", false, 18),
            path("main parse", false, 5)
        ]
    );
    assert_eq!((whole.others, whole.others_samples, whole.samples), (1, 2, 55));
    assert_eq!(whole.paths[0].frames[1].site.as_ref().map(|site| site.line), Some(line("twice(n)")));
    let short = paths(2, 10);
    assert_eq!(
        told(&short),
        [path("twice leaf", true, 30), path("load leaf", true, 20), path("main parse", false, 5)]
    );
}

#[test]
fn a_summary_under_a_function_is_of_the_blocks_that_its_samples_are_in() {
    let scene = Scene::new();
    let summary = |under: Option<&str>, procedure: Option<&str>| {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        let request =
            SummaryRequest { under: owned(under), procedure: owned(procedure), ..SummaryRequest::default() };
        scene.query().summary(&request, &Cancel::new())
    };
    let parse = summary(Some("parse"), None).unwrap();
    let under = parse.under.clone().unwrap();
    assert_eq!((parse.scope.kind.as_str(), parse.scope.name.as_str()), ("under", "calls:parse"));
    assert_eq!(
        (under.samples, under.own, under.stack_samples, under.all_samples, under.incomplete),
        (35, 5, 55, 110, 2)
    );
    assert_eq!((parse.samples, parse.procedures, parse.procedures_left_out), (35, 2, 0));
    assert_eq!((parse.cycles, parse.instructions), (None, None));
    assert_eq!((parse.execution, parse.total_stall), (None, None), "the scale is not absolute");
    let possible = parse.execution_max + parse.total_stall_max;
    assert!(
        possible >= 1.0 - 1e-9 && parse.execution_min + parse.total_stall_min <= 1.0 + 1e-9,
        "{parse:#?}"
    );

    // All samples under `load` are in the loop of `leaf`, as all samples of `leaf` are: their cycles go the same way, but for the few
    // samples that are expected in other blocks of `leaf`, where there are none.
    let (load, leaf) = (summary(Some("load"), None).unwrap(), summary(None, Some("leaf")).unwrap());
    assert_eq!((load.samples, leaf.samples, load.under.unwrap().incomplete), (20, 100, 0));
    assert!((load.samples_tallied - 0.2 * leaf.samples_tallied).abs() < 1e-6);
    for (a, b) in [
        (load.subtotal_dynamic_min, leaf.subtotal_dynamic_min),
        (load.subtotal_dynamic_max, leaf.subtotal_dynamic_max),
        (load.subtotal_static_max, leaf.subtotal_static_max),
        (load.execution_max, leaf.execution_max),
        (load.dynamic[2].share_max, leaf.dynamic[2].share_max),
    ] {
        assert!((a - b).abs() < 0.01, "{a} {b}");
    }
    assert!(matches!(summary(Some("nobody"), None), Err(QueryError::NoFunctionInStacks { .. })));
}

#[test]
fn stacks_are_not_kept_by_thread_so_a_filter_by_thread_is_refused() {
    let scene = Scene::new();
    let filter = SampleFilter { thread: Some("worker".to_owned()), ..SampleFilter::default() };
    let refused = scene.query().inclusive(&[], &filter, None, &Cancel::new());
    assert!(refused.is_err(), "{refused:?}");
}
