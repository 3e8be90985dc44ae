//! All threads of a process under trace, none of them stopped for long.
//!
//! Enters: a process. Leaves: threads that stopped in user mode, one at a time, and the certainty that no thread stands where code
//! is about to change. Never here: what is written to the process.
//!
//! Threads are not stopped where they wait, since many system calls would return EINTR or wait longer than they were asked to:
//!
//! - A thread that is *blocked* says in `/proc/PID/task/TID/syscall` where it will continue. That is enough.
//! - A thread that *runs* gets an alarm ([`Alarm`]): a signal that it ignores, sent while it is in user mode.
//! - A thread that comes to a place where `int3` was written stops there by itself.
//!
//! Everything runs on one thread of ours, whose end releases all threads without stopping them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::fs::{FileExt, FileTypeExt},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use dwell_collect::Alarm;
use dwell_profile::{Pid, Tid};

use super::{
    procfs::{self, Position},
    tracee::Tracee,
};
use crate::patch::plan::JUMP_BYTES;

/// A stop of a thread that waits for [`Tracer::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The thread came to an `int3` at this address; its program counter is there again.
    Breakpoint(u64),
    /// The thread runs in user mode, and this is its program counter.
    Running(u64),
    /// The thread was interrupted in a system call that does not notice.
    InCall,
}

/// A traced thread.
struct Thread {
    tracee: Tracee,
    alarm: Option<Alarm>,
    /// Whether it had SIGTRAP blocked, which a trap of ours undoes.
    blocks_traps: bool,
    stopped: Option<(Stop, Instant)>,
    /// Whether it was interrupted and has not stopped yet.
    is_interrupted: bool,
    /// Whether it stays in a group stop.
    is_listening: bool,
    /// Whether its position was found to be harmless since [`Tracer::uncheck`].
    is_checked: bool,
}

/// The threads of a process. It must be used on one thread, and dropped at that thread's end.
pub struct Tracer {
    pid: Pid,
    threads: BTreeMap<Tid, Thread>,
    /// Addresses where `int3` was written.
    pub breakpoints: BTreeSet<u64>,
    /// Processes that were forked meanwhile: they are stopped, and have a copy of all code.
    forked: Vec<Tracee>,
    /// Processes that were forked and have not stopped yet.
    expected: BTreeSet<Tid>,
    /// The original code of places that change: a forked process goes on without probes.
    pub originals: Vec<(u64, [u8; JUMP_BYTES])>,
    /// The longest time that a thread was stopped.
    pub stopped_max: Duration,
    /// The bases of gs that threads get when they stop, if they get any.
    pub bases: Option<Bases>,
}

/// Bases of threads' gs segments, so that each thread has counters of its own. Programs for x86-64 do not use gs: their base is 0.
#[derive(Clone, Debug)]
pub struct Bases {
    /// The distance in bytes of two bases.
    pub stride: u64,
    /// How many there are. The first one is 0, that of threads that have not stopped yet.
    pub number: u64,
    /// The bases of threads.
    pub of: BTreeMap<Tid, u64>,
    /// Whether the program uses gs itself.
    pub is_foreign: bool,
    /// Whether threads get back the base that programs have, 0.
    pub is_over: bool,
}

impl Bases {
    /// Gives a stopped thread its base.
    fn set(&mut self, tracee: Tracee) -> io::Result<()> {
        let next = self.of.len() as u64 % (self.number - 1) + 1;
        let own = *self.of.entry(tracee.tid).or_insert(next * self.stride);
        let wanted = if self.is_over { 0 } else { own };
        let base = tracee.gs_base()?;
        if base % self.stride != 0 || base >= self.number * self.stride {
            self.is_foreign = true;
        } else if base != wanted {
            tracee.set_gs_base(wanted)?;
        }
        Ok(())
    }
}

/// `si_code` of an `int3`.
const SI_KERNEL: libc::c_int = 0x80;
/// `si_code` of an alarm's signal.
const POLL_HUP: libc::c_int = 6;
/// The result of a system call that the kernel itself restarts. Programs never see it.
const ERESTARTNOINTR: u64 = -513i64 as u64;
const EINTR: u64 = -(libc::EINTR as i64) as u64;
/// How long to wait until each thread that runs was stopped once.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before threads are looked at again.
const LOOK: Duration = Duration::from_micros(50);

