//! The façade end to end, on a program compiled here and counts made up here: no sampling, no luck.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use dwell_image::{Image, Instruction};
use dwell_profile::{Database, Epoch, EpochId, Event, EventRecord, SampleKey, Unit};
use dwell_query::{
    Cancel, ImportRequest, Options, Query, QueryError, TopBy, TopRequest,
    answer::{Listing, ScaleKind, SourceState},
    import_counts,
};
use jiff::Timestamp;
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

const SOURCE: &str = "\
#include <stdint.h>
static inline uint64_t mix(uint64_t x) {
  return x * 31 + 7;
}
__attribute__((noinline)) uint64_t walk(const uint64_t *p, uint64_t n) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < n; i++)
    sum = mix(sum) ^ p[i];
  return sum;
}
__attribute__((noinline)) uint64_t other(uint64_t n) {
  return n / 3;
}
int main(int argc, char **argv) {
  (void)argv;
  uint64_t a[4] = {1, 2, 3, 4};
  return (int)(walk(a, argc + 1) + other(argc));
}
";

/// A program, its source, and a database with one epoch of samples of it.
struct Scene {
    dir: tempfile::TempDir,
    source: PathBuf,
    program: PathBuf,
}

fn compile(source: &Path, program: &Path) {
    let arguments = ["-O1", "-g", "-gdwarf-5", "-no-pie", "-Wl,--build-id"];
    let status = Command::new("gcc").args(arguments).arg(source).arg("-o").arg(program).status().unwrap();
    assert!(status.success());
}

impl Scene {
    /// 1,000 samples in `walk`, on the instructions of its loop; 10 in `other`.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("walk.c"), dir.path().join("walk"));
        fs::write(&source, SOURCE).unwrap();
        let arguments = ["-O1", "-g", "-gdwarf-5", "-no-pie", "-Wl,--build-id"];
        let status =
            Command::new("gcc").args(arguments).arg(&source).arg("-o").arg(&program).status().unwrap();
        assert!(status.success());
        let scene = Scene { dir, source, program };
        scene.import();
        scene
    }

    fn database(&self) -> Database {
        Database::open(self.dir.path().join("db")).unwrap()
    }

    fn query(&self) -> Query {
        Query::open(Options::for_database(self.dir.path().join("db"))).unwrap()
    }

    /// The program again, from another text, with an epoch of its own.
    fn rebuild(&self, text: &str) {
        fs::write(&self.source, text).unwrap();
        compile(&self.source, &self.program);
        self.import_as("cpu-clock", "rebuilt", &|line| {
            text.lines().nth(line as usize - 1).is_some_and(|t| t.contains("mix(sum)") || t.contains("n / 3"))
        });
    }

    fn import(&self) {
        self.import_as("cpu-clock", "made-up", &|line| line == 8 || line == 12);
    }

    /// 1,000 samples on the wanted lines of `walk`, 10 on those of `other`.
    fn import_as(&self, event: &str, name: &str, wanted: &dyn Fn(u32) -> bool) {
        let image = Image::open(&self.program).unwrap();
        let mut table = String::from("# image\taddress\tcount\n");
        for (procedure, samples) in [("walk", 1000), ("other", 10)] {
            let procedure = image.procedures().iter().find(|p| p.name() == procedure).unwrap();
            let instructions = image.instructions(procedure.address, procedure.size_bytes);
            let on_line: Vec<_> = instructions
                .iter()
                .filter(|i| image.frames(i.address).last().is_some_and(|f| f.line.is_some_and(wanted)))
                .collect();
            for i in &on_line {
                table += &format!("walk\t{:x}\t{}\n", i.address.0, samples / on_line.len());
            }
        }
        let counts = self.dir.path().join("counts.tsv");
        fs::write(&counts, table).unwrap();
        let request =
            ImportRequest { event: event.to_owned(), name: Some(name.to_owned()), ..self.request(&counts) };
        import_counts(&self.database(), &request, Timestamp::now()).unwrap();
    }

    /// An epoch with a count for each instruction of `walk`.
    fn import_walk(&self, name: &str, count: &dyn Fn(u64) -> u64) {
        let image = Image::open(&self.program).unwrap();
        let walk = image.procedures().iter().find(|p| p.name() == "walk").unwrap();
        let instructions = image.instructions(walk.address, walk.size_bytes);
        let row = |(nth, i): (u64, &Instruction)| format!("walk\t{:x}\t{}\n", i.address.0, count(nth));
        let counts = self.dir.path().join("counts.tsv");
        let rows: String = (0..).zip(&instructions).map(row).collect();
        fs::write(&counts, format!("# image\taddress\tcount\n{rows}")).unwrap();
        let request = ImportRequest { name: Some(name.to_owned()), ..self.request(&counts) };
        import_counts(&self.database(), &request, Timestamp::now()).unwrap();
    }

    fn request(&self, counts: &Path) -> ImportRequest {
        ImportRequest {
            counts: counts.to_owned(),
            images: vec![self.program.clone()],
            machine: "generic-x86-64".to_owned(),
            event: "cpu-clock".to_owned(),
            period: 1_000_000,
            unit: Unit::Nanoseconds,
            clock_hz: Some(2e9),
            name: Some("made-up".to_owned()),
        }
    }

    fn listing(&self, name: &str) -> Result<Listing, QueryError> {
        self.query().listing(&[], name, &Cancel::new())
    }
}

