//! Errors of requests.

use std::path::PathBuf;

use dwell_profile::{DatabaseError, Dimension};

/// Reason why a request has no answer. If the data are only incomplete, there is an answer, with notes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The database or an epoch cannot be read.
    #[error(transparent)]
    Profile(#[from] DatabaseError),
    /// None of the epoch's images contains a procedure of that name.
    #[error("function '{name}': not found in recording {epoch}: {}", instead(similar))]
    NoProcedure {
        /// Name of the procedure, as the request spells it.
        name: String,
        /// Id of the epoch.
        epoch: String,
        /// Procedures whose names differ from `name` only by what compilers and namespaces add, each with its number of
        /// samples, most samples first.
        similar: Vec<(String, u64)>,
    },
    /// The name matches several procedures.
    #[error("function '{name}' is ambiguous: name one of {}", candidates.join(", "))]
    Ambiguous {
        /// Name of the procedure, as the request spells it.
        name: String,
        /// Unique names of the procedures that match, most samples first.
        candidates: Vec<String>,
    },
    /// The procedure is known, but its instructions are not available.
    #[error("function '{name}' has no listing: {why}")]
    NoInstructions {
        /// Name of the procedure, as the request spells it.
        name: String,
        /// Reason: the image is missing, has changed, was never a file, …
        why: String,
    },
    /// The request needs samples of time, but the epoch has none.
    #[error("recording {epoch}: no samples of time: record cycles or cpu-clock")]
    NoTime {
        /// Id of the epoch.
        epoch: String,
    },
    /// The request is for rows by a dimension that none of the epochs recorded.
    #[error("recording {epoch}: no {dimension} was kept: record with '--dimensions {dimension}'")]
    NoDimension {
        /// The requested dimension.
        dimension: Dimension,
        /// Id of the epoch.
        epoch: String,
    },
    /// The request is for the data that samples refer to, but the epochs did not record it.
    #[error("recording {epoch}: the data that samples access was not kept: record with '--data'")]
    NoData {
        /// Id of the epoch.
        epoch: String,
    },
    /// The request is for call stacks, but the epochs recorded none.
    #[error("recording {epoch}: {why}")]
    NoStacks {
        /// Id of the epoch.
        epoch: String,
        /// Why there are none, and what to do.
        why: String,
    },
    /// The epochs have no event of that name.
    #[error("event '{name}': not in recording {epoch}: its events are {}", known.join(", "))]
    NoEvent {
        /// Name of the event, as the request spells it.
        name: String,
        /// Id of the epoch.
        epoch: String,
        /// Names of the events that were sampled.
        known: Vec<String>,
    },
    /// Samples that stand for different things cannot be added up or compared.
    #[error("recording {epoch}: {why}")]
    MixedUnits {
        /// Id of the epoch.
        epoch: String,
        /// What differs.
        why: String,
    },
    /// No call stack contains a function of that name.
    #[error(
        "function '{name}': in no call stack of recording {epoch}: 'dwell top --inclusive' lists those that are"
    )]
    NoFunctionInStacks {
        /// Name of the function, as the request spells it.
        name: String,
        /// Id of the epoch.
        epoch: String,
    },
    /// No sample matches the filter of the request.
    #[error(
        "recording {epoch}: no samples of {filter}: 'dwell top --by app' (thread, cpu, cgroup) shows which exist"
    )]
    NothingTaken {
        /// The filter of the request, as text: `app 'gcc'`.
        filter: String,
        /// Id of the epoch.
        epoch: String,
    },
    /// No image with samples matches.
    #[error("binary '{name}': not found in recording {epoch}: 'dwell top --by image' lists binaries")]
    NoImage {
        /// Part of the image's name, as the request spells it.
        name: String,
        /// Id of the epoch.
        epoch: String,
    },
    /// The sample counts of the epoch cannot be compared with those of other epochs.
    #[error("recording {epoch} cannot be compared: no samples, no duration or none of that function")]
    NothingToCompare {
        /// Id of the epoch.
        epoch: String,
    },
    /// A line of a table that is to be imported is malformed.
    #[error("{}:{line}: {why}", path.display())]
    BadTable {
        /// Path of the table.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Description of what was expected.
        why: String,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// An image that the request names cannot be used.
    #[error(transparent)]
    Image(#[from] dwell_image::ImageError),
    /// There is no machine model of that name.
    #[error("machine model '{name}' is unknown: name one of {}", known.join(", "))]
    NoModel {
        /// Name of the machine model, as the request spells it.
        name: String,
        /// Names of all machine models.
        known: Vec<String>,
    },
    /// The caller cancelled the request.
    #[error("cancelled")]
    Cancelled,
}

impl QueryError {
    /// Returns a stable name of the error for programs, in kebab-case.
    pub fn code(&self) -> &'static str {
        match self {
            QueryError::Profile(DatabaseError::Empty(_)) => "empty-database",
            QueryError::Profile(DatabaseError::NoSuchEpoch { .. }) => "no-epoch",
            QueryError::Profile(_) => "database",
            QueryError::NoProcedure { .. } => "no-procedure",
            QueryError::Ambiguous { .. } => "ambiguous",
            QueryError::NoInstructions { .. } => "no-instructions",
            QueryError::NoTime { .. } => "no-time",
            QueryError::NoDimension { .. } => "no-dimension",
            QueryError::NoData { .. } => "no-data",
            QueryError::NoStacks { .. } => "no-stacks",
            QueryError::NoEvent { .. } => "no-event",
            QueryError::MixedUnits { .. } => "mixed-units",
            QueryError::NoFunctionInStacks { .. } => "no-function-in-stacks",
            QueryError::NothingTaken { .. } => "nothing-taken",
            QueryError::NoImage { .. } => "no-image",
            QueryError::NothingToCompare { .. } => "nothing-to-compare",
            QueryError::BadTable { .. } => "bad-table",
            QueryError::Io { .. } => "io",
            QueryError::Image(_) => "bad-image",
            QueryError::NoModel { .. } => "no-model",
            QueryError::Cancelled => "cancelled",
        }
    }
}

/// Suggests what to request instead of a name that matches no procedure.
fn instead(similar: &[(String, u64)]) -> String {
    if similar.is_empty() {
        return "'dwell top' lists those with samples".to_owned();
    }
    let one = |(name, samples): &(String, u64)| match samples {
        0 => format!("'{name}' (no samples)"),
        1 => format!("'{name}' (1 sample)"),
        _ => format!("'{name}' ({samples} samples)"),
    };
    format!("similar names are {}", similar.iter().map(one).collect::<Vec<_>>().join(", "))
}
