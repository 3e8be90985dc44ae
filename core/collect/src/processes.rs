//! The processes that live, or lived until a moment ago: their mappings and the execution they belong to.
//!
//! Enters: forks, executions, exits and mappings in order of time. Leaves: what a pid is *now*; so a reused pid is the
//! new process. Never here: images, counts, I/O.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    apps::ExecutionId,
    mappings::{AddressSpace, Mapping, TargetIndex},
};

/// How long a dead process is remembered: its last records may still be on their way.
const MEMORY_OF_THE_DEAD_NS: u64 = 2_000_000_000;

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its executable mappings.
    pub space: AddressSpace,
    /// What it executes.
    pub execution: ExecutionId,
    /// Whether it is the kernel's own.
    pub kernel_thread: bool,
    dead_since_ns: Option<u64>,
}

impl Process {
    /// A live process.
    pub fn new(execution: ExecutionId, kernel_thread: bool) -> Self {
        Process { space: AddressSpace::default(), execution, kernel_thread, dead_since_ns: None }
    }
}

/// Processes by pid.
#[derive(Debug, Default)]
pub struct Processes {
    by_pid: FxHashMap<u32, Process>,
    dead: Vec<u32>,
}

impl Processes {
    /// The process that has this pid now.
    pub fn get(&self, pid: u32) -> Option<&Process> {
        self.by_pid.get(&pid)
    }

    /// Takes in a process that was there before we looked, unless it has become known since.
    pub fn discover(&mut self, pid: u32, process: Process) {
        self.by_pid.entry(pid).or_insert(process);
    }

    /// A child was born: a copy of its parent. False if the parent is not known.
    pub fn fork(&mut self, pid: u32, parent_pid: u32) -> bool {
        let Some(parent) = self.by_pid.get(&parent_pid) else {
            self.by_pid.remove(&pid); // Whoever had this pid is gone.
            return false;
        };
        let child = Process { dead_since_ns: None, ..parent.clone() };
        self.by_pid.insert(pid, child);
        true
    }

    /// A process executes a program: everything it had mapped is gone.
    pub fn exec(&mut self, pid: u32, execution: ExecutionId) {
        self.by_pid.insert(pid, Process::new(execution, false));
    }

    /// A kernel thread took a name, and with it another execution.
    pub fn rename(&mut self, pid: u32, execution: ExecutionId) {
        if let Some(process) = self.by_pid.get_mut(&pid) {
            process.execution = execution;
        }
    }

    /// Something was mapped.
    pub fn map(&mut self, pid: u32, mapping: Mapping) {
        if let Some(process) = self.by_pid.get_mut(&pid) {
            process.space.map(mapping);
        }
    }

    /// A process's first thread ended.
    pub fn exit(&mut self, pid: u32, time_ns: u64) {
        if let Some(process) = self.by_pid.get_mut(&pid) {
            process.dead_since_ns = Some(time_ns);
            self.dead.push(pid);
        }
    }

    /// Only those in `pids` are left; the exits of others were missed.
    pub fn exit_all_but(&mut self, pids: &FxHashSet<u32>, now_ns: u64) {
        let ended = |(pid, p): &(&u32, &Process)| p.dead_since_ns.is_none() && !pids.contains(*pid);
        let ended: Vec<u32> = self.by_pid.iter().filter(ended).map(|(pid, _)| *pid).collect();
        ended.into_iter().for_each(|pid| self.exit(pid, now_ns));
    }

    /// Forgets the dead, but those whose other threads `go_on`.
    pub fn reap(&mut self, now_ns: u64, go_on: &dyn Fn(u32) -> bool) {
        let by_pid = &mut self.by_pid;
        self.dead.retain(|pid| {
            let Some(since) = by_pid.get(pid).and_then(|p| p.dead_since_ns) else { return false };
            // Of one that goes on no other end will be told than that of its first thread: it is asked for again.
            let stays = now_ns.saturating_sub(since) < MEMORY_OF_THE_DEAD_NS || go_on(*pid);
            if !stays {
                by_pid.remove(pid);
            }
            stays
        });
    }

    /// Renumbers what mappings refer to.
    pub fn retarget(&mut self, moved: &dyn Fn(TargetIndex) -> Option<TargetIndex>) {
        self.by_pid.values_mut().for_each(|p| p.space.retarget(moved));
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.by_pid.iter().map(|(pid, p)| (*pid, p))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.by_pid.len()
    }
}
