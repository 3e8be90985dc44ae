//! `dwell stats --json`: how much the procedures vary over several runs (DCPI Figure 3).

use serde::Serialize;

/// Procedures over several sets of samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Version of this answer's shape.
    pub schema: u32,
    /// What was counted (`cycles`, `cpu-clock`, …).
    pub event: String,
    /// The sets in the order asked, those compared against last.
    pub sets: Vec<StatsSet>,
    /// Samples of all sets.
    pub total: u64,
    /// By range over sum, largest first; of compared groups the surest difference first.
    pub rows: Vec<StatsRow>,
    /// Rows beyond the limit or below the least share.
    pub omitted_rows: usize,
    /// What one must know to read it.
    pub notes: Vec<String>,
}

/// One set of samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatsSet {
    /// Its epoch's id.
    pub epoch: String,
    /// The name a user gave that.
    pub name: Option<String>,
    /// Whether it is of the group that the first one is compared against.
    pub against: bool,
    /// Its samples.
    pub samples: u64,
    /// What its counts are divided by in a comparison; 1 for the first set.
    pub exposure: f64,
}

/// One procedure over the sets. A set without samples of it counts as zero.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatsRow {
    /// Linkage name. Procedures of one name in images of one file name are one row, so that rebuilds agree.
    pub procedure: String,
    /// As the programmer wrote it.
    pub demangled: String,
    /// The image's file name.
    pub image: String,
    /// Samples of each set, in their order.
    pub samples: Vec<u64>,
    /// Largest less smallest count, over the sum.
    pub range_share: f64,
    /// Of all sets.
    pub sum: u64,
    /// The sum over the samples of all procedures.
    pub sum_share: f64,
    /// How many sets.
    pub n: usize,
    /// Average count.
    pub mean: f64,
    /// Standard deviation, that of a sample (n − 1).
    pub std_dev: f64,
    /// Smallest count.
    pub min: u64,
    /// Largest count.
    pub max: u64,
    /// The groups compared, where there are two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<StatsComparison>,
}

/// Two groups of sets compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatsComparison {
    /// Average count per exposure of the first group …
    pub mean: f64,
    /// … and of those it is compared against.
    pub mean_against: f64,
    /// The first over the second; `None` where the second has no samples.
    pub ratio: Option<f64>,
    /// Variance over mean within the groups, at least 1; `None` with one set on either side.
    pub dispersion: Option<f64>,
    /// How likely a difference as large is if there is none.
    pub p: f64,
    /// The part of false calls among all rows as sure as this one.
    pub false_discovery_rate: f64,
    /// Whether that is below one in twenty.
    pub significant: bool,
}
