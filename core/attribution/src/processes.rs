//! The processes that run, or ran until a moment ago: their mappings, and the execution they belong to.
//!
//! Enters: forks, executions, exits and mappings in order of time. Leaves: what a pid is *now*, so that a reused pid means
//! the new process. If the kernel aggregates samples, they arrive without their times; then everything that a pid was during
//! their interval is kept until the interval is over. Never here: images, counts, I/O.

use dwell_profile::Pid;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{AddressSpace, ExecutionId, Mapping, TargetIndex};

/// How long an ended process is kept (ns), because its last records may arrive late.
const MEMORY_OF_THE_DEAD_NS: u64 = 2_000_000_000;
/// Most former processes that are kept for one pid within an interval.
const PAST_OF_PID_MAX: usize = 64;
/// Number of ended processes above which the interval should end. Until then each of them takes some hundred bytes plus 40
/// for each mapping. What a pid was between its fork and its exec shares the mappings of its parent.
const PAST_MAX: usize = 1 << 12;
/// Capacity, in pids, to which the map of former processes shrinks again, for example after a fork bomb.
const PAST_CAPACITY_KEPT: usize = 1 << 10;

/// An address space as the owner of generated code, which has no file. It lasts from a fork or an execution to the next
/// execution or the exit, and all threads of the process share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeId(pub u32);

/// What is known about a process.
#[derive(Clone, Debug)]
pub struct Process {
    /// The owner of the code that the process generates. [`Processes`] assigns the number when it adds the process.
    pub code: CodeId,
    /// Its executable mappings.
    pub space: AddressSpace,
    /// The execution that the process belongs to.
    pub execution: ExecutionId,
    /// The executable file, once it is known.
    pub program: Option<TargetIndex>,
    /// Whether the process has executed a program but has not mapped a file yet. The first file that it maps is the program.
    pub awaits_program: bool,
    /// Whether it is a kernel thread.
    pub kernel_thread: bool,
    dead_since_ns: Option<u64>,
    /// Whether other threads continued after the first thread ended.
    outlives: bool,
    /// Whether its mappings were forgotten and must be read again when it is sampled.
    is_forgotten: bool,
    /// The [`Processes::turn`] in which it was sampled last.
    sampled_in: u32,
}

impl Process {
    /// Returns a live process without mappings.
    pub fn new(execution: ExecutionId, kernel_thread: bool) -> Self {
        let (space, program) = (AddressSpace::default(), None);
        Process {
            code: CodeId::default(),
            space,
            execution,
            program,
            awaits_program: false,
            kernel_thread,
            dead_since_ns: None,
            outlives: false,
            is_forgotten: false,
            sampled_in: 0,
        }
    }
}

/// A former process of a pid, and when the pid stopped being it.
#[derive(Debug)]
struct Past {
    pid: Pid,
    ended_ns: u64,
    process: Process,
}

/// All processes by pid, and former ones if they are kept.
#[derive(Debug, Default)]
pub struct Processes {
    by_pid: FxHashMap<Pid, Process>,
    dead: Vec<Pid>,
    /// Former processes by pid, oldest first; `None` if they are not kept.
    past: Option<FxHashMap<Pid, Vec<Past>>>,
    /// Number of former processes in `past`.
    past_kept: usize,
    /// Pids with more former processes within one interval than are kept.
    crowded: FxHashSet<Pid>,
    /// Number of calls of [`Processes::forget_least_recent`].
    turn: u32,
    /// Upper bound of the mappings that were added since they were last counted.
    mapped: usize,
    /// The most recently assigned number of an address space.
    last_code: CodeId,
}

impl Processes {
    /// Starts to keep former processes until [`Processes::forget_past`].
    pub fn keep_past(&mut self) {
        self.past.get_or_insert_default();
    }

    /// Returns the process that has this pid now.
    pub fn get(&self, pid: Pid) -> Option<&Process> {
        self.by_pid.get(&pid)
    }

    /// Iterates over all processes that had this pid since [`Processes::forget_past`], the present one first.
    pub fn ever(&self, pid: Pid) -> impl Iterator<Item = &Process> {
        let past = self.past.as_ref().and_then(|past| past.get(&pid)).into_iter().flatten();
        self.by_pid.get(&pid).into_iter().chain(past.rev().map(|p| &p.process))
    }

    /// Returns whether [`Processes::ever`] covers all processes that had the pid.
    pub fn is_complete(&self, pid: Pid) -> bool {
        !self.crowded.contains(&pid)
    }

    /// Forgets processes that ended before `until_ns`.
    pub fn forget_past(&mut self, until_ns: u64) {
        for past in self.past.iter_mut() {
            past.retain(|_, of_pid| {
                of_pid.retain(|p| p.ended_ns >= until_ns);
                !of_pid.is_empty()
            });
            past.shrink_to(PAST_CAPACITY_KEPT);
            self.past_kept = past.values().map(Vec::len).sum();
        }
        self.crowded.clear();
    }

