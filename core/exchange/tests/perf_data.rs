//! Tests perf.data files of the installed perf: `dwell import` must count the same samples as perf.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use dwell_exchange::{ImportFile, Imported, import_perf_data};
use dwell_profile::Database;
use dwell_query::{Cancel, Detail, Options, Query, SampleFilter, TopRequest};
use jiff::Timestamp;

mod support;
use support::{SPIN, compile};

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        compile(folder.path(), SPIN, &[]);
        Scene { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Records the program with these options of `perf record`. Returns `None` if this machine cannot.
    fn record(&self, test: &str, options: &[&str]) -> Option<PathBuf> {
        let file = self.path("perf.data");
        let mut perf = Command::new("perf");
        // perf's cache of images must also be in the folder of the test.
        perf.env("HOME", self.folder.path()).args(["record", "-q", "-e", "cpu-clock:u"]).args(options);
        if options.contains(&"-o") {
            perf.stdout(fs::File::create(&file).unwrap());
        } else {
            perf.arg("-o").arg(&file);
        }
        perf.arg("--").arg(self.path("spin")).arg("300000000").stderr(Stdio::piped());
        let ended = perf.output();
        match ended {
            Ok(ended) if ended.status.code() == Some(0) => Some(file),
            other => {
                println!("SKIPPED {test}: perf record: {other:?}");
                None
            }
        }
    }

    fn import(&self, file: &Path) -> Result<Imported, dwell_exchange::ExchangeError> {
        let database = Database::open(self.path("db")).unwrap();
        let request = ImportFile { path: file.to_owned(), ..ImportFile::default() };
        import_perf_data(&database, &request, Timestamp::now())
    }

    /// Returns the samples of the newest epoch by procedure.
    fn top(&self) -> BTreeMap<String, u64> {
        let query = Query::open(Options::for_database(self.path("db"))).unwrap();
        let top = query.top(&TopRequest::default(), &Cancel::new()).unwrap();
        let brief = TopRequest { detail: Detail::Hottest, limit: Some(1000), ..TopRequest::default() };
        let brief = query.top(&brief, &Cancel::new()).unwrap();
        let row = |r: &dwell_query::answer::TopRow| (r.procedure.clone(), r.image.clone(), r.samples.clone());
        let rows = |top: &dwell_query::answer::Top| {
            let mut rows: Vec<_> = top.rows.iter().map(row).collect();
            rows.sort();
            rows
        };
        assert_eq!(rows(&top), rows(&brief), "a table in a hurry shows the same");
        top.rows.into_iter().map(|r| (r.procedure.unwrap(), r.samples.values().sum())).collect()
    }
}

/// Returns samples by symbol, as perf reports them; `None` if perf itself fails (6.1 asserts on some kernels' build
/// IDs).
fn report(test: &str, file: &Path) -> Option<BTreeMap<String, u64>> {
    let mut perf = Command::new("perf");
    perf.args([
        "report",
        "--stdio",
        "-n",
        "--sort",
        "symbol",
        "-t",
        "\t",
        "--no-children",
        "-g",
        "none",
        "-i",
    ])
    .arg(file)
    .stderr(Stdio::null());
    let ended = perf.output().unwrap();
    if !ended.status.success() {
        println!("SKIPPED {test}: perf report: {}", ended.status);
        return None;
    }
    let text = String::from_utf8(ended.stdout).unwrap();
    let row = |line: &str| {
        let mut columns = line.split('\t').map(str::trim);
        let (_, samples, symbol) = (columns.next()?, columns.next()?.parse().ok()?, columns.next()?);
        Some((symbol.split("] ").nth(1)?.trim().to_owned(), samples))
    };
    Some(text.lines().filter(|l| !l.starts_with('#')).filter_map(row).collect())
}

#[test]
fn every_format_of_perf_gives_the_samples_that_perf_counts() {
    for options in
        [&[][..], &["-z"], &["-F", "5000"], &["-o", "-"], &["--buildid-all"], &["--buildid-mmap"], &["-g"]]
    {
        let scene = Scene::new();
        let test = format!("import of perf record {options:?}");
        let Some(file) = scene.record(&test, options) else { continue };
        let imported = scene.import(&file).unwrap();
        let (ours, Some(theirs)) = (scene.top(), report(&test, &file)) else { continue };
        let total: u64 = theirs.values().sum();
        assert_eq!(imported.samples, total, "{options:?}: {theirs:?}");
        let (spin, theirs) = (ours["spin"], theirs["spin"]);
        // Samples are weighted by their period, which varies if perf adapts it.
        assert!(spin.abs_diff(theirs) * 50 <= total, "{options:?}: {spin} and {theirs} of {total}");
        let query = Query::open(Options::for_database(scene.path("db"))).unwrap();
        let stacks = query.stacks(&[], &SampleFilter::default(), &Cancel::new());
        assert_eq!(stacks.is_ok_and(|s| s.samples() == total), options.contains(&"-g"), "{options:?}");
    }
}

