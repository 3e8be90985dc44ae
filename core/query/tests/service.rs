//! Answers that are narrowed to a service: samples of some control groups alone, by the same numbers in every answer.

use std::process::Command;

use dwell_image::Image;
use dwell_profile::{
    Counts, Database, DimensionValues, Epoch, Event, ImageId, ImageKind, ImageRecord, SampleKey,
};
use dwell_query::{
    Cancel, DiffRequest, Options, Query, QueryError, SampleFilter, StatsRequest, SummaryRequest, TopRequest,
};

const PROGRAM: &str = "\
__attribute__((noinline)) int web(int n) { return n * n + 3; }
__attribute__((noinline)) int store(int n) { return n / 3 + 1; }
int main(int argc, char **argv) { (void)argv; return web(argc) + store(argc); }
";

const WEB: &str = "/system.slice/web.service";
const STORE: &str = "/system.slice/store.service";

/// Samples of an epoch: function, control group and count on each of the function's instructions.
type Samples<'s> = &'s [(&'s str, Option<&'s str>, u64)];

struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Self {
        let scene = Scene(tempfile::tempdir().unwrap());
        let source = scene.0.path().join("program.c");
        std::fs::write(&source, PROGRAM).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-g", "-no-pie", "-Wl,--build-id"]).arg(&source).arg("-o").arg(scene.program());
        assert!(gcc.status().unwrap().success());
        scene
    }

    fn program(&self) -> std::path::PathBuf {
        self.0.path().join("program")
    }

    fn record(&self, at: usize, host: &str, samples: Samples<'_>) -> String {
        let image = Image::open(self.program()).unwrap();
        let id = ImageId::of_build(image.build_id().unwrap());
        let event = Event::CPU_CLOCK;
        let mut rows = Vec::new();
        let mut total = 0;
        for (function, cgroup, count) in samples {
            let function = image.procedures().iter().find(|p| p.name() == *function).unwrap();
            for instruction in image.instructions(function.address, function.size_bytes) {
                let key = SampleKey {
                    image: id.clone(),
                    event: event.clone(),
                    offset: image.offset_of(instruction.address).unwrap(),
                    app: "program".into(),
                    instance: 1,
                    dimensions: cgroup.map(|cgroup| {
                        DimensionValues { cgroup: Some(cgroup.into()), ..DimensionValues::default() }.into()
                    }),
                };
                rows.push((key, *count));
                total += count;
            }
        }
        let epoch: Epoch = serde_json::from_value(serde_json::json!({
            "id": format!("20261126T1101{at:02}Z-5f3a9c"), "name": null,
            "start": format!("2026-11-26T11:01:{at:02}Z"), "end": format!("2026-11-26T11:02:{at:02}Z"),
            "host": {"name": host, "kernel_release": "6"},
            "cpu": {"arch": "x86_64", "vendor": "v", "model_name": "m", "family": 6, "model": 1, "stepping": 1,
                "count": 2, "clock_hz": 1e9},
            "backend": "import", "scope": {"import": "test"},
            "events": {"cpu-clock": {"period": 1_000_000, "unit": "ns", "samples": total, "lost": 0, "throttled": 0,
                "unknown": 0}},
        }))
        .unwrap();
        let name = epoch.id.0.clone();
        let record = ImageRecord::new(id, ImageKind::File, self.program().display().to_string());
        let database = Database::open(self.database()).unwrap();
        database.writer().unwrap().begin(epoch).unwrap().append(&Counts::from_iter(rows), &[record]).unwrap();
        name
    }

    fn database(&self) -> std::path::PathBuf {
        self.0.path().join("db")
    }

    /// Returns a query that is narrowed to a service.
    fn of(&self, service: Option<&str>) -> Query {
        let mut options = Options::for_database(self.database());
        options.service = service.map(str::to_owned);
        Query::open(options).unwrap()
    }
}

fn all() -> Vec<String> {
    vec!["all".to_owned()]
}

/// Returns the samples of each function in `top`.
fn top(query: &Query) -> Vec<(String, u64)> {
    let request = TopRequest { epochs: all(), ..TopRequest::default() };
    let rows = query.top(&request, &Cancel::new()).unwrap().rows;
    rows.into_iter().map(|row| (row.procedure.unwrap(), row.samples["cpu-clock"])).collect()
}

