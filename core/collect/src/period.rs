//! Randomized periods (DCPI §4.1.1): a fixed period falls in step with loops of commensurate length.
//!
//! Enters: an event's mean period, and how far it got since its period was last written. Leaves: the next period.
//! Each sample counts one, none is weighted: what must hold is that on average a sample stands for the documented
//! period. Two things pull that mean away and are put right here:
//!
//! - Samples per unit of work go with 1/period, so it is the *rate* that is drawn evenly around its mean.
//! - Writing the period (PERF_EVENT_IOC_PERIOD) throws away the progress towards the next sample, half a period on
//!   average; spread over the `n` periods since the last writing, the rate must be higher by 1/(2n).
//!
//! So an event is rewritten only after some periods have passed, and the drawn rate makes up for the loss.
//!
//! A run of a second or two sees but a handful of draws, whose mean strays: four of them by 3.6% (one standard
//! deviation). Hence they come in pairs that mirror each other at the mean rate (antithetic variates, Hammersley and
//! Morton 1956): whatever a pair covers whole has the documented rate.
//!
//! Events that children and threads inherit (all but those of the whole machine) are another matter. The kernel gives a
//! child the period that its ancestor's event has when the child is born, and no way to rewrite the child's: a
//! long-lived child keeps one draw, and so do all that are born after the first task has ended. Therefore what is drawn
//! for inheritance lies close to the mean, so that samples × period is right within [`SPREAD_INHERITED`] for each task;
//! it makes up for no loss, which would be the first task's only; and it is rewritten so rarely that this loss, at most
//! half a sample each time, is below 0.2% of the samples. They are opened with the documented period itself.

use crate::random::Random;

/// Periods that must pass before the next writing.
pub const PERIODS_BETWEEN: f64 = 24.0;
/// The same for an event that is inherited, over all who inherit it.
const PERIODS_BETWEEN_INHERITED: f64 = 256.0;
/// Rates are drawn from mean × (1 ± this).
const SPREAD: f64 = 0.125;
/// The same for an event that is inherited.
const SPREAD_INHERITED: f64 = 0.02;

/// Draws an event's periods.
#[derive(Clone, Debug)]
pub struct RandomPeriod {
    mean: u64,
    inherited: bool,
    random: Random,
    /// The second of a pair: where between the lowest rate (0) and the highest (1).
    mirrored: Option<f64>,
}

impl RandomPeriod {
    /// For an event of this mean period.
    pub fn new(mean: u64, inherited: bool, seed: u64) -> Self {
        RandomPeriod { mean, inherited, random: Random::new(seed), mirrored: None }
    }

    /// Another mean from now on.
    pub fn set_mean(&mut self, mean: u64) {
        self.mean = mean;
    }

    /// The period to open the event with.
    pub fn first(&mut self) -> u64 {
        if self.inherited { self.mean } else { self.next(PERIODS_BETWEEN) }
    }

    /// Whether to write another one after `passed` periods with the last one. A period of 1 has no room for chance.
    pub fn is_due(&self, passed: f64) -> bool {
        let between = if self.inherited { PERIODS_BETWEEN_INHERITED } else { PERIODS_BETWEEN };
        passed >= between && self.mean > 1
    }

    /// The next period, after `passed` periods (of the mean length) with the last one.
    pub fn next(&mut self, passed: f64) -> u64 {
        let (spread, made_up) =
            if self.inherited { (SPREAD_INHERITED, 0.0) } else { (SPREAD, 1.0 / (2.0 * passed.max(1.0))) };
        let evenly = 1.0 + spread * (2.0 * self.draw() - 1.0);
        ((self.mean as f64 / (evenly + made_up)).round() as u64).max(1)
    }

    /// From 0 to 1; of two draws, the second is as far below the middle as the first was above.
    fn draw(&mut self) -> f64 {
        if let Some(second) = self.mirrored.take() {
            return second;
        }
        let first = self.random.uniform();
        self.mirrored = Some(1.0 - first);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: u64 = 200_000;

    /// Simulates an event whose period is rewritten at random moments, as the kernel does it: by how much the mean
    /// period that its samples stand for is off.
    fn mean_off(inherited: bool, interval_periods: f64) -> f64 {
        let mut random = RandomPeriod::new(MEAN, inherited, 0xd311);
        let (mut work, mut samples) = (0.0, 0.0);
        for _ in 0..20_000 {
            let interval = interval_periods * MEAN as f64 * (0.9 + 0.2 * random.random.uniform());
            let period = random.next(interval / MEAN as f64) as f64;
            samples += (interval / period).floor();
            work += interval;
        }
        work / samples / MEAN as f64 - 1.0
    }

    #[test]
    fn the_mean_is_the_documented_one() {
        for interval_periods in [24.0, 50.0, 300.0] {
            let off = mean_off(false, interval_periods);
            assert!(off.abs() < 0.002, "{interval_periods} periods: the mean is off by {off:+.4}");
        }
        let off = mean_off(true, PERIODS_BETWEEN_INHERITED * 1.2);
        assert!(off.abs() < 0.002, "inherited: the mean is off by {off:+.4}");
    }

    #[test]
    fn a_pair_has_the_documented_rate() {
        let mut random = RandomPeriod::new(MEAN, false, 11);
        let periods_passed = 1e9; // Nothing to make up for.
        let mut drawn: Vec<f64> =
            (0..1000).map(|_| MEAN as f64 / random.next(periods_passed) as f64 - 1.0).collect();
        assert!(drawn.chunks(2).all(|pair| (pair[0] + pair[1]).abs() < 1e-4), "{drawn:?}");
        drawn.sort_by(f64::total_cmp);
        assert!(drawn[0] < -0.12 && drawn[500].abs() < 0.02 && drawn[999] > 0.12, "{drawn:?}");
    }

    #[test]
    fn whoever_inherits_a_period_has_one_close_to_the_documented() {
        let mut random = RandomPeriod::new(MEAN, true, 7);
        assert_eq!(random.first(), MEAN);
        assert!(!random.is_due(PERIODS_BETWEEN) && random.is_due(PERIODS_BETWEEN_INHERITED));
        let drawn: Vec<u64> = (0..1000).map(|_| random.next(PERIODS_BETWEEN)).collect();
        assert!(drawn.iter().all(|p| p.abs_diff(MEAN) <= MEAN / 48), "{drawn:?}");
        assert!(!RandomPeriod::new(1, true, 7).is_due(1e9));
    }
}
