//! `/dev/dwell`: the kernel module's requests and bytes.
//!
//! Enters: configuration. Leaves: chunks as bytes, status. Never here: what an entry means. The structures mirror
//! `kmod/dwell_abi.h`; a test holds sizes, offsets and request numbers against a C compiler's.

use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
};

/// The version of the ABI that we speak.
pub const ABI_VERSION: u32 = 3;
/// Events that can be configured.
pub const EVENTS_MAX: usize = 16;
/// Executables that can be kept apart.
pub const APART_MAX: usize = 16;
/// All CPUs, in a status.
pub const ALL_CPUS: u32 = u32::MAX;
/// Counts all the time, whatever takes turns beside it.
pub const EVENT_PINNED: u32 = 1;
/// Its samples carry registers and come one by one.
pub const EVENT_REGISTERS: u32 = 4;

/// `struct dwell_version`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Version {
    /// Version of the ABI.
    pub abi: u32,
    /// Entries of a bucket.
    pub ways: u32,
    /// Values in a sample with registers, 0 where there are none.
    pub registers: u32,
    reserved: u32,
}

/// `struct dwell_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    /// As in `perf_event_attr`.
    pub config: u64,
    /// Mean occurrences between two samples.
    pub period: u64,
    /// Half the width of what periods are drawn from.
    pub spread: u64,
    /// As in `perf_event_attr`.
    pub kind: u32,
    /// `EVENT_…`.
    pub flags: u32,
}

/// `struct dwell_config`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// [`ABI_VERSION`].
    pub version: u32,
    /// Of `event`.
    pub event_count: u32,
    /// Base-2 logarithm of a table's buckets.
    pub bucket_bits: u32,
    /// Of each of a CPU's two overflow buffers.
    pub overflow_entries: u32,
    /// Of each of a CPU's two buffers of samples with registers.
    pub register_samples: u32,
    reserved: u32,
    /// What to sample.
    pub event: [Event; EVENTS_MAX],
}

/// `struct dwell_period`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    period: u64,
    spread: u64,
    event: u32,
    reserved: u32,
}

/// `struct dwell_apart`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Apart {
    count: u32,
    reserved: u32,
    tag: [u64; APART_MAX],
}

/// `struct dwell_table_counts`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Samples that came to tables.
    pub samples: u64,
    /// Had an entry.
    pub found: u64,
    /// Took a free one.
    pub fresh: u64,
    /// Made another go.
    pub evicted: u64,
    /// Filled theirs.
    pub saturated: u64,
    /// Entries that went to overflow buffers.
    pub spilled: u64,
    /// Samples whose entries found no room there.
    pub lost: u64,
    /// Of these, by event.
    pub lost_of: [u64; EVENTS_MAX],
}

/// `struct dwell_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// Which CPU, or [`ALL_CPUS`].
    pub cpu: u32,
    /// How many are sampled.
    pub cpus: u32,
    /// All samples, wherever they went.
    pub interrupts: u64,
    /// In the idle task.
    pub idle: u64,
    /// Lost to another sample that was being counted, or for want of registers.
    pub nested: u64,
    /// Counted ones that were not in user mode.
    pub kernel: u64,
    /// With registers, handed on.
    pub register_samples: u64,
    /// With registers, lost.
    pub register_lost: u64,
    /// Times that the kernel throttled an event.
    pub throttled: u64,
    /// Events, on each CPU by itself, that perf has given up.
    pub given_up: u64,
    /// Sum of the counts that were read.
    pub read_samples: u64,
    /// Entries that were read.
    pub read_entries: u64,
    /// What tables did.
    pub table: TableCounts,
}

/// `struct dwell_event_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct EventStatus {
    /// Which CPU, or [`ALL_CPUS`].
    pub cpu: u32,
    /// Its index.
    pub event: u32,
    /// Samples, wherever they went.
    pub samples: u64,
    /// In the idle task.
    pub idle: u64,
    /// Lost to another sample that was being counted, or for want of registers.
    pub nested: u64,
    /// Lost since both overflow buffers were full.
    pub lost: u64,
    /// Times that the kernel throttled it.
    pub throttled: u64,
    /// On how many CPUs perf has given it up.
    pub given_up: u64,
    /// For how long, added up over CPUs, in ns.
    pub given_up_ns: u64,
    /// How long it was to count, that included, in ns.
    pub enabled_ns: u64,
    /// How long it did, in ns.
    pub running_ns: u64,
}

