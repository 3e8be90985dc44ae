//! The backend that counts samples in the kernel module: it samples whole machines at the lowest cost.
//!
//! Enters: what to sample. Leaves: batches of entries; the side band, and some samples' registers, as timed records. The
//! side band comes from a [`SideBand`] whose rings carry nothing else. Never here: ioctls (see [`crate::sys::kmod`]).
//!
//! A batch contains what a flush of the module returns; it is cut when the caller wants to store. Overflow buffers that fill
//! in the meantime are handed out as batches that do not end their interval, because the tables hold entries of the same
//! time.

use std::{
    collections::{BTreeMap, VecDeque},
    io, iter, mem,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use dwell_attribution::Interval;
use dwell_profile::{EventIndex, TableRecord};
use rustix::io::Errno;

use super::{
    Backend, Features, KernelTables, Source, SourceTally, Tasks,
    cpus::{online_cpus, possible_cpus},
    perf::is_lacking,
    side_band::SideBand,
};
use crate::{
    CollectError,
    entries::{Batch, EVENT_ENTERED, Entry, EntryChunks, EntryWords},
    loss::LossCause,
    registers::REGISTERS_REPORTED,
    source::{
        events::{EventConfig, known_names},
        merge::Merger,
        owned_record::{OwnedRecord, SideBandRecord},
    },
    sys::{
        clock::now_ns,
        event_times::EventTimes,
        kmod::{self as sys, Config, Device, EventStatus},
    },
};

pub mod chunks;

use chunks::Chunk;

/// Interval between two drains of the side band and checks for losses. A full buffer or ring wakes us at once.
const ROUND: Duration = Duration::from_millis(250);
/// Time at the full rate that each of a CPU's two overflow buffers can hold, if no sample finds its entry.
const BUFFER_SECONDS: f64 = 0.5;
const BUFFER_ENTRIES_MIN: f64 = 1024.0;
const BUFFER_ENTRIES_MAX: f64 = 65536.0;
/// Samples per second with registers: enough for the branches of hot code, and cheap.
const REGISTERS_HZ: f64 = 250.0;
/// Samples in a buffer of samples with registers. At that rate it is full, and so handed out, every 64 ms.
const REGISTER_SAMPLES: u32 = 16;
const READ_BYTES: usize = 256 << 10;
/// Interval after which events that perf gave up are started again.
const START_AGAIN_EVERY: Duration = Duration::from_secs(10);
/// Periods are drawn evenly from the mean ± 1/8.
const SPREAD_PART: u64 = 8;
/// The largest spread that the module accepts.
const SPREAD_MAX: u64 = (1 << 31) - 1;

/// A source that samples by the module.
pub struct KmodSource {
    side_band: SideBand,
    device: Device,
    event_configs: Vec<EventConfig>,
    /// The event whose samples the samples with registers represent.
    registers_of: Option<EventIndex>,
    table_bytes: usize,
    /// Entries read since the last batch, and the time up to which they were sampled.
    read: Vec<EntryWords>,
    read_until_ns: u64,
    /// Samples with registers that wait for the merger, each with its time.
    registers: Vec<(u64, OwnedRecord)>,
    /// Whether a flush has ended.
    flushed: bool,
    /// Time at which the tables were last empty.
    since_ns: u64,
    waiting: VecDeque<(Batch, Vec<EntryWords>)>,
    /// Losses of all events by cause, and the status of each event, as last reported.
    losses: [u64; 3],
    reported: Vec<EventStatus>,
    bytes: Vec<u8>,
    malformed: u64,
    failed: Failed,
    /// Whether sampling is on.
    is_on: bool,
    given_up: GivenUp,
}

impl KmodSource {
    /// Opens `/dev/dwell` and configures it, disabled.
    pub fn open(tasks: &Tasks, event_configs: &[EventConfig], registers: bool) -> Result<Self, CollectError> {
        if !matches!(tasks, Tasks::All) {
            return Err(lacks("it samples whole machines only; use perf for commands and processes"));
        }
        let most = usize::from(EVENT_ENTERED) - 1; // One more samples registers.
        if event_configs.len() > most {
            return Err(lacks(&format!("it counts {most} events at most")));
        }
        if let Some(event_config) = event_configs.iter().find(|event_config| !event_config.interrupts()) {
            return Err(lacks(&format!("it counts hardware events and clocks, not {}", event_config.event)));
        }
        let device = Device::open().map_err(|error| lacks(&why_not_open(&error)))?;
        let version = device.version().map_err(|error| lacks(&error.to_string()))?;
        if version.abi != sys::ABI_VERSION {
            let (theirs, ours) = (version.abi, sys::ABI_VERSION);
            return Err(lacks(&format!(
                "the module has ABI version {theirs}, this dwell needs {ours}: install modules and dwell of one release"
            )));
        }
        let cpus = online_cpus()?;
        let has_registers = version.registers as usize == REGISTERS_REPORTED;
        let registers_of = registers_event(event_configs).filter(|_| registers && has_registers);
        let config = config(event_configs, registers_of, cpus.len());
        device.configure(&config).map_err(|error| refused(event_configs, &error))?;
        Ok(KmodSource {
            side_band: SideBand::open(&[], &cpus, Box::new(|_, _, _| Ok(())))?,
            device,
            event_configs: event_configs.to_vec(),
            registers_of,
            table_bytes: (cpus.len() + 1) * (96 << config.bucket_bits),
            read: Vec::new(),
            read_until_ns: 0,
            registers: Vec::new(),
            flushed: false,
            since_ns: now_ns(),
            waiting: VecDeque::new(),
            losses: [0; 3],
            reported: vec![EventStatus::default(); event_configs.len()],
            bytes: vec![0; READ_BYTES],
            malformed: 0,
            failed: Failed::default(),
            is_on: false,
            given_up: GivenUp::default(),
        })
    }

    /// Reads all that is ready. If a read fails, everything that the module was about to hand out is lost, and its amount is
    /// not known: it counts as one record.
    fn read_all(&mut self) {
        let mut bytes = mem::take(&mut self.bytes);
        loop {
            match self.device.read(&mut bytes) {
                Ok(0) => break,
                Ok(length) => self.take_chunks(&bytes[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed.note("reading", &error);
                    break;
                }
            }
        }
        self.bytes = bytes;
    }

    fn take_chunks(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some((chunk, rest)) = chunks::split(bytes) else {
                self.malformed += 1;
                break;
            };
            bytes = rest;
            match chunk {
                Chunk::Entries { until_ns, records } => {
                    self.read_until_ns = self.read_until_ns.max(until_ns);
                    self.read.extend(chunks::words(records));
                }
                Chunk::Registers(records) => {
                    let event = self.registers_of.unwrap_or_default();
                    self.registers.extend(chunks::registers(records, EventIndex(event.0)));
                }
                Chunk::Flushed => self.flushed = true,
            }
        }
    }

    /// Returns the number of samples with registers that the module could not take. Their event is the last one.
    fn registers_nested(&self) -> u64 {
        let event = self.registers_of.map(|_| self.event_configs.len() as u32);
        let status = event.and_then(|event| self.device.event_status(event, sys::ALL_CPUS).ok());
        status.map_or(0, |s| s.nested)
    }

    /// Puts the entries that were read since the last batch into a new batch.
    fn push_batch(&mut self, ends: bool, until_ns: u64) {
        let interval = Interval { since_ns: self.since_ns, until_ns };
        self.waiting.push_back((Batch { interval, ends }, mem::take(&mut self.read)));
        if ends {
            self.since_ns = until_ns;
        }
    }

    /// Reports new losses to the merger. First all events are queried together: querying a single one interrupts each CPU
    /// that counts it.
    fn report_losses(&mut self, merger: &mut Merger<OwnedRecord>) {
        if let Ok(status) = self.device.status(sys::ALL_CPUS) {
            self.given_up.look(status.given_up, Instant::now());
            let losses = [status.table.lost, status.nested, status.throttled];
            if mem::replace(&mut self.losses, losses) != losses {
                self.report_losses_by_event(merger);
            }
        }
        let records = mem::take(&mut self.failed.unreported);
        if records > 0 {
            let side =
                SideBandRecord::Lost { event: Some(EventIndex(0)), records, cause: LossCause::DeviceFailed };
            merger.push(now_ns(), OwnedRecord::SideBand(Box::new(side)));
        }
    }

    fn report_losses_by_event(&mut self, merger: &mut Merger<OwnedRecord>) {
        for event in 0..self.event_configs.len() {
            let Ok(now) = self.device.event_status(event as u32, sys::ALL_CPUS) else { continue };
            let last = mem::replace(&mut self.reported[event], now);
            let index = Some(EventIndex(event as u8));
            let mut push =
                |side: SideBandRecord| merger.push(now_ns(), OwnedRecord::SideBand(Box::new(side)));
            let losses = [
                (now.lost - last.lost, LossCause::BuffersFull),
                (now.nested - last.nested, LossCause::Nested),
            ];
            for (records, cause) in losses {
                if records > 0 {
                    push(SideBandRecord::Lost { event: index, records, cause });
                }
            }
            (last.throttled..now.throttled).for_each(|_| push(SideBandRecord::Throttle { event: index }));
        }
    }
}

/// System calls of the device that failed.
#[derive(Debug, Default)]
struct Failed {
    /// Failures that were not yet counted as losses.
    unreported: u64,
    /// A warning that the user has not seen yet.
    warning: Option<String>,
    /// The error number of the last failure. A device that is gone fails in the same way each time, and is reported once.
    last: Option<i32>,
}

impl Failed {
    fn note(&mut self, what: &str, error: &io::Error) {
        self.unreported += 1;
        if self.last != error.raw_os_error() {
            self.last = error.raw_os_error();
            self.warning = Some(format!("{what} /dev/dwell failed: {error}; samples are lost"));
        }
    }
}

/// Events that got no counter because of other users' pinned events, counted on each CPU separately.
#[derive(Debug, Default)]
struct GivenUp {
    count: u64,
    /// A warning that the user has not seen yet.
    warning: Option<String>,
    /// When to start them again.
    again: Option<Instant>,
}

impl GivenUp {
    /// Records the current number of events that perf gave up.
    fn look(&mut self, count: u64, now: Instant) {
        if count > self.count {
            let every = START_AGAIN_EVERY.as_secs();
            self.warning = Some(format!(
                "on {count} CPUs an event is not sampled, because pinned events of other users hold all counters; trying \
                 again every {every} s"
            ));
        }
        self.count = count;
        self.again = (count > 0).then(|| self.again.unwrap_or(now + START_AGAIN_EVERY));
    }

    /// Returns whether it is time to start them again.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.again.is_some_and(|again| now >= again);
        if is_due {
            self.again = Some(now + START_AGAIN_EVERY);
        }
        is_due
    }
}

