//! Counts that the kernel aggregated → images: what of all that a pid was in an interval a count belongs to.
//!
//! Enters: entries, each sampled somewhere within an interval, after the side band up to its end was applied. Leaves: counts
//! like any sample's. Never here: a guess. Where several address spaces had the pid and explain an entry differently, the
//! executable's identity decides, or it is counted as ambiguous.
//!
//! The kernel names an executable by an opaque id. That it is a certain file is learned from pids that were one program
//! only; an *execution* has one executable, so one that is known to be another's id is out. What cannot be decided when it
//! comes waits until the interval is over, by when its neighbours may have told more.

use std::rc::Rc;

use dwell_attribution::{
    AddressSpace, CodeId, ExecutionId, ImageIndex, Interval, MappedRange, Process, TargetIndex,
};
use dwell_profile::{CountedEvent, Pid};
use rustc_hash::FxHashMap;

use super::{Cause, Collector, Spot, code::RECIPES_OF_HOT_MAX};
use crate::{
    entries::{Entry, Place},
    host::Host,
};

/// Entries that may wait for the end of their interval; more are ambiguous at once.
const WAITING_MAX: usize = 1 << 14;
/// More executables the kernel does not keep apart by process.
const BY_PROCESS_MAX: usize = 16;
/// Executables that are remembered; beyond that they are learned anew.
const EXECUTABLES_MAX: usize = 1 << 13;

/// What entries taught us.
#[derive(Default)]
pub(super) struct Aggregated {
    /// The files that an executable's id was seen to be; one, but where it is reached by several paths.
    files: FxHashMap<u64, Vec<TargetIndex>>,
    /// The ids in it by their low half, which is all that the key of a place outside of the executable has room for.
    by_low_half: FxHashMap<u32, Vec<u64>>,
    /// The id of what an execution executes.
    ids: FxHashMap<ExecutionId, u64>,
    /// Of this interval: whose an executable's entries with this first pid are.
    owners: FxHashMap<(u64, u32), Owner>,
    /// The same of entries in the kernel, by pid: the latest that was asked for. Until a record changes what the pid is.
    owners_in_kernel: FxHashMap<Pid, (u64, Owner)>,
    /// What a pid was, where that is certain; as above.
    lives: FxHashMap<Pid, Rc<Lives>>,
    /// Of this interval: a program's execution, where there is but one.
    sole: Option<FxHashMap<TargetIndex, Option<ExecutionId>>>,
    waiting: Vec<Entry>,
    /// When this interval began, once entries of it have come.
    since_ns: u64,
    /// What is to be kept apart by process, and whether that was told.
    by_process: Vec<u64>,
    by_process_told: usize,
}

/// Whose entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// This program's; one of its executions, or all together.
    Program { target: TargetIndex, execution: ExecutionId },
    /// One of several programs'.
    Several,
    /// Nothing is known of them.
    Nobody,
}

/// The address spaces that a pid had, without those that its executable's id rules out.
struct Lives {
    /// The low half of the id.
    executable: u32,
    spaces: Vec<(AddressSpace, CodeId, ExecutionId)>,
    /// Of its latest.
    execution: ExecutionId,
    /// Whether they are all.
    complete: bool,
}

/// What a pid may have been: the program and its execution.
type Candidate = (TargetIndex, ExecutionId);

impl Aggregated {
    /// Forgets executions that nobody refers to any more.
    pub(super) fn retain(&mut self, live: &dyn Fn(ExecutionId) -> bool) {
        self.ids.retain(|execution, _| live(*execution));
        self.forget_owners(); // Executions of theirs may be gone.
    }

    /// Whose entries are is found anew: the interval is over, or what it was found by is.
    fn forget_owners(&mut self) {
        self.owners.clear();
        self.sole = None;
        self.forget_all_lives();
    }

    /// Anybody may be something else now.
    pub(super) fn forget_all_lives(&mut self) {
        (self.lives, self.owners_in_kernel) = Default::default(); // With their memory.
    }