#[test]
fn top_orders_procedures_images_lines_and_applications() {
    let scene = Scene::new();
    let query = scene.query();
    let top = |by| query.top(&TopRequest { by, ..TopRequest::default() }, &Cancel::new()).unwrap();

    let procedures = top(TopBy::Procedure);
    let names: Vec<_> = procedures.rows.iter().map(|r| r.procedure.as_deref().unwrap()).collect();
    assert_eq!(names, ["walk", "other"]);
    assert_eq!(procedures.rows[0].id.as_deref(), Some("walk:walk"));
    assert!(procedures.rows[0].share > 0.98 && procedures.rows[1].cumulative_share > 0.999);
    // On an out-of-order processor, samples of time alone give only a lower bound of CPI.
    let walk = &procedures.rows[0];
    assert!(walk.cpi.is_none() && walk.cpi_min > Some(0.1) && walk.cpi_max.is_none(), "{walk:?}");
    assert_eq!(walk.scale, Some(ScaleKind::Procedure));
    // One sample is 1 ms, or 2 million cycles at 2 GHz.
    let samples = procedures.rows[0].samples["cpu-clock"] as f64;
    assert_eq!(procedures.rows[0].cycles, Some(samples * 2e6));

    let lines = top(TopBy::Line);
    assert!(lines.rows[0].file.as_deref().unwrap().ends_with("walk.c"));
    let shares: f64 = lines.rows.iter().map(|r| r.share).sum();
    assert!((0.999..=1.000_001).contains(&shares), "{shares}"); // Lines of less than half a sample are left out.

    assert_eq!(top(TopBy::Image).rows.len(), 1);
    assert_eq!(top(TopBy::App).rows[0].app.as_deref(), Some("walk"));
}

#[test]
fn a_listing_holds_every_sample_and_the_source_text() {
    let scene = Scene::new();
    let listing = scene.listing("walk").unwrap();
    let landed: u64 = listing.instructions.iter().filter_map(|i| i.samples.get("cpu-clock")).sum();
    assert_eq!(landed, listing.procedure.samples["cpu-clock"]);
    let head: f64 = listing.instructions.iter().map(|i| i.head_samples).sum();
    assert!((head - landed as f64).abs() < 1e-6, "{head} against {landed}");
    let texts: Vec<&String> = listing.source_lines.values().flat_map(|f| f.values()).collect();
    assert!(texts.iter().any(|t| t.contains("x * 31 + 7")), "{texts:?}");
    assert!(listing.blocks.iter().all(|b| b.best_case_cpi > 0.0));
    let starts: Vec<u64> = listing.blocks.iter().map(|b| b.address).collect();
    assert!(listing.blocks.iter().flat_map(|b| &b.successors).all(|s| starts.contains(&s.to)));
}

