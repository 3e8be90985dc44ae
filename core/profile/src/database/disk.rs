//! The operations that the database needs from a file system: a small set, each of which a test can make fail or
//! interrupt.
//!
//! Enters: absolute paths and whole byte strings. Never here: what the files mean.

use std::{
    any::Any,
    fmt::Debug,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::{EpochId, ImageId};

/// A lock that is held until this value is dropped. The system releases it when the process ends, for whatever reason.
#[derive(Debug)]
pub struct LockGuard(#[expect(dead_code, reason = "held for its drop alone")] Box<dyn Any + Send + Sync>);

impl LockGuard {
    /// Returns a guard that drops this value to release the lock.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        LockGuard(Box::new(held))
    }
}

/// The result of an attempt to lock.
pub enum LockOutcome {
    /// We hold the lock.
    Held(LockGuard),
    /// Another process holds the lock; its pid if it recorded it.
    Busy(Option<u32>),
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name, without the folder.
    pub name: String,
    /// Whether it is a folder itself.
    pub is_dir: bool,
}

/// A file of rows of a table, which were computed of an epoch and an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRows {
    /// The absolute path of the file.
    pub path: PathBuf,
    /// The epoch.
    pub epoch: EpochId,
    /// The image.
    pub image: ImageId,
}

/// The file system. Data is durable only after it was synced: the bytes of a file once `write_new` has returned, a name
/// once `sync_dir` of its folder has returned.
pub trait Disk: Send + Sync + Debug {
    /// Returns where the files really are, for messages, if that is not the folder that paths begin with.
    fn place(&self) -> Option<String> {
        None
    }
    /// Returns the epochs that are the sums of others, each with these. They are not listed among the epochs, but can be read like
    /// them. No epoch is in two sums.
    fn sums(&self) -> io::Result<Vec<(EpochId, Vec<EpochId>)>> {
        Ok(Vec::new())
    }
    /// Returns the files of rows of a table that were computed before and stored, of one epoch or of all. They can be read as Parquet.
    fn stored_rows(&self, table: &str, epoch: Option<&EpochId>) -> io::Result<Vec<StoredRows>> {
        let _ = (table, epoch);
        Ok(Vec::new())
    }
    /// Creates a folder that only its owner can access (0700).
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Creates a file that only its owner can access (0600), writes it and syncs its bytes. Returns an error if the
    /// name exists.
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Moves a file or folder. An existing file at the destination is replaced atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Reads a whole file; returns an error of kind `FileTooLarge` if it exceeds the limit.
    fn read(&self, path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>>;
    /// Returns whether an error of `read` says nothing of the file, but that the disk is out of reach or denies access: an answer without
    /// the file would be wrong for no fault of the file's.
    fn is_out_of_reach(&self, error: &io::Error) -> bool {
        let _ = error;
        false
    }
    /// Returns the size of a file.
    fn bytes(&self, path: &Path) -> io::Result<u64>;
    /// Returns the entries of a folder, sorted by name; names that are not UTF-8 are converted lossily.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    /// Returns a number that changes when the names in the folder change.
    fn changed(&self, path: &Path) -> io::Result<u64>;
    /// Locks a file without waiting; creates it if it is missing.
    fn lock(&self, path: &Path) -> io::Result<LockOutcome>;
}

/// The real file system of the machine.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn read(&self, path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
        read_file(path, limit_bytes)
    }

    fn bytes(&self, path: &Path) -> io::Result<u64> {
        fs::symlink_metadata(path).map(|m| m.len())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                Ok(Entry { name, is_dir: entry.file_type()?.is_dir() })
            })
            .collect::<io::Result<Vec<_>>>()?;
        entries.sort_unstable();
        Ok(entries)
    }

    fn changed(&self, path: &Path) -> io::Result<u64> {
        let metadata = fs::metadata(path)?;
        Ok((metadata.mtime() as u64).wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec() as u64))
    }

    fn lock(&self, path: &Path) -> io::Result<LockOutcome> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // Only the error messages of other processes use the pid, so a full disk must not prevent the lock.
                let _ = file
                    .set_len(0)
                    .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
                Ok(LockOutcome::Held(LockGuard::new(LockedFile(file))))
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = file.take(32).read_to_string(&mut text);
                Ok(LockOutcome::Busy(text.trim().parse().ok()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads a whole regular file. Returns an error of kind `FileTooLarge` if it has more than `limit_bytes`.
pub fn read_file(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    // Opening a pipe that someone put into the folder would block forever, and a device could supply bytes forever.
    let file = OpenOptions::new().read(true).custom_flags(nonblocking()).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::with_capacity(metadata.len().min(limit_bytes) as usize);
    file.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("larger than the limit of {limit_bytes} bytes"),
        ));
    }
    Ok(bytes)
}

/// A locked file, which is unlocked when it is dropped. Closing the file would not be enough: a child that another
/// thread forks shares the lock until it has executed its program.
struct LockedFile(File);

impl Drop for LockedFile {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock); // If unlocking fails, closing the file unlocks it.
    }
}

fn nonblocking() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stands for a child that was forked meanwhile and shares the descriptor.
    #[test]
    fn a_lock_ends_though_another_descriptor_shares_it() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let path = folder.path().join("lock");
            OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap()
        };
        let held = LockedFile(open());
        flock(&held.0, FlockOperation::NonBlockingLockExclusive).unwrap();
        let shared = held.0.try_clone().unwrap();
        assert!(flock(open(), FlockOperation::NonBlockingLockExclusive).is_err());
        drop(held);
        flock(open(), FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(shared);
    }
}
