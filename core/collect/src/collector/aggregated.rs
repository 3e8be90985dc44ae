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

use dwell_attribution::{AddressSpace, CodeId, ExecutionId, Interval, MappedRange, Process, TargetIndex};
use dwell_profile::{CountedEvent, Pid, VirtualAddress};
use rustc_hash::FxHashMap;

use super::{
    attribution::{Attribution, Candidate, SampleContext},
    counts::SampleCounts,
    spot::Spot,
    unknown::Cause,
};
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
pub(super) struct AggregatedEntries {
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
    /// The address spaces of a pid, if they are certain. A record about the pid removes them.
    spaces: FxHashMap<Pid, Rc<KnownSpaces>>,
    /// The execution of each program that has only one in this interval.
    sole: Option<FxHashMap<TargetIndex, Option<ExecutionId>>>,
    waiting: Vec<Entry>,
    /// Start of this interval, once an entry of it has arrived.
    since_ns: u64,
    /// Executables that the kernel should keep apart by process, and how many of them were already reported.
    by_process: Vec<u64>,
    by_process_reported: usize,
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
struct KnownSpaces {
    /// Low half of the executable's ID.
    executable: u32,
    spaces: Vec<(AddressSpace, CodeId, ExecutionId)>,
    /// Execution of the latest address space.
    execution: ExecutionId,
    /// Whether all address spaces of the pid were kept.
    is_complete: bool,
}

impl AggregatedEntries {
    /// Forgets executions that are no longer referred to.
    pub(super) fn retain(&mut self, live: &dyn Fn(ExecutionId) -> bool) {
        self.ids.retain(|execution, _| live(*execution));
        self.forget_owners(); // Their executions may be gone.
    }

    /// Forgets all owners because the interval is over, or because the facts they were derived from have changed.
    fn forget_owners(&mut self) {
        self.owners.clear();
        self.sole = None;
        self.forget_all_spaces();
    }

    /// Forgets the address spaces of all pids, because any pid may be another process now.
    pub(super) fn forget_all_spaces(&mut self) {
        (self.spaces, self.owners_in_kernel) = Default::default(); // This releases their memory too.
    }

    /// Forgets the address spaces of a pid, because a record may change them.
    pub(super) fn forget_spaces(&mut self, pid: Pid) {
        self.spaces.remove(&pid);
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
    fn note_execution(&mut self, (target, execution): Candidate) {
        let Some(sole) = &mut self.sole else { return };
        let known = sole.entry(target).or_insert(Some(execution));
        if known.is_some_and(|known| known != execution) {
            *known = None;
            let of_it = |owner: &Owner| matches!(owner, Owner::Program { target: t, .. } if *t == target);
            self.owners.retain(|_, owner| !of_it(owner));
            self.owners_in_kernel.retain(|_, (_, owner)| !of_it(owner));
        }
    }

    /// Notes programs that began meanwhile.
    pub(super) fn note_started<H: Host>(&mut self, attribution: &mut Attribution<H>) {
        attribution.started.drain(..).for_each(|candidate| self.note_execution(candidate));
    }

    /// Notes the ID of the executable of a process, as the kernel reports it.
    pub(super) fn executes<H: Host>(&mut self, attribution: &Attribution<H>, pid: Pid, id: u64) {
        let Some(process) = attribution.processes.get(pid) else { return };
        match attribution.candidate(process) {
            Some(candidate) => self.learn(id, candidate),
            None => {
                self.ids.insert(process.execution, id);
            }
        }
    }

    /// Returns all executables that the kernel should keep apart by process, if there is a new one since the last call.
    /// Until the kernel does, their samples count like those of other programs.
    pub(super) fn take_by_process(&mut self) -> Option<Vec<u64>> {
        let all = &self.by_process;
        (std::mem::replace(&mut self.by_process_reported, all.len()) < all.len()).then(|| all.clone())
    }

    /// Counts entries that were sampled in an interval. The side band up to its end, and nothing later, must have been
    /// applied. It may be called several times for an interval.
    pub(super) fn apply<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        counts: &mut SampleCounts,
        entries: &[Entry],
        interval: Interval,
    ) {
        debug_assert!(interval.since_ns <= interval.until_ns);
        self.since_ns = interval.since_ns;
        let mut counter = EntryCounter { known: self, attribution, counts, interval };
        for entry in entries {
            if !counter.count(entry, false) {
                counter.known.waiting.push(*entry);
            }
            if counter.known.waiting.len() >= WAITING_MAX {
                counter.count_waiting();
            }
        }
    }

