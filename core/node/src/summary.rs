//! The shapes of summaries and statistics.

use napi_derive::napi;

use crate::mirror::mirror;

/// What to summarize.
#[napi(object)]
pub struct SummaryRequest {
    /// Selectors of the epochs to merge.
    pub epochs: Vec<String>,
    /// This procedure alone …
    pub procedure: Option<String>,
    /// … or the images whose path, file name or id contains this; neither: everything.
    pub image: Option<String>,
}

/// What to take statistics of.
#[napi(object)]
pub struct StatsRequest {
    /// Sets of samples, an epoch each.
    pub epochs: Vec<String>,
    /// Sets that they are compared against.
    pub against: Option<Vec<String>>,
    /// As for `DiffRequest`.
    pub normalize: Option<String>,
    /// Rows at most.
    pub limit: Option<u32>,
    /// Procedures with less of all samples (0 to 1) are left out.
    pub share_min: Option<f64>,
    /// Only procedures of images whose path, file name or id contains this.
    pub image: Option<String>,
}

mirror! {
    /// Where the cycles go (DCPI Figure 4). Shares are parts of the tallied samples: those of `subtotalDynamic`, `subtotalStatic`,
    /// `execution` and `netSamplingError` add up to 1.
    pub struct Summary {
        /// Ids of the epochs that were merged.
        pub epochs: Vec<String>,
        /// What it is of.
        pub scope: SummaryScope,
        /// Name of the machine model that was used.
        pub machine_model: String,
        /// The event that measures time here.
        pub time_event: String,
        /// Cycles between two time samples; `null` where the clock is unknown.
        pub period_cycles: Option<f64>,
        /// Time samples of the scope …
        pub samples: f64,
        /// … and of these, the tallied ones.
        pub samples_tallied: f64,
        /// Tallied samples over all of the scope's, 0 to 1.
        pub tallied_share: f64,
        /// Procedures that were analysed …
        pub procedures: u32,
        /// … and those with samples that could not be or are too small to matter.
        pub procedures_left_out: u32,
        /// Estimated cycles of the tallied samples.
        pub cycles: Option<f64>,
        /// The least that is known of the scale of executions; `null` where nothing was tallied.
        #[napi(ts_type = "'absolute' | 'program' | 'procedure' | null")]
        pub scale: Option<String>,
        /// Instructions executed; `null` unless the scale is absolute.
        pub instructions: Option<f64>,
        /// Cycles per instruction; `null` unless the scale is absolute.
        pub cpi: Option<f64>,
        /// The 90 % interval of the same; without an absolute scale, the least that is possible.
        pub cpi_min: Option<f64>,
        /// `null`: nothing bounds it.
        pub cpi_max: Option<f64>,
        /// The same without dynamic stalls.
        pub best_case_cpi: Option<f64>,
        /// Each dynamic cause, in the order of Figure 4; ranges of several causes overlap.
        pub dynamic: Vec<SummaryRange>,
        /// Stalls for which every cause was ruled out.
        pub unexplained_stall: f64,
        /// Cycles by which instructions were faster than the model's best case: never positive.
        pub unexplained_gain: f64,
        /// All dynamic stalls, less the gain.
        pub subtotal_dynamic: f64,
        /// Each static cause.
        #[napi(js_name = "staticCauses")]
        pub r#static: Vec<SummaryPart>,
        /// Their sum.
        pub subtotal_static: f64,
        /// Both subtotals.
        pub total_stall: f64,
        /// What instructions take that wait for nothing.
        pub execution: f64,
        /// What is neither: samples that chance gave or took.
        pub net_sampling_error: f64,
        /// What one must know to read it.
        pub notes: Vec<String>,
    }

    /// What a summary is of.
    pub struct SummaryScope {
        /// `procedure`, `image` or `epoch`.
        pub kind: String,
        /// `IMAGE:NAME`, the images' paths, or the epochs' ids.
        pub name: String,
    }

    /// A cause that may explain a part, as a range.
    pub struct SummaryRange {
        /// As in `ListingStall`; `other` stands for the rare ones together.
        pub cause: String,
        /// The cause's name for people.
        pub label: String,
        /// At least …
        pub share_min: f64,
        /// … and at most.
        pub share_max: f64,
    }

    /// A cause that explains a part.
    pub struct SummaryPart {
        /// `slotting`, `functional-unit`, `dependency-address`, …
        pub cause: String,
        /// The cause's name for people.
        pub label: String,
        /// The part.
        pub share: f64,
    }

    /// Procedures over several sets of samples (DCPI Figure 3).
    pub struct Stats {
        /// What was counted.
        pub event: String,
        /// The sets in the order asked, those compared against last.
        pub sets: Vec<StatsSet>,
        /// Samples of all sets.
        pub total: f64,
        /// By range over sum, largest first; of compared groups the surest difference first.
        pub rows: Vec<StatsRow>,
        /// Rows beyond the limit or below the least share.
        pub omitted_rows: u32,
        /// What one must know to read it.
        pub notes: Vec<String>,
    }

    /// One set of samples.
    pub struct StatsSet {
        /// Its epoch's id.
        pub epoch: String,
        /// The name a user gave that.
        pub name: Option<String>,
        /// Whether it is of the group that the first one is compared against.
        pub against: bool,
        /// Its samples.
        pub samples: f64,
        /// What its counts are divided by in a comparison.
        pub exposure: f64,
    }

    /// One procedure over the sets.
    pub struct StatsRow {
        /// Linkage name.
        pub procedure: String,
        /// As the programmer wrote it.
        pub demangled: String,
        /// The image's file name.
        pub image: String,
        /// Samples of each set, in their order.
        pub samples: Vec<f64>,
        /// Largest less smallest count, over the sum.
        pub range_share: f64,
        /// Of all sets.
        pub sum: f64,
        /// The sum over the samples of all procedures.
        pub sum_share: f64,
        /// How many sets.
        pub n: u32,
        /// Average count.
        pub mean: f64,
        /// Standard deviation (n − 1).
        pub std_dev: f64,
        /// Smallest count.
        pub min: f64,
        /// Largest count.
        pub max: f64,
        /// The groups compared, where there are two.
        pub comparison: Option<StatsComparison>,
    }

    /// Two groups of sets compared.
    pub struct StatsComparison {
        /// Average count per exposure of the first group …
        pub mean: f64,
        /// … and of those it is compared against.
        pub mean_against: f64,
        /// The first over the second.
        pub ratio: Option<f64>,
        /// Variance over mean within the groups, at least 1.
        pub dispersion: Option<f64>,
        /// How likely a difference as large is if there is none.
        pub p: f64,
        /// The part of false calls among all rows as sure as this one.
        pub false_discovery_rate: f64,
        /// Whether that is below one in twenty.
        pub significant: bool,
    }
}
