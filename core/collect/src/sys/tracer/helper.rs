//! The helper process that runs bursts (see the parent module).
//!
//! A burst stops the thread in user mode ([`halt`]), emulates it ([`copy`]) or single-steps it up to a system call, and
//! releases it. Each burst runs on a thread of its own, whose end releases any thread that could not be detached.
//! `PTRACE_O_EXITKILL` is never set.

mod calls;
mod clock_data;
mod copy;
mod files;
pub mod guard;
mod halt;
mod place;
mod sampler;
mod timed;
mod tracee;
mod writable;

use std::{io, mem, panic, ptr, thread};

use calls::{CallObserver, Tracepoints};
use copy::Remote;
use dwell_profile::{Pid, Tid};
use files::Files;
use place::Place;
use sampler::{Costs, Sampler};
use timed::Observer;
use tracee::{Stop, Tracee};
use writable::{Writable, slow_ns};

use super::{
    BURST_NS_MAX, BURSTS_MAX, Ending, FOLLOW_NS_MAX, How, REPEATS_MAX, RawFd, Reply, Request, SHORT_STEPS,
    STEPS_MAX, Shared, Slot,
};
use crate::{
    emulate::{Emulator, End, Note, Stay, memory::Memory},
    path::Path,
    random::Random,
    sys::{alarm::keep_switches_watched, clock::known_namespace_offset_ns},
};

/// Bytes of the stack of a burst's thread. Little is needed, because emulation is not recursive.
const STACK_BYTES: usize = 256 << 10;

/// Answers requests until the channel is closed.
pub fn serve(channel: RawFd, shared: *mut Shared) -> ! {
    let channel = set_up(channel, c"dwell-step");
    // Unwinding would continue into the code that forked.
    let _ = panic::catch_unwind(|| answer(channel, shared));
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(1) }
}

/// The emulator and its copies of memory, whose room is used for one followed thread after the other.
struct Follower {
    emulator: Emulator,
    memory: Memory<Remote>,
    /// Whether system calls ended bursts that were to be timed.
    makes_calls: bool,
    /// These are used to observe calls, once it was tried to find them.
    tracepoints: Option<Option<Tracepoints>>,
    /// This is what samples and page faults take of a thread's time; `None` if that is not known yet.
    costs: Option<Costs>,
    /// The files that the process read whose thread was timed last.
    files: Option<Files>,
}

impl Follower {
    fn new() -> io::Result<Follower> {
        let mut memory = Memory::new(Remote::nowhere());
        memory.map()?;
        keep_memory();
        Ok(Follower {
            emulator: Emulator::new()?,
            memory,
            makes_calls: false,
            tracepoints: None,
            costs: None,
            files: None,
        })
    }

    /// Finds out what it costs to observe a thread that is to be timed, once.
    fn prepare_to_time(&mut self) {
        self.costs.get_or_insert_with(|| Sampler::costs().unwrap_or_default());
        if self.makes_calls {
            self.tracepoints.get_or_insert_with(|| Tracepoints::find().ok());
        }
    }

    /// Returns what observes a thread that is to be timed.
    fn observer(&mut self, pid: Pid, tid: Tid) -> io::Result<Observer> {
        // Who looks for calls all the time needs a CPU of its own.
        let has_cpus = thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
        let tracepoints = self.tracepoints.flatten().filter(|_| has_cpus);
        let mut files =
            || self.files.take().filter(|files| files.are_of(pid)).unwrap_or_else(|| Files::of(pid));
        let calls = tracepoints.and_then(|tracepoints| CallObserver::open(tid, tracepoints, files()).ok());
        let (sampler, costs) = (Sampler::open(tid)?, self.costs.unwrap_or_default());
        Ok(Observer { sampler, costs, calls, mapped: Vec::new(), untimed: None, slow_ns: slow_ns(0) })
    }
}

/// Makes the allocator keep what it has, also when a thread ends: memory that is mapped anew costs page faults while a thread waits.
fn keep_memory() {
    #[cfg(target_env = "gnu")]
    for (option, value) in
        [(libc::M_ARENA_MAX, 1), (libc::M_TRIM_THRESHOLD, 64 << 20), (libc::M_MMAP_THRESHOLD, 64 << 20)]
    {
        // SAFETY: a call of the allocator that this process has.
        unsafe { libc::mallopt(option, value) };
    }
}