/// Counts add up: epochs merged, in any order, are analysed as one epoch that collected all of their samples.
#[test]
fn merged_epochs_are_analysed_as_their_sum() {
    let scene = Scene::new();
    let round = std::cell::Cell::new(0);
    // There are more counts than the loop has instructions. Many are 0, and a few are large.
    let counts = || prop::collection::vec(prop_oneof![Just(0_u64), 1..100_u64, 1000..1_000_000_u64], 64);
    let check = |(one, other): (Vec<u64>, Vec<u64>)| {
        round.set(round.get() + 1);
        let named = |name: &str| format!("{name} {}", round.get());
        let import =
            |name, count: &dyn Fn(usize) -> u64| scene.import_walk(&named(name), &|nth| count(nth as usize));
        import("one", &|nth| one[nth]);
        import("other", &|nth| other[nth]);
        import("sum", &|nth| one[nth] + other[nth]);
        let analysed = |epochs: &[&str]| {
            let epochs: Vec<String> = epochs.iter().map(|e| named(e)).collect();
            let listing = scene.query().listing(&epochs, "walk", &Cancel::new()).unwrap();
            format!("{:?} {:?}", listing.instructions, listing.blocks)
        };
        let sum = analysed(&["sum"]);
        prop_assert_eq!(&analysed(&["one", "other"]), &sum);
        prop_assert_eq!(&analysed(&["other", "one"]), &sum);
        Ok(())
    };
    TestRunner::new(Config::with_cases(12)).run(&(counts(), counts()), check).unwrap();
}

/// A sample stands for its period, so recordings with other periods cannot just be added up.
#[test]
fn samples_of_recordings_with_other_periods_count_as_much_as_they_stand_for() {
    let scene = Scene::new();
    let image = Image::open(&scene.program).unwrap();
    for (name, procedure, period) in [("fine", "walk", 1_000_000), ("coarse", "other", 4_000_000)] {
        let procedure = image.procedures().iter().find(|p| p.name() == procedure).unwrap();
        let counts = scene.dir.path().join("counts.tsv");
        fs::write(&counts, format!("# image\taddress\tcount\nwalk\t{:x}\t1000\n", procedure.address.0))
            .unwrap();
        let request = ImportRequest { name: Some(name.to_owned()), period, ..scene.request(&counts) };
        import_counts(&scene.database(), &request, Timestamp::now()).unwrap();
    }
    let query = scene.query();
    let request =
        TopRequest { epochs: vec!["fine".to_owned(), "coarse".to_owned()], ..TopRequest::default() };
    let top = query.top(&request, &Cancel::new()).unwrap();
    let rows: Vec<(String, u64)> =
        top.rows.iter().map(|row| (row.procedure.clone().unwrap(), row.samples["cpu-clock"])).collect();
    assert_eq!(rows, [("other".to_owned(), 1600), ("walk".to_owned(), 400)]);
    let note = "cpu-clock: recordings with periods from 1000000 to 4000000 ns are merged: their samples count as many of 2500000 ns";
    assert!(top.notes.iter().any(|n| n == note), "{:?}", top.notes);
}

#[test]
fn a_procedure_is_found_by_any_of_its_names() {
    let scene = Scene::new();
    let by_name = scene.listing("walk").unwrap();
    let address = format!("0x{:x}", by_name.procedure.address + 1);
    let path = format!("{}:walk", scene.program.display());
    let build_id = format!("{}:walk", by_name.image.build_id);
    for name in ["walk:walk", &address, &path, &build_id] {
        assert_eq!(scene.listing(name).unwrap(), by_name, "{name}");
    }
    assert_eq!(scene.listing("main").unwrap().procedure.samples.len(), 0);
    assert_eq!(scene.listing("nobody").unwrap_err().code(), "no-procedure");
    assert_eq!(scene.listing("elsewhere:walk").unwrap_err().code(), "no-procedure");
}