    /// Returns whether so many processes have ended that they should be forgotten soon.
    pub fn is_past_long(&self) -> bool {
        self.past_kept + self.dead.len() > PAST_MAX
    }

    fn keep(&mut self, pid: Pid, process: Process, ended_ns: u64) {
        let Some(past) = &mut self.past else { return };
        let of_pid = past.entry(pid).or_default();
        if of_pid.len() < PAST_OF_PID_MAX {
            of_pid.reserve_exact(1); // Usually there are one or two.
            of_pid.push(Past { pid, ended_ns, process });
            self.past_kept += 1;
        } else {
            self.crowded.insert(pid);
        }
    }

    /// Notes that a sample of this process is about to be resolved. Returns whether its mappings must be read again first.
    /// If reading fails, the next turn tries again.
    pub fn is_sampled(&mut self, pid: Pid) -> bool {
        let Some(process) = self.by_pid.get_mut(&pid) else { return false };
        let is_first = std::mem::replace(&mut process.sampled_in, self.turn) != self.turn;
        is_first && process.is_forgotten && process.dead_since_ns.is_none()
    }

    /// Stores the mappings of a process that were read again.
    pub fn remember(&mut self, pid: Pid, space: AddressSpace) {
        if let Some(process) = self.by_pid.get_mut(&pid) {
            self.mapped += space.len();
            process.is_forgotten = space.is_empty();
            process.space = space;
        }
    }

    /// Forgets the mappings of the least recently sampled processes if live processes have more than `mappings_max`; they
    /// can be read again from /proc. Shared mappings count once. Returns the number of processes whose mappings were
    /// forgotten. Call it at the end of an interval, or after many new processes.
    pub fn forget_least_recent(&mut self, mappings_max: usize) -> usize {
        self.turn = self.turn.wrapping_add(1);
        if self.mapped < mappings_max / 4 {
            return 0;
        }
        self.mapped = 0;
        let mut sharers: FxHashMap<usize, usize> = FxHashMap::default();
        let mut mappings = 0;
        for process in self.by_pid.values() {
            let known = sharers.entry(process.space.identity()).or_default();
            *known += 1;
            mappings += if *known == 1 { process.space.len() } else { 0 };
        }
        if mappings <= mappings_max {
            return 0;
        }
        // Mappings that lie below a copy of text in huge pages are known only from the kernel's records, not from
        // /proc.
        let is_in_proc = |p: &Process| !p.space.is_empty() && p.space.iter().all(|m| m.over().is_none());
        let living = self.by_pid.iter_mut().filter(|(_, p)| p.dead_since_ns.is_none() && is_in_proc(p));
        let mut by_age: Vec<&mut Process> = living.map(|(_, process)| process).collect();
        by_age.sort_unstable_by_key(|p| p.sampled_in);
        let mut forgotten = 0;
        for process in by_age {
            if mappings <= mappings_max * 3 / 4 {
                break; // The margin avoids forgetting again at the next call.
            }
            let left = sharers.entry(process.space.identity()).or_default();
            *left = left.saturating_sub(1);
            mappings -= if *left == 0 { process.space.len() } else { 0 };
            (process.space, process.is_forgotten) = (AddressSpace::default(), true);
            forgotten += 1;
        }
        forgotten
    }

    /// Replaces the process that has this pid.
    pub fn replace(&mut self, pid: Pid, process: Process, time_ns: u64) {
        let code = self.next_code();
        self.put(pid, Process { code, ..process }, time_ns);
    }

    /// Stores what /proc shows for a pid after records were lost. It may be the known process or another one.
    pub fn look_again(&mut self, pid: Pid, process: Process, time_ns: u64) {
        let same = self.by_pid.get(&pid).filter(|known| known.execution == process.execution).map(|p| p.code);
        let code = same.unwrap_or_else(|| self.next_code());
        self.put(pid, Process { code, ..process }, time_ns);
    }

    fn next_code(&mut self) -> CodeId {
        self.last_code = CodeId(self.last_code.0.wrapping_add(1));
        self.last_code
    }

    fn put(&mut self, pid: Pid, process: Process, time_ns: u64) {
        self.mapped += process.space.len();
        // A new process is not one of the least recently sampled.
        let process = Process { sampled_in: self.turn, ..process };
        if let Some(old) = self.by_pid.insert(pid, process) {
            self.keep(pid, old, time_ns);
        }
    }

    /// Forgets a process whose pid may be reused.
    pub fn forget(&mut self, pid: Pid) {
        self.by_pid.remove(&pid);
    }

