//! Path bursts: which thread to follow and when, so that it costs no more than the budget.
//!
//! Enters: the target's CPU time so far, and a thread that ran just now. Leaves: bursts, as items among the records. Never
//! here: the meaning of addresses ([`crate::evidence::transfers`]), ptrace ([`crate::sys::tracer`]).
//!
//! A burst begins at a random moment of a thread's running time: after a random delay, if the thread runs then. Delays have
//! an exponential distribution, so that every moment of a run is equally likely; their mean is the cost of a burst divided
//! by the budget. The cost is measured, not assumed. If delays are short, the helper process waits for them and takes
//! several bursts at a time. If they are long, we wait until the target's CPU time reaches a mark, and take the thread of
//! the latest sample.

use std::{collections::BTreeMap, io};

use dwell_profile::{BurstsRecord, Pid, Tid};

use crate::{
    evidence::timing::Timing,
    random::Random,
    source::owned_record::RawBurst,
    sys::{
        clock::now_ns,
        guard::Turns,
        tracer::{BURSTS_MAX, Ending, How, Order, Stepper, Steps},
    },
};

/// Steps of a followed burst for each second of CPU time before it. Longer bursts are better at equal cost, because stopping the
/// thread, reading its memory and the steps that do not count cost the same each time; but a short run needs several bursts, too.
const STEPS_PER_SECOND: f64 = 32_768.0;
/// Least and greatest number of steps of a followed burst. A burst stops a thread for 1 to 4 ms, the first ones of a program for up to 9.
const STEPS: [f64; 2] = [32_768.0, 262_144.0];
/// Least and greatest number of steps at the beginning of a followed burst that are dropped, a quarter of them if possible. A random
/// moment is likely to be in slow code, so the first branches are not typical: in walks through lists, for example, they are in the
/// long ones. In a burst that is cut short at most half of the steps are dropped.
const STEPS_BEFORE: [usize; 2] = [4096, 16_384];
/// Part of its budget that a daemon uses for bursts that are not timed. They make recordings large, and the others have paths too.
const DAEMON_OTHERS_PART: f64 = 0.125;
/// Steps of a burst if the thread is single-stepped, at a hundred times the cost.
const STEPS_MADE: usize = 1024;
/// Assumed cost of a followed burst in ns, before the first was measured.
const COST_NS_FIRST: f64 = 1e6;
/// Assumed cost of a single-stepped burst in ns: a step takes 11 µs on an otherwise idle machine (measured.md), and 19 to 50
/// µs on a busy one. The figure is rather too high, because a first burst that exceeds the budget of a short run would leave
/// only the beginning of the run stepped.
const COST_NS_STEPPED: f64 = 40e6;
/// Limit in ns of the CPU time of a burst whose cost is assumed. Bursts of code that reads scattered memory cost ten times as much
/// as others, and the first one of any program costs several times as much as later ones.
const FIRST_CPU_NS_MAX: f64 = 6e6;
/// Least part of the budget from which delays are drawn, however little of it other costs leave.
const SHARE_MIN: f64 = 0.1;
/// Number of bursts over which costs are averaged.
const COSTS_AVERAGED: f64 = 8.0;
/// Approximate duration in ns of the bursts that are requested at once; samples wait for them.
const BATCH_NS: f64 = 50e6;
/// Mean delay in ns before a burst whose mark was reached.
const DELAY_NS: u64 = 5_000_000;
/// CPU time in ns after which another thread is tried if one was refused because it was gone or waited.
const RETRY_CPU_NS: f64 = 5e6;
/// Time in ms to wait at the end for a burst in progress.
const LAST_MS: u32 = 500;
/// Time in ns after which samples no longer wait for a burst, for example because the thread cannot even be stopped.
const WAIT_NS_MAX: u64 = 2_000_000_000;
/// Successive refusals of permission before the first burst after which we give up, unless we may single-step.
const DENIED_MAX: u32 = 8;
/// Cause recorded if a single-stepped burst was answered late: the samples of its steps were counted before the answer.
const LATE: &str = "answered late";
/// Cause recorded for bursts requested at the end that were not answered.
const UNANSWERED: &str = "no answer before the end";
/// Cause recorded if the helper process was killed, so that there are no more bursts.
const HELPER_ENDED: &str = "the stepping process ended";

