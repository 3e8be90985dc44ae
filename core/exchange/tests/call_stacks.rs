//! Tests call stacks of perf's recordings: they are those that perf itself reports, and they survive an export and an import.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use dwell_exchange::{Format, ImportFile, Imported, Stacked, export, import_perf_data};
use dwell_profile::Database;
use dwell_query::{
    Cancel, Options, Query, SampleFilter,
    answer::{PlaceEvent, Places, StackFunction, StackNode, Stacks},
};
use jiff::Timestamp;

mod support;
use support::compile;

/// A program with several callers of one function, recursion, calls back from libc, and calls of the kernel. Each takes a tenth of
/// its time at least, so that each is among a hundred samples.
const SOURCE: &str = "\
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
static volatile uint64_t sink;
__attribute__((noinline)) uint64_t mix(uint64_t x) {
  for (int i = 0; i < 2000; i++)
    x = x * 31 + 7;
  return x;
}
__attribute__((noinline)) void parse(void) {
  for (int i = 0; i < 8; i++)
    sink = mix(sink) + 1;
}
__attribute__((noinline)) void load(int n) {
  if (n > 0)
    load(n - 1);
  sink = mix(sink) + 2;
}
__attribute__((noinline)) int compare(const void *a, const void *b) {
  sink = mix(*(const int *)a) + 3;
  return *(const int *)a - *(const int *)b;
}
__attribute__((noinline)) void sort(void) {
  int all[8] = {3, 1, 2, 7, 5, 4, 8, 6};
  qsort(all, 8, sizeof *all, compare);
  sink += all[0];
}
__attribute__((noinline)) void copy(int file) {
  static char bytes[1 << 16];
  for (int i = 0; i < 12; i++)
    sink += pread(file, bytes, sizeof bytes, 0);
}
int main(int argc, char **argv) {
  (void)argc;
  int file = open(\"/dev/zero\", O_RDONLY);
  for (uint64_t n = strtoull(argv[1], 0, 10); n > 0; n--) {
    parse();
    load(9);
    sort();
    copy(file);
  }
  return (int)sink == 5;
}
";

struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        compile(folder.path(), SOURCE, &["-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"]);
        Scene(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Records the program. Returns `None` if this machine cannot.
    fn record(&self, how: &str) -> Option<PathBuf> {
        let file = self.path("perf.data");
        let mut perf = Command::new("perf");
        perf.env("HOME", self.0.path()).args(["record", "-q", "-e", "cpu-clock", "-c", "1000000"]);
        perf.args(["--call-graph", how, "-o"]).arg(&file).arg("--").arg(self.path("spin")).arg("2500");
        match perf.stderr(Stdio::piped()).output() {
            Ok(ended) if ended.status.success() => Some(file),
            other => {
                println!("SKIPPED call stacks of perf record --call-graph {how}: {other:?}");
                None
            }
        }
    }

    fn import(&self, file: &Path) -> Imported {
        let database = Database::open(self.path("db")).unwrap();
        // perf keeps a copy of the kernel's vdso there.
        let perf_cache = Some(self.path(".debug"));
        let request = ImportFile { path: file.to_owned(), perf_cache, ..ImportFile::default() };
        import_perf_data(&database, &request, Timestamp::now()).unwrap()
    }

    fn query(&self) -> Query {
        Query::open(Options::for_database(self.path("db"))).unwrap()
    }

    fn stacks(&self, imported: &Imported) -> Stacks {
        let epochs = [imported.epoch.to_string()];
        self.query().stacks(&epochs, &SampleFilter::default(), &Cancel::new()).unwrap()
    }

    fn exported(&self, imported: &Imported, format: Format) -> Vec<u8> {
        let (query, epochs) = (self.query(), [imported.epoch.to_string()]);
        let places = query.places(&epochs, &None, &Cancel::new()).unwrap();
        let stacks = self.stacks(imported);
        export(&places, Some(Stacked { stacks: &stacks, all_samples: false }), format)
    }
}

/// Samples by stack: functions of the program and names of other binaries, outermost first.
type Folded = BTreeMap<String, u64>;

fn frame_name(function: &str, image: &str) -> String {
    match image {
        "spin" => function.to_owned(),
        _ if image.starts_with("[kernel") || image.starts_with("[guest") => "kernel".to_owned(),
        _ => image.to_owned(),
    }
}

/// Folds stacks as perf knows them: without inlined calls.
fn folded(stacks: &Stacks) -> Folded {
    let mut folded = Folded::new();
    for (node, path) in stacks.sampled() {
        let own = path.into_iter().filter(|frame| !stacks.nodes[*frame as usize].inlined);
        let functions = own.map(|frame| stacks.function(frame)).filter(|f| f.name != "[incomplete]");
        let names: Vec<String> = functions.map(|f| frame_name(&f.name, &f.image)).collect();
        *folded.entry(names.join(";")).or_default() += node.samples;
    }
    folded
}

/// Folds what `perf script` prints. Outermost frames that perf does not know are no frames.
fn script(file: &Path) -> Folded {
    let mut perf = Command::new("perf");
    perf.args(["script", "--no-inline", "-F", "event,ip,sym,dso", "-i"]).arg(file).stderr(Stdio::null());
    let text = String::from_utf8(perf.output().unwrap().stdout).unwrap();
    let mut folded = Folded::new();
    for sample in text.split("\n\n").filter(|sample| sample.contains(':')) {
        let frame = |line: &str| {
            let (_, named) = line.trim().split_once(' ')?;
            let (function, image) = named.rsplit_once(" (")?;
            Some(frame_name(function, image.trim_end_matches(')').rsplit('/').next()?))
        };
        let mut names: Vec<String> = sample.lines().skip(1).filter_map(frame).collect();
        while names.last().is_some_and(|name| name == "[unknown]") {
            names.pop();
        }
        names.reverse();
        *folded.entry(names.join(";")).or_default() += 1;
    }
    folded
}

fn differences(ours: &Folded, theirs: &Folded) -> String {
    let all: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let of = |folded: &Folded, stack: &String| folded.get(stack).copied().unwrap_or(0);
    let different = all.into_iter().filter(|stack| of(ours, stack) != of(theirs, stack));
    different.map(|stack| format!("{} {} {stack}\n", of(ours, stack), of(theirs, stack))).collect()
}

/// Folds stacks with inlined calls and the mark of incomplete ones.
fn folded_whole(stacks: &Stacks) -> Folded {
    let mut folded = Folded::new();
    for (node, path) in stacks.sampled() {
        let names: Vec<&str> = path.iter().map(|frame| &*stacks.function(*frame).name).collect();
        *folded.entry(names.join(";")).or_default() += node.samples;
    }
    folded
}

#[test]
fn stacks_are_those_of_perf_script_and_survive_an_export() {
    // By frame pointers the caller of a function without a frame, such as `mix`, is skipped.
    let by_copy = ["main;parse;mix", "load;load;mix", "libc.so.6;compare;mix", "copy;libc.so.6;kernel"];
    for (how, paths) in [("fp", &["load;load;mix"][..]), ("dwarf", &by_copy)] {
        let scene = Scene::new();
        let Some(file) = scene.record(how) else { continue };
        let imported = scene.import(&file);
        let stacks = scene.stacks(&imported);
        assert_eq!((stacks.samples(), stacks.all_samples), (imported.samples, imported.samples));
        let (ours, theirs) = (folded(&stacks), script(&file));
        assert_eq!(differences(&ours, &theirs), "", "{how}: {:?}", imported.notes);
        for path in paths {
            assert!(ours.keys().any(|stack| stack.contains(path)), "{how} {path}: {ours:?}");
        }
        for format in [Format::Pprof, Format::PerfScript] {
            fs::write(scene.path("exported"), scene.exported(&imported, format)).unwrap();
            let again = scene.import(&scene.path("exported"));
            assert_eq!(again.samples, imported.samples, "{how} {format:?}");
            let (before, after) = (folded_whole(&stacks), folded_whole(&scene.stacks(&again)));
            assert_eq!(differences(&before, &after), "", "{how} {format:?}: {:?}", again.notes);
        }
    }
}

/// The text of `perf script` of a program that is nowhere: inlined calls, source lines, an unknown frame, two applications, and
/// the mark of Dwell's own export.
const TEXT: &str = "\
prog     0  1.000001:    1000000 cpu-clock: 
\t            1010 next (inlined)
  a.c:3
\t            1010 parse+0x10 (/nowhere/prog)
  a.c:9
\t            2021 main+0x1 (/nowhere/prog)
  a.c:20

prog     0  1.000002:    1000000 cpu-clock: 
\t            1010 parse+0x10 (/nowhere/prog)
\t            7777 [unknown] ([unknown])
\t            2021 main+0x1 (/nowhere/prog)
\t               0 [incomplete] ()

other    0  1.000003:    1000000 cpu-clock: 
\tffffffff81000100 do_read+0x100 ([kernel.kallsyms])
\tffffffff81000205 read+0x5 ([kernel.kallsyms])
\t            2021 main+0x1 (/nowhere/prog)

";

#[test]
fn a_text_keeps_its_stacks_and_names() {
    let scene = Scene(tempfile::tempdir().unwrap());
    fs::write(scene.path("text"), TEXT).unwrap();
    let imported = scene.import(&scene.path("text"));
    let stacks = scene.stacks(&imported);
    let folded: Vec<(String, u64)> = folded_whole(&stacks).into_iter().collect();
    let of = |stack: &str| (stack.to_owned(), 1);
    let wanted = [of("[incomplete];main;[unknown];parse"), of("main;parse;next"), of("main;read;do_read")];
    assert_eq!(folded, wanted, "{:?}", imported.notes);
    let mut apps = stacks.apps.clone();
    apps.sort();
    assert_eq!(apps, ["other", "prog"]);
    let lines = |name: &str| {
        let nodes = stacks.nodes.iter().filter(|node| stacks.functions[node.function as usize].name == name);
        nodes.filter_map(|node| node.line.clone()).collect::<Vec<_>>()
    };
    assert_eq!((lines("next"), lines("parse")), (vec![("a.c".into(), 3)], vec![("a.c".into(), 9)]));
    assert_eq!(stacks.incomplete.keys().map(|(cause, _)| cause.as_str()).collect::<Vec<_>>(), ["unknown"]);

    // A text without callers has no stacks.
    let is_caller =
        |line: &&str| ["main", "read+", "[unknown]", "[incomplete]"].iter().any(|of| line.contains(of));
    let alone: Vec<&str> = TEXT.lines().filter(|line| !is_caller(line)).collect();
    fs::write(scene.path("text"), alone.join("\n").replace("a.c:20", "")).unwrap();
    let imported = scene.import(&scene.path("text"));
    let none = scene.query().stacks(&[imported.epoch.to_string()], &SampleFilter::default(), &Cancel::new());
    assert!(none.is_err() && imported.samples == 3);
}

#[test]
fn a_profile_of_pprof_names_frames_whose_binary_is_missing() {
    let scene = Scene(tempfile::tempdir().unwrap());
    let event = PlaceEvent { name: "cpu-clock".into(), period: 1_000_000, unit: "ns".into() };
    let function = |name: &str| StackFunction {
        name: name.into(),
        image: "prog".into(),
        path: "/nowhere/prog".into(),
        build_id: "abcdef0123".into(),
        image_base: 0,
        kernel: false,
    };
    let node = |parent: Option<u32>, function, inlined, address: u64, line, samples| StackNode {
        parent,
        app: 0,
        function,
        inlined,
        address,
        offset: address - 0x1000,
        line: Some(("a.c".to_owned(), line)),
        samples,
    };
    let exported = Stacks {
        epochs: vec!["e".into()],
        event: event.clone(),
        all_samples: 9,
        apps: vec!["prog".into()],
        functions: ["main", "parse", "next"].map(function).into(),
        nodes: vec![
            node(None, 0, false, 0x5004, 20, 0),
            node(Some(0), 1, false, 0x6010, 9, 0),
            node(Some(1), 2, true, 0x6010, 3, 4),
            node(Some(0), 1, false, 0x6020, 10, 5),
        ],
        incomplete: BTreeMap::new(),
        notes: Vec::new(),
    };
    let places = Places {
        epochs: vec!["e".into()],
        events: vec![event],
        period_cycles: None,
        start_ns: 0,
        duration_ns: 0,
        procedures: Vec::new(),
        notes: Vec::new(),
    };
    let stacked = Stacked { stacks: &exported, all_samples: false };
    fs::write(scene.path("profile"), export(&places, Some(stacked), Format::Pprof)).unwrap();
    let imported = scene.import(&scene.path("profile"));
    let stacks = scene.stacks(&imported);
    let wanted = [("main;parse".to_owned(), 5), ("main;parse;next".to_owned(), 4)];
    assert_eq!(folded_whole(&stacks), Folded::from(wanted));
    let sites: Vec<_> = stacks.nodes.iter().map(|node| (node.offset, node.line.clone().unwrap().1)).collect();
    assert!(sites.contains(&(0x4004, 20)) && sites.contains(&(0x5020, 10)), "{sites:?}");
}