    /// A record may change what a pid is.
    pub(super) fn forget_lives(&mut self, pid: Pid) {
        self.lives.remove(&pid);
        self.owners_in_kernel.remove(&pid);
    }

    /// Renumbers files, and forgets those that nobody maps any more.
    pub(super) fn retarget(&mut self, moved: &dyn Fn(TargetIndex) -> Option<TargetIndex>) {
        self.files.retain(|_, files| {
            *files = files.iter().filter_map(|file| moved(*file)).collect();
            !files.is_empty()
        });
        self.by_low_half.clear();
        for id in self.files.keys() {
            self.by_low_half.entry(*id as u32).or_default().push(*id);
        }
        self.forget_owners();
    }

    /// A child of an execution has an execution of its own, of the same program.
    pub(super) fn inherit(&mut self, child: ExecutionId, parent: ExecutionId) {
        if let Some(id) = self.ids.get(&parent).copied() {
            self.ids.insert(child, id);
        }
    }

    fn learn(&mut self, id: u64, (target, execution): Candidate) {
        if self.files.len() >= EXECUTABLES_MAX {
            self.files.clear();
            self.by_low_half.clear();
        }
        let files = self.files.entry(id).or_insert_with(|| {
            self.by_low_half.entry(id as u32).or_default().push(id);
            Vec::new()
        });
        if !files.contains(&target) {
            files.push(target);
        }
        self.ids.insert(execution, id);
    }

    /// Leaves those candidates that are what the kernel calls `is_id`, by what is known of their executions and files; where
    /// none is known to be, those that may be. Whether it was known of one.
    fn narrow(
        &self,
        candidates: &mut Vec<Candidate>,
        is_id: &dyn Fn(u64) -> bool,
        is_file: &dyn Fn(TargetIndex) -> bool,
    ) -> bool {
        let id_of = |c: &Candidate| self.ids.get(&c.1).copied();
        candidates.retain(|c| id_of(c).is_none_or(is_id));
        // Another execution of the same file may be meant as well as the one that is known.
        let is_known = |c: &&Candidate| id_of(c).is_some() || is_file(c.0);
        let known: Vec<Candidate> = candidates.iter().filter(is_known).copied().collect();
        let found = !known.is_empty();
        if found {
            *candidates = known;
        }
        found
    }

    fn is_file_of(&self, id: u64, target: TargetIndex) -> bool {
        self.files.get(&id).is_some_and(|files| files.contains(&target))
    }

    /// The same where only the low half of the id is told.
    fn is_file_of_half(&self, low_half: u32, target: TargetIndex) -> bool {
        let ids = self.by_low_half.get(&low_half);
        ids.is_some_and(|ids| ids.iter().any(|id| self.is_file_of(*id, target)))
    }

    /// Another execution of a program was met within an interval: what was its only one until now no longer is.
    fn met(&mut self, target: TargetIndex, execution: ExecutionId) {
        let Some(sole) = &mut self.sole else { return };
        let known = sole.entry(target).or_insert(Some(execution));
        if known.is_some_and(|known| known != execution) {
            *known = None;
            let of_it = |owner: &Owner| matches!(owner, Owner::Program { target: t, .. } if *t == target);
            self.owners.retain(|_, owner| !of_it(owner));
            self.owners_in_kernel.retain(|_, (_, owner)| !of_it(owner));
        }
    }
}

impl<H: Host> Collector<H> {
    /// From now on keeps what each pid was, until [`Collector::end_interval`]: the source aggregates.
    pub fn keep_spaces(&mut self) {
        self.processes.keep_past();
        self.recipes_max = RECIPES_OF_HOT_MAX;
    }

    /// The kernel tells what a process executes now.
    pub(super) fn executes(&mut self, pid: Pid, id: u64) {
        let Some(process) = self.processes.get(pid) else { return };
        match process.program {
            Some(program) => self.aggregated.learn(id, (self.images.canonical(program), process.execution)),
            None => {
                self.aggregated.ids.insert(process.execution, id);
            }
        }
    }

