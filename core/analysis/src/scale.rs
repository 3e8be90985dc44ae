//! What is known of the scale of a procedure's frequencies, and the intervals that follow from it.
//!
//! Out of order, samples of time fix frequencies only up to one factor for a procedure. Calls and bursts join the factors of a
//! program's procedures, and executions that were counted fix them. An estimate is shown as an absolute number only where the
//! factor is known; everything else is a ratio or a bound.

/// The scale of a procedure's frequencies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scale {
    /// Which frequencies can be compared with each other.
    pub kind: ScaleKind,
    /// Standard deviation of the logarithm of the factor; infinite unless `kind` is [`ScaleKind::Absolute`].
    pub deviation: f64,
    /// How many times larger all frequencies can be before the processor could not have done it.
    pub headroom: f64,
    /// What it rests on, in words.
    pub evidence: Vec<String>,
}

/// Standard deviation of a ratio of two blocks' frequencies where nothing says how sure they are.
const RATIO_DEVIATION: f64 = 0.35;

impl Scale {
    /// How many times as large as estimated a frequency can be without an absolute scale.
    pub fn times_max(&self) -> f64 {
        self.headroom.max(1.0) * Interval::about(1.0, RATIO_DEVIATION).max
    }
}

/// Which frequencies can be compared with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScaleKind {
    /// Those of one procedure.
    #[default]
    Procedure,
    /// Those of all procedures of the program with this kind or a greater one.
    Program,
    /// All: a frequency times the sampling period is a number of executions.
    Absolute,
}

/// What is known of a procedure's scale from outside of it.
#[derive(Clone, Debug, PartialEq)]
pub struct OuterScale {
    /// The factor by which to multiply the frequencies that the procedure has by itself.
    pub factor: f64,
    /// The kind of scale that the factor brings the frequencies to.
    pub kind: ScaleKind,
    /// Standard deviation of the factor's logarithm; infinite unless `kind` is [`ScaleKind::Absolute`].
    pub deviation: f64,
    /// What it rests on, in words.
    pub evidence: Vec<String>,
}

impl Default for OuterScale {
    /// Nothing is known from outside.
    fn default() -> Self {
        OuterScale { factor: 1.0, kind: ScaleKind::Procedure, deviation: f64::INFINITY, evidence: Vec::new() }
    }
}

/// Bounds between which a figure lies in 90 % of all cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower bound.
    pub min: f64,
    /// The upper bound; infinite where nothing bounds the figure.
    pub max: f64,
}

/// Standard deviations between the middle and either end of an interval that holds 90 % of a normal distribution.
const ENDS: f64 = 1.645;

/// One number stands for an interval whose ends differ by at most this factor.
const TOLD_TIMES_MAX: f64 = 3.0;

/// What has no samples may have so many in the mean: with 95 % certainty no more, −ln 0.05.
pub const CHANCE_SAMPLES_MAX: f64 = 3.0;

impl Interval {
    /// The interval about an estimate whose logarithm has this standard deviation.
    pub fn about(estimate: f64, deviation: f64) -> Interval {
        let times = (ENDS * deviation).min(700.0).exp();
        Interval { min: estimate / times, max: (estimate * times).min(f64::MAX) }
    }

    /// How far, as a logarithm, either end is from the middle.
    pub fn half_width(self) -> f64 {
        (self.max / self.min).ln() / 2.0
    }

    /// Whether one number may stand for it. In order a guess is off by as much (DCPI §6.1.5: low confidence).
    pub fn is_told(self) -> bool {
        self.max <= TOLD_TIMES_MAX * self.min
    }

    /// The same interval, cut to what is possible.
    pub fn within(self, min: f64, max: f64) -> Interval {
        let max = self.max.min(max).max(min);
        Interval { min: self.min.clamp(min, max), max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_cut_to_what_is_possible() {
        let interval = Interval::about(100.0, 0.1);
        assert!((interval.max / interval.min - (2.0_f64 * 0.1645).exp()).abs() < 1e-9);
        assert_eq!(interval.within(0.0, 100.0).max, 100.0);
        assert_eq!(interval.within(0.0, 10.0), Interval { min: 10.0, max: 10.0 });
        assert_eq!(Interval::about(1.0, f64::INFINITY).min, 1.0 / 700.0_f64.exp());
    }

    #[test]
    fn a_wide_interval_is_no_number() {
        assert!(Interval::about(5.0, 0.15).is_told() && !Interval::about(5.0, 0.5).is_told());
        assert!(Interval::about(0.0, 0.15).is_told(), "nothing is known to have run there");
        assert!(
            !Interval { min: 0.0, max: 1.0 }.is_told()
                && !Interval { min: 1.0, max: f64::INFINITY }.is_told()
        );
    }
}
