//! The façade: combines profiles, images and the analysis into plain answers, and caches what takes long to compute.
//!
//! Input: the folder of a database, and requests. Output: the types of [`answer`], which serialize to the documented JSON.
//! This crate knows nothing about colours, widths, protocols or collection.
//!
//! Data flow in one direction: `load` reads samples, images and sources; `analyse` computes from them; [`Query`] caches
//! both; `ask` has one file for each request and builds the types of [`answer`].

mod analyse;
pub mod answer;
mod ask;
mod cancel;
mod cause_names;
mod differences;
mod error;
mod load;
mod parallel;
mod query;

pub use analyse::procedures::NO_SYMBOL;
pub use ask::{
    callers::{CallStep, CallersRequest, Direction},
    diff::DiffRequest,
    flame::{FlameDiffRequest, FlameRequest},
    recorded_stacks::{RecordedFrame, RecordedStack, RecordedStacks},
    stats::{Normalize, StatsRequest},
    summary::SummaryRequest,
    tables::{
        AnalysedProcedure, KnownNames, ProcedureCount, ProcedureRange, SampledLine, SampledProcedure,
        demangle, image_path,
    },
    top::{Detail, Domain, TopBy, TopRequest},
};
pub use cancel::Cancel;
pub use dwell_profile::text_to_path;
pub use error::QueryError;
pub use load::{
    filter::{SampleFilter, is_of_service},
    import::{ImportRequest, import_counts},
};
pub use query::{Options, Query, fetched_dir};