impl Config {
    /// For up to [`EVENTS_MAX`] events.
    pub fn new(events: &[Event], bucket_bits: u32, overflow_entries: u32, register_samples: u32) -> Self {
        assert!(events.len() <= EVENTS_MAX);
        let mut event = [Event::default(); EVENTS_MAX];
        event[..events.len()].copy_from_slice(events);
        let event_count = events.len() as u32;
        let (version, reserved) = (ABI_VERSION, 0);
        Config { version, event_count, bucket_bits, overflow_entries, register_samples, reserved, event }
    }
}

const WRITE: u64 = 1;
const READ: u64 = 2;

/// The kernel's `_IOC` of x86, Arm and RISC-V.
const fn request(direction: u64, number: u64, size: usize) -> u64 {
    direction << 30 | (size as u64) << 16 | 0xd7 << 8 | number
}

const VERSION: u64 = request(READ, 0, size_of::<Version>());
const CONFIGURE: u64 = request(WRITE, 1, size_of::<Config>());
const START: u64 = request(0, 2, 0);
const STOP: u64 = request(0, 3, 0);
const FLUSH: u64 = request(0, 4, 0);
const PERIOD: u64 = request(WRITE, 5, size_of::<Period>());
const APART: u64 = request(WRITE, 6, size_of::<Apart>());
const STATUS: u64 = request(READ | WRITE, 7, size_of::<Status>());
const EVENT_STATUS: u64 = request(READ | WRITE, 8, size_of::<EventStatus>());

/// An open `/dev/dwell`; sampling ends with it.
#[derive(Debug)]
pub struct Device {
    file: File,
}

impl Device {
    /// Opens it. Not found: the module is not loaded; busy: somebody else samples.
    pub fn open() -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        Ok(Device { file: options.open("/dev/dwell")? })
    }

    /// What the module is.
    pub fn version(&self) -> io::Result<Version> {
        let mut version = Version::default();
        self.request(VERSION, &mut version)?;
        Ok(version)
    }

    /// Makes tables and events, switched off.
    pub fn configure(&self, config: &Config) -> io::Result<()> {
        self.request(CONFIGURE, &mut { *config })
    }

    /// Starts all events; those that count already go on.
    pub fn start(&self) -> io::Result<()> {
        self.request(START, &mut ())
    }

    /// Stops them.
    pub fn stop(&self) -> io::Result<()> {
        self.request(STOP, &mut ())
    }

    /// Makes everything that was sampled readable.
    pub fn flush(&self) -> io::Result<()> {
        self.request(FLUSH, &mut ())
    }

    /// Another mean period.
    pub fn set_period(&self, event: u32, period: u64, spread: u64) -> io::Result<()> {
        self.request(PERIOD, &mut Period { period, spread, event, reserved: 0 })
    }

    /// The executables, [`APART_MAX`] at most, whose processes are kept apart.
    pub fn keep_apart(&self, tags: &[u64]) -> io::Result<()> {
        let mut apart = Apart { count: tags.len().min(APART_MAX) as u32, ..Apart::default() };
        apart.tag.iter_mut().zip(tags).for_each(|(to, tag)| *to = *tag);
        self.request(APART, &mut apart)
    }

    /// What happened so far on a CPU, or on all.
    pub fn status(&self, cpu: u32) -> io::Result<Status> {
        let mut status = Status { cpu, ..Status::default() };
        self.request(STATUS, &mut status)?;
        Ok(status)
    }

    /// What became of an event's samples on a CPU, or on all.
    pub fn event_status(&self, event: u32, cpu: u32) -> io::Result<EventStatus> {
        let mut status = EventStatus { cpu, event, ..EventStatus::default() };
        self.request(EVENT_STATUS, &mut status)?;
        Ok(status)
    }

    /// Reads chunks; 0 if there is nothing now.
    pub fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match (&self.file).read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            read => read,
        }
    }

    fn request<T>(&self, request: u64, argument: &mut T) -> io::Result<()> {
        // SAFETY: each request's number says how many bytes the kernel reads and writes: those of `T`, which is live.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), request as _, &raw mut *argument) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests;