fn lacks(why: &str) -> CollectError {
    CollectError::Backend { backend: Backend::Kmod, why: why.to_owned() }
}

fn why_not_open(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) => {
            "/dev/dwell does not exist; load the kernel module dwell.ko".to_owned()
        }
        Some(Errno::PERM | Errno::ACCESS) => "opening /dev/dwell needs CAP_PERFMON".to_owned(),
        Some(Errno::BUSY) => "another process already samples with /dev/dwell".to_owned(),
        _ => format!("/dev/dwell: {error}"),
    }
}

/// Explains why a configuration was refused. The kernel does not report which of several events it refused.
fn refused(event_configs: &[EventConfig], error: &io::Error) -> CollectError {
    match Errno::from_io_error(error) {
        Some(e) if event_configs.iter().any(|event_config| is_lacking(e, event_config)) => {
            let name = event_configs.iter().map(|p| p.event.name()).collect::<Vec<_>>().join("' or '");
            let why = "this machine does not count it (virtual machines often have no PMU)".to_owned();
            CollectError::NoSuchEvent { name, why, known: known_names() }
        }
        _ => lacks(&format!("/dev/dwell: {error}")),
    }
}

/// Returns the number of samples outside the idle task. The module reads the two numbers one after the other while samples
/// come.
fn outside_idle(status: &EventStatus) -> u64 {
    status.samples.saturating_sub(status.idle)
}

