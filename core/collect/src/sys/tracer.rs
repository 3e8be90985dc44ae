//! Path bursts: a small helper process finds the next instructions of a thread; this module talks to it.
//!
//! Enters: a thread's id. Leaves: the program counters that it went or would go through, and why the burst ended. Never
//! here: which thread to choose, when, what the addresses mean. x86-64 only.
//!
//! There are two ways ([`How`]). Either the thread is stopped for a moment and *emulated* on copies of its registers and
//! memory ([`crate::emulate`]), or it is *single-stepped* by ptrace, which takes a hundred times as long. In both cases the
//! burst ends before the first system call, and the thread is stopped in user mode only (`helper/halt.rs`), so no call of
//! the program is ever interrupted.
//!
//! The helper is *a separate process*, because a thread whose tracer is killed during a single step keeps the trap flag and
//! dies of SIGTRAP (measured on Linux 6.18: kill -9 of the tracer ended the target). Whatever ends the collector, Ctrl-C or
//! `kill -9`, the helper finishes its burst (milliseconds), detaches, reads the end of its channel and exits. It has a name
//! and a process group of its own, so that no signal meant for the collector reaches it.
//!
//! The helper is forked, not executed, from a process that may have threads, so it takes no lock of theirs. It allocates
//! memory and creates threads, which glibc and musl permit after a fork. If it panics, it ends.

use std::{
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr,
    time::{Duration, Instant},
};

use dwell_profile::{Pid, Tid, VirtualAddress};

use crate::path::{Path, Transfer};

/// Maximum number of steps that a thread executes for a burst.
pub const STEPS_MAX: usize = 16384;
/// Maximum number of different transfers of a burst. One that makes more has no result.
const TRANSFERS_MAX: usize = 32768;
/// Number of steps for which a thread stands still before it is timed if it can change more memory than can be copied. They find out
/// what it is likely to change.
const SHORT_STEPS: usize = 2048;
/// Maximum number of bursts of one request.
pub const BURSTS_MAX: usize = 16;
/// Time limit of a single-stepped burst, in ns: a stepped thread makes other threads wait.
const BURST_NS_MAX: u64 = 200_000_000;
/// Number of stops at the same instruction (`rep movs` stops for each element) after which a burst ends.
const REPEATS_MAX: u32 = 256;

/// Limit of the CPU time that an emulated burst takes, in ns.
pub const FOLLOW_CPU_NS_MAX: u64 = 20_000_000;
/// Limit of the time that it takes, in ns, if others run on the CPU meanwhile. They would make the stopped thread wait as well.
const FOLLOW_NS_MAX: u64 = 60_000_000;

/// The way in which a thread's next steps are found.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The thread executes them, one at a time.
    Step,
    /// The thread stays stopped, and they are computed.
    Follow,
    /// They are computed if this machine can emulate threads; otherwise the thread executes them.
    FollowOrStep,
    /// They are computed, then the thread executes them, and both are compared.
    Check,
    /// They are computed, then the thread goes on, and more are computed meanwhile. Samples of the thread show when it made which.
    Time,
}

/// Why a burst ended, or never began.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// The burst has as many steps as were requested.
    Complete,
    /// A signal arrived. It was delivered to the thread.
    Signal,
    /// The thread was stopped (job control).
    Stopped,
    /// The thread ended.
    Exited,
    /// The next code cannot be stepped without being noticed by the program, or cannot be read.
    Unsteppable,
    /// A string instruction repeated too often.
    Repeating,
    /// The burst took too long.
    Late,
    /// The next instruction is a system call.
    SystemCall,
    /// The next instruction cannot be emulated.
    Unfollowable,
    /// The next instruction reads or writes memory that cannot be read.
    Unreadable,
    /// The burst read more memory than may be copied.
    TooMuchMemory,
    /// The next instruction would raise an exception.
    Fault,
    /// The thread runs 32-bit code, which is not emulated.
    Narrow,
    /// The burst made too many different transfers.
    TooManyTransfers,
    /// The computed steps differ from those that the thread executed: the last address is the wrong one.
    Differs,
    /// The thread had so many page faults that its own time is not known.
    PageFaults,
    /// Refused: the thread was not running at that moment.
    NotRunning,
    /// Refused: the thread had just entered the kernel when it stopped.
    InKernel,
    /// Refused: we lack permission, or another debugger traces the thread.
    NotPermitted,
    /// Refused: the thread blocks, or the program handles, every signal that could stop it unnoticed.
    NoQuietSignal,
    /// Refused: the end of a child could affect other threads of the process meanwhile.
    HasChildren,
    /// Refused: the thread has ended.
    Gone,
    /// Refused: we may not create executable code here, so no thread can be emulated.
    CannotFollow,
}

