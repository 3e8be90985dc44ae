//! Stops a thread where none of its system calls can notice.
//!
//! Enters: a thread that runs. Leaves: the thread, traced by the calling thread of ours, in a stop in user mode. Never here:
//! an interrupt of a thread that may be in the kernel.
//!
//! `PTRACE_INTERRUPT` and `SIGSTOP` reach a thread wherever it is. In the kernel they end a call that waits, and many calls
//! then fail with EINTR or transfer less than they would have (signal(7) lists them). So the thread gets a timer of its own
//! ([`Alarm`]): a perf event that counts while the thread runs, overflows in user mode only, and then makes the kernel send the
//! thread a signal. This happens in the timer's interrupt, so the signal is taken before the next instruction of the program.
//! The tracer gets it instead of the thread, and takes it back.
//!
//! - *The signal* is one that is ignored by default and that the program does not handle ([`Signals::quiet`]), so that nothing
//!   happens even if we are killed at that moment.
//! - *A thread that does not come to run in user mode* is left after [`PATIENCE_NS`], or as soon as it sleeps. `PTRACE_DETACH`
//!   would need a stop, but the end of the *tracing thread* detaches without one. So each burst has a thread of its own.
//! - *A setuid program* that a traced thread executes starts without its rights, unless its tracer may trace everybody. So a tracer
//!   that may not leaves threads alone that were just born ([`AGE_TICKS_MIN`]): such a child is likely to execute something.
//! - *An ignored SIGCHLD* becomes a real signal while the thread that forked the child is traced: it may end a call of another
//!   thread, and `sigtimedwait` of any thread fails while the signal is pending. So threads of a process that has or had children
//!   are left alone, unless there is only one or the program handles the signal. (A signal that is ignored and sent by `kill` to a
//!   process whose main thread is traced at that moment does the same; that is not known before.)
//! - *While a thread is traced* even ignored signals wake it. If such a signal, or ours where the kernel delivers it late, ended
//!   a call with EINTR, the call is put back ([`put_back`]). The thread had been in it for a few hundred microseconds at most.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
};

use dwell_profile::{Pid, Tid};

use super::{
    now_ns, time_ns,
    tracee::{Stop, Tracee},
};
use crate::sys::{
    alarm::{Alarm, Signals, bit},
    tracer::Ending,
};

/// Time after which a thread is left alone that runs but does not stop, because it waits for a CPU or stays in the kernel.
const PATIENCE_NS: u64 = 50_000_000;
/// Time after which a thread is left alone that was already sent the alarm's signal. It is longer: if the signal came late,
/// while the thread was entering a system call, and we left before the thread took the signal, the call would end with
/// EINTR.
const PENDING_NS_MAX: u64 = 5_000_000_000;
/// A thread younger than this many ticks (1/100 s) may be about to execute a program.
const AGE_TICKS_MIN: u64 = 3;
/// Ticks per second in /proc, on every architecture that we support (USER_HZ).
const TICKS_PER_SECOND: u64 = 100;
/// Interval between two checks of a thread that does not stop.
const LOOK_NS: u64 = 200_000;
/// Interval between two checks of a thread that is to be left alone and only has the signal to take.
const LEAVING_LOOK_NS: u64 = 2_000_000;
/// The result of a system call that the kernel itself restarts. Programs never see it.
const ERESTARTNOINTR: i64 = 513;

/// Stops the thread in user mode. An error contains the reason why it could not. A thread that is still traced then is
/// released when the calling thread ends.
pub fn halt(pid: Pid, tid: Tid) -> Result<Tracee, Ending> {
    halt_within(pid, tid, PATIENCE_NS)
}

fn halt_within(pid: Pid, tid: Tid, patience_ns: u64) -> Result<Tracee, Ending> {
    let thread = Thread { pid, tid };
    let state = thread.state().ok_or(Ending::Gone)?;
    if !state.is_running || (!may_trace_everybody() && thread.age_ticks() < AGE_TICKS_MIN) {
        return Err(Ending::NotRunning);
    }
    if thread.is_parent_among_others(&state) {
        return Err(Ending::HasChildren);
    }
    let signal = state.signals.quiet().ok_or(Ending::NoQuietSignal)?;
    let alarm = Alarm::new(tid, signal).map_err(|error| refusal(&error))?;
    let tracee = Tracee::seize(tid)?;
    alarm.start().map_err(|error| refusal(&error))?;
    let mut alarm = Some(alarm);
    let leave_ns = now_ns() + patience_ns;
    let mut left = None;
    loop {
        let is_wanted = alarm.is_some();
        let stop = match tracee.wait_for(if is_wanted { LOOK_NS } else { LEAVING_LOOK_NS }) {
            Some(stop) => stop,
            None if is_wanted && now_ns() < leave_ns && thread.is_running() => continue,
            // The alarm may have fired just before it is closed here. Then the thread is about to stop.
            None => {
                alarm = None;
                let left = *left.get_or_insert(Ending::NotRunning);
                if now_ns() < leave_ns + PENDING_NS_MAX && thread.is_pending(signal) {
                    continue;
                }
                return Err(left);
            }
        };
        match stop {
            Stop::Signal(s) if s == signal && tracee.is_alarm() => {
                drop(alarm.take());
                return take_back(tracee, &thread, left, patience_ns);
            }
            Stop::Signal(s) => {
                put_back(&tracee, &thread, Some(s));
                alarm = None; // The thread is stopped, so the alarm has fired by now or never will.
                if !thread.is_pending(signal) {
                    tracee.detach(s);
                    return Err(Ending::Signal);
                }
                left = Some(Ending::Signal);
                tracee.resume(s);
            }
            Stop::Group | Stop::Ours => {
                tracee.detach(0);
                return Err(Ending::Stopped);
            }
            Stop::Ended => return Err(Ending::Exited),
        }
    }
}

