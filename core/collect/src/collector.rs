//! Records in, counts out: the state machine in the middle of collection.
//!
//! Enters: samples and side-band records in order of time. Leaves: counts by (image, event, offset, application
//! instance). Samples in = samples counted + losses by cause; a sample that nothing explains is counted under
//! `unknown`. Never here: rings, files, clocks (see [`Host`]).
//!
//! Samples are resolved as they come, not first gathered by (process, pc) as DCPI's driver does: on a build, 95% of
//! such pairs are new, and a binary search of a process's few dozen mappings costs no more than the
//! look-up that would save it.

mod aggregated;
mod code;
mod data;
mod dimensions;
mod discovery;
mod jit;
mod jit_layout;
mod loops;
mod odometers;
mod places;
mod rows;
mod stacks;
mod stepping;
mod symbols;
mod taking;
mod unknown;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};

use aggregated::Aggregated;
use code::Code;
use data::Data;
use dimensions::{Dimensions, ValuesIndex};
use dwell_attribution::{
    Apart, Applications, ExecutionId, ImageIndex, Images, Interval, Mapping, Process, Processes,
};
use dwell_profile::{CountedEvent, DimensionSet, Event, EventIndex, ImageId, ImageKind, Ledger, Pid, Tid};
use jit::Jit;
use loops::Loops;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    host::Host,
    items::{Item, Side},
    loss::LossCause,
    records::{Mode, Sample},
};
pub use loops::Watch;
use places::Spot;
pub use rows::Rows;
#[cfg(test)]
pub(crate) use rows::{Texts, tests::rows};
use stacks::Stacks;
use stepping::{Stepping, SteppingTally};
pub use taking::Batch;
use unknown::Cause;
pub use unknown::UnknownCauses;

/// An event's tallies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples counted.
    pub samples: u64,
    /// Samples missing.
    pub lost: u64,
    /// Times it was throttled.
    pub throttled: u64,
    /// Of the samples, those under `unknown`.
    pub unknown: u64,
}

/// Executions that are kept before those that nobody refers to are looked for.
const EXECUTIONS_MAX: usize = 1 << 14;
/// Targets that are kept before those out of use are looked for.
const TARGETS_MAX: usize = 1 << 12;

/// What is counted by, but for the place in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    image: ImageIndex,
    execution: ExecutionId,
    dimensions: ValuesIndex,
    event: CountedEvent,
}

/// The state between records and counts.
pub struct Collector<H> {
    host: H,
    events: Vec<Event>,
    processes: Processes,
    apps: Applications,
    images: Images,
    recipes: FxHashMap<(ImageIndex, u64), Code>,
    recipes_max: usize,
    /// Executions that the last [`Collector::reap`] left.
    executions_kept: usize,
    counts: Ledger<Slot>,
    tallies: Vec<Tally>,
    lost: BTreeMap<LossCause, u64>,
    unknown: UnknownCauses,
    aggregated: Aggregated,
    dimensions: Dimensions,
    data: Data,
    /// Whether anonymous code is its file's text: by execution and first address.
    copied: FxHashMap<(ExecutionId, u64), bool>,
    jit: Jit,
    /// When what is being counted was sampled.
    sampled: Interval,
    /// The kernel's image, once it was sampled.
    kernel: Option<ImageIndex>,
    idle: ExecutionId,
    nobody: ExecutionId,
    gaps: bool,
    /// Programs whose samples the kernel withholds, once each.
    withheld: BTreeSet<String>,
    stepping: Stepping,
    stacks: Stacks,
    latest: Option<(Pid, Tid)>,
    /// Samples in user mode, where somebody takes them.
    recent: Option<Vec<(Pid, u64)>>,
    loops: Loops,
    odometers: odometers::OdometerState,
}

impl<H: Host> Collector<H> {
    /// A collector of samples of these events.
    pub fn new(host: H, events: Vec<Event>, apart: Apart) -> Self {
        let mut apps = Applications::new(apart);
        let (idle, nobody) = (apps.uncounted("[idle]"), apps.uncounted("unknown"));
        Collector {
            host,
            tallies: vec![Tally::default(); events.len()],
            events,
            processes: Processes::default(),
            apps,
            images: Images::default(),
            recipes: FxHashMap::default(),
            recipes_max: code::RECIPES_MAX,
            executions_kept: 0,
            counts: Ledger::default(),
            lost: BTreeMap::new(),
            unknown: UnknownCauses::default(),
            aggregated: Aggregated::default(),
            dimensions: Dimensions::default(),
            data: Data::default(),
            copied: FxHashMap::default(),
            jit: Jit::default(),
            sampled: Interval { since_ns: 0, until_ns: 0 },
            kernel: None,
            idle,
            nobody,
            gaps: false,
            withheld: BTreeSet::new(),
            stepping: Stepping::default(),
            stacks: Stacks::default(),
            latest: None,
            recent: None,
            loops: Loops::default(),
            odometers: odometers::OdometerState::default(),
        }
    }

