//! The next steps of a thread: a small process of our own that finds them out, and how to talk to it.
//!
//! Enters: a thread's id. Leaves: the program counters it went or would go through, and why it ended. Never here: whom
//! to choose, when, what the addresses mean. x86-64 only.
//!
//! Two ways ([`How`]): the thread is stopped for a moment and *emulated* on copies of its registers and memory
//! ([`crate::emulate`]), or really *stepped* by ptrace, which takes a hundred times as long. Either way the burst ends before
//! the first system call, and the thread is stopped in user mode only (`helper/halt.rs`): no call of the program is ever
//! interrupted.
//!
//! *A process apart*, because a thread that was single-stepped and whose tracer is killed at that moment keeps the
//! trap flag and dies of SIGTRAP (measured on Linux 6.18: kill -9 of the tracer ended the target). So whatever ends
//! the collector, Ctrl-C or `kill -9`, the helper finishes its burst (milliseconds), detaches, reads the end of its
//! channel and goes. It has a name and a process group of its own, lest a signal meant for us reach it.
//!
//! The helper is forked, not executed, from a process that may have threads: it takes no lock of theirs. That it
//! allocates and makes threads of its own, glibc and musl allow after a fork. Should it panic, it ends.

use std::{
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr,
    time::{Duration, Instant},
};

use dwell_profile::{Pid, Tid};

/// Steps of the longest burst.
pub const STEPS_MAX: usize = 16384;
/// Bursts of one request.
pub const BURSTS_MAX: usize = 16;
/// A burst is over after that time: a stepped thread makes the others wait.
const BURST_NS_MAX: u64 = 200_000_000;
/// Stops at one and the same instruction (`rep movs` stops for each element) after which a burst is over.
const REPEATS_MAX: u32 = 256;

/// The same for a followed thread.
const FOLLOW_NS_MAX: u64 = 20_000_000;

/// How a thread's next steps are found out.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It makes them, one at a time.
    Step,
    /// It stands still, and they are computed.
    Follow,
    /// The same, but where threads cannot be followed, it makes them.
    FollowOrStep,
    /// They are computed, then it makes them, and both are compared.
    Check,
}

/// Why a burst ended, or never began.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// It has as many steps as were asked for.
    Complete,
    /// A signal arrived; the thread has got it.
    Signal,
    /// The thread was stopped (job control).
    Stopped,
    /// The thread ended.
    Exited,
    /// Code that cannot be stepped without the program noticing, or cannot be read.
    Unsteppable,
    /// A string instruction went on and on.
    Repeating,
    /// It took too long.
    Late,
    /// A system call comes next.
    SystemCall,
    /// An instruction that cannot be followed would come next.
    Unfollowable,
    /// An instruction would come next that reads or writes what cannot be read.
    Unreadable,
    /// It read more memory than is copied.
    TooMuchMemory,
    /// An exception would come next.
    Fault,
    /// Code of 32 bits is not followed.
    Narrow,
    /// What was computed is not what the thread did: the last address is the wrong one.
    Differs,
    /// Refused: the thread was not running when its time came.
    NotRunning,
    /// Refused: the thread had just entered the kernel when it stopped.
    InKernel,
    /// Refused: we may not, or another debugger has it.
    NotPermitted,
    /// Refused: the thread blocks, or the program handles, every signal that could stop it unnoticed.
    NoQuietSignal,
    /// Refused: the end of a child could concern other threads of the process meanwhile.
    HasChildren,
    /// Refused: there is no such thread any more.
    Gone,
    /// Refused: no code can be made here, so that no thread can be followed.
    CannotFollow,
}

impl Ending {
    const ALL: [Ending; 21] = [
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
        Ending::Differs,
        Ending::NotRunning,
        Ending::InKernel,
        Ending::NotPermitted,
        Ending::NoQuietSignal,
        Ending::HasChildren,
        Ending::Gone,
        Ending::CannotFollow,
    ];

    /// Whether no step was made.
    pub fn is_refusal(self) -> bool {
        self >= Ending::NotRunning
    }
}

