//! The state of the machine by which samples are attributed: processes, applications, images, generated code, dimensions.
//!
//! Enters: pids, threads and addresses of samples. Leaves: executions, places in images, values of dimensions. An address that
//! cannot be resolved has a cause. Never here: rings, files, clocks (see [`Host`]).

use dwell_attribution::{
    Applications, ExecutionId, ImageIndex, Images, InstanceLimits, Interval, Mapping, Process, Processes,
    TargetIndex,
};
use dwell_profile::{CountedEvent, CpuId, DimensionSet, ImageId, ImageKind, Pid, Tid, VirtualAddress};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    counts::{SampleCounts, Slot},
    dimensions::{Dimensions, ValuesIndex},
    generated_code::GeneratedCode,
    spot::Spot,
    unknown::Cause,
};
use crate::{host::Host, source::records::Mode};

/// Most mappings of live processes that are kept: 1.3 MB.
pub(super) const MAPPINGS_MAX: usize = 1 << 15;
/// Number of executions above which unreferenced ones are searched for and forgotten.
pub(super) const EXECUTIONS_MAX: usize = 1 << 14;

/// The owner of a sample and the time when it was taken: everything except its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleContext {
    /// Interval in which the sample was taken: one instant, or the interval in which the kernel aggregated it.
    pub(super) interval: Interval,
    /// Execution of the program that ran.
    pub(super) execution: ExecutionId,
    /// Values of the wanted dimensions.
    pub(super) dimensions: ValuesIndex,
}

/// A program that a pid may have been, and its execution.
pub(super) type Candidate = (TargetIndex, ExecutionId);

/// Processes, applications, images and their host.
pub(super) struct Attribution<H> {
    pub(super) host: H,
    pub(super) processes: Processes,
    pub(super) apps: Applications,
    pub(super) images: Images,
    pub(super) dimensions: Dimensions,
    pub(super) generated: GeneratedCode,
    /// Whether anonymous code is a copy of a file's text, by execution and first address.
    pub(super) copied: FxHashMap<(ExecutionId, VirtualAddress), bool>,
    /// The kernel's image, once the kernel was sampled.
    pub(super) kernel: Option<ImageIndex>,
    /// Executions of programs that were found since they were last taken.
    pub(super) started: Vec<Candidate>,
    pub(super) nobody: ExecutionId,
    idle: ExecutionId,
    /// Number of executions that remained after the last [`Attribution::forget_executions`].
    executions_kept: usize,
}

impl<H: Host> Attribution<H> {
    /// Returns the attribution of a machine about which nothing is known yet.
    pub(super) fn new(host: H, apart: InstanceLimits) -> Self {
        let mut apps = Applications::new(apart);
        let (idle, nobody) = (apps.uncounted("[idle]"), apps.uncounted("unknown"));
        Attribution {
            host,
            processes: Processes::default(),
            apps,
            images: Images::default(),
            dimensions: Dimensions::default(),
            generated: GeneratedCode::default(),
            copied: FxHashMap::default(),
            kernel: None,
            started: Vec::new(),
            nobody,
            idle,
            executions_kept: 0,
        }
    }

    /// Counts samples of pid 0 as `[outside]`, not `[idle]`: processes outside of our pid namespace have that pid too.
    pub(super) fn call_hidden_processes(&mut self) {
        self.idle = self.apps.uncounted("[outside]");
    }

    /// Selects the dimensions (thread, CPU, container) that are stored with each sample.
    pub(super) fn keep_dimensions(&mut self, dimensions: DimensionSet) {
        self.dimensions.want(dimensions);
    }

    /// Returns the context of a sample.
    pub(super) fn context(
        &mut self,
        (pid, tid, cpu): (Pid, Tid, Option<CpuId>),
        interval: Interval,
    ) -> SampleContext {
        let dimensions = self.dimensions_of(pid, tid, cpu, interval);
        SampleContext { interval, execution: self.execution_of(pid), dimensions }
    }

    /// Returns the values of the wanted dimensions for a sample.
    pub(super) fn dimensions_of(
        &mut self,
        pid: Pid,
        tid: Tid,
        cpu: Option<CpuId>,
        interval: Interval,
    ) -> ValuesIndex {
        self.dimensions.values_of(&mut self.host, (pid, tid, cpu), interval.until_ns)
    }

