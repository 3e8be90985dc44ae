//! Tests the names in a profile itself, which are used if the images are not on this machine: functions, files and lines in
//! pprof's profiles and in the text of `perf script`, and names of generated code.

use std::{collections::BTreeMap, fs, path::PathBuf};

use dwell_exchange::{Format, ImportFile, Imported, export, import_perf_data};
use dwell_profile::Database;
use dwell_query::{
    Cancel, Options, Query, TopBy, TopRequest,
    answer::{Listing, TopRow},
};
use jiff::Timestamp;

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
        let database = Database::open(self.path("db")).unwrap();
        let request = ImportFile { path: self.path("profile"), ..ImportFile::default() };
        import_perf_data(&database, &request, Timestamp::now()).unwrap()
    }

    fn query(&self) -> Query {
        Query::open(Options::for_database(self.path("db"))).unwrap()
    }

    fn rows(&self, by: TopBy, epochs: &[&str]) -> Vec<TopRow> {
        let epochs = epochs.iter().map(|e| e.to_string()).collect();
        self.query().top(&TopRequest { by, epochs, ..TopRequest::default() }, &Cancel::new()).unwrap().rows
    }

    /// Returns the samples of the newest epoch by `image function`.
    fn procedures(&self) -> BTreeMap<String, u64> {
        let name = |r: &TopRow| format!("{} {}", r.image.as_ref().unwrap(), r.demangled.as_ref().unwrap());
        let rows = self.rows(TopBy::Procedure, &[]);
        let all: BTreeMap<_, _> = rows.iter().map(|r| (name(r), r.samples.values().sum())).collect();
        assert_eq!(all.len(), rows.len(), "a row for each: {rows:?}");
        all
    }

    /// Returns the samples of the newest epoch by `file:line`.
    fn lines(&self) -> BTreeMap<String, u64> {
        let rows = self.rows(TopBy::Line, &[]);
        let line = |r: TopRow| (format!("{}:{}", r.file.unwrap_or_default(), r.line.unwrap_or(0)), r.samples);
        rows.into_iter().map(line).map(|(line, n)| (line, n.values().sum())).collect()
    }

    fn listing(&self, name: &str) -> Listing {
        self.query().listing(&[], name, &Cancel::new()).unwrap()
    }

    fn exported(&self, format: Format) -> Vec<u8> {
        export(&self.query().places(&[], &None, &Cancel::new()).unwrap(), None, format)
    }
}

fn wanted(rows: &[(&str, u64)]) -> BTreeMap<String, u64> {
    rows.iter().map(|(name, count)| (name.to_string(), *count)).collect()
}

/// Writes pprof's messages: a field is a number or bytes.
#[derive(Default)]
struct Wire(Vec<u8>);

impl Wire {
    fn varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn number(self, field: u64, value: u64) -> Self {
        self.varint(field << 3).varint(value)
    }

    fn bytes(self, field: u64, bytes: &[u8]) -> Self {
        let mut wire = self.varint(field << 3 | 2).varint(bytes.len() as u64);
        wire.0.extend(bytes);
        wire
    }

    fn message(self, field: u64, message: Wire) -> Self {
        self.bytes(field, &message.0)
    }
}

/// The calls at a place, each by function and line, innermost first.
type Calls<'a> = &'a [(u64, u64)];

/// A profile: mappings (start, path, build id), functions (name, linkage name, file, first line) and locations (mapping, address,
/// [(function, line)]), each numbered from 1; samples (location, count).
#[derive(Default)]
struct Pprof<'a> {
    mappings: &'a [(u64, &'a str, &'a str)],
    functions: &'a [(&'a str, &'a str, &'a str, u64)],
    locations: &'a [(u64, u64, Calls<'a>)],
    samples: &'a [(u64, u64)],
}

