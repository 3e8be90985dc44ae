//! The BPF program and the arrays that it shares with us.
//!
//! Enters: the CPUs, and the sizes of the tables. Leaves: entries, registers and tallies. Never here: when to switch to the
//! other side, what an entry means.
//!
//! The tables have two sides. The kernel writes to one; the other is ours once a [`grace_period`] has passed after
//! [`BpfTables::turn`]. Overflow buffers of the side in use change owner by their state: FULL (release A, by the kernel)
//! makes one ours, FREE (release B, by us) returns it to the kernel.

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
use dwell_profile::{CpuId, VirtualAddress};
use rustix::process::Resource;

use super::event::PerfEvent;
use crate::entries::{Entry, EntryChunks};

mod abi;
mod array;
mod child_loader;
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

/// Sizes of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Base-2 logarithm of the number of buckets of a table.
    pub bucket_bits: u32,
    /// Entries of an overflow buffer.
    pub capacity: u32,
}

/// Which registers are sampled, and for what.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegisterSampling {
    /// The registers of one in this many samples in user mode are handed out; 0: none.
    pub every: u32,
    /// The events whose registers are handed out, one bit for each.
    pub events: u32,
    /// The events whose samples in the kernel are counted a second time where user code entered it, one bit for each.
    pub entered: u32,
}

/// A report of the program beside the counts.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// The registers of a sample.
    Registers(SampledRegisters),
    /// A process has executed a program.
    Executed {
        /// CLOCK_MONOTONIC in ns.
        time_ns: u64,
        /// The process.
        pid: u32,
        /// The executable, in the form in which entries name it.
        executable: u64,
    },
}

/// The registers of a sample.
#[derive(Clone, Copy, Debug)]
pub struct SampledRegisters {
    /// The event's index.
    pub event: u8,
    /// CLOCK_MONOTONIC in ns.
    pub time_ns: u64,
    /// The program counter.
    pub pc: VirtualAddress,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The registers, in perf's order.
    pub registers: [u64; abi::REGISTERS],
}

/// Statistics of the samples of a CPU since its table was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTally {
    /// Samples to be counted, by event, without those in the idle task.
    pub samples: [u64; EVENTS_MAX],
    /// Number of them whose place already had an entry.
    pub found: u64,
    /// Number of them that were lost, by event.
    pub lost: [u64; EVENTS_MAX],
    /// Samples in the idle task.
    pub idle: u64,
    /// Samples whose registers found no room.
    pub registers_lost: u64,
    /// Samples in the kernel that found no room to be counted a second time, at the place where user code entered it.
    pub entered_lost: u64,
}

/// The content of an overflow buffer as the kernel wrote it. It takes a third of the memory of decoded entries.
pub struct Spilled {
    cpu: u32,
    entries: Vec<RawEntry>,
}

impl Spilled {
    /// Hands out the decoded entries.
    pub fn hand_out(&self, each: &mut dyn FnMut(&[Entry])) {
        let mut pieces = EntryChunks::new(Some(CpuId(self.cpu)), each);
        self.entries.iter().for_each(|entry| pieces.push(entry.words()));
        pieces.finish();
    }
}

/// The loaded program, depending on the process that loaded it.
enum Program {
    /// The program was loaded by this process.
    Here(Box<Ebpf>),
    /// The programs were loaded by a child process that has ended: the one to attach to each event, and the one that reports
    /// executions, with its link.
    InChild { events: Vec<OwnedFd>, executed: Option<OwnedFd>, link: Option<OwnedFd> },
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
    /// Loads the program with tables for these CPUs, to be attached to `events` events.
    pub fn load(
        cpus: &[CpuId],
        sizes: Sizes,
        registers: RegisterSampling,
        events: usize,
    ) -> Result<Self, BpfError> {
        let notices_bytes = (cpus.len() as u32 * NOTICES_BYTES).next_power_of_two();
        let load = || Self::load_with_types(cpus, sizes, registers, notices_bytes);
        if let Some(loaded) = Self::load_apart(cpus, sizes, events, load) {
            return Ok(loaded);
        }
        let loaded = load(); // An error is returned to the caller.
        give_memory_back();
        loaded
    }