/// Replaces the stop for the alarm's signal by a stop without a signal, which our death would simply end. `left` is the
/// reason why the thread is to be released all the same.
fn take_back(
    tracee: Tracee,
    thread: &Thread,
    left: Option<Ending>,
    patience_ns: u64,
) -> Result<Tracee, Ending> {
    if tracee.is_in_call() {
        put_back(&tracee, thread, None);
    }
    if let Some(refusal) = left.or(tracee.is_in_call().then_some(Ending::InKernel)) {
        tracee.detach(0);
        return Err(refusal);
    }
    tracee.interrupt(); // The thread is stopped, so this interrupts nothing of its own.
    tracee.resume(0);
    let refusal = match tracee.wait_for(patience_ns) {
        Some(Stop::Ours) => match thread.state() {
            // The thread's process may have forked since it was checked.
            Some(state) if thread.is_parent_among_others(&state) => Ending::HasChildren,
            _ => return Ok(tracee),
        },
        Some(Stop::Signal(signal)) => {
            tracee.detach(signal);
            return Err(Ending::Signal);
        }
        Some(Stop::Group) => Ending::Stopped,
        Some(Stop::Ended) => return Err(Ending::Exited),
        // The thread got no CPU. The end of the tracing thread cancels the pending stop.
        None => return Err(Ending::NotRunning),
    };
    tracee.detach(0);
    Err(refusal)
}

/// Restarts a system call that ended with EINTR, as the kernel does with calls that it restarts by itself. Does nothing if
/// the thread is about to get a signal, `delivered` or another, that would have ended the call without us as well.
pub fn put_back(tracee: &Tracee, thread: &Thread, delivered: Option<libc::c_int>) {
    let is_interrupted = tracee.is_in_call() && tracee.result() == Some(-i64::from(libc::EINTR));
    if !is_interrupted {
        return;
    }
    let Some(State { signals, .. }) = thread.state() else { return };
    let has_effect = |signal| !signals.is_ignored(signal);
    if !delivered.is_some_and(has_effect) && !signals.deliverable().any(has_effect) {
        tracee.set_result(-ERESTARTNOINTR);
    }
}

/// Returns whether we may trace every process, so that programs that our tracees execute keep their rights.
fn may_trace_everybody() -> bool {
    // SAFETY: takes no pointer and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn refusal(error: &io::Error) -> Ending {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Ending::Gone,
        Some(libc::EACCES | libc::EPERM) => Ending::NotPermitted,
        _ => Ending::CannotFollow,
    }
}

/// A thread, as `/proc` shows it.
pub struct Thread {
    pub pid: Pid,
    pub tid: Tid,
}

/// The state of a thread.
pub struct State {
    /// Whether it is on a CPU or waits for one.
    is_running: bool,
    /// Number of threads of its process.
    threads: u32,
    pub signals: Signals,
}

impl Thread {
    /// Reads the thread's state. Returns `None` if there is no such thread.
    pub fn state(&self) -> Option<State> {
        let status = std::fs::read_to_string(format!("/proc/{}/task/{}/status", self.pid, self.tid)).ok()?;
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        Some(State {
            is_running: field("State")?.starts_with('R'),
            threads: field("Threads")?.parse().ok()?,
            signals: Signals::parse(&status),
        })
    }

    /// Returns whether the end of a child could affect other threads of the process: it has children, or has waited for some
    /// and so is likely to fork again. If the kernel does not list children (no `CONFIG_PROC_CHILDREN`), it may have some.
    pub fn is_parent_among_others(&self, state: &State) -> bool {
        if state.threads == 1 || !state.signals.is_ignored(libc::SIGCHLD) {
            return false;
        }
        let children = std::fs::read(format!("/proc/{}/task/{}/children", self.pid, self.tid));
        let faults_of_children = stat_field(&format!("/proc/{}/stat", self.pid), CHILDREN_FAULTS);
        children.map_or(true, |children| !children.is_empty()) || faults_of_children != Some(0)
    }

    /// Returns the CPU on which the thread ran last.
    pub fn cpu(&self) -> Option<usize> {
        let cpu = stat_field(&format!("/proc/{}/task/{}/stat", self.pid, self.tid), LAST_CPU)?;
        usize::try_from(cpu).ok()
    }

