//! The helper process of guards (`sys/guard.rs`): takes SIGTRAP away from watched threads if a lost debug exception caused it.
//!
//! Enters: threads. Leaves: the number of signals that were taken away. Never here: a stop that the program would not have made,
//! an interrupted system call.
//!
//! - A signal of the program is delivered as it is. Signals that it ignores would not even have been sent to a thread that is
//!   not traced; if one ends a system call, the call is put back, as in bursts.
//! - A forced SIGTRAP resets the program's handler if the thread blocks the signal, so programs that handle it are refused.
//!   The kernel also unblocks it, which is undone.
//! - Threads are released by the end of the thread that traces them, which stops nobody. Before that, no forced signal may be on
//!   its way: the watchpoints are gone by then, all processors have finished what they did in the kernel since ([`leave_kernel`]), and no thread has
//!   the signal pending. Nor may a signal that the program ignores, and that was sent because the thread is traced: after the release nobody puts
//!   back the call that it ends.

use std::{
    mem, ptr,
    sync::atomic::{AtomicBool, AtomicI32, Ordering},
    thread,
    time::{Duration, Instant},
};

use dwell_profile::{Pid, Tid};

use super::{
    errno,
    halt::{Thread, put_back},
    set_up,
    tracee::{Stop, Tracee, stop_of},
};
use crate::sys::{
    alarm::bit,
    guard::{Refusal, Reply, Request},
    tracer::{Ending, RawFd},
};

/// `si_code` of the signal for a debug exception without a cause.
const TRAP_BRKPT: libc::c_int = 1;
/// The instruction `int1` raises the same signal as a lost exception.
const INT1: u8 = 0xf1;
/// How long a signal may be pending that its thread could take: it waits for a processor.
const PENDING_MAX: Duration = Duration::from_millis(100);
/// How long to wait for stops before the channel is looked at again, in ns.
const LOOK_NS: libc::c_long = 300_000;

