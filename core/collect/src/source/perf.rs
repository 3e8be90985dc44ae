//! The backend of perf's ring buffers: one record for each sample.
//!
//! Enters: what to sample. Leaves: each CPU's records, handed to a [`Merger`]. Every CPU has one ring, into which all
//! events on it write, except for samples with call stacks, which have a ring of their own so that they never push out others; side-band records (mappings, executions, forks, exits) come with the first event of each task
//! or CPU. Inherited events cannot share a ring across CPUs, so a task gets one event for each CPU.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use dwell_profile::{CpuId, EventIndex, Tid};
use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Backend, Features, ROUND_MIN, Source, SourceTally, Tasks, cpus::online_cpus};
use crate::{
    CollectError,
    loss::LossCause,
    source::{
        events::EventConfig,
        merge::Merger,
        owned_record::{OwnedRecord, RawCallStack, SideBandRecord},
        period::{PERIODS_BETWEEN, RandomPeriod},
        records::{Body, SampleFields, parse_record_of, split_record},
    },
    sys::{
        clock::now_ns,
        event::{Attributes, PerfEvent},
        event_times::EventTimes,
        ring::Ring,
    },
};

mod counts;
mod cpu_watch;
mod open;
mod role;
#[cfg(test)]
mod tests;

use cpu_watch::CpuWatch;
pub use open::is_lacking;
use role::{RingKind, Role, StackSizes};

const ROUND_MAX: Duration = Duration::from_millis(100);
/// Interval between two searches for CPUs that came or went, and for revoked events.
const LOOK_EVERY_NS: u64 = 1_000_000_000;
/// Shortest interval between two rewrites of a period. A rewrite interrupts the event's CPU and costs 8 µs of it and of
/// ours.
const REWRITE_EVERY_NS: u64 = 250_000_000;
/// Upper bound of that interval, which grows as 1/64 of the time so far. A short run needs many draws, so that they are even
/// on average; a long run has many anyway.
const REWRITE_EVERY_MAX_NS: u64 = 4_000_000_000;
const DRAWS_NEEDED: u64 = 64;
/// Maximum number of attempts to open the events of running processes while threads are created.
const OPENINGS_MAX: u32 = 5;
/// Period of a sampled event that only carries the side band for a while: so long that no sample occurs.
const QUIET_PERIOD: u64 = 1 << 46;

/// A function that is called for each sampled event after it was opened, with its index and its CPU. It directs the samples
/// elsewhere than into the ring.
pub type Attach = Box<dyn FnMut(&PerfEvent, EventIndex, CpuId) -> Result<(), CollectError>>;

/// A source that samples through rings: open events and their rings.
pub struct PerfSource {
    cpus: Vec<CpuRing>,
    samplers: Vec<Sampler>,
    by_id: FxHashMap<u64, usize>,
    /// Ids of events whose samples have fields beside registers, including those of CPUs that went: their records may still
    /// be in a ring.
    sample_fields: FxHashMap<u64, SampleFields>,
    openings: Vec<Opening>,
    attach: Option<Attach>,
    granted: Granted,
    /// Number of threads that were created while events were opened.
    escaped: usize,
    /// Bytes of each ring.
    ring_bytes: usize,
    /// The size of stacks and of their rings; `None` if no stacks are sampled.
    stacks: Option<StackSizes>,
    /// The size of stacks of context switches, and of their rings; `None` if they are not reported.
    waits: Option<StackSizes>,
    enabled: bool,
    /// Whether the events of the side band have [`QUIET_PERIOD`].
    quiet: bool,
    /// Whether the events must be queried for losses.
    must_query_lost: bool,
    /// How long events counted on CPUs that went, by role.
    times_of_gone: BTreeMap<Role, EventTimes>,
    seen: Seen,
    /// Whether to report when threads begin and end.
    threads: bool,
    scratch: Vec<u8>,
    /// `None` where tasks are sampled, whose events were opened on all CPUs that existed.
    cpu_watch: Option<CpuWatch>,
    opened_ns: u64,
}

/// What the kernel grants, as far as it is known from the events that were opened.
#[derive(Clone, Copy)]
struct Granted {
    /// Whether only user mode is sampled.
    user_only: bool,
    /// Whether samples carry registers.
    registers: bool,
    /// Whether the kernel counts losses by event. Otherwise only records report losses, once the ring has room again.
    counts_lost: bool,
}