    /// A pid may be an execution that was not known when the interval's entries so far were counted.
    pub(super) fn meet(&mut self, pid: Pid) {
        if self.aggregated.sole.is_some()
            && let Some(process) = self.processes.get(pid)
            && let Some((target, execution)) = self.candidate(process)
        {
            self.aggregated.met(target, execution);
        }
    }

    /// Counts entries that were sampled in an interval. The side band up to its end, and none after, must have been
    /// applied. May be called several times for an interval.
    pub fn apply_entries(&mut self, entries: &[Entry], interval: Interval) {
        debug_assert!(interval.since_ns <= interval.until_ns);
        self.dimensions.at(interval.until_ns);
        self.aggregated.since_ns = interval.since_ns;
        self.sampled = interval;
        for entry in entries {
            if !self.settle(entry, false) {
                self.aggregated.waiting.push(*entry);
            }
            if self.aggregated.waiting.len() >= WAITING_MAX {
                self.settle_waiting();
            }
        }
    }

    /// An interval is over: no entry to come was sampled before `until_ns`, so what had ended by then is forgotten.
    pub fn end_interval(&mut self, until_ns: u64) {
        self.sampled = Interval { since_ns: self.aggregated.since_ns, until_ns };
        self.settle_waiting();
        self.aggregated.forget_owners();
        self.reap_processes(until_ns); // Of who had ended by then nothing is to come.
        self.processes.forget_past(until_ns);
        self.host.forget_modules(until_ns);
    }

    fn settle_waiting(&mut self) {
        self.aggregated.owners.retain(|_, owner| matches!(owner, Owner::Program { .. }));
        let mut waiting = std::mem::take(&mut self.aggregated.waiting);
        for entry in waiting.drain(..) {
            self.settle(&entry, true);
        }
        self.aggregated.waiting = waiting; // Its memory serves the next interval.
    }

    /// Counts an entry, if it can be told now whose it is, or must be.
    fn settle(&mut self, entry: &Entry, now_or_never: bool) -> bool {
        // Of a table's entry neither thread nor group are told: no backend with tables offers them.
        self.dimensions.see(&mut self.host, entry.pid, entry.pid.first_thread(), entry.cpu);
        match entry.place {
            Place::Executable { id, offset } => self.settle_in_executable(entry, id, offset, now_or_never),
            Place::Kernel { pc, executable: Some(id) } => {
                let execution = match self.owner_in_kernel(id, entry.pid) {
                    Owner::Program { execution, .. } => execution,
                    _ if !now_or_never => return false,
                    _ => self.without_app(entry),
                };
                self.count_in_kernel(entry, pc, execution);
                true
            }
            Place::Kernel { pc, executable: None } => {
                let execution = self.only_execution(entry);
                self.count_in_kernel(entry, pc, execution);
                true
            }
            Place::Process { pc, executable } => self.settle_in_process(entry, pc, executable, now_or_never),
        }
    }

    fn count_in_kernel(&mut self, entry: &Entry, pc: u64, execution: ExecutionId) {
        let place = self.kernel_place(pc).map(Spot::from);
        self.count(entry.event, place, pc, execution, entry.count);
    }

    fn settle_in_executable(&mut self, entry: &Entry, id: u64, offset: u64, now_or_never: bool) -> bool {
        let (place, execution) = match self.owner(id, entry.pid, offset) {
            Owner::Program { target, execution } => {
                (self.program_place(entry.pid, target, offset).map(Spot::from), execution)
            }
            _ if !now_or_never => return false,
            Owner::Several => (Err(Cause::Ambiguous), self.nobody),
            Owner::Nobody => (Err(self.why_not_mapped(entry.pid)), self.nobody),
        };
        self.count(entry.event, place, offset, execution, entry.count);
        true
    }

