//! The state machine in the middle of collection: records enter, counts leave.
//!
//! Enters: samples and side-band records in order of time. Leaves: counts by (image, event, offset, application instance).
//! Samples in = samples counted + losses by cause; a sample that cannot be resolved is counted under `unknown`. Never here:
//! rings, files, clocks (see [`Host`]).
//!
//! Each record goes to the parts that need it: [`Attribution`] finds the place of a sample, [`SampleCounts`] counts it, and
//! the others observe what else it shows. Samples are resolved as they arrive. DCPI's driver first aggregates them by
//! (process, pc), but on a build 95% of these pairs are new, and a binary search in the few dozen mappings of a process costs
//! no more than the hash lookup it would save.

mod aggregated;
mod attribution;
mod batch;
mod branch_directions;
mod branch_stacks;
mod bursts;
mod call_stacks;
mod counts;
mod data;
mod dimensions;
mod discovery;
mod disturbances;
mod feed;
mod generated_code;
mod jit;
mod jit_layout;
mod loops;
mod odometers;
mod places;
mod rows;
mod settings;
mod spot;
mod symbol_limits;
mod symbols;
mod unknown;
mod waits;
mod withheld;

use aggregated::AggregatedEntries;
use attribution::{Attribution, SampleContext};
pub use batch::Batch;
use branch_directions::BranchDirections;
use branch_stacks::BranchStacks;
use bursts::Bursts;
use call_stacks::CallStacks;
pub use counts::Tally;
use counts::{SampleCounts, Slot};
use data::DataReferences;
use discovery::kernel_thread_name;
use disturbances::Disturbances;
use dwell_attribution::{AppInstance, ImageIndex, InstanceLimits, Interval};
use dwell_profile::{AccumulatedSamples, CountsRecord, Event, EventIndex, ImageId, ImageKind, Pid};
use feed::SampleFeed;
use loops::LoopCounters;
use odometers::OdometerCounts;
pub use rows::Rows;
pub(crate) use rows::Texts;
#[cfg(test)]
pub(crate) use rows::tests::rows;
use rustc_hash::FxHashMap;
use spot::Spot;
pub use waits::Waits;
use withheld::WithheldPrograms;

use crate::{
    entries::Entry,
    evidence::{
        code_counters::moved_code::MovedCode,
        counts::{RawCount, Seen, exits::Watch},
    },
    host::Host,
    loss::LossCause,
    source::{
        owned_record::{OwnedRecord, RawCallStack, SideBandRecord},
        records::{Mode, Sample},
    },
};

/// Number of targets above which unused ones are searched for and forgotten.
const TARGETS_MAX: usize = 1 << 12;

/// State that turns records into counts.
pub struct Collector<H> {
    attribution: Attribution<H>,
    entries: AggregatedEntries,
    branches: BranchDirections,
    bursts: Bursts,
    odometers: OdometerCounts,
    /// Data that samples refer to, if requested.
    data: Option<DataReferences>,
    /// Time that threads are off the CPU, if requested.
    waits: Option<Waits>,
    /// Loop counters in registers, if requested.
    loops: Option<LoopCounters>,
    /// Whether records were lost since [`Collector::take_gaps`].
    gaps: bool,
    /// Counts of samples, and totals of the events.
    pub counts: SampleCounts,
    /// Sums of branch stacks.
    pub stacks: BranchStacks,
    /// Call stacks of samples, unwound and added up.
    pub call_stacks: CallStacks,
    /// Samples that are dropped because counting disturbed them.
    pub disturbances: Disturbances,
    /// Code that was added to processes.
    pub moved: MovedCode,
    /// Samples for the methods that measure executions.
    pub feed: SampleFeed,
    /// Programs whose samples the kernel withholds.
    pub withheld: WithheldPrograms,
}

