//! The façade: joins profiles, images and the analysis into plain answers, and caches what takes long to compute.
//!
//! Enters: a database's folder and requests. Leaves: the types of [`answer`], which serialize to the documented
//! JSON. Never here: colours, widths, protocols, collection.
//!
//! The data goes one way: `load` reads samples, images and sources; `analyse` computes from them; [`Query`] caches both;
//! `ask` has one file for each request and makes the types of [`answer`].

mod analyse;
pub mod answer;
mod ask;
mod cancel;
mod differences;
mod error;
mod load;
mod once;
mod parallel;
mod query;
mod words;

pub use analyse::procedures::NO_SYMBOL;
pub use ask::{
    diff::DiffRequest,
    stats::{Normalize, StatsRequest},
    summary::SummaryRequest,
    top::{Detail, Domain, TopBy, TopRequest},
};
pub use cancel::Cancel;
pub use dwell_profile::text_to_path;
pub use error::QueryError;
pub use load::{
    filter::SampleFilter,
    import::{ImportRequest, import_counts},
};
pub use query::{Options, Query, fetched_dir};
