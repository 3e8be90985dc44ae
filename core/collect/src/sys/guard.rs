//! A guard for threads that debug registers watch on a virtual machine.
//!
//! Some hypervisors now and then lose the cause of a debug exception, and Linux then sends the watched thread a SIGTRAP that
//! ends its program (docs/measured.md, "Debug exceptions in a virtual machine"). So threads are watched there only while a
//! helper process traces them, which takes such signals away (`tracer/helper/guard.rs`). They are never stopped for that.
//!
//! Enters: the threads to watch. Leaves: a [`Guard`], without which no breakpoint or watchpoint of others can be set. Never
//! here: what is watched.
//!
//! A thread has one tracer at a time, so guards and bursts take turns ([`Turns`]).

use std::{
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use dwell_profile::{Pid, Tid};

use super::{
    breakpoint::{is_virtual_machine, was_trapped},
    tracer,
};

/// Number of threads that are guarded at once.
pub const THREADS_MAX: usize = 64;
/// How long a guard waits for bursts in progress.
const TURN_MAX: Duration = Duration::from_millis(300);

/// A request to the helper.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Request {
    /// The process of the threads.
    pub pid: Pid,
    /// Number of threads; 0 releases those of the last request.
    pub count: u32,
    /// The threads.
    pub tids: [Tid; THREADS_MAX],
}

/// The helper's answer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Reply {
    /// 0, or the number of a [`Refusal`].
    pub refusal: u32,
    /// Number of signals that were taken away.
    pub swallowed: u32,
}

/// Why threads cannot be guarded.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The program would notice that the kernel resets its handler of SIGTRAP.
    #[error("the program handles SIGTRAP")]
    HandlesTraps = 1,
    /// An ignored SIGCHLD would interrupt system calls.
    #[error("the program has child processes")]
    HasChildren,
    /// Another debugger traces a thread.
    #[error("another program traces it")]
    NotPermitted,
    /// Bursts took too long.
    #[error("bursts were in progress")]
    Busy,
    /// There is no helper.
    #[error("debug exceptions may end programs on a virtual machine: guarding them needs root")]
    NoHelper,
}

impl Refusal {
    const ALL: [Refusal; 5] = [
        Refusal::HandlesTraps,
        Refusal::HasChildren,
        Refusal::NotPermitted,
        Refusal::Busy,
        Refusal::NoHelper,
    ];
}

/// Whose turn it is to trace threads.
#[derive(Clone, Default)]
pub struct Turns(Arc<(Mutex<Turn>, Condvar)>);

#[derive(Default)]
struct Turn {
    guards_wanted: u32,
    is_guarding: bool,
    is_bursting: bool,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.0.0.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Begins bursts unless guards are in use or wanted. Returns whether they may begin.
    pub fn begin_bursts(&self) -> bool {
        let mut turn = self.lock();
        let may_begin = !turn.is_guarding && turn.guards_wanted == 0;
        turn.is_bursting |= may_begin;
        may_begin
    }

    /// Ends bursts.
    pub fn end_bursts(&self) {
        self.lock().is_bursting = false;
        self.0.1.notify_all();
    }

    /// Waits for the turn of a guard, for `patience` at most. Until it came, or is given up, no bursts begin.
    fn begin_guard(&self, patience: Duration) -> bool {
        let mut turn = self.lock();
        turn.guards_wanted += 1;
        let is_taken = |turn: &mut Turn| turn.is_bursting || turn.is_guarding;
        let waited = self.0.1.wait_timeout_while(turn, patience, is_taken);
        turn = waited.unwrap_or_else(|error| error.into_inner()).0;
        turn.guards_wanted -= 1;
        let may_begin = !is_taken(&mut turn);
        turn.is_guarding |= may_begin;
        may_begin
    }

    fn end_guard(&self) {
        self.lock().is_guarding = false;
        self.0.1.notify_all();
    }
}

/// How the threads of others are protected when debug registers watch them.
#[derive(Clone)]
pub struct Protection {
    kind: Kind,
    turns: Turns,
}

#[derive(Clone)]
enum Kind {
    /// This is no virtual machine.
    NotNeeded,
    Helper(Arc<Helper>),
    /// It is one, and there is no helper.
    Missing,
}

struct Helper {
    channel: OwnedFd,
    process: libc::pid_t,
}

