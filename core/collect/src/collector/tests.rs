//! Tests the collector on a simulated machine: several CPUs, processes that fork, execute, map and end, reused pids, lost
//! records. The counts must equal what happened.

use std::collections::BTreeMap;

use dwell_attribution::{
    CodeId, FileVersion, Identity, ImageFiles, Interval, KernelPlace, MappedRange, OwnedTag, Target,
    program_headers::CodeLayout,
};
use dwell_profile::{CodePlace, CpuId, Dimension, DimensionSet, ExecutionEvidence as Evidence};
use dwell_profile::{ImageOffset, ImageSymbol, Pid, SampleKey, Tid, VirtualAddress};

use super::{disturbances::DroppedSamples, *};
use crate::{
    host::{
        ProcessSnapshot, Region,
        code_names::{CodeName, NamesWindow},
    },
    path::Path,
    registers::Registers,
    source::{
        merge::Merger,
        owned_record::{RawBreakpointCounts, RawBurst},
    },
};

/// A machine whose files are identified by their paths. The kernel is one image of 4 KiB at the top, with a module that is
/// unloaded.
pub(super) struct FakeHost;

pub(super) const KERNEL: u64 = 0xffff_ffff_8100_0000;
pub(super) const MODULE: u64 = 0xffff_ffff_c000_0000;
pub(super) const MODULE_UNTIL_NS: u64 = 50;

impl ImageFiles for FakeHost {
    fn identify(&mut self, target: &Target, _place: MappedRange) -> Identity {
        let Target::File { path, .. } = target else { panic!("{target:?} is no file") };
        let path = path.display().to_string();
        let id = match path.as_str() {
            "/opt/copy" => ImageId::named("/bin/cc1"), // This file has the same build ID.
            path => ImageId::named(path),
        };
        let code = CodeLayout::plain(if path.starts_with("/bin/program") { 0x1000_0000 } else { 0x10_0000 });
        Identity { id, path: None, deleted: false, size_bytes: None, mtime_ns: None, code }
    }

    fn vdso_id(&mut self) -> ImageId {
        ImageId::named("vdso")
    }
}

impl Host for FakeHost {
    fn process(&mut self, pid: Pid) -> Option<ProcessSnapshot> {
        let mappings = vec![(VirtualAddress(0x1000), VirtualAddress(0x2000), 0, file("/bin/init"))];
        (pid == Pid(1)).then(|| ProcessSnapshot {
            name: "init".into(),
            kernel_thread: false,
            program: Some(0),
            mappings,
        })
    }

    fn thread_name(&mut self, pid: Pid, tid: Tid) -> Option<String> {
        (pid == Pid(1)).then(|| format!("thread{tid}"))
    }

