//! Errors of the database. Each message is one line that says what failed, why, and, where possible, what to do.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{EpochId, SegmentError};

/// The reason why an operation on the database failed. In every case all data that had been stored before is intact.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The folder is not a database: it holds other files.
    #[error(
        "{} is not a profile database: it contains other files and no FORMAT marker; name an empty or a new folder",
        .0.display()
    )]
    NotADatabase(PathBuf),
    /// The database was written by a newer Dwell, in a layout that this version does not know.
    #[error(
        "{} has database format {found}, but this dwell reads up to {known}; use the newer dwell that wrote it",
        path.display()
    )]
    NewerFormat {
        /// The database's folder.
        path: PathBuf,
        /// The version that the database names.
        found: u32,
        /// The newest version that we know.
        known: u32,
    },
    /// The database contains no epoch.
    #[error("{}", empty(.0))]
    Empty(PathBuf),
    /// The selector matches no epoch.
    #[error("no recording '{selector}'; there are {have}: `dwell epoch list` shows them")]
    NoSuchEpoch {
        /// The selector.
        selector: String,
        /// Number of epochs in the database.
        have: usize,
    },
    /// The selector matches several epochs.
    #[error("'{selector}' matches {} recordings: {}; give a full id", candidates.len(), list(candidates))]
    AmbiguousEpoch {
        /// The selector.
        selector: String,
        /// The epochs that match, oldest first.
        candidates: Vec<EpochId>,
    },
    /// The selector is malformed.
    #[error("'{0}' does not select a recording: expected an id, a name, `latest` or `latest~N`")]
    BadSelector(String),
    /// The epoch id cannot be the name of a folder.
    #[error("'{0}' is not an epoch id: expected letters, digits and '-'")]
    BadEpochId(String),
    /// The name cannot be given to an epoch: it would hide a selector, or it cannot be shown.
    #[error("'{name}' cannot name a recording: {why}")]
    BadName {
        /// The requested name.
        name: String,
        /// The reason why it is refused.
        why: &'static str,
    },
    /// Another epoch has the requested name already.
    #[error("the name '{name}' is already used by recording {by}")]
    NameTaken {
        /// The requested name.
        name: String,
        /// The epoch that has this name.
        by: EpochId,
    },
    /// An epoch with this id exists already.
    #[error("epoch {0} exists already")]
    EpochExists(EpochId),
    /// Another process collects into this database on this host.
    #[error(
        "{} is being written by {} on host {host}; stop that collector, or name another database with --db",
        path.display(), process(*pid)
    )]
    WriterBusy {
        /// The database's folder.
        path: PathBuf,
        /// The host of the process that holds the lock, which is ours.
        host: String,
        /// The process that holds the lock, if the lock file records it.
        pid: Option<u32>,
    },
    /// The epoch is being recorded or compacted.
    #[error("epoch {id} is in use by {}; end it with `dwell epoch new`, or stop the collector", process(*pid))]
    EpochBusy {
        /// The epoch.
        id: EpochId,
        /// The process that holds the lock, if the lock file records it.
        pid: Option<u32>,
    },
    /// Another process has held the lock on the metadata for too long.
    #[error("{} has been locked by {} for over {waited_s} s; try again when it is done", path.display(), process(*pid))]
    MetadataBusy {
        /// The lock file.
        path: PathBuf,
        /// The process that holds the lock, if the lock file records it.
        pid: Option<u32>,
        /// How long we waited, in seconds.
        waited_s: u64,
    },
    /// A file of the database cannot be understood, and the operation cannot continue without it.
    #[error("{} cannot be read: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The samples do not fit into a segment.
    #[error("segment {number} of epoch {id} cannot be encoded: {source}")]
    Encode {
        /// The epoch.
        id: EpochId,
        /// The segment's number.
        number: u64,
        /// The reason.
        source: SegmentError,
    },
    /// A source file is too large to be stored.
    #[error("{} is not stored: it has {size_bytes} bytes, the limit is {limit_bytes}", path.display())]
    SourceTooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size_bytes: u64,
        /// The limit in bytes, [`crate::MAX_SOURCE_BYTES`].
        limit_bytes: u64,
    },
    /// The operating system returned an error.
    #[error("{}", io_failure(action, path, source))]
    Io {
        /// The action that failed, as a verb: `write`, `rename`, …
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system, or, for files that are elsewhere, of what fetches them.
        source: io::Error,
    },
}

fn io_failure(action: &str, path: &Path, source: &io::Error) -> String {
    // What fetches files names the place itself, and the path here is that of a cache.
    if source.kind() == io::ErrorKind::Other && source.get_ref().is_some() {
        return source.to_string();
    }
    format!("cannot {action} {}: {source}{}", path.display(), advice(source))
}

fn list(ids: &[EpochId]) -> String {
    ids.iter().map(|id| id.0.as_str()).collect::<Vec<_>>().join(", ")
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space and try again: samples stored before are intact"
        }
        io::ErrorKind::PermissionDenied => "; the database belongs to the user who collects into it",
        io::ErrorKind::ReadOnlyFilesystem => "; name a writable database with --db",
        _ => "",
    }
}

/// A file that was left out of an answer, and the reason. All other files were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}; left out", self.path.display(), self.reason)
    }
}

/// Adds the action and its path to an error of the operating system.
pub(crate) trait IoContext<T> {
    fn context(self, action: &'static str, path: &std::path::Path) -> Result<T, DatabaseError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &std::path::Path) -> Result<T, DatabaseError> {
        self.map_err(|source| DatabaseError::Io { action, path: path.to_owned(), source })
    }
}
fn empty(place: &Path) -> String {
    let shown = place.display();
    if place.starts_with("s3:") && shown.to_string().contains('?') {
        format!("{shown}: no recordings are there of these hosts (whole names) and days")
    } else if place.starts_with("s3:") {
        format!("{shown}: no recordings are there; `dwell push` sends those of a machine")
    } else {
        format!("the profile database {shown} is empty; make a recording with `dwell record`")
    }
}
