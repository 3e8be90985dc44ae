//! Samples in code that was added to a program.

use dwell_profile::{CpuId, Tid, VirtualAddress};

use super::{
    tests::{FakeHost, collector, count_lines, side},
    *,
};
use crate::{evidence::code_counters::moved_code::Span, source::owned_record::SideBandRecord};

fn sample(c: &mut Collector<FakeHost>, time_ns: u64, pc: u64) {
    let (pid, tid, pc) = (Pid(1), Tid(1), VirtualAddress(pc));
    let sample = Sample { mode: Mode::User, pc, pid, tid, cpu: Some(CpuId(0)), registers: None };
    c.apply(time_ns, OwnedRecord::Sample(EventIndex(0), sample));
}

#[test]
fn samples_in_added_code_are_put_back_or_dropped() {
    let mut c = collector();
    c.discover([Pid(1)]);
    let span = |start, stands_for: Option<u64>| {
        let start = VirtualAddress(start);
        Span { start, end: start.offset(8), stands_for: stands_for.map(VirtualAddress) }
    };
    c.moved.add(Pid(1), &[span(0x9000, None), span(0x9008, Some(0x1010))]);
    for (time_ns, pc) in [(1, 0x1010), (2, 0x9008), (3, 0x900f), (4, 0x9000), (5, 0x9010)] {
        sample(&mut c, time_ns, pc);
    }
    assert_eq!(c.disturbances.dropped().in_counters, 1);
    assert_eq!((c.counts.tallies()[0].samples, c.counts.tallies()[0].unknown), (4, 1));
    assert_eq!(
        count_lines(&c.take()),
        ["cpu-clock /bin/init+10 init#1 3", "cpu-clock unknown+9010 init#1 1"]
    );
    // Another program has no such code.
    c.apply(6, side(SideBandRecord::Exec { pid: Pid(1), comm: "other".into() }));
    sample(&mut c, 7, 0x9000);
    assert_eq!(c.disturbances.dropped().in_counters, 1);
}
