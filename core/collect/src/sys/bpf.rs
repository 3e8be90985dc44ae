//! The BPF program and the arrays that it shares with us.
//!
//! Enters: for which CPUs, and how large. Leaves: entries, registers and tallies. Never here: when to turn to the other
//! side, what an entry means.
//!
//! The tables have two sides. The kernel writes to one; the other is ours from [`grace_period`] after
//! [`BpfTables::turn`] on. Overflow buffers of the side in use change hands by their state: FULL (release A, by the
//! kernel) makes one ours, FREE (release B, by us) the kernel's.

use std::{
    io,
    mem::offset_of,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use aya::{
    Btf, Ebpf, EbpfLoader, include_bytes_aligned,
    maps::{Map, MapData, RingBuf},
    programs::{BtfTracePoint, ProgramError, perf_event},
};
use dwell_profile::CpuId;
use rustix::process::Resource;

use super::event::PerfEvent;
use crate::entries::{Entry, Pieces};

mod abi;
mod apart;
mod array;
mod error;

use abi::{Bucket, Control, Head, RawEntry, SPILL_FREE, SPILL_FULL, Spill};
use array::Array;
use error::{explain, missing};

pub use abi::{APART_MAX, EVENTS_MAX};
pub use error::BpfError;

#[cfg(target_arch = "x86_64")]
const OBJECT: &[u8] = include_bytes_aligned!("../../bpf/collect.x86_64.o");
#[cfg(not(target_arch = "x86_64"))]
const OBJECT: &[u8] = include_bytes_aligned!("../../bpf/collect.aarch64.o");

/// How large the tables are.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Base-2 logarithm of the number of buckets of a table.
    pub bucket_bits: u32,
    /// Entries of an overflow buffer.
    pub capacity: u32,
}

/// What registers are used for.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegistersWish {
    /// Those of every so many samples in user mode are handed out; 0: of none.
    pub every: u32,
    /// Of these events, a bit for each.
    pub events: u32,
    /// Samples of these events in the kernel, a bit for each, are counted once more where the user's code entered it.
    pub entered: u32,
}

/// What the program tells beside counting.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// The registers of a sample.
    Registers(SampledRegisters),
    /// A process has executed a program.
    Executed {
        /// CLOCK_MONOTONIC.
        time_ns: u64,
        /// Which process.
        pid: u32,
        /// The executable, as entries name it.
        executable: u64,
    },
}

/// The registers of a sample.
#[derive(Clone, Copy, Debug)]
pub struct SampledRegisters {
    /// The event's index.
    pub event: u8,
    /// CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The program counter.
    pub pc: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// As perf dumps them.
    pub registers: [u64; abi::REGISTERS],
}

/// What became of the samples of a CPU since its table was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTally {
    /// Samples that were to be counted, by event; the idle task's are not among them.
    pub samples: [u64; EVENTS_MAX],
    /// Of them, those whose place had an entry already.
    pub found: u64,
    /// Of them, those that were lost, by event.
    pub lost: [u64; EVENTS_MAX],
    /// Samples in the idle task.
    pub idle: u64,
    /// Registers that found no room.
    pub registers_lost: u64,
    /// Samples in the kernel that found no room to be counted once more, where the user's code entered it.
    pub entered_lost: u64,
}

/// What was in an overflow buffer, as the kernel wrote it: a third of what its entries take.
pub struct Spilled {
    cpu: u32,
    entries: Vec<RawEntry>,
}

impl Spilled {
    /// Hands the entries out.
    pub fn hand_out(&self, each: &mut dyn FnMut(&[Entry])) {
        let mut pieces = Pieces::new(Some(CpuId(self.cpu)), each);
        self.entries.iter().for_each(|entry| pieces.push(entry.words()));
        pieces.finish();
    }
}

/// The program, wherever it was loaded.
enum Program {
    /// Here.
    Here(Box<Ebpf>),
    /// In a process apart, which has ended: what is attached for each event, and what tells of executions, with its link.
    Apart { events: Vec<OwnedFd>, executed: Option<OwnedFd>, link: Option<OwnedFd> },
}

/// A loaded program, and tables for some CPUs.
pub struct BpfTables {
    program: Program,
    notices: RingBuf<MapData>,
    control: Array<Control>,
    heads: Array<Head>,
    buckets: OwnedFd,
    overflow: Array<RawEntry>,
    cpus: Vec<CpuId>,
    sizes: Sizes,
}

