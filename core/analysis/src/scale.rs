//! The scale of a procedure's frequencies, and the intervals that follow from it.
//!
//! Out of order, samples of time fix frequencies only up to one factor for each procedure. Calls and bursts join the
//! factors of a program's procedures, and counted executions fix them. An estimate is shown as an absolute number only if
//! the factor is known; everything else is a ratio or a bound.

use serde::{Deserialize, Deserializer, Serialize};

/// The scale of a procedure's frequencies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Which frequencies can be compared with each other.
    pub kind: ScaleKind,
    /// Standard deviation of the logarithm of the factor; infinite unless `kind` is [`ScaleKind::Absolute`].
    #[serde(deserialize_with = "infinite_if_null")]
    pub deviation: f64,
    /// The factor by which all frequencies can grow before they exceed the limits of the processor.
    #[serde(deserialize_with = "infinite_if_null")]
    pub headroom: f64,
    /// Descriptions of the evidence.
    pub evidence: Vec<String>,
}

/// Standard deviation of the logarithm of a ratio of two blocks' frequencies of unknown certainty.
const RATIO_DEVIATION: f64 = 0.35;

impl Scale {
    /// Returns how many times as large as estimated a frequency can be without an absolute scale.
    pub fn times_max(&self) -> f64 {
        self.headroom.max(1.0) * Interval::about(1.0, RATIO_DEVIATION).max
    }
}

/// Which frequencies can be compared with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum ScaleKind {
    /// Frequencies of one procedure.
    #[default]
    Procedure,
    /// Frequencies of all procedures of the program whose kind is this or a greater one.
    Program,
    /// All frequencies: a frequency times the sampling period is a number of executions.
    Absolute,
}

/// What is known of a procedure's scale from outside of it.
#[derive(Clone, Debug, PartialEq)]
pub struct OuterScale {
    /// The factor by which the procedure's own frequencies are multiplied.
    pub factor: f64,
    /// The kind of scale after this multiplication.
    pub kind: ScaleKind,
    /// Standard deviation of the factor's logarithm; infinite unless `kind` is [`ScaleKind::Absolute`].
    pub deviation: f64,
    /// Descriptions of the evidence.
    pub evidence: Vec<String>,
}

impl Default for OuterScale {
    /// Returns the scale if nothing is known from outside.
    fn default() -> Self {
        OuterScale { factor: 1.0, kind: ScaleKind::Procedure, deviation: f64::INFINITY, evidence: Vec::new() }
    }
}

/// Bounds that contain a figure in 90 % of all cases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower bound.
    pub min: f64,
    /// The upper bound; infinite if nothing bounds the figure.
    #[serde(deserialize_with = "infinite_if_null")]
    pub max: f64,
}

/// Reads a number that may be infinite: JSON has no such number, and `null` is written for it.
fn infinite_if_null<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Option::<f64>::deserialize(from).map(|number| number.unwrap_or(f64::INFINITY))
}

/// Standard deviations between the middle and either end of an interval that contains 90 % of a normal distribution.
const ENDS: f64 = 1.645;

/// An interval is shown as one number if its ends differ by at most this factor.
const PRECISE_RATIO_MAX: f64 = 3.0;

/// Greatest mean, with 95 % certainty, of a number of samples that was observed as 0: −ln 0.05.
pub const CHANCE_SAMPLES_MAX: f64 = 3.0;

impl Interval {
    /// Returns the interval about an estimate whose logarithm has this standard deviation.
    pub fn about(estimate: f64, deviation: f64) -> Interval {
        let times = (ENDS * deviation).min(700.0).exp();
        Interval { min: estimate / times, max: (estimate * times).min(f64::MAX) }
    }

    /// Returns the distance of either end from the middle, as a logarithm.
    pub fn half_width(self) -> f64 {
        (self.max / self.min).ln() / 2.0
    }

    /// Whether one number may stand for the interval. A guess in order is off by as much (DCPI §6.1.5: low confidence).
    pub fn is_precise(self) -> bool {
        self.max <= PRECISE_RATIO_MAX * self.min
    }

    /// Returns the interval, limited to what is possible.
    pub fn within(self, min: f64, max: f64) -> Interval {
        let max = self.max.min(max).max(min);
        Interval { min: self.min.clamp(min, max), max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_limited_to_possible_values() {
        let interval = Interval::about(100.0, 0.1);
        assert!((interval.max / interval.min - (2.0_f64 * 0.1645).exp()).abs() < 1e-9);
        assert_eq!(interval.within(0.0, 100.0).max, 100.0);
        assert_eq!(interval.within(0.0, 10.0), Interval { min: 10.0, max: 10.0 });
        assert_eq!(Interval::about(1.0, f64::INFINITY).min, 1.0 / 700.0_f64.exp());
    }

    #[test]
    fn a_wide_interval_is_no_number() {
        assert!(Interval::about(5.0, 0.15).is_precise() && !Interval::about(5.0, 0.5).is_precise());
        assert!(Interval::about(0.0, 0.15).is_precise(), "nothing is known to have run there");
        assert!(
            !Interval { min: 0.0, max: 1.0 }.is_precise()
                && !Interval { min: 1.0, max: f64::INFINITY }.is_precise()
        );
    }
}
