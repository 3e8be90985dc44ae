//! What the database asks of a file system: few operations, each of which a test can fail or cut off.
//!
//! Enters: absolute paths and whole byte strings. Never here: what the files mean.

use std::{
    any::Any,
    fmt::Debug,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::{FlockOperation, flock};

/// A lock that is held as long as this lives. The system drops it with the process, whatever ends that.
#[derive(Debug)]
pub(crate) struct LockGuard(
    #[expect(dead_code, reason = "held for its drop alone")] Box<dyn Any + Send + Sync>,
);

impl LockGuard {
    pub(crate) fn new(held: impl Any + Send + Sync) -> Self {
        LockGuard(Box::new(held))
    }
}

/// What an attempt to lock came to.
pub(crate) enum LockOutcome {
    Held(LockGuard),
    /// Someone else has it; their pid where they wrote it down.
    Busy(Option<u32>),
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) is_dir: bool,
}

/// The file system. Nothing is durable before it was synced: a file by `write_new` having returned, a name by `sync_dir` of
/// its folder.
pub(crate) trait Disk: Send + Sync + Debug {
    /// Makes a folder of its user alone (0700).
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes a file of its user alone (0600), writes it and syncs its bytes. Fails where the name is taken.
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Moves a file or folder; a file in its way is replaced, all at once.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes a folder's names durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// A whole file; an error of kind `FileTooLarge` where it exceeds the limit.
    fn read(&self, path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>>;
    /// A file's size.
    fn bytes(&self, path: &Path) -> io::Result<u64>;
    /// A folder's names, sorted; those that are no UTF-8 are spelled lossily.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    /// A number that changes when the folder's names do.
    fn changed(&self, path: &Path) -> io::Result<u64>;
    /// Locks a file, made if need be, without waiting.
    fn lock(&self, path: &Path) -> io::Result<LockOutcome>;
}

/// The machine's own file system.
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
        // A pipe planted in the folder would block us for ever, a device feed us for ever.
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
                // The pid is for other people's error messages only, so a full disk must not keep us from the lock.
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

/// Gives its lock back when it goes. Closing alone would not while a child that another thread forks has not executed its
/// program yet: the two share the lock until then.
struct LockedFile(File);

impl Drop for LockedFile {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock); // Where that fails closing does it.
    }
}

fn nonblocking() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a child has it that was forked meanwhile.
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
