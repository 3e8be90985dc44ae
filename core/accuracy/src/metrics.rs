//! Shares of samples (or of edge executions) whose estimates are near the truth: the counterparts of DCPI's Figures 8 and
//! 9.
//!
//! Input: (weight, estimate, truth) of every instruction or edge. Output: shares within 5, 10, 15 and 45%, and histograms
//! of the error: absolute, up to one scale for the program, up to one scale for each procedure. Complexity: O(n log n).

use serde::Serialize;

/// The bounds on the error that are reported.
pub const BOUNDS: [f64; 4] = [0.05, 0.10, 0.15, 0.45];
/// A fitted scale must have the greatest weight within 10%, except for this part of all weight: otherwise a few samples
/// would move the scale to the margin, where nothing is within 5%.
const FITTED_TOLERANCE: f64 = 0.005;

/// One instruction or edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Its weight: its samples, or its true executions.
    pub weight: f64,
    /// The estimated executions; `None`, which counts as wrong, if the estimator has none.
    pub estimate: Option<f64>,
    /// The true executions.
    pub truth: f64,
}

/// Shares of the weight whose error is at most each of [`BOUNDS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Within(pub [f64; 4]);

impl Point {
    /// Returns estimate over truth, less one; infinite if there is no estimate.
    pub fn error(&self, scale: f64) -> f64 {
        match self.estimate {
            Some(estimate) if self.truth > 0.0 => scale * estimate / self.truth - 1.0,
            Some(0.0) => 0.0,
            _ => f64::INFINITY,
        }
    }
}

/// Returns the shares of `points` within the bounds, each point with its scale. All are 0 without any weight.
pub fn within<'a>(points: impl Iterator<Item = (&'a Point, f64)>) -> Within {
    let (mut total, mut sums) = (0.0, [0.0; 4]);
    for (point, scale) in points {
        total += point.weight;
        // An error of exactly 10% is within 10%, whatever the last bit of the quotient is.
        let error = point.error(scale).abs() - 1e-9;
        for (sum, bound) in sums.iter_mut().zip(BOUNDS) {
            *sum += if error <= bound { point.weight } else { 0.0 };
        }
    }
    Within(sums.map(|s| if total > 0.0 { s / total } else { 0.0 }))
}

/// Returns the scale with the greatest weight within 5% of the truth, among those with almost the greatest weight within
/// 10%. Returns 1 if no point has an estimate.
pub fn best_scale<'a>(points: impl Iterator<Item = &'a Point>) -> f64 {
    let is_use = |p: &&Point| p.estimate.is_some_and(|e| e > 0.0) && p.truth > 0.0 && p.weight > 0.0;
    let exact: Vec<(f64, f64)> =
        points.filter(is_use).map(|p| (p.truth / p.estimate.unwrap_or(1.0), p.weight)).collect();
    let ends = interval_ends(&exact);
    let total: f64 = exact.iter().map(|(_, weight)| weight).sum();
    let most_within_ten = ranges(&ends).fold(0.0, |most: f64, r| most.max(r.within_ten));
    let enough = most_within_ten - FITTED_TOLERANCE * total;
    let (mut best, mut scale) = (0.0, 1.0);
    for range in ranges(&ends).filter(|r| r.within_ten >= enough) {
        // Rounding must not prefer one of two equal sums. Without any weight within 5% the first range counts.
        let is_better = range.within_five > best + 1e-9 * total || scale == 1.0;
        if is_better && range.within_ten > 0.0 {
            best = range.within_five;
            scale = range.middle;
        }
    }
    scale
}

/// The changes of the weight within 10% and 5%, by the logarithm of the scale.
type End = (f64, f64, f64);

