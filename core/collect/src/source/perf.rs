//! Ring buffers of perf events: a record for each sample.
//!
//! Enters: what to sample. Leaves: each CPU's records, handed to a [`Merger`]. Every CPU has one ring, into which all
//! events on it write; side-band records (mappings, executions, forks, exits) come with the first event of each task
//! or CPU. Inherited events cannot share a ring across CPUs, so a task gets one event for each CPU.

use std::{collections::BTreeMap, io, os::fd::AsFd, time::Duration};

use rustc_hash::FxHashMap;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use super::{Backend, Features, ROUND_MIN, Source, SourceTally, Tasks, cpus::online_cpus, now_ns, paranoid};
use crate::{
    CollectError,
    events::{Plan, known_names},
    items::Item,
    merge::Merger,
    period::{PERIODS_BETWEEN, RandomPeriod},
    records::{Body, parse_record, split_record},
    sys::{
        event::{Attributes, PerfEvent},
        ring::Ring,
    },
};

/// Bytes of a sample with registers: header, identifier, pc, pid and tid, time, register ABI, registers.
const SAMPLE_BYTES: f64 = 184.0;
/// A ring holds about that much time at the full rate.
const RING_SECONDS: f64 = 1.0;
const RING_BYTES_MIN: usize = 512 << 10;
const RING_BYTES_MAX: usize = 16 << 20;
/// Below that we give up.
const RING_BYTES_FLOOR: usize = 64 << 10;
const ROUND_MAX: Duration = Duration::from_millis(100);

/// Open events and rings.
pub struct PerfSource {
    cpus: Vec<CpuRing>,
    samplers: Vec<Sampler>,
    by_id: FxHashMap<u64, usize>,
    /// User mode only, since the kernel allows no more.
    user_only: bool,
    /// Whether samples carry registers.
    registers: bool,
    /// Bytes of each ring.
    ring_bytes: usize,
    malformed: u64,
    by_cpu: BTreeMap<(u8, u32), u64>,
    scratch: Vec<u8>,
}

struct CpuRing {
    cpu: u32,
    ring: Ring,
    /// Index of the sampler that owns it.
    owner: usize,
    /// The owner's task is gone, so polling would not wait.
    hung_up: bool,
}

struct Sampler {
    event: PerfEvent,
    event_index: u8,
    period: RandomPeriod,
    mean: u64,
    /// Samples since the period was last written, those of whoever inherited the event included.
    samples_since: u64,
    rewritten_ns: u64,
    counts_time: bool,
}

impl PerfSource {
    /// Opens everything, disabled.
    pub fn open(tasks: &Tasks, plans: &[Plan], registers: bool) -> Result<Self, CollectError> {
        let cpus = online_cpus()?;
        let ids: Vec<Option<u32>> = match tasks {
            Tasks::All => vec![None],
            Tasks::Running(tids) => tids.iter().copied().map(Some).collect(),
            Tasks::FromExec(pid) => vec![Some(*pid)],
        };
        allow_files(ids.len() * cpus.len() * plans.len() + 64);
        let mut source = PerfSource {
            cpus: Vec::new(),
            samplers: Vec::new(),
            by_id: FxHashMap::default(),
            user_only: false,
            registers,
            ring_bytes: ring_bytes(plans),
            malformed: 0,
            by_cpu: BTreeMap::new(),
            scratch: Vec::new(),
        };
        for (index, plan) in plans.iter().enumerate() {
            let first = source.attributes(plan, tasks, index == 0);
            let agreed = source.negotiate(first, tasks, plan, ids.first().copied().flatten(), &cpus)?;
            for (task, cpu) in ids.iter().flat_map(|task| cpus.iter().map(|cpu| (*task, *cpu))) {
                source.open_one(&agreed, plan, index as u8, task, cpu)?;
            }
        }
        if source.samplers.is_empty() {
            return Err(CollectError::NoSuchProcess(ids.first().copied().flatten().unwrap_or(0)));
        }
        Ok(source)
    }

    fn attributes(&self, plan: &Plan, tasks: &Tasks, first: bool) -> Attributes {
        Attributes {
            counter: plan.counter,
            period: plan.period,
            exclude_kernel: self.user_only,
            // The timer of cpu-clock runs on an idle CPU; cycles stop there by themselves, and some PMUs refuse this.
            exclude_idle: plan.is_timer(),
            inherit: !matches!(tasks, Tasks::All),
            enable_on_exec: matches!(tasks, Tasks::FromExec(_)),
            side_band: first,
            build_ids: true,
            registers: self.registers,
            watermark_bytes: (self.ring_bytes / 2) as u32,
        }
    }