#[test]
fn names_extended_by_compilers_and_namespaces_are_suggested() {
    let scene = Scene::new();
    let renames = ["walk=walk.constprop.0", "other=_ZN2ns5otherEi.cold", "main=walk.cold"];
    let renames = renames.iter().flat_map(|names| ["--redefine-sym", names]);
    let status = Command::new("objcopy").args(renames).arg(&scene.program).status().unwrap();
    assert!(status.success());
    let offered = |name: &str| scene.listing(name).unwrap_err().to_string();
    let walk = offered("walk");
    let (with, without) = ("'walk:walk.constprop.0' (", "'walk:walk.cold' (no samples)");
    assert!(walk.contains("not found in recording") && walk.lines().count() == 1, "{walk}");
    assert!(walk.find(with).zip(walk.find(without)).is_some_and(|(first, second)| first < second), "{walk}");
    assert!(offered("walk:walk").contains(with));
    for name in ["other", "ns::other", "ns::other(int)", "_ZN2ns5otherEi"] {
        assert!(offered(name).contains("'walk:_ZN2ns5otherEi.cold' ("), "{name}: {}", offered(name));
    }
    assert!(scene.listing("walk:walk.constprop.0").is_ok(), "what is offered is found");
    assert!(offered("alk").contains("'dwell top' lists"), "{}", offered("alk"));
}

#[test]
fn inlined_lines_cost_where_they_are_written() {
    let scene = Scene::new();
    let costs = scene.query().file_costs(&[], &scene.source, &Cancel::new()).unwrap();
    assert_eq!(costs.source, SourceState::Fresh);
    let lines: Vec<u32> = costs.lines.iter().map(|l| l.line).collect();
    assert!(lines.contains(&3), "the inlined body is missing: {lines:?}");
    let shares: f64 = costs.lines.iter().map(|l| l.share).sum();
    assert!((0.999..=1.000_001).contains(&shares), "{shares}"); // Lines of less than half a sample are left out.
    let begins: Vec<_> = costs.procedures.iter().map(|p| (p.demangled.as_str(), p.line)).collect();
    assert_eq!(begins, [("walk", 5), ("other", 11)]);
}

#[test]
fn an_edited_source_keeps_the_lines_that_did_not_change() {
    let scene = Scene::new();
    let query = scene.query();
    let id = query.epochs().unwrap().epochs[0].id.clone();
    let kept = query.keep_sources(&dwell_profile::EpochId(id)).unwrap();
    assert_eq!(kept, 1);
    let before = query.file_costs(&[], &scene.source, &Cancel::new()).unwrap();

    let edited = SOURCE.replace("#include", "// one more line\n#include").replace("n / 3", "n / 5");
    fs::write(&scene.source, edited).unwrap();
    let after = query.file_costs(&[], &scene.source, &Cancel::new()).unwrap();
    assert_eq!(after.source, SourceState::Mapped);
    let moved: Vec<u32> = before.lines.iter().map(|l| l.line + 1).filter(|l| *l != 13).collect();
    assert_eq!(after.lines.iter().map(|l| l.line).collect::<Vec<_>>(), moved);
    let text = scene.listing("walk").unwrap().source_lines;
    assert!(text.values().any(|f| f[&3].contains("x * 31")), "the text is not the one that was built");
}

#[test]
fn a_changed_source_without_a_snapshot_gives_no_number() {
    let scene = Scene::new();
    fs::write(&scene.source, SOURCE.replace("31", "37")).unwrap();
    let costs = scene.query().file_costs(&[], &scene.source, &Cancel::new()).unwrap();
    assert_eq!((costs.source, costs.lines.len()), (SourceState::Stale, 0));
    assert!(costs.notes[0].contains("not the one that was profiled"), "{:?}", costs.notes);
}

#[test]
fn two_builds_of_a_file_keep_their_own_lines() {
    let scene = Scene::new();
    let query = scene.query();
    let id = query.epochs().unwrap().epochs[0].id.clone();
    query.keep_sources(&dwell_profile::EpochId(id)).unwrap();
    let alone = query.file_costs(&[], &scene.source, &Cancel::new()).unwrap();
    scene.rebuild(&format!("// one\n// two\n{SOURCE}"));
    let both = ["made-up".to_owned(), "rebuilt".to_owned()];
    let merged = scene.query().file_costs(&both, &scene.source, &Cancel::new()).unwrap();
    // The old program is no longer at its path, so its remaining costs are shown only on lines of the new text.
    let moved: Vec<u32> = alone.lines.iter().map(|l| l.line + 2).collect();
    let lines: Vec<u32> = merged.lines.iter().map(|l| l.line).collect();
    assert!(lines.iter().all(|l| moved.contains(l)), "{lines:?} beside {moved:?}");
}