/// What a burst was.
#[derive(Clone, Debug)]
pub struct Steps {
    /// Why it ended.
    pub ending: Ending,
    /// When the thread was about to be seized, and when it had been let go (CLOCK_MONOTONIC).
    pub begin_ns: u64,
    /// See `begin_ns`.
    pub end_ns: u64,
    /// What it cost: CPU time of the helper where the thread was followed, else all the time that it took.
    pub cost_ns: u64,
    /// Where the thread was before each step, and after the last one. Repetitions of a string instruction are steps where
    /// the thread made them.
    pub pcs: Vec<u64>,
    /// It was followed: it stood still, so no sample of it shows steps.
    pub is_followed: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// How.
    pub how: How,
    /// Steps of each burst at most.
    pub steps_max: usize,
    /// Bursts one after another. Where the thread must make its steps there is one.
    pub bursts: usize,
    /// Before each burst a random delay, of that length on average (exponential, at most eight times that).
    pub delay_ns: u64,
    /// Where delays come from.
    pub seed: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    number: u64,
    pid: Pid,
    tid: Tid,
    how: u32,
    steps_max: u32,
    bursts: u32,
    delay_ns: u64,
    seed: u64,
}

/// The answer to the request of that number.
#[repr(C)]
struct Reply {
    number: u64,
    /// How many bursts are in [`Shared`].
    bursts: u32,
}

/// One burst.
#[repr(C)]
struct Slot {
    ending: u32,
    pcs: u32,
    is_followed: u32,
    begin_ns: u64,
    end_ns: u64,
    cost_ns: u64,
    places: [u64; STEPS_MAX + 1],
}

/// What both processes see.
#[repr(C)]
struct Shared {
    slots: [Slot; BURSTS_MAX],
}

/// The helper, from our side. Dropping it ends the helper after the burst that it may be at.
pub struct Stepper {
    channel: OwnedFd,
    shared: *mut Shared,
    helper: libc::pid_t,
    /// The number of the latest request.
    asked: u64,
}

// SAFETY: the mapping belongs to this value alone; the helper writes it only between a request and its reply.
unsafe impl Send for Stepper {}

impl Stepper {
    /// Forks the helper. Fails on architectures that are not supported.
    pub fn fork() -> io::Result<Self> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "threads are stepped on x86-64 only"));
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
        Ok(Stepper { channel: ours, shared, helper, asked: 0 })
    }

    /// The helper's process id: who must be allowed to trace.
    pub fn pid(&self) -> Pid {
        Pid(self.helper as u32)
    }

    /// Asks for bursts of thread `tid` of process `pid`. One order at a time: if [`Stepper::reply`] has not answered the
    /// last one yet, its bursts are lost.
    pub fn request(&mut self, pid: Pid, tid: Tid, order: &Order) -> io::Result<()> {
        self.asked += 1;
        let request = Request {
            number: self.asked,
            pid,
            tid,
            how: order.how as u32,
            steps_max: order.steps_max.min(STEPS_MAX) as u32,
            bursts: order.bursts.clamp(1, BURSTS_MAX) as u32,
            delay_ns: order.delay_ns,
            seed: order.seed,
        };
        // SAFETY: the request is live, and plain bytes without padding that matters.
        let sent = unsafe {
            let bytes = (&raw const request).cast();
            libc::send(self.channel.as_raw_fd(), bytes, mem::size_of::<Request>(), libc::MSG_NOSIGNAL)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The answer to the latest request, waiting for it up to `timeout_ms`; `None` while bursts go on. An error: the helper is
    /// gone.
    pub fn reply(&mut self, timeout_ms: u32) -> io::Result<Option<Vec<Steps>>> {
        let end = Instant::now() + Duration::from_millis(timeout_ms.into());
        while let Some(reply) = self.next_reply(end.saturating_duration_since(Instant::now()))? {
            if reply.number == self.asked {
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
        Steps {
            ending: Ending::ALL.get(slot.ending as usize).copied().unwrap_or(Ending::Late),
            begin_ns: slot.begin_ns,
            end_ns: slot.end_ns,
            cost_ns: slot.cost_ns,
            pcs: slot.places[..(slot.pcs as usize).min(STEPS_MAX + 1)].to_vec(),
            is_followed: slot.is_followed != 0,
        }
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        // SAFETY: shuts our own socket; the helper then reads the end of it.
        unsafe { libc::shutdown(self.channel.as_raw_fd(), libc::SHUT_RDWR) };
        for _ in 0..300 {
            // SAFETY: reaps our own child, which nobody else waits for; no status is asked for.
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
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod helper;

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
