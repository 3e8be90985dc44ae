//! Tests of readers that run beside a writer and a compactor, on the machine's own file system.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

/// Each append adds one sample to each of two offsets, so a reader can detect an inconsistent view. The two totals must
/// be equal, at least what had been appended when the read began, and at most what had been appended when it ended.
#[test]
fn readers_see_every_sample_once() {
    assert_eq!(appended_beside_readers(crate::MAX_SEGMENT_ROWS), 1);
}

/// Checks the same rule as the test above with small segments, which are soon full.
#[test]
fn readers_see_every_sample_of_full_segments_once() {
    let left = appended_beside_readers(24);
    assert!((4..60).contains(&left), "{left}");
}

/// Appends and compacts while readers run, with at most `rows_max` rows in a merged segment; returns how many segments
/// are left.
fn appended_beside_readers(rows_max: usize) -> usize {
    const APPENDS: u64 = 120;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let writer = db.writer().unwrap();
    let mut epoch = writer.begin(epoch_at(1)).unwrap();
    let id = epoch.epoch().id.clone();
    let (begun, done, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=APPENDS {
                begun.store(n, Ordering::SeqCst);
                // Every other append has new offsets.
                let rows = counts(&[("aa", n / 2, 1), ("bb", n / 2, 1)]);
                epoch.append(&rows, &[record("aa"), record("bb")]).unwrap();
                done.store(n, Ordering::SeqCst);
            }
            over.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                assert_eq!(writer.compact_within(&id, rows_max).unwrap().warnings, []);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let least = done.load(Ordering::SeqCst);
                    let read = db.read(&id).unwrap();
                    let most = begun.load(Ordering::SeqCst);
                    assert_eq!(read.warnings, []);
                    let total = |image| {
                        read.counts.iter().filter(|(k, _)| k.image.as_str() == image).map(|(_, c)| c).sum()
                    };
                    let (a, b): (u64, u64) = (total("aa"), total("bb"));
                    assert!(a == b && least <= a && a <= most, "{least} <= {a}, {b} <= {most}");
                }
            });
        }
    });
    drop(epoch); // The epoch has ended, so all segments that fit together are merged.
    let compacted = writer.compact_within(&id, rows_max).unwrap();
    let read = db.read(&id).unwrap();
    assert_eq!((read.counts.values().sum::<u64>(), read.counts.len() as u64), (2 * APPENDS, APPENDS + 2));
    compacted.after
}

#[test]
fn one_writer_per_host() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let writer = db.writer().unwrap();
    let error = Database::open(dir.path()).unwrap().writer().unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    let epoch = writer.begin(epoch_at(1)).unwrap();
    let other = db.writer_for("another").unwrap();
    let error = other.compact(&epoch.epoch().id).unwrap_err();
    assert!(matches!(error, DatabaseError::EpochBusy { pid: Some(_), .. }), "{error}");
    drop(writer);
    assert!(db.writer().is_err(), "an epoch's writer keeps the right");
    drop(epoch);
    db.writer().unwrap();
}

/// A new writer removes what the previous writer of its host left in `tmp`, and nothing of other hosts.
#[test]
fn leftovers_of_a_crash_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    drop(db.writer_for("a").unwrap());
    let tmp = dir.path().join("tmp");
    for name in ["w-a@1-1", "w-a-1@1-1", "m-1-1"] {
        std::fs::write(tmp.join(name), "").unwrap();
    }
    std::fs::create_dir(tmp.join("w-a@1-2")).unwrap();
    std::fs::write(tmp.join("w-a@1-2/epoch.json"), "").unwrap();
    let _writer = db.writer_for("a").unwrap();
    let left: Vec<_> = std::fs::read_dir(&tmp).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["w-a-1@1-1"]);
}

/// The generation changes with everything that a watcher would show, and with nothing else.
#[test]
fn the_generation_changes_with_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let mut last = db.generation();
    let mut changed = |what: &str| {
        let now = db.generation();
        assert_eq!(now, db.generation(), "{what}: it is still");
        std::mem::replace(&mut last, now) != now
    };
    let writer = db.writer().unwrap();
    assert!(!changed("set up"));
    let mut epoch = writer.begin(epoch_at(1)).unwrap();
    assert!(changed("begin"));
    epoch.append(&counts(&[("aa", 1, 1)]), &[]).unwrap();
    assert!(changed("append"));
    epoch.append(&counts(&[("aa", 1, 1)]), &[]).unwrap();
    assert!(changed("append again"));
    writer.compact(&epoch.epoch().id.clone()).unwrap();
    assert!(changed("compact"));
    let id = epoch.finish(jiff::Timestamp::now()).unwrap().id;
    let _ = changed("finish");
    assert!(!changed("nothing"));
    db.remove(&id).unwrap();
    assert!(changed("remove"));
}
