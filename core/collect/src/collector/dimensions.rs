//! What is kept of samples beside their place: thread names, CPUs, control groups.
//!
//! Enters: births, names and ends of threads, forks and executions, whose turn it is. Leaves: a number for what the sample has of
//! the dimensions that are wanted. Never here: work where none is wanted, memory without a bound.

use std::sync::Arc;

use dwell_profile::{CpuId, Dimension, DimensionSet, DimensionValues, Pid, Tid};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::host::Host;

/// Names that are told apart in an epoch, of threads and of groups; what comes later is [`OTHERS`].
const NAMES_MAX: usize = 1 << 12;
/// Stands for names beyond the bound.
const OTHERS: &str = "[others]";
/// Threads and processes that are remembered; beyond, all are forgotten and looked at anew.
const REMEMBERED_MAX: usize = 1 << 16;
/// A process's group is looked at again so often while it is sampled: processes are moved, seldom and early.
const GROUP_AGE_MAX_NS: u64 = 1_000_000_000;

/// Which values a count is of: an index, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ValuesIndex(u32);

impl ValuesIndex {
    /// Of no values.
    pub(super) const NONE: ValuesIndex = ValuesIndex(u32::MAX);
}

/// The state between records and values.
#[derive(Debug)]
pub(super) struct Dimensions {
    wanted: DimensionSet,
    /// By thread; `None`: to be looked up.
    threads: FxHashMap<Tid, Arc<str>>,
    groups: FxHashMap<Pid, Group>,
    names: FxHashSet<Arc<str>>,
    index: FxHashMap<Arc<DimensionValues>, u32>,
    values: Vec<Arc<DimensionValues>>,
    /// Of the sample that is being counted.
    current: ValuesIndex,
    now_ns: u64,
}

#[derive(Clone, Debug)]
struct Group {
    path: Arc<str>,
    looked_ns: u64,
}

impl Default for Dimensions {
    fn default() -> Self {
        let (threads, groups, names, index) = Default::default();
        let (wanted, values, current) = (DimensionSet::NONE, Vec::new(), ValuesIndex::NONE);
        Dimensions { wanted, threads, groups, names, index, values, current, now_ns: 0 }
    }
}

impl Dimensions {
    /// From now on keeps these.
    pub(super) fn want(&mut self, wanted: DimensionSet) {
        self.wanted = wanted;
    }

    /// Of the sample that is being counted.
    pub(super) fn current(&self) -> ValuesIndex {
        self.current
    }

    /// What follows happened at that time.
    pub(super) fn at(&mut self, time_ns: u64) {
        self.now_ns = time_ns;
    }

    /// What is counted next is of this thread, on this CPU.
    pub(super) fn see(&mut self, host: &mut impl Host, pid: Pid, tid: Tid, cpu: Option<CpuId>) {
        if self.wanted.is_empty() {
            return;
        }
        let values = DimensionValues {
            thread: self.wanted.has(Dimension::Thread).then(|| self.thread(host, pid, tid)),
            cgroup: self.wanted.has(Dimension::Cgroup).then(|| self.group(host, pid)),
            cpu: cpu.filter(|_| self.wanted.has(Dimension::Cpu)),
        };
        self.current = ValuesIndex(match self.index.get(&values) {
            Some(at) => *at,
            None => {
                let (at, values) = (self.values.len() as u32, Arc::new(values));
                self.values.push(values.clone());
                self.index.insert(values, at);
                at
            }
        });
    }

    fn thread(&mut self, host: &mut impl Host, pid: Pid, tid: Tid) -> Arc<str> {
        if let Some(name) = self.threads.get(&tid) {
            return name.clone();
        }
        // One that was there before us, or none: tasks past their end have no number.
        let name = host.thread_name(pid, tid).unwrap_or_default();
        let name = self.name(&name);
        self.threads.insert(tid, name.clone());
        name
    }

    fn group(&mut self, host: &mut impl Host, pid: Pid) -> Arc<str> {
        let known = self.groups.get(&pid);
        let is_fresh = |group: &&Group| self.now_ns.saturating_sub(group.looked_ns) < GROUP_AGE_MAX_NS;
        if let Some(group) = known.filter(is_fresh) {
            return group.path.clone();
        }
        let path = match (host.cgroup(pid), known) {
            (Some(path), _) => self.name(&path),
            (None, Some(before)) => before.path.clone(), // It has ended.
            (None, None) => "".into(),
        };
        self.groups.insert(pid, Group { path: path.clone(), looked_ns: self.now_ns });
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

    /// A thread was born: it is called as its parent is.
    pub(super) fn begin_thread(&mut self, host: &mut impl Host, tid: Tid, parent_pid: Pid, parent_tid: Tid) {
        let name = self.thread(host, parent_pid, parent_tid);
        self.threads.insert(tid, name);
    }

    /// A thread took a name.
    pub(super) fn name_thread(&mut self, tid: Tid, name: &str) {
        if self.wanted.has(Dimension::Thread) {
            let name = self.name(name);
            self.threads.insert(tid, name);
        }
    }

    /// A thread has ended.
    pub(super) fn end_thread(&mut self, tid: Tid) {
        self.threads.remove(&tid);
    }

    /// A process was born: in its parent's group, until it is looked at.
    pub(super) fn fork(&mut self, host: &mut impl Host, pid: Pid, parent_pid: Pid) {
        if self.wanted.has(Dimension::Cgroup) {
            let path = self.group(host, parent_pid);
            self.groups.insert(pid, Group { path, looked_ns: 0 });
        }
    }

    /// A process executes a program: whoever starts services and containers moves them before.
    pub(super) fn exec(&mut self, pid: Pid, comm: &str) {
        self.name_thread(pid.first_thread(), comm);
        if let Some(group) = self.groups.get_mut(&pid) {
            group.looked_ns = 0;
        }
    }

    /// What an index means.
    pub(super) fn values(&self, index: ValuesIndex) -> Option<Arc<DimensionValues>> {
        self.values.get(index.0 as usize).cloned()
    }

    /// Nothing counted has an index any more.
    pub(super) fn forget_values(&mut self) {
        self.index.clear();
        self.values.clear();
        self.current = ValuesIndex::NONE;
    }

    /// Forgets processes that are not there any more.
    pub(super) fn retain(&mut self, is_there: &dyn Fn(Pid) -> bool) {
        self.groups.retain(|pid, _| is_there(*pid));
        if self.threads.len() > REMEMBERED_MAX {
            self.threads.clear();
        }
    }

    /// Begins a new epoch: names are told apart again.
    pub(super) fn begin_epoch(&mut self) {
        self.names.clear();
        let in_use = self.threads.values().chain(self.groups.values().map(|g| &g.path));
        self.names.extend(in_use.take(NAMES_MAX).cloned());
    }
}
