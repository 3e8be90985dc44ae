//! The database: epochs of immutable segments in a folder, one writer per host beside many readers.
//!
//! `FORMAT.md` is the contract that this module implements. This file is the façade. The operations are in `reader`,
//! `writer`, `manage` and `sources`. All of them use a file system through [`disk::Disk`], which tests can make fail or
//! interrupt at every step.

mod compact;
mod copies;
pub mod disk;
mod epoch_file;
mod images;
mod layout;
mod manage;
mod reader;
mod select;
mod sources;
mod stack_files;
mod stored;
mod sums;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

pub use compact::Compacted;
#[doc(hidden)]
pub use epoch_file::fuzz_epoch_file;
pub use images::Kept;
pub use layout::SegmentRange;
pub use reader::{EpochProfile, EpochRows, EpochsRead, SegmentFiles};
pub use select::newest_first;
pub use stored::StoredAnalysis;
pub use sums::{EpochsSummed, TOTALS_FILE};
pub use writer::{EpochWriter, Writer};

use crate::{DatabaseError, error::IoContext};

use disk::{Disk, LockGuard, LockOutcome, RealDisk};
use layout::Layout;

/// The version of the database's layout, which the file `FORMAT` names.
pub const DATABASE_FORMAT: u32 = 1;

/// How long an operation waits for another process to release the metadata.
const METADATA_WAIT: Duration = Duration::from_secs(10);

/// A database of epochs. Opening and reading take no lock. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Database {
    layout: Layout,
    disk: Arc<dyn Disk>,
}

