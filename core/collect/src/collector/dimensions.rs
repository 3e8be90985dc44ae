//! The dimensions of samples beside their place: thread names, CPUs, control groups.
//!
//! Enters: starts, names and ends of threads, forks and execs, and the thread of each sample. Leaves: a number for the
//! sample's values of the wanted dimensions. Never here: work if no dimension is wanted, unbounded memory.

use std::sync::Arc;

use dwell_profile::{CpuId, Dimension, DimensionSet, DimensionValues, Pid, Tid};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::host::Host;

/// Most names of threads and groups that are distinguished in an epoch; later ones are [`OTHERS`].
const NAMES_MAX: usize = 1 << 12;
/// Name under which names beyond the limit are counted.
const OTHERS: &str = "[others]";
/// Most threads that are remembered. Beyond it all are forgotten and looked up again.
const REMEMBERED_MAX: usize = 1 << 16;
/// Age in ns after which the group of a sampled process is read again. Processes are moved rarely, and early.
const GROUP_AGE_MAX_NS: u64 = 1_000_000_000;

/// Index of the dimension values of a count, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ValuesIndex(u32);

impl ValuesIndex {
    /// Index for a count without values.
    pub(super) const NONE: ValuesIndex = ValuesIndex(u32::MAX);
}

/// State that turns records into dimension values.
#[derive(Debug, Default)]
pub(super) struct Dimensions {
    wanted: DimensionSet,
    /// Names by thread; a missing thread is looked up.
    threads: FxHashMap<Tid, Arc<str>>,
    groups: FxHashMap<Pid, Group>,
    names: FxHashSet<Arc<str>>,
    index: FxHashMap<Arc<DimensionValues>, u32>,
    values: Vec<Arc<DimensionValues>>,
}

#[derive(Clone, Debug)]
struct Group {
    path: Arc<str>,
    looked_ns: u64,
}

impl Dimensions {
    /// Selects the dimensions to keep.
    pub(super) fn want(&mut self, wanted: DimensionSet) {
        self.wanted = wanted;
    }

    /// Returns the values for a sample of a thread on a CPU.
    pub(super) fn values_of(
        &mut self,
        host: &mut impl Host,
        (pid, tid, cpu): (Pid, Tid, Option<CpuId>),
        time_ns: u64,
    ) -> ValuesIndex {
        if self.wanted.is_empty() {
            return ValuesIndex::NONE;
        }
        let values = DimensionValues {
            thread: self.wanted.has(Dimension::Thread).then(|| self.thread(host, pid, tid)),
            cgroup: self.wanted.has(Dimension::Cgroup).then(|| self.group(host, pid, time_ns)),
            cpu: cpu.filter(|_| self.wanted.has(Dimension::Cpu)),
        };
        ValuesIndex(match self.index.get(&values) {
            Some(at) => *at,
            None => {
                let (at, values) = (self.values.len() as u32, Arc::new(values));
                self.values.push(values.clone());
                self.index.insert(values, at);
                at
            }
        })
    }

    fn thread(&mut self, host: &mut impl Host, pid: Pid, tid: Tid) -> Arc<str> {
        if let Some(name) = self.threads.get(&tid) {
            return name.clone();
        }
        // The thread ran before we did, or is none: exited tasks have no number.
        let name = host.thread_name(pid, tid).unwrap_or_default();
        let name = self.name(&name);
        self.threads.insert(tid, name.clone());
        name
    }

    fn group(&mut self, host: &mut impl Host, pid: Pid, time_ns: u64) -> Arc<str> {
        let known = self.groups.get(&pid);
        let is_fresh = |group: &&Group| time_ns.saturating_sub(group.looked_ns) < GROUP_AGE_MAX_NS;
        if let Some(group) = known.filter(is_fresh) {
            return group.path.clone();
        }
        let path = match (host.cgroup(pid), known) {
            (Some(path), _) => self.name(&path),
            (None, Some(before)) => before.path.clone(), // The process has ended.
            (None, None) => "".into(),
        };
        self.groups.insert(pid, Group { path: path.clone(), looked_ns: time_ns });
        path
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let name: Arc<str> = if self.names.len() < NAMES_MAX { name.into() } else { OTHERS.into() };
        self.names.insert(name.clone());
        name
    }

    /// Notes a new thread. It has its parent's name at first.
    pub(super) fn begin_thread(&mut self, host: &mut impl Host, tid: Tid, parent_pid: Pid, parent_tid: Tid) {
        let name = self.thread(host, parent_pid, parent_tid);
        self.threads.insert(tid, name);
    }

    /// Notes that a thread took a name.
    pub(super) fn name_thread(&mut self, tid: Tid, name: &str) {
        if self.wanted.has(Dimension::Thread) {
            let name = self.name(name);
            self.threads.insert(tid, name);
        }
    }

    /// Notes that a thread has ended.
    pub(super) fn end_thread(&mut self, tid: Tid) {
        self.threads.remove(&tid);
    }

    /// Notes a new process. It is in its parent's group until the group is read.
    pub(super) fn fork(&mut self, host: &mut impl Host, pid: Pid, parent_pid: Pid, time_ns: u64) {
        if self.wanted.has(Dimension::Cgroup) {
            let path = self.group(host, parent_pid, time_ns);
            self.groups.insert(pid, Group { path, looked_ns: 0 });
        }
    }

    /// Notes that a process executes a program. Its group is read again, because services and containers are moved to their
    /// group before the exec.
    pub(super) fn exec(&mut self, pid: Pid, comm: &str) {
        self.name_thread(pid.first_thread(), comm);
        if let Some(group) = self.groups.get_mut(&pid) {
            group.looked_ns = 0;
        }
    }

    /// Returns the values of an index.
    pub(super) fn values(&self, index: ValuesIndex) -> Option<Arc<DimensionValues>> {
        self.values.get(index.0 as usize).cloned()
    }

    /// Forgets all indices. Call it when no count refers to one any more.
    pub(super) fn forget_values(&mut self) {
        self.index.clear();
        self.values.clear();
    }

    /// Forgets processes that have ended.
    pub(super) fn retain(&mut self, is_there: &dyn Fn(Pid) -> bool) {
        self.groups.retain(|pid, _| is_there(*pid));
        if self.threads.len() > REMEMBERED_MAX {
            self.threads.clear();
        }
    }

    /// Begins a new epoch, in which names beyond the limit can be distinguished again.
    pub(super) fn begin_epoch(&mut self) {
        self.names.clear();
        let in_use = self.threads.values().chain(self.groups.values().map(|g| &g.path));
        self.names.extend(in_use.take(NAMES_MAX).cloned());
    }
}
