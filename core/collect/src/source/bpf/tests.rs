//! Tests the program on real events, on this machine.

use std::{path::Path, time::Instant};

use dwell_profile::{CountedEvent, EventIndex, Pid};

use super::*;
use crate::{
    entries::Place,
    source::{Rate, events::EventConfig},
};

fn configs(events: &[Event], hz: u32) -> Vec<EventConfig> {
    events.iter().map(|event| EventConfig::new(event, Rate::Frequency(hz), None).unwrap()).collect()
}

/// Returns an open source, or `None` where this machine does not permit it.
fn open(test: &str, configs: &[EventConfig]) -> Option<BpfSource> {
    match BpfSource::open(&Tasks::All, configs, true) {
        Ok(source) => Some(source),
        Err(error) => {
            eprintln!("SKIPPED {test}: {error}");
            None
        }
    }
}

/// Keeps this process running, in its own text, for this much CPU time.
fn spin(cpu: Duration) {
    let own = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let until = own() + cpu;
    let mut x = 1_u64;
    while own() < until {
        (0..100_000_u64).for_each(|i| x = std::hint::black_box(x.wrapping_mul(i | 1) ^ i));
    }
}

/// Takes all records and entries, as a session does.
fn take_all(source: &mut BpfSource, merger: &mut Merger<OwnedRecord>) -> Vec<Entry> {
    let mut taken = Vec::new();
    source.drain(merger);
    source.cut_batch();
    while source.batch().is_some() {
        source.hand_out(&mut |entries| taken.extend_from_slice(entries));
    }
    taken
}

#[test]
fn every_sample_is_counted_or_lost_or_idle() {
    let test = "every_sample_is_counted_or_lost_or_idle";
    let Some(mut source) = open(test, &configs(&[Event::CPU_CLOCK, Event::named("page-faults")], 2000))
    else {
        return;
    };
    let mut merger = Merger::default();
    source.enable().unwrap();
    let started = Instant::now();
    let mut taken = Vec::new();
    // There are several batches, so that both sides are used twice. Each contains samples of this process.
    for _ in 0..4 {
        spin(Duration::from_millis(60));
        source.wait(Duration::ZERO, None);
        taken.extend(take_all(&mut source, &mut merger));
        source.tend(&mut |warning| panic!("{warning}"));
    }
    source.disable().unwrap();
    taken.extend(take_all(&mut source, &mut merger));
    let tallies: Vec<CpuTally> = source.tables.borrow()[0].tallies().map(|(_, t)| t).collect();
    let samples: u64 = tallies.iter().flat_map(|t| t.samples).sum();
    let lost: u64 = tallies.iter().flat_map(|t| t.lost).sum();
    let (charged, taken): (Vec<Entry>, Vec<Entry>) =
        taken.into_iter().partition(|e| e.event == CountedEvent::KERNEL_TIME);
    assert_eq!(taken.iter().map(|e| e.count).sum::<u64>() + lost, samples, "{tallies:?}");
    assert!(taken.iter().all(|e| e.event < EventIndex(2).into() && e.pid != Pid(0)));
    // Each sample of time in the kernel is charged once to the user code that entered it, except in threads of the kernel.
    let in_kernel =
        taken.iter().filter(|e| e.event == EventIndex(0).into() && matches!(e.place, Place::Kernel { .. }));
    let charged_most: u64 = in_kernel.map(|e| e.count).sum();
    let charged: u64 = charged.iter().map(|e| e.count).sum();
    assert!(charged <= charged_most, "{charged} of {charged_most}");
    assert!(tallies[0].entered_lost == 0 && source.tally().kernel_time_lost == Some(0));
    let idle = tallies.iter().map(|t| t.idle).sum();
    let registers_lost = tallies.iter().map(|t| t.registers_lost).sum();
    let reported = source.tally();
    assert_eq!((reported.idle, reported.registers_lost), (Some(idle), Some(registers_lost)));
    // There are at most 2,000 samples a second on each CPU, and they cover most of the time that this test spun.
    let of_time: u64 = taken.iter().filter(|e| e.event == EventIndex(0).into()).map(|e| e.count).sum();
    let most = started.elapsed().as_secs_f64() * 2000.0 * 1.2 * tallies.len() as f64;
    assert!((240.0..most + 10.0).contains(&(of_time as f64)), "{of_time} of at most {most}");
    let own = |e: &&Entry| e.pid == Pid(std::process::id()) && matches!(e.place, Place::Executable { .. });
    assert!(taken.iter().filter(own).map(|e| e.count).sum::<u64>() > 100, "we spin in our own text");
}

#[test]
fn single_processes_are_refused() {
    let refused = BpfSource::open(&Tasks::Running(vec![Pid(1)]), &configs(&[Event::CPU_CLOCK], 100), false);
    assert!(matches!(refused, Err(CollectError::Backend { backend: Backend::Bpf, .. })));
}

