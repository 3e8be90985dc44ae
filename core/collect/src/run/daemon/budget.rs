//! The budget: what sampling may cost, and the rate that keeps the cost within it.
//!
//! Enters: measurements over a window (our CPU time, samples). Leaves: the cost per CPU, and from time to time another share
//! of the requested rate. Never here: clocks, events.
//!
//! The cost of a sample is the time that its interrupt takes from the interrupted program, which no accounting shows. It is
//! measured on this machine from time to time (`sys::interrupt`), because in a virtual machine it depends on the host's
//! other load (2.5 µs on one day, 13 to 27 µs on another), and is applied to all samples. The other part of the cost is our
//! own CPU time. The rate is raised slowly on purpose: each change begins an epoch, so the rate must not oscillate.

use std::time::Duration;

/// Lowest share of the requested rate. Below it there is too little to learn for the cost.
const SHARE_MIN: f64 = 1.0 / 64.0;
/// Share of the budget that the interrupts of the first rate may take.
pub const INTERRUPTS_SHARE: f64 = 0.5;
/// Share of the budget that a lowered rate aims at.
const AIM: f64 = 0.75;
/// Factor by which a rate is lowered at once: by a quarter at least, and to a quarter at most, since a short storm justifies
/// no more.
const LOWERED_TO: std::ops::RangeInclusive<f64> = 0.25..=0.75;
/// A cost of this many budgets lowers the rate after one window, a lower cost after [`PATIENCE`] windows.
const ALARM: f64 = 2.0;
const PATIENCE: u32 = 2;
/// Number of windows of low cost before the rate is raised. It is doubled if the rate had to be lowered again that soon.
const CALM_MIN: u32 = 30;
const CALM_MAX: u32 = 360;

/// The measurements of a window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Length of the window.
    pub elapsed: Duration,
    /// Our CPU time in the window, in user mode and in the kernel.
    pub own_cpu: Duration,
    /// Samples in the window, including lost ones, since their interrupts had a cost.
    pub samples: u64,
}

/// Keeps the cost within a share of each CPU.
#[derive(Clone, Debug)]
pub struct Budget {
    budget: f64,
    cpus: f64,
    interrupt: Duration,
    share: f64,
    cost: f64,
    over: u32,
    calm: u32,
    calm_needed: u32,
    since_raised: u32,
    /// How often the rate was lowered.
    pub lowered: u64,
    /// How often the rate was raised.
    pub raised: u64,
}

impl Budget {
    /// Creates a budget of the share `budget` of each of `cpus`. `interrupt` is the time that one sample takes from the
    /// interrupted program.
    pub fn new(budget: f64, cpus: usize, interrupt: Duration) -> Self {
        Budget {
            budget,
            cpus: cpus.max(1) as f64,
            interrupt,
            share: 1.0,
            cost: 0.0,
            over: 0,
            calm: 0,
            calm_needed: CALM_MIN,
            since_raised: u32::MAX,
            lowered: 0,
            raised: 0,
        }
    }

    /// Sets the first share of `rate_hz` (samples per second of a busy CPU), a rate that the user did not request. Without a
    /// budget the share is 1.
    pub fn begin(&mut self, rate_hz: f64) {
        if self.budget > 0.0 {
            let affordable_hz = INTERRUPTS_SHARE * self.budget / self.interrupt.as_secs_f64().max(1e-9);
            self.share = (affordable_hz / rate_hz.max(1e-9)).clamp(SHARE_MIN, 1.0);
        }
    }

    /// Adds a measurement of the cost of an interrupt. Each one counts half, the earlier ones the other half.
    pub fn measured(&mut self, interrupt: Duration) {
        self.interrupt = (self.interrupt + interrupt) / 2;
    }

    /// Returns the share of the requested rate that is in force.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Returns the budget, as a share of each CPU.
    pub fn allowed(&self) -> f64 {
        self.budget
    }

    /// Returns the cost of the last window, as a share of each CPU.
    pub fn cost(&self) -> f64 {
        self.cost
    }

    /// Returns the time that the interrupts of this many samples take, by the current estimate.
    pub fn interrupts(&self, samples: u64) -> Duration {
        Duration::from_secs_f64(self.interrupt.as_secs_f64() * samples as f64)
    }

    /// Returns the cost of a window, as a share of each CPU.
    pub fn cost_of(&self, load: &Load) -> f64 {
        let spent = load.own_cpu + self.interrupts(load.samples);
        spent.as_secs_f64() / (load.elapsed.as_secs_f64().max(1e-9) * self.cpus)
    }

    /// Judges a window. Returns another share of the requested rate if the rate should change. It takes effect only with
    /// [`Budget::adopt`]: if no epoch can begin for it, the old share remains.
    pub fn judge(&mut self, load: &Load) -> Option<f64> {
        self.cost = self.cost_of(load);
        self.since_raised = self.since_raised.saturating_add(1);
        if self.cost > self.budget {
            self.calm = 0;
            self.over += if self.cost > ALARM * self.budget { PATIENCE } else { 1 };
            let factor = (AIM * self.budget / self.cost).clamp(*LOWERED_TO.start(), *LOWERED_TO.end());
            let lower = (self.share * factor).max(SHARE_MIN);
            return (self.over >= PATIENCE && lower < self.share).then_some(lower);
        }
        self.over = 0;
        let higher = (self.share * 2.0).min(1.0);
        // All of the cost is taken as proportional to the rate. If a part is not, this is only more cautious.
        let expected = self.cost * higher / self.share;
        self.calm = if higher > self.share && expected < AIM * self.budget { self.calm + 1 } else { 0 };
        (self.calm >= self.calm_needed).then_some(higher)
    }

