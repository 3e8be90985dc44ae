//! Path bursts: whom to single-step, and when, so that it costs no more than was allowed.
//!
//! Enters: the target's CPU time so far and a thread that ran just now. Leaves: bursts, as items among the records.
//! Never here: what addresses mean ([`crate::transfers`]), ptrace ([`crate::sys::stepper`]).
//!
//! A burst begins at a random moment of the target's CPU time: when that reaches a randomly drawn mark, the thread of
//! the latest sample is taken, after a short random delay, if it is running then. Distances between marks are drawn
//! exponentially, so that no time of a run is likelier than another; their mean is what a burst costs over the budget.
//! The cost is measured, not assumed.

use std::{collections::BTreeMap, io};

use dwell_profile::PathsRecord;

use crate::{
    items::RawBurst,
    source::now_ns,
    sys::stepper::{Ending, Stepper},
};

/// Steps of a burst. Its first branches are those of a moment that time chose; long bursts wash that out
/// (DESIGN.md §5).
const STEPS: usize = 1024;
/// What a burst costs, before one was measured: 11 µs a step on a machine of its own (DESIGN.md), 19 to 50 on a busy one.
/// Rather too much: a short run whose budget the first burst exceeds would be stepped at its beginning only.
const COST_NS_FIRST: f64 = 40e6;
/// The random delay before a burst is below that.
const DELAY_NS_MAX: u64 = 10_000_000;
/// A refused thread is gone or waits; try the next one after that much CPU time.
const RETRY_CPU_NS: f64 = 5e6;
/// At the end, a burst that goes on is waited for that long.
const LAST_MS: i32 = 500;
/// A burst that takes longer, since the thread cannot even be stopped, is no longer waited for by the samples.
const WAIT_NS_MAX: u64 = 2_000_000_000;
/// Why there are no more bursts, where the helper was killed.
const HELPER_ENDED: &str = "the stepping process ended";

/// Asks for bursts, one at a time.
pub struct Paths {
    stepper: Option<Stepper>,
    /// Share of the target's CPU time.
    budget: f64,
    next_cpu_ns: Option<f64>,
    asked: Option<Asked>,
    cost_ns: f64,
    record: PathsRecord,
    random: u64,
}

/// A burst that was asked for.
#[derive(Clone, Copy)]
struct Asked {
    pid: u32,
    tid: u32,
    at_ns: u64,
    cpu_ns: f64,
}

impl Paths {
    /// Starts the process that steps. To be called early: it is a fork of this one.
    pub fn start(budget_percent: f64) -> io::Result<Self> {
        Ok(Paths {
            stepper: Some(Stepper::fork()?),
            budget: budget_percent / 100.0,
            next_cpu_ns: None,
            asked: None,
            cost_ns: COST_NS_FIRST,
            record: PathsRecord { budget_percent, ..PathsRecord::default() },
            random: now_ns() | 1,
        })
    }

    /// The process that steps: who must be allowed to trace.
    pub fn tracer(&self) -> Option<u32> {
        self.stepper.as_ref().map(Stepper::pid)
    }

    /// What was done so far.
    pub fn record(&self) -> &PathsRecord {
        &self.record
    }

    /// Samples from that time on may be those of a thread while it is stepped: they must wait for the answer, but not
    /// for ever, since a thread that waits for a disk uninterruptibly keeps the helper waiting too.
    pub fn since_ns(&self) -> Option<u64> {
        self.asked.map(|a| a.at_ns).filter(|at_ns| now_ns().saturating_sub(*at_ns) < WAIT_NS_MAX)
    }

    /// Asks for a burst of that thread if it is time: `cpu_ns` is the target's CPU time so far.
    pub fn offer(&mut self, pid: u32, tid: u32, cpu_ns: f64) {
        let next = match self.next_cpu_ns {
            Some(next) => next,
            None => self.draw(cpu_ns),
        };
        if self.asked.is_some() || cpu_ns < next {
            return;
        }
        if self.record.stepping_ns as f64 > self.budget * cpu_ns {
            // Not as soon as the budget allows it again: that would be no random time.
            self.draw(cpu_ns);
            return;
        }
        let delay_ns = (self.uniform() * DELAY_NS_MAX as f64) as u64;
        let Some(stepper) = &mut self.stepper else { return };
        match stepper.request(pid, tid, STEPS, delay_ns) {
            Ok(()) => self.asked = Some(Asked { pid, tid, at_ns: now_ns(), cpu_ns }),
            Err(_) => self.give_up(),
        }
    }