#[test]
fn a_file_is_known_by_every_path_that_leads_to_it() {
    let scene = Scene::new();
    let link = scene.dir.path().join("link");
    std::os::unix::fs::symlink(scene.dir.path(), &link).unwrap();
    let query = scene.query();
    let id = query.epochs().unwrap().epochs[0].id.clone();
    query.keep_sources(&dwell_profile::EpochId(id)).unwrap();
    fs::write(&scene.source, format!("// one more line\n{SOURCE}")).unwrap();
    let direct = query.file_costs(&[], &scene.source, &Cancel::new()).unwrap();
    let linked = query.file_costs(&[], &link.join("walk.c"), &Cancel::new()).unwrap();
    assert_eq!((direct.source, linked.source), (SourceState::Mapped, SourceState::Mapped));
    assert_eq!(direct.lines.len(), linked.lines.len());
    assert_ne!(direct.lines.len(), 0);
}

#[test]
fn events_other_than_time_count_where_they_landed() {
    let scene = Scene::new();
    scene.import_as("cache-misses", "misses", &|line| line == 8 || line == 12);
    let query = scene.query();
    let request = TopRequest { by: TopBy::Line, epochs: vec!["misses".into()], ..TopRequest::default() };
    let top = query.top(&request, &Cancel::new()).unwrap();
    let shares: f64 = top.rows.iter().map(|r| r.share).sum();
    assert!((shares - 1.0).abs() < 1e-6 && top.rows[0].share > 0.1, "{:?}", top.rows);
    let costs = query.file_costs(&["misses".into()], &scene.source, &Cancel::new()).unwrap();
    assert!(costs.lines.iter().map(|l| l.share).sum::<f64>() > 0.99);
}

/// What a machine with a PMU records: `instructions` beside `cycles`.
#[test]
fn samples_of_instructions_determine_executions() {
    let scene = Scene::new();
    let database = scene.database();
    let mut profile = database.read(&database.resolve("latest").unwrap().id).unwrap();
    let image = Image::open(&scene.program).unwrap();
    let walk = image.procedures().iter().find(|p| p.name() == "walk").unwrap();
    let key = profile.counts.keys().next().unwrap().clone();
    profile.counts.clear();
    for (i, instruction) in image.instructions(walk.address, walk.size_bytes).iter().enumerate() {
        let offset = image.offset_of(instruction.address).unwrap();
        let key = |event| SampleKey { event, offset, ..key.clone() };
        profile.counts.insert(key(Event::INSTRUCTIONS), 400);
        profile.counts.insert(key(Event::CYCLES), 100 + 900 * (i as u64 % 3));
    }
    let unit = |unit| EventRecord {
        period: 1_000_000,
        unit,
        samples: 10_000,
        lost: 0,
        throttled: 0,
        unknown: 0,
        running_share: None,
    };
    let start = Timestamp::now();
    let instructions = EventRecord { running_share: Some(0.5), ..unit(Unit::Events) };
    let events = [(Event::CYCLES, unit(Unit::Cycles)), (Event::INSTRUCTIONS, instructions)];
    let epoch = Epoch {
        id: EpochId::new(start),
        name: Some("counted".to_owned()),
        start,
        events: events.into(),
        ..profile.epoch.clone()
    };
    let mut writer = database.writer().unwrap().begin(epoch).unwrap();
    writer.append(&profile.counts, &profile.images).unwrap();
    writer.finish(start).unwrap();
    let listing = scene.query().listing(&["counted".into()], "walk", &Cancel::new()).unwrap();
    assert!(listing.instructions.iter().all(|i| i.samples.get("instructions") == Some(&400)));
    // Each instruction retired 400 million times, whatever time it took.
    let mut executions: Vec<f64> = listing.instructions.iter().filter_map(|i| i.executions).collect();
    executions.sort_by(f64::total_cmp);
    assert!(executions.len() * 2 > listing.instructions.len(), "{executions:?}");
    assert!((executions[executions.len() / 2] / 4e8 - 1.0).abs() < 0.25, "{executions:?}");
    let shared = "instructions ran 50% of the time (multiplexed); its counts cover only that time";
    assert_eq!(
        listing.notes.iter().filter(|note| note.contains("multiplexed")).collect::<Vec<_>>(),
        [shared]
    );
}

