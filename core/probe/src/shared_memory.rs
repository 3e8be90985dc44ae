//! Dwell's side of the memory that it shares with the payload.
//!
//! Enters: a file that both map, unwind tables, what to measure. Leaves: the numbers by call path, while the program runs. Never
//! here: the program itself.
//!
//! The payload writes without locks, and this side only reads, apart from what it writes before the payload sees it. Each answer
//! is consistent all the same: returns are read before calls, and the payload counts a call first.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    mem::{offset_of, size_of},
    os::fd::AsRawFd,
    ptr,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use dwell_profile::VirtualAddress;
use serde::{Deserialize, Serialize};

use crate::{
    layout::{
        self, BUCKETS, FUNCTIONS_MAX, MISSED_KINDS, Metric, PATHS_MAX, Pair, Path, Shared, THREADS_MAX,
        Thread, WITH_BLOCKED, WITH_CPU, WITH_RETURNS, WITH_WALL,
    },
    unwind_table::UnwindTable,
};

/// What is measured at each call, beside its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Whether returns are counted. The function's exits must be patched then.
    pub returns: bool,
    /// Whether the time on the clock is measured, which needs returns.
    pub wall: bool,
    /// Whether the thread's CPU time is measured, which needs returns.
    pub cpu: bool,
    /// Whether the time is measured that a call does not run, which needs the two others.
    pub blocked: bool,
}

/// The unwind table of an image and where it is mapped.
pub struct MappedTable<'t> {
    /// First address in the program.
    pub start: VirtualAddress,
    /// Address behind the last.
    pub end: VirtualAddress,
    /// The table, from `start` on.
    pub table: &'t UnwindTable,
}

/// Why a path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathEnd {
    /// At the outermost frame.
    Complete,
    /// In code without unwind information.
    UnknownCode,
    /// It has too many frames.
    TooDeep,
    /// The stack cannot be read there.
    Unreadable,
    /// This is all other paths of the function, since there are too many.
    Others,
}

/// The values of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    /// Their sum.
    pub sum: u64,
    /// The largest.
    pub max: u64,
    /// How many are in each bucket: four for each power of two.
    pub buckets: Vec<u64>,
}

/// The numbers of a call path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCounts {
    /// Number of the function.
    pub function: u32,
    /// The return addresses, the call site first.
    pub return_addresses: Vec<VirtualAddress>,
    /// Why there are no more.
    pub end: PathEnd,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that returned.
    pub returns: u64,
    /// Number of calls that an exception or longjmp ended.
    pub unwound: u64,
    /// Time on the clock, in ticks.
    pub wall: Values,
    /// CPU time in ticks.
    pub cpu: Values,
    /// Time on the clock without CPU time, in ticks.
    pub blocked: Values,
}

impl Values {
    /// Adds other values.
    pub fn add(&mut self, other: &Values) {
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        self.buckets
            .iter_mut()
            .zip(&other.buckets)
            .for_each(|(own, other)| *own = own.saturating_add(*other));
    }

    /// Returns the value below which this share of the values is, within a bucket's width (a quarter of a power of two);
    /// `None` if there are no values.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let number: u64 = self.buckets.iter().sum();
        let rank = ((share * number as f64).ceil() as u64).max(1);
        let mut before = 0;
        for (bucket, values) in self.buckets.iter().enumerate() {
            if before + values >= rank {
                let [low, high] = [bucket, bucket + 1].map(bucket_start);
                let within = (rank - before) as f64 / *values as f64;
                return Some(((low as f64 + within * (high - low) as f64) as u64).min(self.max));
            }
            before += values;
        }
        None
    }
}

/// Returns the least value of a bucket: four buckets for each power of two.
fn bucket_start(bucket: usize) -> u64 {
    match bucket {
        0..4 => bucket as u64,
        _ => (4 + bucket as u64 % 4) << (bucket / 4 - 1),
    }
}

impl PathCounts {
    /// Number of calls in progress.
    pub fn active(&self) -> u64 {
        self.calls.saturating_sub(self.returns).saturating_sub(self.unwound)
    }
}