#[test]
fn executions_are_reported_with_their_executable() {
    let test = "executions_are_reported_with_their_executable";
    let Some(mut source) = open(test, &configs(&[Event::CPU_CLOCK], 100)) else { return };
    let mut merger = Merger::default();
    source.enable().unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let child_pid = child.id();
    child.wait().unwrap();
    source.drain(&mut merger);
    source.disable().unwrap();
    let mut reported = Vec::new();
    merger.take_until(u64::MAX, |timed| {
        if let OwnedRecord::SideBand(side) = timed.item {
            reported.extend(match *side {
                SideBandRecord::Exec { pid, .. } if pid == Pid(child_pid) => Some(None),
                SideBandRecord::Executable { pid, id } if pid == Pid(child_pid) => Some(Some(id)),
                _ => None,
            });
        }
    });
    // The record of the execution comes first, so that the id is the new program's.
    assert!(matches!(reported[..], [None, Some(id)] if id != 0), "{reported:?}");
}

/// The program caches the executable of a process. Samples after an execution must not be counted under the old one.
#[test]
fn a_process_is_looked_up_again_after_an_exec() {
    let test = "a_process_is_looked_up_again_after_an_exec";
    let Some(mut source) = open(test, &configs(&[Event::CPU_CLOCK], 2000)) else { return };
    // The test executes copies of the shells, which no other process executes.
    let folder = tempfile::tempdir().unwrap();
    let copy = |shell: &str| {
        let path = folder.path().join(shell);
        std::fs::copy(Path::new("/bin").join(shell), &path).unwrap();
        path
    };
    let (first, second) = (copy("dash"), copy("bash"));
    let spin = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done";
    let both = format!("{spin}; exec {} -c '{spin}'", second.display());
    let mut merger = Merger::default();
    source.enable().unwrap();
    let mut child = std::process::Command::new(first).args(["-c", &both]).spawn().unwrap();
    let pid = child.id();
    assert!(child.wait().unwrap().success());
    let taken = take_all(&mut source, &mut merger);
    source.disable().unwrap();
    let mut reported = Vec::new();
    merger.take_until(u64::MAX, |timed| {
        if let OwnedRecord::SideBand(side) = timed.item
            && let SideBandRecord::Executable { pid: executed, id } = *side
            && executed == Pid(pid)
        {
            reported.push(id);
        }
    });
    let [first, second] = reported[..] else { panic!("{reported:?}") };
    assert_ne!(first, second);
    let samples = |id| {
        let of = taken.iter().filter(|e| matches!(e.place, Place::Executable { id: i, .. } if i == id));
        of.map(|e| e.count).sum::<u64>()
    };
    assert!(samples(first) > 50 && samples(second) > 50, "{} and {}", samples(first), samples(second));
    // The shells' text is found by its offset: samples counted under the wrong program would lie beyond its end.
    let sizes = ["dash", "bash"].map(|shell| std::fs::metadata(Path::new("/bin").join(shell)).unwrap().len());
    for (id, size) in [first, second].into_iter().zip(sizes) {
        let beyond = taken
            .iter()
            .filter(|e| matches!(e.place, Place::Executable { id: i, offset } if i == id && offset > size));
        assert_eq!(beyond.count(), 0);
    }
    let others = taken.iter().filter(|e| e.pid == Pid(pid)).filter_map(|e| match e.place {
        Place::Process { executable, .. } => Some(executable),
        _ => None,
    });
    let known = [0, first as u32, second as u32];
    assert!(others.into_iter().all(|executable| known.contains(&executable)), "of {known:x?}");
}

/// The program hands out registers on x86-64 only.
#[cfg(target_arch = "x86_64")]
#[test]
fn registers_are_sampled_less_often_later() {
    let test = "registers_are_sampled_less_often_later";
    let Some(mut source) = open(test, &configs(&[Event::CPU_CLOCK], 2000)) else { return };
    source.enable().unwrap();
    // One sample in 20 has registers, and later one in 80, out of about 800 samples of this process each time. Other processes
    // have other shares of user code.
    let own = Pid(std::process::id());
    let mut share = || {
        let mut merger = Merger::default();
        take_all(&mut source, &mut merger);
        merger.take_until(u64::MAX, drop);
        spin(Duration::from_millis(400));
        let taken = take_all(&mut source, &mut merger);
        let ours = taken.iter().filter(|e| e.pid == own && e.event != CountedEvent::KERNEL_TIME);
        let samples: u64 = ours.map(|e| e.count).sum();
        let mut reported = 0;
        merger.take_until(u64::MAX, |t| {
            reported += u32::from(matches!(t.item, OwnedRecord::Registers(_, sample) if sample.pid == own));
        });
        source.opened -= LATER;
        source.tend(&mut |warning| panic!("{warning}"));
        f64::from(reported) / samples as f64
    };
    let (at_first, later) = (share(), share());
    assert!(at_first > 2.0 * later && later > 0.0, "{at_first} and {later}");
}