    /// Makes a child process load the program, because the kernel's types take more memory than all else. Returns `None` if
    /// that fails.
    fn load_apart(
        cpus: &[CpuId],
        sizes: Sizes,
        events: usize,
        load: impl FnOnce() -> Result<Self, BpfError>,
    ) -> Option<Self> {
        let made = child_loader::load_in_child(|| {
            let mut tables = load().ok()?;
            let fds = tables.descriptors(events);
            std::mem::forget(tables); // The descriptors must stay open.
            fds
        })?;
        let mut made = made.into_iter();
        let notices = MapData::from_fd(made.next()?).ok()?;
        let notices = RingBuf::try_from(Map::RingBuf(notices)).ok()?;
        let [control, heads, overflow, buckets] = [made.next()?, made.next()?, made.next()?, made.next()?];
        let attached: Vec<OwnedFd> = made.by_ref().take(events).collect();
        Some(BpfTables {
            program: Program::InChild { events: attached, executed: made.next(), link: None },
            notices,
            control: Array::map(control.as_fd(), 1).ok()?,
            heads: Array::map(heads.as_fd(), heads_of(cpus) as usize).ok()?,
            buckets,
            overflow: Array::map(overflow.as_fd(), cpus.len() * 4 * sizes.capacity as usize).ok()?,
            cpus: cpus.to_vec(),
            sizes,
        })
    }

    /// Returns the descriptors that another process needs: the maps, the program of each event, and the one for executions
    /// if there is one.
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

    /// Loads the program with what this kernel's types permit. Before Linux 5.15 programs cannot get the registers with
    /// which a task entered the kernel; then the program works without them.
    fn load_with_types(
        cpus: &[CpuId],
        sizes: Sizes,
        registers: RegisterSampling,
        notices_bytes: u32,
    ) -> Result<Self, BpfError> {
        let load = |registers| Self::load_wished(cpus, sizes, registers, notices_bytes);
        match load(registers) {
            Err(_) if registers.entered != 0 => load(RegisterSampling { entered: 0, ..registers }),
            done => done,
        }
    }