    /// A distance from `mm->start_code` → offset in the file.
    fn program_place(
        &mut self,
        pid: Pid,
        target: TargetIndex,
        offset: u64,
    ) -> Result<(ImageIndex, u64), Cause> {
        let image = match self.images.image_of(target) {
            Some(image) => image,
            None => {
                let mut mapped = self.processes.ever(pid).flat_map(|p| p.space.iter());
                let place = mapped.find(|m| m.target == target).map(|m| m.place(pid));
                let place = place.unwrap_or(MappedRange { pid, start: 0, end: 0 });
                self.images.look(target, place, &mut self.host).ok_or(Cause::NoFile)?
            }
        };
        let code = self.images.code_of(target);
        match code.file_offset(offset) {
            Some(file_offset) => Ok((image, file_offset)),
            None => Err(if code.is_known() { Cause::NoMapping } else { Cause::NoFile }),
        }
    }

    /// Whose an executable's entries are of which a pid was the first.
    fn owner(&mut self, id: u64, pid: Pid, offset: u64) -> Owner {
        if let Some(owner) = self.aggregated.owners.get(&(id, pid.0)) {
            return *owner;
        }
        self.latest_execution(pid);
        self.look_at_programs(pid);
        let (owner, found) = self.find_owner(id, pid);
        if let Some(candidate) = found {
            let code = self.images.code_of(candidate.0);
            if code.is_known() && code.file_offset(offset).is_none() {
                return Owner::Several; // It has no code there, so it is another program that we do not know of.
            }
            self.aggregated.learn(id, candidate);
            self.keep_apart_by_process(id, candidate.0);
        }
        self.aggregated.owners.insert((id, pid.0), owner);
        owner
    }

    /// As [`Collector::owner`], for a sample in the kernel, which teaches nothing: a process that executes a program has
    /// the new executable a while before that is told, perhaps in the next interval only. A file that is known decides.
    fn owner_in_kernel(&mut self, id: u64, pid: Pid) -> Owner {
        if let Some((_, owner)) = self.aggregated.owners_in_kernel.get(&pid).filter(|(of, _)| *of == id) {
            return *owner;
        }
        if let Some(owner) = self.aggregated.owners.get(&(id, pid.0)) {
            return *owner;
        }
        self.latest_execution(pid);
        self.look_at_programs(pid);
        let (owner, _) = self.find_owner(id, pid);
        let files = self.aggregated.files.get(&id).map(Vec::as_slice);
        let owner = match (owner, files) {
            (Owner::Program { target, .. }, Some([file])) if target != *file => {
                Owner::Program { target: *file, execution: self.together(*file) }
            }
            _ => owner,
        };
        if matches!(owner, Owner::Program { .. }) {
            self.aggregated.owners_in_kernel.insert(pid, (id, owner));
        }
        owner
    }

    /// With the one candidate that it is certain to be, if it is but one.
    fn find_owner(&mut self, id: u64, pid: Pid) -> (Owner, Option<Candidate>) {
        let (mut candidates, all_known) = self.candidates(pid);
        let was = candidates.len();
        let known = &self.aggregated;
        let by_id = known.narrow(&mut candidates, &|other| other == id, &|file| known.is_file_of(id, file));
        let certain = by_id || all_known;
        match &candidates[..] {
            // An execution that is another's id is out, whatever else may be unknown; but then the rest may be anything.
            [] => match self.aggregated.files.get(&id).map(Vec::as_slice) {
                Some([target]) => {
                    (Owner::Program { target: *target, execution: self.together(*target) }, None)
                }
                _ if was == 0 => (Owner::Nobody, None),
                _ => (Owner::Several, None),
            },
            [first @ (target, _), rest @ ..] if certain && rest.iter().all(|c| c.0 == *target) => {
                let (target, sole) = (*target, rest.is_empty().then_some(*first));
                (Owner::Program { target, execution: self.sole_execution(target) }, sole)
            }
            _ => (Owner::Several, None),
        }
    }

