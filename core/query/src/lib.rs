//! The façade: joins profiles, images and the analysis into plain answers, and caches what is dear.
//!
//! Enters: a database's folder and questions. Leaves: the types of [`answer`], which serialize to the documented
//! JSON. Never here: colours, widths, protocols, collection.

pub mod answer;
mod cancel;
mod costs;
mod counts;
mod data;
mod diff;
mod differences;
mod dimensions;
mod epochs;
mod error;
mod feedback;
mod file_costs;
mod filter;
mod images;
mod import;
mod kernel_text;
mod line_culprits;
mod line_detail;
mod listing;
mod once;
mod places;
mod points;
mod procedure_names;
mod procedures;
mod query;
mod rebuilt;
mod scales;
mod seen;
mod selection;
mod significance;
mod similar;
mod source;
mod source_file;
mod stats;
mod stepped;
mod summary;
mod top;
mod totals;
mod windows;
mod words;
mod writers;

pub use cancel::Cancel;
pub use diff::DiffRequest;
pub use dwell_profile::text_to_path;
pub use error::QueryError;
pub use filter::SampleFilter;
pub use import::{ImportRequest, import_counts};
pub use procedures::NO_SYMBOL;
pub use query::{Options, Query, fetched_dir};
pub use stats::{Normalize, StatsRequest};
pub use summary::SummaryRequest;
pub use top::{Detail, Domain, TopBy, TopRequest};
