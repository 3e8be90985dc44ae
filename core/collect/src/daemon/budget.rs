//! What sampling may cost, and the rate that keeps within it.
//!
//! Enters: what was measured over a window (CPU time of ours, samples). Leaves: the cost per CPU, and now and then
//! another share of the asked rate. Never here: clocks, events.
//!
//! The cost of a sample is what its interrupt takes of whoever was interrupted, which no accounting of ours shows: it
//! is measured on this machine now and then (`sys::interrupt`), since a virtual one's depends on what else its host does
//! (2.5 µs one day, 13 to 27 another), and stands for all. The rest is our own CPU time. The law is deliberately lazy
//! upwards: each change begins an epoch, so the rate must not swing.

use std::time::Duration;

/// The lowest share of the asked rate: below, there is too little to learn for the trouble.
const SHARE_MIN: f64 = 1.0 / 64.0;
/// Of the budget, what the interrupts of the first rate may take.
pub const INTERRUPTS_SHARE: f64 = 0.5;
/// A lowered rate aims at that part of the budget.
const AIM: f64 = 0.75;
/// A rate is lowered by a quarter at least, and at most to a quarter: a moment's storm is no reason for more.
const LOWERED_TO: std::ops::RangeInclusive<f64> = 0.25..=0.75;
/// A cost so many times the budget is answered after one window, lesser ones after [`PATIENCE`].
const ALARM: f64 = 2.0;
const PATIENCE: u32 = 2;
/// Windows of low cost before the rate is raised; doubled when it had to be lowered again that soon.
const CALM_MIN: u32 = 30;
const CALM_MAX: u32 = 360;

/// A window of time, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// How long it was.
    pub elapsed: Duration,
    /// CPU time of ours in it, user and kernel.
    pub own_cpu: Duration,
    /// Samples in it, lost ones included: their interrupts were paid for.
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
    /// How often it was raised.
    pub raised: u64,
}

impl Budget {
    /// `budget` is a share of each of `cpus`, `interrupt` what one sample takes of whoever it interrupts.
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

    /// What to begin with of a rate that nobody insists on, in samples per second of a busy CPU. Without a budget all of it.
    pub fn begin(&mut self, rate_hz: f64) {
        if self.budget > 0.0 {
            let affordable_hz = INTERRUPTS_SHARE * self.budget / self.interrupt.as_secs_f64().max(1e-9);
            self.share = (affordable_hz / rate_hz.max(1e-9)).clamp(SHARE_MIN, 1.0);
        }
    }

    /// What an interrupt was measured to take. One measurement is no more than half the truth.
    pub fn measured(&mut self, interrupt: Duration) {
        self.interrupt = (self.interrupt + interrupt) / 2;
    }

    /// The part of the asked rate that is in force.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// What is allowed, as a share of each CPU.
    pub fn allowed(&self) -> f64 {
        self.budget
    }

    /// What the last window cost, as a share of each CPU.
    pub fn cost(&self) -> f64 {
        self.cost
    }

    /// What the interrupts of so many samples take, as far as is known now.
    pub fn interrupts(&self, samples: u64) -> Duration {
        Duration::from_secs_f64(self.interrupt.as_secs_f64() * samples as f64)
    }

    /// What a window cost, as a share of each CPU.
    pub fn cost_of(&self, load: &Load) -> f64 {
        let spent = load.own_cpu + self.interrupts(load.samples);
        spent.as_secs_f64() / (load.elapsed.as_secs_f64().max(1e-9) * self.cpus)
    }

    /// Takes a window in; the share of the asked rate to go on with, where that is another one. It is in force only
    /// once [`Budget::adopt`] says so: where no epoch can be begun for it, the old one goes on.
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
        // All of the cost taken as proportional: what does not grow with the rate makes this only more careful.
        let expected = self.cost * higher / self.share;
        self.calm = if higher > self.share && expected < AIM * self.budget { self.calm + 1 } else { 0 };
        (self.calm >= self.calm_needed).then_some(higher)
    }

    /// The share is in force from now on.
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

    /// A machine of two CPUs that is sampled at 2000 Hz in all; what else we cost follows a script, in ms per window.
    fn simulate(script: impl IntoIterator<Item = u64>) -> (Budget, String) {
        let mut budget = Budget::new(0.01, 2, Duration::from_nanos(2500));
        let mut told = String::new();
        for (window, own_ms) in script.into_iter().enumerate() {
            let samples = (20_000.0 * budget.share()) as u64;
            // Half of what we do is for samples.
            let own_ms = own_ms as f64 * (0.5 + 0.5 * budget.share());
            let own_cpu = Duration::from_secs_f64(own_ms / 1e3);
            if let Some(share) = budget.judge(&Load { elapsed: WINDOW, own_cpu, samples }) {
                told += &format!("{window}: {:.2}% → {share:.3}\n", 100.0 * budget.cost());
                budget.adopt(share);
            }
        }
        (budget, told)
    }

    #[test]
    fn a_cheap_collection_keeps_its_rate() {
        let (budget, told) = simulate([100; 500]);
        assert_eq!((told.as_str(), budget.share()), ("", 1.0));
        assert!(
            (budget.cost() - 0.0075).abs() < 1e-6,
            "50 ms of interrupts, 100 ms of ours: {}",
            budget.cost()
        );
    }

    #[test]
    fn an_outlier_is_forgiven_and_lasting_load_is_not() {
        let (_, told) = simulate((0..100).map(|w| if w % 2 == 0 { 180 } else { 100 }));
        assert_eq!(told, "");
        let (budget, told) = simulate([400; 60]);
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
        .assert_eq(&told);
        assert_eq!(budget.share(), SHARE_MIN, "not lower, however much we cost");
    }

    #[test]
    fn the_rate_comes_back_slowly() {
        let (budget, told) = simulate((0..200).map(|w| if w < 10 { 300 } else { 20 }));
        expect![[r#"
            1: 1.75% → 0.429
            3: 1.18% → 0.273
            5: 1.02% → 0.200
            39: 0.11% → 0.400
            69: 0.17% → 0.800
            99: 0.29% → 1.000
        "#]]
        .assert_eq(&told);
        assert_eq!((budget.share(), budget.lowered, budget.raised), (1.0, 3, 3));
    }

    #[test]
    fn dear_interrupts_lower_the_rate_and_cheap_ones_let_it_rise() {
        let mut budget = Budget::new(0.01, 2, Duration::from_micros(20));
        budget.begin(1000.0);
        assert!((budget.share() - 0.25).abs() < 1e-9, "half of the budget are 250 interrupts");
        let mut told = String::new();
        for window in 0..700 {
            // A measurement every ten minutes: the host is busy for a while, then it is not.
            if window % 60 == 59 {
                budget.measured(Duration::from_nanos(if window < 240 { 60_000 } else { 2500 }));
            }
            let samples = (20_000.0 * budget.share()) as u64;
            let own_cpu = Duration::from_millis(10);
            if let Some(share) = budget.judge(&Load { elapsed: WINDOW, own_cpu, samples }) {
                told += &format!("{window}: {:.2}% → {share:.3}\n", 100.0 * budget.cost());
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
        .assert_eq(&told);
        assert_eq!(budget.share(), 1.0);

        let mut without = Budget::new(0.0, 2, Duration::from_micros(20));
        without.begin(1000.0);
        assert_eq!(without.share(), 1.0);
    }

    #[test]
    fn a_rash_rise_makes_the_next_one_wait() {
        // Dear whenever the rate is above a half.
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