    fn keep_apart_by_process(&mut self, id: u64, target: TargetIndex) {
        let chosen = self.images.program_of(target).is_some_and(|app| self.apps.apart().is_by_process(&app));
        let all = &mut self.aggregated.by_process;
        if chosen && all.len() < BY_PROCESS_MAX && !all.contains(&id) {
            all.push(id);
        }
    }

    /// All executables that the kernel should keep apart by process, if there is one more than at the last call. Until
    /// then their samples count as those of other programs.
    pub fn take_by_process(&mut self) -> Option<Vec<u64>> {
        let all = &self.aggregated.by_process;
        (std::mem::replace(&mut self.aggregated.by_process_told, all.len()) < all.len()).then(|| all.clone())
    }

    /// The programs that a pid was in the interval, and whether those are all.
    fn candidates(&self, pid: Pid) -> (Vec<Candidate>, bool) {
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut all_known = self.processes.is_complete(pid);
        for process in self.processes.ever(pid).filter(|p| !p.kernel_thread) {
            match self.candidate(process) {
                Some(candidate) if !candidates.contains(&candidate) => candidates.push(candidate),
                Some(_) => {}
                None => all_known = false,
            }
        }
        (candidates, all_known)
    }

    fn candidate(&self, process: &Process) -> Option<Candidate> {
        process.program.map(|program| (self.images.canonical(program), process.execution))
    }

    /// Looks at the programs of those that ran before we did: which of them are one and the same is known only then.
    fn look_at_programs(&mut self, pid: Pid) {
        let new = |p: &Process| p.program.filter(|program| self.images.image_of(*program).is_none());
        let programs: Vec<TargetIndex> = self.processes.ever(pid).filter_map(new).collect();
        if !programs.is_empty() {
            self.recall(pid);
        }
        for program in programs {
            let mut mapped = self.processes.ever(pid).flat_map(|p| p.space.iter());
            let place = mapped.find(|m| m.target == program).map(|m| m.place(pid));
            if let Some(place) = place {
                self.images.look(program, place, &mut self.host);
            }
        }
    }

    /// The program's one execution in the interval; all of them together, where there are several.
    fn sole_execution(&mut self, target: TargetIndex) -> ExecutionId {
        let (processes, images) = (&self.processes, &self.images);
        let sole = self.aggregated.sole.get_or_insert_with(|| {
            let mut sole: FxHashMap<TargetIndex, Option<ExecutionId>> = FxHashMap::default();
            for (_, process) in processes.iter_ever() {
                let Some(program) = process.program else { continue };
                let known = sole.entry(images.canonical(program)).or_insert(Some(process.execution));
                *known = known.filter(|execution| *execution == process.execution);
            }
            sole
        });
        match sole.get(&target).copied().flatten() {
            Some(execution) => execution,
            None => self.together(target),
        }
    }

    /// Stands for all executions of a program.
    fn together(&mut self, target: TargetIndex) -> ExecutionId {
        self.images.program_of(target).map_or(self.nobody, |app| self.apps.together(&app))
    }

    fn without_app(&mut self, entry: &Entry) -> ExecutionId {
        self.unknown.app += if entry.event == CountedEvent::KERNEL_TIME { 0 } else { entry.count };
        self.nobody
    }

    /// What a pid executes, or did last in the interval. Who is not known is looked at; of one that ended in the interval all
    /// is known, and to take nobody for its successor would leave its entries without an owner.
    fn latest_execution(&mut self, pid: Pid) -> ExecutionId {
        let known = self.processes.ever(pid).next().map(|p| p.execution);
        known.unwrap_or_else(|| self.execution_of(pid))
    }

