//! Tests recordings of the installed perf with many options: each event has as many samples as perf itself counts.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use dwell_exchange::{ImportFile, Imported, import_perf_data};
use dwell_profile::Database;
use dwell_query::{Cancel, Options, Query, TopRequest};
use jiff::Timestamp;

mod support;
use support::{SPIN, compile};

/// The tested options of `perf record`; `-o -` writes a stream, `-o FOLDER` a folder.
const COMMAND_LINES: [&str; 27] = [
    "-e cpu-clock",
    "-e cpu-clock -e cpu-clock:u",
    "-e cpu-clock:k -e cpu-clock:u",
    "-e task-clock -e task-clock",
    "-e cpu-clock,page-faults -c 1000",
    "-e {cpu-clock,page-faults}",
    "-e {cpu-clock,page-faults}:S",
    "-g -e {cpu-clock,page-faults,task-clock}:S",
    "-e {cpu-clock,page-faults}:S -o -",
    "-e cpu-clock -o -",
    "-e cpu-clock -e cpu-clock:u -o -",
    "-e cpu-clock,sched:sched_switch",
    "-e cpu-clock,sched:sched_switch -o -",
    "-e sched:sched_process_exec,sched:sched_process_exit -c 1 -o -",
    "-e cpu-clock -z",
    "-e cpu-clock -z -o -",
    "-e cpu-clock --threads -o FOLDER",
    "-e cpu-clock -e task-clock --threads -z -o FOLDER",
    "-e cpu-clock --call-graph dwarf",
    "-e cpu-clock --per-thread",
    "-e cpu-clock -a -C 0",
    "-e cpu-clock --switch-events --data -d -W",
    "-e cpu-clock --phys-data --intr-regs --user-regs",
    "-e cpu-clock -T --sample-cpu -P --sample-identifier --all-cgroups",
    "-e cpu-clock --no-inherit -s -n",
    "-e cpu-clock --kcore -o FOLDER",
    "-e cpu-clock --clockid monotonic --no-bpf-event --namespaces",
];

struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        compile(folder.path(), SPIN, &[]);
        Scene(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Records the program. Returns `None` if this perf or this kernel cannot.
    fn record(&self, options: &str) -> Option<PathBuf> {
        let (options, place) = match options.split_once(" -o ") {
            Some((options, place)) => (options, place),
            None => (options, "FILE"),
        };
        let data = self.path("perf.data");
        fs::remove_dir_all(&data).or_else(|_| fs::remove_file(&data)).ok();
        let mut perf = Command::new("perf");
        perf.env("HOME", self.0.path()).args(["record", "-q", "-B"]).args(options.split(' '));
        match place {
            "-" => perf.args(["-o", "-"]).stdout(File::create(&data).unwrap()),
            _ => perf.arg("-o").arg(&data),
        };
        perf.arg("--").arg(self.path("spin")).arg("20000000").stderr(Stdio::piped());
        let ended =
            perf.output().inspect_err(|e| println!("SKIPPED import of perf record {options}: {e}")).ok()?;
        if ended.status.success() {
            return Some(data);
        }
        let why = String::from_utf8_lossy(&ended.stderr);
        println!("SKIPPED import of perf record {options}: {}", why.lines().next().unwrap_or_default());
        None
    }

    fn import(&self, file: &Path) -> Result<Imported, String> {
        let database = Database::open(self.path("db")).unwrap();
        let request = ImportFile { path: file.to_owned(), ..ImportFile::default() };
        import_perf_data(&database, &request, Timestamp::now()).map_err(|e| e.to_string())
    }

    /// Returns the events of the epoch that have samples, with the samples in its record. Checks that a table of the epoch has
    /// the same numbers.
    fn events(&self, imported: &Imported) -> Vec<(String, u64)> {
        let query = Query::open(Options::for_database(self.path("db"))).unwrap();
        let epochs = query.epochs().unwrap();
        let id = imported.epoch.to_string();
        let epoch = epochs.epochs.iter().find(|e| e.id == id).unwrap();
        let counts = epoch.events.iter().map(|(name, e)| (name.clone(), e.samples));
        let counts: Vec<_> = counts.filter(|(_, samples)| *samples > 0).collect();
        let request = TopRequest { epochs: vec![id], ..TopRequest::default() };
        let top = query.top(&request, &Cancel::new()).unwrap();
        assert_eq!(top.total.into_iter().collect::<Vec<_>>(), counts, "a table has what the record says");
        counts
    }
}

/// Returns the samples of the file, and those of each event, as `perf report --stats` counts them.
fn stats(file: &Path) -> Option<(u64, Vec<(String, u64)>)> {
    let ended = Command::new("perf").args(["report", "--stats", "-i"]).arg(file).output().unwrap();
    if !ended.status.success() {
        println!("SKIPPED comparison with perf report --stats: {}", ended.status);
        return None;
    }
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let mut counts: Vec<(String, u64)> = Vec::new();
    let mut of = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(event) = line.strip_suffix(" stats:") {
            event.clone_into(&mut of);
        } else if let Some((_, count)) =
            line.split_once("SAMPLE events:").filter(|(before, _)| before.is_empty())
        {
            counts.push((of.clone(), count.split_whitespace().next()?.parse().ok()?));
        }
    }
    match counts.iter().position(|(of, _)| of == "Aggregated").map(|at| counts.remove(at).1) {
        Some(samples) => Some((samples, counts)),
        // perf report 6.1 fails at the formats of tracepoints in a stream; perf script does not.
        None => script(file),
    }
}

