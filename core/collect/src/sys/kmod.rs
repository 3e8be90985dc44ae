//! `/dev/dwell`: the kernel module's requests and bytes.
//!
//! Enters: configuration. Leaves: chunks as bytes, status. Never here: what an entry means. The structures mirror
//! `kmod/dwell_abi.h`; a test compares sizes, offsets and request numbers with those of a C compiler.

use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
};

/// The version of the module's ABI that this code supports.
pub const ABI_VERSION: u32 = 4;
/// Number of events that a configuration has room for.
pub const EVENTS_MAX: usize = 16;
/// Maximum number of executables whose processes can be kept apart.
pub const APART_MAX: usize = 16;
/// Value of `cpu` in a status that means the sum over all CPUs.
pub const ALL_CPUS: u32 = u32::MAX;
/// Flag of an event that counts all the time, even if other events take turns.
pub const EVENT_PINNED: u32 = 1;
/// Flag of an event whose samples carry registers and are handed out one by one.
pub const EVENT_REGISTERS: u32 = 4;
/// Flag of an event whose samples in the kernel are counted a second time where user code entered the kernel.
pub const EVENT_CHARGED: u32 = 8;

/// Mirror of `struct dwell_version`: the module's version and fixed sizes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Version {
    /// Version of the ABI.
    pub abi: u32,
    /// Number of entries in a bucket.
    pub ways: u32,
    /// Number of values in a sample with registers; 0 where the module samples none.
    pub registers: u32,
    reserved: u32,
}

/// Mirror of `struct dwell_event`: an event to sample.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    /// Event code, as `config` of `perf_event_attr`.
    pub config: u64,
    /// Mean number of occurrences between two samples.
    pub period: u64,
    /// Half the width of the interval from which periods are drawn.
    pub spread: u64,
    /// Event type, as `type` of `perf_event_attr`.
    pub kind: u32,
    /// A combination of the `EVENT_…` flags.
    pub flags: u32,
}

/// Mirror of `struct dwell_config`: what the module is to sample, and the sizes of its buffers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// [`ABI_VERSION`].
    pub version: u32,
    /// Number of valid elements of `event`.
    pub event_count: u32,
    /// Base-2 logarithm of the number of buckets of a table.
    pub bucket_bits: u32,
    /// Entries in each of the two overflow buffers of a CPU.
    pub overflow_entries: u32,
    /// Samples in each of the two buffers of a CPU for samples with registers.
    pub register_samples: u32,
    reserved: u32,
    /// The events to sample.
    pub event: [Event; EVENTS_MAX],
}

/// Mirror of `struct dwell_period`: a new mean period of an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    period: u64,
    spread: u64,
    event: u32,
    reserved: u32,
}

/// Mirror of `struct dwell_apart`: the executables whose processes are kept apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct KeptApart {
    count: u32,
    reserved: u32,
    tag: [u64; APART_MAX],
}

/// Mirror of `struct dwell_table_counts`: statistics of the tables.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Samples that reached a table.
    pub samples: u64,
    /// Samples that found an entry of their place.
    pub found: u64,
    /// Samples that took a free entry.
    pub fresh: u64,
    /// Samples that evicted another entry.
    pub evicted: u64,
    /// Samples that filled the count of their entry.
    pub saturated: u64,
    /// Entries that were moved to overflow buffers.
    pub spilled: u64,
    /// Samples of entries that found no room in the overflow buffers.
    pub lost: u64,
    /// Lost samples, by event.
    pub lost_of: [u64; EVENTS_MAX],
}

/// Mirror of `struct dwell_status`: statistics of one CPU, or of all.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// The CPU, or [`ALL_CPUS`].
    pub cpu: u32,
    /// Number of CPUs that are sampled.
    pub cpus: u32,
    /// All samples, whatever became of them.
    pub interrupts: u64,
    /// Samples in the idle task.
    pub idle: u64,
    /// Samples that were lost because they interrupted the counting of another sample, or had no registers.
    pub nested: u64,
    /// Counted samples outside user mode.
    pub kernel: u64,
    /// Counts of samples in the kernel where user code entered it.
    pub charged: u64,
    /// Samples with registers that were handed out.
    pub register_samples: u64,
    /// Samples with registers that were lost.
    pub register_lost: u64,
    /// Number of times that the kernel throttled an event.
    pub throttled: u64,
    /// Events that perf has given up, counted on each CPU separately.
    pub given_up: u64,
    /// Sum of the counts in all entries that were read.
    pub read_samples: u64,
    /// Number of entries that were read.
    pub read_entries: u64,
    /// Statistics of the tables.
    pub table: TableCounts,
}

