//! Tests of the database on a real file system; `crash` tests it on one that fails.

mod bad_input;
mod beside;
mod crash;
mod listing;
mod model;
mod sim;

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
        paths: None,
        windows: None,
        counts: None,
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
