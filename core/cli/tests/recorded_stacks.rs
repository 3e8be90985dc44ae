//! Branch stacks that we record and those of a perf.data file are one evidence. No machine here records them, so this test
//! writes what a ring would hold, of ways through its own code: the same bytes go through the collector and, behind a
//! file's head, through the import.

use std::fs;

use dwell_collect::fuzzing;
use dwell_exchange::{ImportFile, import_perf_data};
use dwell_profile::{ControlTransfer, Database};
use jiff::Timestamp;

const EVENT_ID: u64 = 5;
/// IDENTIFIER | IP | TID | TIME | BRANCH_STACK.
const SAMPLE_TYPE: u64 = 1 << 16 | 1 | 2 | 4 | 1 << 11;
const STACKS: u64 = 2000;
/// Number of branches that LBR keeps.
const STACK_MAX: u64 = 32;
/// Straight-line code between two branches: so many pieces, of so many bytes.
const RUNS: u64 = 100;
const RUN_BYTES_MAX: u64 = 200;

/// The mapping that this test's code is in.
struct Mapped {
    start: u64,
    length: u64,
    offset: u64,
}

impl Mapped {
    fn of_own_code(path: &str) -> Self {
        let own = fuzzing::branch_stacks as fn(_, _) -> _ as usize as u64;
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let parse = |line: &str| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let offset = number(words.nth(1)?);
            let (start, end) = (number(start), number(end));
            let is_own = (start..end).contains(&own) && line.ends_with(path);
            is_own.then_some(Mapped { start, length: end - start, offset })
        };
        maps.lines().find_map(parse).unwrap()
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// A record as the kernel writes it, its body in words.
fn record(kind: u32, misc: u16, body: &[u64], text: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = body.iter().flat_map(|word| word.to_ne_bytes()).collect();
    if !text.is_empty() {
        bytes.extend(text.as_bytes());
        bytes.resize((bytes.len() + 1).next_multiple_of(8), 0);
    }
    let size = (8 + bytes.len()) as u16;
    [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), &bytes].concat()
}

fn own_pid_and_tid() -> u64 {
    u64::from(std::process::id()) | u64::from(std::process::id()) << 32
}

/// Samples as a ring has them: control runs through some code, branches to other code, and so on.
fn ring(mapped: &Mapped) -> Vec<u8> {
    let mut random = Random(0x5eed_1997);
    let runs: Vec<(u64, u64)> = (0..RUNS)
        .map(|_| {
            let start = mapped.start + random.below(mapped.length - RUN_BYTES_MAX);
            (start, start + random.below(RUN_BYTES_MAX))
        })
        .collect();
    let mut sample = |time_ns: u64| {
        let kept = random.below(STACK_MAX + 1);
        let mut words = vec![EVENT_ID, mapped.start, own_pid_and_tid(), time_ns, kept];
        let mut later = runs[0].0;
        for _ in 0..kept {
            let (start, end) = runs[random.below(RUNS) as usize];
            // Some branches come from an address outside of the image, as when the kernel returns; some were not
            // executed.
            let (from, flags) = match random.below(16) {
                0 => (u64::MAX - 9, 0),
                1 => (end, 1 << 24),
                _ => (end, 0),
            };
            words.extend([from, later, flags]);
            later = start;
        }
        record(9, 2, &words, "")
    };
    (0..STACKS).flat_map(|n| sample(1000 + n)).collect()
}

/// A stream of perf's: an event, this process and its mapping, then the ring.
fn perf_data(path: &str, mapped: &Mapped, ring: &[u8]) -> Vec<u8> {
    // The words are PERF_TYPE_HARDWARE with the size of the structure, PERF_COUNT_HW_BRANCH_INSTRUCTIONS and
    // `sample_id_all`.
    let mut attribute = vec![112_u64 << 32, 4, 1_000_001, SAMPLE_TYPE, 0, 1 << 18];
    attribute.resize(14, 0);
    attribute.push(EVENT_ID);
    // With `sample_id_all` every record ends with these words.
    let trailer: Vec<u8> = [own_pid_and_tid(), 1, EVENT_ID].into_iter().flat_map(u64::to_ne_bytes).collect();
    let with_trailer = |mut record: Vec<u8>| {
        record.extend(&trailer);
        let size = record.len() as u16;
        record[6..8].copy_from_slice(&size.to_ne_bytes());
        record
    };
    let comm = record(3, 0, &[own_pid_and_tid()], "test");
    let Mapped { start, length, offset } = *mapped;
    let map = record(10, 2, &[own_pid_and_tid(), start, length, offset, 0, 0, 0, 5 | 2 << 32], path);
    let head: Vec<u8> = b"PERFILE2".iter().copied().chain(16_u64.to_ne_bytes()).collect();
    [head, record(64, 0, &attribute, ""), with_trailer(comm), with_trailer(map), ring.to_vec()].concat()
}

fn cpu_time_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

#[test]
fn recorded_and_imported_stacks_give_equal_evidence() {
    let path = std::env::current_exe().unwrap().canonicalize().unwrap();
    let path = path.to_str().unwrap();
    let mapped = Mapped::of_own_code(path);
    let ring = ring(&mapped);

    let collected = |ring: &[u8]| {
        let began_us = cpu_time_us();
        (fuzzing::branch_stacks(dwell_profile::Pid(std::process::id()), ring), cpu_time_us() - began_us)
    };
    let (recorded, once_us) = collected(&ring);
    let (twice, twice_us) = collected(&ring.repeat(2));
    // The difference omits fixed costs: reading this process's mappings, the image's build ID and its code.
    println!("{:.1} µs of CPU time a stack", (twice_us - once_us) / STACKS as f64);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    fs::write(&file, perf_data(path, &mapped, &ring)).unwrap();
    let database = Database::open(folder.path().join("db")).unwrap();
    let imported =
        import_perf_data(&database, &ImportFile { path: file, ..ImportFile::default() }, Timestamp::now());
    let imported = imported.unwrap();
    assert_eq!(imported.samples, STACKS, "{:?}", imported.notes);
    let profile = database.read(&imported.epoch).unwrap();

    let ([recorded], [imported]) = (&recorded[..], &profile.evidence[..]) else {
        panic!("{} and {} pieces of evidence", recorded.len(), profile.evidence.len())
    };
    assert_eq!(recorded, imported);
    let doubled = |t: &ControlTransfer| ControlTransfer { count: 2 * t.count, ..t.clone() };
    assert!(twice[0].transfers().iter().cloned().eq(recorded.transfers().iter().map(doubled)));
    let near = |t: &&ControlTransfer| (1..16).contains(&t.to.offset.0.wrapping_sub(t.from.offset.0));
    let passed = recorded.transfers().iter().filter(near).count();
    assert!(passed > 100, "{passed} branches of {} were passed", recorded.transfers().len());
}