/// Requests path bursts of threads, one request at a time.
pub struct BurstRecorder {
    tracer: Option<Stepper>,
    /// Allowed share of the target's CPU time.
    budget: f64,
    /// The share that other costs leave of it at present.
    share: f64,
    next_cpu_ns: Option<f64>,
    pending: Option<PendingRequest>,
    /// Average cost of a burst in ns.
    cost_ns: f64,
    /// Whether that is reckoned from a burst that took too long.
    is_reckoned: bool,
    /// Whether threads that cannot be followed may be single-stepped.
    may_step: bool,
    /// Whether threads can be followed on this machine, as far as is known.
    is_followed: bool,
    /// Whether threads of the whole machine are followed, for good. That some of them cannot be says nothing of the others.
    is_of_daemon: bool,
    timing: Timing,
    denied: u32,
    /// A thread that is guarded cannot be followed.
    turns: Turns,
    record: BurstsRecord,
    random: Random,
}

/// A burst that was requested and not answered yet.
#[derive(Clone, Copy)]
struct PendingRequest {
    pid: Pid,
    tid: Tid,
    at_ns: u64,
    cpu_ns: f64,
    steps_max: usize,
    is_to_time: bool,
}

/// A burst that was not requested yet.
struct Next {
    is_to_time: bool,
    /// The cost in ns that is expected of it.
    cost_ns: f64,
    /// The part of the budget for bursts of its kind.
    part: f64,
}

impl PendingRequest {
    /// Returns whether samples still wait for the answer.
    fn is_waited_for(&self) -> bool {
        now_ns().saturating_sub(self.at_ns) < WAIT_NS_MAX
    }
}

impl BurstRecorder {
    /// Starts the helper process that follows threads, or single-steps them if `may_step`. Call it early, because the helper
    /// is a fork of this process.
    pub fn start(budget_percent: f64, may_step: bool, turns: &Turns) -> io::Result<Self> {
        Ok(BurstRecorder {
            tracer: Some(Stepper::fork()?),
            budget: budget_percent / 100.0,
            share: budget_percent / 100.0,
            next_cpu_ns: None,
            pending: None,
            cost_ns: COST_NS_FIRST,
            is_reckoned: false,
            may_step,
            is_followed: true,
            is_of_daemon: false,
            timing: Timing::default(),
            denied: 0,
            turns: turns.clone(),
            record: BurstsRecord { budget_percent, ..BurstsRecord::default() },
            random: Random::new(now_ns()),
        })
    }

    /// Starts it for a daemon. Threads may stand still for this percentage of the CPU time, and emulation while they run may take
    /// as much again.
    pub fn of_daemon(budget_percent: f64, turns: &Turns) -> io::Result<Self> {
        let timing = Timing::within(budget_percent / 100.0);
        Ok(BurstRecorder { is_of_daemon: true, timing, ..Self::start(budget_percent, false, turns)? })
    }

    /// Begins a new epoch, whose CPU time begins at 0. Costs that were learned stay.
    pub fn begin_epoch(&mut self) {
        self.next_cpu_ns = None;
        self.timing.begin_epoch();
        self.record = BurstsRecord { budget_percent: self.record.budget_percent, ..BurstsRecord::default() };
    }

    /// Returns the pid of the helper process, which must be allowed to trace the target.
    pub fn tracer(&self) -> Option<Pid> {
        self.tracer.as_ref().map(Stepper::pid)
    }

    /// Returns whether there may be more bursts.
    pub fn is_on(&self) -> bool {
        self.tracer.is_some()
    }

    /// Returns what was done so far.
    pub fn record(&self) -> &BurstsRecord {
        &self.record
    }

    /// Returns the time from which samples may come from a thread that is being single-stepped. They must wait for the
    /// answer, but not forever: a thread in an uninterruptible disk wait blocks the helper too.
    pub fn since_ns(&self) -> Option<u64> {
        self.pending.filter(PendingRequest::is_waited_for).map(|a| a.at_ns)
    }