    /// Processes outside of our pid namespace have the number of the idle task: what has it is no idleness.
    pub fn call_hidden_processes(&mut self) {
        self.idle = self.apps.uncounted("[outside]");
    }

    /// Keeps these of each sample, beside its place.
    pub fn keep_dimensions(&mut self, dimensions: DimensionSet) {
        self.dimensions.want(dimensions);
    }

    /// Applies a record; they must come in order of time.
    pub fn apply(&mut self, time_ns: u64, item: Item) {
        self.dimensions.at(time_ns);
        self.sampled = Interval { since_ns: time_ns, until_ns: time_ns };
        match item {
            Item::Sample(_, sample) if self.is_stepped(sample.tid, time_ns) => {
                self.interrupt_loops(sample.tid);
                self.stepping.tally.samples += 1
            }
            Item::Sample(_, sample) if self.is_in_window(sample.tid, time_ns) => {
                self.interrupt_loops(sample.tid);
                self.stepping.tally.window_samples += 1
            }
            Item::Sample(_, sample) if self.is_watched(sample.pid, time_ns) => {
                self.interrupt_loops(sample.tid);
                self.odometers.samples_dropped += 1
            }
            Item::Sample(event, sample) => self.sample(event, &sample),
            Item::Watched { pid, until_ns } => self.odometers.watched = Some((pid, until_ns)),
            Item::Branches(stack) => self.stack(&stack),
            Item::Registers(event, sample) => self.registers(event, &sample),
            Item::Side(side) => self.side(time_ns, *side),
            Item::Burst(burst) => self.burst(&burst),
            Item::Window(window) => self.window(&window),
            Item::Exits(exits) => self.loop_exits(&exits),
        }
    }

    /// Keeps where samples in user mode were, for [`Collector::take_recent`].
    pub fn keep_recent(&mut self) {
        self.recent = Some(Vec::new());
    }

