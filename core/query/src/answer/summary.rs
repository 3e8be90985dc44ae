//! The answer of `dwell summary --json`: where the cycles of a procedure, an image or an epoch go (DCPI Figure 4).

use serde::Serialize;

use super::ScaleKind;

/// Where the cycles go. Shares are relative to the tallied samples: those of instructions whose frequency is known.
/// If the scale is absolute, `subtotal_dynamic`, `subtotal_static`, `execution` and `net_sampling_error` add up to 1. Otherwise
/// they are `None`, since the same time may be executions or stalls; their `_min` and `_max` are the ends of what is possible.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct Summary {
    /// Version of this answer's JSON schema.
    pub schema: u32,
    /// Ids of the epochs whose samples were merged.
    pub epochs: Vec<String>,
    /// Procedure, image or epochs that the summary covers.
    pub scope: SummaryScope,
    /// Name of the machine model that was used.
    pub machine_model: String,
    /// The event that measures time here (`cycles` or `cpu-clock`).
    pub time_event: String,
    /// Mean number of cycles between two time samples; `None` if the clock rate is unknown.
    pub period_cycles: Option<f64>,
    /// Number of time samples of the scope; under a function, only those that have a call stack.
    pub samples: u64,
    /// Number of those samples that were tallied.
    pub samples_tallied: f64,
    /// Tallied samples divided by all samples of the scope, 0 to 1.
    pub tallied_share: f64,
    /// Number of procedures that were analysed.
    pub procedures: usize,
    /// Number of procedures with samples that could not be analysed, or have too few samples to matter.
    pub procedures_left_out: usize,
    /// Estimated cycles of the tallied samples; `None` if the clock rate is unknown.
    pub cycles: Option<f64>,
    /// Kind of the scale of the executions, as in [`ListingScale`](super::ListingScale): the weakest one of the procedures.
    /// `None` if nothing was tallied.
    pub scale: Option<ScaleKind>,
    /// Instructions executed; `None` unless the scale is absolute.
    pub instructions: Option<f64>,
    /// Measured cycles per instruction; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible.
    pub cpi_min: Option<f64>,
    /// Upper end of the 90 % interval of `cpi`; `None` if nothing bounds it.
    pub cpi_max: Option<f64>,
    /// Cycles per instruction without dynamic stalls, by the machine model.
    pub best_case_cpi: Option<f64>,
    /// Dynamic causes, in the order of Figure 4. The ranges of several causes overlap.
    pub dynamic: Vec<SummaryRange>,
    /// Share of stalls for which every cause was ruled out; `None` unless the scale is absolute.
    pub unexplained_stall: Option<f64>,
    /// Least possible share of unexplained stalls.
    pub unexplained_stall_min: f64,
    /// Largest possible share of unexplained stalls.
    pub unexplained_stall_max: f64,
    /// Share of cycles by which instructions were faster than the model's best case, never positive; `None` unless the scale
    /// is absolute.
    pub unexplained_gain: Option<f64>,
    /// Share of all dynamic stalls, minus the gain. It lies between the sums of the lower and of the upper ends of the
    /// ranges. `None` unless the scale is absolute.
    pub subtotal_dynamic: Option<f64>,
    /// Least possible share of all dynamic stalls.
    pub subtotal_dynamic_min: f64,
    /// Largest possible share of all dynamic stalls.
    pub subtotal_dynamic_max: f64,
    /// Static causes.
    pub r#static: Vec<SummaryPart>,
    /// Sum of the static causes' shares; `None` unless the scale is absolute.
    pub subtotal_static: Option<f64>,
    /// Least possible share of all static stalls.
    pub subtotal_static_min: f64,
    /// Largest possible share of all static stalls.
    pub subtotal_static_max: f64,
    /// Sum of `subtotal_dynamic` and `subtotal_static`; `None` unless the scale is absolute.
    pub total_stall: Option<f64>,
    /// Least possible share of all stalls.
    pub total_stall_min: f64,
    /// Largest possible share of all stalls.
    pub total_stall_max: f64,
    /// Share of time that instructions take when they wait for nothing; `None` unless the scale is absolute.
    pub execution: Option<f64>,
    /// Least possible share of execution.
    pub execution_min: f64,
    /// Largest possible share of execution.
    pub execution_max: f64,
    /// Share that is neither stall nor execution: samples that chance added or removed. `None` unless the scale is absolute.
    pub net_sampling_error: Option<f64>,
    /// Under a function: the samples that the summary rests on. `None` for other scopes.
    pub under: Option<SummaryUnder>,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// The samples under a function: those in it and in what it calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct SummaryUnder {
    /// Samples whose call stack contains the function.
    pub samples: u64,
    /// Samples in the function itself.
    pub own: u64,
    /// Number of samples that have a call stack.
    pub stack_samples: u64,
    /// Number of all samples of the event, with and without a call stack.
    pub all_samples: u64,
    /// Share of `samples` of `stack_samples`, 0 to 1: an estimate of the function's share of the whole recording.
    pub share: f64,
    /// Other samples with a call stack whose outer frames are not known. The function may be among those frames.
    pub incomplete: u64,
}

/// The part of the profile that a [`Summary`] covers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct SummaryScope {
    /// Kind of the scope: `procedure`, `image`, `under` or `epoch`.
    #[cfg_attr(feature = "typescript", ts(type = "'procedure' | 'image' | 'under' | 'epoch'"))]
    pub kind: String,
    /// `IMAGE:NAME` of the procedure or of the function that the samples are under, the paths of the images joined by `, `, or the ids of the epochs joined by `+`.
    pub name: String,
}

/// A dynamic cause, with the range of the share that it may explain.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct SummaryRange {
    /// Cause in kebab-case: `i-cache-miss`, `d-cache-miss`, …; `other` stands for all rare causes together.
    pub cause: String,
    /// Name of the cause for users, such as `D-cache miss`.
    pub label: &'static str,
    /// Least share that the cause explains.
    pub share_min: f64,
    /// Largest share that the cause may explain.
    pub share_max: f64,
}

/// A static cause, with the share that it explains.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct SummaryPart {
    /// Cause in kebab-case: `slotting`, `functional-unit`, or the operand that was not ready: `dependency-address`,
    /// `dependency-flags`, `dependency-first`, `dependency-second` or `dependency-third` (the source operands in the order
    /// of the assembler).
    pub cause: String,
    /// Name of the cause for users, such as `D-cache miss`.
    pub label: &'static str,
    /// Share that the cause explains; `None` unless the scale is absolute.
    pub share: Option<f64>,
    /// Least share that the cause explains.
    pub share_min: f64,
    /// Largest share that the cause may explain.
    pub share_max: f64,
}