impl BpfTables {
    /// Loads the program with tables for these CPUs, to be attached to so many events.
    pub fn load(
        cpus: &[CpuId],
        sizes: Sizes,
        registers: RegistersWish,
        events: usize,
    ) -> Result<Self, BpfError> {
        let notices_bytes = (cpus.len() as u32 * NOTICES_BYTES).next_power_of_two();
        let load = || Self::load_with_types(cpus, sizes, registers, notices_bytes);
        if let Some(loaded) = Self::load_apart(cpus, sizes, events, load) {
            return Ok(loaded);
        }
        let loaded = load(); // Or why it cannot be.
        give_memory_back();
        loaded
    }

    /// Has a child load it: the kernel's types take more memory than all else. `None` where that could not be.
    fn load_apart(
        cpus: &[CpuId],
        sizes: Sizes,
        events: usize,
        load: impl FnOnce() -> Result<Self, BpfError>,
    ) -> Option<Self> {
        let made = apart::made_apart(|| {
            let mut tables = load().ok()?;
            let fds = tables.descriptors(events);
            std::mem::forget(tables); // They stay open.
            fds
        })?;
        let mut made = made.into_iter();
        let notices = MapData::from_fd(made.next()?).ok()?;
        let notices = RingBuf::try_from(Map::RingBuf(notices)).ok()?;
        let [control, heads, overflow, buckets] = [made.next()?, made.next()?, made.next()?, made.next()?];
        let attached: Vec<OwnedFd> = made.by_ref().take(events).collect();
        Some(BpfTables {
            program: Program::Apart { events: attached, executed: made.next(), link: None },
            notices,
            control: Array::map(control.as_fd(), 1).ok()?,
            heads: Array::map(heads.as_fd(), heads_of(cpus) as usize).ok()?,
            buckets,
            overflow: Array::map(overflow.as_fd(), cpus.len() * 4 * sizes.capacity as usize).ok()?,
            cpus: cpus.to_vec(),
            sizes,
        })
    }

    /// What another process needs to go on with: the maps, the program of each event, that of executions if there can be one.
    fn descriptors(&mut self, events: usize) -> Option<Vec<RawFd>> {
        let mut fds = vec![self.notices.as_fd().as_raw_fd()];
        let Program::Here(program) = &self.program else { return None };
        for name in ["control", "heads", "overflow"] {
            fds.push(array(program, name).ok()?.as_raw_fd());
        }
        fds.push(self.buckets.as_raw_fd());
        for index in 0..events {
            fds.push(self.event_program(index as u8).ok()?.as_raw_fd());
        }
        fds.extend(self.executed_program().ok().and_then(|p| Some(p.fd().ok()?.as_fd().as_raw_fd())));
        Some(fds)
    }

    /// Before Linux 5.15 programs are not told with which registers a task entered the kernel: then the rest serves.
    fn load_with_types(
        cpus: &[CpuId],
        sizes: Sizes,
        registers: RegistersWish,
        notices_bytes: u32,
    ) -> Result<Self, BpfError> {
        let load = |registers| Self::load_wished(cpus, sizes, registers, notices_bytes);
        match load(registers) {
            Err(_) if registers.entered != 0 => load(RegistersWish { entered: 0, ..registers }),
            done => done,
        }
    }

