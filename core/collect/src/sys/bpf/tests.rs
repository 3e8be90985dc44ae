//! Compares the program with its source, its structures with those of C, and its entries with those of the table compiled
//! for the host.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun};

use super::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf")
}

/// Loads tables for two CPUs, or returns `None` where this machine does not permit that.
pub fn tables(test: &str, sizes: Sizes) -> Option<BpfTables> {
    match BpfTables::load_with_types(
        &[CpuId(0), CpuId(1)],
        sizes,
        RegisterSampling::default(),
        2 * NOTICES_BYTES,
    ) {
        Ok(tables) => Some(tables),
        Err(error) => {
            eprintln!("SKIPPED {test}: BPF: {error}");
            None
        }
    }
}

#[test]
fn the_objects_match_their_source() {
    let has = |tool: &str| Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !["clang-14", "llvm-strip-14", "llvm-objcopy-14"].into_iter().all(has) {
        eprintln!("SKIPPED the_objects_match_their_source: no clang-14 (apt-get install clang-14 llvm-14)");
        return;
    }
    let built = tempfile::tempdir().unwrap();
    let status = Command::new(folder().join("build.sh")).arg(built.path()).status().unwrap();
    assert!(status.success());
    for name in ["collect.x86_64.o", "collect.aarch64.o"] {
        let program = |object: &Path| {
            let mut objcopy = Command::new("llvm-objcopy-14");
            let sections = [".text", "perf_event", "raw_tp", "tp_btf/sched_process_exec", ".rodata"];
            let dumped = sections.map(|section| built.path().join(section.replace('/', "-") + "-section"));
            for (section, file) in sections.iter().zip(&dumped) {
                objcopy.arg(format!("--dump-section={section}={}", file.display()));
            }
            assert!(objcopy.arg(object).arg(built.path().join("copy")).status().unwrap().success());
            dumped.map(|file| fs::read(file).unwrap())
        };
        assert!(
            program(&folder().join(name)) == program(&built.path().join(name)),
            "{name} is stale: run core/collect/bpf/build.sh"
        );
    }
}

/// Each line of C's answer contains a name and its size or offset.
#[test]
fn the_structures_match_the_c_headers() {
    let size = |name: &str, bytes: usize| (format!("sizeof(struct {name})"), bytes);
    let at = |name: &str, field: &str, bytes: usize| (format!("offsetof(struct {name}, {field})"), bytes);
    let expected = [
        size("dwell_control", size_of::<Control>()),
        at("dwell_control", "apart_count", offset_of!(Control, apart_count)),
        at("dwell_control", "apart", offset_of!(Control, apart)),
        at("dwell_control", "entered_events", offset_of!(Control, entered_events)),
        at("dwell_control", "registers_every", offset_of!(Control, registers_every)),
        at("dwell_control", "registers_events", offset_of!(Control, registers_events)),
        size("dwell_spill", size_of::<Spill>()),
        at("dwell_spill", "used", offset_of!(Spill, used)),
        at("dwell_spill", "state", offset_of!(Spill, state)),
        size("dwell_head", size_of::<Head>()),
        at("dwell_head", "slot", offset_of!(Head, slot)),
        at("dwell_head", "until_registers", offset_of!(Head, until_registers)),
        at("dwell_head", "waiting_count", offset_of!(Head, waiting_count)),
        at("dwell_head", "latest", offset_of!(Head, latest)),
        at("dwell_head", "found", offset_of!(Head, found)),
        at("dwell_head", "samples", offset_of!(Head, samples)),
        at("dwell_head", "lost", offset_of!(Head, lost)),
        at("dwell_head", "idle", offset_of!(Head, idle)),
        at("dwell_head", "registers_lost", offset_of!(Head, registers_lost)),
        at("dwell_head", "spill", offset_of!(Head, spill)),
        at("dwell_head", "executions_lost", offset_of!(Head, executions_lost)),
        at("dwell_head", "entered_lost", offset_of!(Head, entered_lost)),
        at("dwell_head", "waiting", offset_of!(Head, waiting)),
        size("dwell_entry", size_of::<RawEntry>()),
        at("dwell_entry", "place", offset_of!(RawEntry, place)),
        size("dwell_bucket", size_of::<Bucket>()),
        size("dwell_exec_notice", size_of::<abi::ExecNotice>()),
        at("dwell_exec_notice", "pid", offset_of!(abi::ExecNotice, pid)),
        at("dwell_exec_notice", "tag", offset_of!(abi::ExecNotice, tag)),
        size("dwell_registers_notice", size_of::<abi::RegistersNotice>()),
        at("dwell_registers_notice", "time_ns", offset_of!(abi::RegistersNotice, time_ns)),
        at("dwell_registers_notice", "pid", offset_of!(abi::RegistersNotice, pid)),
        at("dwell_registers_notice", "registers", offset_of!(abi::RegistersNotice, registers)),
    ];
    let prints: Vec<String> =
        expected.iter().map(|(what, _)| format!("printf(\"{what} %zu\\n\", {what});")).collect();
    let source = format!(
        "#include <stdio.h>\n#include <stddef.h>\n#include \"../../../kmod/sample_table.h\"\n\
         #include \"collect.bpf.h\"\nint main(void) {{ {} return 0; }}\n",
        prints.join("\n")
    );
    let built = tempfile::tempdir().unwrap();
    fs::write(built.path().join("layout.c"), source).unwrap();
    let layout = compile(built.path(), &built.path().join("layout.c"), &[]);
    let output = Command::new(layout).output().unwrap();
    let lines: Vec<String> = expected.iter().map(|(what, bytes)| format!("{what} {bytes}\n")).collect();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), lines.concat());
}

