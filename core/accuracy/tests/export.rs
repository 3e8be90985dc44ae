//! A database of two runs becomes the samples of a capture.

use std::{fs, path::Path};

use dwell_accuracy::export_capture::{self, Arguments};
use dwell_image::Image;
use dwell_profile::{
    CodePlace, ControlTransfer, Counts, Database, Epoch, Event, ExecutionEvidence, ImageId, ImageOffset,
    SampleKey,
};
use serde_json::json;

const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../test-fixtures/images/c-dwarf5.elf");

fn epoch(id: &str, period: u64, samples: u64) -> Epoch {
    let record = json!({ "period": period, "unit": "ns", "samples": samples, "lost": 0, "throttled": 0, "unknown": 0 });
    let cpu = json!({ "arch": "x86_64", "vendor": "AuthenticAMD", "model_name": "Zen 4", "family": 25, "model": 17,
        "stepping": 1, "count": 1, "clock_hz": 3.5e9 });
    let epoch = json!({ "id": id, "start": "2026-01-01T00:00:00Z", "host": { "name": "h", "kernel_release": "6" },
        "cpu": cpu, "backend": "perf", "scope": { "command": ["x"] }, "events": { "cpu-clock": record } });
    serde_json::from_value(epoch).expect("an epoch")
}

fn store(database: &Database, epoch: Epoch, rows: &[(&str, Event, u64, u64)]) {
    let counts: Counts = rows
        .iter()
        .map(|(image, event, offset, count)| {
            let (image, offset) = (ImageId::named(image), ImageOffset(*offset));
            (
                SampleKey {
                    image,
                    event: event.clone(),
                    offset,
                    app: "x".into(),
                    instance: 1,
                    dimensions: None,
                },
                *count,
            )
        })
        .collect();
    let writer = database.writer().expect("the only writer");
    writer.begin(epoch).expect("a new epoch").append(&counts, &[]).expect("samples stored");
}

#[test]
fn windows_and_bursts_are_distinguished() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = Database::open(folder.path().join("db")).expect("a database");
    let counts = Counts::from_iter([(
        SampleKey {
            image: ImageId::named(&build_id()),
            event: Event::CPU_CLOCK,
            offset: ImageOffset(0x1040),
            app: "x".into(),
            instance: 1,
            dimensions: None,
        },
        5,
    )]);
    let place = |offset| CodePlace { image: ImageId::named(&build_id()), offset: ImageOffset(offset) };
    let executions = vec![(place(0x1040), 0), (place(0x1050), 12)];
    let window = ExecutionEvidence::breakpoint_counts(executions).expect("counts");
    let transfer = ControlTransfer { from: place(0x1050), to: place(0x1040), count: 3 };
    let (first, last) = (place(0x1040), place(0x1050));
    let path = ExecutionEvidence::PathBurst { first, last, transfers: vec![transfer], cpu_ns: None };
    let writer = database.writer().expect("the only writer");
    let mut open = writer.begin(epoch("20260101T000000Z-000001", 100_000, 5)).expect("a new epoch");
    open.append(&counts, &[]).expect("samples stored");
    open.append_evidence(&[window, path]).expect("evidence stored");
    drop(open);
    export(&database, folder.path()).expect("exported");
    let read = |name| fs::read_to_string(folder.path().join(name)).expect(name);
    assert_eq!(read("windows.tsv"), "0\t1040\t0\n0\t1050\t12\n");
    assert_eq!(read("bursts.tsv"), "0\t1040\t1050\t0\n0\t1050\t1040\t3\n");
}

fn export(database: &Database, out: &Path) -> anyhow::Result<()> {
    let (db, out) = (database.path().to_owned(), out.to_owned());
    export_capture::run(&Arguments { db, bursts: None, windows: None, image: IMAGE.into(), out })
}

fn build_id() -> String {
    Image::open(IMAGE).expect("the fixture").build_id().expect("a build id").to_string()
}

#[test]
fn epochs_are_added_up_and_other_images_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = Database::open(folder.path().join("db")).expect("a database");
    let (ours, clock) = (build_id(), Event::CPU_CLOCK);
    let once = [
        (&*ours, clock.clone(), 0x1040, 3),
        (&*ours, Event::BRANCH_TAKEN, 0x1050, 2),
        ("kernel", clock.clone(), 0x1040, 9),
    ];
    store(&database, epoch("20260101T000000Z-000001", 100_000, 12), &once);
    // The address differs from the file offset: offset 2de0 is loaded at address 3de0.
    let again = [
        (&*ours, clock.clone(), 0x1040, 4),
        (&*ours, clock, 0x2de0, 1),
        (&*ours, Event::BRANCH_NOT_TAKEN, 0x1050, 1),
    ];
    store(&database, epoch("20260101T000000Z-000002", 100_000, 4), &again);
    // This file belongs to an older recording, which had events that the current one lacks.
    fs::write(folder.path().join("events.tsv"), "stale").expect("written");

    export(&database, folder.path()).expect("exported");
    let read = |name| fs::read_to_string(folder.path().join(name)).expect(name);
    assert_eq!(read("samples.tsv"), "1040\t7\n3de0\t1\n");
    assert_eq!(read("directions.tsv"), "1050\t2\t1\n");
    assert!(!folder.path().join("events.tsv").exists());
}

#[test]
fn samples_of_different_periods_are_not_added_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = Database::open(folder.path().join("db")).expect("a database");
    let rows = [(&*build_id(), Event::CPU_CLOCK, 0x1040, 3)];
    store(&database, epoch("20260101T000000Z-000001", 100_000, 3), &rows);
    store(&database, epoch("20260101T000000Z-000002", 50_000, 3), &rows);
    let error = export(&database, folder.path()).expect_err("two periods").to_string();
    assert!(error.contains("has other events or periods"), "{error}");
}