    /// Puts a share into effect.
    pub fn adopt(&mut self, share: f64) {
        if share < self.share {
            self.lowered += 1;
            let rash = self.since_raised < self.calm_needed;
            self.calm_needed = if rash { (self.calm_needed * 2).min(CALM_MAX) } else { CALM_MIN };
        } else {
            self.raised += 1;
            self.since_raised = 0;
        }
        (self.share, self.over, self.calm) = (share, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    /// Simulates a machine of two CPUs that is sampled at 2000 Hz in total. Our other cost follows a script, in ms per
    /// window.
    fn simulate(script: impl IntoIterator<Item = u64>) -> (Budget, String) {
        let mut budget = Budget::new(0.01, 2, Duration::from_nanos(2500));
        let mut changes = String::new();
        for (window, own_ms) in script.into_iter().enumerate() {
            let samples = (20_000.0 * budget.share()) as u64;
            // Half of our work depends on the samples.
            let own_ms = own_ms as f64 * (0.5 + 0.5 * budget.share());
            let own_cpu = Duration::from_secs_f64(own_ms / 1e3);
            if let Some(share) = budget.judge(&Load { elapsed: WINDOW, own_cpu, samples }) {
                changes += &format!("{window}: {:.2}% → {share:.3}\n", 100.0 * budget.cost());
                budget.adopt(share);
            }
        }
        (budget, changes)
    }

    #[test]
    fn a_cheap_collection_keeps_its_rate() {
        let (budget, changes) = simulate([100; 500]);
        assert_eq!((changes.as_str(), budget.share()), ("", 1.0));
        assert!(
            (budget.cost() - 0.0075).abs() < 1e-6,
            "50 ms of interrupts, 100 ms of ours: {}",
            budget.cost()
        );
    }

    #[test]
    fn an_outlier_keeps_the_rate_and_lasting_load_lowers_it() {
        let (_, changes) = simulate((0..100).map(|w| if w % 2 == 0 { 180 } else { 100 }));
        assert_eq!(changes, "");
        let (budget, changes) = simulate([400; 60]);
        expect![[r#"
            0: 2.25% → 0.333
            2: 1.42% → 0.176
            4: 1.22% → 0.108
            6: 1.14% → 0.072
            8: 1.09% → 0.049
            10: 1.06% → 0.035
            12: 1.04% → 0.025
            14: 1.03% → 0.018
            16: 1.02% → 0.016
        "#]]
        .assert_eq(&changes);
        assert_eq!(budget.share(), SHARE_MIN, "not lower, however much we cost");
    }

    #[test]
    fn the_rate_recovers_slowly() {
        let (budget, changes) = simulate((0..200).map(|w| if w < 10 { 300 } else { 20 }));
        expect![[r#"
            1: 1.75% → 0.429
            3: 1.18% → 0.273
            5: 1.02% → 0.200
            39: 0.11% → 0.400
            69: 0.17% → 0.800
            99: 0.29% → 1.000
        "#]]
        .assert_eq(&changes);
        assert_eq!((budget.share(), budget.lowered, budget.raised), (1.0, 3, 3));
    }

    #[test]
    fn expensive_interrupts_lower_the_rate_and_cheap_ones_raise_it() {
        let mut budget = Budget::new(0.01, 2, Duration::from_micros(20));
        budget.begin(1000.0);
        assert!((budget.share() - 0.25).abs() < 1e-9, "half of the budget are 250 interrupts");
        let mut changes = String::new();
        for window in 0..700 {
            // The interrupt is measured every ten minutes. The host is busy at first and idle later.
            if window % 60 == 59 {
                budget.measured(Duration::from_nanos(if window < 240 { 60_000 } else { 2500 }));
            }
            let samples = (20_000.0 * budget.share()) as u64;
            let own_cpu = Duration::from_millis(10);
            if let Some(share) = budget.judge(&Load { elapsed: WINDOW, own_cpu, samples }) {
                changes += &format!("{window}: {:.2}% → {share:.3}\n", 100.0 * budget.cost());
                budget.adopt(share);
            }
        }
        expect![[r#"
            60: 1.05% → 0.179
            180: 1.03% → 0.130
            388: 0.26% → 0.260
            448: 0.29% → 0.519
            508: 0.36% → 1.000
        "#]]
        .assert_eq(&changes);
        assert_eq!(budget.share(), 1.0);

        let mut without = Budget::new(0.0, 2, Duration::from_micros(20));
        without.begin(1000.0);
        assert_eq!(without.share(), 1.0);
    }

    #[test]
    fn a_rise_that_failed_delays_the_next_one() {
        // The cost is high whenever the share is above a half.
        let mut budget = Budget::new(0.01, 2, Duration::from_nanos(2500));
        let mut changes = 0;
        for _ in 0..3600 {
            let own_ms = if budget.share() > 0.5 { 400 } else { 40 };
            let load = Load { elapsed: WINDOW, own_cpu: Duration::from_millis(own_ms), samples: 0 };
            if let Some(share) = budget.judge(&load) {
                budget.adopt(share);
                changes += 1;
            }
        }
        assert!((20..70).contains(&changes), "{changes} changes in ten hours");
        assert!(budget.share() <= 0.5);
    }
}