/// Mirror of `struct dwell_event_status`: statistics of one event on one CPU, or on all.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct EventStatus {
    /// The CPU, or [`ALL_CPUS`].
    pub cpu: u32,
    /// Index of the event.
    pub event: u32,
    /// All samples of the event, whatever became of them.
    pub samples: u64,
    /// Samples in the idle task.
    pub idle: u64,
    /// Samples that were lost because they interrupted the counting of another sample, or had no registers.
    pub nested: u64,
    /// Samples that were lost because both overflow buffers were full.
    pub lost: u64,
    /// Number of times that the kernel throttled the event.
    pub throttled: u64,
    /// Number of CPUs on which perf has given the event up.
    pub given_up: u64,
    /// How long the event has been given up, in ns, summed over CPUs.
    pub given_up_ns: u64,
    /// How long the event was enabled, in ns, including the time while it was given up.
    pub enabled_ns: u64,
    /// How long the event counted, in ns.
    pub running_ns: u64,
}

impl Config {
    /// Creates a configuration for [`EVENTS_MAX`] events at most.
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

/// Computes a request number as the kernel's `_IOC` does on x86, Arm and RISC-V.
const fn request(direction: u64, number: u64, size: usize) -> u64 {
    direction << 30 | (size as u64) << 16 | 0xd7 << 8 | number
}

const VERSION: u64 = request(READ, 0, size_of::<Version>());
const CONFIGURE: u64 = request(WRITE, 1, size_of::<Config>());
const START: u64 = request(0, 2, 0);
const STOP: u64 = request(0, 3, 0);
const FLUSH: u64 = request(0, 4, 0);
const PERIOD: u64 = request(WRITE, 5, size_of::<Period>());
const APART: u64 = request(WRITE, 6, size_of::<KeptApart>());
const STATUS: u64 = request(READ | WRITE, 7, size_of::<Status>());
const EVENT_STATUS: u64 = request(READ | WRITE, 8, size_of::<EventStatus>());

/// An open `/dev/dwell`. Closing it ends sampling.
#[derive(Debug)]
pub struct Device {
    file: File,
}

impl Device {
    /// Opens the device. The error *not found* means that the module is not loaded; *busy*, that another process samples.
    pub fn open() -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        Ok(Device { file: options.open("/dev/dwell")? })
    }

    /// Returns the version and fixed sizes of the module.
    pub fn version(&self) -> io::Result<Version> {
        let mut version = Version::default();
        self.request(VERSION, &mut version)?;
        Ok(version)
    }

    /// Allocates tables and creates the events, disabled.
    pub fn configure(&self, config: &Config) -> io::Result<()> {
        self.request(CONFIGURE, &mut { *config })
    }

    /// Starts all events. Events that already count continue.
    pub fn start(&self) -> io::Result<()> {
        self.request(START, &mut ())
    }

    /// Stops all events.
    pub fn stop(&self) -> io::Result<()> {
        self.request(STOP, &mut ())
    }

    /// Makes all samples readable that were taken so far.
    pub fn flush(&self) -> io::Result<()> {
        self.request(FLUSH, &mut ())
    }

    /// Sets a new mean period of an event.
    pub fn set_period(&self, event: u32, period: u64, spread: u64) -> io::Result<()> {
        self.request(PERIOD, &mut Period { period, spread, event, reserved: 0 })
    }

    /// Sets the executables whose processes are kept apart, [`APART_MAX`] at most.
    pub fn keep_apart(&self, tags: &[u64]) -> io::Result<()> {
        let mut apart = KeptApart { count: tags.len().min(APART_MAX) as u32, ..KeptApart::default() };
        apart.tag.iter_mut().zip(tags).for_each(|(to, tag)| *to = *tag);
        self.request(APART, &mut apart)
    }

    /// Returns the statistics of a CPU, or of all.
    pub fn status(&self, cpu: u32) -> io::Result<Status> {
        let mut status = Status { cpu, ..Status::default() };
        self.request(STATUS, &mut status)?;
        Ok(status)
    }

    /// Returns the statistics of an event on a CPU, or on all.
    pub fn event_status(&self, event: u32, cpu: u32) -> io::Result<EventStatus> {
        let mut status = EventStatus { cpu, event, ..EventStatus::default() };
        self.request(EVENT_STATUS, &mut status)?;
        Ok(status)
    }

    /// Reads chunks. Returns 0 if none is ready.
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
