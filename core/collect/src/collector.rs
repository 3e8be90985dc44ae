//! The state machine in the middle of collection: records enter, counts leave.
//!
//! Enters: samples and side-band records in order of time. Leaves: counts by (image, event, offset, application instance).
//! Samples in = samples counted + losses by cause; a sample that cannot be resolved is counted under `unknown`. Never here:
//! rings, files, clocks (see [`Host`]).
//!
//! Samples are resolved as they arrive. DCPI's driver first aggregates them by (process, pc), but on a build 95% of these
//! pairs are new, and a binary search in the few dozen mappings of a process costs no more than the hash lookup it would
//! save.

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

/// Totals of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples that were counted.
    pub samples: u64,
    /// Samples that were lost.
    pub lost: u64,
    /// Number of times that the kernel throttled the event.
    pub throttled: u64,
    /// Counted samples that are under `unknown`.
    pub unknown: u64,
}

/// Number of executions above which unreferenced ones are searched for and forgotten.
const EXECUTIONS_MAX: usize = 1 << 14;
/// Number of targets above which unused ones are searched for and forgotten.
const TARGETS_MAX: usize = 1 << 12;

/// The key that samples are aggregated by; the offset in the image is kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    image: ImageIndex,
    execution: ExecutionId,
    dimensions: ValuesIndex,
    event: CountedEvent,
}

/// State that turns records into counts.
pub struct Collector<H> {
    host: H,
    events: Vec<Event>,
    processes: Processes,
    apps: Applications,
    images: Images,
    recipes: FxHashMap<(ImageIndex, u64), Code>,
    recipes_max: usize,
    /// Number of executions that remained after the last [`Collector::reap`].
    executions_kept: usize,
    counts: Ledger<Slot>,
    tallies: Vec<Tally>,
    lost: BTreeMap<LossCause, u64>,
    unknown: UnknownCauses,
    aggregated: Aggregated,
    dimensions: Dimensions,
    data: Data,
    /// Whether anonymous code is a copy of a file's text, by execution and first address.
    copied: FxHashMap<(ExecutionId, u64), bool>,
    jit: Jit,
    /// Interval in which the samples that are being counted were taken.
    sampled: Interval,
    /// The kernel's image, once the kernel was sampled.
    kernel: Option<ImageIndex>,
    idle: ExecutionId,
    nobody: ExecutionId,
    gaps: bool,
    /// Names of programs whose samples the kernel withholds.
    withheld: BTreeSet<String>,
    stepping: Stepping,
    stacks: Stacks,
    latest: Option<(Pid, Tid)>,
    /// Process and pc of recent samples in user mode, if they are kept.
    recent: Option<Vec<(Pid, u64)>>,
    loops: Loops,
    odometers: odometers::OdometerState,
}

impl<H: Host> Collector<H> {
    /// Returns a collector for samples of these events.
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

    /// Counts samples of pid 0 as `[outside]`, not `[idle]`: processes outside of our pid namespace have that pid too.
    pub fn call_hidden_processes(&mut self) {
        self.idle = self.apps.uncounted("[outside]");
    }

    /// Selects the dimensions (thread, CPU, container) that are stored with each sample.
    pub fn keep_dimensions(&mut self, dimensions: DimensionSet) {
        self.dimensions.want(dimensions);
    }

    /// Applies a record. Records must arrive in order of time.
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

    /// Starts to keep the places of samples in user mode for [`Collector::take_recent`].
    pub fn keep_recent(&mut self) {
        self.recent = Some(Vec::new());
    }

