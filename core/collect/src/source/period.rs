//! Randomized periods (DCPI §4.1.1): a fixed period synchronizes with loops of commensurate length.
//!
//! Enters: an event's mean period, and how far it got since its period was last written. Leaves: the next period. Each
//! sample counts one, without a weight, so a sample must represent the documented period on average. Two effects shift that
//! average and are corrected here:
//!
//! - The number of samples per unit of work is proportional to 1/period, so the *rate* is drawn evenly around its mean, not
//!   the period.
//! - Writing the period (PERF_EVENT_IOC_PERIOD) discards the progress towards the next sample, half a period on average.
//!   Spread over the `n` periods since the last write, the rate must be higher by 1/(2n).
//!
//! So an event is rewritten only after some periods have passed, and the drawn rate compensates for the loss.
//!
//! A run of one or two seconds has only a handful of draws, whose mean deviates: that of four draws by 3.6% (one standard
//! deviation). So draws come in pairs that are symmetric about the mean rate (antithetic variates, Hammersley and Morton
//! 1956): an interval that contains complete pairs has exactly the documented rate.
//!
//! Events that children and threads inherit (all except those of the whole machine) are different. The kernel gives a child
//! the period that its ancestor's event has when the child is created, and offers no way to rewrite the child's period: a
//! long-lived child keeps one draw, and so do all that are created after the first task has ended. Therefore the draws of
//! inherited events lie close to the mean, so that samples × period is right within [`SPREAD_INHERITED`] for each task. They
//! do not compensate for the loss, which would occur in the first task only. They are written so rarely that this loss, at
//! most half a sample each time, is below 0.2% of the samples. Such events are opened with the documented period itself.

use crate::random::Random;

/// Number of periods that must pass before the next write.
pub const PERIODS_BETWEEN: f64 = 24.0;
/// The same number for an inherited event, counted over all tasks that inherited it.
const PERIODS_BETWEEN_INHERITED: f64 = 256.0;
/// Rates are drawn from mean × (1 ± this value).
const SPREAD: f64 = 0.125;
/// The same spread for an inherited event.
const SPREAD_INHERITED: f64 = 0.02;

/// Draws an event's periods.
#[derive(Clone, Debug)]
pub struct RandomPeriod {
    mean: u64,
    inherited: bool,
    random: Random,
    /// The second draw of a pair: its position between the lowest rate (0) and the highest (1).
    mirrored: Option<f64>,
}

impl RandomPeriod {
    /// Creates a sequence of periods with this mean.
    pub fn new(mean: u64, inherited: bool, seed: u64) -> Self {
        RandomPeriod { mean, inherited, random: Random::new(seed), mirrored: None }
    }

    /// Sets another mean from now on.
    pub fn set_mean(&mut self, mean: u64) {
        self.mean = mean;
    }

    /// Returns the period to open the event with.
    pub fn first(&mut self) -> u64 {
        if self.inherited { self.mean } else { self.next(PERIODS_BETWEEN) }
    }

    /// Returns whether to write another period after `passed` periods with the last one. A period of 1 leaves no room for
    /// randomness.
    pub fn is_due(&self, passed: f64) -> bool {
        let between = if self.inherited { PERIODS_BETWEEN_INHERITED } else { PERIODS_BETWEEN };
        passed >= between && self.mean > 1
    }

    /// Returns the next period, after `passed` periods (of the mean length) with the last one.
    pub fn next(&mut self, passed: f64) -> u64 {
        let (spread, made_up) =
            if self.inherited { (SPREAD_INHERITED, 0.0) } else { (SPREAD, 1.0 / (2.0 * passed.max(1.0))) };
        let evenly = 1.0 + spread * (2.0 * self.draw() - 1.0);
        ((self.mean as f64 / (evenly + made_up)).round() as u64).max(1)
    }

    /// Returns a number from 0 to 1. The second draw of a pair lies as far below the middle as the first lies above it.
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

    /// Simulates an event whose period is rewritten at random moments, as the kernel does it. Returns the relative error of
    /// the mean period that its samples represent.
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
        let periods_passed = 1e9; // After so many periods there is no loss to compensate for.
        let mut drawn: Vec<f64> =
            (0..1000).map(|_| MEAN as f64 / random.next(periods_passed) as f64 - 1.0).collect();
        assert!(drawn.chunks(2).all(|pair| (pair[0] + pair[1]).abs() < 1e-4), "{drawn:?}");
        drawn.sort_by(f64::total_cmp);
        assert!(drawn[0] < -0.12 && drawn[500].abs() < 0.02 && drawn[999] > 0.12, "{drawn:?}");
    }

    #[test]
    fn inherited_periods_are_close_to_the_documented_one() {
        let mut random = RandomPeriod::new(MEAN, true, 7);
        assert_eq!(random.first(), MEAN);
        assert!(!random.is_due(PERIODS_BETWEEN) && random.is_due(PERIODS_BETWEEN_INHERITED));
        let drawn: Vec<u64> = (0..1000).map(|_| random.next(PERIODS_BETWEEN)).collect();
        assert!(drawn.iter().all(|p| p.abs_diff(MEAN) <= MEAN / 48), "{drawn:?}");
        assert!(!RandomPeriod::new(1, true, 7).is_due(1e9));
    }
}