/// Each point, as (exact scale, weight), is right in one interval for each bound.
fn interval_ends(exact: &[(f64, f64)]) -> Vec<End> {
    let mut ends = Vec::with_capacity(4 * exact.len());
    for &(scale, weight) in exact {
        ends.push(((scale * (1.0 - BOUNDS[1])).ln(), weight, 0.0));
        ends.push(((scale * (1.0 + BOUNDS[1])).ln(), -weight, 0.0));
        ends.push(((scale * (1.0 - BOUNDS[0])).ln(), 0.0, weight));
        ends.push(((scale * (1.0 + BOUNDS[0])).ln(), 0.0, -weight));
    }
    // Where one interval ends as another begins, both hold.
    ends.sort_by(|a, b| a.0.total_cmp(&b.0).then((b.1 + b.2).total_cmp(&(a.1 + a.2))));
    ends
}

/// A range of scales between two neighbouring ends.
struct ScaleRange {
    middle: f64,
    within_ten: f64,
    within_five: f64,
}

fn ranges(ends: &[End]) -> impl Iterator<Item = ScaleRange> {
    let (mut within_ten, mut within_five) = (0.0, 0.0);
    ends.iter().enumerate().map(move |(i, &(at, ten, five))| {
        within_ten += ten;
        within_five += five;
        let middle = ((at + ends.get(i + 1).map_or(at, |next| next.0)) / 2.0).exp();
        ScaleRange { middle, within_ten, within_five }
    })
}

/// The shares of one estimator on one program. Points are grouped by procedure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Without a scale; `None` if the period in cycles is unknown.
    pub abs: Option<Within>,
    /// With one scale for the program, fitted to it.
    pub prog: Within,
    /// With one scale for each procedure, fitted to it.
    pub func: Within,
}

/// The scales of one program. They are fitted to its instructions and used for its edges too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scales {
    /// The scale of the program.
    pub program: f64,
    /// The scale of each procedure.
    pub procedures: Vec<f64>,
}

/// Fits both kinds of scale.
pub fn fit(procedures: &[Vec<Point>]) -> Scales {
    Scales {
        program: best_scale(procedures.iter().flatten()),
        procedures: procedures.iter().map(|p| best_scale(p.iter())).collect(),
    }
}

/// What estimates are multiplied by before they are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// Nothing.
    Absolute,
    /// The program's scale.
    Program,
    /// The procedure's scale.
    Procedure,
}

impl Scaling {
    /// All kinds of scaling.
    pub const ALL: [Scaling; 3] = [Scaling::Absolute, Scaling::Program, Scaling::Procedure];
}

/// Returns every point with its scale.
pub fn scaled<'a>(
    procedures: &'a [Vec<Point>],
    scales: &'a Scales,
    scaling: Scaling,
) -> impl Iterator<Item = (&'a Point, f64)> {
    procedures.iter().enumerate().flat_map(move |(p, points)| {
        let scale = match scaling {
            Scaling::Absolute => 1.0,
            Scaling::Program => scales.program,
            Scaling::Procedure => scales.procedures[p],
        };
        points.iter().map(move |point| (point, scale))
    })
}

/// Returns the shares without a scale and by `scales`. `missing` is weight without a point.
pub fn shares(procedures: &[Vec<Point>], scales: &Scales, is_absolute: bool, missing: f64) -> Shares {
    let missing = [Point { weight: missing, estimate: None, truth: 1.0 }];
    let by = |scaling| within(scaled(procedures, scales, scaling).chain(missing.iter().map(|m| (m, 1.0))));
    Shares {
        abs: is_absolute.then(|| by(Scaling::Absolute)),
        prog: by(Scaling::Program),
        func: by(Scaling::Procedure),
    }
}

/// Returns the unweighted mean over programs; absolute shares are averaged over those that have them.
pub fn mean(all: &[Shares]) -> Shares {
    let of = |within: &dyn Fn(&Shares) -> Option<Within>| {
        let some: Vec<Within> = all.iter().filter_map(within).collect();
        let mut sums = [0.0; 4];
        some.iter().for_each(|w| sums.iter_mut().zip(w.0).for_each(|(s, x)| *s += x));
        (!some.is_empty()).then(|| Within(sums.map(|s| s / some.len() as f64)))
    };
    Shares {
        abs: of(&|s| s.abs),
        prog: of(&|s| Some(s.prog)).unwrap_or_default(),
        func: of(&|s| Some(s.func)).unwrap_or_default(),
    }
}

