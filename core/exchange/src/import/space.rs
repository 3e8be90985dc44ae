//! Processes and the applications that they execute, as a profile's records report them.
//!
//! Enters: mappings, forks, executions and names of processes, in order of time. Leaves: the mapping under an address,
//! and the application with its execution. Never here: files. The tables are those of live collection
//! ([`dwell_attribution`]). Unlike live collection, a profile may report a process's name and mappings without its
//! start.

use dwell_attribution::{
    AppInstance, Applications, ExecutionId, InstanceLimits, Mapping, Process, Processes,
};
use dwell_profile::{Pid, VirtualAddress};
use rustc_hash::{FxHashMap, FxHashSet};

/// Number of executions of each application that are kept apart, from the first on. The others are counted together as
/// instance 0. A build executes its compiler thousands of times, for a sample or two each.
const EXECUTIONS_APART_MAX: u32 = 16;
/// The application of a process that no record names.
const UNKNOWN: &str = "unknown";

/// All processes of a profile.
pub struct Spaces {
    processes: Processes,
    applications: Applications,
    /// Processes that were forked, or executed a program, while the profile was recorded.
    born: FxHashSet<Pid>,
}

impl Default for Spaces {
    fn default() -> Self {
        let apart =
            InstanceLimits { of_app_max: EXECUTIONS_APART_MAX, in_all_max: u32::MAX, by_process: Vec::new() };
        let (processes, applications) = (Processes::default(), Applications::new(apart));
        Spaces { processes, applications, born: FxHashSet::default() }
    }
}

/// Records are applied in order, so their times do not matter here.
const NO_TIME_NS: u64 = 0;

impl Spaces {
    /// Records that a process executes a program; `name` is the application's name until its file is mapped.
    pub fn exec(&mut self, pid: Pid, name: &str) {
        let execution = self.applications.begin(name);
        self.processes.exec(pid, execution, NO_TIME_NS);
        self.born.insert(pid);
    }

    /// Records the name of a process, which names its application if nothing else is known about it.
    pub fn comm(&mut self, pid: Pid, name: &str) {
        if self.processes.get(pid).is_none() {
            let execution = self.applications.begin(name);
            self.processes.discover(pid, Process::new(execution, false));
        }
    }

    /// Records that a process was forked as a copy of its parent.
    pub fn fork(&mut self, pid: Pid, parent: Pid) {
        if pid != parent {
            self.processes.fork(pid, parent, NO_TIME_NS);
            self.born.insert(pid);
        }
    }

    /// Returns whether a process was forked, or executed a program, while the profile was recorded.
    pub fn is_born(&self, pid: Pid) -> bool {
        self.born.contains(&pid)
    }

    /// Removes a process: another process may have its number from now on.
    pub fn forget(&mut self, pid: Pid) {
        self.processes.forget(pid);
    }

    /// Adds a mapping and removes what was mapped there before. `file_name` is the last component of a file's path.
    pub fn map(&mut self, pid: Pid, new: Mapping, file_name: Option<&str>) {
        if new.start >= new.end {
            return;
        }
        let execution = self.execution(pid);
        // The kernel maps a program's own file first, then its interpreter; later names are ignored.
        if let Some(name) = file_name {
            self.applications.name(execution, name);
        }
        self.processes.map(pid, new, NO_TIME_NS);
    }

    /// Returns the mapping under an address.
    pub fn find(&self, pid: Pid, address: VirtualAddress) -> Option<&Mapping> {
        self.processes.get(pid)?.space.find(address)
    }

    /// Returns which program a process executes; the program has no name if no record reports one.
    pub fn execution(&mut self, pid: Pid) -> ExecutionId {
        if let Some(process) = self.processes.get(pid) {
            return process.execution;
        }
        let execution = match pid {
            Pid::IDLE => self.applications.uncounted("[idle]"),
            _ => self.applications.begin(UNKNOWN),
        };
        self.processes.discover(pid, Process::new(execution, false));
        execution
    }

    /// Returns the application and its instance for each of these executions; an unknown application has no instances.
    pub fn applications(
        &mut self,
        executions: impl Iterator<Item = ExecutionId>,
    ) -> FxHashMap<ExecutionId, AppInstance> {
        let mut resolve = |execution| {
            let AppInstance { app, instance } = self.applications.resolve(execution);
            let instance = if *app == *UNKNOWN { 0 } else { instance };
            (execution, AppInstance { app, instance })
        };
        executions.map(&mut resolve).collect()
    }
}

#[cfg(test)]
mod tests {
    use dwell_attribution::TargetIndex;

    use super::*;

    fn mapping(start: u64, end: u64, target: u32) -> Mapping {
        let (start, end) = (VirtualAddress(start), VirtualAddress(end));
        Mapping { start, end, file_offset: 0, target: TargetIndex(target), anonymous: None }
    }

    #[test]
    fn later_mappings_cover_earlier_ones() {
        let mut spaces = Spaces::default();
        let (first, second) = (Pid(1), Pid(2));
        spaces.map(first, mapping(0x1000, 0x9000, 0), Some("program"));
        spaces.map(first, mapping(0x3000, 0x4000, 1), Some("library"));
        spaces.map(first, mapping(9, 3, 2), None);
        let at = |spaces: &Spaces, pid, address| {
            let address = VirtualAddress(address);
            spaces.find(pid, address).map(|m| (m.target.0, m.offset_of(address)))
        };
        let found: Vec<_> = [0xfff, 0x2fff, 0x3000, 0x4001, 0x9000].map(|a| at(&spaces, first, a)).into();
        assert_eq!(found, [None, Some((0, 0x1fff)), Some((1, 0)), Some((0, 0x3001)), None]);
        spaces.fork(second, first);
        spaces.exec(second, "other");
        spaces.map(second, mapping(0x1000, 0x2000, 3), Some("other-program"));
        assert_eq!((at(&spaces, second, 0x1000), at(&spaces, second, 0x3000)), (Some((3, 0)), None));
        assert_eq!(at(&spaces, first, 0x3000), Some((1, 0)));
        let executions = [first, second].map(|pid| spaces.execution(pid));
        let names = spaces.applications(executions.into_iter());
        let applications = executions.map(|e| (&*names[&e].app, names[&e].instance));
        assert_eq!(applications, [("program", 1), ("other-program", 1)]);
    }
}