impl<H: Host> Collector<H> {
    /// Returns a collector for samples of these events.
    pub fn new(host: H, events: Vec<Event>, apart: InstanceLimits) -> Self {
        Collector {
            attribution: Attribution::new(host, apart),
            entries: AggregatedEntries::default(),
            branches: BranchDirections::default(),
            bursts: Bursts::default(),
            odometers: OdometerCounts::default(),
            data: None,
            waits: None,
            loops: None,
            gaps: false,
            counts: SampleCounts::new(events),
            stacks: BranchStacks::default(),
            call_stacks: CallStacks::default(),
            disturbances: Disturbances::default(),
            moved: MovedCode::default(),
            feed: SampleFeed::default(),
            withheld: WithheldPrograms::default(),
        }
    }

    /// Adds processes that run already. Call it after the events were enabled, so that no mapping is missed. Records from
    /// before are then applied on top, which has no lasting effect.
    pub fn discover(&mut self, pids: impl IntoIterator<Item = Pid>) {
        self.attribution.discover(pids);
    }

    /// Reads all processes again after a loss: what they execute and have mapped. All processes not in `pids` have ended.
    pub fn refresh(&mut self, pids: impl IntoIterator<Item = Pid>, now_ns: u64) {
        self.entries.forget_all_spaces();
        self.attribution.refresh(pids, now_ns);
    }

    /// Applies a record. Records must arrive in order of time.
    pub fn apply(&mut self, time_ns: u64, item: OwnedRecord) {
        let now = Interval { since_ns: time_ns, until_ns: time_ns };
        match item {
            OwnedRecord::Sample(event, sample) => self.count_sample(time_ns, event, sample, None),
            OwnedRecord::SampleWithStack(event, sample, stack) => {
                self.count_sample(time_ns, event, sample, Some(&stack));
            }
            OwnedRecord::BeginWait(sample, stack) => {
                if let Some(waits) = &mut self.waits {
                    waits.begin(time_ns, sample, stack);
                }
            }
            OwnedRecord::Switch { pid, tid, to } => {
                self.with_waits(|waits, sums| {
                    waits.switch(time_ns, (pid, tid), to, |wait| sums.add(time_ns, wait));
                });
            }
            OwnedRecord::Registers(event, mut sample) => {
                if self.put_back(&mut sample) {
                    self.registers(event, &sample, now);
                }
            }
            OwnedRecord::SideBand(side) => self.side(time_ns, *side),
            OwnedRecord::Branches(stack) => self.stacks.add(&mut self.attribution, &stack),
            OwnedRecord::Burst(burst) => {
                if burst.stepped_until_ns > 0 {
                    self.disturbances.stepped = Some((burst.tid, burst.stepped_until_ns));
                }
                self.bursts.add_path(&mut self.attribution, &burst);
            }
            OwnedRecord::BreakpointCounts(counts) => {
                self.disturbances.counted = Some((counts.tid, counts.until_ns));
                self.bursts.add_breakpoint_counts(&mut self.attribution, &counts);
            }
            OwnedRecord::Exits(exits) => {
                self.disturbances.counted = Some((exits.tid, exits.until_ns));
                if let Some(loops) = &mut self.loops {
                    let execution = self.attribution.execution_of(exits.pid);
                    loops.note_exits(&mut self.attribution.apps, execution, &exits);
                }
            }
            OwnedRecord::Watched { pid, until_ns } => self.disturbances.watched = Some((pid, until_ns)),
        }
    }

    /// Counts a sample, and its stack if it has one, unless counting executions disturbed it.
    fn count_sample(
        &mut self,
        time_ns: u64,
        event: EventIndex,
        mut sample: Sample,
        stack: Option<&RawCallStack>,
    ) {
        if self.disturbances.drop_sample(&sample, time_ns) || !self.put_back(&mut sample) {
            let (attribution, is_time) = (&mut self.attribution, self.counts.is_first_time_event(event));
            self.loops.iter_mut().for_each(|loops| loops.note_dropped(attribution, &sample, is_time));
        } else {
            self.sample(event, &sample, stack, Interval { since_ns: time_ns, until_ns: time_ns });
        }
        self.waits.iter_mut().for_each(|waits| waits.saw_running(sample.tid));
    }