    fn cgroup(&mut self, pid: Pid) -> Option<String> {
        (pid == Pid(1)).then(|| "/init.scope".to_owned())
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

    fn has_in_memory(&mut self, pid: Pid, at: VirtualAddress, image: &ImageId, _: u64) -> Option<bool> {
        (image.as_str() == "/bin/huge").then_some(pid == Pid(1) && at.0.is_multiple_of(2))
    }

    fn memory(&mut self, pid: Pid) -> Vec<Region> {
        if pid == Pid(1) { data_tests::memory() } else { Vec::new() }
    }

    /// Returns the code of a file: `cmp eax, ecx; je` at offset 0x10 and `mov rax, [rax]` at 0x30.
    fn code(&mut self, _image: &ImageId, offset: u64, bytes: &mut [u8]) -> usize {
        // `cmp eax, ecx; je`, and `mov rbx, [rax]; nop`, between bytes that are no code; the file ends after them.
        let instructions: [(u64, &[u8]); 2] =
            [(0x10, &[0x39, 0xc8, 0x74, 5]), (0x30, &[0x48, 0x8b, 0x18, 0x90])];
        for (at, byte) in (offset..).zip(bytes.iter_mut()) {
            let found =
                instructions.iter().find_map(|(start, code)| code.get(at.checked_sub(*start)? as usize));
            *byte = *found.unwrap_or(&0x06);
        }
        bytes.len().min(0x34_usize.saturating_sub(offset as usize))
    }

    fn kernel_place(&mut self, address: VirtualAddress, interval: Interval) -> Option<KernelPlace> {
        if let Some(offset) = address.0.checked_sub(MODULE).filter(|o| *o < 0x1000) {
            let module = Some("ext4".to_owned());
            return (interval.since_ns < MODULE_UNTIL_NS).then_some(KernelPlace { module, offset });
        }
        let offset = address.0.checked_sub(KERNEL).filter(|o| *o < 0x1000)?;
        Some(KernelPlace { module: None, offset })
    }

    fn kernel_symbols(&mut self, _image: &ImageId, offsets: &[u64]) -> Vec<ImageSymbol> {
        offsets
            .iter()
            .map(|o| ImageSymbol { offset: ImageOffset(*o), size_bytes: 1, name: format!("f{o}") })
            .collect()
    }

    fn code_names(&mut self, _: CodeId, all: &[VirtualAddress], _: NamesWindow) -> (Vec<CodeName>, u64) {
        let symbol = |a: u64| ImageSymbol { offset: ImageOffset(a), size_bytes: 1, name: format!("j{a}") };
        (all.iter().map(|a| CodeName::Named(symbol(a.0))).collect(), 1)
    }
}

pub(super) fn file(path: &str) -> Target {
    Target::File {
        path: path.into(),
        deleted: false,
        tag: OwnedTag::Inode { device: 1, inode: 1, version: None },
    }
}

pub(super) fn sample(mode: Mode, pid: Pid, pc: u64) -> OwnedRecord {
    let (pc, tid, cpu) = (VirtualAddress(pc), pid.first_thread(), Some(CpuId(0)));
    OwnedRecord::Sample(EventIndex(0), Sample { mode, pc, pid, tid, cpu, registers: None })
}

pub(super) fn side(side: SideBandRecord) -> OwnedRecord {
    OwnedRecord::SideBand(Box::new(side))
}

pub(super) fn collector() -> Collector<FakeHost> {
    Collector::new(FakeHost, vec![Event::CPU_CLOCK], InstanceLimits::in_a_run(Vec::new()))
}

/// Returns the counts as text: `event image+offset app#instance count`.
pub(super) fn count_lines(batch: &Batch) -> Vec<String> {
    let line = |(k, n): (&SampleKey, &u64)| {
        format!("{} {}+{:x} {}#{} {n}", k.event, k.image, k.offset.0, k.app, k.instance)
    };
    let mut lines: Vec<String> = batch.rows.counts().iter().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn samples_are_attributed_by_the_mappings_at_their_time() {
    let mut c = collector();
    c.discover([Pid(1)]);
    let map = |pid, start, length, target| {
        let start = VirtualAddress(start);
        side(SideBandRecord::Map { pid, start, length, file_offset: 0, target })
    };
    let items = [
        sample(Mode::User, Pid(1), 0x1004),
        side(SideBandRecord::Fork { pid: Pid(9), parent_pid: Pid(1) }),
        sample(Mode::User, Pid(9), 0x1004), // the child executes its parent's program
        side(SideBandRecord::Exec { pid: Pid(9), comm: "cc1".into() }),
        sample(Mode::Kernel, Pid(9), KERNEL + 7), // in exec itself: counted for the new program
        map(Pid(9), 0x5000, 0x1000, file("/usr/lib/cc1-13")),
        map(Pid(9), 0x9000, 0x1000, Target::Anonymous),
        sample(Mode::User, Pid(9), 0x5010),
        sample(Mode::User, Pid(9), 0x9010),
        sample(Mode::User, Pid(9), 0x1004), // the exec removed this mapping
        side(SideBandRecord::Exit { pid: Pid(9) }),
        side(SideBandRecord::Fork { pid: Pid(9), parent_pid: Pid(1) }), // the pid is reused by another process
        sample(Mode::User, Pid(9), 0x1008),
        sample(Mode::Kernel, Pid(0), KERNEL + 8),
        sample(Mode::User, Pid(u32::MAX), 0x10),
        sample(Mode::GuestUser, Pid(1), 0x77),
        side(SideBandRecord::Lost {
            event: Some(EventIndex(0)),
            records: 5,
            cause: crate::loss::LossCause::RingFull,
        }),
        side(SideBandRecord::Throttle { event: Some(EventIndex(0)) }),
    ];
    items.into_iter().enumerate().for_each(|(at, item)| c.apply(at as u64, item));
    assert_eq!(c.counts.tallies(), [Tally { samples: 10, lost: 5, throttled: 1, unknown: 2 }]);
    assert!(c.take_gaps() && !c.take_gaps());
    let batch = c.take();
    expect_test::expect![[r#"
        cpu-clock /bin/init+4 init#1 2
        cpu-clock /bin/init+8 init#1 1
        cpu-clock /usr/lib/cc1-13+10 cc1-13#1 1
        cpu-clock guest-user+77 init#1 1
        cpu-clock jit:cc1-13+9010 cc1-13#1 1
        cpu-clock kernel+7 cc1-13#1 1
        cpu-clock kernel+8 [idle]#0 1
        cpu-clock unknown+10 unknown#0 1
        cpu-clock unknown+1004 cc1-13#1 1"#]]
    .assert_eq(&count_lines(&batch).join("\n"));
    let symbols: Vec<String> =
        batch.images.iter().flat_map(|i| i.symbols.iter().map(|s| s.name.clone())).collect();
    assert_eq!(symbols.len(), 3, "two of the kernel's, one of the JIT's: {symbols:?}");
    c.reap(u64::MAX);
    assert_eq!(c.tracked().0, 2, "init and the second 9");
}

#[test]
fn forgotten_mappings_of_a_live_process_are_read_again() {
    let mut c = collector();
    c.discover([Pid(1)]);
    assert_eq!(c.attribution.processes.forget_least_recent(0), 1);
    let heap = SideBandRecord::Map {
        pid: Pid(1),
        start: VirtualAddress(0x7000),
        length: 0x1000,
        file_offset: 0,
        target: Target::Anonymous,
    };
    c.apply(1, side(heap)); // It comes too late to be read: the machine shows the first state.
    c.apply(2, sample(Mode::User, Pid(1), 0x1004));
    c.apply(3, sample(Mode::User, Pid(1), 0x1008));
    assert_eq!(count_lines(&c.take()), ["cpu-clock /bin/init+4 init#1 1", "cpu-clock /bin/init+8 init#1 1"]);
    assert_eq!(c.counts.unknown().total(), 0);
}

#[test]
fn registers_decide_branches() {
    let mut c = collector();
    c.discover([Pid(1)]);
    for (rax, pc) in [(4, 0x1010), (3, 0x1010), (3, 0x1010), (4, 0x1010), (4, 0x1020)] {
        let mut values = [0; crate::registers::REGISTER_COUNT];
        (values[0], values[2]) = (rax, 3);
        let (pc, registers) = (VirtualAddress(pc), Some(Box::new(Registers(values))));
        c.apply(
            0,
            OwnedRecord::Sample(
                EventIndex(0),
                Sample { mode: Mode::User, pc, pid: Pid(1), tid: Tid(1), cpu: Some(CpuId(0)), registers },
            ),
        );
    }
    expect_test::expect![[r#"
        branch-not-taken /bin/init+12 init#1 1
        branch-taken /bin/init+12 init#1 2
        cpu-clock /bin/init+10 init#1 4
        cpu-clock /bin/init+20 init#1 1"#]]
    .assert_eq(&count_lines(&c.take()).join("\n"));
}

/// Time of a system call is charged to the `syscall`, two bytes before its return address; time of a fault is charged to the
/// faulting instruction; time without a user's pc is not charged.
#[test]
fn kernel_time_is_charged_to_the_user_code_that_entered_it() {
    let mut c = collector();
    c.discover([Pid(1)]);
    let mut sample = |user_pc: u64, rcx: u64, has_registers: bool| {
        let mut values = [0; crate::registers::REGISTER_COUNT];
        (values[2], values[8]) = (rcx, user_pc);
        let registers = has_registers.then(|| Box::new(Registers(values)));
        let pc = VirtualAddress(0xffff_ffff_8000_0007);
        c.apply(
            0,
            OwnedRecord::Sample(
                EventIndex(0),
                Sample { mode: Mode::Kernel, pc, pid: Pid(1), tid: Tid(1), cpu: Some(CpuId(0)), registers },
            ),
        );
    };
    sample(0x1012, 0x1012, true);
    sample(0x1020, 7, true);
    sample(0x1020, 7, true);
    sample(0x1020, 7, false);
    sample(0, 7, true);
    let batch = c.take();
    let charged: Vec<String> =
        count_lines(&batch).into_iter().filter(|row| row.contains("kernel-time")).collect();
    expect_test::expect![[r#"
        kernel-time /bin/init+10 init#1 1
        kernel-time /bin/init+20 init#1 2"#]]
    .assert_eq(&charged.join("\n"));
    assert_eq!(
        count_lines(&batch).iter().filter(|row| row.starts_with("cpu-clock")).count(),
        1,
        "one place in the kernel"
    );
}

/// The fake files have `cmp eax, ecx; je` at 0x10. The branch leads to unreadable code, and out of the file.
#[test]
fn samples_of_a_stepped_thread_are_dropped_and_its_steps_kept() {
    let mut c = collector();
    c.discover([Pid(1)]);
    let at = |c: &mut Collector<FakeHost>, time_ns, tid| {
        let (mode, pc, cpu) = (Mode::User, VirtualAddress(0x1010), Some(CpuId(0)));
        let sample = Sample { mode, pc, pid: Pid(1), tid, cpu, registers: None };
        c.apply(time_ns, OwnedRecord::Sample(EventIndex(0), sample));
    };
    at(&mut c, 5, Tid(7));
    let path = Path::through(&[0x1010, 0x1012, 0x1050, 0x1010, 0x1012, 0x9000]);
    let burst = RawBurst { pid: Pid(1), tid: Tid(7), stepped_until_ns: 20, path, cpu_ns: Some(9) };
    c.apply(10, OwnedRecord::Burst(Box::new(burst)));
    [(12, 7), (20, 7), (15, 8), (21, 7)].into_iter().for_each(|(time, tid)| at(&mut c, time, Tid(tid)));
    assert_eq!(
        c.disturbances.dropped(),
        DroppedSamples { stepped: 2, counted: 0, watched: 0, in_counters: 0 }
    );
    assert_eq!(c.opaque_steps(), 1);
    assert_eq!(c.counts.tallies()[0].samples, 3, "one before, one of another thread, one after");
    let batch = c.take();
    let Evidence::PathBurst { first, last, transfers, cpu_ns } = &batch.evidence[0] else {
        panic!("no burst")
    };
    assert_eq!(*cpu_ns, Some(9));
    let place = |p: &CodePlace| format!("{}{}", p.image, p.offset);
    assert_eq!((place(first), place(last)), ("/bin/init+10".into(), "unknown+9000".into()));
    let transfers: Vec<String> =
        transfers.iter().map(|t| format!("{} {} {}", place(&t.from), place(&t.to), t.count)).collect();
    assert_eq!(transfers, ["/bin/init+12 /bin/init+50 1", "/bin/init+12 unknown+9000 1"]);
    assert!(batch.images.iter().any(|i| i.id == ImageId::unknown()), "images of bursts are recorded");
}

#[test]
fn samples_during_breakpoint_counts_are_dropped_and_the_counts_kept() {
    let mut c = collector();
    c.discover([Pid(1)]);
    let at = |c: &mut Collector<FakeHost>, time_ns, tid| {
        let (mode, pc, cpu) = (Mode::User, VirtualAddress(0x1010), Some(CpuId(0)));
        let sample = Sample { mode, pc, pid: Pid(1), tid, cpu, registers: None };
        c.apply(time_ns, OwnedRecord::Sample(EventIndex(0), sample));
    };
    let counts = [(0x1012, 40), (0x1010, 0), (0x9000, 7)].map(|(pc, count)| (VirtualAddress(pc), count));
    let raw = RawBreakpointCounts { pid: Pid(1), tid: Tid(7), until_ns: 20, counts: counts.into() };
    c.apply(10, OwnedRecord::BreakpointCounts(Box::new(raw)));
    [(12, 7), (20, 7), (15, 8), (21, 7)].into_iter().for_each(|(time, tid)| at(&mut c, time, Tid(tid)));
    assert_eq!(
        c.disturbances.dropped(),
        DroppedSamples { stepped: 0, counted: 2, watched: 0, in_counters: 0 }
    );
    assert_eq!(c.counts.tallies()[0].samples, 2, "one of another thread, one after");
    let batch = c.take();
    let Evidence::BreakpointCounts(counts) = &batch.evidence[0] else { panic!("no counts") };
    let window: Vec<_> = counts.iter().map(|(p, n)| (p.offset.0, *n)).collect();
    assert_eq!(window, [(0x10, 0), (0x12, 40)], "what no image holds is left out");
}

#[test]
fn kernel_threads_are_named_without_their_suffix() {
    let mut c = collector();
    let kthreadd = c.attribution.apps.uncounted("kthreadd");
    c.attribution.processes.discover(Pid(2), dwell_attribution::Process::new(kthreadd, true));
    c.apply(0, side(SideBandRecord::Fork { pid: Pid(30), parent_pid: Pid(2) }));
    c.apply(1, side(SideBandRecord::Comm { pid: Pid(30), tid: Tid(30), comm: "kworker/1:2-events".into() }));
    c.apply(2, sample(Mode::Kernel, Pid(30), KERNEL));
    assert_eq!(count_lines(&c.take()), ["cpu-clock kernel+0 kworker#0 1"]);
}

#[test]
fn unused_targets_are_swept() {
    let mut c = collector();
    c.discover([Pid(1)]);
    for i in 0..TARGETS_MAX as u64 + 10 {
        let target = file(&format!("/tmp/{i}"));
        c.apply(
            i,
            side(SideBandRecord::Map {
                pid: Pid(1),
                start: VirtualAddress(0x10_0000),
                length: 0x1000,
                file_offset: 0,
                target,
            }),
        );
    }
    c.apply(0, sample(Mode::User, Pid(1), 0x10_0001));
    let before = count_lines(&c.take());
    c.reap(0);
    assert_eq!(c.attribution.images.targets(), 2);
    c.apply(0, sample(Mode::User, Pid(1), 0x10_0001));
    assert_eq!(count_lines(&c.take()), before);
}

#[test]
fn missed_exits_are_noticed_after_a_loss() {
    let mut c = collector();
    c.discover([Pid(1)]);
    c.apply(0, side(SideBandRecord::Fork { pid: Pid(9), parent_pid: Pid(1) }));
    c.refresh([Pid(1)], 100);
    c.apply(1, sample(Mode::User, Pid(9), 0x1004)); // Late records still find the process.
    assert_eq!(count_lines(&c.take()), ["cpu-clock /bin/init+4 init#1 1"]);
    c.reap(u64::MAX);
    assert_eq!(c.tracked().0, 1, "9 is gone");
}

/// Seeded generator of random numbers.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Pages of a process: page number → file and offset.
type Pages = BTreeMap<u64, (String, u64)>;

/// The true history of the simulated machine.
#[derive(Default)]
struct Truth {
    /// Pages of each live process (page → file and offset), and its application.
    processes: BTreeMap<Pid, (Pages, String)>,
    executions: BTreeMap<String, u32>,
    counts: BTreeMap<String, u64>,
    unknown: u64,
    samples: u64,
    lost: u64,
}

const CPUS: u64 = 4;
const PAGE: u64 = 0x1000;

impl Truth {
    /// Makes one event happen, and returns its records.
    fn step(&mut self, random: &mut Random) -> Vec<OwnedRecord> {
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        let pid = pids[random.below(pids.len() as u64) as usize];
        match random.below(20) {
            0 => self.fork(pid, Pid(2 + random.below(12) as u32)),
            1 => self.exec(pid, random.below(4)),
            2 => self.map(pid, random),
            3 if pid != Pid(1) => {
                self.processes.remove(&pid);
                vec![side(SideBandRecord::Exit { pid })]
            }
            4 => {
                self.lost += 3;
                vec![side(SideBandRecord::Lost {
                    event: Some(EventIndex(0)),
                    records: 3,
                    cause: crate::loss::LossCause::RingFull,
                })]
            }
            _ => vec![self.sample(pid, random)],
        }
    }

    fn fork(&mut self, parent_pid: Pid, pid: Pid) -> Vec<OwnedRecord> {
        if self.processes.contains_key(&pid) {
            return Vec::new();
        }
        let child = self.processes[&parent_pid].clone();
        self.processes.insert(Pid(pid.0), child);
        vec![side(SideBandRecord::Fork { pid, parent_pid })]
    }

    fn exec(&mut self, pid: Pid, program: u64) -> Vec<OwnedRecord> {
        let name = format!("prog{program}");
        let instance = self.executions.entry(name.clone()).or_default();
        *instance += 1;
        let path = format!("/bin/{name}");
        let pages = (0..4).map(|i| (1 + i, (path.clone(), i * PAGE))).collect();
        self.processes.insert(Pid(pid.0), (pages, format!("{name}#{instance}")));
        let (start, length) = (VirtualAddress(PAGE), 4 * PAGE);
        let map = SideBandRecord::Map { pid, start, length, file_offset: 0, target: file(&path) };
        vec![side(SideBandRecord::Exec { pid, comm: "comm".into() }), side(map)]
    }

    fn map(&mut self, pid: Pid, random: &mut Random) -> Vec<OwnedRecord> {
        let (first, count) = (1 + random.below(12), 1 + random.below(4));
        let (path, offset) = (format!("/lib/{}", random.below(5)), PAGE * random.below(3));
        let (pages, _) = self.processes.get_mut(&pid).unwrap();
        (0..count).for_each(|i| drop(pages.insert(first + i, (path.clone(), offset + i * PAGE))));
        let (start, length) = (VirtualAddress(first * PAGE), count * PAGE);
        vec![side(SideBandRecord::Map { pid, start, length, file_offset: offset, target: file(&path) })]
    }

    fn sample(&mut self, pid: Pid, random: &mut Random) -> OwnedRecord {
        let (pages, app) = &self.processes[&pid];
        let (page, within) = (1 + random.below(16), random.below(4));
        let pc = page * PAGE + within;
        let place = match pages.get(&page) {
            Some((path, offset)) => format!("{path}+{:x}", offset + within),
            None => format!("unknown+{pc:x}"),
        };
        self.samples += 1;
        self.unknown += u64::from(!pages.contains_key(&page));
        *self.counts.entry(format!("cpu-clock {place} {app}")).or_default() += 1;
        sample(Mode::User, pid, pc)
    }
}

/// Replays the records. Each CPU's records become visible in bursts, at most the merge window behind those of others.
fn replay(streams: Vec<Vec<(u64, OwnedRecord)>>, end: u64, random: &mut Random) -> Collector<FakeHost> {
    const WINDOW: u64 = 50;
    let mut c = collector();
    c.discover([Pid(1)]);
    let mut merger = Merger::default();
    let mut streams: Vec<_> = streams.into_iter().map(|s| s.into_iter().peekable()).collect();
    let mut now = 0;
    while now < end {
        now += 1 + random.below(200);
        for stream in &mut streams {
            let visible = now.saturating_sub(random.below(WINDOW));
            while let Some((time, item)) = stream.next_if(|(time, _)| *time < visible) {
                merger.push(time, item);
            }
        }
        merger.take_until(now.saturating_sub(WINDOW), |t| c.apply(t.time_ns, t.item));
    }
    streams.into_iter().flatten().for_each(|(time, item)| merger.push(time, item));
    merger.take_until(u64::MAX, |t| c.apply(t.time_ns, t.item));
    assert_eq!(merger.late, 0);
    c
}

#[test]
fn samples_in_are_samples_stored_plus_losses() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut truth = Truth::default();
        let pages = BTreeMap::from([(1, ("/bin/init".to_owned(), 0))]);
        truth.processes.insert(Pid(1), (pages, "init#1".to_owned()));
        let mut streams: Vec<Vec<(u64, OwnedRecord)>> = (0..CPUS).map(|_| Vec::new()).collect();
        let mut now = 0;
        for _ in 0..3000 {
            let cpu = random.below(CPUS) as usize;
            for item in truth.step(&mut random) {
                now += 1;
                streams[cpu].push((now, item));
            }
        }
        let mut c = replay(streams, now, &mut random);
        let Tally { samples, lost, unknown, .. } = c.counts.tallies()[0];
        assert_eq!((samples, lost, unknown), (truth.samples, truth.lost, truth.unknown));
        let batch = c.take();
        assert_eq!(batch.rows.counts().values().sum::<u64>(), truth.samples);
        let expected: Vec<String> = truth.counts.iter().map(|(key, n)| format!("{key} {n}")).collect();
        assert_eq!(count_lines(&batch), expected);
    }
}

#[test]
fn dimensions_have_their_values_at_the_samples_time() {
    let mut c = collector();
    c.keep_dimensions(Dimension::ALL.into_iter().collect());
    c.discover([Pid(1)]);
    let on = |pid, tid, cpu| {
        OwnedRecord::Sample(
            EventIndex(0),
            Sample { mode: Mode::Kernel, pc: VirtualAddress(KERNEL + 4), pid, tid, cpu, registers: None },
        )
    };
    let items = [
        on(Pid(1), Tid(1), Some(CpuId(0))),
        on(Pid(1), Tid(1), Some(CpuId(0))),
        side(SideBandRecord::BeginThread { tid: Tid(7), parent_pid: Pid(1), parent_tid: Tid(1) }),
        on(Pid(1), Tid(7), Some(CpuId(1))), // it still has the name of its creator
        side(SideBandRecord::Comm { pid: Pid(1), tid: Tid(7), comm: "io".into() }),
        on(Pid(1), Tid(7), Some(CpuId(1))),
        side(SideBandRecord::BeginThread { tid: Tid(9), parent_pid: Pid(1), parent_tid: Tid(7) }),
        side(SideBandRecord::Fork { pid: Pid(9), parent_pid: Pid(1) }),
        on(Pid(9), Tid(9), Some(CpuId(1))), // not in /proc any more: name and group of its parent
        side(SideBandRecord::Exec { pid: Pid(9), comm: "cc1".into() }),
        on(Pid(9), Tid(9), Some(CpuId(1))),
        side(SideBandRecord::EndThread { tid: Tid(9) }),
        on(Pid(9), Tid(9), Some(CpuId(1))), // exited, so no thread has its number
        on(Pid(0), Tid(0), Some(CpuId(1))),
    ];
    (0..).zip(items).for_each(|(time, item)| c.apply(time, item));
    let batch = c.take();
    let line = |(k, n): (&SampleKey, &u64)| {
        let d = k.dimensions.as_ref().unwrap();
        let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().unwrap().to_owned();
        format!("{}@{} {} {n}", text(&d.thread), d.cpu.unwrap(), text(&d.cgroup))
    };
    let mut lines: Vec<String> = batch.rows.counts().iter().map(line).collect();
    lines.sort();
    let expected = [
        "@1  1", // the idle task
        "@1 /init.scope 1",
        "cc1@1 /init.scope 1",
        "io@1 /init.scope 2", // the thread and its child, which is of the same execution
        "thread1@0 /init.scope 2",
        "thread1@1 /init.scope 1",
    ];
    assert_eq!(lines, expected);
    c.keep_dimensions(DimensionSet::NONE);
    c.apply(99, on(Pid(1), Tid(1), Some(CpuId(0))));
    assert!(c.take().rows.counts().keys().all(|key| key.dimensions.is_none()), "they cost nothing when off");
}
