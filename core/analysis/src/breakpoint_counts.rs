//! The relative executions of places that hardware breakpoints counted in windows of time.
//!
//! Input: windows of time, each with a few places (hardware breakpoints) and how often they were executed. Output: for
//! each place the logarithm of its executions, up to one constant for each group of places, and its standard deviation.
//! Complexity: linear in the windows, and in the pairs of places that shared one, for a constant number of rounds.
//!
//! A breakpoint costs so much time that the time of a window of hot code means nothing: how much of the program ran in it
//! is unknown. But all places of a window were counted during the same part of the run, so ratios are right. For each
//! pair, the executions in all windows that counted both are added up; the differences of single windows from the sum
//! show how certain the ratio is (ratio estimation, Cochran, "Sampling Techniques", 3rd ed., ch. 6). Most pairs share a
//! window or two, which say little about that and may agree by chance; so the typical difference in this program counts
//! as if a few more windows had shown it (empirical Bayes: Efron and Morris, JASA 70, 1975). Places whose ratio varies
//! belong to different phases of the program, and since windows begin at random *times*, of which slow phases have more,
//! adding up does not help. So only places that run together are compared: they form a group. The remaining variation is
//! common to all pairs of a place, so that many pairs do not make it more certain.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::Counted;

/// The typical difference in the program counts as this many windows of a pair.
const RULE_WINDOWS: f64 = 2.0;
/// Number of windows that a pair must have to be considered for the typical difference.
const RULE_WINDOWS_MIN: usize = 3;
/// The typical squared difference if no pair has enough windows: all ratios are then uncertain.
const RULE_UNKNOWN: f64 = 0.3;
/// Factor of the squared variance of single windows: the part of the variance that more windows do not reduce.
const PHASES: f64 = 0.1;
/// The greatest variance of a pair's logarithm at which its places are in one group.
const GROUP_VARIANCE_MAX: f64 = 0.2;
/// Least standard deviation of a place's logarithm.
const DEVIATION_MIN: f64 = 0.03;
const ROUNDS: usize = 200;

/// The relative executions of a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The group's number. Places of a group are on one scale.
    pub group: usize,
    /// Logarithm of the executions, up to the group's constant.
    pub log: f64,
    /// Standard deviation of `log`.
    pub deviation: f64,
}

/// The logarithm of the ratio of two places' executions.
#[derive(Clone, Copy)]
struct Ratio {
    log: f64,
    certainty: f64,
    /// The part of the variance that is common to all pairs of a place.
    common: f64,
}

impl Compared {
    /// Returns the executions as a count of the instruction with index `at`.
    pub fn counted(self, at: usize) -> Counted {
        Counted { at, executions: self.log.exp(), deviation: self.deviation, group: self.group }
    }
}

/// Compares places by `windows`, which are lists of (place, executions). Places that cannot be compared are left out.
pub fn compare<P: Ord>(
    windows: impl IntoIterator<Item = impl IntoIterator<Item = (P, u64)>>,
) -> BTreeMap<P, Compared> {
    let mut numbers: BTreeMap<P, usize> = BTreeMap::new();
    let mut number = |place: P| {
        let next = numbers.len();
        *numbers.entry(place).or_insert(next)
    };
    let windows: Vec<Vec<(usize, u64)>> =
        windows.into_iter().map(|w| w.into_iter().map(|(place, n)| (number(place), n)).collect()).collect();
    let compared = compare_numbered(numbers.len(), &windows);
    numbers.into_iter().filter_map(|(place, number)| Some((place, compared[number]?))).collect()
}

/// Compares the places from 0 to `places` like [`compare`]. A place that cannot be compared is `None`.
fn compare_numbered(places: usize, windows: &[Vec<(usize, u64)>]) -> Vec<Option<Compared>> {
    let ratios = ratios(windows);
    let groups = groups(places, ratios.keys().copied());
    let mut neighbours: Vec<Vec<(usize, Ratio)>> = vec![Vec::new(); places];
    for (&(a, b), &ratio) in &ratios {
        neighbours[a].push((b, ratio));
        neighbours[b].push((a, Ratio { log: -ratio.log, ..ratio }));
    }
    neighbours.iter_mut().for_each(|n| n.sort_unstable_by_key(|(other, _)| *other));
    let logs = solve(&neighbours);
    let of = |place: usize| {
        let certainty: f64 = neighbours[place].iter().map(|(_, r)| r.certainty).sum();
        let common: f64 =
            neighbours[place].iter().map(|(_, r)| r.certainty * r.common).sum::<f64>() / certainty;
        let deviation = (certainty.recip() + common).sqrt().max(DEVIATION_MIN);
        (certainty > 0.0).then(|| Compared { group: groups[place], log: logs[place], deviation })
    };
    let compared: Vec<Option<Compared>> = (0..places).map(of).collect();
    debug_assert_eq!(verify_compared(&compared), Ok(()));
    compared
}

