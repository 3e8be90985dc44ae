//! Judges the confidence: for each level the share of samples whose estimates are right, and how many of the wrong ones
//! had low confidence (DCPI §6.1.5 and §6.2).
//!
//! Input: each sampled instruction's level and error. Output: sums of weight, which can be added over programs that weigh
//! 1 each. Linear.

use dwell_analysis::Confidence;
use serde::Serialize;

/// The levels, lowest first.
pub const LEVELS: [Confidence; 3] = [Confidence::Low, Confidence::Medium, Confidence::High];

/// Shares of the samples at one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Level {
    /// The share of all samples at the level.
    pub samples: f64,
    /// The share of samples at the level and within 10% of the truth.
    pub within_10: f64,
    /// The share of samples at the level and within 15% of the truth.
    pub within_15: f64,
}

/// Shares by level, in the order of [`LEVELS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reliability(pub [Level; 3]);

/// An instruction's samples, level and error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// The instruction's samples.
    pub weight: f64,
    /// The confidence of the analysis.
    pub confidence: Confidence,
    /// Estimate over truth, less one.
    pub error: f64,
}

impl Reliability {
    /// Adds up one program, whose total weight is 1.
    pub fn new(judged: impl Iterator<Item = Judged>) -> Reliability {
        let (mut levels, mut total) = ([Level::default(); 3], 0.0);
        for j in judged {
            let level = &mut levels[LEVELS.iter().position(|&l| l == j.confidence).unwrap_or(0)];
            total += j.weight;
            level.samples += j.weight;
            level.within_10 += if j.error.abs() <= 0.10 + 1e-9 { j.weight } else { 0.0 };
            level.within_15 += if j.error.abs() <= 0.15 + 1e-9 { j.weight } else { 0.0 };
        }
        let share = |x: f64| if total > 0.0 { x / total } else { 0.0 };
        Reliability(levels.map(|l| Level {
            samples: share(l.samples),
            within_10: share(l.within_10),
            within_15: share(l.within_15),
        }))
    }

    /// Returns the mean over programs.
    pub fn mean(all: &[Reliability]) -> Reliability {
        let mut sum = Reliability::default();
        for (to, from) in all.iter().flat_map(|r| r.0.iter().enumerate()) {
            let level = &mut sum.0[to];
            level.samples += from.samples / all.len() as f64;
            level.within_10 += from.within_10 / all.len() as f64;
            level.within_15 += from.within_15 / all.len() as f64;
        }
        sum
    }

    /// Returns, of the samples whose estimates are off by more than 15%, the share with low confidence; `None` if none is
    /// off.
    pub fn wrong_that_are_low(&self) -> Option<f64> {
        let wrong = |l: &Level| l.samples - l.within_15;
        let all: f64 = self.0.iter().map(wrong).sum();
        (all > 1e-12).then(|| wrong(&self.0[0]) / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_by_hand() {
        let judged = |weight, confidence, error| Judged { weight, confidence, error };
        let one = Reliability::new(
            [
                judged(50.0, Confidence::High, 0.10),
                judged(25.0, Confidence::High, -0.5),
                judged(25.0, Confidence::Low, 0.2),
            ]
            .into_iter(),
        );
        assert_eq!(one.0[2], Level { samples: 0.75, within_10: 0.5, within_15: 0.5 });
        assert_eq!(one.wrong_that_are_low(), Some(0.5));
        let none = Reliability::new([judged(3.0, Confidence::Low, 0.0)].into_iter());
        assert_eq!(none.wrong_that_are_low(), None);
        assert_eq!(Reliability::mean(&[one, none]).0[0].samples, 0.625);
    }
}
