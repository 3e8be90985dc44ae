//! The processes and threads that run now, as /proc lists them.
//!
//! Enters: pids. Leaves: their threads, their descendants, and whether they have ended. Never here: earlier states.

use std::{fs, path::Path, str::FromStr};

use dwell_profile::{Pid, Tid, VirtualAddress};

use crate::host::procfs;

/// Returns the pids of all present processes.
pub fn all_pids() -> Vec<Pid> {
    numbers_in(Path::new("/proc"))
}

/// Returns whether the process has ended, even if its parent has not read its exit status yet.
pub fn has_ended(pid: Pid) -> bool {
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { return true };
    procfs::parse_stat(&String::from_utf8_lossy(&stat)).is_none_or(|s| s.ended)
}

/// Returns the threads of a process.
pub fn threads_of(pid: Pid) -> Vec<Tid> {
    numbers_in(Path::new(&format!("/proc/{pid}/task")))
}

/// Returns the threads of a process that wait now, each with the user instruction at which it waits, where the kernel shows that.
pub fn waiting_threads_of(pid: Pid) -> Vec<(Tid, Option<VirtualAddress>)> {
    let waiting = |tid: Tid| {
        let folder = format!("/proc/{pid}/task/{tid}");
        let stat = fs::read(format!("{folder}/stat")).ok()?;
        let runs = procfs::parse_stat(&String::from_utf8_lossy(&stat)).is_none_or(|s| s.runs || s.ended);
        let pc = || procfs::parse_waiting_pc(&fs::read_to_string(format!("{folder}/syscall")).ok()?);
        (!runs).then(|| (tid, pc()))
    };
    threads_of(pid).into_iter().filter_map(waiting).collect()
}

/// Returns the process and all its descendants.
pub fn tree_of(pid: Pid) -> Vec<Pid> {
    let parents: Vec<(Pid, Pid)> = all_pids().into_iter().filter_map(|p| Some((p, parent_of(p)?))).collect();
    let mut tree = vec![pid];
    let mut at = 0;
    while let Some(parent) = tree.get(at).copied() {
        let children =
            parents.iter().filter(|(child, p)| *p == parent && !tree.contains(child)).map(|(c, _)| *c);
        let children: Vec<Pid> = children.collect();
        tree.extend(children);
        at += 1;
    }
    tree
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    procfs::parse_stat(&String::from_utf8_lossy(&stat)).map(|s| s.parent_pid)
}

fn numbers_in<T: FromStr>(folder: &Path) -> Vec<T> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}
