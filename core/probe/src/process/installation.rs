//! The payload in a process: installs and removes it.
//!
//! Enters: a process. Leaves: its shared memory, the payload's code near the functions, and a switch ([`Installation::enable`]).
//! A thread of the process makes the system calls for that while it is stopped, and notices nothing.
//!
//! - The shared memory is a memfd that the process and Dwell map. A forked child does not have it.
//! - Code is mapped executable and never writable; Dwell writes it through its own mapping. A forked child keeps it.
//! - The *gate* is a page of its own whose first word is the address of the shared memory. A forked child reads 0 there
//!   (MADV_WIPEONFORK), so the payload does nothing in it.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    ptr,
    time::{Duration, Instant},
};

use dwell_profile::{Pid, Tid, VirtualAddress};

use super::{
    code_memory::CodeMemory,
    patcher::Change,
    payload,
    placement::{Journal, Placement},
    procfs::{Mapping, mappings},
    tracee::Tracee,
    tracer::{Bases, Stop, Tracer},
};
use crate::{patch::trampoline::Payload, shared_memory::SharedMemory};

/// Size of a page.
pub const PAGE: u64 = 4096;
/// Bytes of an area of code.
pub const AREA_BYTES: u64 = 1 << 20;
/// How many areas there may be.
pub const AREAS_MAX: u64 = 8;
/// How far from a function its trampoline may be, with room for moved branches.
const NEAR_BYTES: u64 = (1 << 31) - (64 << 20);
/// How long to wait for a thread that can make system calls.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of counters of blocks.
pub const COUNTERS_MAX: usize = 1 << 14;
/// Bytes of one thread's counters.
const COUNTERS_BYTES: usize = 8 * COUNTERS_MAX;
/// How many sets of counters there are: one for each thread, and one for threads that were not stopped yet.
const COUNTING_THREADS_MAX: usize = 256;
/// Bytes of all counters.
pub const COUNTERS_TABLE_BYTES: u64 = (COUNTERS_BYTES * COUNTING_THREADS_MAX) as u64;
const MADV_WIPEONFORK: u64 = 18;
/// A forked child does not have the memory.
pub const MADV_DONTFORK: u64 = 10;
/// The name of the memfd, and of the process that probes.
pub const NAME: &str = "dwell-probe";

/// Returns whether a mapping is of the memfd, so that the process has probes.
pub fn is_ours(mapping: &Mapping) -> bool {
    mapping.path.strip_prefix("/memfd:").is_some_and(|name| name.starts_with(NAME))
}

/// Returns whether a process's memory, which has something at this address, is gone: the process has ended or executed another
/// program since `memory` was opened.
pub fn is_gone(memory: &File, address: VirtualAddress) -> bool {
    !memory.read_at(&mut [0], address.0).is_ok_and(|bytes| bytes > 0)
}

/// Our mapping of an area of code.
struct Area {
    ours: *mut u8,
    used: usize,
}

/// The payload in a process.
pub struct Installation {
    pid: Pid,
    /// The memory that both map.
    pub shared: SharedMemory,
    /// The process's memory.
    pub memory: File,
    /// Where everything is.
    pub placement: Placement,
    /// Our mappings of the areas of `placement`.
    areas: Vec<Area>,
    /// The bases by which threads have counters of their own.
    pub bases: Bases,
    /// Room for tables in the shared memory.
    tables_bytes: usize,
    ns_per_tick: f64,
}

// SAFETY: the mappings of areas belong to this value.
unsafe impl Send for Installation {}
// SAFETY: areas are written through exclusive references only.
unsafe impl Sync for Installation {}

impl Installation {
    /// Maps the shared memory into the process.
    pub fn new(tracer: &mut Tracer, pid: Pid, tables_bytes: usize, ns_per_tick: f64) -> io::Result<Self> {
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        let syscall_at = find_syscall(&memory, &mappings(pid)?)?;
        let mut worker = Worker::begin(tracer, syscall_at)?;
        // The name is written below the stack's red zone, where nothing is alive.
        let name_at = (worker.tracee.registers()?.rsp - 1024) & !15;
        memory.write_all_at(format!("{NAME}\0").as_bytes(), name_at)?;
        let fd = worker.call(libc::SYS_memfd_create, [name_at, u64::from(libc::MFD_CLOEXEC), 0, 0, 0, 0])?;
        let installed = Self::map(&mut worker, pid, fd, memory, syscall_at, tables_bytes, ns_per_tick);
        let closed = worker.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        worker.end()?;
        closed?;
        installed
    }

