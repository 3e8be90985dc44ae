//! Opens perf events and their rings: for all configured events, tasks and CPUs, and later for CPUs that come online.
//!
//! Enters: configurations and tasks. Leaves: [`PerfSource`]'s events, disabled or in the state of the others. Never here: records.

use std::{collections::BTreeSet, io};

use dwell_profile::{CpuId, EventIndex, Pid, Tid};
use perf_event_open_sys::bindings as abi;
use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use super::{CpuRing, Opening, PerfSource, RingKind, Role, Sampler, StackSizes, of_share};
use crate::{
    CollectError,
    host::live_processes::{threads_of, tree_of},
    refusal::{self, Rights, Wanted},
    source::{
        Tasks,
        events::{EventConfig, known_names},
        period::RandomPeriod,
        records::SampleFields,
    },
    sys::{
        clock::now_ns,
        event::{Attributes, PerfEvent},
        event_times::EventTimes,
        ring::Ring,
    },
};

/// Bytes of a sample with registers: header, identifier, pc, pid and tid, time, register ABI, registers.
const SAMPLE_BYTES: f64 = 184.0;
/// Bytes of a sample with branches: the same fields up to the time, the number of branches, and 24 bytes for each of as many
/// branches as processors keep (an Arm may keep twice as many).
const STACK_BYTES: f64 = 48.0 + 32.0 * 24.0;
/// Time at the full rate that a ring holds, about.
const RING_SECONDS: f64 = 1.0;
const RING_BYTES_MIN: usize = 512 << 10;
const RING_BYTES_MAX: usize = 16 << 20;
/// Smallest size of a ring that is tried before we give up.
const RING_BYTES_FLOOR: usize = 64 << 10;

impl PerfSource {
    /// Opens the planned events: for each task or the whole machine, on each CPU.
    pub(super) fn open_all(
        &mut self,
        configs: &[(Role, EventConfig)],
        tasks: &Tasks,
        ids: &[Option<Tid>],
        cpus: &[CpuId],
    ) -> Result<(), CollectError> {
        allow_files(ids.len() * cpus.len() * configs.len() + 64);
        for (at, (role, config)) in configs.iter().enumerate() {
            let wanted = self.attributes(config, tasks, at == 0);
            let attributes = self.negotiate(wanted, tasks, config, ids.first().copied().flatten(), cpus)?;
            let opening = Opening { role: *role, config: config.clone(), attributes, share: 1.0 };
            for (task, cpu) in ids.iter().flat_map(|task| cpus.iter().map(|cpu| (*task, *cpu))) {
                self.open_one(&opening, task, cpu)?;
            }
            self.openings.push(opening);
        }
        if self.samplers.is_empty() {
            return Err(CollectError::NoSuchProcess(Pid(ids
                .first()
                .copied()
                .flatten()
                .unwrap_or_default()
                .0)));
        }
        Ok(())
    }

    /// Opens an event beside those that are sampled; its samples carry the last branches of user code. If the kernel refuses
    /// (no LBR or BRBE, none in a virtual machine, another user has it) everything goes on without it; finding out costs one
    /// call. It is a separate event so that it cannot affect the samples: their number, their cost, or their counters if
    /// another user of the branches makes the kernel take turns.
    pub(super) fn open_branch_stacks(
        &mut self,
        config: &EventConfig,
        tasks: &Tasks,
        ids: &[Option<Tid>],
        cpus: &[CpuId],
    ) {
        let attributes = Attributes {
            exclude_kernel: true,
            registers: false,
            branch_stacks: true,
            lost: self.granted.counts_lost,
            ..self.attributes(config, tasks, false)
        };
        allow_files(self.samplers.len() + ids.len() * cpus.len() + 64);
        let opening = Opening { role: Role::BranchStacks, config: config.clone(), attributes, share: 1.0 };
        let mut places = ids.iter().flat_map(|task| cpus.iter().map(|cpu| (*task, *cpu)));
        let opened = places.try_for_each(|(task, cpu)| self.open_one(&opening, task, cpu));
        if opened.is_ok() && self.samplers.iter().any(|s| s.role == Role::BranchStacks) {
            self.openings.push(opening);
        } else {
            self.retain_samplers(|s| s.role != Role::BranchStacks);
        }
    }