    /// Puts a sample in code that was added to a program back to the instruction that the code stands for. Returns `false` if it
    /// stands for none: the sample shows the cost of counting, and is counted as dropped.
    fn put_back(&mut self, sample: &mut Sample) -> bool {
        let Some(span) = self.moved.find(sample.pid, sample.pc).filter(|_| sample.mode == Mode::User) else {
            return true;
        };
        match span.stands_for {
            Some(pc) => sample.pc = pc,
            None => self.disturbances.drop_in_counter(),
        }
        span.stands_for.is_some()
    }

    fn side(&mut self, time_ns: u64, side: SideBandRecord) {
        self.entries.note_started(&mut self.attribution);
        if let Some(pid) = side.pid() {
            self.entries.forget_spaces(pid);
            self.data.iter_mut().for_each(|data| data.forget(pid));
        }
        let attribution = &mut self.attribution;
        match side {
            SideBandRecord::Map { pid, start, length, file_offset, target } => {
                if attribution.processes.get(pid).is_none() {
                    attribution.discover_one(pid);
                }
                let Some(process) = attribution.processes.get(pid) else { return };
                let (space, end) = (process.space.clone(), start.saturating_offset(length));
                let line = (start, end, file_offset, target);
                let mapping = attribution.mapping(pid, line, &space, Some(time_ns));
                attribution.map(pid, mapping, time_ns);
            }
            SideBandRecord::Exec { pid, comm } => {
                attribution.dimensions.exec(pid, &comm);
                attribution.name_code_of(pid, &mut self.counts);
                let execution = attribution.apps.begin(&comm);
                attribution.processes.exec(pid, execution, time_ns);
                self.moved.forget(pid);
            }
            SideBandRecord::Executable { pid, id } => self.entries.executes(attribution, pid, id),
            SideBandRecord::BeginThread { tid, parent_pid, parent_tid } => {
                self.waits.iter_mut().for_each(|waits| waits.begin_thread(tid));
                attribution.dimensions.begin_thread(&mut attribution.host, tid, parent_pid, parent_tid);
            }
            SideBandRecord::EndThread { tid } => {
                self.waits.iter_mut().for_each(|waits| waits.end_thread(tid));
                attribution.dimensions.end_thread(tid);
            }
            SideBandRecord::Comm { pid, tid, comm } => {
                attribution.dimensions.name_thread(tid, &comm);
                if tid.is_first_of(pid) && attribution.processes.get(pid).is_some_and(|p| p.kernel_thread) {
                    let execution = attribution.apps.uncounted(kernel_thread_name(&comm));
                    attribution.processes.rename(pid, execution);
                }
            }
            SideBandRecord::Fork { pid, parent_pid } => {
                self.moved.fork(pid, parent_pid);
                if let Some((child, parent)) = attribution.fork(pid, parent_pid, time_ns) {
                    self.entries.inherit(child, parent);
                }
            }
            SideBandRecord::Exit { pid } => {
                attribution.name_code_of(pid, &mut self.counts);
                if !self.gaps {
                    self.withheld.note(attribution, pid);
                }
                attribution.processes.exit(pid, time_ns);
                self.moved.forget(pid);
            }
            SideBandRecord::Lost { event, records, cause } => {
                self.gaps |= cause == LossCause::RingFull;
                if let Some(waits) =
                    self.waits.as_mut().filter(|waits| event.is_none_or(|e| e == waits.event()))
                {
                    waits.forget_all();
                }
                self.counts.lose(event, records, cause);
            }
            SideBandRecord::Throttle { event } => {
                event.into_iter().for_each(|event| self.counts.tally(event, |t| t.throttled += 1));
            }
        }
    }