/// Returns the event whose samples show the directions of branches: the event of time.
fn registers_event(event_configs: &[EventConfig]) -> Option<EventIndex> {
    event_configs.iter().position(|p| p.event.is_time()).map(|at| EventIndex(at as u8))
}

fn spread(period: u64) -> u64 {
    (period / SPREAD_PART).min(SPREAD_MAX)
}

fn event(event_config: &EventConfig, period: u64, flags: u32) -> sys::Event {
    let (kind, config) = (event_config.counter.kind, event_config.counter.config);
    sys::Event { config, period, spread: spread(period), kind, flags }
}

/// Builds the configuration. The first event counts always; the others take turns if there are too few counters. Samples of
/// time in the kernel are also counted where user code entered the kernel.
fn config(event_configs: &[EventConfig], registers_of: Option<EventIndex>, cpus: usize) -> Config {
    let bucket_bits = match cpus {
        0..=32 => 14,
        _ => 13,
    };
    let buffer = event_configs.iter().map(|p| p.rate_hz).sum::<f64>() * BUFFER_SECONDS;
    let mut events: Vec<sys::Event> = event_configs
        .iter()
        .enumerate()
        .map(|(at, p)| {
            let pinned = if at == 0 { sys::EVENT_PINNED } else { 0 };
            event(p, p.period, pinned | if p.event.is_time() { sys::EVENT_CHARGED } else { 0 })
        })
        .collect();
    if let Some(event_config) = registers_of.and_then(|at| event_configs.get(at.index())) {
        events.push(event(
            event_config,
            registers_period(event_config, event_config.period),
            sys::EVENT_REGISTERS,
        ));
    }
    let overflow_entries = buffer.clamp(BUFFER_ENTRIES_MIN, BUFFER_ENTRIES_MAX) as u32;
    Config::new(&events, bucket_bits, overflow_entries, REGISTER_SAMPLES)
}

