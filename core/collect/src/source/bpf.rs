//! The backend that counts samples in a BPF program: it samples whole machines at low cost.
//!
//! Enters: what to sample. Leaves: batches of entries; the side band, and some samples' registers, as timed records. The
//! perf events belong to a [`SideBand`] whose rings carry the side band only. Never here: memory shared with the kernel
//! (see [`crate::sys::bpf`]).
//!
//! A batch contains what the kernel wrote to one side of the tables; it is cut when the caller wants to store. In the
//! meantime, full overflow buffers are emptied in every round, each as a batch that does not end its interval, because the
//! table holds entries of the same time.

use std::{
    cell::RefCell,
    collections::VecDeque,
    mem,
    os::fd::BorrowedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use dwell_attribution::Interval;
use dwell_profile::{CpuId, Event, EventIndex, Pid, TableRecord, Tid};
use rustc_hash::FxHashMap;

use super::{
    Backend, Features, KernelTables, Source, SourceTally, Tasks, cpus::online_cpus, perf::Attach,
    side_band::SideBand,
};
use crate::{
    CollectError,
    entries::{Batch, Entry},
    loss::LossCause,
    registers::Registers,
    source::{
        events::EventConfig,
        merge::Merger,
        owned_record::{OwnedRecord, SideBandRecord},
        records::{Mode, Sample},
    },
    sys::{
        bpf::{
            BpfError, BpfTables, CpuTally, EVENTS_MAX, Notice, RegisterSampling, Sizes, Spilled, grace_period,
        },
        clock::now_ns,
        event::REGISTER_MASK,
        event_times::EventTimes,
    },
};

/// Interval between two drains of the side band and draws of periods. Urgent reports (a full buffer, a ring that is half
/// full, a request) end a wait earlier. Waking up more often would cost more than the work that there is.
const ROUND: Duration = Duration::from_millis(500);
/// The same interval after [`LATER`].
const ROUND_LATER: Duration = Duration::from_secs(2);
/// Time after the start at which [`ROUND_LATER`] applies. A run of some seconds needs every draw of a period and all
/// registers that it can get; a longer run does not.
const LATER: Duration = Duration::from_secs(20);
/// Time at the full rate that each of a CPU's two overflow buffers can hold, if no sample finds its entry.
const BUFFER_SECONDS: f64 = 1.0;
const BUFFER_ENTRIES_MIN: f64 = 1024.0;
const BUFFER_ENTRIES_MAX: f64 = 65536.0;
/// Samples per second of a CPU whose registers are handed out: enough for the branches of hot code, and cheap. Only samples
/// are chosen whose place had been sampled before.
const REGISTERS_HZ: f64 = 100.0;
/// After [`LATER`] the registers of only one in this many of these samples are handed out. They are used for shares, which a
/// change of the rate does not bias.
const REGISTERS_LATER: u32 = 4;

/// A source that samples with BPF: the tables, and the events that fill them.
pub struct BpfSource {
    side_band: SideBand,
    tables: Rc<RefCell<Vec<BpfTables>>>,
    configs: Vec<EventConfig>,
    registers: bool,
    /// The registers of one in this many samples are handed out, before [`LATER`].
    registers_every: u32,
    opened: Instant,
    /// Whether [`LATER`] has passed.
    later: bool,
    /// Time at which the side in use was empty.
    since_ns: u64,
    waiting: VecDeque<Waiting>,
    reported: FxHashMap<CpuId, CpuTally>,
    /// Executables whose processes are kept apart.
    apart: Vec<u64>,
}

/// Entries that wait to be handed out, in order of time.
enum Waiting {
    /// Entries of full overflow buffers.
    Full(Interval, Vec<Spilled>),
    /// The idle side of all tables.
    IdleSide(Interval),
}

impl BpfSource {
    /// Loads the program and opens the events, disabled.
    pub fn open(tasks: &Tasks, configs: &[EventConfig], registers: bool) -> Result<Self, CollectError> {
        if !matches!(tasks, Tasks::All) {
            return Err(lacks("it samples whole machines only; use perf for commands and processes"));
        }
        if configs.len() > EVENTS_MAX {
            return Err(lacks(&format!("it counts {EVENTS_MAX} events at most")));
        }
        let registers = registers && REGISTER_MASK != 0;
        let cpus = online_cpus()?;
        let tables = Rc::default();
        let attach = attach(&tables, &cpus, configs, registers);
        Ok(BpfSource {
            side_band: SideBand::open(configs, &cpus, attach)?,
            tables,
            configs: configs.to_vec(),
            registers,
            registers_every: registers_every(configs, &periods_of(configs)),
            opened: Instant::now(),
            later: false,
            since_ns: now_ns(),
            waiting: VecDeque::new(),
            reported: FxHashMap::default(),
            apart: Vec::new(),
        })
    }

    /// Copies the entries of full overflow buffers and returns the buffers to the kernel.
    fn empty_buffers(&mut self) {
        let mut full = Vec::new();
        self.tables.borrow_mut().iter_mut().for_each(|tables| tables.take_full(&mut full));
        if !full.is_empty() {
            let interval = Interval { since_ns: self.since_ns, until_ns: now_ns() };
            self.waiting.push_back(Waiting::Full(interval, full));
        }
    }

    /// Sets the number of samples with registers that these tables hand out now.
    fn set_registers(&self, tables: &mut BpfTables) {
        if self.registers {
            let rarely = if self.later { REGISTERS_LATER } else { 1 };
            tables.set_registers_every(self.registers_every.saturating_mul(rarely));
        }
    }

    /// Reports new losses to the merger, and new samples to the periods.
    fn report_tallies(&mut self, merger: &mut Merger<OwnedRecord>) {
        let tallies: Vec<(CpuId, CpuTally)> =
            self.tables.borrow().iter().flat_map(|t| t.tallies().collect::<Vec<_>>()).collect();
        for (cpu, tally) in tallies {
            let last = mem::replace(self.reported.entry(CpuId(cpu.0)).or_default(), tally);
            for event in 0..EVENTS_MAX {
                self.side_band.sampled(
                    CpuId(cpu.0),
                    EventIndex(event as u8),
                    tally.samples[event] - last.samples[event],
                );
                let records = tally.lost[event] - last.lost[event];
                if records > 0 {
                    let cause = LossCause::BuffersFull;
                    let side = SideBandRecord::Lost { event: Some(EventIndex(event as u8)), records, cause };
                    merger.push(now_ns(), OwnedRecord::SideBand(Box::new(side)));
                }
            }
        }
    }
}

/// Returns a function that attaches a sampled event to the tables of its CPU. It creates tables for all CPUs at the first
/// call, later for a CPU that came online.
fn attach(
    tables: &Rc<RefCell<Vec<BpfTables>>>,
    cpus: &[CpuId],
    configs: &[EventConfig],
    registers: bool,
) -> Attach {
    let (tables, cpus, events) = (Rc::clone(tables), cpus.to_vec(), configs.len());
    let sizes = sizes(cpus.len(), configs);
    let registers = if registers { register_sampling(configs) } else { RegisterSampling::default() };
    Box::new(move |event, index, cpu| {
        let mut tables = tables.borrow_mut();
        let failed = |error: BpfError| lacks(&error.to_string());
        if !tables.iter().any(|t| t.cpus().contains(&cpu)) {
            let wanted = if tables.is_empty() { &cpus[..] } else { &[cpu] };
            let mut made = BpfTables::load(wanted, sizes, registers, events).map_err(failed)?;
            if tables.is_empty() {
                // If the kernel lacks this tracepoint, executables are found from the processes themselves.
                let _ = made.report_executions();
            }
            tables.push(made);
        }
        let mut of_cpu = tables.iter_mut().filter(|t| t.cpus().contains(&cpu));
        of_cpu.next().map_or(Ok(()), |t| t.attach(event, index.0)).map_err(failed)
    })
}

fn lacks(why: &str) -> CollectError {
    CollectError::Backend { backend: Backend::Bpf, why: why.to_owned() }
}

/// Returns the sizes of the two tables of each CPU: 3 MiB on small machines, less on large ones, where they add up.
fn sizes(cpus: usize, configs: &[EventConfig]) -> Sizes {
    let bucket_bits = match cpus {
        0..=4 => 14,
        5..=32 => 13,
        _ => 12,
    };
    let entries = configs.iter().map(|p| p.rate_hz).sum::<f64>() * BUFFER_SECONDS;
    Sizes { bucket_bits, capacity: entries.clamp(BUFFER_ENTRIES_MIN, BUFFER_ENTRIES_MAX) as u32 }
}

/// Returns which events' registers are sampled. Directions of branches come from samples of time and instructions; the time
/// that user code spends in the kernel comes from samples of time.
fn register_sampling(configs: &[EventConfig]) -> RegisterSampling {
    let bits = |is_so: &dyn Fn(&EventConfig) -> bool| {
        (0..).zip(configs).filter(|(_, p)| is_so(p)).fold(0, |bits, (at, _)| bits | 1_u32 << at)
    };
    RegisterSampling {
        every: registers_every(configs, &periods_of(configs)),
        events: bits(&shows_branches),
        entered: bits(&|config| config.event.is_time()),
    }
}

fn shows_branches(config: &EventConfig) -> bool {
    (config.event.is_time() || config.event == Event::INSTRUCTIONS) && config.samples_registers()
}

/// Returns N such that the registers of one in N samples are handed out, with these periods.
fn registers_every(configs: &[EventConfig], periods: &[u64]) -> u32 {
    let telling = configs.iter().zip(periods).filter(|(config, _)| shows_branches(config));
    let rate_hz: f64 = telling.map(|(config, period)| config.rate_hz_at(*period)).sum();
    (rate_hz / REGISTERS_HZ).round().max(1.0) as u32
}

fn periods_of(configs: &[EventConfig]) -> Vec<u64> {
    configs.iter().map(|config| config.period).collect()
}

/// Converts a notice to an item, with its time.
pub fn timed(notice: &Notice) -> (u64, OwnedRecord) {
    match notice {
        Notice::Executed { time_ns, pid, executable } => (
            *time_ns,
            OwnedRecord::SideBand(Box::new(SideBandRecord::Executable { pid: Pid(*pid), id: *executable })),
        ),
        Notice::Registers(sampled) => {
            let (pc, pid, tid) = (sampled.pc, sampled.pid, sampled.tid);
            let registers = Some(Box::new(Registers::of_user(pc, &sampled.registers)));
            let sample = Sample { mode: Mode::User, pc, pid: Pid(pid), tid: Tid(tid), cpu: None, registers };
            (sampled.time_ns, OwnedRecord::Registers(EventIndex(sampled.event), sample))
        }
    }
}

impl Source for BpfSource {
    fn backend(&self) -> Backend {
        Backend::Bpf
    }

    fn features(&self) -> Features {
        let tables: usize = self.tables.borrow().iter().map(BpfTables::bytes).sum();
        let rings = self.side_band.features();
        Features { registers: self.registers, shared_bytes: rings.shared_bytes + tables, ..rings }
    }

    fn enable_side_band(&mut self) -> Result<(), CollectError> {
        self.side_band.enable_side_band()
    }

    fn enable(&mut self) -> Result<(), CollectError> {
        self.side_band.enable()
    }

    fn disable(&mut self) -> Result<(), CollectError> {
        self.side_band.disable()
    }

    fn round(&self) -> Duration {
        if self.later { ROUND_LATER } else { ROUND }
    }

    fn wait(&mut self, timeout: Duration, wake: Option<BorrowedFd<'_>>) {
        let tables = self.tables.borrow();
        let ends: Vec<_> = tables.iter().map(BpfTables::full_fd).chain(wake).collect();
        self.side_band.wait(timeout, &ends);
    }

    fn drain(&mut self, merger: &mut Merger<OwnedRecord>) -> u64 {
        let complete_ns = self.side_band.drain(merger);
        for tables in self.tables.borrow_mut().iter_mut() {
            tables.take_notices(&mut |notice| {
                let (time_ns, item) = timed(&notice);
                merger.push(time_ns, item);
            });
        }
        self.empty_buffers();
        self.report_tallies(merger);
        complete_ns
    }

    fn tend(&mut self, warn: &mut dyn FnMut(String)) {
        let (known, was_later) = (self.tables.borrow().len(), self.later);
        self.side_band.tend(warn);
        self.later = self.opened.elapsed() >= LATER;
        for (at, tables) in self.tables.borrow_mut().iter_mut().enumerate() {
            let is_new = at >= known; // A CPU that came online.
            if is_new {
                tables.keep_apart(&self.apart);
            }
            if is_new || self.later != was_later {
                self.set_registers(tables);
            }
        }
    }

    fn set_periods(&mut self, periods: &[u64]) {
        self.side_band.set_periods(periods);
        self.registers_every = registers_every(&self.configs, periods);
        self.tables.borrow_mut().iter_mut().for_each(|tables| self.set_registers(tables));
    }

    fn tally(&self) -> SourceTally {
        // Samples with call stacks come through rings.
        let (mut by_cpu, mut table) = (self.side_band.by_cpu(), TableRecord::default());
        let (mut idle, mut registers_lost, mut entered_lost) = (0, 0, 0);
        for (cpu, tally) in self.tables.borrow().iter().flat_map(|t| t.tallies().collect::<Vec<_>>()) {
            let sampled = (0..).zip(tally.samples).filter(|(_, samples)| *samples > 0);
            sampled.for_each(|(event, samples)| {
                *by_cpu.entry((EventIndex(event), cpu)).or_default() += samples;
            });
            table.samples += tally.samples.iter().sum::<u64>();
            table.found += tally.found;
            idle += tally.idle;
            registers_lost += tally.registers_lost;
            entered_lost += tally.entered_lost;
        }
        let charges_entered = self.tables.borrow().iter().any(BpfTables::charges_entered);
        let executions_lost = self.tables.borrow().iter().map(BpfTables::executions_lost).sum();
        SourceTally {
            by_cpu,
            table: Some(table),
            idle: Some(idle),
            registers_lost: Some(registers_lost),
            kernel_time_lost: charges_entered.then_some(entered_lost),
            executions_lost: Some(executions_lost),
            ..SourceTally::default()
        }
    }

    fn times(&mut self) -> Vec<EventTimes> {
        self.side_band.times()
    }

    fn take_malformed(&mut self) -> u64 {
        self.side_band.take_malformed()
    }

    fn tables(&mut self) -> Option<&mut dyn KernelTables> {
        Some(self)
    }
}

impl KernelTables for BpfSource {
    fn batch(&self) -> Option<Batch> {
        self.waiting.front().map(|waiting| match waiting {
            Waiting::Full(interval, _) => Batch { interval: *interval, ends: false },
            Waiting::IdleSide(interval) => Batch { interval: *interval, ends: true },
        })
    }

    fn hand_out(&mut self, each: &mut dyn FnMut(&[Entry])) {
        match self.waiting.pop_front() {
            Some(Waiting::Full(_, full)) => full.iter().for_each(|buffer| buffer.hand_out(each)),
            Some(Waiting::IdleSide(_)) => {
                self.tables.borrow_mut().iter_mut().for_each(|tables| tables.take_idle_side(each))
            }
            None => {}
        }
    }

    fn cut_batch(&mut self) {
        if self.waiting.iter().any(|w| matches!(w, Waiting::IdleSide(_))) {
            return;
        }
        self.empty_buffers();
        let next_since_ns = now_ns();
        self.tables.borrow_mut().iter_mut().for_each(BpfTables::turn);
        let interval =
            Interval { since_ns: mem::replace(&mut self.since_ns, next_since_ns), until_ns: now_ns() };
        grace_period();
        self.waiting.push_back(Waiting::IdleSide(interval));
    }

    fn by_process(&mut self, executables: &[u64]) {
        self.apart = executables.to_vec();
        self.tables.borrow_mut().iter_mut().for_each(|tables| tables.keep_apart(executables));
    }
}

#[cfg(test)]
mod tests;
