//! What can go wrong with a database, each as one line that says what, why and, where there is something, what to do.

use std::{io, path::PathBuf};

use crate::{EpochId, SegmentError};

/// Why an operation on the database failed. What had been stored before is intact in every case.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The folder holds something else.
    #[error(
        "{} is no profile database: it holds other files and no FORMAT marker; name an empty or a new folder",
        .0.display()
    )]
    NotADatabase(PathBuf),
    /// Written by a newer Dwell, in a layout this one does not know.
    #[error(
        "{} has database format {found}, this dwell reads up to {known}; use the newer dwell that wrote it",
        path.display()
    )]
    NewerFormat {
        /// The database's folder.
        path: PathBuf,
        /// The version it names.
        found: u32,
        /// The newest that we know.
        known: u32,
    },
    /// There is no epoch at all.
    #[error("the profile database {} is empty; record an epoch with `dwell record`", .0.display())]
    Empty(PathBuf),
    /// No epoch answers to the selector.
    #[error("no epoch '{selector}'; there are {have}: `dwell epoch list` names them")]
    NoSuchEpoch {
        /// What was asked for.
        selector: String,
        /// How many epochs there are.
        have: usize,
    },
    /// Several epochs answer to the selector.
    #[error("'{selector}' names {} epochs: {}; give a full id", candidates.len(), list(candidates))]
    AmbiguousEpoch {
        /// What was asked for.
        selector: String,
        /// Those that answer, oldest first.
        candidates: Vec<EpochId>,
    },
    /// The selector cannot be read.
    #[error("'{0}' selects no epoch: expected an id, a name, `latest` or `latest~N`")]
    BadSelector(String),
    /// The id cannot be a folder's name.
    #[error("'{0}' is no epoch id: expected letters, digits and '-'")]
    BadEpochId(String),
    /// The name would hide a selector or cannot be shown.
    #[error("'{name}' cannot name an epoch: {why}")]
    BadName {
        /// The name asked for.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// Another epoch has that name.
    #[error("the name '{name}' is taken by epoch {by}")]
    NameTaken {
        /// The name asked for.
        name: String,
        /// Its owner.
        by: EpochId,
    },
    /// An epoch of that id is there already.
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
        /// The holder's host: ours.
        host: String,
        /// The holder, where the lock file tells.
        pid: Option<u32>,
    },
    /// The epoch is being recorded or compacted.
    #[error("epoch {id} is in use by {}; end it with `dwell epoch new`, or stop the collector", process(*pid))]
    EpochBusy {
        /// The epoch.
        id: EpochId,
        /// The holder, where the lock file tells.
        pid: Option<u32>,
    },
    /// Another process has held the lock of the metadata for too long.
    #[error("{} has been locked by {} for over {waited_s} s; try again when it is done", path.display(), process(*pid))]
    MetadataBusy {
        /// The lock file.
        path: PathBuf,
        /// The holder, where the lock file tells.
        pid: Option<u32>,
        /// How long we waited, in seconds.
        waited_s: u64,
    },
    /// A file of ours cannot be understood and the operation cannot go on without it.
    #[error("{} cannot be read: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The samples do not fit a segment.
    #[error("segment {number} of epoch {id} cannot be encoded: {source}")]
    Encode {
        /// The epoch.
        id: EpochId,
        /// The segment's number.
        number: u64,
        /// Why.
        source: SegmentError,
    },
    /// A source file is too large to be kept.
    #[error("{} is not kept: {size_bytes} bytes, the limit is {limit_bytes}", path.display())]
    SourceTooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
        /// [`crate::MAX_SOURCE_BYTES`].
        limit_bytes: u64,
    },
    /// The system refused.
    #[error("cannot {action} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// A verb: `write`, `rename`, …
        action: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
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
            "; make room and try again: what was stored before is intact"
        }
        io::ErrorKind::PermissionDenied => "; the database belongs to the user who collects into it",
        io::ErrorKind::ReadOnlyFilesystem => "; name a writable database with --db",
        _ => "",
    }
}

/// A file that was left out of an answer, and why. The rest was read.
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

/// Adds what was being done, and to what, to a system's error.
pub(crate) trait IoContext<T> {
    fn context(self, action: &'static str, path: &std::path::Path) -> Result<T, DatabaseError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &std::path::Path) -> Result<T, DatabaseError> {
        self.map_err(|source| DatabaseError::Io { action, path: path.to_owned(), source })
    }
}
