//! Checks that the same samples get the same counts in three ways: one by one as the ring's reader gets them, through the
//! table compiled for the host (the kernel module's code), and through the BPF program.

use std::collections::BTreeMap;

use dwell_attribution::Interval;
use dwell_profile::{CpuId, Tid, VirtualAddress};

use super::{
    tests::{FakeHost, file, side},
    *,
};
use crate::{
    entries::Entry,
    source::owned_record::SideBandRecord,
    sys::bpf::{
        Sizes,
        tests::{Recorded, in_bpf, left_in_bpf, on_host, recorded, tables, trace},
    },
};

/// Returns a collector that knows the processes of the trace.
fn prepared(trace: &[Recorded]) -> Collector<FakeHost> {
    let events = vec![Event::CPU_CLOCK, Event::named("page-faults"), Event::INSTRUCTIONS];
    let mut c = Collector::new(FakeHost, events, dwell_attribution::InstanceLimits::in_a_run(Vec::new()));
    c.keep_spaces();
    c.discover([Pid(1)]);
    let mut pids: BTreeMap<Pid, &Recorded> = BTreeMap::new();
    trace.iter().filter(|r| r.has_executable()).for_each(|r| {
        pids.entry(Pid(r.pid)).or_insert(r);
    });
    for (pid, r) in pids {
        let map = |start, length, target| SideBandRecord::Map {
            pid: Pid(pid.0),
            start: VirtualAddress(start),
            length,
            file_offset: 0,
            target,
        };
        let program = file(&format!("/bin/program{}", r.inode));
        let sides = [
            SideBandRecord::Fork { pid: Pid(pid.0), parent_pid: Pid(1) },
            SideBandRecord::Exec { pid: Pid(pid.0), comm: "program".into() },
            map(r.start_code, r.end_code - r.start_code, program),
            map(0x7fff_f000_0000, 0x1000_0000, file("/lib/libc")),
        ];
        sides.into_iter().for_each(|s| c.apply(1, side(s)));
    }
    c.end_interval(2); // The trace has no samples from before the execs.
    c
}

/// Returns the counts without instances, because entries by executable do not distinguish them.
fn counted(mut c: Collector<FakeHost>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (key, count) in &c.take().rows.counts() {
        let place = format!("{} {}+{:x} {}", key.event, key.image, key.offset.0, key.app);
        *sums.entry(place).or_default() += count;
    }
    sums
}

fn one_by_one(trace: &[Recorded]) -> BTreeMap<String, u64> {
    let mut c = prepared(trace);
    for r in trace {
        let mode = if r.in_kernel() { Mode::Kernel } else { Mode::User };
        let (pc, pid, tid) = (VirtualAddress(r.pc), Pid(r.pid), Tid(r.pid));
        let sample = Sample { mode, pc, pid, tid, cpu: Some(CpuId(0)), registers: None };
        c.apply(3, OwnedRecord::Sample(EventIndex(r.event), sample));
    }
    counted(c)
}

fn by_entries(trace: &[Recorded], words: &[(u64, u64)]) -> BTreeMap<String, u64> {
    let entries: Vec<Entry> =
        words.iter().filter_map(|(key, place)| Entry::from_words([*key, *place])).collect();
    let mut c = prepared(trace);
    entries.chunks(100).for_each(|some| c.apply_entries(some, Interval { since_ns: 2, until_ns: 3 }));
    c.end_interval(3);
    counted(c)
}

#[test]
fn a_trace_counts_the_same_one_by_one_by_the_module_s_code_and_by_bpf() {
    check("a_trace_counts_the_same_one_by_one_by_the_module_s_code_and_by_bpf", &trace(12_000), 3000);
}

#[test]
fn a_recorded_build_counts_the_same_one_by_one_by_the_module_s_code_and_by_bpf() {
    let trace = recorded();
    check("a_recorded_build_counts_the_same_one_by_one_by_the_module_s_code_and_by_bpf", &trace, 1000);
    let pids: std::collections::BTreeSet<Pid> = trace.iter().map(|r| Pid(r.pid)).collect();
    assert!(pids.len() > 50, "{} processes", pids.len());
}

/// Checks that all ways give the same counts, at more than `places_min` places.
fn check(test: &str, trace: &[Recorded], places_min: usize) {
    let sizes = Sizes { bucket_bits: 10, capacity: 8192 };
    let truth = one_by_one(trace);
    assert_eq!(truth.values().sum::<u64>(), trace.len() as u64);
    assert!(truth.len() > places_min, "{}", truth.len());
    assert!(truth == by_entries(trace, &on_host(trace, sizes)), "the module's code");
    if let Some(mut tables) = tables(test, sizes) {
        in_bpf(&mut tables, trace);
        assert!(truth == by_entries(trace, &left_in_bpf(&tables)), "BPF");
    }
}