    fn map(
        worker: &mut Worker,
        pid: Pid,
        fd: u64,
        memory: File,
        syscall_at: u64,
        tables_bytes: usize,
        ns_per_tick: f64,
    ) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))?;
        let bytes = SharedMemory::bytes_for(tables_bytes) as u64;
        file.set_len(bytes + AREAS_MAX * AREA_BYTES)?;
        let shared = SharedMemory::create(file, tables_bytes, ns_per_tick)?;
        let (read_write, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let whole = bytes + AREAS_MAX * AREA_BYTES;
        let shared_at = worker.map(0, whole, read_write, libc::MAP_SHARED | libc::MAP_NORESERVE, fd, 0)?;
        worker.call(libc::SYS_madvise, [shared_at, bytes, MADV_DONTFORK, 0, 0, 0])?;
        let gate = worker.map(0, PAGE, read_write, private, u64::MAX, 0)?;
        worker.call(libc::SYS_madvise, [gate, PAGE, MADV_WIPEONFORK, 0, 0, 0])?;
        let areas = Vec::new();
        let placement = Placement { shared_at, shared_bytes: bytes, gate, syscall_at, counters_at: 0, areas };
        let (areas, bases) = (Vec::new(), no_bases());
        let installation =
            Installation { pid, shared, memory, placement, areas, bases, tables_bytes, ns_per_tick };
        installation.write_journal(&[])?;
        Ok(installation)
    }

    /// Goes over to a process that was forked from this one, and has new memory open as this descriptor, mapped where this one has its
    /// own. The trampolines are not written any more.
    pub fn adopt(&mut self, pid: Pid, descriptor: i32) -> io::Result<()> {
        let options = || File::options().read(true).write(true).clone();
        let memory = options().open(format!("/proc/{pid}/mem"))?;
        let file = options().open(format!("/proc/{pid}/fd/{descriptor}"))?;
        self.shared = SharedMemory::create(file, self.tables_bytes, self.ns_per_tick)?;
        (self.pid, self.memory) = (pid, memory);
        Ok(())
    }

    /// Returns the file that the shared memory and the trampolines are mapped from, as mappings name it.
    pub fn family(&self) -> io::Result<String> {
        let mut mappings = mappings(self.pid)?.into_iter();
        let shared_at = VirtualAddress(self.placement.shared_at);
        let shared = mappings.find(|mapping| mapping.start == shared_at);
        shared.and_then(|mapping| mapping.file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns whether the program that it is in has ended or was replaced by another one.
    pub fn is_gone(&self) -> bool {
        is_gone(&self.memory, VirtualAddress(self.placement.gate))
    }

    /// Returns access to the process's code.
    pub fn code(&self) -> CodeMemory<'_> {
        CodeMemory::new(&self.memory, &self.placement, self.shared.file())
    }

    /// Lets the payload record.
    pub fn enable(&self) -> io::Result<()> {
        self.memory.write_all_at(&self.placement.shared_at.to_ne_bytes(), self.placement.gate)
    }

    /// Lets the payload do nothing.
    pub fn disable(&self) -> io::Result<()> {
        self.memory.write_all_at(&0u64.to_ne_bytes(), self.placement.gate)
    }

    /// Returns where the payload is for a function at `address`, and where its next trampoline of up to `bytes` bytes can be. Maps
    /// code near it if there is none; `None` if there is no room.
    pub fn place(
        &mut self,
        tracer: &mut Tracer,
        address: u64,
        bytes: usize,
    ) -> io::Result<Option<(Payload, u64)>> {
        let has_room = |(start, area): (&u64, &Area)| {
            start.abs_diff(address) < NEAR_BYTES && area.used + bytes <= AREA_BYTES as usize
        };
        let at = match self.placement.areas.iter().zip(&self.areas).position(has_room) {
            Some(at) => at,
            None if self.add_area(tracer, address)? => self.areas.len() - 1,
            None => return Ok(None),
        };
        let start = self.placement.areas[at];
        let payload = Payload {
            gate: self.placement.gate,
            enter: start + payload::ENTER_AT,
            leave: start + payload::LEAVE_AT,
        };
        Ok(Some((payload, start + self.areas[at].used as u64)))
    }

    /// Writes a trampoline at the place that [`Installation::place`] returned.
    pub fn write_trampoline(&mut self, address: u64, code: &[u8]) {
        let mut areas = self.placement.areas.iter().zip(&mut self.areas);
        let next = areas.find(|(start, area)| **start + area.used as u64 == address);
        let (_, area) = next.expect("a place for a trampoline");
        assert!(area.used + code.len() <= AREA_BYTES as usize);
        // SAFETY: within our mapping of the area.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), area.ours.add(area.used), code.len()) };
        area.used = (area.used + code.len()).next_multiple_of(16);
    }

    /// Maps the counters of blocks, below 2 GiB so that code can name them without a register. A forked child has its own.
    pub fn map_counters(&mut self, tracer: &mut Tracer) -> io::Result<()> {
        if self.placement.counters_at != 0 {
            return Ok(());
        }
        let mut worker = Worker::begin(tracer, self.placement.syscall_at)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_32BIT;
        let mapped = worker.map(0, COUNTERS_TABLE_BYTES, protection, flags, u64::MAX, 0).and_then(|at| {
            worker.call(libc::SYS_madvise, [at, COUNTERS_TABLE_BYTES, MADV_WIPEONFORK, 0, 0, 0])?;
            Ok(at)
        });
        worker.end()?;
        self.placement.counters_at = mapped?;
        Ok(())
    }

    /// Returns the sums over all threads of the first `number` counters of blocks.
    pub fn counters(&self, number: usize) -> io::Result<Vec<u64>> {
        let (mut sums, mut bytes) = (vec![0; number], vec![0; 8 * number]);
        if self.placement.counters_at == 0 {
            return Ok(sums);
        }
        for thread in 0..COUNTING_THREADS_MAX.min(1 + self.bases.of.len()) {
            let at = self.placement.counters_at + (thread * COUNTERS_BYTES) as u64;
            self.memory.read_exact_at(&mut bytes, at)?;
            for (sum, count) in sums.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *sum += u64::from_ne_bytes(*count);
            }
        }
        Ok(sums)
    }

    /// Records what must be undone in the process, beside these changes that remove what is patched.
    pub fn write_journal(&self, changes: &[Change]) -> io::Result<()> {
        let placement = self.placement.clone();
        let journal = Journal { controller: 0, placement, changes: changes.to_vec() };
        self.shared.write_journal(&journal.to_bytes()?);
        Ok(())
    }

    /// Maps code near an address. Returns `false` if there is no free memory, or if there are too many areas.
    fn add_area(&mut self, tracer: &mut Tracer, address: u64) -> io::Result<bool> {
        let number = self.areas.len() as u64;
        let place = free_place(&mappings(self.pid)?, address).filter(|_| number < AREAS_MAX);
        let Some(start) = place else { return Ok(false) };
        let offset = self.shared.len() as u64 + number * AREA_BYTES;
        // SAFETY: a fresh mapping of a part of the file, at an address of the kernel's choice.
        let ours = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let fd = self.shared.file().as_raw_fd();
            libc::mmap(
                ptr::null_mut(),
                AREA_BYTES as usize,
                protection,
                libc::MAP_SHARED,
                fd,
                offset as libc::off_t,
            )
        };
        if ours == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut area = Area { ours: ours.cast(), used: 0 };
        // SAFETY: the code is smaller than the area.
        unsafe { ptr::copy_nonoverlapping(payload::CODE.as_ptr(), area.ours, payload::CODE.len()) };
        area.used = payload::CODE.len().next_multiple_of(64);
        let mut worker = Worker::begin(tracer, self.placement.syscall_at)?;
        let mapped = self.map_code(&mut worker, start, offset);
        worker.end()?;
        mapped?;
        self.placement.areas.push(start);
        self.areas.push(area);
        Ok(true)
    }

    /// Moves a part of the shared mapping to `start`, which is reserved first, and makes it executable.
    fn map_code(&self, worker: &mut Worker, start: u64, offset: u64) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let reserved = worker.map(start, AREA_BYTES, libc::PROT_NONE, flags, u64::MAX, 0)?;
        if reserved != start {
            worker.call(libc::SYS_munmap, [reserved, AREA_BYTES, 0, 0, 0, 0])?;
            return Err(io::Error::from_raw_os_error(libc::EEXIST)); // An old kernel ignores the flag.
        }
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let from = self.placement.shared_at + offset;
        worker.call(libc::SYS_mremap, [from, AREA_BYTES, AREA_BYTES, flags, start, 0])?;
        let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        worker.call(libc::SYS_mprotect, [start, AREA_BYTES, protection, 0, 0, 0]).map(drop)
    }
}