    fn remove(&mut self, pid: Pid, time_ns: u64) {
        if let Some(old) = self.by_pid.remove(&pid) {
            self.keep(pid, old, time_ns);
        }
    }

    /// Adds a process that ran before recording began, unless records have reported it since.
    pub fn discover(&mut self, pid: Pid, process: Process) {
        self.mapped += process.space.len();
        let code = self.next_code();
        self.by_pid.entry(pid).or_insert(Process { code, sampled_in: self.turn, ..process });
    }

    /// Adds a child as a copy of its parent. Returns false if the parent is not known.
    pub fn fork(&mut self, pid: Pid, parent_pid: Pid, time_ns: u64) -> bool {
        let Some(parent) = self.by_pid.get(&parent_pid) else {
            self.remove(pid, time_ns); // The former process of this pid has ended.
            return false;
        };
        let child = Process { dead_since_ns: None, outlives: false, ..parent.clone() };
        // Mappings that are shared count again: counting them too early is better than too late.
        self.replace(pid, child, time_ns);
        true
    }

    /// Notes that a process executes a program: all its earlier mappings are gone.
    pub fn exec(&mut self, pid: Pid, execution: ExecutionId, time_ns: u64) {
        let process = Process { awaits_program: true, ..Process::new(execution, false) };
        self.replace(pid, process, time_ns);
    }

    /// Notes that a kernel thread took a name, and therefore belongs to another execution.
    pub fn rename(&mut self, pid: Pid, execution: ExecutionId) {
        if let Some(process) = self.by_pid.get_mut(&pid) {
            process.execution = execution;
        }
    }

    /// Sets the program of a process once it is known.
    pub fn set_program(&mut self, pid: Pid, program: TargetIndex) {
        if let Some(process) = self.by_pid.get_mut(&pid) {
            (process.program, process.awaits_program) = (Some(program), false);
        }
    }

    /// Adds a mapping to a process.
    pub fn map(&mut self, pid: Pid, mapping: Mapping, time_ns: u64) {
        // Forgotten mappings will be read from /proc together with this one.
        let Some(process) = self.by_pid.get_mut(&pid).filter(|p| !p.is_forgotten) else { return };
        self.mapped += 1;
        let hidden = self.past.is_some() && process.space.would_hide(&mapping, time_ns);
        let before = hidden.then(|| process.clone());
        process.space.map(mapping);
        if let Some(before) = before {
            self.keep(pid, before, time_ns);
        }
    }

    /// Notes that the first thread of a process ended.
    pub fn exit(&mut self, pid: Pid, time_ns: u64) {
        if let Some(process) = self.by_pid.get_mut(&pid) {
            process.dead_since_ns = Some(time_ns);
            process.space.shrink();
            self.dead.push(pid);
        }
    }

    /// Notes the exit of all processes that are not in `pids`, because records of their exits were lost.
    pub fn exit_all_but(&mut self, pids: &FxHashSet<Pid>, now_ns: u64) {
        let ended = |(pid, p): &(&Pid, &Process)| p.dead_since_ns.is_none() && !pids.contains(*pid);
        let ended: Vec<Pid> = self.by_pid.iter().filter(ended).map(|(pid, _)| *pid).collect();
        ended.into_iter().for_each(|pid| self.exit(pid, now_ns));
    }

    /// Removes processes that ended long enough ago, except those whose other threads `go_on`.
    pub fn reap(&mut self, now_ns: u64, go_on: &dyn Fn(Pid) -> bool) {
        let mut dead = std::mem::take(&mut self.dead);
        dead.retain(|pid| {
            let Some(process) = self.by_pid.get_mut(pid) else { return false };
            let Some(since_ns) = process.dead_since_ns else { return false };
            if now_ns.saturating_sub(since_ns) < MEMORY_OF_THE_DEAD_NS {
                return true;
            }
            // The kernel reports no exit of the process other than that of its first thread, so we ask again later.
            if go_on(*pid) {
                process.outlives = true;
                return true;
            }
            let ended_ns = if process.outlives { now_ns } else { since_ns };
            self.remove(*pid, ended_ns);
            false
        });
        self.dead = dead;
    }

    /// Renumbers the targets of mappings and programs. `moved` returns a target's new index, or `None` if the target has
    /// none.
    pub fn retarget(&mut self, moved: &dyn Fn(TargetIndex) -> Option<TargetIndex>) {
        let past = self.past.iter_mut().flat_map(|past| past.values_mut().flatten().map(|p| &mut p.process));
        let mut shared: FxHashMap<usize, Vec<&mut AddressSpace>> = FxHashMap::default();
        for process in self.by_pid.values_mut().chain(past) {
            process.program = process.program.and_then(moved);
            shared.entry(process.space.identity()).or_default().push(&mut process.space);
        }
        for mut sharers in shared.into_values() {
            let mut space = AddressSpace::default();
            for sharer in &mut sharers {
                space = std::mem::take(*sharer); // After its last sharer is gone, nobody shares it.
            }
            space.retarget(moved);
            sharers.into_iter().for_each(|sharer| *sharer = space.clone());
        }
    }

