//! A simulated week of a time-shared machine through the real writer: what it takes on disk.
//!
//! Enters: nothing (seeded); `--daily`: an epoch for each day, as the daemon has them unless told otherwise; `--days N`. Leaves:
//! a table, beside the 13 MB that DCPI's week of 480 images took (SOSP 1997, section 5.3). Applications start programs that
//! spend their time in their own code, in libraries that many share, and in the kernel; within an image samples fall on
//! instructions by power laws. All of that was fitted to a record of a busy machine (see `COMPILERS`), whose numbers of rows the
//! model has within an eighth: 108,066 of 304,707 samples, 302,641 of 1,219,719, 550,411 of 3,054,502 (the model: 0.12, 0.32, 0.59 million).
//!
//! Every simulated hour is one append, compaction comes every 16 appends, as in the daemon. A daemon appends more often;
//! compaction makes the same of it, and simulating that takes most of an hour.

use std::{path::Path, sync::Arc, time::Instant};

use dwell_profile::*;
use rustc_hash::FxHashMap;

const IMAGES: usize = 480;
const PROGRAMS: usize = 150;
const APPENDS_PER_COMPACTION: u64 = 16;
/// An append's: of an hour in which all CPUs together are busy for so long that it is 400 a second.
const SAMPLES_PER_APPEND: u64 = 400 * 3600;
const APPENDS_PER_DAY: u64 = 24;
/// Share of samples whose registers tell a branch's direction: BPF gives those of 250 samples a second and 1,000 Hz, and half
/// of them tell one.
const DIRECTIONS: f64 = 0.066;
/// Shares of samples in the kernel and in libraries that many programs use, as recorded.
const IN_KERNEL: f64 = 0.106;
const IN_LIBRARIES: f64 = 0.05;
const KERNEL_SYMBOLS: usize = 3000;
const BAR_BYTES: u64 = 13_000_000;

/// How samples spread over an image's instructions: rank ~ scale × (u^(−1/exponent) − 1), limited by its size.
#[derive(Clone, Copy)]
struct Shape {
    exponent: f64,
    scale: f64,
}

/// Fitted to how many instructions all, a quarter, a sixteenth and a sixty-fourth of an image's samples met (within 7%), in
/// ten minutes of six people's builds and tests at 2,500 Hz on two CPUs: 2,976,167 samples in 87 images and 75 applications,
/// on 2026-11-22. Images of fewer than 14,000 samples tell nothing of their tails.
const COMPILERS: [Shape; 3] = [
    Shape { exponent: 0.5, scale: 1259.0 }, // librustc_driver: 169,674 instructions of 984,476 samples
    Shape { exponent: 0.6, scale: 3981.0 }, // libLLVM: 165,633 of 755,342
    Shape { exponent: 0.8, scale: 3981.0 }, // cc1: 100,374 of 533,707
];
/// Four of 87 images were such, among them those of the two hottest programs.
const IMAGES_PER_COMPILER: usize = 22;
const KERNEL: Shape = Shape { exponent: 0.7, scale: 63.0 }; // 14,696 of 315,079
const OTHERS: [Shape; 6] = [
    Shape { exponent: 1.5, scale: 158.0 }, // libc: 3,596 of 113,632
    Shape { exponent: 0.9, scale: 40.0 },  // rustc's own, an allocator: 4,036 of 96,468
    Shape { exponent: 0.6, scale: 100.0 }, // dwell-accuracy: 8,512 of 59,349
    Shape { exponent: 0.5, scale: 10.0 },  // as: 2,689 of 22,259
    Shape { exponent: 0.6, scale: 25.0 },  // libpython: 2,604 of 19,873
    Shape { exponent: 1.0, scale: 40.0 },  // libbfd: 1,293 of 14,457
];

fn is_compiler(at: usize) -> bool {
    (1..=PROGRAMS).contains(&at) && (at % IMAGES_PER_COMPILER == 1 || at == 2)
}

fn shape(at: usize) -> Shape {
    match at {
        0 => KERNEL,
        2 => COMPILERS[2],
        _ if is_compiler(at) => COMPILERS[at / IMAGES_PER_COMPILER % COMPILERS.len()],
        _ => OTHERS[at % OTHERS.len()],
    }
}

struct Random(u64);

impl Random {
    /// Returns a random number in [0, 1).
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    /// One of n, the first by far the likeliest: Zipf with exponent 2, as applications were recorded.
    fn steep_zipf(&mut self, n: usize) -> usize {
        let reach = 1.0 - 1.0 / (n as f64 + 1.0);
        (1.0 / (1.0 - self.unit() * reach) - 1.0) as usize % n
    }

    /// One of n, the first the likeliest: Zipf with exponent 1.
    fn zipf(&mut self, n: usize) -> usize {
        (((n as f64 + 1.0).powf(self.unit())) - 1.0) as usize % n
    }
}

struct Image {
    id: ImageId,
    record: ImageRecord,
    instructions: u64,
    shape: Shape,
    /// Scatters ranks over the image, so that hot instructions do not lie side by side by themselves.
    stride: u64,
}

