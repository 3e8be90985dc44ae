//! Breakpoints at a loop's exits: how often a thread leaves the loop.
//!
//! Enters: a thread and the addresses of a loop's exits. Leaves: how often they were executed within some milliseconds of
//! the thread's running time, and the cost. Never here: which loops.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use dwell_profile::{CountsRecord, Pid, Tid, VirtualAddress};

use crate::{
    evidence::counts::pairs::CounterId,
    source::owned_record::RawExits,
    sys::{
        breakpoint::{self, Breakpoints},
        clock::now_ns,
        guard::{Protection, Refusal},
    },
};

/// The length of a window if the thread runs.
const WINDOW: Duration = Duration::from_millis(3);
/// The interval at which the counts are read: a loop that is left all the time costs no more than that.
const LOOK: Duration = Duration::from_micros(300);
/// Number of executions that end a window.
const EXECUTIONS_ENOUGH: u64 = 8;
/// The approximate cost in ns of setting breakpoints, for the thread.
const SETTING_NS: f64 = 20_000.0;
/// The least time in ns between two windows, during which the target runs.
const EVERY_CPU_NS: f64 = 12e6;
/// The same if threads must be guarded, because an ignored signal may shorten a transfer of a guarded thread.
const EVERY_CPU_NS_GUARDED: f64 = 50e6;
/// The allowance in ns at the beginning.
const COST_NS_FIRST: f64 = 1e6;
/// Number of consecutive refusals after which no more windows are tried.
const REFUSALS_MAX: u32 = 20;

/// A request to watch the exits of a loop in a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The process of the thread.
    pub pid: Pid,
    /// The thread to watch.
    pub tid: Tid,
    /// The counter of the loop.
    pub counter: CounterId,
    /// Addresses of the loop's exits.
    pub addresses: Vec<VirtualAddress>,
}

/// Watches exits, one loop at a time.
pub struct ExitWatcher {
    /// The cost in ns of one counted execution; infinite where there are no breakpoints.
    execution_ns: f64,
    next_cpu_ns: f64,
    refusals: u32,
    protection: Protection,
    /// The greatest share of the target's CPU time that this may cost.
    budget: f64,
    record: CountsRecord,
}

impl ExitWatcher {
    /// Measures the cost of a breakpoint. All of them may cost this many percent of the target's CPU time.
    pub fn start(budget_percent: f64, protection: Protection) -> Self {
        let mut record = CountsRecord { budget_percent, ..CountsRecord::default() };
        let execution_ns = breakpoint::cost_ns().unwrap_or_else(|_| {
            record.refused.insert("loop: no breakpoints here".to_owned(), 1);
            f64::INFINITY
        });
        ExitWatcher {
            execution_ns,
            next_cpu_ns: 0.0,
            refusals: 0,
            protection,
            budget: budget_percent / 100.0,
            record,
        }
    }

    /// Returns whether it is time for a window.
    pub fn is_due(&self, cpu_ns: f64) -> bool {
        let within_budget = self.record.cost_ns as f64 <= COST_NS_FIRST + self.budget * cpu_ns;
        self.execution_ns.is_finite()
            && self.refusals < REFUSALS_MAX
            && within_budget
            && cpu_ns >= self.next_cpu_ns
    }

    /// Watches for some 3 ms. Returns when the window began and what was counted, or `None` if breakpoints were refused
    /// or the thread did not run.
    pub fn watch(&mut self, watch: &Watch, cpu_ns: f64) -> Option<(u64, RawExits)> {
        let guard = match self.protection.guard(watch.pid, &[watch.tid], false) {
            Ok(guard) => guard,
            Err(Refusal::Busy) => return None, // It is tried again when the bursts in progress are over.
            Err(refusal) => {
                self.next_cpu_ns = cpu_ns + EVERY_CPU_NS_GUARDED;
                self.refuse(&refusal.to_string());
                return None;
            }
        };
        let every_ns = if guard.is_needed() { EVERY_CPU_NS_GUARDED } else { EVERY_CPU_NS };
        self.next_cpu_ns = cpu_ns + every_ns;
        let since_ns = now_ns();
        let counted = Breakpoints::set_all(&guard, watch.tid, &watch.addresses).and_then(|set| {
            set.start()?;
            let start = Instant::now();
            while start.elapsed() < WINDOW {
                sleep(LOOK);
                if set.so_far()?.executions.iter().sum::<u64>() >= EXECUTIONS_ENOUGH {
                    break;
                }
            }
            set.stop()
        });
        // An execution whose exception was lost is repeated, so the counts are right all the same.
        guard.release_later();
        let Ok(counts) = counted else {
            self.refuse("breakpoints refused");
            return None;
        };
        self.refusals = 0;
        let executions = counts.executions.iter().sum::<u64>();
        let cost_ns =
            (executions as f64 * self.execution_ns).min(counts.running_ns as f64) + 2.0 * SETTING_NS;
        self.record.cost_ns += cost_ns as u64;
        let raw = RawExits {
            pid: watch.pid,
            tid: watch.tid,
            counter: watch.counter,
            since_ns,
            until_ns: now_ns(),
            running_ns: counts.running_ns,
            executions,
        };
        Some((since_ns, raw))
    }

    fn refuse(&mut self, cause: &str) {
        self.refusals += 1;
        *self.record.refused.entry(format!("loop: {cause}")).or_default() += 1;
    }

    /// Returns the cost so far in ns.
    pub fn cost_ns(&self) -> u64 {
        self.record.cost_ns
    }

    /// Adds the cost and the refusals so far to a record.
    pub fn add_to(&self, record: &mut CountsRecord) {
        record.budget_percent += self.record.budget_percent;
        record.cost_ns += self.record.cost_ns;
        for (cause, number) in &self.record.refused {
            *record.refused.entry(cause.clone()).or_default() += number;
        }
    }
}
