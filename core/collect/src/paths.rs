//! Path bursts: whom to stop and follow, and when, so that it costs no more than was allowed.
//!
//! Enters: the target's CPU time so far and a thread that ran just now. Leaves: bursts, as items among the records.
//! Never here: what addresses mean ([`crate::transfers`]), ptrace ([`crate::sys::stepper`]).
//!
//! A burst begins at a random moment of a thread's running time: after a random delay, if it is running then. Delays
//! are drawn exponentially, so that no time of a run is likelier than another; their mean is what a burst costs over the
//! budget. The cost is measured, not assumed. Short delays are left to the helper, some bursts at a time; for long ones
//! we wait until the target's CPU time reaches a mark, and take the thread of the latest sample.

use std::{collections::BTreeMap, io};

use dwell_profile::{PathsRecord, Pid, Tid};

use crate::{
    items::RawBurst,
    random::Random,
    source::now_ns,
    sys::stepper::{BURSTS_MAX, Ending, How, Order, Stepper, Steps},
};

/// Steps of a burst that count, where the thread is followed. At the same cost fewer and longer bursts are better, since the steps
/// before them and stopping the thread cost as much: a third of the length saw 40 % of the steps. Bursts of 28,672 were no better
/// than these, and keep a thread stopped for longer (docs/measured.md).
const STEPS: usize = 12288;
/// Steps before them that do not: a moment that time chose is likely to be in slow code, so that the first branches are not as
/// they are on average (of a walk through lists, the long ones). Of a burst that is cut short it is half.
const STEPS_BEFORE: usize = 4096;
/// Steps of a burst where the thread makes them itself, at a hundred times the cost.
const STEPS_MADE: usize = 1024;
/// What a burst costs where the thread is followed, before one was measured.
const COST_NS_FIRST: f64 = 1e6;
/// The same where it makes its steps: 11 µs a step on a machine of its own (measured.md), 19 to 50 on a busy one. Rather
/// too much: a short run whose budget the first burst exceeds would be stepped at its beginning only.
const COST_NS_STEPPED: f64 = 40e6;
/// Bursts that are asked for at once take so long, about; samples wait for them.
const BATCH_NS: f64 = 50e6;
/// The delay before a burst whose time has come.
const DELAY_NS: u64 = 5_000_000;
/// A refused thread is gone or waits; try the next one after that much CPU time.
const RETRY_CPU_NS: f64 = 5e6;
/// At the end, a burst that goes on is waited for that long.
const LAST_MS: u32 = 500;
/// A burst that takes longer, since the thread cannot even be stopped, is no longer waited for by the samples.
const WAIT_NS_MAX: u64 = 2_000_000_000;
/// Refusals in a row of the right to follow, before a burst, after which one who must not step gives up.
const DENIED_MAX: u32 = 8;
/// Why a thread that made its steps has samples that show them: they were counted before the answer came.
const LATE: &str = "answered late";
/// Why bursts that were asked for at the end are missing.
const UNANSWERED: &str = "no answer before the end";
/// Why there are no more bursts, where the helper was killed.
const HELPER_ENDED: &str = "the stepping process ended";

/// Asks for bursts, one at a time.
pub struct Paths {
    stepper: Option<Stepper>,
    /// Share of the target's CPU time.
    budget: f64,
    next_cpu_ns: Option<f64>,
    asked: Option<Asked>,
    /// Of a burst, on average.
    cost_ns: f64,
    /// Threads that cannot be followed may be stepped.
    may_step: bool,
    /// Threads can be followed here, as far as is known.
    is_followed: bool,
    denied: u32,
    record: PathsRecord,
    random: Random,
}

/// A burst that was asked for.
#[derive(Clone, Copy)]
struct Asked {
    pid: Pid,
    tid: Tid,
    at_ns: u64,
    cpu_ns: f64,
}

impl Asked {
    /// Whether samples still wait for the answer.
    fn is_waited_for(&self) -> bool {
        now_ns().saturating_sub(self.at_ns) < WAIT_NS_MAX
    }
}

impl Paths {
    /// Starts the process that follows or, if it may, steps. To be called early: it is a fork of this one.
    pub fn start(budget_percent: f64, may_step: bool) -> io::Result<Self> {
        Ok(Paths {
            stepper: Some(Stepper::fork()?),
            budget: budget_percent / 100.0,
            next_cpu_ns: None,
            asked: None,
            cost_ns: COST_NS_FIRST,
            may_step,
            is_followed: true,
            denied: 0,
            record: PathsRecord { budget_percent, ..PathsRecord::default() },
            random: Random::new(now_ns()),
        })
    }

    /// The process that steps: who must be allowed to trace.
    pub fn tracer(&self) -> Option<Pid> {
        self.stepper.as_ref().map(Stepper::pid)
    }