    fn sample(
        &mut self,
        event: EventIndex,
        sample: &Sample,
        stack: Option<&RawCallStack>,
        interval: Interval,
    ) {
        let Sample { pid, tid, pc, .. } = *sample;
        let context = self.attribution.context((pid, tid, sample.cpu), interval);
        if !self.attribution.keeps(&mut self.counts, context.execution, event.into(), 1) {
            return;
        }
        let place = match sample.mode {
            Mode::User => self.user_place(sample, &context),
            Mode::Kernel => self.attribution.kernel_place(pc, interval),
            other => self.attribution.other_place(other, pc),
        };
        self.attribution.count(&mut self.counts, &context, event.into(), (place, pc.as_offset()), 1);
        if let Some(stack) = stack {
            let place = place.unwrap_or_else(|_| self.attribution.unknown_spot(pc));
            self.call_stacks.add(&mut self.attribution, event, (sample, place), stack, &context);
        }
        self.feed_odometers(event, sample, &context);
        let (is_time, is_user) = (self.counts.is_time(event), sample.mode == Mode::User);
        if is_user {
            self.observe(event, sample, place.ok(), &context);
        } else if let (Some(registers), Mode::Kernel, true) = (&sample.registers, sample.mode, is_time) {
            self.attribution.charge_user(&mut self.counts, &context, (pid, registers.entered_from()));
        }
        self.observe_loops(event, sample, place.ok().filter(|_| is_user), &context);
    }

    /// Uses the registers of a sample that is counted elsewhere.
    fn registers(&mut self, event: EventIndex, sample: &Sample, interval: Interval) {
        let context = self.attribution.context((sample.pid, sample.tid, sample.cpu), interval);
        if self.attribution.apps.is_kept(context.execution) {
            let place = self.user_place(sample, &context);
            self.observe(event, sample, place.ok(), &context);
        }
    }

    fn user_place(&mut self, sample: &Sample, context: &SampleContext) -> Result<Spot, unknown::Cause> {
        self.feed.add(sample.pid, sample.tid, sample.pc);
        self.attribution.user_place(sample.pid, sample.pc, context.execution)
    }

    /// Counts what else a sample in user mode shows: the direction of a branch, and the data that an instruction refers to.
    fn observe(&mut self, event: EventIndex, sample: &Sample, place: Option<Spot>, context: &SampleContext) {
        if let (Some(registers), Some(Spot::Image(image, offset)), true) =
            (&sample.registers, place, self.counts.shows_executions(event))
            && let Some((offset, event)) =
                self.branches.observe(&mut self.attribution, (image, offset), registers)
        {
            self.attribution.add(&mut self.counts, context, event.into(), (image, offset), 1);
        }
        if let Some(data) = &mut self.data
            && self.counts.is_time(event)
        {
            let (image, offset, event) = data.observe(&mut self.attribution, context, sample, place);
            self.attribution.add(&mut self.counts, context, event.into(), (image, offset), 1);
        }
    }

    /// Passes a sample to the loop counters.
    fn observe_loops(
        &mut self,
        event: EventIndex,
        sample: &Sample,
        place: Option<Spot>,
        context: &SampleContext,
    ) {
        let Some(loops) = &mut self.loops else { return };
        let is_time = self.counts.is_first_time_event(event);
        if is_time {
            loops.note_time(&mut self.attribution.apps, context.execution);
        }
        match (place, &sample.registers) {
            (Some(Spot::Image(image, offset)), Some(registers)) if is_time => {
                loops.observe(&mut self.attribution, context, sample, (image, offset), registers);
            }
            (Some(Spot::Image(..)), _) => {}
            // The thread was in code whose loops are not known.
            _ if sample.mode == Mode::User => loops.interrupt(sample.tid),
            _ => {}
        }
    }

    fn feed_odometers(&mut self, event: EventIndex, sample: &Sample, context: &SampleContext) {
        let Some(all) = &mut self.feed.seen else { return };
        let Some(process) = self.attribution.processes.get(sample.pid) else { return };
        let has_registers = sample.mode == Mode::User && self.counts.shows_executions(event);
        all.push(Seen {
            time_ns: context.interval.until_ns,
            pid: sample.pid,
            code: process.code,
            execution: context.execution,
            pc: sample.pc,
            is_time: self.counts.is_first_time_event(event),
            is_user: sample.mode == Mode::User,
            registers: sample.registers.clone().filter(|_| has_registers),
        });
    }