impl Tracer {
    /// Traces all threads of a process.
    pub fn seize(pid: Pid) -> io::Result<Self> {
        let mut tracer = Tracer {
            pid,
            threads: BTreeMap::new(),
            breakpoints: BTreeSet::new(),
            forked: Vec::new(),
            expected: BTreeSet::new(),
            originals: Vec::new(),
            stopped_max: Duration::ZERO,
            bases: None,
        };
        loop {
            let known = tracer.threads.len();
            for tid in procfs::threads(pid)? {
                if tracer.threads.contains_key(&tid) {
                    continue;
                }
                match Tracee::seize(tid) {
                    Ok(tracee) => tracer.add(tracee),
                    Err(error)
                        if error.raw_os_error() == Some(libc::ESRCH) || procfs::has_ended(pid, tid) => {}
                    // It was cloned by a thread that is traced already.
                    Err(_) if is_traced_by_us(pid, tid) => tracer.add(Tracee { tid }),
                    Err(error) => return Err(error),
                }
            }
            if tracer.threads.len() == known {
                break;
            }
        }
        // A thread that was creating a process when it was seized does not report it.
        tracer.settle(PATIENCE, |_| true, |_, _| Ok(()))?;
        Ok(tracer)
    }

    /// Waits until every thread was seen outside of code that is about to change, where `is_harmless` says so of its program
    /// counter, or returns a `TimedOut` error. `moved` may set a running thread's registers. Threads that stop at a breakpoint stay there.
    pub fn settle(
        &mut self,
        patience: Duration,
        is_harmless: impl Fn(u64) -> bool,
        mut moved: impl FnMut(Tracee, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let end = Instant::now() + patience;
        self.uncheck();
        while !self.check(&is_harmless)? {
            if Instant::now() > end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            while let Some((tid, stop)) = self.next_stop(LOOK)? {
                match stop {
                    Stop::Running(pc) => moved(Tracee { tid }, pc)?,
                    Stop::Breakpoint(_) => continue,
                    Stop::InCall => {}
                }
                self.release(tid)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, tracee: Tracee) {
        let signals = procfs::status(self.pid, tracee.tid).unwrap_or_default().signals;
        let blocks_traps = signals.blocked & trap_bit() != 0;
        let thread = Thread {
            tracee,
            alarm: None,
            blocks_traps,
            stopped: None,
            is_interrupted: false,
            is_listening: false,
            is_checked: false,
        };
        self.threads.entry(tracee.tid).or_insert(thread);
    }

    /// Returns the process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns whether all threads have ended.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Returns a thread by its id, to act on it while it is stopped.
    pub fn tracee(&self, tid: Tid) -> Tracee {
        Tracee { tid }
    }

    /// Begins to look for every thread's position anew.
    pub fn uncheck(&mut self) {
        self.threads.values_mut().for_each(|thread| thread.is_checked = thread.stopped.is_some());
    }

    /// Looks for one thread's position anew.
    pub fn uncheck_one(&mut self, tid: Tid) {
        self.threads.entry(tid).and_modify(|thread| thread.is_checked = false);
    }

    /// Returns the threads that are stopped.
    pub fn stopped(&self) -> Vec<(Tid, Stop)> {
        self.threads.iter().filter_map(|(tid, thread)| Some((*tid, thread.stopped?.0))).collect()
    }

    /// Looks at threads that are not checked. A blocked thread is if `is_harmless` says so of its program counter; one that runs
    /// gets an alarm. Returns whether all are checked.
    pub fn check(&mut self, is_harmless: &impl Fn(u64) -> bool) -> io::Result<bool> {
        let mut is_complete = true;
        for (tid, thread) in self.threads.iter_mut().filter(|(_, thread)| !thread.is_checked) {
            match procfs::position(self.pid, *tid) {
                None => {} // It has ended, which will be reported.
                // It may be about to create a process.
                Some(Position::InCall { number, .. }) if creates_process(number) => {}
                Some(Position::InCall { pc, .. } | Position::Blocked { pc, .. }) => {
                    thread.is_checked = is_harmless(pc);
                }
                Some(Position::Running) if thread.alarm.is_none() => set_alarm(self.pid, *tid, thread)?,
                Some(Position::Running) => {}
            }
            is_complete &= thread.is_checked;
        }
        Ok(is_complete)
    }

    /// Sets an alarm for each thread that runs, and returns whether there is any.
    pub fn alarm_running(&mut self) -> io::Result<bool> {
        let mut is_any = false;
        for (tid, thread) in self.threads.iter_mut().filter(|(_, thread)| thread.stopped.is_none()) {
            if procfs::position(self.pid, *tid) == Some(Position::Running) {
                is_any = true;
                if thread.alarm.is_none() {
                    set_alarm(self.pid, *tid, thread)?;
                }
            }
        }
        Ok(is_any)
    }

    /// Interrupts a thread that is blocked in a system call which the kernel restarts without the program noticing.
    pub fn interrupt_quiet_call(&mut self) -> io::Result<bool> {
        if self.threads.values().any(|thread| thread.is_interrupted) {
            return Ok(true); // It is about to stop.
        }
        for (tid, thread) in self.threads.iter_mut().filter(|(_, thread)| thread.stopped.is_none()) {
            if let Some(Position::InCall { number, arguments, .. }) = procfs::position(self.pid, *tid)
                && is_restarted(self.pid, number, arguments)
            {
                thread.tracee.interrupt()?;
                thread.is_interrupted = true;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for the next stop that the caller must answer, for `patience` at most. All other stops are answered here.
    pub fn next_stop(&mut self, patience: Duration) -> io::Result<Option<(Tid, Stop)>> {
        let end = Instant::now() + patience;
        loop {
            let mut status = 0;
            let flags = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
            // SAFETY: the kernel writes the live status.
            match unsafe { libc::waitpid(-1, &raw mut status, flags) } {
                -1 if io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) => return Ok(None),
                -1 => return Err(io::Error::last_os_error()),
                0 if Instant::now() >= end => return Ok(None),
                0 => sleep(LOOK),
                waited => {
                    if let Some(stop) = self.stop(Tid(waited as u32), status)? {
                        return Ok(Some((Tid(waited as u32), stop)));
                    }
                }
            }
        }
    }

    /// Continues a thread after a [`Stop`].
    pub fn release(&mut self, tid: Tid) -> io::Result<()> {
        if let Some(thread) = self.threads.get_mut(&tid)
            && let Some((_, since)) = thread.stopped.take()
        {
            if let Some(bases) = &mut self.bases {
                ignore_gone(bases.set(thread.tracee))?;
            }
            self.stopped_max = self.stopped_max.max(since.elapsed());
            ignore_gone(thread.tracee.resume(0))?;
        }
        Ok(())
    }

    /// Answers stops until none can be on its way any more. Afterwards this thread of ours can end.
    pub fn finish(&mut self) -> io::Result<()> {
        for (tid, _) in self.stopped() {
            self.release(tid)?;
        }
        self.threads.values_mut().for_each(|thread| thread.alarm = None);
        loop {
            while let Some((tid, _)) = self.next_stop(Duration::ZERO)? {
                self.release(tid)?;
            }
            let may_stop = |(tid, thread): (&Tid, &Thread)| {
                let Some(status) = procfs::status(self.pid, *tid).filter(|_| !thread.is_listening) else {
                    return false;
                };
                let ours = trap_bit() | QUIET.iter().fold(0, |set, signal| set | bit(*signal));
                status.state == 't' || status.signals.pending & !status.signals.blocked & ours != 0
            };
            if !self.threads.iter().any(may_stop) && self.expected.is_empty() {
                break;
            }
            sleep(LOOK);
        }
        for child in std::mem::take(&mut self.forked) {
            if !shares_memory(self.pid, child.tid)
                && let Ok(memory) = File::options().write(true).open(format!("/proc/{}/mem", child.tid))
            {
                for (address, bytes) in &self.originals {
                    memory.write_all_at(bytes, *address)?;
                }
            }
            ignore_gone(child.detach())?;
        }
        Ok(())
    }

    /// Handles a stop of any thread. Returns those that the caller must answer.
    fn stop(&mut self, tid: Tid, status: libc::c_int) -> io::Result<Option<Stop>> {
        let tracee = Tracee { tid };
        if !libc::WIFSTOPPED(status) {
            self.expected.remove(&tid);
            self.forked.retain(|child| child.tid != tid);
            self.threads.remove(&tid);
            return Ok(None);
        }
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        let stop = match (event, signal) {
            (libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK, _) => {
                let child = tracee.event_message().map(|id| Tracee { tid: Tid(id) });
                if let Some(child) = child.filter(|child| !self.forked.contains(child))
                    && event != libc::PTRACE_EVENT_CLONE
                {
                    self.expected.insert(child.tid);
                }
                ignore_gone(tracee.resume(0))?;
                return Ok(None);
            }
            (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => match self.threads.get(&tid) {
                Some(thread) if thread.is_listening => {
                    self.threads.entry(tid).and_modify(|thread| thread.is_listening = false);
                    ignore_gone(tracee.resume(0))?;
                    return Ok(None);
                }
                Some(_) => {
                    put_back(self.pid, tracee, None)?;
                    Stop::InCall
                }
                None if procfs::status(self.pid, tid).is_some() => {
                    self.add(tracee); // A new thread.
                    self.threads.entry(tid).and_modify(|thread| thread.is_checked = true);
                    ignore_gone(tracee.resume(0))?;
                    return Ok(None);
                }
                None => {
                    self.expected.remove(&tid);
                    self.forked.push(tracee); // It stays stopped until its code is repaired.
                    return Ok(None);
                }
            },
            (libc::PTRACE_EVENT_STOP, _) => {
                self.threads.entry(tid).and_modify(|thread| thread.is_listening = true);
                ignore_gone(tracee.listen())?;
                return Ok(None);
            }
            (0, libc::SIGTRAP) => match self.breakpoint(tracee)? {
                Some(address) => Stop::Breakpoint(address),
                None => return self.deliver(tracee, signal).map(|()| None),
            },
            (0, _) if self.is_alarm(tracee) => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.alarm = None;
                }
                let registers = tracee.registers()?;
                if registers.orig_rax as i64 >= 0 {
                    // The signal came late, in a system call.
                    put_back(self.pid, tracee, None)?;
                    ignore_gone(tracee.resume(0))?;
                    return Ok(None);
                }
                Stop::Running(registers.rip)
            }
            _ => return self.deliver(tracee, signal).map(|()| None),
        };
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.stopped = Some((stop, Instant::now()));
            thread.is_interrupted &= stop != Stop::InCall;
            thread.is_checked = true;
        }
        Ok(Some(stop))
    }

    /// Returns the address if the thread stopped at an `int3` of ours, and sets its program counter back to it.
    fn breakpoint(&self, tracee: Tracee) -> io::Result<Option<u64>> {
        let mut registers = tracee.registers()?;
        let address = registers.rip.wrapping_sub(1);
        if tracee.signal_code() != Some(SI_KERNEL) || !self.breakpoints.contains(&address) {
            return Ok(None);
        }
        registers.rip = address;
        tracee.set_registers(&registers)?;
        // The kernel unblocks a signal that it forces.
        let mask = tracee.signal_mask()?;
        let all_others = (bit(32) - 1) & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP) | trap_bit());
        let blocked = self.threads.get(&tracee.tid).is_some_and(|thread| thread.blocks_traps);
        if blocked || mask & all_others == all_others {
            tracee.set_signal_mask(mask | trap_bit())?;
        }
        Ok(Some(address))
    }

    fn is_alarm(&self, tracee: Tracee) -> bool {
        self.threads.get(&tracee.tid).is_some_and(|thread| thread.alarm.is_some())
            && tracee.signal_code() == Some(POLL_HUP)
    }

    /// Delivers a signal of the program's.
    fn deliver(&self, tracee: Tracee, signal: libc::c_int) -> io::Result<()> {
        put_back(self.pid, tracee, Some(signal))?;
        ignore_gone(tracee.resume(signal))
    }
}

/// Restarts a system call that ended with EINTR only because an ignored signal reaches a traced thread.
pub fn put_back(pid: Pid, tracee: Tracee, delivered: Option<libc::c_int>) -> io::Result<()> {
    let mut registers = tracee.registers()?;
    if (registers.orig_rax as i64) < 0 || registers.rax != EINTR {
        return Ok(());
    }
    let Some(status) = procfs::status(pid, tracee.tid) else { return Ok(()) };
    let has_effect = |signal: libc::c_int| !status.signals.is_ignored(signal);
    if !delivered.is_some_and(has_effect) && !status.signals.deliverable().any(has_effect) {
        registers.rax = ERESTARTNOINTR;
        tracee.set_registers(&registers)?;
    }
    Ok(())
}

/// The signals that alarms use.
const QUIET: [libc::c_int; 2] = [libc::SIGURG, libc::SIGWINCH];

fn set_alarm(pid: Pid, tid: Tid, thread: &mut Thread) -> io::Result<()> {
    let Some(status) = procfs::status(pid, tid) else { return Ok(()) };
    // A C library blocks all signals for moments, so a thread without a usable signal may have one later.
    let Some(signal) = status.signals.quiet() else { return Ok(()) };
    let alarm = match Alarm::new(tid, signal) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
        alarm => alarm?,
    };
    alarm.start()?;
    thread.alarm = Some(alarm);
    Ok(())
}