/// All numbers at a moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The paths of all threads.
    pub paths: Vec<PathCounts>,
    /// For each function, the calls that were missed: in a signal handler that interrupted the payload, because of too many
    /// threads, of too many paths, of too many calls in progress.
    pub missed: Vec<[u64; MISSED_KINDS]>,
    /// Returns of calls that were in progress at the beginning, or missed.
    pub unmatched: u64,
}

/// The shared memory, mapped in this process.
pub struct SharedMemory {
    file: File,
    base: *mut u8,
    bytes: usize,
    /// Offsets of the next free byte for tables, and of the chunks, which come after them.
    tables_at: usize,
    chunks_at: usize,
    images: Vec<layout::Image>,
}

// SAFETY: the mapping belongs to this value; what the payload changes is read by volatile or atomic loads.
unsafe impl Send for SharedMemory {}
// SAFETY: shared references read and write single words only, atomically.
unsafe impl Sync for SharedMemory {}

/// Bytes for tables, paths and counts. Only pages that are used take memory.
const ARENA_BYTES: usize = 256 << 20;
const CHUNK_BYTES: usize = 65536;

impl SharedMemory {
    /// Size of a memory with tables of this size.
    pub fn bytes_for(tables_bytes: usize) -> usize {
        let fixed = size_of::<Shared>() + THREADS_MAX * size_of::<Thread>();
        (fixed + tables_bytes + ARENA_BYTES).next_multiple_of(CHUNK_BYTES)
    }

    /// Initializes a new file with room for tables of `tables_bytes` in all.
    pub fn create(file: File, tables_bytes: usize, ns_per_tick: f64) -> io::Result<Self> {
        let bytes = Self::bytes_for(tables_bytes);
        if file.metadata()?.len() < bytes as u64 {
            file.set_len(bytes as u64)?;
        }
        let base = map(&file, bytes)?;
        let threads_at = size_of::<Shared>().next_multiple_of(64);
        let tables_at = threads_at + THREADS_MAX * size_of::<Thread>();
        let tables_at = tables_at.next_multiple_of(64);
        let chunks_at = (tables_at + tables_bytes).next_multiple_of(CHUNK_BYTES);
        let memory = SharedMemory { file, base, bytes, tables_at, chunks_at, images: Vec::new() };
        // SAFETY: the payload does not run yet, and the file is at least as long as the structure.
        let shared = unsafe { &mut *memory.base.cast::<Shared>() };
        shared.magic = layout::MAGIC;
        shared.version = layout::VERSION;
        shared.controller = std::process::id();
        shared.bytes = bytes as u64;
        shared.chunks = chunks_at as u64;
        shared.threads_at = threads_at as u64;
        shared.ticks_per_ns = (f64::from(1 << 20) / ns_per_tick) as u64;
        Ok(memory)
    }

    /// Maps the memory that another process created, to read its numbers.
    pub fn open(file: File) -> io::Result<Self> {
        let header = map(&file, size_of::<Shared>())?;
        // SAFETY: the header is mapped, and its creator has initialized it.
        let (magic, version, bytes) = unsafe {
            let shared = header.cast::<Shared>();
            ((*shared).magic, (*shared).version, (*shared).bytes as usize)
        };
        // SAFETY: mapped just above; no reference is left.
        unsafe { libc::munmap(header.cast(), size_of::<Shared>()) };
        if magic != layout::MAGIC || version != layout::VERSION || file.metadata()?.len() < bytes as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no memory of probes"));
        }
        let base = map(&file, bytes)?;
        Ok(SharedMemory { file, base, bytes, tables_at: bytes, chunks_at: bytes, images: Vec::new() })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it is mapped in this process.
    pub fn address(&self) -> u64 {
        self.base as u64
    }