    /// Opens an event beside the first one that is to carry call stacks, and hands over the share of its samples that have
    /// one. If the kernel refuses or there is not enough memory that may be locked, everything goes on without stacks.
    pub(super) fn open_call_stacks(
        &mut self,
        configs: &[EventConfig],
        tasks: &Tasks,
        ids: &[Option<Tid>],
        cpus: &[CpuId],
    ) {
        let with_stacks = (0..).zip(configs).find(|(_, config)| config.stacks > 0.0 && !config.is_wait());
        let Some((index, config)) = with_stacks.map(|(at, config)| (EventIndex(at), config)) else { return };
        let part = config.clone().part(config.stacks);
        for sizes in stack_sizes(&part, cpus.len()) {
            self.stacks = Some(sizes);
            let attributes = Attributes {
                registers: true,
                call_stack_bytes: sizes.stack,
                for_program: false,
                lost: self.granted.counts_lost,
                watermark_bytes: (sizes.ring / 2) as u32,
                ..self.attributes(&part, tasks, false)
            };
            allow_files(self.samplers.len() + ids.len() * cpus.len() + 64);
            let role = Role::CallStacks(index);
            let opening = Opening { role, config: part.clone(), attributes, share: config.stacks };
            let mut places = ids.iter().flat_map(|task| cpus.iter().map(|cpu| (*task, *cpu)));
            let opened = places.try_for_each(|(task, cpu)| self.open_one(&opening, task, cpu));
            if opened.is_ok() && self.samplers.iter().any(|s| s.role == role) {
                self.openings.push(opening);
                self.leave_to_stacks(index, 1.0 - config.stacks);
                return;
            }
            self.cpus.retain(|c| c.kind != RingKind::Stacks);
            self.retain_samplers(|s| s.role != role);
        }
        self.stacks = None;
    }

    /// Opens the event that reports each context switch, if the time off the CPU is wanted. Stacks are shorter than those of
    /// other samples, since a thread may wait a hundred thousand times a second.
    pub(super) fn open_waits(
        &mut self,
        configs: &[EventConfig],
        tasks: &Tasks,
        ids: &[Option<Tid>],
        cpus: &[CpuId],
    ) -> Result<(), CollectError> {
        let Some((index, config)) = (0..).zip(configs).find(|(_, config)| config.is_wait()) else {
            return Ok(());
        };
        let (role, config) = (Role::Waits(EventIndex(index)), EventConfig { period: 1, ..config.clone() });
        let mut refused = None;
        for sizes in wait_sizes(&config, cpus.len()) {
            self.waits = Some(sizes);
            let attributes = Attributes {
                registers: true,
                call_stack_bytes: sizes.stack,
                context_switches: true,
                lost: self.granted.counts_lost,
                watermark_bytes: (sizes.ring / 2) as u32,
                ..self.attributes(&config, tasks, false)
            };
            allow_files(self.samplers.len() + ids.len() * cpus.len() + 64);
            let opening = Opening { role, config: config.clone(), attributes, share: 1.0 };
            let mut places = ids.iter().flat_map(|task| cpus.iter().map(|cpu| (*task, *cpu)));
            match places.try_for_each(|(task, cpu)| self.open_one(&opening, task, cpu)) {
                Ok(()) => {
                    self.openings.push(opening);
                    return Ok(());
                }
                Err(error) => refused = Some(error),
            }
            self.cpus.retain(|c| c.kind != RingKind::Waits);
            self.retain_samplers(|s| s.role != role);
        }
        self.waits = None;
        refused.map_or(Ok(()), Err)
    }

    /// Leaves all but a share of an event's samples to the event that carries stacks.
    fn leave_to_stacks(&mut self, index: EventIndex, share: f64) {
        let role = Role::Sampled(index);
        // An event that never occurs still carries the side band.
        let share = share.max(1e-9);
        for opening in self.openings.iter_mut().filter(|opening| opening.role == role) {
            opening.config.period = of_share(opening.config.period, share);
            opening.share = share;
        }
        for sampler in self.samplers.iter_mut().filter(|s| s.role == role) {
            sampler.share = share;
            sampler.mean = of_share(sampler.mean, share);
            sampler.period.set_mean(sampler.mean);
            // It has not counted yet. If this fails, the event gives more samples than its share until the next rewrite.
            let _ = sampler.event.set_period(sampler.period.first());
        }
    }