/// Returns the period for sampling registers if the samples themselves have `period`.
fn registers_period(event_config: &EventConfig, period: u64) -> u64 {
    (period as f64 * (event_config.rate_hz_at(period) / REGISTERS_HZ).max(1.0)) as u64
}

impl Source for KmodSource {
    fn backend(&self) -> Backend {
        Backend::Kmod
    }

    fn features(&self) -> Features {
        Features {
            registers: self.registers_of.is_some(),
            shared_bytes: self.side_band.features().shared_bytes + self.table_bytes,
            ..Features::default()
        }
    }

    fn enable_side_band(&mut self) -> Result<(), CollectError> {
        self.side_band.enable_side_band()
    }

    fn enable(&mut self) -> Result<(), CollectError> {
        // The side band starts first, so that no sample is taken whose mapping could have been missed.
        self.side_band.enable()?;
        self.device.start().map_err(|source| CollectError::System { action: "start sampling", source })?;
        self.is_on = true;
        Ok(())
    }

    fn disable(&mut self) -> Result<(), CollectError> {
        self.device.stop().map_err(|source| CollectError::System { action: "stop sampling", source })?;
        self.is_on = false;
        self.side_band.disable()
    }

    fn round(&self) -> Duration {
        ROUND
    }

    fn wait(&mut self, timeout: Duration, wake: Option<BorrowedFd<'_>>) {
        let ends: Vec<_> = iter::once(self.device.as_fd()).chain(wake).collect();
        self.side_band.wait(timeout, &ends);
    }

    fn drain(&mut self, merger: &mut Merger<OwnedRecord>) -> u64 {
        let complete_ns = self.side_band.drain(merger);
        self.read_all();
        self.registers.drain(..).for_each(|(time_ns, item)| merger.push(time_ns, item));
        if !self.read.is_empty() {
            self.push_batch(false, self.read_until_ns);
        }
        self.report_losses(merger);
        complete_ns
    }

    fn tend(&mut self, warn: &mut dyn FnMut(String)) {
        self.failed.warning.take().into_iter().for_each(&mut *warn);
        self.given_up.warning.take().into_iter().for_each(&mut *warn);
        if self.is_on && self.given_up.is_due(Instant::now()) {
            let _ = self.device.start(); // Events that count continue. The next status shows the result.
        }
        self.side_band.tend(warn);
    }

    fn set_periods(&mut self, periods: &[u64]) {
        for (event, period) in (0..).zip(periods) {
            let _ = self.device.set_period(event, *period, spread(*period));
        }
        let Some(at) = self.registers_of.map(EventIndex::index) else { return };
        if let (Some(event_config), Some(period)) = (self.event_configs.get(at), periods.get(at)) {
            let period = registers_period(event_config, *period);
            let _ = self.device.set_period(self.event_configs.len() as u32, period, spread(period));
        }
    }