/// The largest error of [`curve`], in percent.
pub const CURVE_PERCENT_MAX: usize = 45;

/// Returns the shares of the weight within 0, 1, … [`CURVE_PERCENT_MAX`] percent.
pub fn curve<'a>(points: impl Iterator<Item = (&'a Point, f64)>) -> Vec<f64> {
    let (mut total, mut sums) = (0.0, vec![0.0; CURVE_PERCENT_MAX + 1]);
    for (point, scale) in points {
        total += point.weight;
        let percent = (point.error(scale).abs() * 100.0 - 1e-7).ceil().max(0.0);
        if percent <= CURVE_PERCENT_MAX as f64 {
            sums[percent as usize] += point.weight;
        }
    }
    let mut sum = 0.0;
    sums.iter()
        .map(|s| {
            sum += s;
            if total > 0.0 { sum / total } else { 0.0 }
        })
        .collect()
}

/// The upper ends of the buckets of [`histogram`] except the last, in percent: the paper's axes run from -45 to 45.
pub const BUCKETS_PERCENT: [i32; 19] =
    [-45, -40, -35, -30, -25, -20, -15, -10, -5, 0, 5, 10, 15, 20, 25, 30, 35, 40, 45];

/// Returns the shares of the weight by signed error: one bucket up to each of [`BUCKETS_PERCENT`], and one beyond, which
/// also contains points without an estimate.
pub fn histogram<'a>(points: impl Iterator<Item = (&'a Point, f64)>) -> [f64; 20] {
    let (mut total, mut sums) = (0.0, [0.0; 20]);
    for (point, scale) in points {
        let percent = point.error(scale) * 100.0;
        let bucket = BUCKETS_PERCENT.partition_point(|&end| f64::from(end) < percent);
        sums[bucket] += point.weight;
        total += point.weight;
    }
    sums.map(|s| if total > 0.0 { s / total } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(weight: f64, estimate: f64, truth: f64) -> Point {
        Point { weight, estimate: Some(estimate), truth }
    }

    #[test]
    fn shares_by_hand() {
        let procedures = vec![
            vec![point(40.0, 104.0, 100.0), point(20.0, 88.0, 100.0)],
            vec![point(30.0, 220.0, 100.0), Point { weight: 10.0, estimate: None, truth: 5.0 }],
        ];
        let scales = fit(&procedures);
        let shares = shares(&procedures, &scales, true, 0.0);
        assert_eq!(shares.abs.unwrap().0, [0.4, 0.4, 0.6, 0.6]);
        // One scale suits 104 and 88 within 10%: they are 18% apart.
        assert_eq!(shares.prog.0[1], 0.6);
        assert_eq!(shares.func.0[1], 0.9);
        assert!((scales.procedures[1] - 0.4540).abs() < 1e-3, "{scales:?}");
    }

    #[test]
    fn exactly_ten_percent_is_within() {
        assert_eq!(within([(&point(1.0, 110.0, 100.0), 1.0)].into_iter()).0, [0.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn nothing_executed_and_nothing_estimated_is_right() {
        assert_eq!(point(1.0, 0.0, 0.0).error(3.0), 0.0);
        assert_eq!(point(1.0, 1.0, 0.0).error(3.0), f64::INFINITY);
    }

    #[test]
    fn a_histogram_has_all_weight() {
        let points = [point(1.0, 100.0, 100.0), point(1.0, 30.0, 100.0), point(2.0, 1000.0, 100.0)];
        let histogram = histogram(points.iter().map(|p| (p, 1.0)));
        assert_eq!((histogram[9], histogram[0], histogram[19]), (0.25, 0.25, 0.5));
    }

    #[test]
    fn missing_weight_is_wrong() {
        let procedures = vec![vec![point(1.0, 1.0, 1.0)]];
        assert_eq!(shares(&procedures, &fit(&procedures), true, 3.0).func.0, [0.25; 4]);
    }
}
