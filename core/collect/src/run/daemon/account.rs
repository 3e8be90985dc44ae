//! The collector's account of itself: its statistics and its cost, in an epoch and since the start.
//!
//! Enters: the state of the session, the budget and the clocks. Leaves: a [`CollectorRecord`], for `epoch.json` and for
//! `dwell status`. Never here: decisions.

use std::{fs, time::Duration};

use dwell_profile::CollectorRecord;

use crate::{
    run::session::{InKernel, Session},
    sys::{
        clocks::{ClockWatch, Clocks},
        usage,
    },
};

use super::budget::Budget;

/// Counters since the start, and their values at the start of the epoch.
#[derive(Debug)]
pub struct Account {
    /// Number of CPUs, the base of all shares of CPU time. It is kept, since counting them takes longer than the rest of
    /// this file.
    cpus: usize,
    /// How long the machine slept during the epoch, in ns.
    pub slept_ns: u64,
    /// Size of the epoch's files at the last check.
    pub disk_bytes: u64,
    /// How often silent events were opened again.
    pub reopened: u64,
    began: String,
    steps: u64,
    step_ns: i64,
    epoch_start: Clocks,
    paused_since: Option<Clocks>,
    paused_ns: u64,
    cpu_at_start: (Duration, Duration),
    /// Samples of the earlier epochs, including lost ones.
    samples_before: u64,
    /// Sum of the time that interrupts took in the epoch, each at the cost measured at that time, and the number of samples
    /// that it covers.
    interrupts: (Duration, u64),
}

impl Account {
    /// Begins an account now.
    pub fn new(began: &str, now: Clocks) -> Self {
        Account {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            slept_ns: 0,
            disk_bytes: 0,
            reopened: 0,
            began: began.to_owned(),
            steps: 0,
            step_ns: 0,
            epoch_start: now,
            paused_since: None,
            paused_ns: 0,
            cpu_at_start: usage::cpu_time(),
            samples_before: 0,
            interrupts: (Duration::ZERO, 0),
        }
    }

    /// Records that the wall clock was set.
    pub fn stepped(&mut self, step_ns: i64) {
        self.steps += 1;
        self.step_ns = self.step_ns.saturating_add(step_ns);
    }

    /// Checks whether the clocks jumped.
    pub fn look_at(&mut self, clocks: &mut ClockWatch) {
        let jump = clocks.look(Clocks::now());
        self.slept_ns += jump.slept_ns.unwrap_or(0);
        jump.step_ns.into_iter().for_each(|step_ns| self.stepped(step_ns));
    }

    /// Records that the budget has judged a window.
    pub fn end_window(&mut self, session: &Session, budget: &Budget) {
        self.interrupts = self.interrupts_until_now(session, budget);
    }

    fn interrupts_until_now(&self, session: &Session, budget: &Budget) -> (Duration, u64) {
        let ((took, samples), counted) = (self.interrupts, self.counted(session));
        (took + budget.interrupts(counted.saturating_sub(samples)), counted)
    }

    /// Records that sampling pauses or continues.
    pub fn paused(&mut self, paused: bool, now: Clocks) {
        if let Some(since) = self.paused_since.take() {
            self.paused_ns += now.awake_since(&since).as_nanos() as u64;
        }
        self.paused_since = paused.then_some(now);
    }

    /// Returns the samples of the epoch, including lost ones, since their interrupts had a cost. Samples that the kernel
    /// aggregates count from the moment at which they were taken, not from when they are handed out seconds later. Otherwise
    /// the events would seem to be silent.
    pub fn counted(&self, session: &Session) -> u64 {
        let handed_out = session.records().values().map(|r| r.samples + r.lost).sum();
        session.samples_by_cpu().values().flatten().sum::<u64>().max(handed_out)
    }

    /// Returns the number of samples since the start, counted as in [`Account::counted`].
    pub fn samples_ever(&self, session: &Session) -> u64 {
        self.samples_before + self.counted(session)
    }

