//! Tests that breakpoint counts replace path bursts in a real recording, but only after threads can no longer be followed.
//!
//! This test has a process of its own, because it kills the helper process, which is a child of it.

#![cfg(target_arch = "x86_64")]

use std::{fs, thread::sleep, time::Duration};

use dwell_collect::{CollectError, Rate, RecordOptions, Recorded, Stop, Target, record};
use dwell_profile::{Database, ExecutionEvidence};
use rustix::process::{Pid, Signal, getpid, kill_process};

const NAME: &str = "breakpoints_replace_bursts_if_threads_cannot_be_followed";

/// Returns a recording in which both methods were requested, and its evidence of executions. Returns `None` if this machine
/// does not permit it.
fn recorded() -> Option<(Recorded, Vec<ExecutionEvidence>)> {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("db")).unwrap();
    let script = "i=0; while :; do i=$((i * 7 + 1)); case $i in *1*3*) s=x$i;; esac; j=${s#x}; done";
    let words = ["timeout", "1.5", "sh", "-c", script];
    let options = RecordOptions {
        rate: Rate::Frequency(2000),
        bursts_percent: 20.0,
        breakpoints_percent: 20.0,
        breakpoints_stand_in: true,
        ..RecordOptions::new(Target::Command(words.iter().map(Into::into).collect()))
    };
    match record(options, &database.writer().unwrap(), &Stop::new(), &mut |_| ()) {
        Err(error @ (CollectError::Denied { .. } | CollectError::Open { .. })) => {
            println!("SKIPPED {NAME}: {error}");
            None
        }
        recorded => {
            let recorded = recorded.unwrap();
            let evidence = database.read(&recorded.epoch.id).unwrap().evidence;
            Some((recorded, evidence))
        }
    }
}

/// Waits for the child that follows threads, and returns its pid.
fn follower() -> Pid {
    let own = getpid().as_raw_nonzero().to_string();
    for _ in 0..500 {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let mut fields = stat.split(' ');
            let pid = fields.next().and_then(|f| f.parse().ok()).and_then(Pid::from_raw);
            if let (Some(pid), Some("(dwell-step)"), Some(parent)) = (pid, fields.next(), fields.nth(1))
                && parent == own
            {
                return pid;
            }
        }
        sleep(Duration::from_millis(2));
    }
    panic!("nobody follows");
}

#[test]
fn breakpoints_replace_bursts_if_threads_cannot_be_followed() {
    let Some((followed, evidence)) = recorded() else { return };
    let record = followed.epoch.bursts.unwrap();
    if record.refused.contains_key("not permitted") || record.refused.contains_key("no code can be made here")
    {
        return println!("SKIPPED {NAME}: threads cannot be followed here: {:?}", record.refused);
    }
    assert!(record.bursts > 0 && followed.epoch.breakpoints.is_none(), "{record:?}");
    let is_counted = |e: &&ExecutionEvidence| matches!(e, ExecutionEvidence::BreakpointCounts(_));
    assert_eq!(evidence.iter().find(is_counted), None);

    let killer = std::thread::spawn(|| kill_process(follower(), Signal::KILL).unwrap());
    let Some((counted, evidence)) = recorded() else { return };
    killer.join().unwrap();
    let refused = counted.epoch.bursts.unwrap().refused;
    assert_eq!(refused.get("the stepping process ended"), Some(&1), "{refused:?}");
    let record = counted.epoch.breakpoints.expect("breakpoints stand in");
    if record.windows == 0 {
        return println!("SKIPPED {NAME}: no window was counted: {:?}", record.refused);
    }
    let windows = evidence.iter().filter(is_counted).count();
    assert_eq!(windows as u64, record.windows);
}