    fn tally(&self) -> SourceTally {
        let (mut by_cpu, mut idle, mut given_up_ns) = (BTreeMap::new(), 0, 0);
        // A CPU that went offline still has its samples.
        let Ok(cpus) = possible_cpus() else { return SourceTally::default() };
        for (event, cpu) in
            (0..self.event_configs.len() as u32).flat_map(|e| cpus.iter().map(move |c| (e, *c)))
        {
            let Ok(status) = self.device.event_status(event, cpu.0) else { continue };
            by_cpu.insert((EventIndex(event as u8), cpu), outside_idle(&status));
            idle += status.idle;
            given_up_ns += status.given_up_ns;
        }
        let status = self.device.status(sys::ALL_CPUS).ok();
        SourceTally {
            by_cpu,
            table: status.map(|s| TableRecord { samples: s.table.samples, found: s.table.found }),
            // This counts the requested events only; the event of registers has idle samples of its own.
            idle: Some(idle),
            registers_lost: status.map(|s| s.register_lost + self.registers_nested()),
            kernel_time_lost: status.map(|s| s.table.lost_of[usize::from(EVENT_ENTERED)]),
            given_up_ns: Some(given_up_ns),
            ..SourceTally::default()
        }
    }

    fn times(&mut self) -> Vec<EventTimes> {
        let status = |event| self.device.event_status(event, sys::ALL_CPUS).unwrap_or_default();
        let times = |s: EventStatus| EventTimes { enabled_ns: s.enabled_ns, running_ns: s.running_ns };
        (0..self.event_configs.len() as u32).map(|event| times(status(event))).collect()
    }

    fn take_malformed(&mut self) -> u64 {
        mem::take(&mut self.malformed) + self.side_band.take_malformed()
    }

    fn tables(&mut self) -> Option<&mut dyn KernelTables> {
        Some(self)
    }
}

impl KernelTables for KmodSource {
    fn batch(&self) -> Option<Batch> {
        self.waiting.front().map(|(batch, _)| *batch)
    }

    fn hand_out(&mut self, each: &mut dyn FnMut(&[Entry])) {
        let Some((_, words)) = self.waiting.pop_front() else { return };
        let mut pieces = EntryChunks::new(None, each);
        words.into_iter().for_each(|words| pieces.push(words));
        pieces.finish();
    }

    fn cut_batch(&mut self) {
        if self.waiting.iter().any(|(batch, _)| batch.ends) {
            return;
        }
        self.flushed = false;
        let asked_ns = now_ns();
        if let Err(error) = self.device.flush() {
            return self.failed.note("flushing", &error);
        }
        self.read_all();
        // The device returns all of a flush as soon as it is read. If the end is missing, the device is broken.
        self.malformed += u64::from(!self.flushed);
        self.push_batch(true, self.read_until_ns.max(asked_ns));
    }

    fn by_process(&mut self, executables: &[u64]) {
        let _ = self.device.keep_apart(executables);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A CPU that was only idle took one more sample after its number of samples was read.
    #[test]
    fn samples_and_idle_samples_may_be_read_at_different_times() {
        let status = |samples, idle| EventStatus { samples, idle, ..EventStatus::default() };
        assert_eq!([outside_idle(&status(10, 4)), outside_idle(&status(7, 8))], [6, 0]);
    }

    #[test]
    fn given_up_events_are_reported_and_started_again_at_intervals() {
        let (mut given_up, start) = (GivenUp::default(), Instant::now());
        let mut look = |count, second| {
            let now = start + Duration::from_secs(second);
            given_up.look(count, now);
            (given_up.warning.take().is_some(), given_up.is_due(now))
        };
        let reported =
            [look(0, 0), look(1, 20), look(1, 29), look(1, 30), look(2, 31), look(2, 40), look(0, 60)];
        let (reported, due): (Vec<_>, Vec<_>) = reported.into_iter().unzip();
        assert_eq!(reported, [false, true, false, false, true, false, false]);
        assert_eq!(due, [false, false, false, true, false, true, false]);
    }

    #[test]
    fn failures_are_counted_each_time_and_reported_once() {
        let mut failed = Failed::default();
        let mut fail = |errno| {
            failed.note("reading", &io::Error::from_raw_os_error(errno));
            (failed.unreported, failed.warning.take().is_some())
        };
        let (gone, no_memory) = (Errno::NODATA.raw_os_error(), Errno::NOMEM.raw_os_error());
        assert_eq!(
            [fail(gone), fail(gone), fail(no_memory), fail(gone)],
            [(1, true), (2, false), (3, true), (4, true)]
        );
    }
}
