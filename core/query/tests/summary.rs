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
    let gain = s.unexplained_gain.unwrap_or(0.0);
    let least: f64 = s.dynamic.iter().map(|r| r.share_min).sum::<f64>() + s.unexplained_stall_min;
    let most: f64 = s.dynamic.iter().map(|r| r.share_max).sum::<f64>() + s.unexplained_stall_max;
    assert!(least <= s.subtotal_dynamic_max - gain + 1e-6, "{name}: {least}: {s:#?}");
    assert!(gain <= 0.0, "{name}: {s:#?}");
    for r in &s.dynamic {
        assert!(
            0.0 <= r.share_min
                && r.share_min <= r.share_max
                && r.share_max <= s.subtotal_dynamic_max - gain + 1e-6,
            "{name}: {r:?}"
        );
    }
    for (told, min, max) in [
        (s.unexplained_stall, s.unexplained_stall_min, s.unexplained_stall_max),
        (s.subtotal_dynamic, s.subtotal_dynamic_min, s.subtotal_dynamic_max),
        (s.subtotal_static, s.subtotal_static_min, s.subtotal_static_max),
        (s.total_stall, s.total_stall_min, s.total_stall_max),
        (s.execution, s.execution_min, s.execution_max),
    ] {
        assert!(min <= max && max <= 1.0 + 1e-6 || s.scale == Some(ScaleKind::Absolute), "{name}: {s:#?}");
        assert_eq!(told.is_some(), s.scale == Some(ScaleKind::Absolute), "{name}: {s:#?}");
        if let Some(share) = told {
            near(name, share, min);
            near(name, share, max);
        }
    }
    if let (Some(dynamic), Some(fixed), Some(stalled), Some(execution), Some(error)) =
        (s.subtotal_dynamic, s.subtotal_static, s.total_stall, s.execution, s.net_sampling_error)
    {
        assert!(dynamic - gain <= most + 1e-6, "{name}: {dynamic} {most}: {s:#?}");
        near(name, s.r#static.iter().filter_map(|p| p.share).sum(), fixed);
        near(name, dynamic + fixed, stalled);
        near(name, stalled + execution + error, 1.0);
    } else if s.samples_tallied > 0.0 {
        let possible = s.execution_max + s.subtotal_static_max + s.subtotal_dynamic_max;
        assert!(possible >= 1.0 - 1e-6, "{name}: some time is neither execution nor a stall: {s:#?}");
        assert!(s.execution_min + s.total_stall_min <= 1.0 + 1e-6, "{name}: more than all: {s:#?}");
    }
    near(name, s.samples_tallied, s.tallied_share * s.samples as f64);
    assert!(s.tallied_share <= 1.0 + 1e-6, "{name}: {s:#?}");
    if let (Some(cpi), Some(cycles), Some(instructions)) = (s.cpi, s.cycles, s.instructions) {
        near(name, cpi, cycles / instructions);
        near(name, s.best_case_cpi.unwrap() / cpi, s.execution.unwrap() + s.subtotal_static.unwrap());
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
            assert_eq!(
                (of_image.samples, of_image.execution_max),
                (whole.samples, whole.execution_max),
                "{name}"
            );
            let top = query.top(&dwell_query::TopRequest::default(), &Cancel::new()).unwrap();
            let mut samples = 0;
            for row in &top.rows {
                let one = ask(row.id.clone(), None).unwrap();
                assert_adds_up(&format!("{name}: {:?}", row.id), &one);
                samples += one.samples;
                tallied += usize::from(one.samples_tallied > 0.0);
                ranges += one.dynamic.iter().filter(|r| r.share_max > r.share_min + 0.01).count();
                unexplained += usize::from(one.unexplained_stall_max > 0.0);
            }
            assert_eq!(samples, whole.samples, "{name}");
        }
    }
    // The fixtures contain enough cases for the checks above to be meaningful.
    assert!(tallied > 50 && ranges > 50 && unexplained > 5, "{tallied} {ranges} {unexplained}");
}

/// Each cause has the range that the listing gives it, and what is not known has no number.
#[test]
fn without_an_absolute_scale_a_summary_is_as_wide_as_the_listing() {
    let file = fixtures().into_iter().find(|f| Image::open(f).unwrap().arch().name() == "x86_64").unwrap();
    let (_folder, query) = epoch(&file, "amd-zen4", "cycles");
    let top = query.top(&dwell_query::TopRequest::default(), &Cancel::new()).unwrap();
    let mut compared = 0;
    for id in top.rows.iter().filter_map(|row| row.id.clone()) {
        let request = SummaryRequest { procedure: Some(id.clone()), ..SummaryRequest::default() };
        let summary = query.summary(&request, &Cancel::new()).unwrap();
        let Ok(listing) = query.listing(&[], &id, &Cancel::new()) else { continue };
        if summary.samples_tallied == 0.0 {
            continue;
        }
        assert_ne!(summary.scale, Some(ScaleKind::Absolute));
        for range in &summary.dynamic {
            let of_row = |i: &dwell_query::answer::ListingInstruction| {
                let most = i.stalls.iter().filter(|s| s.cause == range.cause).map(|s| s.share_max);
                i.head_samples * most.fold(0.0, f64::max)
            };
            let most: f64 = listing.instructions.iter().map(of_row).sum();
            assert!(range.share_max >= most / summary.samples_tallied - 1e-6, "{id}: {range:?} {most}");
            compared += usize::from(range.share_max > 0.1);
        }
        assert!(summary.subtotal_dynamic_max > 1.0 - 1e-6, "all of the time may be stalls: {summary:#?}");
    }
    assert!(compared > 5, "{compared}");
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
