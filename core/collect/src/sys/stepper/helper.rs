//! The stepping process itself (see the parent module).
//!
//! A burst: seize the thread, interrupt it, follow it ([`copy`]) or single-step it, let it go. On every path the thread is detached from; what
//! we cannot detach from (it is gone) needs nothing. `PTRACE_O_EXITKILL` is never set.

mod copy;

use std::{mem, panic, ptr};

use super::{
    BURST_NS_MAX, BURSTS_MAX, CALL_NS_MAX, Ending, FOLLOW_NS_MAX, How, REPEATS_MAX, RawFd, Reply, Request,
    Shared, Slot, TIMER_US,
};
use crate::{
    follow::{End, Follower},
    random::Random,
    sys::clock::known_namespace_offset_ns,
};

/// A stop that no signal of the program's makes: an interrupt of ours or a group stop.
const EVENT_STOP: i32 = libc::PTRACE_EVENT_STOP;
/// With `PTRACE_O_TRACESYSGOOD`, stops at system calls say so.
const SYSTEM_CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// `si_code` of an `int3` in the program: the kernel's own, unlike a step's TRAP_TRACE and TRAP_BRKPT.
const SI_KERNEL: i32 = 0x80;

/// Answers requests until the channel ends.
pub fn serve(channel: RawFd, shared: *mut Shared) -> ! {
    set_up(channel);
    // Unwinding would run on into the code that forked.
    panic::set_hook(Box::new(|_| {}));
    let _ = panic::catch_unwind(|| answer(channel, shared));
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(1) }
}

fn answer(channel: RawFd, shared: *mut Shared) -> ! {
    let mut follower: Option<Follower> = None;
    loop {
        // SAFETY: any bytes are a valid request; the kernel writes at most its size.
        let (read, request) = unsafe {
            let mut request: Request = mem::zeroed();
            let size = mem::size_of::<Request>();
            (libc::recv(channel, (&raw mut request).cast(), size, 0), request)
        };
        if read < 0 && errno() == libc::EINTR {
            continue;
        }
        if read != mem::size_of::<Request>() as isize {
            // SAFETY: ends this process without running anything of the parent's.
            unsafe { libc::_exit(0) }
        }
        if request.how != How::Step as u32 && follower.is_none() {
            follower = Follower::new().ok();
        }
        let reply: Reply = bursts(&request, follower.as_mut(), shared);
        // SAFETY: the reply is live and plain bytes.
        unsafe {
            let size = mem::size_of::<Reply>();
            libc::send(channel, (&raw const reply).cast(), size, libc::MSG_NOSIGNAL);
        }
    }
}

extern "C" fn on_timer(_: libc::c_int) {}

/// No signal but the timer's, no descriptor but the channel, a name and a session of its own.
fn set_up(channel: RawFd) {
    // SAFETY: system calls on values that live here; the handler does nothing. Closing every other descriptor is
    // sound, since nothing of the parent's that owns one runs in this process any more.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigdelset(&raw mut all, libc::SIGALRM);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_timer as extern "C" fn(libc::c_int) as usize; // No SA_RESTART: it ends waits.
        libc::sigaction(libc::SIGALRM, &raw const action, ptr::null_mut());
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"dwell-step".as_ptr());
        let (channel, last) = (channel as libc::c_uint, libc::c_uint::MAX);
        if channel > 0 {
            libc::syscall(libc::SYS_close_range, 0 as libc::c_uint, channel - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, channel + 1, last, 0);
    }
}

/// So many bursts, each in its slot.
fn bursts(request: &Request, mut follower: Option<&mut Follower>, shared: *mut Shared) -> u32 {
    let wanted = if follower.is_some() { request.bursts.clamp(1, BURSTS_MAX as u32) } else { 1 };
    let mut random = Random::new(request.seed);
    for index in 0..wanted as usize {
        let mean = request.delay_ns as f64;
        sleep(random.delay(mean).min(8.0 * mean) as u64);
        // SAFETY: within the mapping that both processes keep; we alone use it now.
        let slot = unsafe { &mut (*shared).slots[index] };
        burst(request, follower.as_deref_mut(), slot);
    }
    wanted
}

