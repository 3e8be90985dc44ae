//! The cluster heuristic: the frequency of a class from the ratios of samples to cycles of its issue points (DCPI
//! §6.1.3).
//!
//! Input: samples S and least cycles M of the class's instructions. Output: the frequency F and what it is based on.
//! Complexity: O(n log n) in the issue points.
//!
//! The paper leaves constants open; ours are named below. We add one rule: within a cluster only ratios are averaged that
//! differ from the smallest by no more than the sampling error. It reproduces the choice in the paper's Figure 7.

use std::ops::Range;

use crate::{machine::MachineModel, schedule::Schedule};

/// A class with fewer samples is estimated as ΣS / ΣM.
const FEW_SAMPLES: f64 = 25.0;
/// The largest ratio of a cluster over its smallest.
const CLUSTER_RATIO: f64 = 1.5;
/// A cluster with a smaller part of the class's issue points is anomalous.
const CLUSTER_PART_MIN: f64 = 0.25;
/// A ratio is averaged if it exceeds the cluster's smallest ratio by at most this many standard errors.
const MEMBER_ERRORS_MAX: f64 = 2.5;
/// A ratio is also averaged if it exceeds the cluster's smallest ratio by at most this part of it.
const MEMBER_PART_MAX: f64 = 0.1;
/// An average stall longer than this many times a miss to memory is unreasonable.
const STALL_MEMORY_TIMES_MAX: f64 = 3.0;

/// The instructions of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Points {
    /// The sum of S over the class.
    pub samples: f64,
    /// The sum of M over the class, in cycles.
    pub cycles: f64,
    /// The issue points: instructions with M > 0.
    pub issue_points: Vec<IssuePoint>,
}

/// An instruction with M > 0, or the span from its producer to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IssuePoint {
    /// Samples of the span.
    pub samples: f64,
    /// Least cycles of the span.
    pub cycles: f64,
}

impl IssuePoint {
    fn ratio(self) -> f64 {
        self.samples / self.cycles
    }

    fn variance(self) -> f64 {
        self.samples.max(1.0) / (self.cycles * self.cycles)
    }
}

/// An estimate and what it is based on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The frequency F.
    pub frequency: f64,
    /// Number of issue points that were averaged; 0 if the whole class was used.
    pub points: usize,
    /// The largest of their ratios over the smallest.
    pub spread: f64,
    /// Number of samples that were used.
    pub samples: f64,
    /// Whether every cluster was anomalous.
    pub is_anomalous: bool,
}

impl Points {
    /// Collects the issue points of the blocks `ranges`. A point that waits for an earlier instruction takes the ratio
    /// over the whole span between them, because a dynamic stall in between shortens the wait.
    pub fn new(schedule: &Schedule, samples: &[f64], ranges: impl Iterator<Item = Range<usize>>) -> Points {
        let mut points = Points::default();
        for range in ranges {
            // With running sums, the sums of a span take constant time.
            let (mut s, mut m) = (vec![0.0], vec![0.0]);
            for i in range.clone() {
                s.push(s[s.len() - 1] + samples[i]);
                m.push(m[m.len() - 1] + schedule.issue_cycles_min[i]);
                if schedule.issue_cycles_min[i] <= 0.0 {
                    continue;
                }
                let producer = schedule.waits_for[i].filter(|j| (range.start..i).contains(j));
                let (from, to) = (producer.map_or(i, |j| j + 1) - range.start, i + 1 - range.start);
                points.issue_points.push(IssuePoint { samples: s[to] - s[from], cycles: m[to] - m[from] });
            }
            points.samples += s[s.len() - 1];
            points.cycles += m[m.len() - 1];
        }
        points
    }
}

/// Estimates the frequency of a class.
pub fn estimate(points: &Points, model: &MachineModel) -> Found {
    let found = choose(points, model);
    debug_assert_eq!(verify_found(&found, points), Ok(()));
    found
}

/// Checks that the frequency is a finite number, not negative, and based on no more samples and points than there are.
fn verify_found(found: &Found, points: &Points) -> Result<(), String> {
    let is_frequency = found.frequency.is_finite() && found.frequency >= 0.0;
    match is_frequency && found.points <= points.issue_points.len() && found.samples >= 0.0 {
        true => Ok(()),
        false => Err(format!("{found:?} of {} issue points", points.issue_points.len())),
    }
}