/// Checks that each group is named by its first place and has at least two, and that no place is too certain.
fn verify_compared(compared: &[Option<Compared>]) -> Result<(), String> {
    let mut places_of: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
    for (place, result) in compared.iter().enumerate() {
        let Some(Compared { group, log, deviation }) = *result else { continue };
        places_of.entry(group).or_default().push(place);
        if !log.is_finite() || deviation < DEVIATION_MIN || deviation.powi(2) > 2.02 * GROUP_VARIANCE_MAX {
            return Err(format!("place {place}: {result:?}"));
        }
    }
    match places_of.iter().find(|(group, places)| places.len() < 2 || places[0] != **group) {
        Some(group) => Err(format!("a group and its places: {group:?}")),
        None => Ok(()),
    }
}

/// Returns for each pair that ran together the executions of the first over the second. The first place has the smaller
/// index.
fn ratios(windows: &[Vec<(usize, u64)>]) -> FxHashMap<(usize, usize), Ratio> {
    let mut pairs: FxHashMap<(usize, usize), Vec<(f64, f64)>> = FxHashMap::default();
    for window in windows {
        for (at, &(a, n)) in window.iter().enumerate() {
            for &(b, m) in window[at + 1..].iter().filter(|(b, m)| *b != a && (n > 0 || *m > 0)) {
                let (key, counts) = if a < b { ((a, b), (n, m)) } else { ((b, a), (m, n)) };
                pairs.entry(key).or_default().push((counts.0 as f64, counts.1 as f64));
            }
        }
    }
    let pairs: FxHashMap<(usize, usize), Pair> =
        pairs.into_iter().filter_map(|(key, counts)| Some((key, Pair::from_windows(&counts)?))).collect();
    let rule = rule(pairs.values());
    pairs.into_iter().filter_map(|(key, pair)| Some((key, pair.ratio(rule)?))).collect()
}

/// Returns the median over pairs of the squared relative difference of single windows from their sum.
fn rule<'a>(pairs: impl Iterator<Item = &'a Pair>) -> f64 {
    let enough = pairs.filter(|p| p.windows >= RULE_WINDOWS_MIN as f64);
    let mut all: Vec<f64> = enough.map(|p| p.squares / (p.windows - 1.0)).collect();
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(RULE_UNKNOWN)
}

/// Two places in the windows that counted both.
struct Pair {
    windows: f64,
    /// Executions of each place.
    sums: (f64, f64),
    /// Squared differences of single windows from the sum, each relative to the mean window.
    squares: f64,
}

impl Pair {
    /// Adds up the windows of a pair. Returns `None` if one place was never executed.
    fn from_windows(counts: &[(f64, f64)]) -> Option<Pair> {
        let (n, m) = counts.iter().fold((0.0, 0.0), |(n, m), c| (n + c.0, m + c.1));
        let windows = counts.len() as f64;
        let spread: f64 = counts.iter().map(|c| (c.0 / n - c.1 / m).powi(2)).sum();
        (n > 0.0 && m > 0.0).then_some(Pair { windows, sums: (n, m), squares: spread * windows * windows })
    }

    fn ratio(&self, rule: f64) -> Option<Ratio> {
        let Pair { windows, sums: (n, m), squares } = *self;
        let of_one = (squares + RULE_WINDOWS * rule) / (windows - 1.0 + RULE_WINDOWS);
        let variance = (of_one / windows).max(1.0 / n + 1.0 / m);
        let of_one = variance * windows;
        let common = PHASES * of_one * of_one;
        let variance = variance + common;
        (variance <= GROUP_VARIANCE_MAX).then(|| Ratio {
            log: (n / m).ln(),
            certainty: 1.0 / variance,
            common,
        })
    }
}