impl Pprof<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut texts: Vec<String> = ["", "samples", "count"].map(str::to_owned).into();
        let mut text = |text: &str| {
            let known = texts.iter().position(|t| t == text);
            known.unwrap_or_else(|| {
                texts.push(text.to_owned());
                texts.len() - 1
            }) as u64
        };
        let mut all = Wire::default().message(1, Wire::default().number(1, 1).number(2, 2));
        for (id, (start, path, build_id)) in (1..).zip(self.mappings) {
            let mapping = Wire::default().number(1, id).number(2, *start);
            all = all.message(3, mapping.number(5, text(path)).number(6, text(build_id)));
        }
        for (id, (name, linkage, file, line)) in (1..).zip(self.functions) {
            let function = Wire::default().number(1, id).number(2, text(name)).number(3, text(linkage));
            all = all.message(5, function.number(4, text(file)).number(5, *line));
        }
        for (id, (mapping, address, lines)) in (1..).zip(self.locations) {
            let mut location = Wire::default().number(1, id).number(2, *mapping).number(3, *address);
            for (function, line) in *lines {
                location = location.message(4, Wire::default().number(1, *function).number(2, *line));
            }
            all = all.message(4, location);
        }
        for (location, count) in self.samples {
            all = all.message(2, Wire::default().number(1, *location).number(2, *count));
        }
        texts.iter().fold(all, |all, text| all.bytes(6, text.as_bytes())).0
    }
}

/// A profile of a program and a kernel that are not on this machine: two places of one function, one of them with an
/// inlined call, and a mangled name.
const PROGRAM: Pprof<'_> = Pprof {
    mappings: &[(0x40_0000, "/gone/app", "abcdef0123"), (0xffff_ffff_8100_0000, "[kernel.kallsyms]", "")],
    functions: &[
        ("main.burn", "main.burn", "/src/main.go", 9),
        ("ns::f(int)", "_ZN2ns1fEi", "/src/f.cc", 20),
        ("helper", "helper", "/src/helper.h", 3),
        ("do_syscall_64", "do_syscall_64", "", 0),
        ("late", "late", "/src/main.go", 90),
    ],
    locations: &[
        (1, 0x40_1010, &[(1, 11)]),
        (1, 0x40_1020, &[(3, 5), (1, 12)]),
        (1, 0x40_2000, &[(2, 21)]),
        (2, 0xffff_ffff_8100_0040, &[(4, 0)]),
        // This place lies between the places of another function, because the code of a function may be split.
        (1, 0x40_1018, &[(5, 91)]),
        (1, 0x40_3000, &[]),
    ],
    samples: &[(1, 10), (2, 4), (3, 3), (4, 2), (5, 1), (6, 5)],
};

#[test]
fn functions_of_a_missing_program_have_the_names_of_the_profile() {
    let scene = Scene::new();
    let imported = scene.import(&PROGRAM.bytes());
    let missing = imported.notes.iter().filter(|n| n.contains("/gone/app")).count();
    assert_eq!(missing, 1, "a missing image is one warning: {:?}", imported.notes);
    assert!(!imported.notes.iter().any(|n| n.contains("no names")), "{:?}", imported.notes);
    let procedures = wanted(&[
        ("/gone/app main.burn", 14),
        ("/gone/app [no symbol]", 5),
        ("/gone/app ns::f(int)", 3),
        ("[kernel.kallsyms] do_syscall_64", 2),
        ("/gone/app late", 1),
    ]);
    let lines = wanted(&[
        ("/src/main.go:11", 10),
        ("/src/helper.h:5", 4),
        ("/src/f.cc:21", 3),
        ("/src/main.go:91", 1),
    ]);
    let lines_of = |scene: &Scene| {
        let mut lines = scene.lines();
        lines.retain(|line, _| line != ":0");
        lines
    };
    assert_eq!((scene.procedures(), lines_of(&scene)), (procedures.clone(), lines.clone()));
    let row =
        scene.rows(TopBy::Procedure, &[]).into_iter().find(|r| r.procedure.as_deref() == Some("_ZN2ns1fEi"));
    let row = row.expect("the linkage name stays");
    assert_eq!((row.file.as_deref(), row.line), (Some("/src/f.cc"), Some(20)), "where it begins");
    // The listing shows places and is found by name. It has no instructions, since the profile contains none.
    let listing = scene.listing("main.burn");
    let places: Vec<_> = listing.instructions.iter().map(|i| (i.address, i.line, i.head_samples)).collect();
    assert_eq!(places, [(0x1010, Some(11), 10.0), (0x1020, Some(5), 4.0)]);
    assert!(!listing.has_code());
    let costs = scene.query().file_costs(&[], "/src/main.go".as_ref(), &Cancel::new()).unwrap();
    let shown: Vec<_> = costs.lines.iter().map(|l| (l.line, l.samples.values().sum::<u64>())).collect();
    assert_eq!(shown, [(11, 10), (91, 1)], "editors show its lines");
    // Names survive an export, and merging with another epoch.
    scene.import(&scene.exported(Format::Pprof));
    assert_eq!((scene.procedures(), lines_of(&scene)), (procedures, lines));
    let both = scene.rows(TopBy::Procedure, &["latest", "latest~1"]);
    let burn: Vec<u64> = both
        .iter()
        .filter(|r| r.procedure.as_deref() == Some("main.burn"))
        .map(|r| r.samples.values().sum())
        .collect();
    assert_eq!(burn, [28]);
    let text = String::from_utf8(scene.exported(Format::PerfScript)).unwrap();
    assert!(text.contains(" main.burn (/gone/app)"), "no offset is made up: {text}");
}

