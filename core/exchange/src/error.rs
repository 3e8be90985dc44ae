//! Why a file could not be taken in.

use std::path::PathBuf;

use dwell_profile::DatabaseError;

/// Why a file could not be taken in. What is merely incomplete is imported, with notes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// It.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Its bytes are not what they should be.
    #[error("{}: not a perf.data file that can be read: {why}", path.display())]
    BadPerfData {
        /// It.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is nothing in it.
    #[error("{}: no samples in it{}", path.display(), why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    NoSamples {
        /// It.
        path: PathBuf,
        /// Why there may have been some once: the file is cut off.
        why: Option<String>,
    },
    /// The database cannot be written.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}