fn compile(built: &Path, source: &Path, more: &[&Path]) -> PathBuf {
    let program = built.join("program");
    let kmod = folder().join("../../../kmod");
    let status = Command::new("gcc")
        .args(["-O2", "-Wall", "-Werror", "-I"])
        .arg(folder())
        .arg("-I")
        .arg(&kmod)
        .arg(source)
        .args(more)
        .arg("-o")
        .arg(&program)
        .status()
        .unwrap();
    assert!(status.success());
    program
}

/// A recorded sample: mirror of `struct dwell_trace_record`.
#[derive(Clone, Copy)]
pub struct Recorded {
    pub pc: u64,
    pub start_code: u64,
    pub end_code: u64,
    pub inode: u64,
    pub pid: u32,
    pub event: u8,
    device: u32,
    generation: u32,
    flags: u8,
    cpu: u16,
}

const TRACE_KERNEL: u8 = 1;
const TRACE_NO_EXECUTABLE: u8 = 4;
const TRACE_APART: u8 = 8;

impl Recorded {
    pub fn in_kernel(&self) -> bool {
        self.flags & TRACE_KERNEL != 0
    }

    pub fn has_executable(&self) -> bool {
        self.flags & TRACE_NO_EXECUTABLE == 0
    }

    fn bytes(&self) -> Vec<u8> {
        let words = [self.pc, self.start_code, self.end_code, self.inode];
        let halves = [self.device, self.generation, self.pid];
        let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        bytes.extend(halves.iter().flat_map(|w| w.to_ne_bytes()));
        bytes.extend([self.event, self.flags]);
        bytes.extend(self.cpu.to_ne_bytes());
        bytes
    }

    /// Returns the arguments of a replay: mirror of `struct dwell_replay`.
    fn arguments(&self, is_last: bool) -> [u64; 12] {
        let flags = u64::from(self.flags & TRACE_KERNEL != 0) | u64::from(self.flags & TRACE_APART != 0) << 1;
        [
            self.pc,
            self.start_code,
            self.end_code,
            self.inode,
            self.device.into(),
            self.generation.into(),
            self.has_executable().into(),
            self.pid.into(),
            self.event.into(),
            flags,
            self.cpu.into(),
            is_last.into(),
        ]
    }
}