    /// Ends an interval: counts the entries that waited.
    pub(super) fn end_interval<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        counts: &mut SampleCounts,
        until_ns: u64,
    ) {
        let interval = Interval { since_ns: self.since_ns, until_ns };
        EntryCounter { known: self, attribution, counts, interval }.count_waiting();
        self.forget_owners();
    }
}

impl<H: Host> Attribution<H> {
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

    /// Looks at the files of programs that ran before we did. Only then is it known which of them are the same.
    fn look_at_programs(&mut self, pid: Pid) {
        let new = |p: &Process| p.program.filter(|program| self.images.image_of(*program).is_none());
        let programs: Vec<TargetIndex> = self.processes.ever(pid).filter_map(new).collect();
        if !programs.is_empty() {
            self.recall(pid);
        }
        for program in programs {
            if let Some(place) = self.range_of(pid, program) {
                self.images.look(program, place, &mut self.host);
            }
            // By now it may be known to be the program of other processes too.
            let same = self.processes.ever(pid).filter(|p| p.program == Some(program));
            self.started.extend(same.map(|p| (self.images.canonical(program), p.execution)));
        }
    }

    /// Returns where a process mapped a target.
    fn range_of(&self, pid: Pid, target: TargetIndex) -> Option<MappedRange> {
        let mut mapped = self.processes.ever(pid).flat_map(|p| p.space.iter());
        mapped.find(|m| m.target == target).map(|m| m.place(pid))
    }

    /// Returns the place for an offset from `mm->start_code`.
    fn program_place(&mut self, pid: Pid, target: TargetIndex, offset: u64) -> Result<Spot, Cause> {
        let image = match self.images.image_of(target) {
            Some(image) => image,
            None => {
                let none = VirtualAddress(0);
                let nowhere = MappedRange { pid, start: none, end: none };
                let place = self.range_of(pid, target).unwrap_or(nowhere);
                self.images.look(target, place, &mut self.host).ok_or(Cause::NoFile)?
            }
        };
        let code = self.images.code_of(target);
        match code.file_offset(offset) {
            Some(file_offset) => Ok(Spot::Image(image, file_offset)),
            None => Err(if code.is_known() { Cause::NoMapping } else { Cause::NoFile }),
        }
    }

    /// Returns the present execution of a pid, or its last one in the interval. An unknown pid is looked up in /proc. A pid
    /// that ended in the interval is fully known and not looked up: taking the absent process for its successor would leave
    /// its entries without an owner.
    fn latest_execution(&mut self, pid: Pid) -> ExecutionId {
        let known = self.processes.ever(pid).next().map(|p| p.execution);
        known.unwrap_or_else(|| self.execution_of(pid))
    }

    /// Returns the execution that represents all executions of a program.
    fn together(&mut self, target: TargetIndex) -> ExecutionId {
        self.images.program_of(target).map_or(self.nobody, |app| self.apps.together(&app))
    }
}

/// Counts the entries of an interval.
struct EntryCounter<'a, H> {
    known: &'a mut AggregatedEntries,
    attribution: &'a mut Attribution<H>,
    counts: &'a mut SampleCounts,
    interval: Interval,
}

/// The place of an entry or why it has none, the offset under which it is counted then, and its execution.
type Resolved = (Result<Spot, Cause>, u64, ExecutionId);

