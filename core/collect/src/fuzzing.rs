//! Runs every parser of outside bytes on one input, for fuzzing and for replaying inputs that fuzzing found.
//!
//! Enters: any bytes. Leaves: nothing. A panic is a bug, and so is a sum of samples that differs from the input. Never here:
//! I/O.

use std::iter;

use dwell_attribution::{
    FileVersion, Identity, ImageFiles, InstanceLimits, Interval, KernelPlace, MappedRange, Modules, Target,
    program_headers,
};
use dwell_profile::{CpuId, Event, EventIndex, ExecutionEvidence, ImageId, ImageSymbol, Pid, VirtualAddress};

use crate::{
    collector::Collector,
    entries::{Entry, EntryChunks, Place},
    host::{
        Host, ProcessSnapshot,
        code_names::{Finder, NamesWindow, find_in_perf_map},
        jitdump,
        linux_host::LinuxHost,
        procfs,
    },
    run::control::Request,
    source::{
        bpf,
        kmod::chunks::{self, Chunk},
        merge::Merger,
        owned_record::OwnedRecord,
        records::{SampleFields, parse_record_of, split_record},
    },
    sys::bpf::Notice,
};

/// What the samples of events carry, by their id modulo 3.
const FIELDS: [SampleFields; 3] = [SampleFields::None, SampleFields::Branches, SampleFields::CallStack];

/// A machine about which only the records are known.
struct NoHost;

impl ImageFiles for NoHost {
    fn identify(&mut self, target: &Target, _place: MappedRange) -> Identity {
        Identity::without_file(ImageId::named(&target.program().unwrap_or_default()))
    }

    fn vdso_id(&mut self) -> ImageId {
        ImageId::named("vdso")
    }
}

impl Host for NoHost {
    fn process(&mut self, _pid: Pid) -> Option<ProcessSnapshot> {
        None
    }

    fn is_alive(&self, _pid: Pid) -> bool {
        false
    }

    fn version(
        &mut self,
        _target: &Target,
        _place: MappedRange,
        _mapped_ns: Option<u64>,
    ) -> Option<FileVersion> {
        None
    }

    fn has_in_memory(&mut self, _: Pid, _: VirtualAddress, _: &ImageId, _: u64) -> Option<bool> {
        None
    }

    fn code(&mut self, _image: &ImageId, offset: u64, bytes: &mut [u8]) -> usize {
        bytes.fill(offset as u8);
        bytes.len()
    }

    fn kernel_place(&mut self, address: VirtualAddress, _interval: Interval) -> Option<KernelPlace> {
        let offset = address.as_offset();
        (offset > 1 << 63).then_some(KernelPlace { module: None, offset })
    }

    fn kernel_symbols(&mut self, _image: &ImageId, _offsets: &[u64]) -> Vec<ImageSymbol> {
        Vec::new()
    }
}

/// Parses bytes as a stream of the kernel's records and counts them. Checks that every sample is counted.
pub fn records(mut stream: &[u8]) {
    let mut merger = Merger::default();
    let mut samples = 0;
    while let Some(Ok((record, rest))) = split_record(stream) {
        assert!(rest.len() < stream.len(), "a record without bytes would repeat forever");
        stream = rest;
        // The samples of some events carry branches or stacks.
        if let Ok(record) = parse_record_of(record, |id| FIELDS[(id % 3) as usize])
            && let Some(item) = OwnedRecord::from_body(Some(EventIndex(0)), record.body)
        {
            samples += u64::from(matches!(item, OwnedRecord::Sample(..) | OwnedRecord::SampleWithStack(..)));
            merger.push(record.time_ns, item);
        }
    }
    let mut collector = Collector::new(NoHost, vec![Event::CPU_CLOCK], InstanceLimits::in_a_run(Vec::new()));
    collector.keep_spaces();
    merger.take_until(u64::MAX, |timed| collector.apply(timed.time_ns, timed.item));
    finish(collector, samples);
}