impl Database {
    /// Opens the database in this folder. A missing or empty folder is an empty database; its files are created by the
    /// first write.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DatabaseError> {
        // The path is made absolute, because the collector may change its working folder later.
        let root = std::path::absolute(path.as_ref()).context("find", path.as_ref())?;
        Self::on(Arc::new(RealDisk), root)
    }

    /// Opens a database whose files `disk` reads and writes. Paths begin with `root`, which is absolute.
    pub fn on(disk: Arc<dyn Disk>, root: PathBuf) -> Result<Self, DatabaseError> {
        let database = Database { layout: Layout { root }, disk };
        database.check_format()?;
        Ok(database)
    }

    /// Returns the folder of the database.
    pub fn path(&self) -> &Path {
        &self.layout.root
    }

    /// Returns the place of the database, for messages: its folder, or where its files are fetched from.
    pub fn place(&self) -> PathBuf {
        self.disk.place().map_or_else(|| self.layout.root.clone(), PathBuf::from)
    }

    /// Returns whether the folder has been set up as a database; if not, the database is empty.
    fn check_format(&self) -> Result<bool, DatabaseError> {
        let path = self.layout.format();
        let bytes = match self.disk.read(&path, 4096) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return self.check_unmarked(),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                return Err(DatabaseError::NotADatabase(self.layout.root.clone()));
            }
            Err(error) => return Err(error).context("read", &path),
        };
        let text = String::from_utf8_lossy(&bytes);
        let found = text.strip_prefix("dwell profile database ").and_then(|t| t.trim_end().parse().ok());
        match found {
            Some(found) if found > DATABASE_FORMAT => Err(DatabaseError::NewerFormat {
                path: self.layout.root.clone(),
                found,
                known: DATABASE_FORMAT,
            }),
            Some(_) => Ok(true),
            None => {
                Err(DatabaseError::Damaged { path, why: "it is not the marker of a profile database".into() })
            }
        }
    }

    /// Checks a folder without a marker: it may hold only what an interrupted first set-up leaves.
    fn check_unmarked(&self) -> Result<bool, DatabaseError> {
        let ours = |name: &str| {
            name.starts_with('.') || matches!(name, "epochs" | "sources" | "images" | "tmp" | "locks")
        };
        match self.disk.list(&self.layout.root) {
            Ok(entries) if entries.iter().all(|e| ours(&e.name)) => Ok(false),
            Ok(_) => Err(DatabaseError::NotADatabase(self.layout.root.clone())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).context("list", &self.layout.root),
        }
    }

    /// Creates the folders and the marker if they are missing.
    pub(crate) fn set_up(&self) -> Result<(), DatabaseError> {
        let marked = self.check_format()?;
        let layout = &self.layout;
        if !marked && let Some(parent) = layout.root.parent() {
            std::fs::create_dir_all(parent).context("create", parent)?;
        }
        let mut made = !marked && self.create_dir(&layout.root)?;
        for folder in [layout.epochs(), layout.sources(), layout.temporary(), layout.locks()] {
            made |= self.create_dir(&folder)?;
        }
        if made {
            self.disk.sync_dir(&layout.root).context("sync", &layout.root)?;
        }
        let _lock = self.lock_metadata()?;
        if !self.check_format()? {
            let text = format!("dwell profile database {DATABASE_FORMAT}\n");
            self.write_atomically(&self.metadata_temporary(), &layout.format(), text.as_bytes())?;
        }
        self.sync_names(marked)
    }

    /// Makes the names in the root folder durable, then the root's own name. This happens each time, because the
    /// process that created them may have failed or died before it synced them.
    fn sync_names(&self, marked: bool) -> Result<(), DatabaseError> {
        let root = &self.layout.root;
        self.disk.sync_dir(root).context("sync", root)?;
        let Some(parent) = root.parent() else { return Ok(()) };
        match self.disk.sync_dir(parent) {
            // The database was set up for us, in a folder that we may not read.
            Err(error) if marked && error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced.context("sync", parent),
        }
    }

    /// Creates a folder and returns whether it was missing before.
    fn create_dir(&self, path: &Path) -> Result<bool, DatabaseError> {
        match self.disk.create_dir(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error).context("create", path),
        }
    }

    /// Writes a new file in the place of `path`, atomically: readers, even after a crash, see either the old bytes or
    /// the new ones. Once this has returned they see the new ones.
    fn write_atomically(&self, temporary: &Path, path: &Path, bytes: &[u8]) -> Result<(), DatabaseError> {
        let folder = path.parent().expect("a file in a folder of ours");
        self.write_and_rename(temporary, path, bytes)?;
        self.disk.sync_dir(folder).context("sync", folder)
    }

    /// Writes like `write_atomically`, but the result is durable only once the folder is synced.
    fn write_and_rename(&self, temporary: &Path, path: &Path, bytes: &[u8]) -> Result<(), DatabaseError> {
        let written = self.disk.write_new(temporary, bytes).context("write", path);
        let written = written.and_then(|()| self.disk.rename(temporary, path).context("write", path));
        if written.is_err() {
            let _ = self.disk.remove_file(temporary);
        }
        written
    }

    /// Returns a name in `tmp` for a process that holds the metadata lock.
    fn metadata_temporary(&self) -> PathBuf {
        self.layout.temporary().join(format!("m-{}-{}", std::process::id(), next_temporary()))
    }

    /// Takes the lock under which metadata is read, changed and written back, and removes what a crash left of such
    /// changes.
    fn lock_metadata(&self) -> Result<LockGuard, DatabaseError> {
        let path = self.layout.metadata_lock();
        // A copy of a database may lack these folders.
        for folder in [self.layout.temporary(), self.layout.locks()] {
            self.create_dir(&folder)?;
        }
        let start = Instant::now();
        loop {
            match self.disk.lock(&path).context("lock", &path)? {
                LockOutcome::Held(guard) => {
                    self.clear_temporaries("m-")?;
                    return Ok(guard);
                }
                LockOutcome::Busy(pid) if start.elapsed() > METADATA_WAIT => {
                    return Err(DatabaseError::MetadataBusy { path, pid, waited_s: METADATA_WAIT.as_secs() });
                }
                LockOutcome::Busy(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Removes temporary files and folders whose names have this prefix. The caller knows that their owner has ended.
    fn clear_temporaries(&self, prefix: &str) -> Result<(), DatabaseError> {
        let folder = self.layout.temporary();
        let mut entries = self.disk.list(&folder).context("list", &folder)?;
        entries.retain(|entry| entry.name.starts_with(prefix));
        if entries.iter().any(|entry| entry.is_dir) {
            // This epoch was being removed: after a crash it must not reappear without its files.
            let epochs = self.layout.epochs();
            self.disk.sync_dir(&epochs).context("sync", &epochs)?;
        }
        for entry in entries {
            self.remove_tree(&folder.join(&entry.name), entry.is_dir).context("remove", &folder)?;
        }
        Ok(())
    }

    /// Removes a file, or a folder of files.
    fn remove_tree(&self, path: &Path, is_dir: bool) -> std::io::Result<()> {
        if !is_dir {
            return self.disk.remove_file(path);
        }
        for entry in self.disk.list(path)? {
            self.remove_tree(&path.join(&entry.name), entry.is_dir)?;
        }
        self.disk.remove_dir(path)
    }
}

/// Returns a number that no other temporary name of this process has.
fn next_temporary() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