    /// Requests bursts of a thread if it is time. `cpu_ns` is the target's CPU time so far; `most_ns` is what bursts may cost in all,
    /// beside their own budget.
    pub fn offer(&mut self, pid: Pid, tid: Tid, cpu_ns: f64, most_ns: f64) {
        let allowed_ns = most_ns.min(self.budget * cpu_ns);
        self.share = (allowed_ns / cpu_ns.max(1.0)).clamp(SHARE_MIN * self.budget, self.budget);
        let Next { is_to_time, cost_ns, part } = self.next(cpu_ns);
        if self.pending.is_some() || self.record.stepping_ns as f64 + cost_ns > part * allowed_ns {
            return;
        }
        let gap_ns = cost_ns / (part * self.share);
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
        let followed = (cpu_ns / 1e9 * STEPS_PER_SECOND).clamp(STEPS[0], STEPS[1]) as usize;
        let (how, steps_max) = match (self.is_followed, self.may_step) {
            _ if is_to_time => (How::Time, followed),
            (true, true) => (How::FollowOrStep, followed),
            (true, false) => (How::Follow, followed),
            (false, _) => (How::Step, STEPS_MADE),
        };
        let steps_before = (followed / 4).clamp(STEPS_BEFORE[0], STEPS_BEFORE[1]);
        let bursts = if is_to_time { 1 } else { bursts.clamp(1, BURSTS_MAX) };
        let cpu_ns_max = (2.0 * self.cost_ns).max(FIRST_CPU_NS_MAX) as u64;
        let order = Order { how, steps_max, steps_before, bursts, delay_ns, seed, cpu_ns_max };
        let Some(tracer) = &mut self.tracer else { return };
        if !self.turns.begin_bursts() {
            return;
        }
        match tracer.request(pid, tid, &order) {
            Ok(()) => {
                let at_ns = now_ns();
                self.pending = Some(PendingRequest { pid, tid, at_ns, cpu_ns, steps_max, is_to_time });
            }
            Err(_) => self.give_up(),
        }
    }

    /// Returns the requested bursts, with the times when they began, once they are complete.
    pub fn take(&mut self) -> Vec<(u64, RawBurst)> {
        self.take_within(0)
    }

    /// Waits for the bursts requested at the end of collection, for a limited time, and returns them.
    pub fn take_last(&mut self) -> Vec<(u64, RawBurst)> {
        let bursts = self.take_within(LAST_MS);
        if self.pending.take().is_some() {
            self.turns.end_bursts();
            count(&mut self.record.refused, UNANSWERED);
        }
        bursts
    }

    fn take_within(&mut self, timeout_ms: u32) -> Vec<(u64, RawBurst)> {
        let (Some(pending), Some(tracer)) = (self.pending, &mut self.tracer) else { return Vec::new() };
        let bursts = match tracer.reply(timeout_ms) {
            Ok(Some(bursts)) => bursts,
            Ok(None) => return Vec::new(),
            Err(_) => {
                self.give_up();
                return Vec::new();
            }
        };
        self.pending = None;
        self.turns.end_bursts();
        self.record.cpu_ns = pending.cpu_ns as u64;
        bursts.into_iter().filter_map(|steps| self.account(pending, steps)).collect()
    }

    /// Records the result and the cost of a burst.
    fn account(&mut self, pending: PendingRequest, steps: Steps) -> Option<(u64, RawBurst)> {
        self.account_timing(pending, &steps);
        if steps.ending.is_refusal() && steps.ending != Ending::InKernel {
            count(&mut self.record.refused, cause(steps.ending, pending.pid));
            self.next_cpu_ns = Some(pending.cpu_ns + RETRY_CPU_NS);
            self.note_denial(steps.ending);
            return None;
        }
        self.denied = 0;
        let cost_ns = steps.cost_ns;
        self.record.stepping_ns += cost_ns;
        match steps.ending {
            Ending::Complete => {}
            // The thread was stopped in vain, but stopping it costs time too.
            Ending::InKernel => count(&mut self.record.refused, cause(steps.ending, pending.pid)),
            ending => count(&mut self.record.cut_short, cause(ending, pending.pid)),
        }
        if self.is_followed && !steps.is_followed {
            // Threads cannot be followed here: this one was not.
            (self.is_followed, self.cost_ns) = (false, COST_NS_STEPPED);
        }
        if !steps.is_followed && !pending.is_waited_for() {
            count(&mut self.record.cut_short, LATE);
        }
        let is_in_vain = steps.ending == Ending::InKernel;
        match whole_cost(&steps, pending.steps_max) {
            _ if pending.is_to_time => self.timing.note_stop(cost_ns),
            Some(whole_ns) => (self.cost_ns, self.is_reckoned) = (whole_ns, true),
            None if self.is_reckoned && !is_in_vain => {
                (self.cost_ns, self.is_reckoned) = (cost_ns as f64, false);
            }
            None => self.cost_ns += (cost_ns as f64 - self.cost_ns) / COSTS_AVERAGED,
        }
        if is_in_vain {
            self.next_cpu_ns = Some(pending.cpu_ns + RETRY_CPU_NS);
        } else {
            self.draw(pending.cpu_ns);
        }
        if steps.path.steps > 0 {
            self.record.bursts += 1;
            self.record.steps += steps.path.steps;
        }
        let (pid, tid, end_ns) = (pending.pid, pending.tid, steps.end_ns);
        let stepped_until_ns = if steps.is_followed { 0 } else { end_ns };
        Some((
            steps.begin_ns,
            RawBurst { pid, tid, stepped_until_ns, path: steps.path, cpu_ns: steps.timed_ns },
        ))
    }