    /// Returns the bytes of a ring.
    pub(super) fn bytes_of(&self, kind: RingKind) -> usize {
        match kind {
            RingKind::Records => self.ring_bytes,
            RingKind::Stacks => self.stacks.map_or(0, |sizes| sizes.ring),
            RingKind::Waits => self.waits.map_or(0, |sizes| sizes.ring),
        }
    }

    /// Opens the events of the whole machine on a CPU that has none. They are started if the others are running.
    pub(super) fn open_cpu(&mut self, cpu: CpuId) -> Result<(), CollectError> {
        let first = self.samplers.len();
        let openings = std::mem::take(&mut self.openings);
        let opened = openings.iter().try_for_each(|opening| {
            let is_needed = !matches!(opening.role, Role::BranchStacks | Role::CallStacks(_));
            self.open_one(opening, None, cpu).or_else(|error| if is_needed { Err(error) } else { Ok(()) })
        });
        self.openings = openings; // Also after a failure: there will be another attempt, or another CPU.
        opened?;
        let enable = |s: &Sampler| s.event.enable();
        if self.enabled {
            let started = self.samplers[first..].iter().try_for_each(enable);
            started.map_err(|source| CollectError::System { action: "start sampling", source })?;
        }
        Ok(())
    }

    fn attributes(&self, config: &EventConfig, tasks: &Tasks, first: bool) -> Attributes {
        Attributes {
            counter: config.counter,
            period: config.period,
            exclude_kernel: self.granted.user_only,
            // The timer of cpu-clock runs on an idle CPU; cycles stop there by themselves, and some PMUs refuse this
            // attribute.
            exclude_idle: config.is_timer(),
            inherit: !matches!(tasks, Tasks::All),
            enable_on_exec: matches!(tasks, Tasks::FromExec(_)),
            side_band: first,
            build_ids: true,
            lost: true,
            for_program: self.attach.is_some(),
            precise: config.precise,
            registers: self.granted.registers && config.samples_registers(),
            times: false,
            group: false,
            fields: false,
            branch_stacks: false,
            call_stack_bytes: 0,
            stack_bytes: 0,
            context_switches: false,
            watermark_bytes: (self.ring_bytes / 2) as u32,
        }
    }

    /// Finds out with one event which attributes this kernel permits.
    fn negotiate(
        &mut self,
        mut attributes: Attributes,
        tasks: &Tasks,
        config: &EventConfig,
        task: Option<Tid>,
        cpus: &[CpuId],
    ) -> Result<Attributes, CollectError> {
        let cpu = cpus.first().copied().unwrap_or(CpuId(0));
        let wants_registers = attributes.registers;
        loop {
            let Err(error) = PerfEvent::open(&attributes, task, cpu) else { break };
            match Errno::from_io_error(&error) {
                Some(Errno::ACCESS | Errno::PERM) if matches!(tasks, Tasks::All) => {
                    let why = refusal::explain(&error, Wanted::Machine, &Rights::now(Wanted::Machine));
                    return Err(CollectError::SystemDenied { why });
                }
                Some(Errno::ACCESS | Errno::PERM) if !attributes.exclude_kernel => {
                    attributes.exclude_kernel = true
                }
                Some(Errno::ACCESS | Errno::PERM) => {
                    return Err(denied(&error, tasks, task));
                }
                Some(Errno::NOSYS) => return Err(denied(&error, tasks, task)),
                Some(Errno::INVAL) if attributes.lost => attributes.lost = false, // The newest attribute.
                Some(Errno::INVAL | Errno::TOOBIG) if attributes.build_ids => attributes.build_ids = false,
                Some(Errno::INVAL | Errno::OPNOTSUPP) if attributes.registers => attributes.registers = false,
                Some(Errno::SRCH) => break, // This task just ended; the others may be alive.
                Some(e) if is_lacking(e, config) => {
                    let why =
                        "this machine does not count it (virtual machines often have no PMU)".to_owned();
                    let name = config.event.name().to_owned();
                    return Err(CollectError::NoSuchEvent { name, why, known: known_names() });
                }
                _ => {
                    return Err(CollectError::Open {
                        event: config.event.name().to_owned(),
                        cpu,
                        source: error,
                    });
                }
            }
        }
        self.granted.user_only |= attributes.exclude_kernel;
        self.granted.registers &= attributes.registers || !wants_registers;
        self.granted.counts_lost &= attributes.lost;
        Ok(attributes)
    }