/// Generates a trace: processes of a few executables in loops and at random, libraries, the kernel, kernel threads.
pub fn trace(samples: usize) -> Vec<Recorded> {
    let mut state = 0x00d1_ce5e_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let one = |_| {
        let pid = 1000 + random(40) as u32;
        let (executable, start_code) =
            (u64::from(pid % 5), 0x5555_0000_1000 + u64::from(pid % 7) * 0x1000_0000);
        let loops = random(4) > 0;
        let offset = if loops { random(20) * 4 } else { random(1 << 16) };
        let base = Recorded {
            pc: start_code + offset,
            start_code,
            end_code: start_code + 0x10000,
            inode: 77_000 + executable,
            device: 0x0080_0001,
            generation: executable as u32,
            pid,
            event: random(3) as u8,
            flags: 0,
            cpu: random(2) as u16,
        };
        let kernel = 0xffff_ffff_8100_0000 + offset % 0x1000;
        match random(10) {
            0..5 => base,
            5 => Recorded { flags: TRACE_APART, ..base },
            6 => Recorded { pc: 0x7fff_f000_0000 + random(50), ..base },
            7 | 8 => Recorded { pc: kernel, flags: TRACE_KERNEL, ..base },
            _ => {
                let flags = TRACE_KERNEL | TRACE_NO_EXECUTABLE;
                Recorded { pc: kernel, flags, pid: 2 + pid % 3, start_code: 0, end_code: 0, ..base }
            }
        }
    };
    let mut all: Vec<Recorded> = (0..samples).map(one).collect();
    // One place is sampled more often than a count can hold.
    let in_text = |r: &&Recorded| r.flags == 0 && (r.start_code..r.end_code).contains(&r.pc);
    let hot = *all.iter().find(in_text).expect("half of them are");
    all.extend(std::iter::repeat_n(hot, 9000));
    all
}

/// Reads the trace of a build of zstd, recorded by `npm run bench:ways -- --out core/collect/src/sys/bpf/build.trace`.
pub fn recorded() -> Vec<Recorded> {
    let word = |b: &[u8], at: usize| u64::from_le_bytes(b[at..at + 8].try_into().unwrap());
    let half = |b: &[u8], at: usize| u32::from_le_bytes(b[at..at + 4].try_into().unwrap());
    let one = |b: &[u8]| Recorded {
        pc: word(b, 0),
        start_code: word(b, 8),
        end_code: word(b, 16),
        inode: word(b, 24),
        device: half(b, 32),
        generation: half(b, 36),
        pid: half(b, 40),
        event: b[44],
        flags: b[45],
        cpu: u16::from_le_bytes([b[46], b[47]]),
    };
    include_bytes!("build.trace").chunks_exact(48).map(one).collect()
}