    /// Returns process and pc of the samples in user mode since the last call, if they are kept.
    pub fn take_recent(&mut self) -> Vec<(Pid, u64)> {
        self.recent.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns process and thread of the latest sample in user mode since the last call.
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
        // The kernel maps the program's own file first, and its interpreter after it.
        if process.awaits_program
            && let Some(program) = self.images.program_of(mapping.target)
        {
            self.apps.name(execution, &program);
            self.processes.set_program(pid, mapping.target);
        }
        // Look at the file now: a moment later both file and process may be gone.
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
            self.interrupt_loops(sample.tid); // The thread was in code whose loops are not known.
        }
        let is_time = self.events.get(event.index()).is_some_and(Event::is_time);
        if is_time && sample.mode == Mode::User {
            self.note_data(sample, place.ok(), execution);
        }
        if let (Some(registers), Mode::Kernel, true) = (&sample.registers, sample.mode, is_time) {
            self.charge_user(sample.pid, execution, registers.entered_from());
        }
    }

    /// Forgets a thread's open samples in loops, so that the next one is not paired with them: it was disturbed between.
    fn interrupt_loops(&mut self, tid: Tid) {
        self.loops.interrupt(tid);
    }

    /// Returns whether samples of an event show how often code runs. Other events are sampled where they happen, which does
    /// not show how often a branch goes which way.
    fn counts_code(&self, event: EventIndex) -> bool {
        self.events.get(event.index()).is_some_and(|e| e.is_time() || *e == Event::INSTRUCTIONS)
    }

    /// Uses the registers of a sample that is counted elsewhere.
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

    /// Counts time in the kernel also at the place where user code entered the kernel. If no mapping contains that pc (a
    /// task that is being created has none), nothing is lost: the sample itself is counted in the kernel.
    fn charge_user(&mut self, pid: Pid, execution: ExecutionId, pc: u64) {
        if let Some(spot) = self.mapped_place(pid, pc, execution) {
            self.add_at(spot, execution, CountedEvent::KERNEL_TIME, 1);
        }
    }

    /// Counts samples at a place, or under `unknown`. Kernel time charged to user code is not counted in the totals again.
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
            // Remember that there is no such process; otherwise each of its samples would search /proc again.
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

    /// Moves ended processes to the past, which is kept until the end of their interval. Their executions are kept until
    /// [`Collector::reap`]. If live processes have too many mappings, the mappings of the least recently sampled ones are
    /// forgotten.
    fn reap_processes(&mut self, now_ns: u64) {
        let host = &self.host;
        self.processes.reap(now_ns, &|pid| host.is_alive(pid));
        self.processes.forget_least_recent(discovery::MAPPINGS_MAX);
    }

    /// Forgets ended processes and what only they referred to. Call it after [`Collector::take`], when there are no counts.
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
        // A process whose mappings were forgotten refers to its program alone.
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

    /// Begins a new epoch: totals start from zero and instances from 1.
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

    /// Returns whether records were lost since the last call. Then mappings may be missing, and /proc should be read again.
    pub fn take_gaps(&mut self) -> bool {
        std::mem::take(&mut self.gaps)
    }

    /// Returns the samples lost in the epoch, by cause.
    pub fn lost(&self) -> &BTreeMap<LossCause, u64> {
        &self.lost
    }

    /// Returns the totals of the events in the order given to [`Collector::new`].
    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// Returns why samples of the epoch are under `unknown`.
    pub fn unknown(&self) -> UnknownCauses {
        self.unknown
    }

    /// Returns the file of an image while it is open.
    pub fn file(&self, image: &ImageId) -> Option<std::fs::File> {
        self.host.file(image)
    }

    /// Returns whether the interval should end ([`Collector::end_interval`]) because many processes ended in it, or because
    /// a kernel module was unloaded, whose addresses another module may take.
    pub fn is_past_long(&mut self) -> bool {
        self.processes.is_past_long() || self.host.has_gone_modules()
    }

    /// Returns whether there are so many executions that [`Collector::reap`] should be called.
    pub fn has_many_executions(&self) -> bool {
        self.apps.count() > EXECUTIONS_MAX.max(2 * self.executions_kept)
    }

    /// Returns the number of counts in memory; some may be for the same key.
    pub fn entries(&self) -> usize {
        self.counts.len() + self.jit.len()
    }

    /// Returns the numbers of processes and images in memory.
    pub fn tracked(&self) -> (usize, usize) {
        (self.processes.count(), self.images.count())
    }
}

/// Returns the part of a kernel thread's name before the slash. Per-CPU threads and workers differ after it only:
/// `kworker/3:1-events`, `ksoftirqd/0`.
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