/// Returns whether this call goes on unchanged after a thread was interrupted in it by its tracer: the kernel restarts it with the
/// time that is left, or it has no time limit and can be put back.
fn is_restarted(pid: Pid, number: i64, arguments: [u64; 6]) -> bool {
    match number {
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep | libc::SYS_poll | libc::SYS_select => true,
        // One of these, poll or futex, that was interrupted before.
        libc::SYS_restart_syscall => true,
        libc::SYS_wait4 | libc::SYS_waitid | libc::SYS_pause | libc::SYS_rt_sigsuspend => true,
        // FUTEX_WAIT and FUTEX_WAIT_BITSET, with or without a time limit.
        libc::SYS_futex => matches!(arguments[1] & 0x7f, 0 | 9),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => (arguments[3] as i32) < 0,
        libc::SYS_read | libc::SYS_accept | libc::SYS_accept4 | libc::SYS_recvmsg => {
            waits_quietly(pid, arguments[0])
        }
        // A call that wants all bytes may have some already.
        libc::SYS_recvfrom => {
            arguments[3] & libc::MSG_WAITALL as u64 == 0 && waits_quietly(pid, arguments[0])
        }
        _ => false,
    }
}

/// Returns whether a thread that waits to read from a file of its process goes on after an interruption: the file is a pipe, a
/// terminal, or a socket without a time limit. Reading inotify ends with EINTR, and so do sockets with a limit.
fn waits_quietly(pid: Pid, fd: u64) -> bool {
    let link = format!("/proc/{pid}/fd/{fd}");
    let path = std::fs::read_link(&link).unwrap_or_default();
    let path = path.to_string_lossy();
    if path.starts_with("socket:") {
        return has_no_receive_limit(pid, fd);
    }
    path.starts_with("/dev/pts/")
        || path.starts_with("/dev/tty")
        || std::fs::metadata(&link).is_ok_and(|file| file.file_type().is_fifo())
}