/// Answers requests until the channel is closed.
pub fn serve(channel: RawFd) -> ! {
    let channel = set_up(channel, c"dwell-guard");
    while let Some(request) = receive(channel, 0) {
        // The end of the thread releases its tracees, somewhat later than the thread is known to have ended.
        let tid = AtomicI32::new(0);
        let released = thread::scope(|scope| scope.spawn(|| guard(channel, &request, &tid)).join());
        let task = format!("/proc/self/task/{}", tid.load(Ordering::Relaxed));
        while std::path::Path::new(&task).exists() {
            thread::sleep(Duration::from_micros(50));
        }
        if let Ok(Some(swallowed)) = released {
            reply(channel, None, swallowed);
        }
    }
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

fn receive(channel: RawFd, flags: libc::c_int) -> Option<Request> {
    loop {
        // SAFETY: any bytes are a valid request; the kernel writes at most its size.
        unsafe {
            let mut request: Request = mem::zeroed();
            match libc::recv(channel, (&raw mut request).cast(), size_of::<Request>(), flags) {
                read if read == size_of::<Request>() as isize => return Some(request),
                -1 if errno() == libc::EINTR => {}
                _ => return None,
            }
        }
    }
}

fn reply(channel: RawFd, refusal: Option<Refusal>, swallowed: u32) {
    let reply = Reply { refusal: refusal.map_or(0, |refusal| refusal as u32), swallowed };
    // SAFETY: the reply is live and plain bytes.
    unsafe { libc::send(channel, (&raw const reply).cast(), size_of::<Reply>(), libc::MSG_NOSIGNAL) };
}

/// Guards the threads until the next message or the end of the channel. Returns the number of signals that were taken away if
/// an answer is awaited.
fn guard(channel: RawFd, request: &Request, tid: &AtomicI32) -> Option<u32> {
    // SAFETY: takes no pointer.
    tid.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    let tids = &request.tids[..(request.count as usize).min(request.tids.len())];
    let mut guarded = match Guarded::begin(request.pid, tids) {
        Ok(guarded) => guarded,
        Err(refusal) => {
            reply(channel, Some(refusal), 0);
            return None;
        }
    };
    reply(channel, None, 0);
    let is_asked = loop {
        guarded.answer_stops();
        match poll(channel) {
            Polled::Nothing => wait_for_child(),
            Polled::Message => break receive(channel, libc::MSG_DONTWAIT).is_some(),
            Polled::End => break false,
        }
    };
    guarded.end();
    is_asked.then_some(guarded.swallowed)
}

struct Guarded {
    threads: Vec<(Tracee, Thread)>,
    /// The threads that had SIGTRAP blocked at the beginning.
    blocking: Vec<libc::pid_t>,
    swallowed: u32,
}

impl Guarded {
    fn begin(pid: Pid, tids: &[Tid]) -> Result<Self, Refusal> {
        let mut guarded = Guarded { threads: Vec::new(), blocking: Vec::new(), swallowed: 0 };
        for tid in tids {
            let thread = Thread { pid, tid: *tid };
            let Some(state) = thread.state() else { continue }; // It has ended.
            let trap = bit(libc::SIGTRAP);
            if (state.signals.caught | state.signals.ignored) & trap != 0 {
                return Err(Refusal::HandlesTraps);
            }
            if thread.is_parent_among_others(&state) {
                return Err(Refusal::HasChildren);
            }
            match Tracee::seize(*tid) {
                Ok(tracee) => {
                    if state.signals.blocked & trap != 0 {
                        guarded.blocking.push(tracee.tid());
                    }
                    guarded.threads.push((tracee, thread));
                }
                Err(Ending::Gone) => {}
                Err(_) => return Err(Refusal::NotPermitted),
            }
        }
        Ok(guarded)
    }

    /// Answers every stop that has been made.
    fn answer_stops(&mut self) {
        loop {
            let mut status = 0;
            let flags = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
            // SAFETY: the kernel writes the live status.
            let waited = unsafe { libc::waitpid(-1, &raw mut status, flags) };
            if waited <= 0 {
                return;
            }
            if let Some(at) = self.threads.iter().position(|(tracee, _)| tracee.tid() == waited) {
                match stop_of(status) {
                    Stop::Ended => _ = self.threads.remove(at),
                    Stop::Group => self.threads[at].0.listen(),
                    Stop::Ours => self.threads[at].0.resume(0),
                    Stop::Signal(signal) => self.answer_signal(at, signal),
                }
            }
        }
    }

    fn answer_signal(&mut self, at: usize, signal: libc::c_int) {
        let (tracee, thread) = &self.threads[at];
        if signal == libc::SIGTRAP && self.is_lost(tracee) {
            if let Some(mask) = tracee.signal_mask() {
                let trap = bit(libc::SIGTRAP);
                let others = (bit(32) - 1) & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP) | trap);
                if self.blocking.contains(&tracee.tid()) || mask & others == others {
                    tracee.set_signal_mask(mask | trap);
                }
            }
            tracee.resume(0);
            self.swallowed += 1;
            return;
        }
        put_back(tracee, thread, Some(signal));
        tracee.resume(signal);
    }

    fn is_lost(&self, tracee: &Tracee) -> bool {
        let (Some(code), Some(pc)) = (tracee.signal_code(), tracee.pc()) else { return false };
        let [before, at, ..] = tracee.peek_text(pc.wrapping_sub(1)).unwrap_or_default().to_le_bytes();
        is_lost_exception(code, [before, at])
    }

    /// Answers stops until no forced signal can be on its way, and for some time until no other one is.
    fn end(&mut self) {
        let has_left = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                leave_kernel();
                has_left.store(true, Ordering::Release);
            });
            while !has_left.load(Ordering::Acquire) {
                self.answer_stops();
                wait_for_child();
            }
        });
        let end = Instant::now() + PENDING_MAX;
        loop {
            self.answer_stops();
            let may_wait = Instant::now() < end;
            let is_pending = |thread: &Thread| {
                thread.state().is_some_and(|state| {
                    state.signals.pending & bit(libc::SIGTRAP) != 0
                        || (may_wait && state.signals.deliverable().next().is_some())
                })
            };
            let is_any_pending = self.threads.iter().any(|(_, thread)| is_pending(thread));
            // What was pending a moment ago may stop its thread now.
            wait_for_child();
            if !is_any_pending {
                break;
            }
        }
        self.answer_stops();
    }
}

/// Returns whether a SIGTRAP with this code comes from a debug exception whose cause was lost. `around` are the bytes before and at the
/// program counter: some hypervisors leave it at `int1`, which would raise the signal again and again.
fn is_lost_exception(code: libc::c_int, around: [u8; 2]) -> bool {
    code == TRAP_BRKPT && !around.contains(&INT1)
}

/// Returns when every processor has finished what it did in the kernel when this was called: this thread runs on each of them in
/// turn. If it may not, it waits until all have left the kernel, which takes some 20 ms.
fn leave_kernel() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    if visit_all_processors() {
        return;
    }
    // SAFETY: takes no pointer.
    if unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0 {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs the calling thread on each processor once. Returns whether it could.
fn visit_all_processors() -> bool {
    // SAFETY: takes no pointer.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    (0..processors.max(1) as usize).all(|processor| {
        // SAFETY: zeros are an empty set, which is live; a number beyond its size is not added.
        unsafe {
            let mut set: libc::cpu_set_t = mem::zeroed();
            libc::CPU_SET(processor, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
        }
    })
}

enum Polled {
    Nothing,
    Message,
    End,
}

fn poll(channel: RawFd) -> Polled {
    let mut polled = libc::pollfd { fd: channel, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd.
    match unsafe { libc::poll(&raw mut polled, 1, 0) } {
        1 if polled.revents & libc::POLLIN != 0 => Polled::Message,
        1 => Polled::End,
        _ => Polled::Nothing,
    }
}

/// Waits a moment, or until a tracee stops.
fn wait_for_child() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: LOOK_NS };
    // SAFETY: set and time are live; no information is requested.
    unsafe {
        let mut child: libc::sigset_t = mem::zeroed();
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        libc::sigtimedwait(&raw const child, ptr::null_mut(), &raw const time);
    }
}

#[cfg(test)]
mod tests;