    fn open_one(&mut self, opening: &Opening, task: Option<Tid>, cpu: CpuId) -> Result<(), CollectError> {
        let config = &opening.config;
        let failed = |source| CollectError::Open { event: config.event.name().to_owned(), cpu, source };
        let at = self.samplers.len();
        let mut period = RandomPeriod::new(config.period, opening.attributes.inherit, seed(at));
        let attributes = Attributes { period: period.first(), ..opening.attributes };
        let event = match PerfEvent::open(&attributes, task, cpu) {
            Ok(event) => event,
            // The thread ended, or the CPU went offline, after the list was read.
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::SRCH | Errno::NODEV)) => return Ok(()),
            Err(e) => return Err(failed(e)),
        };
        let kind = opening.role.ring();
        match self.cpus.iter().find(|c| c.cpu == cpu && c.kind == kind && !c.gone) {
            Some(ring) => event.set_output(&self.samplers[ring.owner].event).map_err(failed)?,
            // An event that may be closed early owns no ring. Without sampled events, branch stacks are not wanted either.
            None if opening.role == Role::BranchStacks => return Ok(()),
            None => {
                let ring = match self.bytes_of(kind) {
                    _ if kind == RingKind::Records => self.map_ring(&event)?,
                    bytes => {
                        Ring::map(&event, bytes).map_err(|source| CollectError::Ring { bytes, source })?
                    }
                };
                self.cpus.push(CpuRing { cpu, ring, kind, owner: at, hung_up: false, gone: false });
            }
        }
        if let (Some(attach), Role::Sampled(index)) = (&mut self.attach, opening.role) {
            attach(&event, index, cpu)?;
        }
        let id = event.id().map_err(failed)?;
        self.by_id.insert(id, at);
        match opening.role {
            Role::BranchStacks => _ = self.sample_fields.insert(id, SampleFields::Branches),
            Role::CallStacks(_) => _ = self.sample_fields.insert(id, SampleFields::CallStack),
            Role::Waits(_) if attributes.call_stack_bytes > 0 => {
                self.sample_fields.insert(id, SampleFields::CallStack);
            }
            Role::Waits(_) => {}
            Role::Sampled(_) | Role::SideBand => {}
        }
        let (mean, rewritten_ns) = (config.period, now_ns());
        self.samplers.push(Sampler {
            event,
            cpu,
            role: opening.role,
            period,
            mean,
            share: opening.share,
            samples_since: 0,
            lost: 0,
            times: EventTimes::default(),
            rewritten_ns,
            counts_time: config.is_timer() && task.is_none(),
        });
        Ok(())
    }

    /// Maps a ring. It is smaller if the user may not lock enough memory.
    fn map_ring(&mut self, event: &PerfEvent) -> Result<Ring, CollectError> {
        loop {
            match Ring::map(event, self.ring_bytes) {
                Ok(ring) => return Ok(ring),
                Err(_) if self.ring_bytes > RING_BYTES_FLOOR => self.ring_bytes /= 2,
                Err(source) => return Err(CollectError::Ring { bytes: self.ring_bytes, source }),
            }
        }
    }
}

/// Returns the tasks to open events for, in ascending order: the whole machine, or all threads that exist now.
pub(super) fn task_ids(tasks: &Tasks) -> Vec<Option<Tid>> {
    match tasks {
        Tasks::All => vec![None],
        Tasks::FromExec(pid) => vec![Some(pid.first_thread())],
        Tasks::Running(pids) => {
            let tree: BTreeSet<Pid> = pids.iter().flat_map(|pid| tree_of(*pid)).collect();
            let threads: BTreeSet<Tid> = tree.into_iter().flat_map(threads_of).collect();
            threads.into_iter().map(Some).collect()
        }
    }
}

