//! Why a question has no answer.

use std::path::PathBuf;

use dwell_profile::{DatabaseError, Dimension};

/// Why a question has no answer. What is merely incomplete is answered, with notes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The database or an epoch cannot be read.
    #[error(transparent)]
    Profile(#[from] DatabaseError),
    /// No procedure of that name is in the epoch's images.
    #[error("procedure '{name}': not found in epoch {epoch}: {}", instead(similar))]
    NoProcedure {
        /// As asked.
        name: String,
        /// The epoch's id.
        epoch: String,
        /// Procedures whose names only add what compilers and namespaces do, each with how many samples it has: most first.
        similar: Vec<(String, u64)>,
    },
    /// Several procedures match.
    #[error("procedure '{name}': ambiguous: name one of {}", candidates.join(", "))]
    Ambiguous {
        /// As asked.
        name: String,
        /// Names that are unique, most samples first.
        candidates: Vec<String>,
    },
    /// The procedure is known but its instructions cannot be had.
    #[error("procedure '{name}': no listing: {why}")]
    NoInstructions {
        /// As asked.
        name: String,
        /// The image is gone, has changed, was never a file, …
        why: String,
    },
    /// What needs samples of time was asked of an epoch that has none.
    #[error("epoch {epoch}: no samples of time: record cycles or cpu-clock")]
    NoTime {
        /// The epoch's id.
        epoch: String,
    },
    /// The rows asked for are of what no epoch kept.
    #[error("epoch {epoch}: no {dimension} was kept: record with '--dimensions {dimension}'")]
    NoDimension {
        /// What was asked for.
        dimension: Dimension,
        /// The epoch's id.
        epoch: String,
    },
    /// What samples refer to was asked for of epochs that did not keep it.
    #[error("epoch {epoch}: what data samples refer to was not kept: record with '--data'")]
    NoData {
        /// The epoch's id.
        epoch: String,
    },
    /// No sample is of what was asked for.
    #[error(
        "epoch {epoch}: no samples of {filter}: 'dwell top --by app' (thread, cpu, cgroup) lists what has some"
    )]
    NothingTaken {
        /// As asked: `app 'gcc'`.
        filter: String,
        /// The epoch's id.
        epoch: String,
    },
    /// No image with samples matches.
    #[error("image '{name}': not found in epoch {epoch}: 'dwell top --by image' lists those with samples")]
    NoImage {
        /// As asked.
        name: String,
        /// The epoch's id.
        epoch: String,
    },
    /// Its counts cannot be compared with others'.
    #[error("epoch {epoch}: nothing to compare by: it has no samples, no duration or none of that procedure")]
    NothingToCompare {
        /// The epoch's id.
        epoch: String,
    },
    /// A table to be imported is no table.
    #[error("{}:{line}: {why}", path.display())]
    BadTable {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What was expected.
        why: String,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An image that was named cannot be used.
    #[error(transparent)]
    Image(#[from] dwell_image::ImageError),
    /// No machine model has that name.
    #[error("machine model '{name}': unknown: name one of {}", known.join(", "))]
    NoModel {
        /// As asked.
        name: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// The asker lost interest.
    #[error("cancelled")]
    Cancelled,
}

impl QueryError {
    /// A stable name for programs: kebab-case.
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

/// What to ask for instead of a name that is no procedure's.
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