/// Converts the records of a ring, from events whose samples carry branches, to evidence of executions. `pid` is a running
/// process.
pub fn branch_stacks(pid: Pid, mut ring: &[u8]) -> Vec<ExecutionEvidence> {
    let mut collector =
        Collector::new(LinuxHost::new(), vec![Event::CYCLES], InstanceLimits::in_a_run(Vec::new()));
    collector.discover([pid]);
    while let Some(Ok((record, rest))) = split_record(ring) {
        ring = rest;
        if let Ok(record) = parse_record_of(record, |_| SampleFields::Branches)
            && let Some(item) = OwnedRecord::from_body(Some(EventIndex(0)), record.body)
        {
            collector.apply(record.time_ns, item);
        }
    }
    collector.take().evidence
}

/// Parses bytes as side-band records and aggregated entries, in turn. Checks that every sample is counted.
pub fn entries(bytes: &[u8]) {
    let mut collector = Collector::new(NoHost, vec![Event::CPU_CLOCK], InstanceLimits::in_a_run(Vec::new()));
    collector.keep_spaces();
    let (mut samples, mut time_ns) = (0, 1);
    for chunk in bytes.chunks_exact(20) {
        time_ns += 1;
        let number = |at: usize| u64::from_le_bytes(*chunk[at..].first_chunk().expect("20 bytes"));
        let (pid, pc, id) = (u32::from(chunk[1] % 8), number(2), number(10) % 8);
        let count = u64::from(chunk[18]) + 1;
        let place = match chunk[0] % 8 {
            0 => Place::Executable { id, offset: pc },
            1 => Place::Process { pc: VirtualAddress(pc), executable: id as u32 },
            2 => Place::Kernel { pc: VirtualAddress(pc), executable: (id > 0).then_some(id) },
            _ => {
                collector.apply(time_ns, side(chunk[0], Pid(pid), pc, id));
                continue;
            }
        };
        let interval = Interval { since_ns: 0, until_ns: time_ns };
        collector.apply_entries(
            &[Entry { place, pid: Pid(pid), event: EventIndex(0).into(), cpu: Some(CpuId(0)), count }],
            interval,
        );
        samples += count;
        if chunk[19].is_multiple_of(4) {
            collector.end_interval(time_ns);
        }
    }
    collector.end_interval(time_ns);
    finish(collector, samples);
}

/// Parses bytes as a notice of the BPF program and as the result of a read of `/dev/dwell`, and counts both. Checks that every
/// sample is counted.
pub fn aggregates(bytes: &[u8]) {
    let events = iter::once(Event::CYCLES).chain((1..16).map(|at| Event::named(&format!("event-{at}"))));
    let mut collector = Collector::new(NoHost, events.collect(), InstanceLimits::in_a_run(Vec::new()));
    collector.keep_spaces();
    if let Some(notice) = Notice::parse(bytes) {
        let (time_ns, item) = bpf::timed(&notice);
        collector.apply(time_ns, item);
    }
    let (mut unread, mut samples, mut until_ns) = (bytes, 0, 0);
    while let Some((chunk, rest)) = chunks::split(unread) {
        assert!(rest.len() < unread.len(), "a chunk without bytes would repeat forever");
        unread = rest;
        match chunk {
            Chunk::Entries { until_ns: to_ns, records } => {
                until_ns = to_ns.max(until_ns);
                let interval = Interval { since_ns: 0, until_ns };
                let mut each = |entries: &[Entry]| {
                    samples += entries.iter().map(|entry| entry.count).sum::<u64>();
                    collector.apply_entries(entries, interval);
                };
                let mut pieces = EntryChunks::new(Some(CpuId(0)), &mut each);
                chunks::words(records).for_each(|words| pieces.push(words));
                pieces.finish();
            }
            Chunk::Registers(records) => {
                chunks::registers(records, EventIndex(0))
                    .for_each(|(time_ns, item)| collector.apply(time_ns, item));
            }
            Chunk::Flushed => collector.end_interval(until_ns),
        }
    }
    collector.end_interval(until_ns);
    finish(collector, samples);
}

