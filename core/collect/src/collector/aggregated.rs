//! Counts that the kernel aggregated: finds the image and execution of each, among all that its pid was in an interval.
//!
//! Enters: entries, each sampled at some time within an interval, after the side band up to the interval's end was applied.
//! Leaves: counts like those of single samples. Never here: guesses. If several address spaces had the pid and resolve an
//! entry differently, the identity of the executable decides; otherwise the entry is counted as ambiguous.
//!
//! The kernel names an executable by an opaque ID. We learn which file an ID stands for from pids that were only one
//! program. Each *execution* has one executable, so an execution with another known ID is ruled out. An entry that cannot be
//! resolved when it arrives waits until the end of the interval; by then other entries may have taught us more.

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

/// Most entries that wait for the end of their interval; further ones are counted as ambiguous at once.
const WAITING_MAX: usize = 1 << 14;
/// Most executables that the kernel keeps apart by process.
const BY_PROCESS_MAX: usize = 16;
/// Number of remembered executables. Beyond it they are forgotten and learned again.
const EXECUTABLES_MAX: usize = 1 << 13;

/// Facts learned from entries, and entries that wait.
#[derive(Default)]
pub(super) struct Aggregated {
    /// Files seen for an executable's ID. There is one, unless several paths lead to it.
    files: FxHashMap<u64, Vec<TargetIndex>>,
    /// IDs in `files` by their low half: keys of places outside of the executable have no room for more.
    by_low_half: FxHashMap<u32, Vec<u64>>,
    /// ID of the executable of an execution.
    ids: FxHashMap<ExecutionId, u64>,
    /// Owners of entries in this interval, by executable and by the first pid that was sampled in it.
    owners: FxHashMap<(u64, u32), Owner>,
    /// Latest owner found for entries in the kernel, by pid. A record about the pid removes it.
    owners_in_kernel: FxHashMap<Pid, (u64, Owner)>,
    /// What a pid was, if that is certain. A record about the pid removes it.
    lives: FxHashMap<Pid, Rc<Lives>>,
    /// The execution of each program that has only one in this interval.
    sole: Option<FxHashMap<TargetIndex, Option<ExecutionId>>>,
    waiting: Vec<Entry>,
    /// Start of this interval, once an entry of it has arrived.
    since_ns: u64,
    /// Executables that the kernel should keep apart by process, and how many of them were already reported.
    by_process: Vec<u64>,
    by_process_told: usize,
}

/// Owner of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// A program. `execution` is its only one, or represents all of them.
    Program { target: TargetIndex, execution: ExecutionId },
    /// One of several programs, undecided.
    Several,
    /// No program is known.
    Nobody,
}

/// The address spaces that a pid had, except those that the ID of its executable rules out.
struct Lives {
    /// Low half of the executable's ID.
    executable: u32,
    spaces: Vec<(AddressSpace, CodeId, ExecutionId)>,
    /// Execution of the latest address space.
    execution: ExecutionId,
    /// Whether all address spaces of the pid were kept.
    complete: bool,
}

/// A program that a pid may have been, and its execution.
type Candidate = (TargetIndex, ExecutionId);

impl Aggregated {
    /// Forgets executions that are no longer referred to.
    pub(super) fn retain(&mut self, live: &dyn Fn(ExecutionId) -> bool) {
        self.ids.retain(|execution, _| live(*execution));
        self.forget_owners(); // Their executions may be gone.
    }

    /// Forgets all owners because the interval is over, or because the facts they were derived from have changed.
    fn forget_owners(&mut self) {
        self.owners.clear();
        self.sole = None;
        self.forget_all_lives();
    }

    /// Forgets what all pids were, because any of them may be something else now.
    pub(super) fn forget_all_lives(&mut self) {
        (self.lives, self.owners_in_kernel) = Default::default(); // This releases their memory too.
    }

    /// Forgets what a pid was, because a record may change it.
    pub(super) fn forget_lives(&mut self, pid: Pid) {
        self.lives.remove(&pid);
        self.owners_in_kernel.remove(&pid);
    }

    /// Renumbers files, and forgets those that are no longer mapped.
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

    /// Gives a child's execution the executable of its parent's execution.
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