    /// Whether there may be more bursts.
    pub fn is_on(&self) -> bool {
        self.stepper.is_some()
    }

    /// What was done so far.
    pub fn record(&self) -> &PathsRecord {
        &self.record
    }

    /// Samples from that time on may be those of a thread while it is stepped: they must wait for the answer, but not
    /// for ever, since a thread that waits for a disk uninterruptibly keeps the helper waiting too.
    pub fn since_ns(&self) -> Option<u64> {
        self.asked.filter(Asked::is_waited_for).map(|a| a.at_ns)
    }

    /// Asks for bursts of that thread if it is time: `cpu_ns` is the target's CPU time so far.
    pub fn offer(&mut self, pid: Pid, tid: Tid, cpu_ns: f64) {
        if self.asked.is_some() || self.record.stepping_ns as f64 > self.budget * cpu_ns {
            return;
        }
        let gap_ns = self.cost_ns / self.budget;
        let (bursts, delay_ns) = if gap_ns < BATCH_NS {
            ((BATCH_NS / gap_ns) as usize, gap_ns as u64)
        } else {
            let next = self.next_cpu_ns.unwrap_or_else(|| self.draw(cpu_ns));
            if cpu_ns < next {
                return;
            }
            (1, DELAY_NS)
        };
        let seed = (self.random.uniform() * u64::MAX as f64) as u64;
        let (how, steps_max) = match (self.is_followed, self.may_step) {
            (true, true) => (How::FollowOrStep, STEPS_BEFORE + STEPS),
            (true, false) => (How::Follow, STEPS_BEFORE + STEPS),
            (false, _) => (How::Step, STEPS_MADE),
        };
        let order = Order { how, steps_max, bursts: bursts.clamp(1, BURSTS_MAX), delay_ns, seed };
        let Some(stepper) = &mut self.stepper else { return };
        match stepper.request(pid, tid, &order) {
            Ok(()) => self.asked = Some(Asked { pid, tid, at_ns: now_ns(), cpu_ns }),
            Err(_) => self.give_up(),
        }
    }

    /// The bursts that were asked for, once they are over. The times are when they began.
    pub fn take(&mut self) -> Vec<(u64, RawBurst)> {
        self.take_within(0)
    }

    /// The bursts that were asked for at the end of collection: waits for them, but not for ever.
    pub fn take_last(&mut self) -> Vec<(u64, RawBurst)> {
        let bursts = self.take_within(LAST_MS);
        if self.asked.take().is_some() {
            count(&mut self.record.refused, UNANSWERED);
        }
        bursts
    }

    fn take_within(&mut self, timeout_ms: u32) -> Vec<(u64, RawBurst)> {
        let (Some(asked), Some(stepper)) = (self.asked, &mut self.stepper) else { return Vec::new() };
        let bursts = match stepper.reply(timeout_ms) {
            Ok(Some(bursts)) => bursts,
            Ok(None) => return Vec::new(),
            Err(_) => {
                self.give_up();
                return Vec::new();
            }
        };
        self.asked = None;
        self.record.cpu_ns = asked.cpu_ns as u64;
        bursts.into_iter().filter_map(|steps| self.account(asked, steps)).collect()
    }

    /// Counts what a burst was and cost.
    fn account(&mut self, asked: Asked, mut steps: Steps) -> Option<(u64, RawBurst)> {
        if steps.ending.is_refusal() && steps.ending != Ending::InKernel {
            count(&mut self.record.refused, cause(steps.ending, asked.pid));
            self.next_cpu_ns = Some(asked.cpu_ns + RETRY_CPU_NS);
            self.note_denial(steps.ending);
            return None;
        }
        self.denied = 0;
        let cost_ns = steps.cost_ns;
        self.record.stepping_ns += cost_ns;
        match steps.ending {
            Ending::Complete => {}
            // It was stopped for nothing, but stopped it was.
            Ending::InKernel => count(&mut self.record.refused, cause(steps.ending, asked.pid)),
            ending => count(&mut self.record.cut_short, cause(ending, asked.pid)),
        }
        if self.is_followed && !steps.is_followed {
            // It cannot be done here: nobody was followed.
            (self.is_followed, self.cost_ns) = (false, COST_NS_STEPPED);
        }
        if !steps.is_followed && !asked.is_waited_for() {
            count(&mut self.record.cut_short, LATE);
        }
        if steps.is_followed {
            steps.pcs.drain(..(steps.pcs.len() / 2).min(STEPS_BEFORE));
        }
        self.cost_ns += (cost_ns as f64 - self.cost_ns) / 8.0;
        if steps.ending == Ending::InKernel {
            self.next_cpu_ns = Some(asked.cpu_ns + RETRY_CPU_NS);
        } else {
            self.draw(asked.cpu_ns);
        }
        if steps.pcs.len() > 1 {
            self.record.bursts += 1;
            self.record.steps += steps.pcs.len() as u64 - 1;
        }
        let (pid, tid, end_ns) = (asked.pid, asked.tid, steps.end_ns);
        let stepped_until_ns = if steps.is_followed { 0 } else { end_ns };
        Some((steps.begin_ns, RawBurst { pid, tid, stepped_until_ns, pcs: steps.pcs }))
    }

