//! What can go wrong between a host and an object store. No message holds a signature or a secret.

use std::path::PathBuf;

use dwell_profile::DatabaseError;

/// The reason why recordings could not be sent or read.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// What was given names no place that can be used.
    #[error("{given}: {why}")]
    Location {
        /// What was given.
        given: String,
        /// What is wrong with it, and what was expected.
        why: String,
    },
    /// There are no credentials, or they cannot be used.
    #[error("{0}")]
    Credentials(String),
    /// The store refused a request for good.
    #[error("{place}: the store refuses ({code}){hint}")]
    Refused {
        /// The bucket or the object.
        place: String,
        /// The store's error code, such as `AccessDenied`, or the HTTP status.
        code: String,
        /// What helps, after `: `; empty if nothing is known.
        hint: &'static str,
    },
    /// The store did not answer, or not as a store does, in spite of several attempts.
    #[error("{place}: {why} ({})", attempts_text(*attempts))]
    Unreachable {
        /// The bucket or the object.
        place: String,
        /// What happened last.
        why: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// The objects have a layout of a newer version.
    #[error("{place}: its layout has version {found}, and this dwell knows {known}: use a newer dwell")]
    Newer {
        /// The bucket and prefix.
        place: String,
        /// The version there.
        found: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// There is no place for the cache.
    #[error("no folder for the cache: set XDG_CACHE_HOME or HOME")]
    NoCache,
    /// A file of ours cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The database on this machine cannot be read.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

fn attempts_text(attempts: u32) -> String {
    if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") }
}