    /// Samples in user mode since the last call, if they are kept: process, program counter.
    pub fn take_recent(&mut self) -> Vec<(Pid, u64)> {
        self.recent.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The thread of the latest sample in user mode since the last call: process, thread.
    pub fn take_latest(&mut self) -> Option<(Pid, Tid)> {
        self.latest.take()
    }

    fn side(&mut self, time_ns: u64, side: Side) {
        if let Some(pid) = side.pid() {
            self.aggregated.forget_lives(pid);
            self.data.forget(pid);
        }
        match side {
            Side::Map { pid, start, length, file_offset, target } => {
                if self.processes.get(pid).is_none() {
                    self.discover_one(pid);
                }
                let Some(process) = self.processes.get(pid) else { return };
                let (space, end) = (process.space.clone(), start.saturating_add(length));
                let mapping = self.mapping(pid, (start, end, file_offset, target), &space, Some(time_ns));
                self.map(pid, mapping, time_ns);
            }
            Side::Exec { pid, comm } => {
                self.dimensions.exec(pid, &comm);
                self.name_code_of(pid);
                let execution = self.apps.begin(&comm);
                self.processes.exec(pid, execution, time_ns);
            }
            Side::Executable { pid, id } => self.executes(pid, id),
            Side::BeginThread { tid, parent_pid, parent_tid } => {
                self.dimensions.begin_thread(&mut self.host, tid, parent_pid, parent_tid);
            }
            Side::EndThread { tid } => self.dimensions.end_thread(tid),
            Side::Comm { pid, tid, comm } => {
                self.dimensions.name_thread(tid, &comm);
                if tid.is_first_of(pid) && self.processes.get(pid).is_some_and(|p| p.kernel_thread) {
                    let execution = self.apps.uncounted(kernel_thread_name(&comm));
                    self.processes.rename(pid, execution);
                }
            }
            Side::Fork { pid, parent_pid } => {
                self.dimensions.fork(&mut self.host, pid, parent_pid);
                if !self.processes.fork(pid, parent_pid, time_ns) {
                    self.discover_one(pid);
                    return;
                }
                self.inherit_code(pid, parent_pid, time_ns);
                if let Some(parent) = self.processes.get(pid).map(|p| p.execution)
                    && let Some(child) = self.apps.begin_child(parent)
                {
                    self.aggregated.inherit(child, parent);
                    self.processes.rename(pid, child);
                    self.meet(pid);
                }
            }
            Side::Exit { pid } => {
                self.name_code_of(pid);
                self.note_withheld(pid);
                self.processes.exit(pid, time_ns);
            }
            Side::Lost { event, records, cause } => {
                self.gaps |= cause == LossCause::RingFull;
                *self.lost.entry(cause).or_default() += records;
                if let Some(event) = event {
                    self.tally(event, |t| t.lost = t.lost.saturating_add(records));
                }
            }
            Side::Throttle { event } => {
                if let Some(event) = event {
                    self.tally(event, |t| t.throttled += 1);
                }
            }
        }
    }

    fn tally(&mut self, event: EventIndex, change: impl FnOnce(&mut Tally)) {
        if let Some(tally) = self.tallies.get_mut(event.index()) {
            change(tally);
        }
    }

    fn map(&mut self, pid: Pid, mapping: Mapping, time_ns: u64) {
        let Some(process) = self.processes.get(pid) else { return };
        let execution = process.execution;
        // The kernel maps a program's own file first, then its interpreter.
        if process.awaits_program
            && let Some(program) = self.images.program_of(mapping.target)
        {
            self.apps.name(execution, &program);
            self.processes.set_program(pid, mapping.target);
        }
        // Now: a moment later the file may be gone, and its process.
        self.images.look(mapping.target, mapping.place(pid), &mut self.host);
        self.meet(pid);
        self.note_mapping(pid, &mapping, Some(time_ns));
        self.processes.map(pid, mapping, time_ns);
    }

    fn sample(&mut self, event: EventIndex, sample: &Sample) {
        self.dimensions.see(&mut self.host, sample.pid, sample.tid, sample.cpu);
        let execution = self.execution_of(sample.pid);
        let place = match sample.mode {
            Mode::User => self.user_place(sample, execution),
            Mode::Kernel => self.kernel_place(sample.pc).map(Spot::from),
            other => other_place(&mut self.images, other, sample.pc).map(Spot::from),
        };
        self.count(event.into(), place, sample.pc, execution, 1);
        self.note_time(event, execution);
        self.note_seen(event, sample, execution);
        if let (Some(registers), Mode::User, Ok(Spot::Image(image, offset)), true) =
            (&sample.registers, sample.mode, place, self.counts_code(event))
        {
            self.observe_branch(image, offset, execution, registers);
            self.note_loops(event, sample, (image, offset), execution, registers);
        }
        if sample.mode == Mode::User && !matches!(place, Ok(Spot::Image(..))) {
            self.interrupt_loops(sample.tid); // It was elsewhere, where loops are not known.
        }
        let is_time = self.events.get(event.index()).is_some_and(Event::is_time);
        if is_time && sample.mode == Mode::User {
            self.note_data(sample, place.ok(), execution);
        }
        if let (Some(registers), Mode::Kernel, true) = (&sample.registers, sample.mode, is_time) {
            self.charge_user(sample.pid, execution, registers.entered_from());
        }
    }

    /// What a thread does while it is disturbed is no pair's.
    fn interrupt_loops(&mut self, tid: Tid) {
        self.loops.interrupt(tid);
    }

    /// Samples of other events stand where those happen, which says nothing of how often a branch goes which way.
    fn counts_code(&self, event: EventIndex) -> bool {
        self.events.get(event.index()).is_some_and(|e| e.is_time() || *e == Event::INSTRUCTIONS)
    }

    /// A sample that is counted elsewhere, with its registers.
    fn registers(&mut self, event: EventIndex, sample: &Sample) {
        self.dimensions.see(&mut self.host, sample.pid, sample.tid, sample.cpu);
        let execution = self.execution_of(sample.pid);
        let place = self.user_place(sample, execution);
        if let (Some(registers), Ok(Spot::Image(image, offset)), true) =
            (&sample.registers, place, self.counts_code(event))
        {
            self.observe_branch(image, offset, execution, registers);
        }
        if self.events.get(event.index()).is_some_and(Event::is_time) {
            self.note_data(sample, place.ok(), execution);
        }
    }

    /// Time in the kernel is also counted where the user's code entered it. A user's pc that no mapping has (none, as in a
    /// task that is being born) is no loss: the sample itself stands in the kernel.
    fn charge_user(&mut self, pid: Pid, execution: ExecutionId, pc: u64) {
        if let Some(spot) = self.mapped_place(pid, pc, execution) {
            self.add_at(spot, execution, CountedEvent::KERNEL_TIME, 1);
        }
    }

    /// Counts samples at a place, or under `unknown`. Time in the kernel that is charged once more is no sample of its own.
    fn count(
        &mut self,
        event: CountedEvent,
        place: Result<Spot, Cause>,
        pc: u64,
        execution: ExecutionId,
        count: u64,
    ) {
        let CountedEvent::Sampled(sampled) = event else {
            if let Ok(spot) = place {
                self.add_at(spot, execution, event, count);
            }
            return;
        };
        if let Err(cause) = place {
            self.unknown.add(cause, count);
        }
        self.tally(sampled, |t| {
            t.samples += count;
            t.unknown += if place.is_err() { count } else { 0 };
        });
        let spot = place.unwrap_or_else(|_| Spot::Image(self.unknown_image(), pc));
        self.add_at(spot, execution, event, count);
    }

    fn unknown_image(&mut self) -> ImageIndex {
        self.images.named(ImageId::unknown(), ImageKind::Unknown, "[unknown]")
    }

    fn add_at(&mut self, spot: Spot, execution: ExecutionId, event: CountedEvent, count: u64) {
        match spot {
            Spot::Image(image, offset) => {
                let execution = self.apps.counted_as(execution);
                self.add(offset, image, execution, event, count);
            }
            Spot::Code(code, address) => self.add_waiting(code, address, execution, event, count),
        }
    }

    fn add(
        &mut self,
        offset: u64,
        image: ImageIndex,
        execution: ExecutionId,
        event: CountedEvent,
        count: u64,
    ) {
        self.add_with(self.dimensions.current(), offset, image, execution, event, count);
    }

    fn add_with(
        &mut self,
        dimensions: ValuesIndex,
        offset: u64,
        image: ImageIndex,
        execution: ExecutionId,
        event: CountedEvent,
        count: u64,
    ) {
        let hint = image.0.wrapping_mul(3).wrapping_add(execution.0).wrapping_add(event.hint());
        self.counts.add(Slot { image, execution, dimensions, event }, hint, offset, count);
    }

    fn execution_of(&mut self, pid: Pid) -> ExecutionId {
        match pid {
            Pid::IDLE => return self.idle,
            Pid::ENDED => return self.nobody,
            _ => {}
        }
        if self.processes.get(pid).is_none() && !self.discover_one(pid) {
            // Remember that nobody is there, or each of its samples would look again.
            self.processes.discover(pid, Process::new(self.nobody, false));
            self.processes.exit(pid, 0);
        }
        self.processes.get(pid).map_or(self.nobody, |p| p.execution)
    }

    fn user_place(&mut self, sample: &Sample, execution: ExecutionId) -> Result<Spot, Cause> {
        self.latest = Some((sample.pid, sample.tid));
        if let Some(recent) = &mut self.recent {
            recent.push((sample.pid, sample.pc));
        }
        self.mapped_place(sample.pid, sample.pc, execution).ok_or_else(|| match sample.pid {
            Pid::ENDED => Cause::NoTask,
            pid => self.why_not_mapped(pid),
        })
    }

    fn why_not_mapped(&self, pid: Pid) -> Cause {
        let empty = self.processes.ever(pid).all(|p| p.space.iter().next().is_none());
        if empty { Cause::NoProcess } else { Cause::NoMapping }
    }

    /// The dead become the past, which ends with their interval. Who counted for them is kept: see [`Collector::reap`]. Of
    /// too many that live, what the least recent had mapped is forgotten.
    fn reap_processes(&mut self, now_ns: u64) {
        let host = &self.host;
        self.processes.reap(now_ns, &|pid| host.is_alive(pid));
        self.processes.forget_least_recent(discovery::MAPPINGS_MAX);
    }

    /// Forgets the dead and what only they referred to. To be called when nothing is counted, i.e. after
    /// [`Collector::take`].
    pub fn reap(&mut self, now_ns: u64) {
        assert!(self.counts.is_empty(), "counts refer to executions and images");
        self.host.handed_out();
        self.reap_processes(now_ns);
        let mut live: FxHashSet<ExecutionId> = self.processes.iter_ever().map(|(_, p)| p.execution).collect();
        live.extend([self.idle, self.nobody]);
        self.apps.retain(&|id| live.contains(&id));
        self.executions_kept = self.apps.count();
        self.aggregated.retain(&|id| live.contains(&id));
        self.dimensions.retain(&|pid| self.processes.get(pid).is_some());
        self.reap_code();
        if self.images.targets() > TARGETS_MAX {
            self.sweep_images();
        }
    }

    fn sweep_images(&mut self) {
        let mapped = self
            .processes
            .iter_ever()
            .flat_map(|(_, p)| p.space.iter())
            .flat_map(|m| [Some(m.target), m.over().map(|o| o.0)]);
        // Of a process whose mappings were forgotten the program alone is left.
        let programs = self.processes.iter_ever().map(|(_, p)| p.program);
        let used = mapped.chain(programs).flatten().collect();
        let moved = self.images.sweep(&used);
        self.processes.retarget(&|target| moved.get(&target).copied());
        self.aggregated.retarget(&|target| moved.get(&target).copied());
        self.recipes.clear();
        self.loops.clear();
        self.stepping.kinds.clear();
        self.stacks.runs.clear();
        self.copied.clear();
        self.kernel = None;
    }

    /// Begins a new epoch: tallies from zero, instances from 1.
    pub fn begin_epoch(&mut self) {
        self.tallies.fill(Tally::default());
        self.unknown = UnknownCauses::default();
        self.lost.clear();
        self.dimensions.begin_epoch();
        self.stepping.tally = SteppingTally::default();
        self.stacks.begin_epoch();
        self.loops.clear();
        self.odometers.begin_epoch();
        self.stepping.number = 0;
        self.images.forget_symbols();
        self.jit.begin_epoch();
        self.apps.renumber();
    }

    /// Whether records were lost since the last call, so that mappings may be missing and /proc should be read again.
    pub fn take_gaps(&mut self) -> bool {
        std::mem::take(&mut self.gaps)
    }

    /// Samples lost in the epoch, by cause.
    pub fn lost(&self) -> &BTreeMap<LossCause, u64> {
        &self.lost
    }

    /// Tallies by event, in the order given to [`Collector::new`].
    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// Why samples of the epoch are under `unknown`.
    pub fn unknown(&self) -> UnknownCauses {
        self.unknown
    }

    /// The file of an image, while it is at hand.
    pub fn file(&self, image: &ImageId) -> Option<std::fs::File> {
        self.host.file(image)
    }

    /// Whether so much has ended in the interval that it should end, too: many processes, or a module of the kernel, whose
    /// place another may take. See [`Collector::end_interval`].
    pub fn is_past_long(&mut self) -> bool {
        self.processes.is_past_long() || self.host.has_gone_modules()
    }

    /// Whether so many executions are remembered that [`Collector::reap`] is due.
    pub fn has_many_executions(&self) -> bool {
        self.apps.count() > EXECUTIONS_MAX.max(2 * self.executions_kept)
    }

    /// Entries in memory, some perhaps more than once.
    pub fn entries(&self) -> usize {
        self.counts.len() + self.jit.len()
    }

    /// Processes and images tracked.
    pub fn tracked(&self) -> (usize, usize) {
        (self.processes.count(), self.images.count())
    }
}

/// Per-CPU threads and workers differ behind the slash only: `kworker/3:1-events`, `ksoftirqd/0`.
fn kernel_thread_name(comm: &str) -> &str {
    comm.split('/').next().unwrap_or(comm)
}

fn other_place(images: &mut Images, mode: Mode, pc: u64) -> Result<(ImageIndex, u64), Cause> {
    let name = match mode {
        Mode::Hypervisor => "hypervisor",
        Mode::GuestKernel => "guest-kernel",
        Mode::GuestUser => "guest-user",
        Mode::User | Mode::Kernel | Mode::Unknown => return Err(Cause::NoMode),
    };
    Ok((images.named(ImageId::named(name), ImageKind::Unknown, &format!("[{name}]")), pc))
}

#[cfg(test)]
mod aggregated_tests;
#[cfg(test)]
mod data_tests;
#[cfg(test)]
mod equality_tests;
#[cfg(test)]
mod jit_tests;
#[cfg(test)]
mod tests;