    /// Returns the execution that a pid is now. An unknown pid is looked up in /proc.
    pub(super) fn execution_of(&mut self, pid: Pid) -> ExecutionId {
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

    /// Returns the place of a sample in user mode.
    pub(super) fn user_place(
        &mut self,
        pid: Pid,
        pc: VirtualAddress,
        execution: ExecutionId,
    ) -> Result<Spot, Cause> {
        self.mapped_place(pid, pc, execution).ok_or_else(|| match pid {
            Pid::ENDED => Cause::NoTask,
            pid => self.why_not_mapped(pid),
        })
    }

    /// Returns why an address of a process is in no mapping.
    pub(super) fn why_not_mapped(&self, pid: Pid) -> Cause {
        let empty = self.processes.ever(pid).all(|p| p.space.iter().next().is_none());
        if empty { Cause::NoProcess } else { Cause::NoMapping }
    }

    /// Returns the place of a sample that is neither in the kernel nor in user mode.
    pub(super) fn other_place(&mut self, mode: Mode, pc: VirtualAddress) -> Result<Spot, Cause> {
        let name = match mode {
            Mode::Hypervisor => "hypervisor",
            Mode::GuestKernel => "guest-kernel",
            Mode::GuestUser => "guest-user",
            Mode::User | Mode::Kernel | Mode::Unknown => return Err(Cause::NoMode),
        };
        let image = self.images.named(ImageId::named(name), ImageKind::Unknown, &format!("[{name}]"));
        Ok(Spot::Image(image, pc.as_offset()))
    }

    /// Returns the image that stands for addresses in no image.
    pub(super) fn unknown_image(&mut self) -> ImageIndex {
        self.images.named(ImageId::unknown(), ImageKind::Unknown, "[unknown]")
    }

    /// Returns the place that stands for an address in no image.
    pub(super) fn unknown_spot(&mut self, pc: VirtualAddress) -> Spot {
        Spot::Image(self.unknown_image(), pc.as_offset())
    }

    /// Counts samples at a place, or under `unknown` at the offset beside it. Kernel time charged to user code is not counted in the totals again.
    pub(super) fn count(
        &mut self,
        counts: &mut SampleCounts,
        context: &SampleContext,
        event: CountedEvent,
        (place, unknown_offset): (Result<Spot, Cause>, u64),
        count: u64,
    ) {
        if let CountedEvent::Sampled(sampled) = event {
            counts.tally(sampled, |t| {
                t.samples += count;
                t.unknown += if place.is_err() { count } else { 0 };
            });
            place.err().into_iter().for_each(|cause| counts.unknown.add(cause, count));
        } else if place.is_err() {
            return;
        }
        match place.unwrap_or_else(|_| Spot::Image(self.unknown_image(), unknown_offset)) {
            Spot::Image(image, offset) => self.add(counts, context, event, (image, offset), count),
            Spot::Code(code, address) => self.add_waiting(counts, context, event, (code, address), count),
        }
    }

    /// Counts time in the kernel also at the place where user code entered the kernel. If no mapping contains that pc (a
    /// task that is being created has none), nothing is lost: the sample itself is counted in the kernel.
    pub(super) fn charge_user(
        &mut self,
        counts: &mut SampleCounts,
        context: &SampleContext,
        (pid, pc): (Pid, VirtualAddress),
    ) {
        let place = self.mapped_place(pid, pc, context.execution).ok_or(Cause::NoMapping);
        self.count(counts, context, CountedEvent::KERNEL_TIME, (place, pc.as_offset()), 1);
    }

    /// Returns whether samples of an execution are kept. Otherwise counts them as left out.
    pub(super) fn keeps(
        &self,
        counts: &mut SampleCounts,
        execution: ExecutionId,
        event: CountedEvent,
        count: u64,
    ) -> bool {
        let is_kept = self.apps.is_kept(execution);
        if !is_kept {
            counts.leave_out(event, count);
        }
        is_kept
    }

    /// Adds to the counts at a place in an image. The totals of the events do not change.
    pub(super) fn add(
        &mut self,
        counts: &mut SampleCounts,
        context: &SampleContext,
        event: CountedEvent,
        (image, offset): (ImageIndex, u64),
        count: u64,
    ) {
        let execution = self.apps.counted_as(context.execution);
        counts.add(Slot { image, execution, dimensions: context.dimensions, event }, offset, count);
    }

    /// Moves ended processes to the past, which is kept until the end of their interval. Their executions are kept until
    /// [`Attribution::forget_executions`]. If live processes have too many mappings, the mappings of the least recently
    /// sampled ones are forgotten.
    pub(super) fn reap_processes(&mut self, now_ns: u64) {
        let host = &self.host;
        self.processes.reap(now_ns, &|pid| host.is_alive(pid));
        self.processes.forget_least_recent(MAPPINGS_MAX);
    }

    /// Forgets executions that no process refers to, and what only they referred to. Returns the rest.
    pub(super) fn forget_executions(&mut self) -> FxHashSet<ExecutionId> {
        let mut live: FxHashSet<ExecutionId> = self.processes.iter_ever().map(|(_, p)| p.execution).collect();
        live.extend([self.idle, self.nobody]);
        self.apps.retain(&|id| live.contains(&id));
        self.executions_kept = self.apps.count();
        self.dimensions.retain(&|pid| self.processes.get(pid).is_some());
        self.started.clear();
        self.reap_code();
        live
    }

    /// Returns whether there are so many executions that unreferenced ones should be forgotten.
    pub(super) fn has_many_executions(&self) -> bool {
        self.apps.count() > EXECUTIONS_MAX.max(2 * self.executions_kept)
    }

    /// Applies a new mapping of a process.
    pub(super) fn map(&mut self, pid: Pid, mapping: Mapping, time_ns: u64) {
        let Some(process) = self.processes.get(pid) else { return };
        let (execution, awaits_program) = (process.execution, process.awaits_program);
        // The kernel maps the program's own file first, and its interpreter after it.
        let program = awaits_program.then(|| self.images.program_of(mapping.target)).flatten();
        // Look at the file now: a moment later both file and process may be gone.
        self.images.look(mapping.target, mapping.place(pid), &mut self.host);
        if let Some(program) = program {
            self.apps.name(execution, &program);
            self.processes.set_program(pid, mapping.target);
            self.note_program(pid);
        }
        self.note_mapping(pid, &mapping, Some(time_ns));
        self.processes.map(pid, mapping, time_ns);
    }

    /// Notes which program a pid executes, if that is known.
    pub(super) fn note_program(&mut self, pid: Pid) {
        self.started.extend(self.processes.get(pid).and_then(|process| self.candidate(process)));
    }

    /// Returns the program of a process and its execution.
    pub(super) fn candidate(&self, process: &Process) -> Option<Candidate> {
        process.program.map(|program| (self.images.canonical(program), process.execution))
    }

    /// Applies a fork. Returns the executions of child and parent, if the child is an execution of its own.
    pub(super) fn fork(
        &mut self,
        pid: Pid,
        parent_pid: Pid,
        time_ns: u64,
    ) -> Option<(ExecutionId, ExecutionId)> {
        self.dimensions.fork(&mut self.host, pid, parent_pid, time_ns);
        if !self.processes.fork(pid, parent_pid, time_ns) {
            self.discover_one(pid);
            return None;
        }
        self.inherit_code(pid, parent_pid, time_ns);
        let parent = self.processes.get(pid).map(|p| p.execution)?;
        let child = self.apps.begin_child(parent)?;
        self.processes.rename(pid, child);
        self.note_program(pid);
        Some((child, parent))
    }

    /// Forgets the images that no process refers to. Returns the new indices of the others' targets.
    pub(super) fn sweep_images(&mut self) -> FxHashMap<TargetIndex, TargetIndex> {
        let mapped = self.processes.iter_ever().flat_map(|(_, p)| p.space.iter());
        let mapped = mapped.flat_map(|m| [Some(m.target), m.over().map(|o| o.0)]);
        // A process whose mappings were forgotten refers to its program alone.
        let programs = self.processes.iter_ever().map(|(_, p)| p.program);
        let used = mapped.chain(programs).flatten().collect();
        let moved = self.images.sweep(&used);
        self.processes.retarget(&|target| moved.get(&target).copied());
        self.copied.clear();
        self.kernel = None;
        moved
    }

    /// Begins a new epoch: instances are numbered from 1.
    pub(super) fn begin_epoch(&mut self) {
        self.dimensions.begin_epoch();
        self.images.forget_symbols();
        self.generated.begin_epoch();
        self.apps.renumber();
    }
}