impl Image {
    fn new(random: &mut Random, at: usize) -> Self {
        let hex: String = (0..40).map(|_| char::from(b"0123456789abcdef"[random.below(16)])).collect();
        let (kind, path, id) = match at {
            0 => (ImageKind::Kernel, "[kernel.kallsyms]".to_owned(), ImageId::kernel()),
            _ if at <= PROGRAMS => (ImageKind::File, format!("/usr/bin/program-{at}"), ImageId::named(&hex)),
            _ => (ImageKind::File, format!("/usr/lib/x86_64-linux-gnu/lib{at}.so.6"), ImageId::named(&hex)),
        };
        // Text of 20 KB to 20 MB, most of them small; compilers are large.
        let shape = shape(at);
        let size = if is_compiler(at) || at == 0 { 1.0 } else { random.unit().powi(2) };
        let bytes = 20_000.0 * 1000_f64.powf(size);
        let symbols = if at == 0 { kernel_symbols(random) } else { Vec::new() };
        let record = ImageRecord {
            id: id.clone(),
            kind,
            path: path.into(),
            deleted: false,
            size_bytes: Some(bytes as u64 * 2),
            mtime_ns: Some(1_790_000_000_000_000_000 + at as i64),
            symbols,
            places: Default::default(),
            kernel_builds: Vec::new(),
        };
        let stride = 2 * random.below(1 << 20) as u64 + 1;
        Image { id, record, instructions: (bytes / 4.0) as u64, shape, stride }
    }

    /// The offset of an instruction: hot ones come in runs of some twenty, as loops and procedures do.
    fn sample(&self, random: &mut Random) -> u64 {
        let Shape { exponent, scale } = self.shape;
        let rank = scale * ((1.0 - random.unit()).powf(-1.0 / exponent) - 1.0);
        let rank = (rank as u64).min(self.instructions - 1);
        let (run, within) = (rank / 20, rank % 20);
        let runs = (self.instructions / 20).max(1);
        (run.wrapping_mul(self.stride) % runs * 20 + within) * 4
    }
}

fn kernel_symbols(random: &mut Random) -> Vec<ImageSymbol> {
    let word = |random: &mut Random| ["page", "lock", "inode", "sched", "walk", "alloc"][random.below(6)];
    let symbol = |at: usize, random: &mut Random| ImageSymbol {
        offset: ImageOffset(at as u64 * 700),
        size_bytes: 640,
        name: format!("{}_{}_{}_{at}", word(random), word(random), word(random)),
    };
    (0..KERNEL_SYMBOLS).map(|at| symbol(at, random)).collect()
}

fn epoch(day: u64) -> Epoch {
    let start = jiff::Timestamp::from_second(1_790_000_000 + (day * 86_400) as i64).expect("in range");
    let cpu = Cpu {
        arch: "x86_64".into(),
        vendor: "GenuineIntel".into(),
        model_name: "simulated".into(),
        family: 6,
        model: 1,
        stepping: 1,
        count: 2,
        clock_hz: Some(3e9),
        clock_hz_range: None,
        machine_model: None,
    };
    let host = Host { name: "week".into(), kernel_release: "6.1".into() };
    let (backend, scope) = ("bpf".to_owned(), Scope::System);
    Epoch {
        id: EpochId::new(start),
        name: None,
        start,
        end: None,
        host,
        cpu,
        backend,
        scope,
        events: Default::default(),
        notes: vec![],
        bursts: None,
        breakpoints: None,
        counts: None,
        call_stacks: None,
        collector: None,
    }
}

/// One append's samples: (image, offset, program, event) → count.
fn interval(random: &mut Random, images: &[Image], samples: u64) -> FxHashMap<(u32, u64, u32, u8), u64> {
    let mut counts = FxHashMap::default();
    for _ in 0..samples {
        let program = 1 + random.steep_zipf(PROGRAMS);
        let image = match random.unit() {
            u if u < IN_KERNEL => 0,
            u if u < 1.0 - IN_LIBRARIES => program,
            // A program uses about ten libraries: common ones, which most programs use, and a few of its own.
            _ => {
                PROGRAMS
                    + 1
                    + (random.zipf(10) + if random.unit() < 0.5 { program * 7 } else { 0 })
                        % (IMAGES - PROGRAMS - 1)
            }
        };
        let offset = images[image].sample(random);
        *counts.entry((image as u32, offset, program as u32, 0)).or_default() += 1;
        if random.unit() < DIRECTIONS {
            let event = 1 + u8::from(random.unit() < 0.4);
            *counts.entry((image as u32, offset, program as u32, event)).or_default() += 1;
        }
    }
    counts
}