    /// The burst that was asked for, once it is over. The time is when it began.
    pub fn take(&mut self) -> Option<(u64, RawBurst)> {
        self.take_within(0)
    }

    /// The same at the end of collection: waits for it, but not for ever.
    pub fn take_last(&mut self) -> Option<(u64, RawBurst)> {
        self.take_within(LAST_MS)
    }

    fn take_within(&mut self, timeout_ms: i32) -> Option<(u64, RawBurst)> {
        let asked = self.asked?;
        let steps = match self.stepper.as_mut()?.reply(timeout_ms) {
            Ok(steps) => steps?,
            Err(_) => {
                self.give_up();
                return None;
            }
        };
        self.asked = None;
        self.record.cpu_ns = asked.cpu_ns as u64;
        if steps.ending.is_refusal() && steps.ending != Ending::InKernel {
            count(&mut self.record.refused, cause(steps.ending, asked.pid));
            self.next_cpu_ns = Some(asked.cpu_ns + RETRY_CPU_NS);
            return None;
        }
        let cost_ns = steps.end_ns.saturating_sub(steps.begin_ns);
        self.record.stepping_ns += cost_ns;
        match steps.ending {
            Ending::Complete => {}
            // It was stopped for nothing, but stopped it was.
            Ending::InKernel => count(&mut self.record.refused, cause(steps.ending, asked.pid)),
            ending => count(&mut self.record.cut_short, cause(ending, asked.pid)),
        }
        if steps.ending == Ending::InKernel {
            self.next_cpu_ns = Some(asked.cpu_ns + RETRY_CPU_NS);
        } else {
            self.cost_ns += (cost_ns as f64 - self.cost_ns) / 8.0;
            self.draw(asked.cpu_ns);
        }
        if steps.pcs.len() > 1 {
            self.record.bursts += 1;
            self.record.steps += steps.pcs.len() as u64 - 1;
        }
        let (pid, tid, end_ns) = (asked.pid, asked.tid, steps.end_ns);
        Some((steps.begin_ns, RawBurst { pid, tid, end_ns, pcs: steps.pcs }))
    }

    /// Without the helper there are no more bursts.
    fn give_up(&mut self) {
        (self.asked, self.stepper) = (None, None);
        count(&mut self.record.refused, HELPER_ENDED);
    }

    /// Draws the next mark.
    fn draw(&mut self, cpu_ns: f64) -> f64 {
        let next = cpu_ns - self.cost_ns / self.budget * (1.0 - self.uniform()).ln();
        self.next_cpu_ns = Some(next);
        next
    }

    /// A number from 0 to 1 (xorshift; it need not be good, only independent of the target).
    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn count(causes: &mut BTreeMap<String, u64>, cause: &str) {
    *causes.entry(cause.to_owned()).or_default() += 1;
}

/// As the epoch and the user read it.
fn cause(ending: Ending, pid: u32) -> &'static str {
    match ending {
        Ending::Complete => "complete",
        Ending::Blocking => "waiting call",
        Ending::ProcessCall => "new program, process or thread",
        Ending::Signal => "signal",
        Ending::Stopped => "stopped",
        Ending::Exited => "exited",
        Ending::Unsteppable => "unsteppable code",
        Ending::Repeating => "string instruction",
        Ending::Late => "too long",
        Ending::NotRunning => "not running",
        Ending::InKernel => "in the kernel",
        Ending::NotPermitted if is_traced(pid) => "already traced",
        Ending::NotPermitted => "not permitted",
        Ending::Gone => "gone",
    }
}

fn is_traced(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|l| l.strip_prefix("TracerPid:"));
    tracer.is_some_and(|t| t.trim() != "0")
}