    /// Iterates over the present processes.
    pub fn iter(&self) -> impl Iterator<Item = (Pid, &Process)> {
        self.by_pid.iter().map(|(pid, p)| (*pid, p))
    }

    /// Iterates over the present and the former processes.
    pub fn iter_ever(&self) -> impl Iterator<Item = (Pid, &Process)> {
        let past = self.past.iter().flat_map(|past| past.values().flatten());
        self.iter().chain(past.map(|p| (p.pid, &p.process)))
    }

    /// Returns the number of present processes.
    pub fn count(&self) -> usize {
        self.by_pid.len()
    }
}

#[cfg(test)]
mod tests {
    use dwell_profile::VirtualAddress;

    use super::*;
    use crate::{Applications, InstanceLimits};

    #[test]
    fn former_processes_are_known_until_they_are_forgotten() {
        let execution = Applications::new(InstanceLimits::in_a_run(Vec::new())).begin("true");
        let mut processes = Processes::default();
        processes.keep_past();
        let mut long = Vec::new();
        for time_ns in 0..2 * PAST_MAX as u64 {
            // A few pids are used again and again: the limit counts former processes, not pids.
            processes.exec(Pid(1 + time_ns as u32 % 1000), execution, time_ns);
            long.push(processes.is_past_long());
        }
        let first = long.iter().position(|is_long| *is_long);
        assert_eq!(first, Some(PAST_MAX + 1000), "each pid's first process replaced nobody");
        processes.forget_past(u64::MAX);
        assert!(!processes.is_past_long() && processes.count() == 1000);
    }

    fn mapping(at: u32) -> Mapping {
        let start = VirtualAddress(at.into());
        Mapping { start, end: start.offset(1), file_offset: 0, target: TargetIndex(at), anonymous: None }
    }

    /// Returns ten processes with ten mappings each, and a child of the first one.
    fn family() -> Processes {
        let execution = Applications::new(InstanceLimits::in_a_run(Vec::new())).begin("true");
        let mut processes = Processes::default();
        for pid in 0..10 {
            processes.exec(Pid(pid), execution, 0);
            (0..10).for_each(|start| processes.map(Pid(pid), mapping(start), 0));
        }
        processes.fork(Pid(10), Pid(0), 0);
        processes
    }

    #[test]
    fn mappings_of_the_least_recently_sampled_are_forgotten() {
        let mut processes = family();
        assert_eq!(processes.forget_least_recent(100), 0, "the child shares its parent's");
        assert!(!processes.is_sampled(Pid(0)) && !processes.is_sampled(Pid(10)));
        (3..10).for_each(|pid| assert!(!processes.is_sampled(Pid(pid))));
        assert_eq!(processes.forget_least_recent(80), 0, "nothing is new");
        processes.map(Pid(5), mapping(90), 0);
        (0..19).for_each(|_| processes.map(Pid(5), mapping(91), 0));
        let forgotten = processes.forget_least_recent(80);
        assert!((5..8).contains(&forgotten), "{forgotten}: of 102 mappings 60 are left, whoever shared them");
        assert_eq!(processes.count(), 11);
        assert!(
            processes.is_sampled(Pid(1)) && processes.is_sampled(Pid(2)) && !processes.is_sampled(Pid(2))
        );

        processes.map(Pid(1), mapping(7), 0);
        assert_eq!(
            processes.get(Pid(1)).unwrap().space.len(),
            0,
            "what is new will be read with all the rest"
        );
        let mut read = AddressSpace::default();
        read.map(mapping(7));
        processes.remember(Pid(1), read);
        processes.map(Pid(1), mapping(8), 0);
        assert_eq!(processes.get(Pid(1)).unwrap().space.len(), 2);
        processes.forget_least_recent(80);
        assert!(
            !processes.is_sampled(Pid(1)) && processes.is_sampled(Pid(2)),
            "/proc had nothing of it, and is asked again"
        );
    }

    #[test]
    fn shared_mappings_stay_shared_when_renumbered() {
        let mut processes = family();
        processes.retarget(&|target| Some(TargetIndex(target.0 + 100)));
        let space = |pid| processes.get(pid).unwrap().space.clone();
        assert_eq!(space(Pid(0)).identity(), space(Pid(10)).identity());
        assert_ne!(space(Pid(0)).identity(), space(Pid(1)).identity());
        assert_eq!(space(Pid(1)).find(VirtualAddress(3)).unwrap().target, TargetIndex(103));
    }
}