#[test]
fn an_image_that_comes_back_is_found_again() {
    let scene = Scene::new();
    let query = scene.query();
    let away = scene.dir.path().join("away");
    fs::rename(&scene.program, &away).unwrap();
    assert_eq!(query.listing(&[], "walk", &Cancel::new()).unwrap_err().code(), "no-procedure");
    fs::rename(&away, &scene.program).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(5_100));
    assert!(query.listing(&[], "walk", &Cancel::new()).is_ok());
}

#[test]
fn an_image_that_was_kept_outlives_a_rebuild() {
    let scene = Scene::new();
    let database = scene.database();
    let epoch = database.resolve("latest").unwrap();
    let images = database.read(&epoch.id).unwrap().images;
    let record = images.iter().find(|r| r.path == scene.program).unwrap();
    let mut file = fs::File::open(&scene.program).unwrap();
    let kept = database.writer().unwrap().keep_image(&record.id, &mut file, 1 << 30).unwrap();
    assert_eq!(kept, dwell_profile::Kept::New);
    fs::copy("/bin/true", scene.dir.path().join("other")).unwrap();
    fs::rename(scene.dir.path().join("other"), &scene.program).unwrap();
    assert!(scene.listing("walk").is_ok());
}

#[test]
fn a_rebuilt_or_missing_image_is_named() {
    let scene = Scene::new();
    fs::copy("/bin/true", scene.dir.path().join("other")).unwrap();
    fs::rename(scene.dir.path().join("other"), &scene.program).unwrap();
    let top = scene.query().top(&TopRequest::default(), &Cancel::new()).unwrap();
    assert!(top.notes.iter().any(|n| n.contains("changed since it was sampled")), "{:?}", top.notes);
    assert_eq!(top.rows[0].procedure.as_deref(), Some("[no symbol]"));
    fs::remove_file(&scene.program).unwrap();
    let error = scene.listing("0x401000").unwrap_err();
    assert_eq!(error.code(), "no-procedure");
}

#[test]
fn a_bad_table_is_refused_whole() {
    let scene = Scene::new();
    let counts = scene.dir.path().join("bad.tsv");
    let before = scene.query().epochs().unwrap().epochs.len();
    for (table, why) in [
        ("walk 401000 1\n", "bad.tsv:1: expected 'image<TAB>hex address<TAB>count'"),
        ("walk\tx\t1\n", "bad.tsv:1: 'x' is not a hexadecimal address"),
        ("# c\n\nls\t401000\t1\n", "bad.tsv:3: image 'ls' is not among those named by --image"),
        ("walk\t1\t1\n", "bad.tsv:1: address 1 lies in no segment of 'walk'"),
        ("walk\t401000\t-1\n", "bad.tsv:1: '-1' is not a number of samples"),
    ] {
        fs::write(&counts, table).unwrap();
        let error = import_counts(&scene.database(), &scene.request(&counts), Timestamp::now()).unwrap_err();
        assert!(error.to_string().ends_with(why), "{error}");
    }
    let request = ImportRequest { machine: "pdp-11".to_owned(), ..scene.request(&counts) };
    let error = import_counts(&scene.database(), &request, Timestamp::now()).unwrap_err();
    assert_eq!(error.code(), "no-model");
    assert_eq!(scene.query().epochs().unwrap().epochs.len(), before);
}

#[test]
fn a_cancelled_query_ends() {
    let scene = Scene::new();
    let cancel = Cancel::new();
    cancel.cancel();
    let error = scene.query().top(&TopRequest::default(), &cancel).unwrap_err();
    assert_eq!(error.code(), "cancelled");
}

#[test]
fn an_empty_database_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let query = Query::open(Options::for_database(dir.path())).unwrap();
    let error = query.top(&TopRequest::default(), &Cancel::new()).unwrap_err();
    assert_eq!(error.code(), "empty-database");
    assert!(error.to_string().contains("dwell record"), "{error}");
    assert!(query.epochs().unwrap().epochs.is_empty());
}