fn answer(channel: RawFd, shared: *mut Shared) -> ! {
    let mut follower: Option<Follower> = None;
    let mut switches = None;
    loop {
        // SAFETY: any bytes are a valid request; the kernel writes at most its size.
        let (read, request) = unsafe {
            let mut request: Request = mem::zeroed();
            let size = size_of::<Request>();
            (libc::recv(channel, (&raw mut request).cast(), size, 0), request)
        };
        if read < 0 && errno() == libc::EINTR {
            continue;
        }
        if read != size_of::<Request>() as isize {
            // SAFETY: ends this process without running anything of the parent's.
            unsafe { libc::_exit(0) }
        }
        if request.how != How::Step as u32 && follower.is_none() {
            follower = Follower::new().ok();
        }
        switches = switches.or_else(keep_switches_watched);
        // SAFETY: a mapping that both processes keep; until the reply we alone use it.
        let slots = unsafe { &mut (*shared).slots };
        let reply = Reply { number: request.number, bursts: bursts(&request, follower.as_mut(), slots) };
        // SAFETY: the reply is live and plain bytes.
        unsafe {
            let size = size_of::<Reply>();
            libc::send(channel, (&raw const reply).cast(), size, libc::MSG_NOSIGNAL);
        }
    }
}

/// Blocks signals, closes every descriptor except the channel, and gives this process a name and a process group of its own. Returns
/// the channel, which may have another number. Standard error leads nowhere: the message of a panic would only disturb, and its
/// hook cannot be replaced, since another thread may have had the hook's lock when this process was forked.
///
/// It does not get a session of its own. The kernel schedules each session as a group ("autogroup"), and on a saturated
/// machine a group of threads that wait and wake very often can keep another group from its CPU for seconds (13 s were
/// measured on Linux 6.18, for a process that only slept a millisecond at a time). Meanwhile a thread that we had stopped
/// would not run.
fn set_up(channel: RawFd, name: &std::ffi::CStr) -> RawFd {
    // SAFETY: system calls on values that live here. Closing every other descriptor is sound, since nothing of the parent's
    // that owns one runs in this process any more.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        let channel = libc::fcntl(channel, libc::F_DUPFD_CLOEXEC, 3);
        if channel < 0 {
            libc::_exit(1);
        }
        let number = channel as libc::c_uint;
        libc::syscall(libc::SYS_close_range, 0 as libc::c_uint, number - 1, 0);
        libc::syscall(libc::SYS_close_range, number + 1, libc::c_uint::MAX, 0);
        for standard in 0..3 {
            if libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) != standard {
                break;
            }
        }
        channel
    }
}

/// Runs the requested bursts, each into its own slot. Returns their number.
fn bursts(request: &Request, mut follower: Option<&mut Follower>, slots: &mut [Slot; BURSTS_MAX]) -> u32 {
    let wanted = if follower.is_some() { request.bursts.clamp(1, BURSTS_MAX as u32) } else { 1 };
    if let Some(follower) = follower.as_mut().filter(|_| request.how == How::Time as u32) {
        follower.prepare_to_time();
    }
    let mut random = Random::new(request.seed);
    for slot in slots.iter_mut().take(wanted as usize) {
        let mean = request.delay_ns as f64;
        sleep(random.delay(mean).min(8.0 * mean) as u64);
        let follower = follower.as_deref_mut();
        thread::scope(|scope| {
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            let started = builder.spawn_scoped(scope, || burst(request, follower, slot));
            started.expect("a thread for each burst").join().expect("a burst does not panic");
        });
    }
    wanted
}

fn burst(request: &Request, mut follower: Option<&mut Follower>, slot: &mut Slot) {
    (slot.pcs, slot.transfers, slot.made, slot.steps) = (0, 0, 0, 0);
    (slot.beside_ns, slot.timed_ns, slot.untimed) = (0, 0, Ending::Complete as u32);
    let is_to_time = request.how == How::Time as u32;
    let is_follow = request.how == How::Follow as u32 || is_to_time;
    let is_followed = follower.is_some() && (is_follow || request.how == How::FollowOrStep as u32);
    slot.is_followed = u32::from(is_followed);
    slot.begin_ns = now_ns();
    let cpu_begin_ns = time_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    let ending = if is_follow && follower.is_none() {
        Ending::CannotFollow
    } else {
        // The thread need not wait for that.
        let can_time = is_to_time && follower.as_ref().is_some_and(|follower| follower.emulator.can_find());
        let observer = follower
            .as_mut()
            .filter(|_| can_time)
            .and_then(|follower| follower.observer(request.pid, request.tid).ok());
        if is_to_time && observer.is_none() {
            slot.untimed = if can_time { Ending::NotPermitted } else { Ending::CannotFollow } as u32;
        }
        let writable = observer.as_ref().and_then(|_| Writable::of(request.tid.0 as libc::pid_t));
        slot.beside_ns = time_ns(libc::CLOCK_THREAD_CPUTIME_ID) - cpu_begin_ns;
        match halt::halt(request.pid, request.tid) {
            Ok(tracee) => {
                let follower = follower.filter(|_| request.how != How::Step as u32);
                Burst { tracee, slot, request, observer, writable }.run(follower)
            }
            Err(refusal) => refusal,
        }
    };
    slot.ending = ending as u32;
    slot.end_ns = now_ns();
    let cpu_ns = time_ns(libc::CLOCK_THREAD_CPUTIME_ID) - cpu_begin_ns;
    slot.cost_ns =
        if is_followed { cpu_ns.saturating_sub(slot.beside_ns) } else { slot.end_ns - slot.begin_ns };
}