/// Tallies of the records that were read.
#[derive(Default)]
struct Seen {
    /// Samples by event and CPU.
    by_cpu: BTreeMap<(EventIndex, CpuId), u64>,
    /// Records that found no room, by event, not yet reported.
    lost: Vec<(Option<EventIndex>, u64)>,
    /// Records that could not be parsed, not yet reported.
    malformed: u64,
    /// Number of tasks that inherited the events.
    born: u64,
}

/// The way in which an event is opened on each CPU.
struct Opening {
    role: Role,
    config: EventConfig,
    attributes: Attributes,
    /// Share of its event's samples that it takes.
    share: f64,
}

struct CpuRing {
    cpu: CpuId,
    ring: Ring,
    kind: RingKind,
    /// Index of the sampler that owns it.
    owner: usize,
    /// Whether the owner's task has ended, so that polling would return at once.
    hung_up: bool,
    /// Whether the CPU or its events are gone. The rest of the ring must still be drained.
    gone: bool,
}

struct Sampler {
    event: PerfEvent,
    cpu: CpuId,
    role: Role,
    period: RandomPeriod,
    mean: u64,
    /// Share of its event's samples that it takes.
    share: f64,
    /// Samples since the period was last written, including those of tasks that inherited the event.
    samples_since: u64,
    rewritten_ns: u64,
    counts_time: bool,
    /// Number of records that found no room, at the last query.
    lost: u64,
    /// How long the event counted, at the last query.
    times: EventTimes,
}

impl PerfSource {
    /// Opens all events, disabled. The side band comes with the first configured event. The kernel cannot open an event for a
    /// whole process at once, so if a thread was created in the meantime, everything is opened again, a few times.
    /// `branch_stacks` is opened beside the others if the machine supports it.
    pub fn open(
        tasks: &Tasks,
        configs: &[EventConfig],
        registers: bool,
        branch_stacks: Option<&EventConfig>,
    ) -> Result<Self, CollectError> {
        PerfSource::open_listed(tasks, &mut || open::task_ids(tasks), configs, registers, branch_stacks)
    }

    fn open_listed(
        tasks: &Tasks,
        list: &mut dyn FnMut() -> Vec<Option<Tid>>,
        configs: &[EventConfig],
        registers: bool,
        branch_stacks: Option<&EventConfig>,
    ) -> Result<Self, CollectError> {
        let mut left = OPENINGS_MAX;
        loop {
            let ids = list();
            let mut source = PerfSource::opened(tasks, &ids, configs, registers, branch_stacks)?;
            left -= 1;
            source.escaped = list().iter().filter(|id| ids.binary_search(id).is_err()).count();
            if source.escaped == 0 || left == 0 {
                return Ok(source);
            }
        }
    }

    fn opened(
        tasks: &Tasks,
        ids: &[Option<Tid>],
        configs: &[EventConfig],
        registers: bool,
        branch_stacks: Option<&EventConfig>,
    ) -> Result<Self, CollectError> {
        let mut indexed = sampled(configs).collect::<Vec<_>>();
        if indexed.is_empty() {
            indexed.push((Role::SideBand, EventConfig::side_band()));
        }
        let mut source = PerfSource::empty(tasks, registers, open::ring_bytes(configs, branch_stacks));
        let cpus = online_cpus()?;
        source.open_all(&indexed, tasks, ids, &cpus)?;
        source.open_call_stacks(configs, tasks, ids, &cpus);
        source.open_waits(configs, tasks, ids, &cpus)?;
        if let Some(config) = branch_stacks {
            source.open_branch_stacks(config, tasks, ids, &cpus);
        }
        Ok(source)
    }

    /// Opens the events of the whole machine on these CPUs, disabled, and passes each sampled event to `attach`, since its
    /// samples do not go into the rings. The side band comes with an event that counts nothing.
    pub fn open_attached(
        configs: &[EventConfig],
        cpus: &[CpuId],
        attach: Attach,
    ) -> Result<Self, CollectError> {
        let indexed: Vec<_> =
            std::iter::once((Role::SideBand, EventConfig::side_band())).chain(sampled(configs)).collect();
        let mut source = PerfSource::empty(&Tasks::All, false, open::ring_bytes(&[], None));
        source.attach = Some(attach);
        source.open_all(&indexed, &Tasks::All, &[None], cpus)?;
        source.open_call_stacks(configs, &Tasks::All, &[None], cpus);
        Ok(source)
    }