    /// Records whether a burst was timed.
    fn account_timing(&mut self, pending: PendingRequest, steps: &Steps) {
        if !pending.is_to_time {
            self.timing.note_other();
            return;
        }
        self.record.beside_ns += steps.beside_ns;
        let is_timed = steps.timed_ns.is_some();
        self.record.timed += u64::from(is_timed);
        self.record.timed_ns += steps.timed_ns.unwrap_or(0);
        let is_whole = !steps.ending.is_refusal();
        let why = if steps.ending == Ending::Complete { steps.untimed } else { steps.ending };
        if is_whole {
            // A path without a time is worth as much as that of a thread that stands still.
            self.timing.note(steps.beside_ns, is_timed || steps.path.steps > 0);
        }
        if is_whole && why != Ending::Complete {
            count(&mut self.record.untimed, cause(why, pending.pid));
        }
    }

    /// Disables path bursts if threads can neither be followed nor single-stepped.
    fn note_denial(&mut self, ending: Ending) {
        self.denied +=
            u32::from(matches!(ending, Ending::NotPermitted | Ending::NoQuietSignal | Ending::HasChildren));
        let is_denied = self.denied >= DENIED_MAX && self.record.bursts == 0 && !self.is_of_daemon;
        if !self.may_step && (ending == Ending::CannotFollow || is_denied) {
            self.tracer = None;
        }
    }

    /// Ends path bursts because the helper process is gone.
    fn give_up(&mut self) {
        (self.pending, self.tracer) = (None, None);
        self.turns.end_bursts();
        count(&mut self.record.refused, HELPER_ENDED);
    }

    /// Returns what the next burst is, if it begins now.
    fn next(&self, cpu_ns: f64) -> Next {
        let is_to_time = self.is_followed && self.timing.is_due(cpu_ns);
        let cost_ns = if is_to_time { self.timing.stop_ns() } else { self.cost_ns };
        let part = if self.is_of_daemon && !is_to_time { DAEMON_OTHERS_PART } else { 1.0 };
        Next { is_to_time, cost_ns, part }
    }

    /// Draws the CPU time of the next burst.
    fn draw(&mut self, cpu_ns: f64) -> f64 {
        let Next { cost_ns, part, .. } = self.next(cpu_ns);
        let next = cpu_ns + self.random.delay(cost_ns / (part * self.share));
        self.next_cpu_ns = Some(next);
        next
    }
}

/// Returns the cost in ns that an emulated burst would have had with all its steps; `None` unless it took too long. At most twice
/// the cost that it had: code that was seen for the first time is cheaper later.
fn whole_cost(steps: &Steps, steps_max: usize) -> Option<f64> {
    let is_cut = steps.ending == Ending::Late && steps.is_followed;
    let whole_ns = steps.cost_ns as f64 * steps_max as f64 / steps.made.max(1) as f64;
    is_cut.then(|| whole_ns.clamp(steps.cost_ns as f64, 2.0 * steps.cost_ns as f64))
}

/// Adds one to the number of events with this cause.
pub fn count(causes: &mut BTreeMap<String, u64>, cause: &str) {
    *causes.entry(cause.to_owned()).or_default() += 1;
}