impl Ending {
    const ALL: [Ending; 23] = [
        Ending::Complete,
        Ending::Signal,
        Ending::Stopped,
        Ending::Exited,
        Ending::Unsteppable,
        Ending::Repeating,
        Ending::Late,
        Ending::SystemCall,
        Ending::Unfollowable,
        Ending::Unreadable,
        Ending::TooMuchMemory,
        Ending::Fault,
        Ending::Narrow,
        Ending::TooManyTransfers,
        Ending::Differs,
        Ending::PageFaults,
        Ending::NotRunning,
        Ending::InKernel,
        Ending::NotPermitted,
        Ending::NoQuietSignal,
        Ending::HasChildren,
        Ending::Gone,
        Ending::CannotFollow,
    ];

    /// Returns whether the burst was refused, so that no step was made.
    pub fn is_refusal(self) -> bool {
        self >= Ending::NotRunning
    }
}

/// The result of a burst.
#[derive(Clone, Debug)]
pub struct Steps {
    /// Why the burst ended.
    pub ending: Ending,
    /// When the thread was about to be seized: CLOCK_MONOTONIC in ns.
    pub begin_ns: u64,
    /// When the thread had been released: CLOCK_MONOTONIC in ns.
    pub end_ns: u64,
    /// Cost of the burst in ns: CPU time of the helper, while the thread stood still, if the thread was emulated, otherwise the whole
    /// duration.
    pub cost_ns: u64,
    /// CPU time of the helper while the thread ran, in ns.
    pub beside_ns: u64,
    /// CPU time of the thread for the path, in ns, if it is known.
    pub timed_ns: Option<u64>,
    /// Why that is not known. [`Ending::Complete`]: it is known, or the burst was over before its time was wanted.
    pub untimed: Ending,
    /// Number of instructions, also of those that do not count.
    pub made: u64,
    /// What counts. If the thread was single-stepped, each repetition of a string instruction is a step.
    pub path: Path,
    /// The program counter before each step and after the last one, if the thread itself executed the steps.
    #[cfg(test)]
    pub pcs: Vec<u64>,
    /// Whether the thread was emulated. It stood still then, so no sample of it contains steps.
    pub is_followed: bool,
}

/// A request for bursts.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The way in which steps are found.
    pub how: How,
    /// Number of steps of each burst. One that the thread itself executes has [`STEPS_MAX`] at most.
    pub steps_max: usize,
    /// Number of steps in the beginning that do not count if they are computed. Of a burst that is shorter than twice as many, half
    /// does not count.
    pub steps_before: usize,
    /// Number of bursts, one after the other. Only one is made where the thread executes its steps.
    pub bursts: usize,
    /// Mean in ns of the random delay before each burst (exponentially distributed, at most eight times the mean).
    pub delay_ns: u64,
    /// Seed of the random delays.
    pub seed: u64,
    /// Limit in ns of the CPU time that an emulated burst takes; at most [`FOLLOW_CPU_NS_MAX`].
    pub cpu_ns_max: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    number: u64,
    pid: Pid,
    tid: Tid,
    how: u32,
    steps_max: u32,
    steps_before: u32,
    bursts: u32,
    delay_ns: u64,
    seed: u64,
    cpu_ns_max: u64,
}

/// The answer to the request with the same number.
#[repr(C)]
struct Reply {
    number: u64,
    /// Number of bursts in [`Shared`].
    bursts: u32,
}

/// The result of one burst in shared memory.
#[repr(C)]
struct Slot {
    ending: u32,
    pcs: u32,
    transfers: u32,
    is_followed: u32,
    begin_ns: u64,
    end_ns: u64,
    cost_ns: u64,
    beside_ns: u64,
    timed_ns: u64,
    untimed: u32,
    made: u64,
    steps: u64,
    first: VirtualAddress,
    last: VirtualAddress,
    places: [u64; STEPS_MAX + 1],
    counts: [Transfer; TRANSFERS_MAX],
}

/// The memory that both processes share.
#[repr(C)]
struct Shared {
    slots: [Slot; BURSTS_MAX],
}

/// Our handle of the helper process. Dropping it ends the helper after the current burst.
pub struct Stepper {
    channel: OwnedFd,
    shared: *mut Shared,
    helper: libc::pid_t,
    /// Number of the latest request.
    latest_request: u64,
}

// SAFETY: the mapping belongs to this value alone; the helper writes it only between a request and its reply.
unsafe impl Send for Stepper {}

