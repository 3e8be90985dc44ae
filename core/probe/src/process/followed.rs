//! All processes of a command, traced from before its exec: those that it starts, and those that they start.
//!
//! Enters: a process that is about to execute a program, and stops of traced threads. Leaves: events, and processes that wait for an
//! answer where nothing of a new program, or of a copy of a probed program, has run yet. Never here: who answers.
//!
//! The kernel attaches children to the tracer of their parents. A process keeps running under this tracer, which only answers its stops,
//! with one exception: while probes are put into a program it is held without a tracer, since another process attaches then.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    os::unix::fs::FileExt,
    thread::sleep,
    time::{Duration, Instant},
};

use dwell_profile::{Pid, Tid};
use serde::{Deserialize, Serialize};

use super::{
    copied::Copied,
    hook::{Hook, Loaders, executables, open_memory},
    installation::find_syscall,
    patcher::Change,
    procfs,
    tracee::Tracee,
    tracer::put_back,
};

/// How long to wait at the end for loaders to reach the place with an `int3`, and for engines to leave processes that are held.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_micros(500);

/// What happened to a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// It has loaded a program with its libraries, and waits.
    Loaded(Pid),
    /// It was forked from a probed process, and waits.
    Forked {
        /// The process.
        pid: Pid,
        /// The family of probed processes that it belongs to.
        family: String,
        /// The descriptor by which it has memory of its own open, to record in.
        descriptor: i32,
    },
    /// It has executed another program, which ended the probes that it had.
    Executed(Pid),
    /// It goes on without probes, though it may have the functions. Its children are followed.
    LeftOut {
        /// The process.
        pid: Pid,
        /// The reason.
        message: String,
    },
    /// It is about to end, has loaded libraries since its beginning, and waits.
    LoadedMore(Pid),
    /// It has ended.
    Ended(Pid),
    /// All processes have ended.
    Over,
}

/// A process that waits for an answer, stopped by its tracer.
enum Waiting {
    Loaded(Hook),
    Forked { family: String, descriptor: i32 },
    Ending,
}

/// The processes. It must be used on one thread, which has no other tracees.
#[derive(Default)]
pub struct Followed {
    /// The threads and their processes.
    threads: BTreeMap<Tid, Pid>,
    /// Processes that were created, by their parents, and have not stopped yet.
    expected: BTreeMap<Tid, Pid>,
    /// Those that stopped, or ended, before their parents reported them.
    early: BTreeSet<Tid>,
    /// Processes that ended before a child of theirs stopped.
    ended: BTreeSet<Pid>,
    /// Programs that are being loaded.
    hooks: BTreeMap<Pid, Hook>,
    waiting: BTreeMap<Pid, Waiting>,
    /// Number of images of each process without probes when it had loaded its program.
    images: BTreeMap<Pid, usize>,
    /// Processes that are held without a tracer.
    held: BTreeMap<Pid, Change>,
    /// Probed processes, by the name of what they have in common with their copies.
    members: BTreeMap<Pid, String>,
    families: BTreeMap<String, Copied>,
    loaders: Loaders,
    is_ending: bool,
    has_begun: bool,
    /// What has happened since it was last looked at.
    pub events: VecDeque<Event>,
}

impl Followed {
    /// Begins to follow a process, which has one thread.
    pub fn follow(&mut self, pid: Pid) -> io::Result<()> {
        Tracee::seize_with_children(Tid(pid.0))?;
        self.threads.insert(Tid(pid.0), pid);
        self.has_begun = true;
        Ok(())
    }

