//! Answers as plain data. Their JSON is a contract: within one schema version, fields may be added, but none may be renamed
//! or removed.

mod diff;
mod epochs;
mod feedback;
mod flame;
mod lines;
mod listing;
mod places;
mod source_file;
mod stacks;
mod stats;
mod summary;
mod top;

pub use dwell_analysis::{Confidence, Entered, Level, ScaleKind, StallKind};

pub use diff::{
    Diff, DiffChange, DiffFactors, DiffInstruction, DiffLine, DiffPlace, DiffProcedure, DiffSide,
};
pub use epochs::{EpochList, EpochSummary, EventSummary};
pub use feedback::{
    Feedback, FeedbackCall, FeedbackEdge, FeedbackFrame, FeedbackInstruction, FeedbackProcedure,
};
pub use flame::{
    Flame, FlameAnalysis, FlameCause, FlameDiff, FlameDiffFunction, FlameDiffNode, FlameEvent, FlameFunction,
    FlameKind, FlameNode,
};
pub use lines::{
    FileChanges, LineCaller, LineChange, LineDetail, LineInstruction, LinePlace, LineStall, ProcedureChange,
};
pub use listing::{
    Listing, ListingBlock, ListingImage, ListingInstruction, ListingKernel, ListingOperand, ListingPerEntry,
    ListingProcedure, ListingScale, ListingSource, ListingStall, ListingSuccessor, Period,
};
pub use places::{InstructionPlace, PlaceEvent, PlaceFrame, Places, ProcedurePlaces};
pub use source_file::{
    FileCosts, LineCost, LineCulprit, LineTie, ProcedureCost, Program, SourceState, StaleLine,
};
pub use stacks::{
    CallPath, CallSite, Callers, CallersRow, CodeLine, FileFunction, FileFunctions, HottestPaths, INCOMPLETE,
    Inclusive, InclusiveRow, IncompleteStacks, PathFrame, StackFunction, StackNode, Stacks,
};
pub use stats::{Stats, StatsComparison, StatsRow, StatsSet};
pub use summary::{Summary, SummaryPart, SummaryRange, SummaryScope, SummaryUnder};
pub use top::{CycleSplit, EventCounts, Top, TopRow};