    /// Size of the part that the payload reads and writes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether it is empty, which it never is.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Stores tables, and lets the payload use them beside those of before, apart from images that are not mapped any more: a new
    /// one is in their place. Returns an error if there is not enough room.
    pub fn add_images(&mut self, images: &[MappedTable]) -> io::Result<()> {
        let mut entries = self.images.clone();
        for image in images {
            let table = image.table;
            let (start, end) = (image.start.0, image.end.0);
            entries.retain(|other| other.end <= start || end <= other.start);
            entries.push(layout::Image {
                start,
                end,
                starts: self.store(&table.starts)?,
                rules: self.store(&table.rows)?,
                buckets: self.store(&table.buckets)?,
                table: self.store(&table.rules)?,
            });
        }
        entries.sort_by_key(|image| image.start);
        let count_at = self.store(&[entries.len() as u64])?;
        self.tables_at = count_at as usize + size_of::<u64>();
        self.store(&entries)?;
        // A pairs with the acquire load in find_image: the tables are complete before they are found.
        self.atomic_u64(offset_of!(Shared, images)).store(count_at, Ordering::Release);
        self.images = entries;
        Ok(())
    }

    /// Copies values to the next free place, aligned to 8 bytes, and returns its offset.
    fn store<T: Copy>(&mut self, values: &[T]) -> io::Result<u64> {
        let at = self.tables_at.next_multiple_of(8);
        let end = at + size_of_val(values);
        if end > self.chunks_at {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // SAFETY: the place is within the mapping before the chunks, and the payload does not know it yet.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), self.base.add(at).cast(), values.len()) };
        self.tables_at = end;
        Ok(at as u64)
    }

    /// Writes the journal, which another process reads if this one is killed.
    pub fn write_journal(&self, bytes: &[u8]) {
        assert!(bytes.len() <= layout::JOURNAL_BYTES);
        // SAFETY: within the mapping; the payload does not read it, and shared references write only here.
        unsafe {
            let journal = self.base.add(offset_of!(Shared, journal));
            ptr::copy_nonoverlapping(bytes.as_ptr(), journal, bytes.len());
        }
    }

    /// Sets what is measured at calls of a function.
    pub fn set_function(&self, function: u32, metrics: Metrics) {
        assert!((function as usize) < FUNCTIONS_MAX);
        let chosen = [
            (metrics.returns, WITH_RETURNS),
            (metrics.wall, WITH_WALL),
            (metrics.cpu, WITH_CPU),
            (metrics.blocked, WITH_BLOCKED),
        ];
        let bits = chosen.iter().filter(|(is_on, _)| *is_on).fold(0, |bits, (_, bit)| bits | bit);
        let at = offset_of!(Shared, function) + function as usize * size_of::<layout::Function>();
        self.atomic_u32(at).store(bits, Ordering::Release);
    }

    /// Reads all numbers. The paths of threads are added up.
    pub fn snapshot(&self) -> Snapshot {
        let mut paths: BTreeMap<(u32, Vec<VirtualAddress>, PathEnd), PathCounts> = BTreeMap::new();
        let threads = self.atomic_u32(offset_of!(Shared, threads)).load(Ordering::Acquire) as usize;
        let threads_at = size_of::<Shared>().next_multiple_of(64);
        let mut unmatched = 0;
        for thread in 0..threads.min(THREADS_MAX) {
            let thread_at = threads_at + thread * size_of::<Thread>();
            unmatched += self.u64(thread_at + offset_of!(Thread, unmatched));
            let mut at = self.u64(thread_at + offset_of!(Thread, first_path)) as usize;
            // A program that writes anywhere may have damaged it.
            for _ in 0..PATHS_MAX + FUNCTIONS_MAX {
                if at == 0 || !at.is_multiple_of(8) || at >= self.bytes - size_of::<Path>() {
                    break;
                }
                let path = self.path(at);
                let key = (path.function, path.return_addresses.clone(), path.end);
                match paths.entry(key) {
                    std::collections::btree_map::Entry::Vacant(entry) => _ = entry.insert(path),
                    std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().add(&path),
                }
                at = self.u64(at + offset_of!(Path, next)) as usize;
            }
        }
        let missed = |function: usize| {
            let at = offset_of!(Shared, function) + function * size_of::<layout::Function>();
            let missed_at = at + offset_of!(layout::Function, missed);
            std::array::from_fn(|cause| self.u64(missed_at + cause * size_of::<u64>()))
        };
        Snapshot {
            paths: paths.into_values().collect(),
            missed: (0..FUNCTIONS_MAX).map(missed).collect(),
            unmatched,
        }
    }

    fn path(&self, at: usize) -> PathCounts {
        let word = |offset| self.u64(at + offset);
        let half = |offset| self.atomic_u32(at + offset).load(Ordering::Acquire);
        // A call is counted before its return, so reading it afterwards never finds fewer calls than returns.
        let unwound = word(offset_of!(Path, unwound));
        let returns = word(offset_of!(Path, returns));
        let wall = self.values(at + offset_of!(Path, wall));
        let cpu = self.values(at + offset_of!(Path, cpu));
        let blocked = self.values(at + offset_of!(Path, blocked));
        let calls = word(offset_of!(Path, calls));
        let pairs_max = half(offset_of!(Path, pairs_max)) as usize;
        let addresses_at = at + size_of::<Path>() + pairs_max * size_of::<Pair>();
        let frames = half(offset_of!(Path, frames)) as usize;
        let frames = frames.min(self.bytes.saturating_sub(addresses_at) / size_of::<u64>());
        PathCounts {
            function: half(offset_of!(Path, function)),
            return_addresses: (0..frames)
                .map(|frame| VirtualAddress(self.u64(addresses_at + frame * size_of::<u64>())))
                .collect(),
            end: match half(offset_of!(Path, end)) {
                0 => PathEnd::Complete,
                1 => PathEnd::UnknownCode,
                2 => PathEnd::TooDeep,
                3 => PathEnd::Unreadable,
                _ => PathEnd::Others,
            },
            calls,
            returns,
            unwound,
            wall,
            cpu,
            blocked,
        }
    }

    fn values(&self, at: usize) -> Values {
        let buckets_at = at + offset_of!(Metric, buckets);
        Values {
            sum: self.u64(at + offset_of!(Metric, sum)),
            max: self.u64(at + offset_of!(Metric, max)),
            buckets: (0..BUCKETS).map(|bucket| self.u64(buckets_at + bucket * size_of::<u64>())).collect(),
        }
    }

    fn u64(&self, at: usize) -> u64 {
        self.atomic_u64(at).load(Ordering::Acquire)
    }

    fn atomic_u64(&self, at: usize) -> &AtomicU64 {
        assert!(at + size_of::<u64>() <= self.bytes && at.is_multiple_of(8));
        // SAFETY: within the mapping and aligned; both sides access it by single loads and stores.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast()) }
    }

    fn atomic_u32(&self, at: usize) -> &AtomicU32 {
        assert!(at + size_of::<u32>() <= self.bytes && at.is_multiple_of(4));
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.base.add(at).cast()) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by us; no reference outlives this value.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

impl PathCounts {
    /// Adds the numbers of another path.
    pub(crate) fn add(&mut self, other: &PathCounts) {
        self.calls = self.calls.saturating_add(other.calls);
        self.returns = self.returns.saturating_add(other.returns);
        self.unwound = self.unwound.saturating_add(other.unwound);
        self.wall.add(&other.wall);
        self.cpu.add(&other.cpu);
        self.blocked.add(&other.blocked);
    }
}

fn map(file: &File, bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: a fresh mapping of a file that nobody shrinks, at an address of the kernel's choice.
    let base = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
}

/// Returns how long a tick of the time stamp counter takes, in ns. The first call measures it. There is no lock: a process that is
/// forked while another thread measures would wait for it for ever.
pub fn measure_ns_per_tick() -> f64 {
    static MEASURED: AtomicU64 = AtomicU64::new(0);
    match MEASURED.load(Ordering::Relaxed) {
        0 => {
            let ns = measure();
            MEASURED.store(ns.to_bits(), Ordering::Relaxed);
            ns
        }
        bits => f64::from_bits(bits),
    }
}

fn measure() -> f64 {
    let clock = || {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes the live time.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut now) };
        now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
    };
    // SAFETY: every x86-64 processor has the instruction, and Linux permits it.
    let ticks = || unsafe { std::arch::x86_64::_rdtsc() };
    let (from, from_ns) = (ticks(), clock());
    std::thread::sleep(std::time::Duration::from_millis(20));
    let (to, to_ns) = (ticks(), clock());
    (to_ns - from_ns) / (to.wrapping_sub(from) as f64)
}