    /// Answers all stops that there are.
    pub fn answer_stops(&mut self) -> io::Result<()> {
        loop {
            let mut status = 0;
            // SAFETY: the kernel writes the live status.
            match unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::WNOHANG) } {
                -1 if io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) => break,
                -1 => return Err(io::Error::last_os_error()),
                0 => break,
                waited => {
                    let tid = Tid(waited as u32);
                    if let Err(error) = self.stop(tid, status) {
                        self.failed(tid, &error);
                    }
                }
            }
        }
        let is_over = self.threads.is_empty() && self.expected.is_empty() && self.held.is_empty();
        if is_over && std::mem::take(&mut self.has_begun) {
            self.events.push_back(Event::Over);
        }
        Ok(())
    }

    /// What was done with a thread has failed: it was killed meanwhile, or it must go on all the same.
    pub fn failed(&mut self, tid: Tid, error: &io::Error) {
        let pid = self.threads.get(&tid).copied().unwrap_or(Pid(tid.0));
        let status = procfs::status(pid, tid);
        // Whoever waited for its next stop may have seen its end.
        if status.as_ref().is_none_or(|status| status.tracer == 0) && !self.held.contains_key(&pid) {
            self.end_of(tid);
        }
        if error.raw_os_error() != Some(libc::ESRCH) && !procfs::is_over(pid) {
            self.events.push_back(Event::LeftOut { pid, message: error.to_string() });
            if !self.waiting.contains_key(&pid) {
                let _ = Tracee { tid }.resume(0);
            }
        }
    }

    fn stop(&mut self, tid: Tid, status: libc::c_int) -> io::Result<()> {
        if !libc::WIFSTOPPED(status) {
            self.end_of(tid);
            return Ok(());
        }
        let tracee = Tracee { tid };
        let Some(pid) = self.threads.get(&tid).copied() else { return self.begin_of(tid, status) };
        match (status >> 16, libc::WSTOPSIG(status)) {
            (libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK, _) => {
                if let Some(child) = tracee.event_message().map(Tid)
                    && !self.early.remove(&child)
                {
                    self.expected.insert(child, pid);
                }
                tracee.resume(0)
            }
            (libc::PTRACE_EVENT_EXEC, _) => {
                self.executed(pid);
                tracee.resume(0)
            }
            (libc::PTRACE_EVENT_EXIT, _) => self.exiting(pid, tracee),
            (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => {
                put_back(pid, tracee, None)?;
                tracee.resume(0)
            }
            (libc::PTRACE_EVENT_STOP, _) => tracee.listen(),
            (0, libc::SIGTRAP) if self.is_at_hook(pid, tracee)? => self.reached(pid, tracee),
            (_, signal) => {
                put_back(pid, tracee, Some(signal))?;
                tracee.resume(signal)
            }
        }
    }

    /// A thread, or a process, begins.
    fn begin_of(&mut self, tid: Tid, status: libc::c_int) -> io::Result<()> {
        let tracee = Tracee { tid };
        if self.expected.remove(&tid).is_none() {
            self.early.insert(tid);
        }
        let (pid, parent) = procfs::process_of(tid).unwrap_or((Pid(tid.0), Pid(0)));
        self.threads.insert(tid, pid);
        let mut began = Ok(());
        if pid.0 == tid.0 {
            if let Some(images) = self.images.get(&parent) {
                self.images.insert(pid, *images);
            }
            if let Some(copied) = Copied::of(pid, &self.families).cloned() {
                began = self.begin_of_copy(pid, tracee, copied);
            }
        }
        self.report_ends();
        match libc::WSTOPSIG(status) {
            _ if self.waiting.contains_key(&pid) => {}
            libc::SIGTRAP => tracee.resume(0)?,
            _ => tracee.listen()?,
        }
        began
    }

    fn begin_of_copy(&mut self, pid: Pid, tracee: Tracee, copied: Copied) -> io::Result<()> {
        if self.is_ending {
            return copied.undo(pid, tracee, None);
        }
        match copied.map_memory(pid, tracee) {
            Ok(descriptor) => {
                let family = copied.family;
                self.events.push_back(Event::Forked { pid, family: family.clone(), descriptor });
                self.waiting.insert(pid, Waiting::Forked { family, descriptor });
                Ok(())
            }
            Err(error) => {
                self.events.push_back(Event::LeftOut { pid, message: error.to_string() });
                copied.undo(pid, tracee, None)
            }
        }
    }

    /// A thread, or a process, ended.
    fn end_of(&mut self, tid: Tid) {
        let pid = self.threads.remove(&tid);
        if self.expected.remove(&tid).is_none() && pid.is_none() {
            self.early.insert(tid);
        }
        self.report_ends();
        if let Some(pid) = pid.filter(|pid| pid.0 == tid.0) {
            self.hooks.remove(&pid);
            self.waiting.remove(&pid);
            self.images.remove(&pid);
            self.forget(pid);
            self.ended.insert(pid);
            self.report_ends();
        }
    }

    /// Reports ends of processes, each after its children.
    fn report_ends(&mut self) {
        let Followed { ended, expected, events, .. } = self;
        ended.retain(|pid| {
            let is_early = expected.values().any(|parent| parent == pid);
            if !is_early {
                events.push_back(Event::Ended(*pid));
            }
            is_early
        });
    }

    /// A process has no probes any more.
    fn forget(&mut self, pid: Pid) -> bool {
        let Some(family) = self.members.remove(&pid) else { return false };
        let has_member = self.members.values().any(|other| *other == family);
        let is_waited_for =
            |waiting: &Waiting| matches!(waiting, Waiting::Forked { family: other, .. } if *other == family);
        // A child that has not stopped yet may be a copy.
        let has_child = self.expected.values().any(|parent| *parent == pid);
        if !has_member && !has_child && !self.waiting.values().any(is_waited_for) {
            self.families.remove(&family);
        }
        true
    }

    fn executed(&mut self, pid: Pid) {
        self.threads.retain(|tid, process| *process != pid || tid.0 == pid.0);
        self.images.remove(&pid);
        if self.forget(pid) {
            self.events.push_back(Event::Executed(pid));
        }
        if self.is_ending {
            return;
        }
        match Hook::set(pid, &mut self.loaders) {
            Ok(hook) => _ = self.hooks.insert(pid, hook),
            Err(_) if procfs::is_over(pid) => {}
            Err(error) => self.events.push_back(Event::LeftOut { pid, message: error.to_string() }),
        }
    }

    /// A thread is about to end. If it is the first one of a process without probes, what the process has loaded can still be read.
    fn exiting(&mut self, pid: Pid, tracee: Tracee) -> io::Result<()> {
        if tracee.tid.0 == pid.0
            && !self.is_ending
            && let Some(images) = self.images.remove(&pid)
            && number_of_images(pid) > images
        {
            self.waiting.insert(pid, Waiting::Ending);
            self.events.push_back(Event::LoadedMore(pid));
            return Ok(());
        }
        tracee.resume(0)
    }

    fn is_at_hook(&self, pid: Pid, tracee: Tracee) -> io::Result<bool> {
        self.hooks.get(&pid).map_or(Ok(false), |hook| hook.is_reached(tracee))
    }

    fn reached(&mut self, pid: Pid, tracee: Tracee) -> io::Result<()> {
        let Some(mut hook) = self.hooks.remove(&pid) else { return Ok(()) };
        if !hook.is_loaded(pid)? {
            hook.is_final = true; // glibc calls the function before it maps libraries, and afterwards.
            hook.skip(tracee)?;
            self.hooks.insert(pid, hook);
            tracee.resume(0)
        } else if self.is_ending {
            hook.undo(tracee)?;
            tracee.resume(0)
        } else {
            self.waiting.insert(pid, Waiting::Loaded(hook));
            self.events.push_back(Event::Loaded(pid));
            Ok(())
        }
    }

    /// Lets a process that waits go on: a copy without probes.
    pub fn go(&mut self, pid: Pid) -> io::Result<()> {
        let tracee = Tracee { tid: Tid(pid.0) };
        match self.waiting.remove(&pid) {
            None => return Ok(()), // It was killed.
            Some(Waiting::Ending) => {}
            Some(Waiting::Loaded(hook)) => {
                self.images.insert(pid, number_of_images(pid));
                hook.undo(tracee)?;
            }
            Some(Waiting::Forked { family, descriptor }) => {
                let copied = self.families.get(&family);
                let undone = copied.map_or(Ok(()), |copied| copied.undo(pid, tracee, Some(descriptor)));
                return tracee.resume(0).and(undone);
            }
        }
        tracee.resume(0)
    }

    /// Lets a copy of a probed process go on, which has an engine of its own.
    pub fn go_probed(&mut self, pid: Pid) -> io::Result<()> {
        let tracee = Tracee { tid: Tid(pid.0) };
        let Some(Waiting::Forked { family, descriptor }) = self.waiting.remove(&pid) else { return Ok(()) };
        let copied = self.families.get(&family);
        let closed = copied.map_or(Ok(()), |copied| copied.close(tracee, descriptor));
        self.members.insert(pid, family);
        tracee.resume(0).and(closed)
    }

    /// Permits a process of ours to trace one that waits, on systems where only parents may (Yama).
    pub fn permit(&self, pid: Pid, tracer: Pid) -> io::Result<()> {
        if !self.waiting.contains_key(&pid) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let syscall_at = find_syscall(&open_memory(pid)?, &procfs::mappings(pid)?)?;
        let arguments = [libc::PR_SET_PTRACER as u64, u64::from(tracer.0), 0, 0, 0, 0];
        match (Tracee { tid: Tid(pid.0) }).system_call(syscall_at, libc::SYS_prctl, arguments) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()), // There is no Yama.
            permitted => permitted.map(drop),
        }
    }

    /// Holds a process that waits with a new program, without a tracer.
    pub fn hold(&mut self, pid: Pid) -> io::Result<()> {
        let tracee = Tracee { tid: Tid(pid.0) };
        let Some(Waiting::Loaded(hook)) = self.waiting.remove(&pid) else {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        };
        let change = hook.hold(tracee)?;
        self.threads.remove(&tracee.tid);
        self.held.insert(pid, change);
        Ok(())
    }

    /// Traces a process that is held again, and lets it run. `copied` is what its copies will have of the probes that it has.
    pub fn release(&mut self, pid: Pid, copied: Option<Copied>) -> io::Result<()> {
        let Some(change) = self.held.remove(&pid) else { return Ok(()) };
        let tracee = Tracee { tid: Tid(pid.0) };
        if Tracee::seize_with_children(tracee.tid).is_err() {
            if procfs::is_over(pid) {
                self.events.push_back(Event::Ended(pid));
                return Ok(());
            }
            // Somebody else traces it. It must run all the same.
            open_memory(pid)?.write_all_at(&change.from, change.address)?;
            self.events.push_back(Event::LeftOut { pid, message: "another program traces it".to_owned() });
            return Ok(());
        }
        self.threads.insert(tracee.tid, pid);
        if let Some(copied) = copied {
            self.members.insert(pid, copied.family.clone());
            self.families.insert(copied.family.clone(), copied);
        }
        tracee.interrupt()?;
        // At any stop, the program's code can be put back.
        let stop = tracee.next_stop()?;
        let Some((event, signal)) = stop else {
            self.end_of(tracee.tid);
            return Ok(());
        };
        open_memory(pid)?.write_all_at(&change.from, change.address)?;
        match (event, signal) {
            (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => tracee.resume(0),
            (libc::PTRACE_EVENT_STOP, _) => tracee.listen(),
            (_, signal) => tracee.resume(signal),
        }
    }

    /// Lets all processes go on without a tracer. The kernel releases them when this process ends.
    pub fn end(&mut self) {
        self.is_ending = true;
        for pid in self.waiting.keys().copied().collect::<Vec<_>>() {
            let _ = self.go(pid);
        }
        let end = Instant::now() + PATIENCE;
        while (!self.hooks.is_empty() || !self.held.is_empty()) && Instant::now() < end {
            // While an engine works on a process, it cannot be traced.
            let is_free =
                |pid: &Pid| procfs::status(*pid, Tid(pid.0)).is_none_or(|status| status.tracer == 0);
            for pid in self.held.keys().copied().filter(is_free).collect::<Vec<_>>() {
                let _ = self.release(pid, None);
            }
            if self.answer_stops().is_err() {
                break;
            }
            sleep(LOOK);
        }
        let _ = self.answer_stops();
    }
}

fn number_of_images(pid: Pid) -> usize {
    procfs::mappings(pid).map_or(0, |mappings| executables(&mappings))
}