    fn empty(tasks: &Tasks, registers: bool, ring_bytes: usize) -> Self {
        PerfSource {
            cpus: Vec::new(),
            samplers: Vec::new(),
            by_id: FxHashMap::default(),
            sample_fields: FxHashMap::default(),
            openings: Vec::new(),
            attach: None,
            granted: Granted { user_only: false, registers, counts_lost: true },
            escaped: 0,
            ring_bytes,
            stacks: None,
            waits: None,
            enabled: false,
            quiet: false,
            must_query_lost: false,
            times_of_gone: BTreeMap::new(),
            seen: Seen::default(),
            threads: false,
            scratch: Vec::new(),
            cpu_watch: matches!(tasks, Tasks::All).then(CpuWatch::new),
            opened_ns: now_ns(),
        }
    }

    /// Reports from now on when threads begin and end.
    pub fn report_threads(&mut self) {
        self.threads = true;
    }

    /// Waits until a ring is half full, a descriptor in `other` is readable, or `timeout` has passed.
    pub fn wait_with(&mut self, timeout: Duration, other: &[BorrowedFd<'_>]) {
        let samplers = &self.samplers;
        let live = || self.cpus.iter().enumerate().filter(|(_, c)| !c.hung_up && !c.gone);
        let rings = live().map(|(_, c)| samplers[c.owner].event.fd().as_fd());
        let mut polled: Vec<PollFd<'_>> = rings
            .chain(other.iter().copied())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let _ = poll(&mut polled, Timespec::try_from(timeout).ok().as_ref()); // A signal only ends the wait.
        let gone: Vec<usize> =
            live().zip(&polled).filter(|(_, p)| is_hung_up(p)).map(|((at, _), _)| at).collect();
        gone.into_iter().for_each(|at| self.cpus[at].hung_up = true);
    }

    /// Adds samples of an event on a CPU that did not come through its ring. Periods are redrawn after a number of samples.
    pub fn sampled_elsewhere(&mut self, cpu: CpuId, event: EventIndex, samples: u64) {
        let elsewhere = |s: &&mut Sampler| s.cpu == cpu && s.role == Role::Sampled(event);
        self.samplers.iter_mut().filter(elsewhere).for_each(|s| s.samples_since += samples);
    }

    fn retain_samplers(&mut self, keep: impl Fn(&Sampler) -> bool) {
        let mut moved = vec![None; self.samplers.len()];
        self.samplers.iter().enumerate().filter(|(_, s)| keep(s)).zip(0..).for_each(|((from, _), to)| {
            moved[from] = Some(to);
        });
        self.samplers.retain(&keep);
        self.by_id.retain(|_, at| moved[*at].map(|to| *at = to).is_some());
        self.cpus.iter_mut().filter(|c| !c.gone).for_each(|c| c.owner = moved[c.owner].unwrap_or(0));
    }

    fn each(
        &self,
        action: &'static str,
        f: impl Fn(&PerfEvent) -> io::Result<()>,
    ) -> Result<(), CollectError> {
        self.samplers
            .iter()
            .try_for_each(|s| f(&s.event))
            .map_err(|source| CollectError::System { action, source })
    }

    fn parse(&mut self, cpu: CpuId, mut bytes: &[u8], merger: &mut Merger<OwnedRecord>) {
        while let Some(split) = split_record(bytes) {
            let Ok((record, rest)) = split else {
                self.seen.malformed += 1; // It is unknown where the next one starts.
                return;
            };
            bytes = rest;
            self.parse_one(cpu, record, merger);
        }
    }

    fn parse_one(&mut self, cpu: CpuId, bytes: &[u8], merger: &mut Merger<OwnedRecord>) {
        let fields_of = |id| self.sample_fields.get(&id).copied().unwrap_or_default();
        let Ok(record) = parse_record_of(bytes, fields_of) else {
            self.seen.malformed += 1;
            return;
        };
        // Children have their own events under the same id. A CPU that went has none any more.
        let at = self.by_id.get(&record.event_id).copied().unwrap_or(0);
        let role = self.samplers.get(at).map_or(Role::Sampled(EventIndex(0)), |sampler| sampler.role);
        let is_sample = matches!(record.body, Body::Sample(_) | Body::SampleWithStack(..));
        let is_counted = is_sample && !matches!(role, Role::Waits(_));
        if let Some(sampler) = self.samplers.get_mut(at) {
            sampler.samples_since += u64::from(is_counted || matches!(record.body, Body::Branches(_)));
        }
        let event = role.counted();
        if matches!(record.body, Body::Fork { .. }) && self.cpu_watch.is_none() {
            self.seen.born += 1;
        }
        if let Some(event) = event.filter(|_| is_counted) {
            *self.seen.by_cpu.entry((event, cpu)).or_default() += 1;
        }
        if matches!(record.body, Body::Lost(_)) && self.granted.counts_lost {
            self.must_query_lost = true; // The events know how many each of them lost.
            return;
        }
        if self.threads
            && let Some(item) = OwnedRecord::of_thread(&record.body)
        {
            merger.push(record.time_ns, item);
        }
        let item = match record.body {
            Body::Sample(sample) if !is_counted => {
                Some(OwnedRecord::BeginWait(sample, Box::<RawCallStack>::default()))
            }
            Body::SampleWithStack(sample, stack) if !is_counted => {
                Some(OwnedRecord::BeginWait(sample, Box::new(stack.into())))
            }
            body => OwnedRecord::from_body(event, body),
        };
        if let Some(mut item) = item {
            if let OwnedRecord::Sample(_, sample)
            | OwnedRecord::SampleWithStack(_, sample, _)
            | OwnedRecord::BeginWait(sample, _) = &mut item
            {
                sample.cpu = Some(cpu); // Each CPU has its rings.
            }
            merger.push(record.time_ns, item);
        }
    }
}

impl Source for PerfSource {
    fn backend(&self) -> Backend {
        Backend::Perf
    }