/// Returns whether a socket of a process is known to have no SO_RCVTIMEO.
fn has_no_receive_limit(pid: Pid, fd: u64) -> bool {
    // SAFETY: the descriptors are ours and are owned at once; the limit is live and its length is passed.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, pid.0, 0) as libc::c_int;
        if process < 0 {
            return false;
        }
        let process = OwnedFd::from_raw_fd(process);
        let socket = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) as libc::c_int;
        if socket < 0 {
            return false;
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let mut limit = libc::timeval { tv_sec: 1, tv_usec: 0 };
        let mut length = size_of::<libc::timeval>() as libc::socklen_t;
        let got = libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw mut limit).cast(),
            &raw mut length,
        );
        got == 0 && limit.tv_sec == 0 && limit.tv_usec == 0
    }
}

/// Returns whether a process has the same memory as another one, as after `vfork`.
fn shares_memory(pid: Pid, other: Tid) -> bool {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: takes no pointer.
    unsafe { libc::syscall(libc::SYS_kcmp, pid.0, other.0, KCMP_VM, 0, 0) == 0 }
}

fn creates_process(number: i64) -> bool {
    matches!(number, libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork)
}

fn is_traced_by_us(pid: Pid, tid: Tid) -> bool {
    // SAFETY: takes no pointer.
    let own = unsafe { libc::gettid() } as u32;
    procfs::status(pid, tid).is_some_and(|status| status.tracer == own || status.tracer == std::process::id())
}

/// Passes an error on, unless the thread was killed.
pub fn ignore_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}

fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

fn trap_bit() -> u64 {
    bit(libc::SIGTRAP)
}