/// Returns what the host's table contains at the end, in its order, and each CPU's samples and losses.
pub fn on_host(trace: &[Recorded], sizes: Sizes) -> Vec<(u64, u64)> {
    let built = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sys/bpf/replay_host.c");
    let program = compile(built.path(), &here, &[&folder().join("../../../kmod/sample_table.c")]);
    let mut child = Command::new(program)
        .args([sizes.bucket_bits.to_string(), sizes.capacity.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes: Vec<u8> = trace.iter().flat_map(Recorded::bytes).collect();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let word = |b: &[u8]| u64::from_ne_bytes(b.try_into().unwrap());
    output.stdout.chunks(16).map(|pair| (word(&pair[..8]), word(&pair[8..]))).collect()
}

pub fn in_bpf(tables: &mut BpfTables, trace: &[Recorded]) {
    let program: &mut RawTracePoint = here(tables).program_mut("replay").unwrap().try_into().unwrap();
    past_signals(|| program.load()).unwrap();
    let last: Vec<Option<usize>> = (0..2).map(|cpu| trace.iter().rposition(|s| s.cpu == cpu)).collect();
    for (at, sample) in trace.iter().enumerate() {
        let args = sample.arguments(last.contains(&Some(at)));
        let run = RawTracePointRunOptions { args, cpu: None };
        program.test_run(run).unwrap();
    }
}

/// Returns the same as [`on_host`], from the BPF tables.
pub fn left_in_bpf(tables: &BpfTables) -> Vec<(u64, u64)> {
    let side = tables.side();
    let (capacity, bits) = (tables.sizes.capacity as usize, tables.sizes.bucket_bits);
    let mut left = Vec::new();
    for slot in 0..2 {
        for buffer in 0..2 {
            let first = ((slot * 2 + side as usize) * 2 + buffer) * capacity;
            let used = tables.used(slot, side, buffer).load(Ordering::Relaxed) as usize;
            left.extend((first..first + used).map(|at| tables.overflow.read(at)));
        }
        let buckets = tables.buckets(slot, side).unwrap();
        let entries = (0..1 << bits).flat_map(|at| buckets.read(at).entries);
        left.extend(entries.filter(|e| Entry::from_words(e.words()).is_some()));
        let head = tables.heads.read(head_index(slot as u32, side));
        left.push(RawEntry { key: head.samples.iter().sum(), place: head.lost.iter().sum() });
    }
    left.into_iter().map(|e| (e.key, e.place)).collect()
}

/// Compares entry by entry, in the same order: with room for all, and with so little that entries are lost.
#[test]
fn a_trace_leaves_the_same_entries_in_bpf_and_on_the_host() {
    let trace = trace(12_000);
    for sizes in [Sizes { bucket_bits: 10, capacity: 8192 }, Sizes { bucket_bits: 4, capacity: 100 }] {
        let Some(mut tables) = tables("a_trace_leaves_the_same_entries_in_bpf_and_on_the_host", sizes) else {
            return;
        };
        in_bpf(&mut tables, &trace);
        let (bpf, host) = (left_in_bpf(&tables), on_host(&trace, sizes));
        assert!(bpf == host, "{sizes:?}: {} and {} entries", bpf.len(), host.len());
        let lost: u64 = tables.tallies().map(|(_, t)| t.lost.iter().sum::<u64>()).sum();
        assert_eq!(lost > 0, sizes.bucket_bits == 4, "{lost}");
        conserves(&mut tables, trace.len() as u64, lost);
    }
}

/// Checks that samples in = samples taken + samples lost, in whichever way they are taken.
fn conserves(tables: &mut BpfTables, samples: u64, lost: u64) {
    let mut taken = 0;
    let mut add = |entries: &[Entry]| taken += entries.iter().map(|e| e.count).sum::<u64>();
    let mut full = Vec::new();
    tables.take_full(&mut full);
    full.iter().for_each(|buffer| buffer.hand_out(&mut add));
    tables.turn();
    grace_period();
    tables.take_idle_side(&mut add);
    assert_eq!(taken + lost, samples);
    let mut rest = 0;
    tables.turn();
    tables.take_idle_side(&mut |entries| rest += entries.len());
    assert_eq!(rest, 0, "both sides are empty");
}

#[test]
fn executions_without_room_are_counted_as_lost() {
    let test = "executions_without_room_are_counted_as_lost";
    let (sizes, room_bytes) = (Sizes { bucket_bits: 4, capacity: 16 }, rustix::param::page_size());
    let made = BpfTables::load_with_types(
        &[CpuId(0), CpuId(1)],
        sizes,
        RegisterSampling::default(),
        room_bytes as u32,
    );
    let reporting = made.and_then(|mut tables| tables.report_executions().map(|()| tables));
    let mut tables = match reporting {
        Ok(tables) => tables,
        Err(error) => return eprintln!("SKIPPED {test}: BPF: {error}"),
    };
    assert_eq!(tables.executions_lost(), 0);
    // Each notice has a head of 8 bytes.
    let executions = room_bytes / (size_of::<abi::ExecNotice>() + 8) + 50;
    for _ in 0..executions {
        assert!(Command::new("true").status().unwrap().success());
    }
    let (mut notices, lost) = (0, tables.executions_lost());
    tables.take_notices(&mut |_| notices += 1);
    assert!(lost >= 50 && notices + lost as usize >= executions, "{notices} and {lost} of {executions}");
}

/// Returns the program of tables that this process loaded.
fn here(tables: &mut BpfTables) -> &mut Ebpf {
    match &mut tables.program {
        Program::Here(program) => program,
        Program::InChild { .. } => panic!("it was loaded apart"),
    }
}