    fn features(&self) -> Features {
        Features {
            user_only: self.granted.user_only,
            registers: self.granted.registers,
            branch_stacks: self.openings.iter().any(|o| o.role == Role::BranchStacks),
            escaped: self.escaped,
            call_stacks: self.stacks.is_some() || self.waits.is_some_and(|sizes| sizes.stack > 0),
            shared_bytes: self.cpus.iter().map(|c| self.bytes_of(c.kind)).sum(),
        }
    }

    fn enable_side_band(&mut self) -> Result<(), CollectError> {
        let Some(first) = self.openings.first().map(|o| o.role).filter(|_| self.cpu_watch.is_some()) else {
            return Ok(());
        };
        self.quiet = first != Role::SideBand;
        let failed = |source| CollectError::System { action: "start the side band", source };
        for sampler in self.samplers.iter().filter(|s| s.role == first) {
            if self.quiet {
                sampler.event.set_period(QUIET_PERIOD).map_err(failed)?;
            }
            sampler.event.enable().map_err(failed)?;
        }
        Ok(())
    }

    fn enable(&mut self) -> Result<(), CollectError> {
        self.enabled = true;
        if std::mem::take(&mut self.quiet) {
            let first = self.openings.first().map(|o| o.role);
            for sampler in self.samplers.iter_mut().filter(|s| Some(s.role) == first) {
                let started = sampler.event.set_period(sampler.period.first());
                started.map_err(|source| CollectError::System { action: "start sampling", source })?;
            }
        }
        let now = now_ns();
        self.samplers.iter_mut().for_each(|s| s.rewritten_ns = now);
        self.each("start sampling", PerfEvent::enable)
    }

    fn disable(&mut self) -> Result<(), CollectError> {
        self.enabled = false;
        self.must_query_lost = self.granted.counts_lost; // A full ring reports losses only with a later record.
        self.each("stop sampling", PerfEvent::disable)
    }

    /// Returns the time until enough periods have passed to rewrite them. Inherited events could wait longer, but processes that
    /// live for a moment must be looked at, and names of generated code read, before they are gone.
    fn round(&self) -> Duration {
        let sampled = self.samplers.iter().filter(|s| s.role.sampled().is_some());
        let shortest = sampled.filter(|s| s.counts_time || s.mean > 1).map(|s| s.mean).min();
        let nanoseconds = shortest.map(|mean| (PERIODS_BETWEEN * mean as f64) as u64);
        nanoseconds.map_or(ROUND_MIN, Duration::from_nanos).clamp(ROUND_MIN, ROUND_MAX)
    }

    fn wait(&mut self, timeout: Duration, wake: Option<BorrowedFd<'_>>) {
        self.wait_with(timeout, wake.as_slice());
    }