/// Returns a side-band record that a kernel might write.
fn side(kind: u8, pid: Pid, start: u64, id: u64) -> OwnedRecord {
    use crate::source::owned_record::SideBandRecord;
    use dwell_attribution::OwnedTag;
    let tag = OwnedTag::Inode { device: 1, inode: id, version: None };
    let target = match id {
        0 => Target::Anonymous,
        _ => Target::File { path: format!("/bin/{id}").into(), deleted: false, tag },
    };
    OwnedRecord::SideBand(Box::new(match kind % 8 {
        3 => SideBandRecord::Fork { pid, parent_pid: Pid(id as u32) },
        4 => SideBandRecord::Exec { pid, comm: "x".to_owned() },
        5 => SideBandRecord::Exit { pid },
        6 => SideBandRecord::Comm { pid, tid: pid.first_thread(), comm: "y".to_owned() },
        _ => {
            let (length, file_offset) = (id << 12, start >> 3);
            SideBandRecord::Map { pid, start: VirtualAddress(start), length, file_offset, target }
        }
    }))
}

fn finish(mut collector: Collector<NoHost>, samples: u64) {
    let batch = collector.take();
    let counts = batch.rows.counts();
    let stored = counts.iter().filter(|(key, _)| !key.event.is_derived());
    assert_eq!(stored.map(|(_, count)| count).sum::<u64>(), samples, "every sample is counted");
    assert_eq!(collector.counts.tallies().iter().map(|tally| tally.samples).sum::<u64>(), samples);
    collector.reap(u64::MAX);
}

/// Parses bytes as each text of /proc, as a perf map and as the headers of an executable.
pub fn proc_texts(bytes: &[u8]) {
    let mappings = procfs::parse_maps(bytes, None);
    // A text that is cut after a line has the same mappings up to there.
    let cut = bytes.iter().rposition(|b| *b == b'\n').unwrap_or(0);
    assert!(mappings.starts_with(&procfs::parse_maps(&bytes[..cut], None)));
    code_names_in(bytes);
    program_headers::read(|offset, into| {
        let from = bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let length = from.len().min(into.len());
        into[..length].copy_from_slice(&from[..length]);
        length
    });
    let text = String::from_utf8_lossy(bytes);
    procfs::parse_stat(&text);
    procfs::parse_waiting_pc(&text);
    procfs::parse_inner_pid(&text);
    procfs::parse_cpuinfo(&text, "x86_64", 1);
    let mut modules = Modules::default();
    let now = Interval { since_ns: 1, until_ns: 1 };
    modules.look(&text, now);
    let (layout, symbols) = dwell_attribution::read_kernel(bytes, modules);
    let [zero, one, two, last] = [0, 1, 2, u64::MAX].map(VirtualAddress);
    for address in [zero, one, layout.text.unwrap_or(two), layout.end, last] {
        layout.place(address, now);
        symbols.find(address, layout.text.unwrap_or(zero));
    }
}

/// Parses bytes as a perf map and as a jitdump.
pub fn code_names_in(bytes: &[u8]) {
    let addresses = [0, 0x1000, 0x7f00_0000_0000, u64::MAX].map(VirtualAddress);
    for window in [NamesWindow::default(), NamesWindow { since: 9, until: Some(90) }] {
        let mut finder = Finder::new(&addresses, window);
        find_in_perf_map(bytes, &mut finder, true);
        jitdump::find_in_jitdump(bytes, &mut finder);
        finder.finish();
    }
}

/// Parses bytes as a client's request to the daemon. Checks that a valid request survives serialization.
pub fn request(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    if let Ok(request) = serde_json::from_str::<Request>(&line) {
        let text = serde_json::to_string(&request).expect("a request consists of texts and numbers");
        assert_eq!(serde_json::from_str::<Request>(&text).expect("our own JSON is valid"), request);
    }
}