fn no_bases() -> Bases {
    let (stride, number) = (COUNTERS_BYTES as u64, COUNTING_THREADS_MAX as u64);
    Bases { stride, number, of: BTreeMap::new(), is_foreign: false, is_over: false }
}

impl Drop for Installation {
    fn drop(&mut self) {
        for area in &self.areas {
            // SAFETY: mapped by us; no reference outlives this value.
            unsafe { libc::munmap(area.ours.cast(), AREA_BYTES as usize) };
        }
    }
}

/// A stopped thread that makes system calls for us.
pub struct Worker<'t> {
    tracer: &'t mut Tracer,
    tid: Tid,
    tracee: Tracee,
    stop: Stop,
    syscall_at: u64,
}

impl<'t> Worker<'t> {
    /// Stops a thread in user mode, or in a system call that does not notice.
    pub fn begin(tracer: &'t mut Tracer, syscall_at: u64) -> io::Result<Self> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if tracer.is_empty() {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            if !tracer.alarm_running()? {
                tracer.interrupt_quiet_call()?;
            }
            if let Some((tid, stop)) = tracer.next_stop(Duration::from_millis(2))? {
                let tracee = tracer.tracee(tid);
                return Ok(Worker { tracer, tid, tracee, stop, syscall_at });
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "no thread of it runs"))
    }

    /// Makes a system call.
    pub fn call(&mut self, number: i64, arguments: [u64; 6]) -> io::Result<u64> {
        self.tracee.system_call(self.syscall_at, number, arguments)
    }

    fn map(
        &mut self,
        at: u64,
        bytes: u64,
        protection: i32,
        flags: i32,
        fd: u64,
        offset: u64,
    ) -> io::Result<u64> {
        self.call(libc::SYS_mmap, [at, bytes, protection as u64, flags as u64, fd, offset])
    }

    /// Lets the thread continue as if nothing had been.
    pub fn end(self) -> io::Result<()> {
        if self.stop == Stop::InCall {
            // The kernel decides how the call goes on when it next looks for signals, so it must look again.
            self.tracee.interrupt()?;
            self.tracee.resume(0)?;
            self.tracee.wait_for_stop()?;
        }
        self.tracer.release(self.tid)
    }
}

