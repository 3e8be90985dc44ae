//! `dwell summary --json`: where the cycles of a procedure, an image or an epoch go (DCPI Figure 4).

use serde::Serialize;

/// Where the cycles go. Shares are parts of the tallied samples, those of instructions whose frequency is known: the parts
/// of `subtotal_dynamic`, `subtotal_static`, `execution` and `net_sampling_error` add up to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Version of this answer's shape.
    pub schema: u32,
    /// Ids of the epochs that were merged.
    pub epochs: Vec<String>,
    /// What it is of.
    pub scope: SummaryScope,
    /// Name of the machine model that was used.
    pub machine_model: String,
    /// The event that measures time here (`cycles` or `cpu-clock`).
    pub time_event: String,
    /// Cycles between two time samples; `None` where the clock is unknown.
    pub period_cycles: Option<f64>,
    /// Time samples of the scope …
    pub samples: u64,
    /// … and of these, the tallied ones.
    pub samples_tallied: f64,
    /// Tallied samples over all of the scope's, 0 to 1.
    pub tallied_share: f64,
    /// Procedures that were analysed …
    pub procedures: usize,
    /// … and those with samples that could not be or are too small to matter.
    pub procedures_left_out: usize,
    /// Estimated cycles of the tallied samples; `None` where the clock is unknown.
    pub cycles: Option<f64>,
    /// The least that is known of the scale of executions, as in [`ListingScale`](super::ListingScale); `None` where nothing was
    /// tallied.
    pub scale: Option<String>,
    /// Instructions executed; `None` unless the scale is absolute.
    pub instructions: Option<f64>,
    /// Cycles per instruction; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// The 90 % interval of the same; without an absolute scale, the least that is possible.
    pub cpi_min: Option<f64>,
    /// `None`: nothing bounds it.
    pub cpi_max: Option<f64>,
    /// The same without dynamic stalls.
    pub best_case_cpi: Option<f64>,
    /// Each dynamic cause, in the order of Figure 4; ranges of several causes overlap.
    pub dynamic: Vec<SummaryRange>,
    /// Stalls for which every cause was ruled out.
    pub unexplained_stall: f64,
    /// Cycles by which instructions were faster than the model's best case: never positive.
    pub unexplained_gain: f64,
    /// All dynamic stalls, less the gain: between the sums of the ranges' ends.
    pub subtotal_dynamic: f64,
    /// Each static cause.
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

/// What a [`Summary`] is of.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SummaryScope {
    /// `procedure`, `image` or `epoch`.
    pub kind: String,
    /// `IMAGE:NAME` of the procedure, the images' paths joined by `, `, or the epochs' ids joined by `+`.
    pub name: String,
}

/// A cause that may explain a part, as a range.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummaryRange {
    /// `i-cache-miss`, `d-cache-miss`, …; `other` stands for the rare ones together.
    pub cause: String,
    /// The cause's name for people: `D-cache miss`.
    pub label: &'static str,
    /// At least …
    pub share_min: f64,
    /// … and at most.
    pub share_max: f64,
}

/// A cause that explains a part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummaryPart {
    /// `slotting`, `functional-unit`, or what operand was not ready: `dependency-address`, `dependency-flags`,
    /// `dependency-first`, `dependency-second`, `dependency-third` (its sources in the order of the assembler).
    pub cause: String,
    /// The cause's name for people: `D-cache miss`.
    pub label: &'static str,
    /// The part.
    pub share: f64,
}