    /// One who must not step leaves the place to somebody else where nobody can be followed.
    fn note_denial(&mut self, ending: Ending) {
        self.denied +=
            u32::from(matches!(ending, Ending::NotPermitted | Ending::NoQuietSignal | Ending::HasChildren));
        let is_denied = self.denied >= DENIED_MAX && self.record.bursts == 0;
        if !self.may_step && (ending == Ending::CannotFollow || is_denied) {
            self.stepper = None;
        }
    }

    /// Without the helper there are no more bursts.
    fn give_up(&mut self) {
        (self.asked, self.stepper) = (None, None);
        count(&mut self.record.refused, HELPER_ENDED);
    }

    /// Draws the next mark.
    fn draw(&mut self, cpu_ns: f64) -> f64 {
        let next = cpu_ns + self.random.delay(self.cost_ns / self.budget);
        self.next_cpu_ns = Some(next);
        next
    }
}

fn count(causes: &mut BTreeMap<String, u64>, cause: &str) {
    *causes.entry(cause.to_owned()).or_default() += 1;
}

/// As the epoch and the user read it.
fn cause(ending: Ending, pid: Pid) -> &'static str {
    match ending {
        Ending::Complete => "complete",
        Ending::Signal => "signal",
        Ending::Stopped => "stopped",
        Ending::Exited => "exited",
        Ending::Unsteppable => "unsteppable code",
        Ending::Repeating => "string instruction",
        Ending::Late => "too long",
        Ending::SystemCall => "system call",
        Ending::Unfollowable => "code that cannot be followed",
        Ending::Unreadable => "memory that cannot be read",
        Ending::TooMuchMemory => "too much memory",
        Ending::Fault => "exception",
        Ending::Narrow => "32-bit code",
        Ending::Differs => "followed wrongly",
        Ending::NotRunning => "not running",
        Ending::InKernel => "in the kernel",
        Ending::NotPermitted if is_traced(pid) => "already traced",
        Ending::NotPermitted => "not permitted",
        Ending::NoQuietSignal => "blocks signals",
        Ending::HasChildren => "has children",
        Ending::Gone => "gone",
        Ending::CannotFollow => "no code can be made here",
    }
}

fn is_traced(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|l| l.strip_prefix("TracerPid:"));
    tracer.is_some_and(|t| t.trim() != "0")
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    fn asked() -> Asked {
        Asked { pid: Pid(std::process::id()), tid: Tid(std::process::id()), at_ns: 0, cpu_ns: 1e9 }
    }

    fn ended(ending: Ending, pcs: Vec<u64>) -> Steps {
        Steps { ending, begin_ns: 1, end_ns: 2, cost_ns: 1, pcs, is_followed: true }
    }

    fn tell(paths: &mut Paths, ending: Ending, times: u32) {
        (0..times).for_each(|_| drop(paths.account(asked(), ended(ending, Vec::new()))));
    }

    #[test]
    fn one_who_must_not_step_gives_up_where_nobody_can_be_followed() {
        let mut paths = Paths::start(1.0, false).unwrap();
        tell(&mut paths, Ending::NotPermitted, DENIED_MAX - 1);
        assert!(paths.is_on());
        tell(&mut paths, Ending::NotPermitted, 1);
        assert!(!paths.is_on());
        assert_eq!(paths.record().refused, [("not permitted".to_owned(), u64::from(DENIED_MAX))].into());

        let mut paths = Paths::start(1.0, false).unwrap();
        tell(&mut paths, Ending::CannotFollow, 1);
        assert!(!paths.is_on());
    }

    #[test]
    fn one_who_was_asked_for_goes_on_and_so_does_one_who_had_a_burst() {
        let mut asked_for = Paths::start(1.0, true).unwrap();
        tell(&mut asked_for, Ending::NotPermitted, 10 * DENIED_MAX);
        assert!(asked_for.is_on());

        let mut paths = Paths::start(1.0, false).unwrap();
        assert!(paths.account(asked(), ended(Ending::Complete, vec![1, 2, 3, 4])).is_some());
        tell(&mut paths, Ending::NotPermitted, 10 * DENIED_MAX);
        assert!(paths.is_on());
    }
}