    /// Finds out, with one event, what this kernel allows.
    fn negotiate(
        &mut self,
        mut attributes: Attributes,
        tasks: &Tasks,
        plan: &Plan,
        task: Option<u32>,
        cpus: &[u32],
    ) -> Result<Attributes, CollectError> {
        let cpu = cpus.first().copied().unwrap_or(0);
        loop {
            let Err(error) = PerfEvent::open(&attributes, task, cpu) else { break };
            match Errno::from_io_error(&error) {
                Some(Errno::ACCESS | Errno::PERM) if matches!(tasks, Tasks::All) => {
                    return Err(CollectError::SystemDenied { paranoid: paranoid() });
                }
                Some(Errno::ACCESS | Errno::PERM) if !attributes.exclude_kernel => {
                    attributes.exclude_kernel = true
                }
                Some(Errno::ACCESS | Errno::PERM) => {
                    let what = task.map_or("the command".to_owned(), |t| format!("process {t}"));
                    return Err(CollectError::Denied { what, paranoid: paranoid() });
                }
                Some(Errno::INVAL | Errno::TOOBIG) if attributes.build_ids => attributes.build_ids = false,
                Some(Errno::INVAL | Errno::OPNOTSUPP) if attributes.registers => attributes.registers = false,
                Some(Errno::SRCH) => break, // It ended just now; the others may live.
                Some(Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV | Errno::NXIO) => {
                    let why =
                        "this machine does not count it (virtual machines often have no PMU)".to_owned();
                    let name = plan.event.name().to_owned();
                    return Err(CollectError::NoSuchEvent { name, why, known: known_names() });
                }
                _ => {
                    return Err(CollectError::Open {
                        event: plan.event.name().to_owned(),
                        cpu,
                        source: error,
                    });
                }
            }
        }
        self.user_only |= attributes.exclude_kernel;
        self.registers &= attributes.registers;
        Ok(attributes)
    }

    fn open_one(
        &mut self,
        attributes: &Attributes,
        plan: &Plan,
        event_index: u8,
        task: Option<u32>,
        cpu: u32,
    ) -> Result<(), CollectError> {
        let failed = |source| CollectError::Open { event: plan.event.name().to_owned(), cpu, source };
        let at = self.samplers.len();
        let mut period = RandomPeriod::new(plan.period, attributes.inherit, seed(at));
        let attributes = Attributes { period: period.first(), ..*attributes };
        let event = match PerfEvent::open(&attributes, task, cpu) {
            Ok(event) => event,
            // The thread ended, or the CPU went offline, since we looked.
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::SRCH | Errno::NODEV)) => return Ok(()),
            Err(e) => return Err(failed(e)),
        };
        match self.cpus.iter().find(|c| c.cpu == cpu) {
            Some(ring) => event.set_output(&self.samplers[ring.owner].event).map_err(failed)?,
            None => {
                let ring = self.map_ring(&event)?;
                self.cpus.push(CpuRing { cpu, ring, owner: at, hung_up: false });
            }
        }
        self.by_id.insert(event.id().map_err(failed)?, at);
        let (mean, counts_time, rewritten_ns) = (plan.period, plan.is_timer() && task.is_none(), now_ns());
        self.samplers.push(Sampler {
            event,
            event_index,
            period,
            mean,
            samples_since: 0,
            rewritten_ns,
            counts_time,
        });
        Ok(())
    }

    /// Maps a ring, smaller where the user may not lock more memory.
    fn map_ring(&mut self, event: &PerfEvent) -> Result<Ring, CollectError> {
        loop {
            match Ring::map(event, self.ring_bytes) {
                Ok(ring) => return Ok(ring),
                Err(_) if self.ring_bytes > RING_BYTES_FLOOR => self.ring_bytes /= 2,
                Err(source) => return Err(CollectError::Ring { bytes: self.ring_bytes, source }),
            }
        }
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

    fn parse(&mut self, cpu: u32, mut bytes: &[u8], merger: &mut Merger<Item>) {
        while let Some(split) = split_record(bytes) {
            let Ok((record, rest)) = split else {
                self.malformed += 1; // Nothing tells where the next one starts.
                return;
            };
            bytes = rest;
            match parse_record(record) {
                Ok(record) => {
                    // Children have events of their own, under the same id.
                    let sampler = &mut self.samplers[self.by_id.get(&record.event_id).copied().unwrap_or(0)];
                    let event = sampler.event_index;
                    if matches!(record.body, Body::Sample(_)) {
                        sampler.samples_since += 1;
                        *self.by_cpu.entry((event, cpu)).or_default() += 1;
                    }
                    if let Some(item) = Item::from_body(event, record.body) {
                        merger.push(record.time_ns, item);
                    }
                }
                Err(_) => self.malformed += 1,
            }
        }
    }
}

impl Source for PerfSource {
    fn backend(&self) -> Backend {
        Backend::Perf
    }