fn store(
    epoch: &mut EpochWriter,
    images: &[Image],
    apps: &[Arc<str>],
    counts: FxHashMap<(u32, u64, u32, u8), u64>,
) {
    let events = [Event::CPU_CLOCK, Event::BRANCH_TAKEN, Event::BRANCH_NOT_TAKEN];
    let key = |(image, offset, program, event): (u32, u64, u32, u8)| SampleKey {
        image: images[image as usize].id.clone(),
        event: events[usize::from(event)].clone(),
        offset: ImageOffset(offset),
        app: apps[program as usize].clone(),
        instance: 0,
        dimensions: None,
    };
    let met: std::collections::BTreeSet<u32> = counts.keys().map(|key| key.0).collect();
    let records: Vec<ImageRecord> = met.iter().map(|image| images[*image as usize].record.clone()).collect();
    let counts: Counts = counts.into_iter().map(|(of, count)| (key(of), count)).collect();
    epoch.append(&counts, &records).expect("stored");
}

fn bytes_below(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry"));
    entries
        .map(|entry| match entry.file_type().expect("a type").is_dir() {
            true => bytes_below(&entry.path()),
            false => entry.metadata().expect("its size").len(),
        })
        .sum()
}

/// Parameters of the simulation.
pub struct Time {
    /// Simulated time.
    pub days: u64,
    /// An epoch for each day.
    pub daily: bool,
    /// Number of samples in each append.
    pub samples: u64,
}

/// Results of the simulation.
#[derive(Debug)]
pub struct Taken {
    /// Samples, as simulated and as read again.
    pub samples: [u64; 2],
    /// Number of rows in all epochs.
    pub rows: usize,
    /// Number of epochs.
    pub epochs: usize,
    /// Segments of the last one.
    pub segments: usize,
    /// All files, before and after the last compaction.
    pub bytes: [u64; 2],
}

/// Runs it through a database in a folder of its own.
pub fn simulate(time: &Time) -> Taken {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let writer = Database::open(folder.path()).expect("a database").writer().expect("its writer");
    let random = &mut Random(1997);
    let images: Vec<Image> = (0..IMAGES).map(|at| Image::new(random, at)).collect();
    let apps: Vec<Arc<str>> = (0..=PROGRAMS).map(|at| format!("program-{at}").into()).collect();
    let (mut epoch_writer, appends) =
        (writer.begin(epoch(0)).expect("an epoch"), time.days * APPENDS_PER_DAY);
    for append in 0..appends {
        let (day, of_day) = (append / APPENDS_PER_DAY, append % APPENDS_PER_DAY);
        if time.daily && day > 0 && of_day == 0 {
            let ended = epoch_writer.epoch().id.clone();
            epoch_writer = writer.begin(epoch(day)).expect("an epoch");
            writer.compact(&ended).expect("compacted");
        }
        store(&mut epoch_writer, &images, &apps, interval(random, &images, time.samples));
        if append % APPENDS_PER_COMPACTION == APPENDS_PER_COMPACTION - 1 {
            writer.compact(&epoch_writer.epoch().id).expect("compacted");
        }
    }
    let before = bytes_below(folder.path());
    let last = epoch_writer.epoch().id.clone();
    drop(epoch_writer);
    let compacted = writer.compact(&last).expect("compacted");
    let (bytes, epochs) = (bytes_below(folder.path()), writer.database().epochs().expect("epochs").epochs);
    let read = |id: &EpochId| writer.database().read(id).expect("readable");
    let (rows, stored) = epochs.iter().map(|e| read(&e.id).counts).fold((0, 0), |(rows, sum), counts| {
        let time = |(key, count): (&SampleKey, &u64)| if key.event.is_derived() { 0 } else { *count };
        (rows + counts.len(), sum + counts.iter().map(time).sum::<u64>())
    });
    let samples = [appends * time.samples, stored];
    Taken { samples, rows, epochs: epochs.len(), segments: compacted.after, bytes: [before, bytes] }
}

#[cfg_attr(test, allow(dead_code, reason = "a test simulates a smaller one"))]
fn main() {
    let words: Vec<String> = std::env::args().collect();
    let days = words.iter().position(|word| word == "--days").and_then(|at| words.get(at + 1)?.parse().ok());
    let days: u64 = days.unwrap_or(7);
    let daily = words.iter().any(|word| word == "--daily");
    let started = Instant::now();
    let Taken { samples: [samples, stored], rows, epochs, segments, bytes: [before, bytes] } =
        simulate(&Time { days, daily, samples: SAMPLES_PER_APPEND });
    assert_eq!(stored, samples, "samples in are samples stored");
    let verdict = if bytes <= BAR_BYTES { "✓" } else { "✗" };
    println!("{days} simulated days of {IMAGES} images, {epochs} epoch(s), {samples} samples, {rows} rows");
    println!(
        "  {:.2} MB ({:.2} MB before the last compaction) {verdict} ≤ 13 MB",
        bytes as f64 / 1e6,
        before as f64 / 1e6
    );
    println!(
        "  {:.3} bytes per row, {segments} segment(s) in the last epoch; {:.0} s to simulate",
        bytes as f64 / rows as f64,
        started.elapsed().as_secs_f64()
    );
}