fn burst(request: &Request, follower: Option<&mut Follower>, slot: &mut Slot) {
    slot.pcs = 0;
    let is_follow = request.how == How::Follow as u32;
    slot.is_followed =
        u32::from(follower.is_some() && (is_follow || request.how == How::FollowOrStep as u32));
    slot.begin_ns = now_ns();
    let cpu_begin_ns = time_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    slot.cost_ns = 0;
    let refusal = if is_follow && follower.is_none() {
        Some(Ending::CannotFollow)
    } else {
        (!is_running(&request.stat_path)).then_some(Ending::NotRunning)
    };
    if let Some(refusal) = refusal {
        (slot.ending, slot.end_ns) = (refusal as u32, slot.begin_ns);
        return;
    }
    timer(TIMER_US);
    let is_followed = slot.is_followed != 0;
    let mut target = Tracee { tid: request.tid, begin_ns: slot.begin_ns, slot };
    let follower = follower.filter(|_| request.how != How::Step as u32);
    let ending = target.run(request.steps_max as usize, follower, request.how == How::Check as u32);
    slot.ending = ending as u32;
    slot.end_ns = now_ns();
    timer(0);
    let cpu_ns = time_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - cpu_begin_ns;
    slot.cost_ns = if is_followed { cpu_ns } else { slot.end_ns - slot.begin_ns };
}

/// A thread during a burst.
struct Tracee<'s> {
    tid: libc::pid_t,
    slot: &'s mut Slot,
    begin_ns: u64,
}

/// How a stop of the thread is to be taken.
enum Stop {
    /// A step or a stop at a system call that we asked for.
    Ours,
    /// Nothing came in time.
    None,
    /// Anything else: the burst is over, and detaching delivers that signal (0: none).
    Over(Ending, i32),
}

/// What kind of instruction comes next.
enum Next {
    Plain,
    SystemCall,
    /// It would show the trap flag to the program, or enter the kernel by another door.
    Unsteppable,
}

