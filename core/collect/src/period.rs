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

/// Periods that must pass before the next writing.
pub const PERIODS_BETWEEN: f64 = 24.0;
/// Rates are drawn from mean × (1 ± this).
const SPREAD: f64 = 0.125;

/// Draws an event's periods.
#[derive(Clone, Debug)]
pub struct RandomPeriod {
    mean: f64,
    state: u64,
}

impl RandomPeriod {
    /// For an event of this mean period.
    pub fn new(mean: u64, seed: u64) -> Self {
        RandomPeriod { mean: mean as f64, state: seed | 1 }
    }

    /// The next period, after `passed` periods (of the mean length) with the last one.
    pub fn next(&mut self, passed: f64) -> u64 {
        let evenly = 1.0 + SPREAD * (2.0 * self.uniform() - 1.0);
        let made_up = 1.0 / (2.0 * passed.max(1.0));
        ((self.mean / (evenly + made_up)).round() as u64).max(1)
    }

    /// In [0, 1), by xorshift64*.
    fn uniform(&mut self) -> f64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates an event whose period is rewritten at random moments, as the kernel does it.
    #[test]
    fn the_mean_is_the_documented_one() {
        const MEAN: u64 = 200_000;
        for interval_periods in [24.0, 50.0, 300.0] {
            let mut random = RandomPeriod::new(MEAN, 0xd311);
            let (mut work, mut samples) = (0.0, 0.0);
            for _ in 0..20_000 {
                let interval = interval_periods * MEAN as f64 * (0.9 + 0.2 * random.uniform());
                let period = random.next(interval / MEAN as f64) as f64;
                samples += (interval / period).floor();
                work += interval;
            }
            let off = work / samples / MEAN as f64 - 1.0;
            assert!(off.abs() < 0.002, "{interval_periods} periods: the mean is off by {off:+.4}");
        }
    }
}