    fn load_wished(
        cpus: &[CpuId],
        sizes: Sizes,
        registers: RegistersWish,
        notices_bytes: u32,
    ) -> Result<Self, BpfError> {
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(BpfError::NoBtf);
        }
        allow_locked_memory();
        let slots = cpus.len() as u32;
        let heads = heads_of(cpus);
        let mut program = EbpfLoader::new()
            .override_global("dwell_bucket_bits", &sizes.bucket_bits, true)
            .override_global("dwell_capacity", &sizes.capacity, true)
            .override_global("dwell_charges_entered", &u32::from(registers.entered != 0), true)
            .map_max_entries("heads", heads)
            .map_max_entries("buckets", (slots * 2) << sizes.bucket_bits)
            .map_max_entries("overflow", slots * 4 * sizes.capacity)
            .map_max_entries("notices", notices_bytes)
            .load(OBJECT)
            .map_err(|error| explain(&error))?;
        let notices = program.take_map("notices").ok_or_else(|| missing("notices"))?;
        let notices = RingBuf::try_from(notices).map_err(|error| explain(&error))?;
        let mut tables = BpfTables {
            notices,
            control: map(&program, "control", 1)?,
            heads: map(&program, "heads", heads as usize)?,
            buckets: array(&program, "buckets")?
                .as_fd()
                .try_clone_to_owned()
                .map_err(|error| explain(&error))?,
            overflow: map(&program, "overflow", cpus.len() * 4 * sizes.capacity as usize)?,
            program: Program::Here(Box::new(program)),
            cpus: cpus.to_vec(),
            sizes,
        };
        tables.prepare(registers);
        if registers.entered != 0 {
            tables.event_program(0)?; // Or why the kernel refuses it.
        }
        Ok(tables)
    }

    fn prepare(&mut self, registers: RegistersWish) {
        for (slot, cpu) in (0..).zip(self.cpus.clone()) {
            for side in 0..2 {
                let head = Head { slot, ..Head::default() };
                self.heads.write(head_index(cpu.0, side), head);
            }
        }
        let control = Control {
            registers_every: registers.every,
            registers_events: registers.events,
            entered_events: registers.entered,
            ..Control::default()
        };
        self.control.write(0, control);
    }

    /// The CPUs that have tables here.
    pub fn cpus(&self) -> &[CpuId] {
        &self.cpus
    }

    /// Bytes that are shared with the kernel.
    pub fn bytes(&self) -> usize {
        let tables = (self.cpus.len() * 2 * size_of::<Bucket>()) << self.sizes.bucket_bits;
        self.heads.bytes() + tables + self.overflow.bytes()
    }

    /// Has the event of this index, on one of the CPUs, counted in the tables.
    pub fn attach(&mut self, event: &PerfEvent, index: u8) -> Result<(), BpfError> {
        if let Program::Apart { events, .. } = &self.program {
            let program = events.get(usize::from(index)).ok_or_else(|| missing(&format!("event{index}")))?;
            return event.set_bpf(program.as_fd()).map_err(|error| explain(&error));
        }
        let program = self.event_program(index)?;
        event.set_bpf(program).map_err(|error| explain(&error))
    }

    /// The program of an event, loaded here.
    fn event_program(&mut self, index: u8) -> Result<BorrowedFd<'_>, BpfError> {
        let name = format!("event{index}");
        let Program::Here(program) = &mut self.program else { return Err(missing(&name)) };
        let program: &mut perf_event::PerfEvent = program
            .program_mut(&name)
            .ok_or_else(|| missing(&name))?
            .try_into()
            .map_err(|error: ProgramError| explain(&error))?;
        if program.fd().is_err() {
            past_signals(|| program.load()).map_err(|error| explain(&error))?;
        }
        Ok(program.fd().map_err(|error| explain(&error))?.as_fd())
    }

    /// Readable when an overflow buffer has become full.
    pub fn full_fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }

    /// Keeps the processes of these executables apart, the first [`APART_MAX`].
    pub fn keep_apart(&mut self, tags: &[u64]) {
        let mut control = self.control.read(0);
        let count = tags.len().min(APART_MAX);
        control.apart = [0; APART_MAX];
        control.apart[..count].copy_from_slice(&tags[..count]);
        control.apart_count = count as u32;
        self.control.write(0, control);
    }

    /// Hands out the registers of one in so many samples from now on.
    pub fn set_registers_every(&mut self, every: u32) {
        let mut control = self.control.read(0);
        control.registers_every = every;
        self.control.write(0, control);
    }

    /// Has the kernel write to the other side from now on. What it wrote to is ours after a [`grace_period`].
    pub fn turn(&mut self) {
        let side = 1 - self.side();
        let word = self.control.field_u32(0, offset_of!(Control, side));
        word.store(side, Ordering::SeqCst);
    }

    fn side(&self) -> u32 {
        self.control.read(0).side & 1
    }

    /// Takes the overflow buffers that are full on the side in use.
    pub fn take_full(&mut self, full: &mut Vec<Spilled>) {
        let side = self.side();
        for slot in 0..self.cpus.len() {
            for buffer in 0..2 {
                if self.state(slot, side, buffer).load(Ordering::Acquire) == SPILL_FULL {
                    full.push(self.spilled(slot, side, buffer));
                    self.used(slot, side, buffer).store(0, Ordering::Relaxed);
                    // B: the entries are copied out before the kernel may overwrite them.
                    self.state(slot, side, buffer).store(SPILL_FREE, Ordering::Release);
                }
            }
        }
    }

    /// Takes all entries of the side that is not in use and leaves it empty. Only after a [`grace_period`].
    pub fn take_idle_side(&mut self, each: &mut dyn FnMut(&[Entry])) {
        let side = 1 - self.side();
        for slot in 0..self.cpus.len() {
            let mut pieces = Pieces::new(Some(CpuId((self.cpus[slot]).0)), each);
            for buffer in 0..2 {
                self.spilled(slot, side, buffer).entries.iter().for_each(|entry| pieces.push(entry.words()));
            }
            self.take_table(slot, side, &mut pieces);
            let index = head_index((self.cpus[slot]).0, side);
            let head = self.heads.read(index);
            let waiting = head.waiting.iter().take(head.waiting_count as usize);
            waiting.for_each(|entry| pieces.push(entry.words()));
            pieces.finish();
            // Word by word: the numbers beside them are the program's, which may still be running where no barrier reaches.
            self.heads.field_u32(index, offset_of!(Head, waiting_count)).store(0, Ordering::Relaxed);
            for offset in (0..size_of::<Spill>()).step_by(4) {
                self.spill(slot, side, offset).store(0, Ordering::Relaxed);
            }
        }
    }

    fn spilled(&self, slot: usize, side: u32, buffer: usize) -> Spilled {
        let capacity = self.sizes.capacity as usize;
        let first = ((slot * 2 + side as usize) * 2 + buffer) * capacity;
        let used = (self.used(slot, side, buffer).load(Ordering::Relaxed) as usize).min(capacity);
        let entries = (first..first + used).map(|index| self.overflow.read(index)).collect();
        Spilled { cpu: (self.cpus[slot]).0, entries }
    }

    fn take_table(&mut self, slot: usize, side: u32, pieces: &mut Pieces<'_>) {
        // What cannot be mapped stays in the table and comes with the next turn.
        let Ok(mut buckets) = self.buckets(slot, side) else { return };
        for index in 0..1 << self.sizes.bucket_bits {
            if buckets.read_first_place(index) == 0 {
                continue; // New entries push the others back: the first is free only if all are.
            }
            buckets.read(index).entries.iter().for_each(|entry| pieces.push(entry.words()));
            buckets.write(index, Bucket::default());
        }
    }

    /// A table, mapped while it is looked at: megabytes, which nobody needs between two turns.
    fn buckets(&self, slot: usize, side: u32) -> io::Result<Array<Bucket>> {
        let first = (slot * 2 + side as usize) << self.sizes.bucket_bits;
        Array::map_from(self.buckets.as_fd(), first, 1 << self.sizes.bucket_bits)
    }

    fn state(&self, slot: usize, side: u32, buffer: usize) -> &AtomicU32 {
        self.spill(slot, side, offset_of!(Spill, state) + 4 * buffer)
    }

    fn used(&self, slot: usize, side: u32, buffer: usize) -> &AtomicU32 {
        self.spill(slot, side, offset_of!(Spill, used) + 4 * buffer)
    }

    fn spill(&self, slot: usize, side: u32, offset: usize) -> &AtomicU32 {
        self.heads.field_u32(head_index((self.cpus[slot]).0, side), offset_of!(Head, spill) + offset)
    }

    /// Hands out what the program told, in its order.
    pub fn take_notices(&mut self, each: &mut dyn FnMut(Notice)) {
        while let Some(item) = self.notices.next() {
            if let Some(notice) = Notice::parse(&item) {
                each(notice);
            }
        }
    }

    /// Has the program tell of executions from now on; from one of several tables it suffices.
    pub fn tell_executions(&mut self) -> Result<(), BpfError> {
        if let Program::Apart { executed, link, .. } = &mut self.program {
            let executed = executed.as_ref().ok_or_else(|| missing("executed"))?;
            *link = Some(apart::attach_to_tracepoint(executed).map_err(|error| explain(&error))?);
            return Ok(());
        }
        let attached = self
            .executed_program()
            .and_then(|program| program.attach().map(|_| ()).map_err(|error| explain(&error)));
        give_memory_back();
        attached
    }

    /// The program that tells of executions, loaded here.
    fn executed_program(&mut self) -> Result<&mut BtfTracePoint, BpfError> {
        let Program::Here(program) = &mut self.program else { return Err(missing("executed")) };
        let btf = Btf::from_sys_fs().map_err(|error| explain(&error))?;
        let program: &mut BtfTracePoint = program
            .program_mut("executed")
            .ok_or_else(|| missing("executed"))?
            .try_into()
            .map_err(|error: ProgramError| explain(&error))?;
        program.load("sched_process_exec", &btf).map_err(|error| explain(&error))?;
        Ok(program)
    }

    /// Whether samples in the kernel are counted once more, where the user's code entered it.
    pub fn charges_entered(&self) -> bool {
        self.control.read(0).entered_events != 0
    }

    /// Executions that [`BpfTables::tell_executions`] asked for and that found no room.
    pub fn executions_lost(&self) -> u64 {
        self.heads.read(0).executions_lost
    }

    /// What became of the samples of each CPU.
    pub fn tallies(&self) -> impl Iterator<Item = (CpuId, CpuTally)> {
        self.cpus.iter().map(|cpu| {
            let mut tally = CpuTally::default();
            for side in 0..2 {
                let head = self.heads.read(head_index(cpu.0, side));
                tally.found += head.found;
                tally.idle += head.idle;
                tally.registers_lost += head.registers_lost;
                tally.entered_lost += head.entered_lost;
                tally.samples.iter_mut().zip(head.samples).for_each(|(sum, samples)| *sum += samples);
                tally.lost.iter_mut().zip(head.lost).for_each(|(sum, lost)| *sum += lost);
            }
            (*cpu, tally)
        })
    }
}