/// A burst in progress: the thread is stopped in user mode.
struct Burst<'s> {
    tracee: Tracee,
    slot: &'s mut Slot,
    request: &'s Request,
    /// If the burst is to be timed.
    observer: Option<Observer>,
    /// The memory that the thread can change; `None` if that is too much to be copied.
    writable: Option<Writable>,
}

/// Why a burst is over, and the signal that detaching delivers (0: none).
struct Over(Ending, libc::c_int);

/// The kind of the next instruction.
enum Next {
    Plain,
    SystemCall,
    /// It would show the trap flag to the program, or enter the kernel in another way.
    Unsteppable,
}

impl Burst<'_> {
    fn run(mut self, follower: Option<&mut Follower>) -> Ending {
        if let Some(follower) = follower {
            return self.emulate(follower);
        }
        let Over(ending, signal) = self.step().err().unwrap_or(Over(Ending::Complete, 0));
        self.tracee.detach(signal);
        ending
    }

    /// Computes the next steps, and releases the thread. It stays where it is, unless it is to execute them as well.
    fn emulate(mut self, follower: &mut Follower) -> Ending {
        let stopped = halt::Thread { pid: self.request.pid, tid: self.request.tid };
        let place = stopped.cpu().and_then(Place::take);
        let mut thread = match copy::thread(self.tracee.tid(), &mut follower.memory) {
            Ok(thread) => thread,
            Err(ending) => {
                self.tracee.detach(0);
                return ending;
            }
        };
        let is_checked = self.request.how == How::Check as u32;
        let (slot, cpu_ns_max) = (&mut *self.slot, self.request.cpu_ns_max);
        let begin_ns = now_ns();
        let is_late = || {
            let elapsed_ns = now_ns() - begin_ns;
            // This thread runs one burst. Its CPU time costs a system call, which most bursts are too short for.
            elapsed_ns > cpu_ns_max
                && (elapsed_ns > FOLLOW_NS_MAX || time_ns(libc::CLOCK_THREAD_CPUTIME_ID) > cpu_ns_max)
        };
        let (observer, emulator) = (self.observer.take(), &mut follower.emulator);
        let writable = self.writable.take().filter(|_| observer.is_some()).and_then(Writable::now);
        let (stay, steps_max) = match &writable {
            Some(_) => (Stay::Copied, 0),
            None if observer.is_some() => (Stay::Short, SHORT_STEPS),
            None => (Stay::Whole, self.request.steps_max as usize),
        };
        emulator.begin(&mut thread, stay);
        if let Some(writable) = &writable {
            thread.memory.read_ahead(&writable.pages);
            thread.memory.add_zeros(&writable.zeros);
        }
        let mut pass = |pcs: &[u64]| pcs.iter().for_each(|pc| note(slot, *pc));
        let wanted: Note = if is_checked { Some(&mut pass) } else { None };
        let steps = (steps_max, self.request.steps_before as usize);
        let (end, last) = emulator.run(&mut thread, steps, wanted, is_late);
        if is_checked {
            note(slot, last);
        }
        let ending = Ending::from(end);
        let Over(ending, signal) =
            if is_checked { self.check().err().unwrap_or(Over(ending, 0)) } else { Over(ending, 0) };
        let observer = observer.filter(|_| ending == Ending::Complete);
        let mut observer = observer.and_then(|mut observer| observer.start().ok().map(|()| observer));
        let mut heap_end = None;
        if let Some(observer) = &mut observer {
            let is_large = writable.as_ref().is_some_and(Writable::is_large);
            observer.untimed = is_large.then_some(Ending::TooMuchMemory);
            observer.slow_ns = slow_ns(writable.as_ref().map_or(0, |writable| writable.pages.len()));
            observer.mapped = writable.map(|writable| writable.files).unwrap_or_default();
            if stay == Stay::Short {
                emulator.let_go(&mut thread);
            }
            heap_end = observer.calls.as_ref().and_then(|_| stopped.heap_end());
        }
        place.iter().for_each(Place::leave);
        // The thread need not wait for the sums.
        self.tracee.detach(signal);
        drop(place);
        let slot = self.slot;
        slot.made = emulator.made() as u64;
        let is_stored = stay != Stay::Whole || store(slot, &emulator.path_to(last));
        if let Some(observer) = observer {
            follower.files = timed::time(emulator, &mut thread, observer, heap_end, slot);
        }
        let is_call = |ending: u32| ending == Ending::SystemCall as u32;
        follower.makes_calls |=
            stay != Stay::Whole && (ending == Ending::SystemCall || is_call(slot.untimed));
        follower.memory = thread.memory;
        if is_stored || slot.timed_ns > 0 { ending } else { Ending::TooManyTransfers }
    }

    /// Lets the thread execute the computed steps, and compares.
    fn check(&mut self) -> Result<(), Over> {
        for index in 1..self.slot.pcs as usize {
            let [before, after] = [self.slot.places[index - 1], self.slot.places[index]];
            let mut pc = before;
            // A string instruction stops after each repetition.
            for _ in 0..=REPEATS_MAX {
                pc = self.single_step()?;
                if pc != before || after == before {
                    break;
                }
            }
            if pc != after {
                self.slot.pcs = index as u32 + 1;
                return Err(Over(Ending::Differs, 0));
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Over> {
        let steps_max = (self.request.steps_max as usize).min(STEPS_MAX);
        let begin_ns = now_ns();
        let mut repeats = 0;
        let mut pc = self.tracee.pc().ok_or(Over(Ending::Exited, 0))?;
        note(self.slot, pc);
        while self.slot.pcs as usize <= steps_max {
            match self.next(pc) {
                Some(Next::Plain) => {}
                Some(Next::SystemCall) => return Err(Over(Ending::SystemCall, 0)),
                Some(Next::Unsteppable) | None => return Err(Over(Ending::Unsteppable, 0)),
            }
            let before = mem::replace(&mut pc, self.single_step()?);
            note(self.slot, pc);
            repeats = if pc == before { repeats + 1 } else { 0 };
            if repeats > REPEATS_MAX {
                return Err(Over(Ending::Repeating, 0));
            }
            if self.slot.pcs & 15 == 0 && now_ns() - begin_ns > BURST_NS_MAX {
                return Err(Over(Ending::Late, 0));
            }
        }
        Ok(())
    }

    /// Lets the thread execute one instruction. Returns the program counter after it.
    fn single_step(&self) -> Result<u64, Over> {
        match self.tracee.step() {
            Stop::Signal(libc::SIGTRAP) if self.tracee.is_step() => {
                self.tracee.pc().ok_or(Over(Ending::Exited, 0))
            }
            Stop::Signal(signal) => Err(Over(Ending::Signal, signal)),
            Stop::Group | Stop::Ours => Err(Over(Ending::Stopped, 0)),
            Stop::Ended => Err(Over(Ending::Exited, 0)),
        }
    }

    fn next(&self, pc: u64) -> Option<Next> {
        let bytes = self.tracee.peek_text(pc)?.to_le_bytes();
        // Prefixes for the operand size and REX may precede `pushf`.
        let opcode = bytes.iter().find(|b| **b != 0x66 && **b & 0xf0 != 0x40).copied()?;
        Some(match (bytes[0], bytes[1]) {
            (0x0f, 0x05) => Next::SystemCall,
            (0x0f, 0x34) | (0xcd, _) => Next::Unsteppable, // sysenter, int
            _ if opcode == 0x9c => Next::Unsteppable,      // pushf
            _ => Next::Plain,
        })
    }
}

/// Stores what counts. Returns false if there is no room for it.
fn store(slot: &mut Slot, path: &Path) -> bool {
    let Some(counts) = slot.counts.get_mut(..path.transfers.len()) else { return false };
    counts.copy_from_slice(&path.transfers);
    slot.transfers = path.transfers.len() as u32;
    (slot.first, slot.last, slot.steps) = (path.first, path.last, path.steps);
    true
}

impl From<End> for Ending {
    fn from(end: End) -> Ending {
        match end {
            End::Complete => Ending::Complete,
            End::SystemCall => Ending::SystemCall,
            End::Differs => Ending::Differs,
            End::Repeating => Ending::Repeating,
            End::Late => Ending::Late,
            End::Unknown => Ending::Unfollowable,
            End::Unreadable => Ending::Unreadable,
            End::TooMuchMemory => Ending::TooMuchMemory,
            End::Fault => Ending::Fault,
        }
    }
}

fn note(slot: &mut Slot, pc: u64) {
    if let Some(place) = slot.places.get_mut(slot.pcs as usize) {
        *place = pc;
        slot.pcs += 1;
    }
}

fn sleep(ns: u64) {
    thread::sleep(std::time::Duration::from_nanos(ns));
}

fn now_ns() -> u64 {
    time_ns(libc::CLOCK_MONOTONIC).wrapping_sub(known_namespace_offset_ns() as u64)
}

fn time_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel (or the vdso) writes the live time.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

fn errno() -> i32 {
    // SAFETY: errno's place is valid for the thread's life.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}