impl Protection {
    /// Starts the helper process if this is a virtual machine. Only a tracer that may trace everybody is sure to leave the
    /// programs that its tracees execute their rights, so there is none for other users.
    pub fn start(turns: &Turns) -> Self {
        // SAFETY: takes no pointer and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        let kind = if !is_virtual_machine() {
            Kind::NotNeeded
        } else if !is_root {
            Kind::Missing
        } else {
            Helper::fork().map_or(Kind::Missing, |helper| Kind::Helper(Arc::new(helper)))
        };
        Protection { kind, turns: turns.clone() }
    }

    /// Returns the helper's process id, if there is a helper.
    #[cfg(test)]
    pub fn helper(&self) -> Option<Pid> {
        match &self.kind {
            Kind::Helper(helper) => Some(Pid(helper.process as u32)),
            _ => None,
        }
    }

    /// Guards threads of a process, [`THREADS_MAX`] at most. If `waits`, it waits a moment for bursts in progress.
    pub fn guard(&self, pid: Pid, tids: &[Tid], waits: bool) -> Result<Guard, Refusal> {
        let helper = match &self.kind {
            Kind::NotNeeded if was_trapped() => return Err(Refusal::NoHelper),
            Kind::NotNeeded => return Ok(Guard { of: None }),
            Kind::Missing => return Err(Refusal::NoHelper),
            Kind::Helper(helper) => helper,
        };
        if !self.turns.begin_guard(if waits { TURN_MAX } else { Duration::ZERO }) {
            return Err(Refusal::Busy);
        }
        let count = tids.len().min(THREADS_MAX);
        let mut request = Request { pid, count: count as u32, tids: [Tid(0); THREADS_MAX] };
        request.tids[..count].copy_from_slice(&tids[..count]);
        let refusal = match helper.ask(&request) {
            Ok(reply) if reply.refusal == 0 => {
                return Ok(Guard { of: Some((helper.clone(), self.turns.clone())) });
            }
            Ok(reply) => Refusal::ALL.into_iter().find(|refusal| *refusal as u32 == reply.refusal),
            Err(_) => None,
        };
        self.turns.end_guard();
        Err(refusal.unwrap_or(Refusal::NoHelper))
    }
}

/// Threads that are guarded. Dropping it releases them: drop what watches them before.
pub struct Guard {
    of: Option<(Arc<Helper>, Turns)>,
}

impl Guard {
    /// Returns a guard of nobody, for tests that watch themselves.
    #[cfg(test)]
    pub fn for_own_thread() -> Guard {
        Guard { of: None }
    }

    /// Returns whether this is a virtual machine, so that the threads are traced.
    pub fn is_needed(&self) -> bool {
        self.of.is_some()
    }

    /// Releases the threads, and returns how many exceptions were lost meanwhile. Drop what watches them before.
    pub fn release(mut self) -> u32 {
        self.end()
    }

    /// Releases the threads on a thread of its own: the caller need not wait.
    pub fn release_later(self) {
        if self.of.is_some() {
            let _ = std::thread::Builder::new().name("dwell-release".to_owned()).spawn(move || drop(self));
        }
    }

    fn end(&mut self) -> u32 {
        let Some((helper, turns)) = self.of.take() else { return 0 };
        let release = Request { pid: Pid(0), count: 0, tids: [Tid(0); THREADS_MAX] };
        let reply = helper.ask(&release);
        turns.end_guard();
        reply.map_or(0, |reply| reply.swallowed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
    }
}

impl Helper {
    fn fork() -> io::Result<Self> {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two descriptors to the live array.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were just made and belong to nobody else.
        let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: the child calls a function alone that does not return; what it needs of the C library works after a fork.
        let process = unsafe { libc::fork() };
        match process {
            0 => tracer::serve_guards(theirs.as_raw_fd()),
            1.. => Ok(Helper { channel: ours, process }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn ask(&self, request: &Request) -> io::Result<Reply> {
        let fd = self.channel.as_raw_fd();
        let mut reply = Reply { refusal: 0, swallowed: 0 };
        // SAFETY: the request is live and plain bytes; the kernel writes at most the size of the live reply, for which any
        // bytes are valid.
        let received = unsafe {
            let sent = libc::send(fd, (&raw const *request).cast(), size_of::<Request>(), libc::MSG_NOSIGNAL);
            if sent < 0 {
                return Err(io::Error::last_os_error());
            }
            libc::recv(fd, (&raw mut reply).cast(), size_of::<Reply>(), 0)
        };
        if received == size_of::<Reply>() as isize {
            Ok(reply)
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // SAFETY: shuts our own socket; the helper then reads the end of it and ends. It is our own child, which nobody else
        // waits for.
        unsafe {
            libc::shutdown(self.channel.as_raw_fd(), libc::SHUT_RDWR);
            for _ in 0..300 {
                if libc::waitpid(self.process, ptr::null_mut(), libc::WNOHANG) != 0 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

const _: () = assert!(mem::size_of::<Request>() == 8 + 4 * THREADS_MAX);