/// Returns the group of each place, named by one of its places.
fn groups(places: usize, pairs: impl Iterator<Item = (usize, usize)>) -> Vec<usize> {
    fn root(of: &mut [usize], mut place: usize) -> usize {
        while of[place] != place {
            of[place] = of[of[place]];
            place = of[place];
        }
        place
    }
    let mut of: Vec<usize> = (0..places).collect();
    for (a, b) in pairs {
        let (a, b) = (root(&mut of, a), root(&mut of, b));
        of[a.max(b)] = a.min(b);
    }
    (0..places).map(|place| root(&mut of, place)).collect()
}

/// Solves the least-squares problem place by place (Gauss and Seidel). Each group's constant depends on the start.
fn solve(neighbours: &[Vec<(usize, Ratio)>]) -> Vec<f64> {
    let mut logs = vec![0.0; neighbours.len()];
    for _ in 0..ROUNDS {
        for (place, neighbours) in neighbours.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
            let (sum, total) = neighbours.iter().fold((0.0, 0.0), |(sum, total), (other, ratio)| {
                (sum + ratio.certainty * (logs[*other] + ratio.log), total + ratio.certainty)
            });
            logs[place] = sum / total;
        }
    }
    logs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places 0, 1, 2 run together at 1 : 4 : 2, place 3 and 4 in a phase of their own.
    #[test]
    fn places_of_one_phase_are_compared() {
        let mut windows = Vec::new();
        for i in 0..40_u64 {
            windows.push(vec![(0, 50 + i % 3), (1, 200 - i % 5), (3, 0)]);
            windows.push(vec![(1, 160), (2, 80 + i % 2), (4, 0)]);
            windows.push(vec![(0, 0), (3, 30), (4, 300)]);
        }
        let found = compare_numbered(6, &windows);
        let log = |place: usize| found[place].unwrap().log;
        assert!((log(1) - log(0) - 4.0_f64.ln()).abs() < 0.05);
        assert!((log(2) - log(0) - 2.0_f64.ln()).abs() < 0.05);
        assert!((log(4) - log(3) - 10.0_f64.ln()).abs() < 0.05);
        let group = |place: usize| found[place].unwrap().group;
        assert_eq!((group(0), group(3)), (group(2), group(4)));
        assert_ne!(group(0), group(3), "phases are not compared");
        assert_eq!(found[5], None);
        assert!(found.iter().flatten().all(|c| c.deviation >= DEVIATION_MIN));
    }

    #[test]
    fn places_go_by_any_name() {
        let compared = compare([vec![("b", 200), ("a", 100), ("never", 0)], vec![("b", 400), ("a", 200)]]);
        assert_eq!(compared.keys().copied().collect::<Vec<_>>(), ["a", "b"]);
        let [a, b] = ["a", "b"].map(|place| compared[place].counted(7));
        assert!((b.executions / a.executions - 2.0).abs() < 1e-6 && (a.at, a.group) == (7, b.group));
    }

    #[test]
    fn an_unsteady_ratio_is_rejected() {
        let wander = |i: u64| if i.is_multiple_of(2) { (300, 0) } else { (0, 300) };
        let windows: Vec<_> = (0..100).map(|i| vec![(0, wander(i).0), (1, wander(i).1)]).collect();
        assert_eq!(compare_numbered(2, &windows), [None, None]);
    }

    /// Places 0 and 1 tell how windows differ as a rule; 2 and 3 shared one alone.
    #[test]
    fn one_window_is_as_certain_as_the_program_is_steady() {
        let deviation = |wander: u64| {
            let of = |i: u64| if i.is_multiple_of(2) { (100 + wander, 100) } else { (100, 100 + wander) };
            let mut windows: Vec<_> = (0..20).map(|i| vec![(0, of(i).0), (1, of(i).1)]).collect();
            windows.push(vec![(2, 300), (3, 100)]);
            compare_numbered(4, &windows)[2].map(|c| c.deviation)
        };
        assert!(deviation(5).is_some_and(|deviation| deviation < 0.2));
        assert_eq!(deviation(400), None);
    }

    #[test]
    fn nonsensical_input_does_not_panic() {
        assert_eq!(compare_numbered(0, &[]), []);
        let windows = vec![vec![(0, u64::MAX), (1, 0), (0, 7)], vec![], vec![(1, u64::MAX)]];
        assert_eq!(compare_numbered(2, &windows), [None, None]);
    }
}