/// Explains why the kernel permits no sampling of a task, and what to do.
fn denied(error: &io::Error, tasks: &Tasks, task: Option<Tid>) -> CollectError {
    let wanted = match (tasks, task) {
        (Tasks::Running(_), Some(task)) => Wanted::Process(Pid(task.0)),
        (Tasks::All, _) => Wanted::Machine,
        _ => Wanted::Command,
    };
    let what = match wanted {
        Wanted::Process(task) => format!("process {task}"),
        Wanted::Machine => "the whole machine".to_owned(),
        Wanted::Command => "the command".to_owned(),
    };
    CollectError::Denied { what, why: refusal::explain(error, wanted, &Rights::now(wanted)) }
}

/// Returns whether the error means that this machine lacks the event. For a cache event that the kernel knows to be
/// uncountable, the error is EINVAL.
pub fn is_lacking(errno: Errno, config: &EventConfig) -> bool {
    matches!(errno, Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV | Errno::NXIO)
        || errno == Errno::INVAL && config.counter.kind == abi::PERF_TYPE_HW_CACHE
}

/// Returns the bytes of a ring for samples of these events.
pub(super) fn ring_bytes(configs: &[EventConfig], branch_stacks: Option<&EventConfig>) -> usize {
    let samples = configs.iter().map(|p| p.rate_hz).sum::<f64>() * SAMPLE_BYTES;
    let bytes = (samples + branch_stacks.map_or(0.0, |p| p.rate_hz * STACK_BYTES)) * RING_SECONDS;
    (bytes as usize).next_power_of_two().clamp(RING_BYTES_MIN, RING_BYTES_MAX)
}

/// Returns the sizes to try for samples with stacks, the best first. Most stacks are shorter than the smallest size, which perf
/// uses; each costs only as many bytes as it has. A ring holds a quarter of a second, since a reader that is woken when it is
/// half full gets a processor soon, but less on machines with many CPUs, where rings add up.
fn stack_sizes(config: &EventConfig, cpus: usize) -> impl Iterator<Item = StackSizes> {
    const RING_SECONDS: f64 = 0.25;
    /// Bytes of all rings together.
    const RINGS_BYTES_MAX: usize = 64 << 20;
    /// The kernel takes less than 64 KiB, in words, and less still if the record would not fit its 16-bit size.
    const STACK_BYTES_MAX: u32 = (64 << 10) - 8;
    let sizes = [(STACK_BYTES_MAX, 2 << 20), (16 << 10, 512 << 10), (8 << 10, 128 << 10)];
    let rate_hz = config.rate_hz;
    sizes.into_iter().map(move |(stack, ring_min)| {
        let wanted = (rate_hz * f64::from(stack) * RING_SECONDS) as usize;
        let most = (RINGS_BYTES_MAX / cpus.max(1) + 1).next_power_of_two() / 2;
        StackSizes { stack, ring: wanted.next_power_of_two().min(most).clamp(ring_min, RING_BYTES_MAX) }
    })
}

/// Returns the sizes to try for context switches, the best first. The kernel reserves the whole size of a stack in the ring, but
/// copies only as many bytes as the stack has.
fn wait_sizes(config: &EventConfig, cpus: usize) -> impl Iterator<Item = StackSizes> {
    /// Bytes of all rings together.
    const RINGS_BYTES_MAX: usize = 64 << 20;
    let sizes = [(16 << 10, 8 << 20), (8 << 10, 1 << 20), (8 << 10, 128 << 10)];
    let most = (RINGS_BYTES_MAX / cpus.max(1) + 1).next_power_of_two() / 2;
    let has_stacks = config.stacks > 0.0;
    sizes.into_iter().map(move |(stack, ring): (u32, usize)| StackSizes {
        stack: if has_stacks { stack } else { 0 },
        ring: ring.min(most),
    })
}

/// Returns the seed of an event's random periods, different for each event and each run.
fn seed(at: usize) -> u64 {
    let mixed = now_ns()
        ^ (u64::from(std::process::id()) << 32)
        ^ (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed | 1
}

/// Raises the limit of open files as far as permitted. If that does not suffice, opening an event fails.
fn allow_files(count: usize) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = count as u64 + 256;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}
