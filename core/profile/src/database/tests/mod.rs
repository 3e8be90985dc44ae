//! Tests of the database on a real file system; `crash` tests it on one that fails.

mod bad_input;
mod beside;
mod crash;
mod listing;
mod model;
mod sim;
mod stacks;
mod sums;

use std::{collections::BTreeMap, sync::Arc};

use crate::*;

pub(super) fn epoch_at(second: i64) -> Epoch {
    let start = jiff::Timestamp::from_second(second).unwrap();
    Epoch {
        id: EpochId::new(start),
        name: None,
        start,
        end: None,
        host: Host { name: "test".into(), kernel_release: "6".into() },
        cpu: Cpu {
            arch: "x86_64".into(),
            vendor: "AuthenticAMD".into(),
            model_name: "Test".into(),
            family: 25,
            model: 17,
            stepping: 1,
            count: 2,
            clock_hz: Some(2.5e9),
            clock_hz_range: Some((f64::NAN, 1.0)),
            machine_model: None,
        },
        backend: "perf".into(),
        scope: Scope::System,
        events: BTreeMap::from([(
            Event::CPU_CLOCK,
            EventRecord {
                period: 200_000,
                unit: Unit::Nanoseconds,
                samples: 3,
                lost: 0,
                throttled: 0,
                unknown: 0,
                running_share: None,
            },
        )]),
        notes: vec![],
        bursts: None,
        breakpoints: None,
        counts: None,
        call_stacks: None,
        collector: None,
    }
}

pub(super) fn counts(rows: &[(&str, u64, u64)]) -> Counts {
    let key = |image: &str, offset| SampleKey {
        image: ImageId::named(image),
        event: Event::CPU_CLOCK,
        offset: ImageOffset(offset),
        app: Arc::from("app"),
        instance: 1,
        dimensions: None,
    };
    rows.iter().map(|&(image, offset, count)| (key(image, offset), count)).collect()
}

pub(super) fn record(image: &str) -> ImageRecord {
    ImageRecord {
        id: ImageId::named(image),
        kind: ImageKind::File,
        path: format!("/bin/{image}").into(),
        deleted: false,
        size_bytes: Some(7),
        mtime_ns: None,
        symbols: vec![],
        places: Default::default(),
        kernel_builds: Vec::new(),
    }
}

#[test]
fn appended_samples_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    assert!(db.epochs().unwrap().epochs.is_empty());
    let writer = db.writer().unwrap();
    let before = db.generation();
    let mut epoch = writer.begin(epoch_at(1_700_000_000)).unwrap();
    let id = epoch.epoch().id.clone();
    assert_ne!(before, db.generation());
    epoch
        .append(&counts(&[("aa", 1, 2), ("bb", u64::MAX, u64::MAX - 1)]), &[record("aa"), record("bb")])
        .unwrap();
    epoch.append(&counts(&[("aa", 1, 5), ("kernel", 9, 1)]), &[record("aa")]).unwrap();
    let want = counts(&[("aa", 1, 7), ("bb", u64::MAX, u64::MAX - 1), ("kernel", 9, 1)]);
    let read = db.read(&id).unwrap();
    assert_eq!((read.counts, read.images.len(), read.warnings), (want.clone(), 2, vec![]));
    let compacted = writer.compact(&id).unwrap();
    assert_eq!((compacted.before, compacted.after), (2, 1));
    epoch.append(&counts(&[("kernel", 9, 1)]), &[]).unwrap();
    db.rename(&id, "baseline").unwrap();
    let end = epoch.epoch().start;
    epoch.finish(end).unwrap();
    let mut want = want;
    want.extend(counts(&[("kernel", 9, 2)]));
    let read = db.read(&db.resolve("baseline").unwrap().id).unwrap();
    assert_eq!((read.counts, read.images.len(), read.warnings), (want, 2, vec![]));
    assert_eq!(read.epoch.end, Some(end));
    db.remove(&id).unwrap();
    assert!(matches!(db.read(&id), Err(DatabaseError::Empty(_))));
}

#[test]
fn evidence_of_both_versions_is_read_and_numbered_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let writer = db.writer().unwrap();
    // The epoch that the file of version 1 belongs to; it stands for the first append of an older dwell.
    let id = EpochId("20261121T110131Z-5f3a9c".into());
    let mut epoch = writer.begin(Epoch { id: id.clone(), ..epoch_at(1_700_000_000) }).unwrap();
    let place = |offset| CodePlace { image: ImageId::named("aa"), offset: ImageOffset(offset) };
    let counts_at = |offset| ExecutionEvidence::breakpoint_counts(vec![(place(offset), 0)]).unwrap();
    for offset in 1..=2 {
        epoch.append(&counts(&[("aa", 1, 1)]), &[record("aa")]).unwrap();
        epoch.append_evidence(&[counts_at(offset), counts_at(offset + 10)]).unwrap();
    }
    let file = |number| dir.path().join(format!("db/epochs/{id}/paths-{number:06}.parquet"));
    let numbers = |number| {
        let read = segment::read_evidence(&std::fs::read(file(number)).unwrap(), true).unwrap();
        read.contents.into_keys().collect::<Vec<_>>()
    };
    assert_eq!((numbers(1), numbers(2)), (vec![1, 2], vec![3, 4]));
    let old = concat!(env!("CARGO_MANIFEST_DIR"), "/../../test-fixtures/profiles/paths-v1.parquet");
    std::fs::copy(old, file(1)).unwrap();
    let mut want: Vec<_> =
        segment::read_evidence(&std::fs::read(old).unwrap(), true).unwrap().contents.into_values().collect();
    want.extend([counts_at(2), counts_at(12)]);
    for _ in 0..2 {
        let read = db.read(&id).unwrap();
        assert_eq!((&read.evidence, read.warnings), (&want, vec![]));
        writer.compact(&id).unwrap();
    }
}
