//! Processes that run already, as /proc shows them.
//!
//! Enters: pids. Leaves: processes with their mappings and executions. Never here: the side band.

use dwell_attribution::{ExecutionId, Process};
use dwell_profile::Pid;
use rustc_hash::FxHashSet;

use super::attribution::{Attribution, MAPPINGS_MAX};
use crate::host::{Host, ProcessSnapshot};

impl<H: Host> Attribution<H> {
    /// Adds processes that run already. Call it after the events were enabled, so that no mapping is missed. Records from
    /// before are then applied on top, which has no lasting effect.
    pub(super) fn discover(&mut self, pids: impl IntoIterator<Item = Pid>) {
        for pid in pids {
            self.discover_one(pid);
            self.processes.forget_least_recent(MAPPINGS_MAX);
        }
    }

    /// Adds a process that runs already. Returns whether there is one.
    pub(super) fn discover_one(&mut self, pid: Pid) -> bool {
        let Some(snapshot) = self.host.process(pid) else { return false };
        let execution = self.begin_execution(&snapshot);
        let process = self.process_in(pid, snapshot, execution);
        self.processes.discover(pid, process);
        self.note_program(pid);
        self.note_mappings(pid);
        true
    }

    fn begin_execution(&mut self, snapshot: &ProcessSnapshot) -> ExecutionId {
        if snapshot.kernel_thread {
            self.apps.uncounted(kernel_thread_name(&snapshot.name))
        } else {
            self.apps.begin(&snapshot.name)
        }
    }

    /// Returns a process with the mappings that /proc shows.
    fn process_in(&mut self, pid: Pid, snapshot: ProcessSnapshot, execution: ExecutionId) -> Process {
        self.apps.name(execution, &snapshot.name);
        let mut process = Process::new(execution, snapshot.kernel_thread);
        for (at, (start, end, file_offset, target)) in snapshot.mappings.into_iter().enumerate() {
            let mapping = self.mapping(pid, (start, end, file_offset, target), &process.space, None);
            process.program = process.program.or((snapshot.program == Some(at)).then_some(mapping.target));
            process.space.map(mapping);
        }
        process.space.shrink();
        process
    }

    /// Reads all processes again after a loss: what they execute and have mapped. All processes not in `pids` have ended.
    pub(super) fn refresh(&mut self, pids: impl IntoIterator<Item = Pid>, now_ns: u64) {
        let pids: FxHashSet<Pid> = pids.into_iter().collect();
        self.processes.exit_all_but(&pids, now_ns);
        for pid in pids {
            let Some(snapshot) = self.host.process(pid) else { continue };
            if self.processes.get(pid).is_none() {
                self.discover_one(pid);
                continue;
            }
            // /proc shows no mappings of a process whose first thread has ended.
            if !snapshot.kernel_thread && snapshot.mappings.is_empty() {
                continue;
            }
            let execution = self.execution_in(pid, &snapshot);
            let process = self.process_in(pid, snapshot, execution);
            self.processes.look_again(pid, process, now_ns);
            self.note_program(pid);
            self.note_mappings(pid);
            self.processes.forget_least_recent(MAPPINGS_MAX);
        }
    }

    /// Returns the execution of a known process. It is a new one if the process has executed another program meanwhile.
    fn execution_in(&mut self, pid: Pid, snapshot: &ProcessSnapshot) -> ExecutionId {
        let known = self.processes.get(pid).filter(|p| p.kernel_thread == snapshot.kernel_thread);
        let name = if snapshot.kernel_thread { kernel_thread_name(&snapshot.name) } else { &snapshot.name };
        let Some((execution, awaits_program)) = known.map(|p| (p.execution, p.awaits_program)) else {
            return self.begin_execution(snapshot);
        };
        if awaits_program {
            self.apps.name(execution, name); // This has no effect if it already has a name.
        }
        let goes_on = *self.apps.resolve(execution).app == *name;
        if goes_on { execution } else { self.begin_execution(snapshot) }
    }

    /// Reads the mappings of a process again if they were forgotten, because a sample of it is about to be resolved.
    pub(super) fn recall(&mut self, pid: Pid) {
        if !self.processes.is_sampled(pid) {
            return;
        }
        let (Some(snapshot), Some(process)) = (self.host.process(pid), self.processes.get(pid)) else {
            return;
        };
        let execution = process.execution;
        let space = self.process_in(pid, snapshot, execution).space;
        self.processes.remember(pid, space);
    }
}

/// Returns the part of a kernel thread's name before the slash. Per-CPU threads and workers differ after it only:
/// `kworker/3:1-events`, `ksoftirqd/0`.
pub(super) fn kernel_thread_name(comm: &str) -> &str {
    comm.split('/').next().unwrap_or(comm)
}