    fn features(&self) -> Features {
        Features {
            user_only: self.user_only,
            registers: self.registers,
            aggregates: false,
            shared_bytes: self.ring_bytes * self.cpus.len(),
        }
    }

    fn enable(&mut self) -> Result<(), CollectError> {
        self.each("start sampling", PerfEvent::enable)
    }

    fn disable(&mut self) -> Result<(), CollectError> {
        self.each("stop sampling", PerfEvent::disable)
    }

    /// Until enough periods have passed to rewrite them.
    fn round(&self) -> Duration {
        let shortest = self.samplers.iter().filter(|s| s.counts_time || s.mean > 1).map(|s| s.mean).min();
        let nanoseconds = PERIODS_BETWEEN * shortest.unwrap_or(0) as f64;
        Duration::from_nanos(nanoseconds as u64).clamp(ROUND_MIN, ROUND_MAX)
    }

    /// Until a ring is half full or the time is over.
    fn wait(&mut self, timeout: Duration) {
        let samplers = &self.samplers;
        let live = || self.cpus.iter().enumerate().filter(|(_, c)| !c.hung_up);
        let mut polled: Vec<PollFd<'_>> = live()
            .map(|(_, c)| PollFd::from_borrowed_fd(samplers[c.owner].event.fd().as_fd(), PollFlags::IN))
            .collect();
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let _ = poll(&mut polled, Some(&timeout)); // A signal only ends the wait.
        let hung_up = |p: &PollFd<'_>| p.revents().intersects(PollFlags::HUP | PollFlags::ERR);
        let gone: Vec<usize> =
            live().zip(&polled).filter(|(_, p)| hung_up(p)).map(|((at, _), _)| at).collect();
        gone.into_iter().for_each(|at| self.cpus[at].hung_up = true);
    }

    fn drain(&mut self, merger: &mut Merger<Item>) -> u64 {
        let before_ns = now_ns();
        for at in 0..self.cpus.len() {
            let mut bytes = std::mem::take(&mut self.scratch);
            bytes.clear();
            self.cpus[at].ring.drain(&mut bytes);
            self.parse(self.cpus[at].cpu, &bytes, merger);
            self.scratch = bytes;
        }
        before_ns
    }

    /// Draws new periods for the events that have got far enough with theirs.
    fn tend(&mut self, _warn: &mut dyn FnMut(String)) {
        let now = now_ns();
        for sampler in &mut self.samplers {
            let passed = sampler.periods_passed(now);
            if !sampler.period.is_due(passed) {
                continue;
            }
            sampler.rewrite(passed, now);
        }
    }

    fn set_periods(&mut self, periods: &[u64]) {
        let now = now_ns();
        for sampler in &mut self.samplers {
            let Some(period) = periods.get(usize::from(sampler.event_index)) else { continue };
            let passed = sampler.periods_passed(now);
            sampler.mean = *period;
            sampler.period.set_mean(*period);
            sampler.rewrite(passed, now);
        }
    }

    fn tally(&self) -> SourceTally {
        SourceTally { by_cpu: self.by_cpu.clone(), table: None }
    }

    fn take_malformed(&mut self) -> u64 {
        std::mem::take(&mut self.malformed)
    }
}

impl Sampler {
    /// Where it fails (on a busy machine the round may be late) the period in force goes on, which harms nothing.
    fn rewrite(&mut self, passed: f64, now_ns: u64) {
        if self.event.set_period(self.period.next(passed)).is_ok() {
            (self.samples_since, self.rewritten_ns) = (0, now_ns);
        }
    }

    /// How many periods it went on with the last one: a CPU's timer runs always, the rest only while counted.
    fn periods_passed(&self, now_ns: u64) -> f64 {
        if self.counts_time {
            now_ns.saturating_sub(self.rewritten_ns) as f64 / self.mean as f64
        } else {
            self.samples_since as f64
        }
    }
}

impl Plan {
    /// Whether the kernel samples it by a timer.
    pub fn is_timer(&self) -> bool {
        self.unit == dwell_profile::Unit::Nanoseconds
    }
}

fn ring_bytes(plans: &[Plan]) -> usize {
    let bytes = plans.iter().map(|p| p.rate_hz).sum::<f64>() * SAMPLE_BYTES * RING_SECONDS;
    (bytes as usize).next_power_of_two().clamp(RING_BYTES_MIN, RING_BYTES_MAX)
}

/// Each event draws its own sequence, another one each time.
fn seed(at: usize) -> u64 {
    let mixed = now_ns()
        ^ (u64::from(std::process::id()) << 32)
        ^ (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed | 1
}

/// Raises the limit of open files, as far as allowed; what it does not reach shows when an event cannot be opened.
fn allow_files(count: usize) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = count as u64 + 256;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}