#[test]
fn several_events_are_kept_apart() {
    let scene = Scene::new();
    let options = ["-e", "task-clock:u,page-faults:u", "-c", "1000000"];
    let Some(file) = scene.record("import of several events", &options) else { return };
    scene.import(&file).unwrap();
    let query = Query::open(Options::for_database(scene.path("db"))).unwrap();
    let epochs = query.epochs().unwrap();
    let events: Vec<_> =
        epochs.epochs[0].events.iter().map(|(name, e)| (name.as_str(), e.unit.as_str())).collect();
    assert_eq!(events, [("cpu-clock:u", "ns"), ("page-faults:u", "events"), ("task-clock:u", "ns")]);
}

#[test]
fn a_file_that_is_cut_or_damaged_gives_an_error_or_a_part() {
    let scene = Scene::new();
    let Some(file) = scene.record("import of damaged files", &[]) else { return };
    let bytes = fs::read(&file).unwrap();
    let whole = scene.import(&file).unwrap().samples;
    let (mut parts, mut errors) = (0, 0);
    let mut check = |bytes: &[u8], what: &str| {
        let damaged = scene.path("damaged.data");
        fs::write(&damaged, bytes).unwrap();
        match scene.import(&damaged) {
            Ok(part) => {
                parts += 1;
                assert!(part.samples <= whole || what.starts_with("flip"), "{what}: {part:?}");
                let cut = part.notes.iter().any(|n| n.contains("cut off") || n.contains("end early"));
                assert!(cut || !what.starts_with("cut"), "{what}: {part:?}");
            }
            Err(error) => {
                errors += 1;
                assert!(error.to_string().contains("damaged.data"), "{what}: {error}");
            }
        }
    };
    for part in 1..20 {
        check(&bytes[..bytes.len() * part / 20], &format!("cut at {part}/20"));
    }
    // perf was killed before it wrote the size of the records.
    let mut killed = bytes.clone();
    killed[48..56].fill(0);
    check(&killed, "cut: size zero");
    let mut random: u64 = 7;
    for nth in 0..300 {
        let mut flipped = bytes.clone();
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // Half of the changes are in the header and the first records, where they matter most.
        let within = if nth % 2 == 0 { bytes.len().min(2048) } else { bytes.len() };
        flipped[(random >> 33) as usize % within] ^= 1 << (random >> 29 & 7);
        check(&flipped, "flip");
    }
    assert!(parts > 10 && errors > 3, "{parts} parts, {errors} errors");
}

#[test]
fn files_that_are_not_perf_data_are_reported() {
    let scene = Scene::new();
    for (name, bytes) in
        [("empty", &b""[..]), ("text", b"hello, this is no perf.data"), ("magic", b"PERFILE2")]
    {
        fs::write(scene.path(name), bytes).unwrap();
        let error = scene.import(&scene.path(name)).unwrap_err().to_string();
        assert!(error.contains("not a perf.data file"), "{name}: {error}");
    }
    let missing = scene.import(&scene.path("missing")).unwrap_err().to_string();
    assert!(missing.contains("No such file"), "{missing}");
}

#[test]
fn a_missing_image_is_reported_and_found_under_another_root() {
    let scene = Scene::new();
    let Some(file) = scene.record("import with a missing image", &[]) else { return };
    let root = scene.path("root");
    let away = root.join(scene.path("spin").strip_prefix("/").unwrap());
    fs::create_dir_all(away.parent().unwrap()).unwrap();
    fs::rename(scene.path("spin"), &away).unwrap();
    let imported = scene.import(&file).unwrap();
    assert!(imported.notes.iter().any(|n| n.contains("spin: it is not on")), "{:?}", imported.notes);
    let found = |request: ImportFile| {
        let database = Database::open(scene.path("db")).unwrap();
        let request = ImportFile { path: file.clone(), ..request };
        let imported = import_perf_data(&database, &request, Timestamp::now()).unwrap();
        assert!(!imported.notes.iter().any(|n| n.contains("spin")), "{:?}", imported.notes);
        assert!(scene.top()["spin"] > 0);
    };
    found(ImportFile { symfs: Some(root), ..ImportFile::default() });
    found(ImportFile { perf_cache: Some(scene.path(".debug")), ..ImportFile::default() });
}

#[test]
fn the_text_of_perf_script_counts_as_its_file_does() {
    let scene = Scene::new();
    let Some(file) = scene.record("import of perf script", &["-c", "1000000"]) else { return };
    let whole = scene.import(&file).unwrap();
    let ours = scene.top();
    for options in
        [&["--show-mmap-events"][..], &[], &["-F", "comm,pid,tid,cpu,time,event,ip,sym,symoff,dso"]]
    {
        let mut script = Command::new("perf");
        let ended =
            script.args(["script", "-i"]).arg(&file).args(options).stderr(Stdio::null()).output().unwrap();
        if !ended.status.success() {
            println!("SKIPPED import of perf script {options:?}: perf script: {}", ended.status);
            continue;
        }
        let text = scene.path("script.txt");
        fs::write(&text, &ended.stdout).unwrap();
        let imported = scene.import(&text).unwrap();
        assert_eq!(imported.samples, whole.samples, "{options:?}: {:?}", imported.notes);
        assert_eq!(scene.top()["spin"], ours["spin"], "{options:?}: {:?}", imported.notes);
        let has_note = imported.notes.iter().any(|n| n.contains("by the names"));
        assert_eq!(has_note, !options.contains(&"--show-mmap-events"), "{options:?}: {:?}", imported.notes);
    }
}