/// Returns the cause as it is stored in the epoch and shown to the user.
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
        Ending::TooManyTransfers => "too many transfers",
        Ending::Differs => "followed wrongly",
        Ending::PageFaults => "page faults",
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
    use crate::path::Path;

    fn pending() -> PendingRequest {
        PendingRequest {
            pid: Pid(std::process::id()),
            tid: Tid(std::process::id()),
            at_ns: 0,
            cpu_ns: 1e9,
            steps_max: 16_384,
            is_to_time: false,
        }
    }

    fn ended(ending: Ending, made: u64) -> Steps {
        let path = Path { steps: made / 2, ..Path::default() };
        Steps {
            ending,
            begin_ns: 1,
            end_ns: 2,
            cost_ns: 1,
            beside_ns: 0,
            timed_ns: None,
            untimed: Ending::Complete,
            made,
            path,
            pcs: Vec::new(),
            is_followed: true,
        }
    }

    fn account_times(bursts: &mut BurstRecorder, ending: Ending, times: u32) {
        (0..times).for_each(|_| drop(bursts.account(pending(), ended(ending, 0))));
    }

    #[test]
    fn bursts_end_if_threads_can_be_neither_followed_nor_stepped() {
        let mut bursts = BurstRecorder::start(1.0, false, &Turns::default()).unwrap();
        account_times(&mut bursts, Ending::NotPermitted, DENIED_MAX - 1);
        assert!(bursts.is_on());
        account_times(&mut bursts, Ending::NotPermitted, 1);
        assert!(!bursts.is_on());
        assert_eq!(bursts.record().refused, [("not permitted".to_owned(), u64::from(DENIED_MAX))].into());

        let mut bursts = BurstRecorder::start(1.0, false, &Turns::default()).unwrap();
        account_times(&mut bursts, Ending::CannotFollow, 1);
        assert!(!bursts.is_on());
    }

    #[test]
    fn requested_bursts_continue_and_so_do_bursts_after_a_first_success() {
        let mut requested = BurstRecorder::start(1.0, true, &Turns::default()).unwrap();
        account_times(&mut requested, Ending::NotPermitted, 10 * DENIED_MAX);
        assert!(requested.is_on());

        let mut bursts = BurstRecorder::start(1.0, false, &Turns::default()).unwrap();
        assert!(bursts.account(pending(), ended(Ending::Complete, 4)).is_some());
        account_times(&mut bursts, Ending::NotPermitted, 10 * DENIED_MAX);
        assert!(bursts.is_on());
    }

    #[test]
    fn bursts_wait_until_they_are_earned() {
        let mut bursts = BurstRecorder::start(1.0, false, &Turns::default()).unwrap();
        bursts.account(pending(), Steps { cost_ns: 100_000, ..ended(Ending::InKernel, 0) });
        assert!(bursts.cost_ns > 0.8 * COST_NS_FIRST);
        bursts.account(pending(), Steps { cost_ns: 13_000_000, ..ended(Ending::Complete, 4) });
        assert!((2e6..3e6).contains(&bursts.cost_ns), "{}", bursts.cost_ns);
        // No burst is requested before the budget allows another one: 13 ms are 1 % of 1.3 s.
        bursts.offer(pending().pid, pending().tid, 1.3e9, f64::INFINITY);
        assert!(bursts.pending.is_none());
        // Nor before others leave as much, and delays are longer then.
        bursts.offer(pending().pid, pending().tid, 1e10, 1.4e7);
        assert!(bursts.pending.is_none() && bursts.share == 0.0014);
    }

    #[test]
    fn a_burst_that_took_too_long_shows_what_a_whole_one_costs() {
        let mut bursts = BurstRecorder::start(1.0, false, &Turns::default()).unwrap();
        let made = STEPS[0] as u64 / 8;
        bursts.account(pending(), Steps { cost_ns: 2_000_000, ..ended(Ending::Late, made) });
        assert_eq!((bursts.cost_ns, bursts.record.stepping_ns), (4e6, 2_000_000));
        assert_eq!(bursts.record.bursts, 1, "half of its steps count");
        // It was the emulator's first look at the code.
        bursts.account(pending(), Steps { cost_ns: 1_200_000, ..ended(Ending::Complete, made) });
        assert_eq!(bursts.cost_ns, 1.2e6);
        bursts.account(pending(), Steps { cost_ns: 2_000_000, ..ended(Ending::Complete, made) });
        assert_eq!(bursts.cost_ns, 1.3e6);
    }
}