    /// Counts entries that were sampled in an interval. The side band up to its end, and nothing later, must have been
    /// applied. It may be called several times for an interval.
    pub fn apply_entries(&mut self, entries: &[Entry], interval: Interval) {
        self.entries.apply(&mut self.attribution, &mut self.counts, entries, interval);
    }

    /// Ends an interval. No later entry was sampled before `until_ns`, so processes that had ended by then are forgotten.
    pub fn end_interval(&mut self, until_ns: u64) {
        self.entries.end_interval(&mut self.attribution, &mut self.counts, until_ns);
        self.attribution.reap_processes(until_ns); // No entries of ended processes can arrive any more.
        self.attribution.processes.forget_past(until_ns);
        self.attribution.host.forget_modules(until_ns);
    }

    /// Returns whether the interval should end ([`Collector::end_interval`]) because many processes ended in it, or because
    /// a kernel module was unloaded, whose addresses another module may take.
    pub fn is_past_long(&mut self) -> bool {
        self.attribution.processes.is_past_long() || self.attribution.host.has_gone_modules()
    }

    /// Returns all executables that the kernel should keep apart by process, if there is a new one since the last call.
    /// Until the kernel does, their samples count like those of other programs.
    pub fn take_by_process(&mut self) -> Option<Vec<u64>> {
        self.entries.take_by_process()
    }

    /// Looks up names of generated code for sampled processes if it is time.
    pub fn name_code_when_due(&mut self) {
        self.attribution.name_code_when_due(&mut self.counts);
    }

    /// Adds executions that an odometer or a counter in code counted.
    pub fn add_executions(&mut self, raw: &RawCount) {
        self.odometers.add(&mut self.attribution, raw);
    }

    /// Returns a counter whose exits are worth watching, in the thread that was sampled in a loop last.
    pub fn loop_to_watch(&mut self) -> Option<Watch> {
        self.loops.as_mut()?.loop_to_watch(&mut self.attribution.apps)
    }

    /// Adds the results of counters in memory and in registers to a record.
    pub fn add_counts_to(&self, record: &mut CountsRecord) {
        let dropped = self.disturbances.dropped();
        record.samples_dropped = dropped.watched + dropped.in_counters;
        if self.odometers.unplaced > 0 {
            let cause = "its process had ended or executes another program".to_owned();
            record.refused.insert(cause, self.odometers.unplaced);
        }
        self.loops.iter().for_each(|loops| loops.add_to(record));
    }

    /// Returns the steps of the epoch in code that could not be read.
    pub fn opaque_steps(&self) -> u64 {
        self.bursts.opaque_steps
    }

    /// Returns the number of samples in the epoch whose names are uncertain, because code was replaced while it was sampled.
    pub fn uncertain_names(&self) -> u64 {
        self.attribution.uncertain_names()
    }

    /// Returns everything that was counted since the last call.
    pub fn take(&mut self) -> Batch {
        self.attribution.name_all_code(&mut self.counts);
        self.stacks.take_into(&mut self.bursts, &mut self.attribution);
        let counted = self.counts.take();
        let texts: Vec<Texts> = counted.slots().map(|slot| self.texts(slot)).collect();
        let mut offsets = self.offsets(&counted);
        let (stacks, in_stacks) = self.call_stacks.take(&mut self.attribution, self.counts.events());
        in_stacks.into_iter().for_each(|(image, more)| offsets.entry(image).or_default().extend(more));
        let Attribution { dimensions, apps, images, .. } = &mut self.attribution;
        dimensions.forget_values();
        let (mut executions, mut used) = self.odometers.take(apps, images);
        if let Some(loops) = &mut self.loops {
            let (counts, images) = loops.take(apps, images);
            executions.extend(counts);
            used.extend(images);
        }
        let (evidence, in_evidence) = self.bursts.take();
        used.extend(in_evidence);
        for image in used.into_iter().chain(images.with_new_symbols()) {
            offsets.entry(image).or_default();
        }
        let records = offsets.into_iter();
        let images = records.map(|(image, offsets)| self.attribution.record_with_symbols(image, offsets));
        Batch {
            images: images.collect(),
            rows: Rows::new(counted, texts.into_iter()),
            evidence,
            executions,
            stacks,
        }
    }