impl Stepper {
    /// Forks the helper. Returns an error on architectures that are not supported.
    pub fn fork() -> io::Result<Self> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "threads can be single-stepped on x86-64 only",
            ));
        }
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two descriptors to the live array.
        check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
        // SAFETY: both were just made and belong to nobody else.
        let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let mapped =
            unsafe { libc::mmap(ptr::null_mut(), mem::size_of::<Shared>(), protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let shared = mapped.cast::<Shared>();
        // SAFETY: the child calls `serve` alone, which does not return; what it needs of the C library works after a fork.
        let helper = unsafe { libc::fork() };
        if helper == 0 {
            helper::serve(theirs.as_raw_fd(), shared)
        }
        if helper < 0 {
            let error = io::Error::last_os_error();
            // SAFETY: nobody else knows the mapping.
            unsafe { libc::munmap(mapped, mem::size_of::<Shared>()) };
            return Err(error);
        }
        Ok(Stepper { channel: ours, shared, helper, latest_request: 0 })
    }

    /// Returns the helper's process id, the process that needs permission to trace.
    pub fn pid(&self) -> Pid {
        Pid(self.helper as u32)
    }

    /// Requests bursts of thread `tid` of process `pid`. There is one order at a time: if [`Stepper::reply`] has not yet
    /// answered the last one, its bursts are lost.
    pub fn request(&mut self, pid: Pid, tid: Tid, order: &Order) -> io::Result<()> {
        self.latest_request += 1;
        let request = Request {
            number: self.latest_request,
            pid,
            tid,
            how: order.how as u32,
            steps_max: order.steps_max.min(u32::MAX as usize) as u32,
            steps_before: order.steps_before.min(u32::MAX as usize) as u32,
            bursts: order.bursts.clamp(1, BURSTS_MAX) as u32,
            delay_ns: order.delay_ns,
            seed: order.seed,
            cpu_ns_max: order.cpu_ns_max.min(FOLLOW_CPU_NS_MAX),
        };
        // SAFETY: the request is live, and plain bytes without padding that matters.
        let sent = unsafe {
            let bytes = (&raw const request).cast();
            libc::send(self.channel.as_raw_fd(), bytes, mem::size_of::<Request>(), libc::MSG_NOSIGNAL)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the answer to the latest request, after waiting `timeout_ms` at most; `None` while the bursts are running. An
    /// error means that the helper has ended.
    pub fn reply(&mut self, timeout_ms: u32) -> io::Result<Option<Vec<Steps>>> {
        let end = Instant::now() + Duration::from_millis(timeout_ms.into());
        while let Some(reply) = self.next_reply(end.saturating_duration_since(Instant::now()))? {
            if reply.number == self.latest_request {
                return Ok(Some(
                    (0..(reply.bursts as usize).min(BURSTS_MAX)).map(|i| self.burst(i)).collect(),
                ));
            }
        }
        Ok(None)
    }

    fn next_reply(&self, timeout: Duration) -> io::Result<Option<Reply>> {
        let fd = self.channel.as_raw_fd();
        let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let timeout_ms = timeout.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
        // SAFETY: one live pollfd.
        if unsafe { libc::poll(&raw mut polled, 1, timeout_ms) } < 1 {
            return Ok(None);
        }
        let mut reply = Reply { number: 0, bursts: 0 };
        let size = mem::size_of::<Reply>();
        // SAFETY: the kernel writes at most `size` bytes to the live reply, for which any bytes are valid.
        let received = unsafe { libc::recv(fd, (&raw mut reply).cast(), size, libc::MSG_DONTWAIT) };
        if received != size as isize {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the stepping process ended"));
        }
        Ok(Some(reply))
    }

    fn burst(&self, index: usize) -> Steps {
        // SAFETY: within the mapping; the helper wrote the slot before it replied, and writes no more until the next
        // request, which `&self` keeps away.
        let slot = unsafe { &(*self.shared).slots[index] };
        let ending = |number: u32| Ending::ALL.get(number as usize).copied().unwrap_or(Ending::Late);
        let pcs = slot.places[..(slot.pcs as usize).min(STEPS_MAX + 1)].to_vec();
        let path = Path {
            first: slot.first,
            last: slot.last,
            steps: slot.steps,
            transfers: slot.counts[..(slot.transfers as usize).min(TRANSFERS_MAX)].to_vec(),
        };
        Steps {
            ending: ending(slot.ending),
            begin_ns: slot.begin_ns,
            end_ns: slot.end_ns,
            cost_ns: slot.cost_ns,
            beside_ns: slot.beside_ns,
            timed_ns: (slot.timed_ns > 0).then_some(slot.timed_ns),
            untimed: ending(slot.untimed),
            made: slot.made,
            path: if pcs.is_empty() { path } else { Path::through(&pcs) },
            #[cfg(test)]
            pcs,
            is_followed: slot.is_followed != 0,
        }
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        // SAFETY: shuts our own socket; the helper then reads the end of it.
        unsafe { libc::shutdown(self.channel.as_raw_fd(), libc::SHUT_RDWR) };
        for _ in 0..300 {
            // SAFETY: reaps our own child, which nobody else waits for; no status is requested.
            if unsafe { libc::waitpid(self.helper, ptr::null_mut(), libc::WNOHANG) } != 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // SAFETY: mapped by us; no reference outlives a call.
        unsafe { libc::munmap(self.shared.cast(), mem::size_of::<Shared>()) };
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod helper {
    use super::{RawFd, Shared};

    pub fn serve(_: RawFd, _: *mut Shared) -> ! {
        // SAFETY: ends this process.
        unsafe { libc::_exit(1) }
    }

    pub mod guard {
        pub fn serve(_: super::RawFd) -> ! {
            // SAFETY: ends this process.
            unsafe { libc::_exit(1) }
        }
    }
}

pub use helper::guard::serve as serve_guards;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod helper;

#[cfg(all(test, target_arch = "x86_64"))]
pub mod tests;
