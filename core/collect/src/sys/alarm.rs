//! Signals that stop a thread in user mode, and that it does not notice.
//!
//! Enters: a thread and the signals that its program handles. Leaves: a timer of the thread's own. Never here: tracing; whoever
//! traces the thread gets the signal in place of the thread.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use dwell_profile::Tid;
use perf_event_open_sys::{self as perf, bindings as abi};

/// CPU time of the thread after which it stops. If it is in the kernel at that moment, it stops after the same time again.
const ALARM_NS: u64 = 50_000;
/// Signals that have no effect unless the program handles them. SIGCHLD and SIGCONT are not among them: programs wait for
/// SIGCHLD, and SIGCONT takes effect when it is sent.
const QUIET: [libc::c_int; 2] = [libc::SIGURG, libc::SIGWINCH];
/// Signals that are ignored unless the program installs a handler.
const IGNORED_BY_DEFAULT: [libc::c_int; 4] = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
/// Commands of `fcntl` for signals from files, which the libc crate lacks (asm-generic/fcntl.h).
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
/// Type of an owner of a file's signals: a thread.
const F_OWNER_TID: libc::c_int = 0;

/// Opens an event that never counts. While it is open, opening an alarm is fast. The first event of a thread on a machine
/// makes the kernel watch context switches, and the opener then waits for an RCU grace period. That takes seconds when
/// threads that were preempted within the kernel get no CPU.
pub fn keep_switches_watched() -> Option<OwnedFd> {
    open_event(Tid(0)).ok()
}

/// Opens a disabled event: a clock of the thread's time in user mode (0: of the calling thread's).
fn open_event(tid: Tid) -> io::Result<OwnedFd> {
    let mut attr = abi::perf_event_attr {
        size: size_of::<abi::perf_event_attr>() as u32,
        type_: abi::PERF_TYPE_SOFTWARE,
        config: u64::from(abi::PERF_COUNT_SW_CPU_CLOCK),
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = ALARM_NS;
    attr.set_disabled(1);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    let flags = libc::c_ulong::from(abi::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a live, initialized perf_event_attr whose `size` is its own; the kernel writes at most its `size`
    // field.
    let fd = check(unsafe { perf::perf_event_open(&mut attr, tid.0 as libc::pid_t, -1, -1, flags) })?;
    // SAFETY: the kernel just gave us this descriptor, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A timer that counts while a thread runs and sends it a single signal in user mode. Dropping the alarm closes it.
pub struct Alarm {
    event: OwnedFd,
}

impl Alarm {
    /// Creates an alarm for a thread, which will get this signal.
    pub fn new(tid: Tid, signal: libc::c_int) -> io::Result<Alarm> {
        let event = open_event(tid)?;
        let fd = event.as_raw_fd();
        let owner: [libc::c_int; 2] = [F_OWNER_TID, tid.0 as libc::c_int]; // struct f_owner_ex
        // SAFETY: the owner is live; the other calls take no pointer.
        unsafe {
            check(libc::fcntl(fd, F_SETOWN_EX, owner.as_ptr()))?;
            check(libc::fcntl(fd, F_SETSIG, signal))?;
            check(libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC))?;
        }
        Ok(Alarm { event })
    }

    /// Starts the timer. It stops after it has fired once.
    pub fn start(&self) -> io::Result<()> {
        // SAFETY: takes no pointer.
        check(unsafe { perf::ioctls::REFRESH(self.event.as_raw_fd(), 1) }).map(drop)
    }
}

/// Sets of signals, as bit masks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signals {
    /// Signals that wait for the thread.
    pub pending: u64,
    /// Signals that wait for its process.
    pub pending_for_process: u64,
    /// Signals that the thread blocks.
    pub blocked: u64,
    /// Signals that its process ignores.
    pub ignored: u64,
    /// Signals that its process handles.
    pub caught: u64,
}

impl Signals {
    /// Parses the text of a thread's `/proc/PID/task/TID/status`. A missing set is empty.
    pub fn parse(status: &str) -> Self {
        let set = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0)
        };
        Signals {
            pending: set("SigPnd"),
            pending_for_process: set("ShdPnd"),
            blocked: set("SigBlk"),
            ignored: set("SigIgn"),
            caught: set("SigCgt"),
        }
    }

    /// Returns the signal to stop the thread with. SIGURG is not used where the program handles it: our signal would replace
    /// one that is sent at the same moment, and the Go runtime waits for each of them. Programs that handle SIGWINCH as
    /// well, as Go programs do, query the size of the window at each signal, so a lost one does no harm.
    pub fn quiet(self) -> Option<libc::c_int> {
        let is_free = |signal: &libc::c_int| self.blocked & bit(*signal) == 0;
        let unhandled = QUIET.into_iter().filter(is_free).find(|signal| self.caught & bit(*signal) == 0);
        unhandled.or(Some(libc::SIGWINCH).filter(is_free))
    }

    /// Iterates over pending signals that the thread takes before it continues.
    pub fn deliverable(self) -> impl Iterator<Item = libc::c_int> {
        let deliverable = (self.pending | self.pending_for_process) & !self.blocked;
        (1..=64).filter(move |signal| deliverable & bit(*signal) != 0)
    }

    /// Returns whether the signal has no effect.
    pub fn is_ignored(self, signal: libc::c_int) -> bool {
        let by_default = IGNORED_BY_DEFAULT.contains(&signal) && self.caught & bit(signal) == 0;
        by_default || self.ignored & bit(signal) != 0
    }
}

/// Returns the bit of a signal in a set.
pub fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_is_one_that_the_program_ignores() {
        let [urgent, window] = [bit(libc::SIGURG), bit(libc::SIGWINCH)];
        let quiet = |blocked, caught| Signals { blocked, caught, ..Signals::default() }.quiet();
        assert_eq!(quiet(0, 0), Some(libc::SIGURG));
        assert_eq!(quiet(urgent, 0), Some(libc::SIGWINCH));
        assert_eq!(quiet(0, urgent), Some(libc::SIGWINCH));
        assert_eq!(quiet(0, window), Some(libc::SIGURG));
        // The masks that the Go runtime has.
        assert_eq!(quiet(0, urgent | window), Some(libc::SIGWINCH));
        assert_eq!(quiet(window, urgent), None);
        assert_eq!(quiet(urgent | window, 0), None);
    }

    #[test]
    fn ignored_signals_have_no_effect() {
        let signals =
            Signals { ignored: bit(libc::SIGUSR1), caught: bit(libc::SIGCHLD), ..Signals::default() };
        let is_ignored =
            [libc::SIGUSR1, libc::SIGCHLD, libc::SIGURG, libc::SIGTERM].map(|s| signals.is_ignored(s));
        assert_eq!(is_ignored, [true, false, true, false]);
        let pending = Signals { pending: bit(10), pending_for_process: bit(12), blocked: bit(12), ..signals };
        assert_eq!(pending.deliverable().collect::<Vec<_>>(), [10]);
    }
}