    /// Returns where the heap of its process ends, which grows upward; `None` if it has none.
    pub fn heap_end(&self) -> Option<u64> {
        let regions = File::open(format!("/proc/{}/maps", self.pid)).ok()?;
        let heap =
            BufReader::new(regions).lines().map_while(Result::ok).find(|line| line.ends_with("[heap]"))?;
        let end = heap.split(['-', ' ']).nth(1)?;
        u64::from_str_radix(end, 16).ok()
    }

    /// Returns the ticks since the thread began; 0 where that is not known.
    fn age_ticks(&self) -> u64 {
        let began = stat_field(&format!("/proc/{}/task/{}/stat", self.pid, self.tid), BEGIN_TICKS);
        let now = time_ns(libc::CLOCK_BOOTTIME) / (1_000_000_000 / TICKS_PER_SECOND);
        began.map_or(0, |began| now.saturating_sub(began))
    }

    fn is_running(&self) -> bool {
        self.state().is_some_and(|state| state.is_running)
    }

    /// Returns whether the signal was sent to the thread, which has not taken it yet but will.
    fn is_pending(&self, signal: libc::c_int) -> bool {
        self.state().is_some_and(|s| s.signals.pending & !s.signals.blocked & bit(signal) != 0)
    }
}

/// Numbers of fields in `stat`, counted as in proc(5): page faults that read nothing, those of children that were waited for, the start time, and the CPU.
pub const FAULTS: usize = 10;
const CHILDREN_FAULTS: usize = 11;
const BEGIN_TICKS: usize = 22;
const LAST_CPU: usize = 39;

/// Returns a field of a file `stat` after the second field, which is a name in parentheses and may contain any character.
pub fn stat_field(path: &str, field: usize) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(field - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tracer::tests::Waits;

    #[test]
    fn a_thread_grows_older() {
        let thread = Thread { pid: Pid(std::process::id()), tid: Tid(std::process::id()) };
        let age = thread.age_ticks();
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!((age + 2..age + 1000).contains(&thread.age_ticks()), "{age} {}", thread.age_ticks());
        assert_eq!(Thread { pid: Pid(0), tid: Tid(0) }.age_ticks(), 0);
    }

    /// Threads are left at any moment between the request to stop and the second stop. Afterwards no thread is traced, no
    /// signal of ours is pending, and no system call was affected.
    #[test]
    fn a_thread_that_is_left_before_it_stops_notices_nothing() {
        let waits = Waits::build();
        let mut child = waits.start("0.5", 2, 5);
        let pid = child.id();
        let mut left = 0;
        while child.try_wait().unwrap().is_none() {
            for (index, tid) in threads_of(Pid(pid)).unwrap_or_default().into_iter().enumerate() {
                let thread = Thread { pid: Pid(pid), tid: Tid(tid) };
                let was_running = thread.is_running();
                let patience_ns = [0, 1_000, 30_000, 60_000, 100_000][index % 5];
                // The tracing thread ends here, which releases the thread.
                let halt =
                    move || halt_within(Pid(pid), Tid(tid), patience_ns).map(|tracee| tracee.detach(0));
                let end = std::thread::spawn(halt).join().unwrap();
                left += u32::from(was_running && end == Err(Ending::NotRunning));
                // The kernel releases the thread slightly later than the tracing thread is known to have ended.
                let path = format!("/proc/{pid}/task/{tid}/status");
                let is_free =
                    || std::fs::read_to_string(&path).map_or(true, |s| s.contains("TracerPid:\t0\n"));
                let wait = |_: &u32| std::thread::sleep(std::time::Duration::from_millis(1));
                assert!((0..5000).inspect(wait).any(|_| is_free()), "{tid} is traced: {end:?}");
                let pending = thread.state().map_or(0, |state| state.signals.pending);
                assert_eq!(pending & (bit(libc::SIGURG) | bit(libc::SIGWINCH)), 0, "{end:?}");
            }
        }
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && left > 10, "{left} {output:?}");
    }

    /// Returns the threads of a process, or `None` if it has ended.
    fn threads_of(pid: Pid) -> Option<Vec<u32>> {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        Some(threads.flatten().filter_map(|t| t.file_name().to_str()?.parse().ok()).collect())
    }

    /// Does on purpose what the alarm avoids: threads are interrupted wherever they are, nearly always in `epoll_wait`.
    #[test]
    fn an_interrupted_call_is_restarted() {
        let waits = Waits::build();
        let child = waits.start("0.5", 2, 1);
        let pid = child.id();
        let mut put = 0;
        while let Some(tids) = threads_of(Pid(pid)) {
            if tids == [pid] && put > 0 {
                break;
            }
            for tid in tids.into_iter().filter(|tid| *tid != pid) {
                let Ok(tracee) = Tracee::seize(Tid(tid)) else { continue };
                tracee.interrupt();
                if tracee.wait() == Stop::Ours {
                    put_back(&tracee, &Thread { pid: Pid(pid), tid: Tid(tid) }, None);
                    put += u32::from(tracee.result() == Some(-ERESTARTNOINTR));
                    tracee.detach(0);
                }
            }
        }
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && put > 10, "{put} {output:?}");
    }
}
