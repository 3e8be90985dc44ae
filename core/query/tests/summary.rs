//! Summaries add up: on every ELF fixture, for every machine model of its instruction set, for procedures, images and
//! epochs, with samples made up here.

use std::{fs, path::PathBuf};

use dwell_image::Image;
use dwell_profile::{Database, Unit};
use dwell_query::{
    Cancel, ImportRequest, Options, Query, QueryError, SummaryRequest,
    answer::{ScaleKind, Summary},
    import_counts,
};
use jiff::Timestamp;

fn fixtures() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../test-fixtures/images");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "elf" || e == "so"));
    files.sort();
    files
}

/// Two models of each instruction set, in order and out of order where there are both.
fn models(arch: &str) -> &'static [&'static str] {
    match arch {
        "x86_64" => &["generic-x86-64", "amd-zen4"],
        "aarch64" => &["generic-inorder-2", "arm-neoverse-n1"],
        _ => &["generic-inorder-2", "sifive-u74"],
    }
}

/// A database with one epoch: samples on every instruction of every procedure, some of them stalled for long.
fn epoch(image: &PathBuf, model: &str, event: &str) -> (tempfile::TempDir, Query) {
    let folder = tempfile::tempdir().unwrap();
    let parsed = Image::open(image).unwrap();
    let mut random: u64 = 1;
    let mut table = String::new();
    for procedure in parsed.procedures().iter() {
        for i in parsed.instructions(procedure.address, procedure.size_bytes) {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let count = match random >> 60 {
                0 | 1 => 0,
                2 => 3000 + (random >> 50 & 0xfff),
                _ => 100 + (random >> 50 & 0x3f),
            };
            if parsed.offset_of(i.address).is_some() {
                table += &format!("{}\t{:x}\t{count}\n", image.display(), i.address.0);
            }
        }
    }
    let counts = folder.path().join("counts.tsv");
    fs::write(&counts, table).unwrap();
    let database = folder.path().join("db");
    let request = ImportRequest {
        counts,
        images: vec![image.clone()],
        machine: model.to_owned(),
        event: event.to_owned(),
        period: 60_000,
        unit: Unit::Cycles,
        clock_hz: None,
        name: None,
    };
    import_counts(&Database::open(&database).unwrap(), &request, Timestamp::now()).unwrap();
    (folder, Query::open(Options::for_database(database)).unwrap())
}

fn near(what: &str, a: f64, b: f64) {
    assert!((a - b).abs() < 1e-6, "{what}: {a} is not {b}");
}

/// Every sum of Figure 4.
fn assert_adds_up(name: &str, s: &Summary) {
    let least: f64 = s.dynamic.iter().map(|r| r.share_min).sum::<f64>() + s.unexplained_stall;
    let most: f64 = s.dynamic.iter().map(|r| r.share_max).sum::<f64>() + s.unexplained_stall;
    let stalled = s.subtotal_dynamic - s.unexplained_gain;
    assert!(
        least <= stalled + 1e-6 && stalled <= most + 1e-6,
        "{name}: {least} ≤ {stalled} ≤ {most}: {s:#?}"
    );
    assert!(s.unexplained_gain <= 0.0, "{name}: {s:#?}");
    for r in &s.dynamic {
        assert!(
            0.0 <= r.share_min && r.share_min <= r.share_max && r.share_max <= stalled + 1e-6,
            "{name}: {r:?}"
        );
    }
    near(name, s.r#static.iter().map(|p| p.share).sum(), s.subtotal_static);
    near(name, s.subtotal_dynamic + s.subtotal_static, s.total_stall);
    let total = if s.samples_tallied > 0.0 { 1.0 } else { 0.0 };
    near(name, s.total_stall + s.execution + s.net_sampling_error, total);
    if s.samples_tallied > 0.0 && s.scale != Some(ScaleKind::Absolute) {
        assert!(s.execution + s.subtotal_static <= 1.0 + 1e-6, "{name}: more execution than time: {s:#?}");
    }
    near(name, s.samples_tallied, s.tallied_share * s.samples as f64);
    assert!(s.tallied_share <= 1.0 + 1e-6, "{name}: {s:#?}");
    if let (Some(cpi), Some(cycles), Some(instructions)) = (s.cpi, s.cycles, s.instructions) {
        near(name, cpi, cycles / instructions);
        near(name, s.best_case_cpi.unwrap() / cpi, s.execution + s.subtotal_static);
    }
}

#[test]
fn every_fixture_adds_up() {
    let (mut tallied, mut ranges, mut unexplained) = (0, 0, 0);
    for file in fixtures() {
        let image = Image::open(&file).unwrap();
        for model in models(image.arch().name()) {
            let (_folder, query) = epoch(&file, model, "cycles");
            let ask = |procedure: Option<String>, image: Option<String>| {
                let request = SummaryRequest { procedure, image, ..SummaryRequest::default() };
                query.summary(&request, &Cancel::new())
            };
            let name = format!("{} on {model}", file.display());
            let whole = match ask(None, None) {
                Err(QueryError::NoTime { .. }) => continue, // No instruction of it could be sampled.
                whole => whole.unwrap(),
            };
            assert_adds_up(&name, &whole);
            let of_image = ask(None, Some(file.file_name().unwrap().to_string_lossy().into_owned())).unwrap();
            assert_eq!((of_image.samples, of_image.execution), (whole.samples, whole.execution), "{name}");
            let top = query.top(&dwell_query::TopRequest::default(), &Cancel::new()).unwrap();
            let mut samples = 0;
            for row in &top.rows {
                let one = ask(row.id.clone(), None).unwrap();
                assert_adds_up(&format!("{name}: {:?}", row.id), &one);
                samples += one.samples;
                tallied += usize::from(one.samples_tallied > 0.0);
                ranges += one.dynamic.iter().filter(|r| r.share_max > r.share_min + 0.01).count();
                unexplained += usize::from(one.unexplained_stall > 0.0);
            }
            assert_eq!(samples, whole.samples, "{name}");
        }
    }
    // The fixtures contain enough cases for the checks above to be meaningful.
    assert!(tallied > 50 && ranges > 50 && unexplained > 5, "{tallied} {ranges} {unexplained}");
}

#[test]
fn impossible_summaries_are_explained() {
    let file = &fixtures()[0];
    let (_folder, query) = epoch(file, "generic-inorder-2", "cache-misses");
    let ask = |query: &Query, image: Option<&str>| {
        let request = SummaryRequest { image: image.map(str::to_owned), ..SummaryRequest::default() };
        query.summary(&request, &Cancel::new()).unwrap_err().to_string()
    };
    assert!(ask(&query, None).contains("no samples of time"));
    let (_folder, query) = epoch(file, "generic-inorder-2", "cycles");
    assert!(ask(&query, Some("no-such-image")).starts_with("binary 'no-such-image': not found"));
}