    /// Of a task without an executable: a kernel thread's, or the idle task's.
    fn only_execution(&mut self, entry: &Entry) -> ExecutionId {
        let now = self.latest_execution(entry.pid);
        if entry.pid == Pid::IDLE || self.processes.ever(entry.pid).all(|p| p.execution == now) {
            return now;
        }
        let threads = self.processes.ever(entry.pid).filter(|p| p.kernel_thread).map(|p| p.execution);
        let threads: Vec<ExecutionId> = threads.collect();
        if let [thread] = threads[..] { thread } else { self.without_app(entry) }
    }

    fn settle_in_process(&mut self, entry: &Entry, pc: u64, executable: u32, now_or_never: bool) -> bool {
        let lives = self.lives(entry.pid, executable);
        let mut explained = None;
        let mut others = Vec::new();
        for (space, code, execution) in &lives.spaces {
            let Some(mapping) = space.find(pc) else { continue };
            let one = (self.place_in(mapping, entry.pid, *code, pc, *execution), *execution);
            match explained {
                None => explained = Some(one),
                Some(first) if first != one && !others.contains(&one) => others.push(one),
                Some(_) => {}
            }
        }
        let (place, execution) = match explained {
            None if entry.pid == Pid::ENDED => (Err(Cause::NoTask), self.nobody),
            None => (Err(self.why_not_mapped(entry.pid)), lives.execution),
            Some((place, execution)) if lives.complete && others.is_empty() => (Ok(place), execution),
            Some(_) if !now_or_never => return false,
            Some((place, execution)) if lives.complete && others.iter().all(|(p, _)| *p == place) => {
                let executions = others.iter().map(|(_, e)| *e);
                (Ok(place), self.one_app(execution, executions, entry))
            }
            Some(_) => (Err(Cause::Ambiguous), self.nobody),
        };
        self.count(entry.event, place, pc, execution, entry.count);
        true
    }

    /// What a pid was, as far as the low half of its executable's id does not rule it out.
    fn lives(&mut self, pid: Pid, executable: u32) -> Rc<Lives> {
        let known = self.aggregated.lives.get(&pid);
        if let Some(known) = known.filter(|lives| lives.executable == executable) {
            return known.clone();
        }
        let execution = self.latest_execution(pid);
        self.recall(pid);
        self.look_at_programs(pid);
        let (spaces, complete) = (self.spaces(pid, executable), self.processes.is_complete(pid));
        let lives = Rc::new(Lives { executable, spaces, execution, complete });
        if complete && lives.spaces.len() == 1 {
            self.aggregated.lives.insert(pid, lives.clone()); // Else more may be known next time.
        }
        lives
    }

    /// Its address spaces, each with its execution, as far as that is known now.
    fn spaces(&self, pid: Pid, executable: u32) -> Vec<(AddressSpace, CodeId, ExecutionId)> {
        let space = |p: &Process| (p.space.clone(), p.code, p.execution);
        let mut all = self.processes.ever(pid);
        if let (Some(only), None) = (all.next(), all.next()) {
            return vec![space(only)];
        }
        let (mut candidates, _) = self.candidates(pid);
        let known = &self.aggregated;
        let is_id = |id: u64| id as u32 == executable;
        let is_file = |file| known.is_file_of_half(executable, file);
        let decided = executable != 0 && known.narrow(&mut candidates, &is_id, &is_file);
        let ruled_out = |p: &Process| match self.candidate(p) {
            Some(candidate) => executable != 0 && !candidates.contains(&candidate),
            None => decided,
        };
        self.processes.ever(pid).filter(|p| !ruled_out(p)).map(space).collect()
    }

    /// Executions that are all of one application stand for it together.
    fn one_app(
        &mut self,
        first: ExecutionId,
        mut others: impl Iterator<Item = ExecutionId>,
        entry: &Entry,
    ) -> ExecutionId {
        let app = self.apps.resolve(first).app;
        if others.all(|other| self.apps.resolve(other).app == app) {
            self.apps.together(&app)
        } else {
            self.without_app(entry)
        }
    }
}
