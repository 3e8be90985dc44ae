//! A command from before its exec until its libraries are loaded, so that its first call is counted.
//!
//! Enters: a process that is about to execute a program. Leaves: the same process, *held* where no code of the program has run:
//! it runs in a loop of one jump, which needs no tracer, so probes come as to any other process. [`let_go`] ends that.
//!
//! Where it is held: [`Hook`].

use std::{
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle, sleep},
    time::Duration,
};

use dwell_profile::{Pid, Tid};

use super::{
    hook::{Hook, Loaders, open_memory},
    patcher::Change,
    tracee::Tracee,
};

/// How long to sleep before the process is looked at again.
const LOOK: Duration = Duration::from_micros(500);

/// A thread of ours that waits for the next program of a process.
pub struct Launch {
    thread: JoinHandle<io::Result<Followed>>,
    is_cancelled: Arc<AtomicBool>,
}

/// How following a process ended.
pub enum Followed {
    /// It has loaded a program, and is held in this way.
    Held(Change),
    /// It has ended.
    Ended,
    /// It goes on: following was cancelled.
    Left,
}

impl Launch {
    /// Follows a process; if it is held, it is let go.
    pub fn follow(pid: Pid, held: Option<Change>) -> io::Result<Self> {
        let (sender, followed) = mpsc::channel();
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let cancelled = is_cancelled.clone();
        let thread = thread::spawn(move || {
            let begun = begin(pid, held);
            let tracee = *begun.as_ref().unwrap_or(&Tracee { tid: Tid(pid.0) });
            let is_begun = begun.is_ok();
            let _ = sender.send(begun.map(drop));
            if is_begun { wait_for_program(pid, tracee, &cancelled) } else { Ok(Followed::Left) }
        });
        followed.recv().map_err(|_| io::Error::other("the thread that follows ended"))??;
        Ok(Launch { thread, is_cancelled })
    }

    /// Returns whether [`Launch::end`] need not wait.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends following, unless the process has executed a program: then waits until that is loaded.
    pub fn end(self) -> io::Result<Followed> {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.thread.join().expect("following does not panic")
    }
}

fn begin(pid: Pid, held: Option<Change>) -> io::Result<Tracee> {
    let tracee = Tracee::seize_at_exec(Tid(pid.0))?;
    if let Some(hold) = held {
        stop_in_loop(tracee)?;
        restore(pid, &hold)?;
        tracee.resume(0)?;
    }
    Ok(tracee)
}

/// Lets a held process continue.
pub fn let_go(pid: Pid, hold: &Change) -> io::Result<()> {
    let tracee = Tracee::seize_at_exec(Tid(pid.0))?;
    stop_in_loop(tracee)?;
    restore(pid, hold)?;
    tracee.detach()
}

/// Stops a held process, which has one thread that makes no system calls.
fn stop_in_loop(tracee: Tracee) -> io::Result<()> {
    tracee.interrupt()?;
    loop {
        match tracee.next_stop()? {
            None => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            Some((libc::PTRACE_EVENT_STOP, libc::SIGTRAP)) => return Ok(()),
            Some((libc::PTRACE_EVENT_STOP, _)) => tracee.listen()?,
            Some((_, signal)) => tracee.resume(signal)?,
        }
    }
}

fn restore(pid: Pid, hold: &Change) -> io::Result<()> {
    open_memory(pid)?.write_all_at(&hold.from, hold.address)
}

/// Runs on the thread that traces the process.
fn wait_for_program(pid: Pid, tracee: Tracee, is_cancelled: &AtomicBool) -> io::Result<Followed> {
    let mut hook: Option<Hook> = None;
    loop {
        let stop = loop {
            match tracee.poll_stop()? {
                // The kernel lets the process go when this thread ends.
                None if hook.is_none() && is_cancelled.load(Ordering::Relaxed) => return Ok(Followed::Left),
                None => sleep(LOOK),
                Some(stop) => break stop,
            }
        };
        match (stop, &mut hook) {
            (None, _) => return Ok(Followed::Ended),
            (Some((libc::PTRACE_EVENT_EXEC, _)), hook) => {
                *hook = Some(Hook::set(pid, &mut Loaders::default())?);
                tracee.resume(0)?;
            }
            (Some((libc::PTRACE_EVENT_STOP, signal)), _) if signal != libc::SIGTRAP => tracee.listen()?,
            (Some((libc::PTRACE_EVENT_STOP, _)), _) => tracee.resume(0)?,
            (Some((_, libc::SIGTRAP)), Some(hook)) if hook.is_reached(tracee)? => {
                if hook.is_loaded(pid)? {
                    return hook.hold(tracee).map(Followed::Held);
                }
                hook.is_final = true; // glibc calls the function before it maps libraries, and afterwards.
                hook.skip(tracee)?;
                tracee.resume(0)?;
            }
            (Some((_, signal)), _) => tracee.resume(signal)?,
        }
    }
}
