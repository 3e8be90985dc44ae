//! The answer of `dwell stats --json`: how much procedures vary over several runs (DCPI Figure 3).

use serde::Serialize;

/// How the samples of procedures vary over several sets of samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct Stats {
    /// Version of this answer's JSON schema.
    pub schema: u32,
    /// Name of the event that was sampled (`cycles`, `cpu-clock`, …).
    pub event: String,
    /// The sets, in the order of the request; the sets that are compared against come last.
    pub sets: Vec<StatsSet>,
    /// Number of samples of all sets together.
    pub total: u64,
    /// Rows, the largest `range_share` first. If two groups are compared, the most certain difference is first.
    pub rows: Vec<StatsRow>,
    /// Number of rows left out because of the limit or because their share is too small.
    pub omitted_rows: usize,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// One set of samples: those of one epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct StatsSet {
    /// Id of the set's epoch.
    pub epoch: String,
    /// Name that a user gave the epoch.
    pub name: Option<String>,
    /// Whether the set belongs to the second group: the one that the first group is compared against.
    pub against: bool,
    /// Number of samples in the set.
    pub samples: u64,
    /// Exposure: the number that the set's counts are divided by in a comparison; 1 for the first set.
    pub exposure: f64,
}

/// One procedure over all sets. A set without samples of the procedure counts as zero.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct StatsRow {
    /// Linkage name. Procedures with equal names, in images with equal file names, share one row, so that a rebuilt program
    /// can be compared with its predecessor.
    pub procedure: String,
    /// Demangled name, as the source code spells it.
    pub demangled: String,
    /// File name of the image, without folders.
    pub image: String,
    /// Samples of each set, in the order of [`Stats::sets`].
    pub samples: Vec<u64>,
    /// Largest count minus smallest count, divided by the sum.
    pub range_share: f64,
    /// Samples of all sets together.
    pub sum: u64,
    /// The sum divided by the samples of all procedures.
    pub sum_share: f64,
    /// Number of sets.
    pub n: usize,
    /// Mean count per set.
    pub mean: f64,
    /// Standard deviation of the counts, with n − 1 in the denominator.
    pub std_dev: f64,
    /// Smallest count of a set.
    pub min: u64,
    /// Largest count of a set.
    pub max: u64,
    /// Comparison of the two groups, if there are two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<StatsComparison>,
}

/// Two groups of sets compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct StatsComparison {
    /// Mean count per exposure of the first group.
    pub mean: f64,
    /// Mean count per exposure of the second group, which the first one is compared against.
    pub mean_against: f64,
    /// Mean of the first group over that of the second; `None` if the second has no samples.
    pub ratio: Option<f64>,
    /// Variance over mean within the groups, at least 1; `None` if there is one set on each side.
    pub dispersion: Option<f64>,
    /// Probability that chance alone makes a difference at least this large.
    pub p: f64,
    /// Expected share of false positives among all rows with a `p` at most as large as this row's.
    pub false_discovery_rate: f64,
    /// Whether `false_discovery_rate` is below 0.05.
    pub significant: bool,
}