/// Returns the same numbers, counted in the output of `perf script`.
fn script(file: &Path) -> Option<(u64, Vec<(String, u64)>)> {
    let ended = Command::new("perf").args(["script", "-F", "event", "-i"]).arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for event in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        *counts.entry(event.trim_end_matches(':').to_owned()).or_default() += 1;
    }
    ended.status.success().then(|| (counts.values().sum(), counts.into_iter().collect()))
}

/// Returns only the numbers, sorted, because perf prints modifiers of events in one place and not in the other.
fn numbers(counts: &[(String, u64)]) -> Vec<u64> {
    let mut numbers: Vec<u64> = counts.iter().map(|(_, count)| *count).collect();
    numbers.sort_unstable();
    numbers
}

/// Number of command lines for each thread. perf waits a second for the kernel at each recording, so several run at a time.
const LINES_OF_A_THREAD: usize = 3;

#[test]
fn every_recording_of_perf_has_the_samples_that_perf_counts() {
    std::thread::scope(|threads| {
        for lines in COMMAND_LINES.chunks(LINES_OF_A_THREAD) {
            threads.spawn(|| compare(lines));
        }
    });
}

fn compare(lines: &[&str]) {
    let scene = Scene::new();
    for options in lines {
        let Some(file) = scene.record(options) else { continue };
        let Some((samples, theirs)) = stats(&file) else { continue };
        let imported = match scene.import(&file) {
            Ok(imported) => imported,
            Err(error) => {
                assert!(samples == 0 && error.contains("no samples"), "{options}: {error}, perf: {theirs:?}");
                continue;
            }
        };
        assert_eq!(imported.samples, samples, "{options}: {:?}", imported.notes);
        let ours = scene.events(&imported);
        assert_eq!(numbers(&ours), numbers(&theirs), "{options}: {ours:?}, perf: {theirs:?}");
        let lacks = imported.notes.iter().any(|n| n.contains("cut off") || n.contains("could not be read"));
        assert!(!lacks, "{options}: {:?}", imported.notes);
        if file.is_dir() {
            let imported = scene.import(&file.join("data")).unwrap();
            assert_eq!(
                scene.events(&imported),
                ours,
                "{options}: the file of the folder instead of the folder"
            );
        }
    }
}

#[test]
fn events_are_named_as_perf_names_them() {
    let scene = Scene::new();
    let Some(file) = scene.record("-e cpu-clock -e cpu-clock:u -e task-clock:u -e cpu-clock") else { return };
    let imported = scene.import(&file).unwrap();
    let names: Vec<String> = scene.events(&imported).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["cpu-clock", "cpu-clock#2", "cpu-clock:u", "task-clock:u"]);
}

#[test]
fn a_packed_file_has_the_samples_of_the_plain_one() {
    let scene = Scene::new();
    let Some(file) = scene.record("-e cpu-clock") else { return };
    let imported = scene.import(&file).unwrap();
    let plain = scene.events(&imported);
    for program in ["gzip", "xz", "zstd"] {
        let packed = scene.path("perf.data.packed");
        let into = File::create(&packed).unwrap();
        let ran = Command::new(program).arg("-c").stdin(File::open(&file).unwrap()).stdout(into).status();
        if !ran.is_ok_and(|status| status.success()) {
            println!("SKIPPED import of what {program} packed: it is not installed");
            continue;
        }
        let imported = scene.import(&packed).unwrap();
        assert_eq!(scene.events(&imported), plain, "{program}");
        // Some programs pack in blocks, so the records before the cut can be read only if their block is complete.
        let bytes = fs::read(&packed).unwrap();
        fs::write(&packed, &bytes[..bytes.len() * 3 / 4]).unwrap();
        match scene.import(&packed) {
            Ok(part) => {
                assert!(part.notes.iter().any(|n| n.contains(program)), "{program}: {:?}", part.notes)
            }
            Err(error) => assert!(error.contains("perf.data.packed") && error.contains(program), "{error}"),
        }
    }
}

#[test]
fn unreadable_files_are_named() {
    let scene = Scene::new();
    let folder = scene.path("folder");
    fs::create_dir(&folder).unwrap();
    let error = scene.import(&folder).unwrap_err();
    assert!(error.contains("folder: ") && error.contains("perf record --threads"), "{error}");
    fs::write(folder.join("data"), b"").unwrap();
    fs::write(folder.join("data.1"), b"records").unwrap();
    let error = scene.import(&folder.join("data.1")).unwrap_err();
    assert!(error.contains("data.1: ") && error.contains("import their folder"), "{error}");
    for (bytes, what) in [
        (&b"BZh91AY&SY"[..], "bunzip2"),
        (b"QPERFSTREAM\0", "hotspot"),
        (b"\x7fELF\x02\x01\x01", "program"),
        (b"\x1f\x8b\x08\0\0", "gzip"),
        (b"\xfd7zXZ\0\0\x04", "xz"),
        (b"\x28\xb5\x2f\xfd\0", "zstd"),
    ] {
        fs::write(scene.path("some.file"), bytes).unwrap();
        let error = scene.import(&scene.path("some.file")).unwrap_err();
        assert!(error.contains("some.file: ") && error.contains(what), "{error}");
    }
}