    fn load_wished(
        cpus: &[CpuId],
        sizes: Sizes,
        registers: RegisterSampling,
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
            tables.event_program(0)?; // Returns the kernel's reason if it refuses the program.
        }
        Ok(tables)
    }

    fn prepare(&mut self, registers: RegisterSampling) {
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

    /// Returns the CPUs that have tables here.
    pub fn cpus(&self) -> &[CpuId] {
        &self.cpus
    }

    /// Returns the number of bytes that are shared with the kernel.
    pub fn bytes(&self) -> usize {
        let tables = (self.cpus.len() * 2 * size_of::<Bucket>()) << self.sizes.bucket_bits;
        self.heads.bytes() + tables + self.overflow.bytes()
    }

    /// Counts the samples of an event on one of the CPUs in the tables, under this index.
    pub fn attach(&mut self, event: &PerfEvent, index: u8) -> Result<(), BpfError> {
        if let Program::InChild { events, .. } = &self.program {
            let program = events.get(usize::from(index)).ok_or_else(|| missing(&format!("event{index}")))?;
            return event.set_bpf(program.as_fd()).map_err(|error| explain(&error));
        }
        let program = self.event_program(index)?;
        event.set_bpf(program).map_err(|error| explain(&error))
    }

    /// Returns the program of an event, if it was loaded by this process.
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

    /// Returns a descriptor that becomes readable when an overflow buffer is full.
    pub fn full_fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }

    /// Sets the executables whose processes are kept apart; only the first [`APART_MAX`] are used.
    pub fn keep_apart(&mut self, tags: &[u64]) {
        let mut control = self.control.read(0);
        let count = tags.len().min(APART_MAX);
        control.apart = [0; APART_MAX];
        control.apart[..count].copy_from_slice(&tags[..count]);
        control.apart_count = count as u32;
        self.control.write(0, control);
    }

    /// Sets N such that the registers of one in N samples are handed out; 0: none.
    pub fn set_registers_every(&mut self, every: u32) {
        let mut control = self.control.read(0);
        control.registers_every = every;
        self.control.write(0, control);
    }

    /// Makes the kernel write to the other side from now on. The side that it wrote to is ours after a [`grace_period`].
    pub fn turn(&mut self) {
        let side = 1 - self.side();
        let word = self.control.field_u32(0, offset_of!(Control, side));
        word.store(side, Ordering::SeqCst);
    }

    fn side(&self) -> u32 {
        self.control.read(0).side & 1
    }

    /// Takes the full overflow buffers of the side in use.
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

    /// Takes all entries of the side that is not in use and empties it. Call it only after a [`grace_period`].
    pub fn take_idle_side(&mut self, each: &mut dyn FnMut(&[Entry])) {
        let side = 1 - self.side();
        for slot in 0..self.cpus.len() {
            let mut pieces = EntryChunks::new(Some(CpuId((self.cpus[slot]).0)), each);
            for buffer in 0..2 {
                self.spilled(slot, side, buffer).entries.iter().for_each(|entry| pieces.push(entry.words()));
            }
            self.take_table(slot, side, &mut pieces);
            let index = head_index((self.cpus[slot]).0, side);
            let head = self.heads.read(index);
            let waiting = head.waiting.iter().take(head.waiting_count as usize);
            waiting.for_each(|entry| pieces.push(entry.words()));
            pieces.finish();
            // The state is reset word by word: the numbers beside these fields belong to the program, which may still be
            // running where no barrier reaches.
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

    fn take_table(&mut self, slot: usize, side: u32, pieces: &mut EntryChunks<'_>) {
        // A table that cannot be mapped keeps its entries, which come with the next turn.
        let Ok(mut buckets) = self.buckets(slot, side) else { return };
        for index in 0..1 << self.sizes.bucket_bits {
            if buckets.read_first_place(index) == 0 {
                continue; // New entries push the others back, so the first is free only if all are.
            }
            buckets.read(index).entries.iter().for_each(|entry| pieces.push(entry.words()));
            buckets.write(index, Bucket::default());
        }
    }

    /// Maps a table while it is being read. Tables take megabytes, which are not needed between two turns.
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

    /// Hands out the program's notices, in their order.
    pub fn take_notices(&mut self, each: &mut dyn FnMut(Notice)) {
        while let Some(item) = self.notices.next() {
            if let Some(notice) = Notice::parse(&item) {
                each(notice);
            }
        }
    }

    /// Makes the program report executions from now on. If there are several tables, one of them suffices.
    pub fn report_executions(&mut self) -> Result<(), BpfError> {
        if let Program::InChild { executed, link, .. } = &mut self.program {
            let executed = executed.as_ref().ok_or_else(|| missing("executed"))?;
            *link = Some(child_loader::attach_to_tracepoint(executed).map_err(|error| explain(&error))?);
            return Ok(());
        }
        let attached = self
            .executed_program()
            .and_then(|program| program.attach().map(|_| ()).map_err(|error| explain(&error)));
        give_memory_back();
        attached
    }

    /// Returns the program that reports executions, if it was loaded by this process.
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

    /// Returns whether samples in the kernel are counted a second time where user code entered it.
    pub fn charges_entered(&self) -> bool {
        self.control.read(0).entered_events != 0
    }

    /// Returns the number of executions that [`BpfTables::report_executions`] requested but that found no room.
    pub fn executions_lost(&self) -> u64 {
        self.heads.read(0).executions_lost
    }

    /// Returns the statistics of each CPU's samples.
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

/// Bytes of the ring of notices for each CPU. They hold the registers of two seconds or more at the start, and of longer
/// later. When it is half full of executions, it wakes us.
const NOTICES_BYTES: u32 = 64 << 10;

/// Returns the number of heads for all CPUs up to the highest of these.
fn heads_of(cpus: &[CpuId]) -> u32 {
    2 * (cpus.iter().max().map_or(0, |cpu| cpu.0) + 1)
}

fn head_index(cpu: u32, side: u32) -> usize {
    (cpu * 2 + side) as usize
}

/// Waits until every program that is now running has ended, on all CPUs. Programs run inside an RCU read-side critical
/// section, and the kernel waits here for the end of those.
pub fn grace_period() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: takes no pointers.
    let waited = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if waited != 0 {
        // The kernel refuses on tickless CPUs. No program takes a thousandth of this time, unless a hypervisor pauses it.
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns free memory to the system. The kernel's types, which only loading needs, take tens of megabytes while they are
/// read, and the allocator would keep them.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: releases free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Raises the limit of locked memory: before Linux 5.11 maps count as locked memory.
fn allow_locked_memory() {
    let all = rustix::process::Rlimit { current: None, maximum: None };
    let _ = rustix::process::setrlimit(Resource::Memlock, all); // If it matters and fails, loading returns an error.
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

/// Loads a program, and retries: if a signal arrives while the kernel checks a program, the kernel gives up with EAGAIN.
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