    /// Keeps the candidates whose execution or file is known to have an ID that `is_id` accepts. If there are none, keeps
    /// those that may have it. Returns whether any was known.
    fn narrow(
        &self,
        candidates: &mut Vec<Candidate>,
        is_id: &dyn Fn(u64) -> bool,
        is_file: &dyn Fn(TargetIndex) -> bool,
    ) -> bool {
        let id_of = |c: &Candidate| self.ids.get(&c.1).copied();
        candidates.retain(|c| id_of(c).is_none_or(is_id));
        // Another execution of the same file is as possible as the one whose ID is known.
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

    /// Returns whether a file has an ID with this low half.
    fn is_file_of_half(&self, low_half: u32, target: TargetIndex) -> bool {
        let ids = self.by_low_half.get(&low_half);
        ids.is_some_and(|ids| ids.iter().any(|id| self.is_file_of(*id, target)))
    }

    /// Notes an execution of a program within an interval. If it is the second one, owners that assumed a single execution
    /// are forgotten.
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
    /// Starts to keep what each pid was until [`Collector::end_interval`], because the source aggregates samples.
    pub fn keep_spaces(&mut self) {
        self.processes.keep_past();
        self.recipes_max = RECIPES_OF_HOT_MAX;
    }

    /// Notes the ID of the executable of a process, as the kernel reports it.
    pub(super) fn executes(&mut self, pid: Pid, id: u64) {
        let Some(process) = self.processes.get(pid) else { return };
        match process.program {
            Some(program) => self.aggregated.learn(id, (self.images.canonical(program), process.execution)),
            None => {
                self.aggregated.ids.insert(process.execution, id);
            }
        }
    }

    /// Notes that a pid may be an execution that was unknown when earlier entries of the interval were counted.
    pub(super) fn meet(&mut self, pid: Pid) {
        if self.aggregated.sole.is_some()
            && let Some(process) = self.processes.get(pid)
            && let Some((target, execution)) = self.candidate(process)
        {
            self.aggregated.met(target, execution);
        }
    }

    /// Counts entries that were sampled in an interval. The side band up to its end, and nothing later, must have been
    /// applied. It may be called several times for an interval.
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

    /// Ends an interval. No later entry was sampled before `until_ns`, so processes that had ended by then are forgotten.
    pub fn end_interval(&mut self, until_ns: u64) {
        self.sampled = Interval { since_ns: self.aggregated.since_ns, until_ns };
        self.settle_waiting();
        self.aggregated.forget_owners();
        self.reap_processes(until_ns); // No entries of ended processes can arrive any more.
        self.processes.forget_past(until_ns);
        self.host.forget_modules(until_ns);
    }

    fn settle_waiting(&mut self) {
        self.aggregated.owners.retain(|_, owner| matches!(owner, Owner::Program { .. }));
        let mut waiting = std::mem::take(&mut self.aggregated.waiting);
        for entry in waiting.drain(..) {
            self.settle(&entry, true);
        }
        self.aggregated.waiting = waiting; // Reuse its memory in the next interval.
    }

    /// Counts an entry if its owner is known, or in any case if `now_or_never`. Returns whether it was counted.
    fn settle(&mut self, entry: &Entry, now_or_never: bool) -> bool {
        // Entries of a table carry neither thread nor control group; backends with tables do not offer these dimensions.
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

    /// Returns the place for an offset from `mm->start_code`.
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

    /// Returns the owner of an executable's entries that carry this pid, the first that was sampled in it.
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
                return Owner::Several; // The program has no code there, so the entry is of another program, unknown to us.
            }
            self.aggregated.learn(id, candidate);
            self.keep_apart_by_process(id, candidate.0);
        }
        self.aggregated.owners.insert((id, pid.0), owner);
        owner
    }

    /// Returns the owner like [`Collector::owner`], but for a sample in the kernel. Nothing is learned from it: during an
    /// exec the process already has the new executable while the kernel reports the exec later, perhaps in the next
    /// interval. If the file of the ID is known, it decides.
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

    /// Returns the owner, and the candidate if it is the only possible one.
    fn find_owner(&mut self, id: u64, pid: Pid) -> (Owner, Option<Candidate>) {
        let (mut candidates, all_known) = self.candidates(pid);
        let was = candidates.len();
        let known = &self.aggregated;
        let by_id = known.narrow(&mut candidates, &|other| other == id, &|file| known.is_file_of(id, file));
        let certain = by_id || all_known;
        match &candidates[..] {
            // An execution with another ID is ruled out even if other candidates are unknown, but then the entry may be of
            // any of those.
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

    /// Returns all executables that the kernel should keep apart by process, if there is a new one since the last call.
    /// Until the kernel does, their samples count like those of other programs.
    pub fn take_by_process(&mut self) -> Option<Vec<u64>> {
        let all = &self.aggregated.by_process;
        (std::mem::replace(&mut self.aggregated.by_process_told, all.len()) < all.len()).then(|| all.clone())
    }

    /// Returns the programs that a pid was in the interval, and whether there were no others.
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

    /// Looks at the files of programs that ran before we did. Only then is it known which of them are the same.
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

    /// Returns the only execution of the program in the interval, or the one that represents all if there are several.
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

    /// Returns the execution that represents all executions of a program.
    fn together(&mut self, target: TargetIndex) -> ExecutionId {
        self.images.program_of(target).map_or(self.nobody, |app| self.apps.together(&app))
    }

    fn without_app(&mut self, entry: &Entry) -> ExecutionId {
        self.unknown.app += if entry.event == CountedEvent::KERNEL_TIME { 0 } else { entry.count };
        self.nobody
    }

    /// Returns the present execution of a pid, or its last one in the interval. An unknown pid is looked up in /proc. A pid
    /// that ended in the interval is fully known and not looked up: taking the absent process for its successor would leave
    /// its entries without an owner.
    fn latest_execution(&mut self, pid: Pid) -> ExecutionId {
        let known = self.processes.ever(pid).next().map(|p| p.execution);
        known.unwrap_or_else(|| self.execution_of(pid))
    }

    /// Returns the execution of a task without an executable: a kernel thread or the idle task.
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

    /// Returns what a pid was, except what the low half of its executable's ID rules out.
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
            self.aggregated.lives.insert(pid, lives.clone()); // Otherwise more may be known next time.
        }
        lives
    }

    /// Returns the address spaces of a pid, each with its execution as far as known.
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

    /// Returns the execution that represents an application, if all these executions belong to it.
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