#[test]
fn every_answer_has_the_samples_of_the_service_alone() {
    let scene = Scene::new();
    let first = scene.record(0, "a", &[("web", Some(WEB), 100), ("store", Some(STORE), 60)]);
    let second = scene.record(1, "b", &[("web", Some(WEB), 50), ("web", Some(STORE), 7), ("main", None, 5)]);
    let (every, web) = (scene.of(None), scene.of(Some("web.service")));
    assert_eq!(top(&every).len(), 3);
    let of_web = top(&web);
    let [(name, samples)] = &of_web[..] else { panic!("{of_web:?}") };
    assert_eq!((name.as_str(), samples % 150), ("web", 0));
    let cancel = Cancel::new();
    let listing = web.listing(&all(), "web", &cancel).unwrap();
    assert_eq!(listing.procedure.samples["cpu-clock"], *samples);
    assert_eq!(listing.procedure.share, 1.0);
    let source = scene.0.path().join("program.c");
    let lines = web.file_costs(&all(), &source, &cancel).unwrap().lines;
    assert!(!lines.is_empty() && lines.iter().all(|line| line.line == 1), "{lines:?}");
    let summary = SummaryRequest { epochs: all(), ..SummaryRequest::default() };
    assert_eq!(web.summary(&summary, &cancel).unwrap().samples, *samples);
    let counts = web.procedure_counts(&first, &|_| true, &Default::default(), &cancel).unwrap();
    assert_eq!(counts.iter().map(|c| c.count).sum::<u64>(), samples / 150 * 100);

    let runs = |query: &Query| {
        let request = StatsRequest { epochs: vec![first.clone(), second.clone()], ..StatsRequest::default() };
        query.stats(&request, &cancel).unwrap().rows.len()
    };
    assert_eq!((runs(&every), runs(&web)), (3, 1));
    let store = scene.of(Some("store"));
    let request = DiffRequest { a: vec![first], b: vec![second], ..DiffRequest::default() };
    let diff = store.diff(&request, &cancel).unwrap();
    let names: Vec<&str> = diff.procedures.iter().map(|p| p.procedure.as_str()).collect();
    assert!(names.contains(&"web") && names.contains(&"store"), "{names:?}");
}

#[test]
fn a_service_without_samples_is_said() {
    let scene = Scene::new();
    let bare = scene.record(0, "a", &[("web", None, 100)]);
    let query = scene.of(Some("web"));
    let of = |epochs: &[String]| {
        let request = TopRequest { epochs: epochs.to_vec(), ..TopRequest::default() };
        query.top(&request, &Cancel::new())
    };
    assert!(matches!(of(&all()), Err(QueryError::NoDimension { .. })));
    scene.record(1, "b", &[("store", Some(STORE), 50)]);
    let error = of(&all()).unwrap_err();
    assert!(error.to_string().contains("no samples of service 'web'"), "{error}");
    // Call stacks and bursts of counts are not kept by service; an answer by them would be of all services.
    let stacks = query.stacks(std::slice::from_ref(&bare), &SampleFilter::default(), &Cancel::new());
    assert!(stacks.is_err());
    assert!(query.recorded_stacks(&bare, true, &Cancel::new()).unwrap().is_empty());
}

#[test]
fn machines_without_the_service_are_no_runs_of_it() {
    let scene = Scene::new();
    let side = |at: usize, count: u64| -> Vec<String> {
        let web =
            |host, at, count| scene.record(at, host, &[("web", Some(WEB), count), ("main", Some(STORE), 40)]);
        let other = scene.record(at + 2, "c", &[("store", Some(STORE), 30)]);
        vec![web("a", at, count), web("b", at + 1, count + 2), other]
    };
    let request = DiffRequest { a: side(0, 100), b: side(10, 300), ..DiffRequest::default() };
    let diff = scene.of(Some("web")).diff(&request, &Cancel::new()).unwrap();
    let web = &diff.procedures[0];
    assert!(web.procedure == "web" && web.change.significant && web.change.ratio > Some(2.8), "{web:?}");
    assert!(diff.notes.iter().all(|note| !note.contains("one run on each side")), "{:?}", diff.notes);
}