#[test]
fn counts_beyond_the_largest_number_stop_there() {
    let scene = Scene::new();
    let most = i64::MAX as u64;
    scene.import(&Pprof { samples: &[(1, most), (2, most), (3, most)], ..PROGRAM }.bytes());
    let rows = scene.procedures();
    assert!(rows["/gone/app main.burn"] >= most && rows["/gone/app ns::f(int)"] <= most, "{rows:?}");
}

#[test]
fn profiles_without_addresses_have_a_row_for_each_function() {
    let functions = [
        ("handler", "handler", "app.py", 10),
        ("<module>", "<module>", "app.py", 1),
        ("com.x.Y.run(int)", "Lcom/x/Y;", "Y.java", 3),
        ("handler", "handler", "other.py", 1),
    ];
    let locations: [(u64, u64, Calls<'_>); 6] = [
        (0, 0, &[(1, 12)]),
        (0, 0, &[(1, 13)]),
        (0, 0, &[(2, 40)]),
        (0, 0, &[(3, 5)]),
        (0, 0, &[(4, 2)]),
        (0, 0, &[]),
    ];
    let samples = [(1, 5), (2, 2), (3, 1), (4, 3), (5, 4), (6, 6)];
    let scene = Scene::new();
    let pprof = Pprof { mappings: &[], functions: &functions, locations: &locations, samples: &samples };
    let check = |scene: &Scene| {
        let mut rows: Vec<_> = scene
            .rows(TopBy::Procedure, &[])
            .into_iter()
            .map(|r| (r.demangled.unwrap(), r.file.unwrap_or_default(), r.samples.into_values().sum::<u64>()))
            .collect();
        rows.sort();
        let rows: Vec<_> = rows.iter().map(|(name, file, n)| (name.as_str(), file.as_str(), *n)).collect();
        assert_eq!(
            rows,
            [
                ("<module>", "app.py", 1),
                ("[no symbol]", "", 6),
                ("com.x.Y.run(int)", "Y.java", 3),
                ("handler", "app.py", 7),
                ("handler", "other.py", 4)
            ]
        );
    };
    scene.import(&pprof.bytes());
    check(&scene);
    assert_eq!(scene.lines()["app.py:12"], 5);
    let listing = scene.listing("<module>");
    assert_eq!(listing.instructions[0].address, 0, "a number that stands for a place is no address");
    scene.import(&scene.exported(Format::Pprof));
    check(&scene);
    let both = scene.rows(TopBy::Procedure, &["latest", "latest~1"]);
    assert!(both.iter().any(|r| r.samples.values().sum::<u64>() == 14), "the same place in both: {both:?}");
}

#[test]
fn a_file_with_other_functions_is_not_used_as_the_image() {
    let scene = Scene::new();
    let here = std::env::current_exe().unwrap().display().to_string();
    let pprof = Pprof {
        mappings: &[(0, &here, "")],
        functions: &[("somebody", "", "", 0)],
        locations: &[(1, 0x2000, &[(1, 0)])],
        samples: &[(1, 3)],
    };
    let imported = scene.import(&pprof.bytes());
    assert!(imported.notes.iter().any(|n| n.contains("another build")), "{:?}", imported.notes);
    assert_eq!(scene.procedures(), wanted(&[(&format!("{here} somebody"), 3)]));
}

#[test]
fn the_text_of_perf_script_names_functions_of_missing_files() {
    // These are fields that perf 3 to 6 print: with and without `-g`, sources, inlined calls, names with spaces, lines
    // without a time, tracepoints.
    let chains = "\
# hostname : elsewhere
# os release : 5.10.0
my app 1  100/101 [001]  2093.314957:    5000000 cycles:u: \n\t    5586e6ff113f std::function<void (int)>::operator()(int) const+0x16 (/gone/My App (x86)/b)
  /src/s.cc:2
\t    5586e6ff2000 main+0x4 (/gone/My App (x86)/b)
  /src/s.cc:9

my app 1  100/101 [001]  2093.324957:    5000000 cycles:u: \n\t    5586e6ff113f mix (inlined)
  /src/mix.h:7
\t    5586e6ff1140 spin+0x17 (/gone/My App (x86)/b)
  /src/s.cc:3

a: b 7: 1  200/200 [000]  2093.334957:    5000000 cycles:u: \n\tffffffff822010c9 do_idle+0x19 ([kernel.kallsyms])
\tffffffff81000e06 secondary_startup_64+0x16 ([kernel.kallsyms])

a: b 7: 1  200/200 [000]  2093.344957:    5000000 cycles:u: \n\tffffffffc0001010 nf_hook+0x10 ([nf_tables])

a: b 7: 1  200/200 [000]  2093.354957:    5000000 cycles:u: \n\t    7f2f34aef400 [unknown] (/gone/lib.so (deleted))

a: b 7: 1  200/200 [000]  2093.364957:    5000000 cycles:u: \n\t    7f2f34aef400 [unknown] ([unknown])

";
    let scene = Scene::new();
    let imported = scene.import(chains.as_bytes());
    assert_eq!(imported.samples, 6);
    assert!(!imported.notes.iter().any(|n| n.contains("could not be read")), "{:?}", imported.notes);
    assert_eq!(
        scene.procedures(),
        wanted(&[
            ("/gone/My App (x86)/b std::function<void (int)>::operator()(int) const", 1),
            ("/gone/My App (x86)/b spin", 1),
            ("[kernel.kallsyms] do_idle", 1),
            ("[nf_tables] nf_hook", 1),
            ("/gone/lib.so [no symbol]", 1),
            ("[unknown] [no symbol]", 1),
        ])
    );
    assert_eq!((scene.lines()["/src/s.cc:2"], scene.lines()["/src/mix.h:7"]), (1, 1));
    for (text, rows) in [
        // These are single lines of perf 6: two processes execute one program at different addresses, and its function
        // is the same.
        (
            "               s     1  1.000001:    5000000 cpu-clock:ppp:      5586e6ffa13f spin+0x16 (/gone/s)\n\
                            s     2  1.000002:    5000000 cpu-clock:ppp:      5599e6ffa13f spin+0x16 (/gone/s)\n",
            &[("/gone/s spin", 2)][..],
        ),
        // perf 3 prints no periods.
        (
            "s  1 [000] 1.1: cycles:  ffffffff8104f45a native_safe_halt+0xa ([kernel.kallsyms])\n",
            &[("[kernel.kallsyms] native_safe_halt", 1)],
        ),
        // With -F comm,ip,sym,dso and -F comm,pid,event,ip,sym, names of commands can look like addresses.
        (
            "             add      5586e6ffa13f spin (/gone/s)\n           cafe1      5586e6ffa14a spin (/gone/s)\n",
            &[("/gone/s spin", 2)],
        ),
        ("               s 31846 cpu-clock:ppp:      5586e6ffa13f a::b\n", &[("[no image named] a::b", 1)]),
        (
            "s 31764 \n\t    5586e6ffa13f spin (/gone/s)\n\t    5586e6ffb000 main (/gone/s)\n\n",
            &[("/gone/s spin", 1)],
        ),
        // The text of a tracepoint is not a place, but the calls below it are.
        (
            "s 1 [000] 1.100: sched:sched_switch: prev_comm=s: x prev_pid=1 ==> next_comm=y\n\
             s 1 [000] 1.200: probe:f: (ffffffff81000000) a=1\n\tffffffff81000000 f+0x0 ([kernel.kallsyms])\n\n",
            &[("[unknown] [no symbol]", 1), ("[kernel.kallsyms] f", 1)],
        ),
        // Generated code is named separately for each process.
        (
            "java 7 1.1000: 1 cycles: \n\t    7f0000001010 Lfoo; (/tmp/perf-7.map)\n\n\
             java 8 1.2000: 1 cycles: \n\t    7f0000001010 Lbar; (/tmp/perf-8.map)\n\n",
            &[("jit:java Lfoo;", 1), ("jit:java Lbar;", 1)],
        ),
    ] {
        let imported = scene.import(text.as_bytes());
        assert_eq!(scene.procedures(), wanted(rows), "{text}\n{:?}", imported.notes);
        assert!(
            !imported.notes.iter().any(|n| n.contains("could not be read")),
            "{text}\n{:?}",
            imported.notes
        );
    }
    let refused = |text: &str| {
        fs::write(scene.path("profile"), text).unwrap();
        let database = Database::open(scene.path("db")).unwrap();
        let request = ImportFile { path: scene.path("profile"), ..ImportFile::default() };
        import_perf_data(&database, &request, Timestamp::now()).is_err()
    };
    assert!(refused("a;b;c 12\n") && refused("error: it 12 is\nINFO foo: bar\n"), "other texts are refused");
}

#[test]
fn generated_code_has_the_names_of_its_own_process() {
    let sample = |pid: u32, address: &str| {
        format!("worker  {pid}  1.000001:          1 cycles: \n\t    {address} [unknown] ([unknown])\n\n")
    };
    let mapped = |pid: u32| {
        format!(
            "worker  {pid}  0.500000: PERF_RECORD_MMAP2 {pid}/{pid}: [0x7f0000001000(0x1000) @ 0 00:00 0 0]: rwxp //anon\n"
        )
    };
    let text = [
        mapped(5000001),
        mapped(5000002),
        sample(5000001, "7f0000001010"),
        sample(5000002, "7f0000001010"),
        sample(5000002, "7f0000001800"),
    ];
    let scene = Scene::new();
    fs::write(scene.path("perf-5000001.map"), "7f0000001000 100 one\n").unwrap();
    fs::write(scene.path("perf-5000002.map"), "7f0000001000 100 two of it\n").unwrap();
    scene.import(text.concat().as_bytes());
    let rows = [("jit:worker one", 1), ("jit:worker two of it", 1), ("jit:worker [no symbol]", 1)];
    assert_eq!(scene.procedures(), wanted(&rows));
    // With a single process the name is used as it is. A symbolic link is not followed, because it can lead to any
    // file.
    let alone = [mapped(5000001), sample(5000001, "7f0000001010")].concat();
    scene.import(alone.as_bytes());
    assert_eq!(scene.procedures(), wanted(&[("jit:worker one", 1)]));
    fs::remove_file(scene.path("perf-5000001.map")).unwrap();
    std::os::unix::fs::symlink(scene.path("perf-5000002.map"), scene.path("perf-5000001.map")).unwrap();
    let imported = scene.import(alone.as_bytes());
    assert_eq!(scene.procedures(), wanted(&[("jit:worker [no symbol]", 1)]));
    assert!(imported.notes.iter().any(|n| n.contains("perf-5000001.map")), "{:?}", imported.notes);
}