impl<H: Host> EntryCounter<'_, H> {
    fn count_waiting(&mut self) {
        self.known.owners.retain(|_, owner| matches!(owner, Owner::Program { .. }));
        let mut waiting = std::mem::take(&mut self.known.waiting);
        for entry in waiting.drain(..) {
            self.count(&entry, true);
        }
        self.known.waiting = waiting; // Reuse its memory in the next interval.
    }

    /// Counts an entry if its owner is known, or in any case if `now_or_never`. Returns whether it was counted.
    fn count(&mut self, entry: &Entry, now_or_never: bool) -> bool {
        let (pid, interval) = (entry.pid, self.interval);
        // Entries of a table carry neither thread nor control group; backends with tables do not offer these dimensions.
        let dimensions = self.attribution.dimensions_of(pid, pid.first_thread(), entry.cpu, interval);
        let Some((place, unknown_offset, execution)) = self.resolve(entry, now_or_never) else {
            return false;
        };
        if self.attribution.keeps(self.counts, execution, entry.event, entry.count) {
            let context = SampleContext { interval, execution, dimensions };
            let place = (place, unknown_offset);
            self.attribution.count(self.counts, &context, entry.event, place, entry.count);
        }
        true
    }

    fn resolve(&mut self, entry: &Entry, now_or_never: bool) -> Option<Resolved> {
        let nobody = self.attribution.nobody;
        match entry.place {
            Place::Executable { id, offset } => {
                let (place, execution) = match self.owner(id, entry.pid, offset) {
                    Owner::Program { target, execution } => {
                        (self.attribution.program_place(entry.pid, target, offset), execution)
                    }
                    _ if !now_or_never => return None,
                    Owner::Several => (Err(Cause::Ambiguous), nobody),
                    Owner::Nobody => (Err(self.attribution.why_not_mapped(entry.pid)), nobody),
                };
                Some((place, offset, execution))
            }
            Place::Kernel { pc, executable } => {
                let execution = match executable.map(|id| self.owner_in_kernel(id, entry.pid)) {
                    Some(Owner::Program { execution, .. }) => execution,
                    Some(_) if !now_or_never => return None,
                    Some(_) => self.without_app(entry),
                    None => self.only_execution(entry),
                };
                Some((self.attribution.kernel_place(pc, self.interval), pc.as_offset(), execution))
            }
            Place::Process { pc, executable } => self.resolve_in_process(entry, pc, executable, now_or_never),
        }
    }

    /// Returns the owner of an executable's entries that carry this pid, the first that was sampled in it.
    fn owner(&mut self, id: u64, pid: Pid, offset: u64) -> Owner {
        self.known.note_started(self.attribution);
        if let Some(owner) = self.known.owners.get(&(id, pid.0)) {
            return *owner;
        }
        self.attribution.latest_execution(pid);
        self.attribution.look_at_programs(pid);
        let (owner, found) = self.find_owner(id, pid);
        if let Some(candidate) = found {
            let code = self.attribution.images.code_of(candidate.0);
            if code.is_known() && code.file_offset(offset).is_none() {
                return Owner::Several; // The program has no code there, so the entry is of another program, unknown to us.
            }
            self.known.learn(id, candidate);
            self.keep_apart_by_process(id, candidate.0);
        }
        self.known.owners.insert((id, pid.0), owner);
        owner
    }

    /// Returns the owner of entries of samples in the kernel (see [`EntryCounter::owner`]). Nothing is learned from it: during an
    /// exec the process already has the new executable while the kernel reports the exec later, perhaps in the next
    /// interval. If the file of the ID is known, it decides.
    fn owner_in_kernel(&mut self, id: u64, pid: Pid) -> Owner {
        self.known.note_started(self.attribution);
        if let Some((_, owner)) = self.known.owners_in_kernel.get(&pid).filter(|(of, _)| *of == id) {
            return *owner;
        }
        if let Some(owner) = self.known.owners.get(&(id, pid.0)) {
            return *owner;
        }
        self.attribution.latest_execution(pid);
        self.attribution.look_at_programs(pid);
        let (owner, _) = self.find_owner(id, pid);
        let files = self.known.files.get(&id).map(Vec::as_slice);
        let owner = match (owner, files) {
            (Owner::Program { target, .. }, Some([file])) if target != *file => {
                Owner::Program { target: *file, execution: self.attribution.together(*file) }
            }
            _ => owner,
        };
        if matches!(owner, Owner::Program { .. }) {
            self.known.owners_in_kernel.insert(pid, (id, owner));
        }
        owner
    }

    /// Returns the owner, and the candidate if it is the only possible one.
    fn find_owner(&mut self, id: u64, pid: Pid) -> (Owner, Option<Candidate>) {
        let (mut candidates, all_known) = self.attribution.candidates(pid);
        let was = candidates.len();
        let known = &self.known;
        let by_id = known.narrow(&mut candidates, &|other| other == id, &|file| known.is_file_of(id, file));
        let certain = by_id || all_known;
        match &candidates[..] {
            // An execution with another ID is ruled out even if other candidates are unknown, but then the entry may be of
            // any of those.
            [] => match self.known.files.get(&id).map(Vec::as_slice) {
                Some([target]) => {
                    (Owner::Program { target: *target, execution: self.attribution.together(*target) }, None)
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
        let is_chosen = self
            .attribution
            .images
            .program_of(target)
            .is_some_and(|app| self.attribution.apps.apart().is_by_process(&app));
        let all = &mut self.known.by_process;
        if is_chosen && all.len() < BY_PROCESS_MAX && !all.contains(&id) {
            all.push(id);
        }
    }

    /// Returns the only execution of the program in the interval, or the one that represents all if there are several.
    fn sole_execution(&mut self, target: TargetIndex) -> ExecutionId {
        self.known.note_started(self.attribution);
        let (processes, images) = (&self.attribution.processes, &self.attribution.images);
        let sole = self.known.sole.get_or_insert_with(|| {
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
            None => self.attribution.together(target),
        }
    }

    fn without_app(&mut self, entry: &Entry) -> ExecutionId {
        self.counts.unknown.app += if entry.event == CountedEvent::KERNEL_TIME { 0 } else { entry.count };
        self.attribution.nobody
    }

    /// Returns the execution of a task without an executable: a kernel thread or the idle task.
    fn only_execution(&mut self, entry: &Entry) -> ExecutionId {
        let now = self.attribution.latest_execution(entry.pid);
        if entry.pid == Pid::IDLE || self.attribution.processes.ever(entry.pid).all(|p| p.execution == now) {
            return now;
        }
        let threads =
            self.attribution.processes.ever(entry.pid).filter(|p| p.kernel_thread).map(|p| p.execution);
        let threads: Vec<ExecutionId> = threads.collect();
        if let [thread] = threads[..] { thread } else { self.without_app(entry) }
    }

    fn resolve_in_process(
        &mut self,
        entry: &Entry,
        pc: VirtualAddress,
        executable: u32,
        now_or_never: bool,
    ) -> Option<Resolved> {
        let known = self.known_spaces(entry.pid, executable);
        let mut explained = None;
        let mut others = Vec::new();
        for (space, code, execution) in &known.spaces {
            let Some(mapping) = space.find(pc) else { continue };
            let one = (self.attribution.place_in(mapping, entry.pid, *code, pc, *execution), *execution);
            match explained {
                None => explained = Some(one),
                Some(first) if first != one && !others.contains(&one) => others.push(one),
                Some(_) => {}
            }
        }
        let (place, execution) = match explained {
            None if entry.pid == Pid::ENDED => (Err(Cause::NoTask), self.attribution.nobody),
            None => (Err(self.attribution.why_not_mapped(entry.pid)), known.execution),
            Some((place, execution)) if known.is_complete && others.is_empty() => (Ok(place), execution),
            Some(_) if !now_or_never => return None,
            Some((place, execution)) if known.is_complete && others.iter().all(|(p, _)| *p == place) => {
                let executions = others.iter().map(|(_, e)| *e);
                (Ok(place), self.one_app(execution, executions, entry))
            }
            Some(_) => (Err(Cause::Ambiguous), self.attribution.nobody),
        };
        Some((place, pc.as_offset(), execution))
    }

    /// Returns the address spaces of a pid, except those that the low half of its executable's ID rules out.
    fn known_spaces(&mut self, pid: Pid, executable: u32) -> Rc<KnownSpaces> {
        let known = self.known.spaces.get(&pid);
        if let Some(known) = known.filter(|known| known.executable == executable) {
            return known.clone();
        }
        let execution = self.attribution.latest_execution(pid);
        self.attribution.recall(pid);
        self.attribution.look_at_programs(pid);
        let is_complete = self.attribution.processes.is_complete(pid);
        let spaces = self.possible_spaces(pid, executable);
        let known = Rc::new(KnownSpaces { executable, spaces, execution, is_complete });
        if is_complete && known.spaces.len() == 1 {
            self.known.spaces.insert(pid, known.clone()); // Otherwise more may be known next time.
        }
        known
    }

    /// Returns the address spaces of a pid, each with its execution as far as known.
    fn possible_spaces(&self, pid: Pid, executable: u32) -> Vec<(AddressSpace, CodeId, ExecutionId)> {
        let space = |p: &Process| (p.space.clone(), p.code, p.execution);
        let mut all = self.attribution.processes.ever(pid);
        if let (Some(only), None) = (all.next(), all.next()) {
            return vec![space(only)];
        }
        let (mut candidates, _) = self.attribution.candidates(pid);
        let known = &self.known;
        let is_id = |id: u64| id as u32 == executable;
        let is_file = |file| known.is_file_of_half(executable, file);
        let decided = executable != 0 && known.narrow(&mut candidates, &is_id, &is_file);
        let ruled_out = |p: &Process| match self.attribution.candidate(p) {
            Some(candidate) => executable != 0 && !candidates.contains(&candidate),
            None => decided,
        };
        self.attribution.processes.ever(pid).filter(|p| !ruled_out(p)).map(space).collect()
    }

    /// Returns the execution that represents an application, if all these executions belong to it.
    fn one_app(
        &mut self,
        first: ExecutionId,
        mut others: impl Iterator<Item = ExecutionId>,
        entry: &Entry,
    ) -> ExecutionId {
        let app = self.attribution.apps.resolve(first).app;
        if others.all(|other| self.attribution.apps.resolve(other).app == app) {
            self.attribution.apps.together(&app)
        } else {
            self.without_app(entry)
        }
    }
}
