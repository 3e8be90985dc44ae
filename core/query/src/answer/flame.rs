//! The answer of `dwell flame --json`: all call stacks as one tree of functions, with what the analysis knows of each.

use serde::Serialize;

use super::{DiffChange, DiffSide, IncompleteStacks, ScaleKind, StallKind};

/// The call stacks of some epochs as a tree of functions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct Flame {
    /// Version of this answer's JSON schema.
    pub schema: u32,
    /// Ids of the epochs whose stacks were merged.
    pub epochs: Vec<String>,
    /// Events whose samples are in the tree.
    pub events: Vec<FlameEvent>,
    /// Unit of `total` and `own`: `samples`; with several events, the unit that their periods have in common (`ns`, `cycles`).
    pub unit: String,
    /// Sum over all stacks, in `unit`.
    pub total: u64,
    /// Functions and what else frames stand for, each once.
    pub functions: Vec<FlameFunction>,
    /// Frames. A caller precedes what it calls; frames with one caller are ordered by `total`, the largest first.
    pub nodes: Vec<FlameNode>,
    /// Number of frames that share a node with others, because the answer would be too large.
    pub merged: usize,
    /// Share of `total` in functions whose causes were analysed, 0 to 1.
    pub analysed_share: f64,
    /// How many samples have an incomplete stack.
    pub incomplete: Vec<IncompleteStacks>,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// An event of a [`Flame`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct FlameEvent {
    /// Name of the event.
    pub name: String,
    /// Mean period, in `unit`.
    pub period: u64,
    /// Unit of the period: `cycles`, `ns` or `events`.
    #[cfg_attr(feature = "typescript", ts(type = "'cycles' | 'ns' | 'events'"))]
    pub unit: String,
    /// Number of samples that have a stack.
    pub samples: u64,
    /// Number of all samples.
    pub all_samples: u64,
}

/// What a frame of a [`Flame`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum FlameKind {
    /// A function, or the code of a binary without symbols.
    Function,
    /// An application; outermost if there are several.
    Application,
    /// An event; outermost if there are several.
    Event,
    /// The unknown callers of stacks that are not complete.
    Incomplete,
}

/// A function of a [`Flame`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct FlameFunction {
    /// What the name stands for.
    pub kind: FlameKind,
    /// Demangled name, as the source code spells it.
    pub name: String,
    /// File name of the binary; empty unless this is a function.
    pub image: String,
    /// Unique name of the procedure, as other answers have it; `None` if it has no samples of its own or is inlined only.
    pub id: Option<String>,
    /// Whether the code is the kernel's.
    pub kernel: bool,
    /// Source file of the function, where it is known.
    pub file: Option<String>,
    /// Line that the function begins at, from 1.
    pub line: Option<u32>,
    /// Sum over the stacks that contain the function; a recursive function counts once.
    pub total: u64,
    /// Sum over the stacks whose innermost frame is the function.
    pub own: u64,
    /// What the analysis knows of the function itself; `None` if it was not analysed.
    pub analysis: Option<FlameAnalysis>,
}

/// What the analysis knows of the instructions of a function, inlined copies included, calls not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct FlameAnalysis {
    /// Time samples of instructions with a known frequency, with and without a stack. All shares are relative to these.
    pub samples: f64,
    /// Kind of the scale of the executions: the weakest one of the copies.
    pub scale: Option<ScaleKind>,
    /// Cycles per instruction; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible.
    pub cpi_min: Option<f64>,
    /// Upper end of the 90 % interval of `cpi`; `None` if nothing bounds it.
    pub cpi_max: Option<f64>,
    /// Share of time that instructions take when they wait for nothing; `None` unless the scale is absolute.
    pub execution: Option<f64>,
    /// Least possible share of execution.
    pub execution_min: f64,
    /// Largest possible share of execution.
    pub execution_max: f64,
    /// What takes the other time, the largest possible share first. The ranges of several causes overlap.
    pub causes: Vec<FlameCause>,
}

/// A cause of the stalls of a function.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct FlameCause {
    /// Whether the code itself causes the stalls (`static`) or the execution does (`dynamic`).
    pub kind: StallKind,
    /// Cause in kebab-case, as in a summary; `unexplained` if every cause was ruled out.
    pub cause: String,
    /// Name of the cause for users, such as `D-cache miss`.
    pub label: &'static str,
    /// Least share that the cause explains.
    pub share_min: f64,
    /// Largest share that the cause may explain.
    pub share_max: f64,
}

/// A frame of a [`Flame`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct FlameNode {
    /// Index of the caller's node; `None` if this is an outermost frame.
    pub parent: Option<u32>,
    /// Index of the function; `None` if the node stands for several small frames of its caller, with all that they call.
    pub function: Option<u32>,
    /// Whether the function was inlined into its caller.
    pub inlined: bool,
    /// Sum over the stacks through this frame.
    pub total: u64,
    /// Sum over the stacks that end here.
    pub own: u64,
    /// Number of frames that the node stands for if it has no function; otherwise 0.
    pub merged: u64,
}

/// Two recordings as one tree of functions. Both are compared as if they had equally many samples with a stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct FlameDiff {
    /// Version of this answer's JSON schema.
    pub schema: u32,
    /// The recording before the change.
    pub a: DiffSide,
    /// The recording after the change.
    pub b: DiffSide,
    /// Number of samples of A that have a stack.
    pub samples_a: u64,
    /// Number of samples of B that have a stack.
    pub samples_b: u64,
    /// Functions, by name and by the file name of their binary.
    pub functions: Vec<FlameDiffFunction>,
    /// Frames. A caller precedes what it calls; frames with one caller are ordered by their samples in B.
    pub nodes: Vec<FlameDiffNode>,
    /// Number of frames that share a node with others, because the answer would be too large.
    pub merged: usize,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// A function of a [`FlameDiff`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct FlameDiffFunction {
    /// What the name stands for.
    pub kind: FlameKind,
    /// Demangled name, as the source code spells it.
    pub name: String,
    /// File name of the binary; empty unless this is a function.
    pub image: String,
}

/// A frame of a [`FlameDiff`]. Its change is that of the stacks through it; `change_share` is relative to all samples of A
/// that have a stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct FlameDiffNode {
    /// Index of the caller's node; `None` if this is an outermost frame.
    pub parent: Option<u32>,
    /// Index of the function; `None` if the node stands for several small frames of its caller, with all that they call.
    pub function: Option<u32>,
    /// Whether the function was inlined into its caller.
    pub inlined: bool,
    /// Number of frames that the node stands for if it has no function; otherwise 0.
    pub merged: u64,
    /// How the number of samples changed.
    #[serde(flatten)]
    pub change: DiffChange,
}
