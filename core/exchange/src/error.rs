//! Errors of import.

use std::path::PathBuf;

use dwell_profile::DatabaseError;

/// The reason why a file could not be imported. A file that is merely incomplete is imported, with notes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The flame graph could not be drawn.
    #[error("cannot draw the flame graph: {0}")]
    Draw(String),
    /// The file is malformed.
    #[error("{}: not a perf.data file that Dwell can read: {why}", path.display())]
    BadPerfData {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Profiles of OpenTelemetry are malformed, or of a version that is not supported.
    #[error("{}: not profiles of OpenTelemetry (v1development) that Dwell can read: {why}", path.display())]
    BadOtlp {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The file has no samples.
    #[error("{}: it contains no samples{}", path.display(), why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    NoSamples {
        /// The file.
        path: PathBuf,
        /// The reason why samples may be missing: the file is truncated.
        why: Option<String>,
    },
    /// The database cannot be written.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}