    /// Records that an epoch with this many samples ended and the next one began.
    pub fn begin_epoch(&mut self, why: &str, counted: u64) {
        let now = Clocks::now();
        self.paused(self.paused_since.is_some(), now);
        *self = Account {
            reopened: self.reopened,
            samples_before: self.samples_before + counted,
            paused_since: self.paused_since,
            ..Account::new(why, now)
        };
    }

    /// Returns the account of the epoch.
    pub fn record(&self, session: &Session, budget: &Budget) -> CollectorRecord {
        let run = self.record_of_a_run(session);
        let interrupt_ns = self.interrupts_until_now(session, budget).0.as_nanos() as u64;
        CollectorRecord {
            budget_percent: 100.0 * budget.allowed(),
            cost_percent: run.cost_percent + self.percent_of_each_cpu(interrupt_ns, run.elapsed_ns),
            interrupt_ns,
            rate_share: budget.share(),
            rate_lowered: budget.lowered,
            rate_raised: budget.raised,
            ..run
        }
    }

    fn percent_of_each_cpu(&self, ns: u64, elapsed_ns: u64) -> f64 {
        100.0 * ns as f64 / (elapsed_ns.max(1) as f64 * self.cpus as f64)
    }

    /// Returns the account of a collector without a budget. It measures no interrupts, so its cost is its own CPU time only.
    pub fn record_of_a_run(&self, session: &Session) -> CollectorRecord {
        let (user, kernel) = usage::cpu_time();
        let (memory_bytes, memory_bytes_max) = resident_bytes();
        let now = Clocks::now();
        let awake_ns = now.awake_since(&self.epoch_start).as_nanos() as u64;
        let (late_records, skew_ns_max) = session.late();
        let this_pause = self.paused_since.map(|since| now.awake_since(&since).as_nanos() as u64);
        let paused_ns = self.paused_ns + this_pause.unwrap_or(0);
        let elapsed_ns = awake_ns.saturating_sub(paused_ns);
        let cpu_user_ns = user.saturating_sub(self.cpu_at_start.0).as_nanos() as u64;
        let cpu_kernel_ns = kernel.saturating_sub(self.cpu_at_start.1).as_nanos() as u64;
        let InKernel { table, idle, registers_lost, kernel_time_lost, executions_lost, given_up_ns } =
            session.in_kernel();
        CollectorRecord {
            began: self.began.clone(),
            elapsed_ns,
            paused_ns,
            suspended_ns: self.slept_ns,
            clock_steps: self.steps,
            clock_step_ns: self.step_ns,
            budget_percent: 0.0,
            cost_percent: self.percent_of_each_cpu(cpu_user_ns + cpu_kernel_ns, elapsed_ns),
            cpu_user_ns,
            cpu_kernel_ns,
            interrupt_ns: 0,
            rate_share: 1.0,
            rate_lowered: 0,
            rate_raised: 0,
            memory_bytes,
            memory_bytes_max,
            disk_bytes: self.disk_bytes,
            stores_failed: session.stores_failed(),
            events_reopened: self.reopened,
            lost: session.lost_by_cause(),
            unknown: session.unknown_by_cause(),
            apps: session.kept_apps().to_vec(),
            other_apps: session.other_apps(),
            samples_by_cpu: session.samples_by_cpu(),
            table,
            idle,
            registers_lost,
            kernel_time_lost,
            executions_lost,
            given_up_ns,
            late_records,
            skew_ns_max,
        }
    }
}

/// Returns the resident memory of this process in bytes, now and at its peak, as the kernel counts both.
fn resident_bytes() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        value.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    let now = field("VmRSS:");
    (now, field("VmHWM:").max(now))
}

/// Returns the current resident memory in bytes.
pub fn memory_bytes() -> u64 {
    resident_bytes().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_memory_equals_the_kernels_figure() {
        let large = std::hint::black_box(vec![1_u8; 64 << 20]);
        drop(large);
        let (now, most) = resident_bytes();
        assert!(now > 1 << 20 && most >= 64 << 20, "{now} {most}");
    }
}