fn choose(points: &Points, model: &MachineModel) -> Found {
    let mut sorted = points.issue_points.clone();
    sorted.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let largest = sorted.last().map_or(0.0, |p| p.ratio());
    if points.samples < FEW_SAMPLES || sorted.is_empty() {
        return average_of_all(points, sorted.is_empty() && points.samples > 0.0);
    }
    let stall_max = STALL_MEMORY_TIMES_MAX * (model.memory.memory_cycles + model.memory.dtlb_miss_cycles);
    let mut rest = &sorted[..];
    while let Some(&smallest) = rest.first() {
        let (cluster, above) =
            rest.split_at(rest.partition_point(|p| p.ratio() <= CLUSTER_RATIO * smallest.ratio()));
        let found = average(cluster);
        let is_too_small = (cluster.len() as f64) < CLUSTER_PART_MIN * sorted.len() as f64;
        let implies_huge_stall = largest > found.frequency * stall_max;
        if found.frequency > 0.0 && !is_too_small && !implies_huge_stall {
            return found;
        }
        rest = above;
    }
    average_of_all(points, true)
}

fn average_of_all(points: &Points, is_anomalous: bool) -> Found {
    let frequency = points.samples / points.cycles.max(1.0);
    Found { frequency, points: 0, spread: f64::INFINITY, samples: points.samples, is_anomalous }
}

fn average(cluster: &[IssuePoint]) -> Found {
    let smallest = cluster[0];
    let is_member = |p: &&IssuePoint| {
        let error = (p.variance() + smallest.variance()).sqrt();
        p.ratio() - smallest.ratio() <= (MEMBER_ERRORS_MAX * error).max(MEMBER_PART_MAX * smallest.ratio())
    };
    let members: Vec<&IssuePoint> = cluster.iter().filter(is_member).collect();
    let sum: f64 = members.iter().map(|p| p.ratio()).sum();
    Found {
        frequency: sum / members.len() as f64,
        points: members.len(),
        spread: members.last().map_or(1.0, |p| p.ratio()) / smallest.ratio().max(f64::MIN_POSITIVE),
        samples: members.iter().map(|p| p.samples).sum(),
        is_anomalous: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's Figure 7: M and S as printed, F = 1527 from the ratios it marks.
    #[test]
    fn figure_7() {
        let rows = [
            (3126.0, 1.0),
            (0.0, 0.0),
            (1636.0, 1.0),
            (390.0, 0.0),
            (1482.0, 1.0),
            (0.0, 0.0),
            (27766.0, 1.0),
            (0.0, 0.0),
            (1493.0, 1.0),
            (174727.0, 1.0),
            (1548.0, 1.0),
            (0.0, 0.0),
            (1586.0, 1.0),
        ];
        let issue_points = rows
            .iter()
            .filter(|r| r.1 > 0.0)
            .map(|&(samples, cycles)| IssuePoint { samples, cycles })
            .collect();
        let samples = rows.iter().map(|r| r.0).sum();
        let points = Points { samples, cycles: 8.0, issue_points };
        let model = MachineModel::named("generic-inorder-2").unwrap();
        let found = estimate(&points, model);
        assert_eq!(found.frequency.round(), 1527.0);
        assert_eq!(found.points, 4);
    }

    #[test]
    fn few_samples_are_averaged() {
        let point = |samples| IssuePoint { samples, cycles: 2.0 };
        let points = Points { samples: 12.0, cycles: 6.0, issue_points: [2.0, 3.0, 7.0].map(point).to_vec() };
        let found = estimate(&points, MachineModel::named("generic-inorder-2").unwrap());
        assert_eq!((found.frequency, found.points), (2.0, 0));
    }

    /// One low ratio of eight is an anomaly: the next cluster counts.
    #[test]
    fn a_lone_low_ratio_is_discarded() {
        let ratios = [10.0, 100.0, 101.0, 102.0, 103.0, 99.0, 98.0, 100.0];
        let issue_points = ratios.map(|samples| IssuePoint { samples, cycles: 1.0 }).to_vec();
        let points = Points { samples: ratios.iter().sum(), cycles: 8.0, issue_points };
        let found = estimate(&points, MachineModel::named("generic-inorder-2").unwrap());
        assert!((98.0..=103.0).contains(&found.frequency), "{found:?}");
    }
}