impl Tracee<'_> {
    fn run(&mut self, steps_max: usize, follower: Option<&mut Follower>, is_checked: bool) -> Ending {
        if self.ptrace(libc::PTRACE_SEIZE, 0, libc::PTRACE_O_TRACESYSGOOD as usize) < 0 {
            return if errno() == libc::ESRCH { Ending::Gone } else { Ending::NotPermitted };
        }
        self.ptrace(libc::PTRACE_INTERRUPT, 0, 0);
        let (ending, signal) = match self.wait_for_interrupt() {
            Stop::Over(ending, signal) => (ending, signal),
            _ if self.peek_user(libc::ORIG_RAX).unwrap_or(0) as i64 >= 0 => (Ending::InKernel, 0),
            _ => match follower {
                Some(follower) => self.follow(follower, steps_max, is_checked),
                None => self.step(steps_max),
            },
        };
        self.detach(signal);
        ending
    }

    /// Lets the thread go. One that was killed while it stood still is ours to wait for: until then its process has not
    /// ended for its parent, nor can another thread of it execute a program.
    fn detach(&self, signal: i32) {
        while self.ptrace(libc::PTRACE_DETACH, 0, signal as usize) < 0 {
            if !self.wait(u64::MAX).is_ok_and(|status| libc::WIFSTOPPED(status)) {
                return;
            }
        }
    }

    /// Finds out the next steps; the thread stays where it is, unless it is to make them as well.
    fn follow(&mut self, follower: &mut Follower, steps_max: usize, is_checked: bool) -> (Ending, i32) {
        let Some(mut thread) = copy::thread(self.tid) else { return (Ending::Exited, 0) };
        let (slot, begin_ns) = (&mut *self.slot, self.begin_ns);
        let is_late = || now_ns() - begin_ns > FOLLOW_NS_MAX;
        let end = follower.follow(&mut thread, steps_max, |pc| note(slot, pc), is_late);
        let ending = match end {
            End::Complete => Ending::Complete,
            End::SystemCall => Ending::SystemCall,
            End::Repeating => Ending::Repeating,
            End::Late => Ending::Late,
            End::Unknown | End::Unreadable | End::Fault => Ending::Unfollowable,
        };
        if is_checked { self.check(ending) } else { (ending, 0) }
    }

    /// Lets the thread make the steps that were found out.
    fn check(&mut self, ending: Ending) -> (Ending, i32) {
        for index in 1..self.slot.pcs as usize {
            let [before, after] = [self.slot.places[index - 1], self.slot.places[index]];
            let mut pc = before;
            // A string instruction stops after each repetition.
            for _ in 0..=REPEATS_MAX {
                match self.resume(libc::PTRACE_SINGLESTEP, u64::MAX) {
                    Stop::Ours => {}
                    Stop::None => return self.interrupt(),
                    Stop::Over(ending, signal) => return (ending, signal),
                }
                pc = self.peek_user(libc::RIP).unwrap_or(0);
                if pc != before || after == before {
                    break;
                }
            }
            if pc != after {
                self.slot.pcs = index as u32 + 1;
                return (Ending::Differs, 0);
            }
        }
        (ending, 0)
    }

    /// The first stop, however long it takes: a thread that we could not stop we could not leave either.
    fn wait_for_interrupt(&self) -> Stop {
        match self.wait(u64::MAX) {
            Ok(status) if stop_event(status) == EVENT_STOP && stop_signal(status) == libc::SIGTRAP => {
                Stop::Ours
            }
            Ok(status) => other_stop(status),
            Err(()) => Stop::Over(Ending::Exited, 0),
        }
    }

    fn step(&mut self, steps_max: usize) -> (Ending, i32) {
        let mut repeats = 0;
        let Some(mut pc) = self.peek_user(libc::RIP) else { return (Ending::Exited, 0) };
        note(self.slot, pc);
        while self.slot.pcs as usize <= steps_max {
            let stop = match self.next(pc) {
                Some(Next::Plain) => self.resume(libc::PTRACE_SINGLESTEP, u64::MAX),
                Some(Next::SystemCall) => self.system_call(),
                Some(Next::Unsteppable) | None => return (Ending::Unsteppable, 0),
            };
            match stop {
                Stop::Ours => {}
                Stop::None => return self.interrupt(),
                Stop::Over(ending, signal) => return (ending, signal),
            }
            let before = pc;
            pc = match self.peek_user(libc::RIP) {
                Some(pc) => pc,
                None => return (Ending::Exited, 0),
            };
            note(self.slot, pc);
            repeats = if pc == before { repeats + 1 } else { 0 };
            if repeats > REPEATS_MAX {
                return (Ending::Repeating, 0);
            }
            if self.slot.pcs & 15 == 0 && now_ns() - self.begin_ns > BURST_NS_MAX {
                return (Ending::Late, 0);
            }
        }
        (Ending::Complete, 0)
    }

    /// Lets the thread go on to its next stop.
    fn resume(&self, how: libc::c_uint, patience_ns: u64) -> Stop {
        if self.ptrace(how, 0, 0) < 0 {
            return Stop::Over(Ending::Exited, 0);
        }
        match self.wait(patience_ns) {
            Ok(0) => Stop::None,
            Ok(status) if stop_event(status) != 0 => other_stop(status),
            Ok(status) if stop_signal(status) == SYSTEM_CALL_STOP => Stop::Ours,
            Ok(status) if stop_signal(status) == libc::SIGTRAP && self.is_step() => Stop::Ours,
            Ok(status) => other_stop(status),
            Err(()) => Stop::Over(Ending::Exited, 0),
        }
    }

    /// Over a system call without the trap flag, so that one which waits can be told from one which works.
    fn system_call(&self) -> Stop {
        let Some(number) = self.peek_user(libc::RAX) else { return Stop::Over(Ending::Exited, 0) };
        match calls::kind(number as libc::c_long) {
            calls::Kind::Waits => return Stop::Over(Ending::Blocking, 0),
            calls::Kind::Process => return Stop::Over(Ending::ProcessCall, 0),
            calls::Kind::Works => {}
        }
        match self.resume(libc::PTRACE_SYSCALL, u64::MAX) {
            Stop::Ours => self.resume(libc::PTRACE_SYSCALL, CALL_NS_MAX),
            stop => stop,
        }
    }

    /// Gets the thread out of a system call that waits; the kernel restarts it afterwards.
    fn interrupt(&self) -> (Ending, i32) {
        self.ptrace(libc::PTRACE_INTERRUPT, 0, 0);
        match self.wait(u64::MAX) {
            Ok(status) => match other_stop(status) {
                Stop::Over(Ending::Signal, signal) => (Ending::Blocking, signal),
                Stop::Over(Ending::Exited, _) => (Ending::Exited, 0),
                _ => (Ending::Blocking, 0),
            },
            Err(()) => (Ending::Exited, 0),
        }
    }

    /// Waits for a stop or the end of the thread: its status; 0 when out of patience. An error: it is no more.
    fn wait(&self, patience_ns: u64) -> Result<i32, ()> {
        let start_ns = if patience_ns == u64::MAX { 0 } else { now_ns() };
        loop {
            let mut status = 0;
            // SAFETY: the kernel writes the live status.
            let waited = unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL) };
            match waited {
                _ if waited == self.tid => return Ok(status),
                _ if errno() != libc::EINTR => return Err(()),
                _ if patience_ns != u64::MAX && now_ns() - start_ns > patience_ns => return Ok(0),
                _ => {}
            }
        }
    }

    /// Whether a SIGTRAP stop is a step of ours and no trap or signal of the program's.
    fn is_step(&self) -> bool {
        // SAFETY: the kernel writes the live siginfo, for which zeros are valid.
        unsafe {
            let mut info: libc::siginfo_t = mem::zeroed();
            let got = libc::ptrace(libc::PTRACE_GETSIGINFO, self.tid, 0, &raw mut info);
            got == 0 && info.si_code > 0 && info.si_code != SI_KERNEL
        }
    }

    fn next(&self, pc: u64) -> Option<Next> {
        let bytes = self.peek_text(pc)?.to_le_bytes();
        // Prefixes of operand size and REX may stand before `pushf`.
        let opcode = bytes.iter().find(|b| **b != 0x66 && **b & 0xf0 != 0x40).copied()?;
        Some(match (bytes[0], bytes[1]) {
            (0x0f, 0x05) => Next::SystemCall,
            (0x0f, 0x34) | (0xcd, _) => Next::Unsteppable, // sysenter, int
            _ if opcode == 0x9c => Next::Unsteppable,      // pushf
            _ => Next::Plain,
        })
    }

    fn peek_user(&self, register: libc::c_int) -> Option<u64> {
        self.peek(libc::PTRACE_PEEKUSER, (register as usize) * mem::size_of::<u64>())
    }

    fn peek_text(&self, address: u64) -> Option<u64> {
        self.peek(libc::PTRACE_PEEKTEXT, address as usize)
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

fn note(slot: &mut Slot, pc: u64) {
    if let Some(place) = slot.places.get_mut(slot.pcs as usize) {
        *place = pc;
        slot.pcs += 1;
    }
}

fn other_stop(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Over(Ending::Exited, 0); // Waited for as a tracer; its parent gets the status all the same.
    }
    match (stop_event(status), stop_signal(status)) {
        (EVENT_STOP, libc::SIGTRAP) => Stop::Over(Ending::Late, 0),
        (EVENT_STOP, _) => Stop::Over(Ending::Stopped, 0),
        (0, SYSTEM_CALL_STOP) => Stop::Over(Ending::Blocking, 0),
        (0, signal) => Stop::Over(Ending::Signal, signal),
        _ => Stop::Over(Ending::ProcessCall, 0),
    }
}

