//! A thread that the calling thread traces.
//!
//! Enters: a thread's id. Leaves: its stops, and its registers and code while it is stopped. Never here: which thread to
//! stop, and why.

use std::{mem, ptr};

use dwell_profile::Tid;

use super::{errno, now_ns, set_errno};
use crate::sys::tracer::Ending;

/// A stop that no signal of the program causes: an interrupt of ours or a group stop.
const EVENT_STOP: i32 = libc::PTRACE_EVENT_STOP;
/// `si_code` of an `int3` in the program. It comes from the kernel, unlike TRAP_TRACE and TRAP_BRKPT of a single step.
const SI_KERNEL: i32 = 0x80;
/// `si_code` of the signal that a perf event sends at its last permitted overflow.
const POLL_HUP: i32 = 6;

/// How long to wait for a thread that was killed while it was stopped. It may have to wait for a CPU before it can end.
const END_NS_MAX: u64 = 1_000_000_000;

/// A traced thread. If it is not detached, it continues when the tracing thread ends.
pub struct Tracee {
    tid: libc::pid_t,
}

/// The reason why a traced thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// We interrupted it.
    Ours,
    /// It is about to take this signal.
    Signal(libc::c_int),
    /// Its process is stopped (job control).
    Group,
    /// It has ended.
    Ended,
}

impl Tracee {
    /// Begins to trace a thread, which continues to run.
    pub fn seize(tid: Tid) -> Result<Tracee, Ending> {
        let tracee = Tracee { tid: tid.0 as libc::pid_t };
        match tracee.ptrace(libc::PTRACE_SEIZE, 0, 0) {
            0.. => Ok(tracee),
            _ if errno() == libc::ESRCH => Err(Ending::Gone),
            _ => Err(Ending::NotPermitted),
        }
    }

    /// Returns the thread's id.
    pub fn tid(&self) -> libc::pid_t {
        self.tid
    }

    /// Releases the thread. If it was killed while it was stopped, we must wait for it: until then its process has not ended
    /// for its parent, and no other thread of the process can execute a program. If it does not end in time, the end of the
    /// tracing thread releases it.
    pub fn detach(&self, signal: libc::c_int) {
        while self.ptrace(libc::PTRACE_DETACH, 0, signal as usize) < 0 {
            if matches!(self.wait_for(END_NS_MAX), None | Some(Stop::Ended)) {
                return;
            }
        }
    }

    /// Requests that a stopped thread stops again before it returns to the program.
    pub fn interrupt(&self) {
        self.ptrace(libc::PTRACE_INTERRUPT, 0, 0);
    }

    /// Continues a stopped thread, which takes this signal (0: none).
    pub fn resume(&self, signal: libc::c_int) {
        self.ptrace(libc::PTRACE_CONT, 0, signal as usize);
    }

    /// Leaves a thread in its group stop and reports when that ends.
    pub fn listen(&self) {
        self.ptrace(libc::PTRACE_LISTEN, 0, 0);
    }