    fn drain(&mut self, merger: &mut Merger<OwnedRecord>) -> u64 {
        let before_ns = now_ns();
        let mut cpus = std::mem::take(&mut self.cpus);
        let mut bytes = std::mem::take(&mut self.scratch);
        for CpuRing { cpu, ring, kind, .. } in &mut cpus {
            match kind {
                RingKind::Records => {
                    bytes.clear();
                    ring.drain(&mut bytes);
                    self.parse(*cpu, &bytes, merger);
                }
                RingKind::Stacks | RingKind::Waits => {
                    ring.each_record(&mut bytes, |record| self.parse_one(*cpu, record, merger));
                }
            }
        }
        cpus.retain(|c| !c.gone);
        (self.cpus, self.scratch) = (cpus, bytes);
        if std::mem::take(&mut self.must_query_lost) {
            self.ask();
        }
        for (event, records) in self.seen.lost.drain(..) {
            let side = SideBandRecord::Lost { event, records, cause: LossCause::RingFull };
            merger.push(before_ns, OwnedRecord::SideBand(Box::new(side)));
        }
        before_ns
    }

    /// Draws new periods for events that have used theirs for long enough.
    fn tend(&mut self, warn: &mut dyn FnMut(String)) {
        let now = now_ns();
        if let Some(watch) = self.cpu_watch.as_mut().filter(|watch| now >= watch.next_look_ns) {
            watch.next_look_ns = now + LOOK_EVERY_NS;
            self.look_for_cpus(warn);
        }
        for sampler in &mut self.samplers {
            let passed = sampler.periods_passed(now);
            let rests = sampler.rewritten_ns + rewrite_every_ns(now.saturating_sub(self.opened_ns)) > now;
            if !rests && sampler.period.is_due(passed) {
                sampler.rewrite(passed, now);
            }
        }
    }

    fn set_periods(&mut self, periods: &[u64]) {
        for opening in &mut self.openings {
            let period = opening.role.sampled().and_then(|index| periods.get(index.index()));
            opening.config.period =
                period.map_or(opening.config.period, |period| of_share(*period, opening.share));
        }
        let now = now_ns();
        for sampler in &mut self.samplers {
            let Some(index) = sampler.role.sampled() else { continue };
            let Some(period) = periods.get(index.index()) else { continue };
            sampler.set_mean(*period, now);
        }
    }

    fn tally(&self) -> SourceTally {
        SourceTally { by_cpu: self.seen.by_cpu.clone(), born: self.seen.born, ..SourceTally::default() }
    }

    fn times(&mut self) -> Vec<EventTimes> {
        self.query_times()
    }

    fn take_malformed(&mut self) -> u64 {
        std::mem::take(&mut self.seen.malformed)
    }
}

impl Sampler {
    /// Sets the mean period of its event, of whose samples it takes its share.
    fn set_mean(&mut self, period: u64, now_ns: u64) {
        let passed = self.periods_passed(now_ns);
        self.mean = of_share(period, self.share);
        self.period.set_mean(self.mean);
        self.rewrite(passed, now_ns);
    }

    /// Draws and writes a new period. If that fails (on a busy machine the round may be late) the current period remains,
    /// which is harmless.
    fn rewrite(&mut self, passed: f64, now_ns: u64) {
        if self.event.set_period(self.period.next(passed)).is_ok() {
            (self.samples_since, self.rewritten_ns) = (0, now_ns);
        }
    }

    /// Returns how many periods have passed since the last rewrite. A CPU's timer runs always, other events only while they
    /// are counted.
    fn periods_passed(&self, now_ns: u64) -> f64 {
        if self.counts_time {
            now_ns.saturating_sub(self.rewritten_ns) as f64 / self.mean as f64
        } else {
            self.samples_since as f64
        }
    }
}

/// Returns the configurations of events with a period as sampled events, in their order. Samples with stacks are not among them.
fn sampled(configs: &[EventConfig]) -> impl Iterator<Item = (Role, EventConfig)> {
    let indexed = (0..).zip(configs).filter(|(_, config)| !config.is_wait());
    indexed.map(|(index, config)| (Role::Sampled(EventIndex(index)), config.clone()))
}

/// Returns the period of an event that takes a share of the samples that another one with `period` would take.
fn of_share(period: u64, share: f64) -> u64 {
    ((period as f64 / share).round() as u64).max(1)
}

/// Returns the interval between rewrites of periods after this much time.
fn rewrite_every_ns(elapsed_ns: u64) -> u64 {
    (elapsed_ns / DRAWS_NEEDED).clamp(REWRITE_EVERY_NS, REWRITE_EVERY_MAX_NS)
}

fn is_hung_up(polled: &PollFd<'_>) -> bool {
    polled.revents().intersects(PollFlags::HUP | PollFlags::ERR)
}