fn stop_event(status: i32) -> i32 {
    status >> 16
}

fn stop_signal(status: i32) -> i32 {
    status >> 8 & 0xff
}

/// Whether the thread's state in its `stat` is R: on a CPU or waiting for one.
fn is_running(path: &[u8]) -> bool {
    let mut text = [0_u8; 512];
    // SAFETY: the path ends with 0; the kernel writes at most the buffer's size.
    let length = unsafe {
        let fd = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return false;
        }
        let length = libc::read(fd, text.as_mut_ptr().cast(), text.len());
        libc::close(fd);
        length
    };
    let text = text.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
    // `pid (comm) S …`, where comm may hold parentheses.
    let close = text.iter().rposition(|b| *b == b')').unwrap_or(0);
    text.get(close..).and_then(|rest| rest.get(2)) == Some(&b'R')
}

fn sleep(ns: u64) {
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the time is live; no rest is asked for.
    unsafe { libc::nanosleep(&raw const time, ptr::null_mut()) };
}

fn timer(every_us: i64) {
    let interval = libc::timeval { tv_sec: 0, tv_usec: every_us };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: the timer is live; the old one is not asked for. The function is in every libc, if not in the crate.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()) };
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

/// What system calls do to a burst.
mod calls {
    /// The kinds.
    pub enum Kind {
        /// As a rule it waits: better not to be in it when it does. Some return EINTR when they are interrupted.
        Waits,
        /// It makes or ends a thread or process, or makes it another program.
        Process,
        /// Anything else is stepped over.
        Works,
    }

    pub fn kind(number: libc::c_long) -> Kind {
        match number {
            libc::SYS_execve | libc::SYS_execveat | libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone => {
                Kind::Process
            }
            libc::SYS_clone3 | libc::SYS_exit | libc::SYS_exit_group | libc::SYS_ptrace => Kind::Process,
            libc::SYS_pause | libc::SYS_poll | libc::SYS_ppoll | libc::SYS_select | libc::SYS_pselect6 => {
                Kind::Waits
            }
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Kind::Waits,
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep | libc::SYS_wait4 | libc::SYS_waitid => {
                Kind::Waits
            }
            libc::SYS_futex | libc::SYS_futex_waitv | libc::SYS_semop | libc::SYS_semtimedop => Kind::Waits,
            libc::SYS_msgrcv | libc::SYS_msgsnd | libc::SYS_mq_timedreceive | libc::SYS_mq_timedsend => {
                Kind::Waits
            }
            libc::SYS_rt_sigsuspend | libc::SYS_rt_sigtimedwait | libc::SYS_io_getevents => Kind::Waits,
            libc::SYS_io_uring_enter | libc::SYS_accept | libc::SYS_accept4 => Kind::Waits,
            libc::SYS_connect | libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg => Kind::Waits,
            libc::SYS_flock | libc::SYS_sched_yield => Kind::Waits,
            _ => Kind::Works,
        }
    }
}