    /// Returns the signals that the stopped thread blocks.
    pub fn signal_mask(&self) -> Option<u64> {
        let mut mask = 0u64;
        let size = size_of::<u64>();
        // SAFETY: the kernel writes `size` bytes to the live mask.
        let got = unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK, self.tid, size, &raw mut mask) };
        (got == 0).then_some(mask)
    }

    /// Sets the signals that the stopped thread blocks.
    pub fn set_signal_mask(&self, mask: u64) {
        let size = size_of::<u64>();
        // SAFETY: the kernel reads `size` bytes of the live mask.
        unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK, self.tid, size, &raw const mask) };
    }

    /// Lets a stopped thread execute one instruction, which must not be a system call, and returns its next stop. This wait
    /// has no bound; it ends when the thread has got a CPU. If we left the thread before that, it would keep the trap flag and
    /// die of SIGTRAP.
    pub fn step(&self) -> Stop {
        if self.ptrace(libc::PTRACE_SINGLESTEP, 0, 0) < 0 {
            return Stop::Ended;
        }
        self.wait()
    }

    /// Waits for the next stop without a time limit.
    pub fn wait(&self) -> Stop {
        loop {
            if let Some(stop) = self.next_stop(0) {
                return stop;
            }
        }
    }

    /// Waits for the next stop for `patience_ns` at most. SIGCHLD must be blocked, or the wait takes a little longer.
    pub fn wait_for(&self, patience_ns: u64) -> Option<Stop> {
        let end_ns = now_ns() + patience_ns;
        loop {
            if let Some(stop) = self.next_stop(libc::WNOHANG) {
                return Some(stop);
            }
            let left_ns = end_ns.checked_sub(now_ns()).filter(|left| *left > 0)?;
            let time = libc::timespec { tv_sec: 0, tv_nsec: left_ns.min(999_999_999) as libc::c_long };
            // SAFETY: set and time are live; no information is requested.
            unsafe {
                let mut child: libc::sigset_t = mem::zeroed();
                libc::sigaddset(&raw mut child, libc::SIGCHLD);
                libc::sigtimedwait(&raw const child, ptr::null_mut(), &raw const time);
            }
        }
    }

    fn next_stop(&self, flags: libc::c_int) -> Option<Stop> {
        let mut status = 0;
        // SAFETY: the kernel writes the live status.
        let waited = unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL | flags) };
        match waited {
            0 => None,
            _ if waited == self.tid => Some(stop_of(status)),
            _ if errno() == libc::EINTR => None,
            _ => Some(Stop::Ended),
        }
    }

    /// Returns whether the signal that the thread is about to take comes from our perf event.
    pub fn is_alarm(&self) -> bool {
        self.signal_code() == Some(POLL_HUP)
    }

    /// Returns whether the SIGTRAP that the thread is about to take comes from our single step, not from a trap or signal of
    /// the program.
    pub fn is_step(&self) -> bool {
        self.signal_code().is_some_and(|code| code > 0 && code != SI_KERNEL)
    }

    /// Returns the code of the signal that the thread is about to take.
    pub fn signal_code(&self) -> Option<libc::c_int> {
        // SAFETY: the kernel writes the live siginfo, for which zeros are valid.
        unsafe {
            let mut info: libc::siginfo_t = mem::zeroed();
            let got = libc::ptrace(libc::PTRACE_GETSIGINFO, self.tid, 0, &raw mut info);
            (got == 0).then_some(info.si_code)
        }
    }

    /// Returns whether the thread is in a system call or at its end.
    pub fn is_in_call(&self) -> bool {
        self.peek_user(libc::ORIG_RAX).is_some_and(|number| number as i64 >= 0)
    }

    /// Returns the result that its system call is about to return.
    pub fn result(&self) -> Option<i64> {
        self.peek_user(libc::RAX).map(|result| result as i64)
    }

    /// Replaces the result of its system call.
    pub fn set_result(&self, result: i64) {
        self.ptrace(libc::PTRACE_POKEUSER, libc::RAX as usize * size_of::<u64>(), result as usize);
    }

    /// Returns its program counter.
    pub fn pc(&self) -> Option<u64> {
        self.peek_user(libc::RIP)
    }

    /// Returns eight bytes of its memory.
    pub fn peek_text(&self, address: u64) -> Option<u64> {
        self.peek(libc::PTRACE_PEEKTEXT, address as usize)
    }

    fn peek_user(&self, register: libc::c_int) -> Option<u64> {
        self.peek(libc::PTRACE_PEEKUSER, register as usize * size_of::<u64>())
    }

    fn peek(&self, what: libc::c_uint, at: usize) -> Option<u64> {
        set_errno(0);
        let word = self.ptrace(what, at, 0);
        (word != -1 || errno() == 0).then_some(word as u64)
    }

    fn ptrace(&self, request: libc::c_uint, address: usize, data: usize) -> libc::c_long {
        // SAFETY: none of the requests made through here writes to our memory (glibc's own result word apart).
        unsafe { libc::ptrace(request, self.tid, address, data) }
    }
}

/// Returns the stop that a status of `waitpid` reports.
pub fn stop_of(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended; // We waited as its tracer; its parent still gets the status.
    }
    match (status >> 16, libc::WSTOPSIG(status)) {
        (EVENT_STOP, libc::SIGTRAP) => Stop::Ours,
        (EVENT_STOP, _) => Stop::Group,
        (_, signal) => Stop::Signal(signal),
    }
}