    fn texts(&mut self, slot: Slot) -> Texts {
        let Slot { image, execution, dimensions, event } = slot;
        let AppInstance { app, instance } = self.attribution.apps.resolve(execution);
        Texts {
            image: self.attribution.images.record(image).id.clone(),
            event: event.event(self.counts.events()),
            app,
            instance,
            dimensions: self.attribution.dimensions.values(dimensions),
        }
    }

    /// Returns the counted images, with the sampled offsets of those that need symbols.
    fn offsets(&self, counted: &AccumulatedSamples<Slot>) -> FxHashMap<ImageIndex, Vec<u64>> {
        let mut offsets: FxHashMap<ImageIndex, Vec<u64>> = FxHashMap::default();
        for (number, slot) in counted.slots().enumerate() {
            let of_image = offsets.entry(slot.image).or_default();
            let kind = self.attribution.images.record(slot.image).kind;
            if matches!(kind, ImageKind::Kernel | ImageKind::Module) {
                of_image.extend(counted.of(number).map(|(offset, _)| offset));
            }
        }
        offsets
    }

    /// Forgets ended processes and what only they referred to. Call it after [`Collector::take`], when there are no counts.
    pub fn reap(&mut self, now_ns: u64) {
        assert!(self.counts.is_empty(), "counts refer to executions and images");
        self.attribution.host.handed_out();
        self.attribution.reap_processes(now_ns);
        let live = self.attribution.forget_executions();
        self.entries.retain(&|id| live.contains(&id));
        if self.attribution.images.targets() > TARGETS_MAX {
            self.sweep_images();
        }
    }

    fn sweep_images(&mut self) {
        let moved = self.attribution.sweep_images();
        self.entries.retarget(&|target| moved.get(&target).copied());
        self.branches.clear();
        self.loops.iter_mut().for_each(|loops| *loops = LoopCounters::default());
        self.data.iter_mut().for_each(|data| *data = DataReferences::default());
        self.bursts.clear_code();
        self.stacks.clear_code();
        self.call_stacks.clear_rules();
    }

    /// Begins a new epoch: totals start from zero and instances from 1.
    pub fn begin_epoch(&mut self) {
        self.attribution.begin_epoch();
        self.counts.begin_epoch();
        self.disturbances.begin_epoch();
        self.bursts.begin_epoch();
        self.stacks.begin_epoch();
        self.call_stacks.begin_epoch();
        self.odometers.unplaced = 0;
        self.loops.iter_mut().for_each(|loops| *loops = LoopCounters::default());
    }

    /// Returns whether records were lost since the last call. Then mappings may be missing, and /proc should be read again.
    pub fn take_gaps(&mut self) -> bool {
        std::mem::take(&mut self.gaps)
    }

    /// Returns the file of an image while it is open.
    pub fn file(&self, image: &ImageId) -> Option<std::fs::File> {
        self.attribution.host.file(image)
    }

    /// Returns whether there are so many executions that [`Collector::reap`] should be called.
    pub fn has_many_executions(&self) -> bool {
        self.attribution.has_many_executions()
    }

    /// Returns the number of counts in memory, those of evidence included; some may be for the same key.
    pub fn entries(&self) -> usize {
        self.counts.len() + self.attribution.generated.len() + self.call_stacks.len() + self.bursts.len()
    }

    /// Returns the numbers of processes and images in memory.
    pub fn tracked(&self) -> (usize, usize) {
        (self.attribution.processes.count(), self.attribution.images.count())
    }
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
mod moved_tests;
#[cfg(test)]
mod tests;
