//! Processes and what they map, as a file's records tell.
//!
//! Enters: mappings, forks, executions, exits, in order of time. Leaves: the mapping under an address, and the application
//! with its execution. Never here: files.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

/// Something mapped.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// First virtual address …
    pub start: u64,
    /// … and the first after it.
    pub end: u64,
    /// The offset in the file of the first byte.
    pub file_offset: u64,
    /// What is mapped: an index of the caller's.
    pub target: u32,
}

/// An execution of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Execution(pub u32);

/// One process.
#[derive(Clone, Default)]
struct Process {
    mappings: Arc<Vec<Mapping>>,
    execution: Option<Execution>,
    /// Which mapping was asked for last: the next sample is likely to be there too.
    last: usize,
}

impl Process {
    fn find(&self, address: u64) -> Option<(usize, Mapping)> {
        let at = self.mappings.partition_point(|m| m.end <= address);
        self.mappings.get(at).filter(|m| m.start <= address).map(|m| (at, *m))
    }
}

/// All processes.
#[derive(Default)]
pub struct Spaces {
    processes: FxHashMap<i32, Process>,
    /// Processes that began while they were sampled, or executed a program then.
    born: FxHashSet<i32>,
    /// The name of each execution, and whether its program's file gave it.
    executions: Vec<(Arc<str>, bool)>,
}

impl Spaces {
    /// A process got a name, by executing a program if `exec`.
    pub fn comm(&mut self, pid: i32, name: &str, exec: bool) {
        let execution = Execution(self.executions.len() as u32);
        let process = self.processes.entry(pid).or_default();
        if exec {
            process.mappings = Arc::default();
            self.born.insert(pid);
        }
        if exec || process.execution.is_none() {
            process.execution = Some(execution);
            self.executions.push((name.into(), false));
        }
    }

    /// A process was born, as a copy of its parent.
    pub fn fork(&mut self, pid: i32, parent: i32) {
        if pid != parent {
            let copy = self.processes.get(&parent).cloned().unwrap_or_default();
            self.processes.insert(pid, copy);
            self.born.insert(pid);
        }
    }

    /// Whether a process began, or executed a program, while it was sampled.
    pub fn is_born(&self, pid: i32) -> bool {
        self.born.contains(&pid)
    }

    /// Nothing is known of a process: another one may have had its number.
    pub fn forget(&mut self, pid: i32) {
        self.processes.remove(&pid);
    }

    /// A file or memory was mapped; what was there before is gone.
    pub fn map(&mut self, pid: i32, new: Mapping, file_name: Option<&str>) {
        if new.start >= new.end {
            return;
        }
        let execution = self.execution(pid);
        // The kernel maps a program's own file first, then its interpreter.
        if let (Some(name), Some(known)) = (file_name, self.executions.get_mut(execution.0 as usize))
            && !known.1
        {
            *known = (name.into(), true);
        }
        let all = Arc::make_mut(&mut self.processes.entry(pid).or_default().mappings);
        let first = all.partition_point(|m| m.end <= new.start);
        let last = all.partition_point(|m| m.start < new.end).max(first);
        let head = all.get(first).filter(|m| m.start < new.start).map(|m| Mapping { end: new.start, ..*m });
        let tail = all[first..last].last().filter(|m| m.end > new.end).map(|m| Mapping {
            start: new.end,
            file_offset: m.file_offset.wrapping_add(new.end - m.start),
            ..*m
        });
        all.splice(first..last, [head, Some(new), tail].into_iter().flatten());
    }

    /// The mapping under an address.
    pub fn find(&self, pid: i32, address: u64) -> Option<Mapping> {
        self.processes.get(&pid)?.find(address).map(|(_, mapping)| mapping)
    }

    /// Which program a process executes, one without a name where nothing told; the mapping under an address.
    pub fn locate(&mut self, pid: i32, address: u64) -> (Execution, Option<Mapping>) {
        let Some((process, execution)) =
            self.processes.get_mut(&pid).and_then(|p| p.execution.map(|e| (p, e)))
        else {
            return (self.execution(pid), self.find(pid, address));
        };
        let known = process.mappings.get(process.last).filter(|m| (m.start..m.end).contains(&address));
        if let Some(mapping) = known {
            return (execution, Some(*mapping));
        }
        let found = process.find(address);
        process.last = found.map_or(process.last, |(at, _)| at);
        (execution, found.map(|(_, mapping)| mapping))
    }

    /// Which program a process executes; one without a name where nothing told.
    pub fn execution(&mut self, pid: i32) -> Execution {
        let next = Execution(self.executions.len() as u32);
        let process = self.processes.entry(pid).or_default();
        let execution = *process.execution.get_or_insert(next);
        if execution == next {
            self.executions.push((if pid == 0 { "[idle]" } else { "unknown" }.into(), pid == 0));
        }
        execution
    }

    /// By execution: the application's name and the how-many-th of its executions it is, from 1.
    pub fn applications(&self) -> Vec<(Arc<str>, u32)> {
        let mut seen: FxHashMap<&Arc<str>, u32> = FxHashMap::default();
        let number = |(name, by_file): &'_ (Arc<str>, bool), seen: &mut u32| {
            *seen += 1;
            (name.clone(), if *by_file || &**name != "unknown" { *seen } else { 0 })
        };
        self.executions.iter().map(|e| number(e, seen.entry(&e.0).or_default())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, target: u32) -> Mapping {
        Mapping { start, end, file_offset: 0, target }
    }

    #[test]
    fn what_is_mapped_later_covers_what_was_there() {
        let mut spaces = Spaces::default();
        spaces.map(1, mapping(0x1000, 0x9000, 0), Some("program"));
        spaces.map(1, mapping(0x3000, 0x4000, 1), Some("library"));
        spaces.map(1, mapping(9, 3, 2), None);
        let at = |spaces: &Spaces, pid, address| {
            spaces.find(pid, address).map(|m| (m.target, m.file_offset + address - m.start))
        };
        let found: Vec<_> = [0xfff, 0x2fff, 0x3000, 0x4001, 0x9000].map(|a| at(&spaces, 1, a)).into();
        assert_eq!(found, [None, Some((0, 0x1fff)), Some((1, 0)), Some((0, 0x3001)), None]);
        spaces.fork(2, 1);
        spaces.comm(2, "other", true);
        spaces.map(2, mapping(0x1000, 0x2000, 3), Some("other-program"));
        assert_eq!((at(&spaces, 2, 0x1000), at(&spaces, 2, 0x3000)), (Some((3, 0)), None));
        assert_eq!(at(&spaces, 1, 0x3000), Some((1, 0)));
        let names = spaces.applications();
        assert_eq!(names, [("program".into(), 1), ("other-program".into(), 1)]);
    }
}