/// Of each CPU: room for the registers of two seconds or more, and more of later ones. Half full of executions, it wakes us up.
const NOTICES_BYTES: u32 = 64 << 10;

/// Places of heads, of all CPUs up to the last of these.
fn heads_of(cpus: &[CpuId]) -> u32 {
    2 * (cpus.iter().max().map_or(0, |cpu| cpu.0) + 1)
}

fn head_index(cpu: u32, side: u32) -> usize {
    (cpu * 2 + side) as usize
}

/// Waits until every program that runs now has ended, wherever. Programs run inside a critical section of RCU, for whose
/// end the kernel waits here.
pub fn grace_period() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: takes no pointers.
    let waited = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if waited != 0 {
        // With tickless CPUs the kernel refuses. No program takes a thousandth of that, unless a hypervisor pauses it.
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The kernel's types, which only loading needs, take tens of megabytes while they are read; the allocator would keep them.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: releases free memory alone.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Before Linux 5.11 maps count as locked memory.
fn allow_locked_memory() {
    let all = rustix::process::Rlimit { current: None, maximum: None };
    let _ = rustix::process::setrlimit(Resource::Memlock, all); // Where it matters and fails, loading says so.
}

fn map<T: abi::Plain>(program: &Ebpf, name: &str, elements: usize) -> Result<Array<T>, BpfError> {
    Array::map(array(program, name)?, elements).map_err(|error| explain(&error))
}

fn array<'p>(program: &'p Ebpf, name: &str) -> Result<BorrowedFd<'p>, BpfError> {
    match program.map(name) {
        Some(Map::Array(data)) => Ok(data.fd().as_fd()),
        _ => Err(missing(name)),
    }
}

/// Loads a program. The kernel gives up with EAGAIN while it checks one if a signal arrives.
fn past_signals(mut load: impl FnMut() -> Result<(), ProgramError>) -> Result<(), ProgramError> {
    const TRIES_MAX: usize = 5;
    let was_disturbed = |error: &ProgramError| match error {
        ProgramError::LoadError { io_error, .. } => io_error.kind() == std::io::ErrorKind::WouldBlock,
        _ => false,
    };
    for _ in 1..TRIES_MAX {
        match load() {
            Err(error) if was_disturbed(&error) => {}
            done => return done,
        }
    }
    load()
}

#[cfg(test)]
pub mod tests;