/// Finds a `syscall` instruction in the vdso, or in any other code.
pub fn find_syscall(memory: &File, mappings: &[Mapping]) -> io::Result<u64> {
    let executable = mappings.iter().filter(|mapping| mapping.is_executable && mapping.path != "[vsyscall]");
    let (vdso, others): (Vec<&Mapping>, Vec<&Mapping>) =
        executable.partition(|mapping| mapping.path == "[vdso]");
    for mapping in vdso.into_iter().chain(others) {
        let mut code = vec![0; mapping.bytes() as usize];
        if memory.read_exact_at(&mut code, mapping.start.0).is_ok()
            && let Some(at) = code.windows(2).position(|bytes| bytes == [0x0f, 0x05])
        {
            return Ok(mapping.start.offset(at as u64).0);
        }
    }
    Err(io::Error::other("it has no system call instruction"))
}

/// Finds free memory for an area, as near below the mappings around `address` as possible: what is above them may grow.
fn free_place(mappings: &[Mapping], address: u64) -> Option<u64> {
    const LOWEST: u64 = 1 << 16;
    let mut end = address;
    let ranges = mappings.iter().rev().map(|mapping| (mapping.start.0, mapping.end.0));
    for (mapping_start, mapping_end) in ranges.filter(|(start, _)| *start <= address) {
        let start = end.checked_sub(AREA_BYTES)? & !(PAGE - 1);
        if start >= mapping_end + PAGE && start >= LOWEST {
            return (address - start < NEAR_BYTES).then_some(start);
        }
        // Not directly below: the lowest mapping of a library may be a stack's guard.
        end = mapping_start.saturating_sub(PAGE);
    }
    let start = end.checked_sub(AREA_BYTES)? & !(PAGE - 1);
    (start >= LOWEST && address - start < NEAR_BYTES).then_some(start)
}
