//! A writer that is killed in the middle: the lock goes with it, and only what it had not appended is lost.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use dwell_profile::*;

/// Names the database to the child; without it, the child's part is an empty test.
const CHILD: &str = "DWELL_TEST_KILL_DB";

fn epoch() -> Epoch {
    let start = jiff::Timestamp::now();
    let cpu = Cpu {
        arch: "x86_64".into(),
        vendor: "v".into(),
        model_name: "m".into(),
        family: 1,
        model: 2,
        stepping: 3,
        count: 1,
        clock_hz: None,
        clock_hz_range: None,
        machine_model: None,
    };
    Epoch {
        id: EpochId::new(start),
        name: None,
        start,
        end: None,
        host: Host { name: "h".into(), kernel_release: "6".into() },
        cpu,
        backend: "perf".into(),
        scope: Scope::System,
        events: BTreeMap::new(),
        notes: vec![],
        bursts: None,
        breakpoints: None,
        counts: None,
        call_stacks: None,
        collector: None,
    }
}

fn one(offset: u64) -> Counts {
    let (image, event, app) = (ImageId::named("aa"), Event::CPU_CLOCK, Arc::from("app"));
    Counts::from_iter([(
        SampleKey { image, event, offset: ImageOffset(offset), app, instance: 1, dimensions: None },
        1,
    )])
}

/// The child process: it appends forever and reports the end of each append.
#[test]
fn child_appends_until_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let writer = Database::open(Path::new(&path)).unwrap().writer().unwrap();
    let mut epoch = writer.begin(epoch()).unwrap();
    for n in 1.. {
        epoch.append(&one(n), &[]).unwrap();
        println!("appended {n}");
        if n % 5 == 0 {
            writer.compact(&epoch.epoch().id).unwrap();
        }
    }
}

#[test]
fn kill_9_frees_the_lock_and_loses_nothing_appended() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_appends_until_killed", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told = 0;
        for line in lines.map_while(Result::ok) {
            if let Some(n) = line.strip_prefix("appended ").and_then(|n| n.parse::<u64>().ok()) {
                told = n;
            }
            if told == 7 + 3 * round {
                let db = Database::open(dir.path()).unwrap();
                let busy = db.writer().unwrap_err().to_string();
                assert!(busy.contains(&format!("process {}", child.id())), "{busy}");
                child.kill().unwrap();
                break;
            }
        }
        child.wait().unwrap();
        assert!(told >= 7, "the child did not get far");
        check(dir.path(), told);
    }
}

fn check(path: &Path, told: u64) {
    let db = Database::open(path).unwrap();
    let id = db.resolve("latest").unwrap().id;
    let read = db.read(&id).unwrap();
    assert_eq!(read.warnings, []);
    let stored = read.counts.values().sum::<u64>();
    // The child may have appended more than the number that we read last; each append is stored once.
    assert!(stored >= told && read.counts.values().all(|&c| c == 1), "{stored} of {told}");
    let writer = db.writer().unwrap();
    writer.compact(&id).unwrap();
    assert_eq!(db.read(&id).unwrap().counts, read.counts);
    assert_eq!(std::fs::read_dir(path.join("tmp")).unwrap().count(), 0, "left in tmp");
}
