//! The single writer of a host, and the epochs that it writes.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::Timestamp;

use crate::{
    Counts, DatabaseError, DimensionSet, Epoch, EpochId, ExecutionCount, ExecutionEvidence, ImageRecord,
    SampleRun, StoredCallTree,
    error::IoContext,
    segment::{self, SegmentError},
};

use super::{
    Database,
    disk::{LockGuard, LockOutcome},
    epoch_file,
    layout::{Beside, EPOCH_FILE, EPOCH_LOCK_FILE, Layout, SegmentRange, segment_path},
    next_temporary,
    select::check_name,
};

/// The right to collect into a database on this host. It is held until this value and its [`EpochWriter`]s are dropped
/// or the process ends, for whatever reason. It is cheap to clone; clones share the right.
#[derive(Clone, Debug)]
pub struct Writer {
    pub(super) inner: Arc<WriterInner>,
}

#[derive(Debug)]
pub(super) struct WriterInner {
    pub(super) database: Database,
    host: String,
    /// Epochs that this process is writing or compacting. The system's locks do not distinguish between its threads.
    open: Mutex<HashMap<EpochId, Weak<OpenEpoch>>>,
    _lock: LockGuard,
}

/// An epoch whose lock this process holds.
#[derive(Debug)]
pub(super) struct OpenEpoch {
    /// Number of the last durable append; `u64::MAX` once nobody appends any more.
    pub(super) committed: AtomicU64,
    /// Held during a compaction, so that only one runs at a time.
    pub(super) compacting: Mutex<()>,
    /// Segments up to this append are full, so no compaction needs to look at them again. 0 if that is not known.
    pub(super) full: AtomicU64,
    _lock: LockGuard,
}

impl Database {
    /// Makes this process the host's writer. It sets up the folder if it is missing, and removes what a crash left
    /// behind.
    pub fn writer(&self) -> Result<Writer, DatabaseError> {
        self.writer_for(&rustix::system::uname().nodename().to_string_lossy())
    }

    pub(crate) fn writer_for(&self, host: &str) -> Result<Writer, DatabaseError> {
        self.set_up()?;
        let path = self.layout.writer_lock(host);
        let lock = match self.disk.lock(&path).context("lock", &path)? {
            LockOutcome::Held(guard) => guard,
            LockOutcome::Busy(pid) => {
                return Err(DatabaseError::WriterBusy {
                    path: self.path().to_owned(),
                    host: host.to_owned(),
                    pid,
                });
            }
        };
        self.clear_temporaries(&Layout::writer_prefix(host))?;
        let (database, host, open) = (self.clone(), host.to_owned(), Mutex::default());
        Ok(Writer { inner: Arc::new(WriterInner { database, host, open, _lock: lock }) })
    }
}

impl Writer {
    /// Returns the database that this writer writes.
    pub fn database(&self) -> &Database {
        &self.inner.database
    }

    /// Creates an epoch, which is durable with its metadata when this returns. Its name, if it has one, must be unused.
    pub fn begin(&self, epoch: Epoch) -> Result<EpochWriter, DatabaseError> {
        let database = &self.inner.database;
        let folder = database.layout.epoch(&epoch.id)?;
        let _metadata = database.lock_metadata()?;
        let all = database.epochs()?.epochs;
        epoch.name.as_deref().map_or(Ok(()), |name| check_name(&all, None, name))?;
        if database.list_epochs()?.iter().any(|entry| entry.name == epoch.id.0) {
            return Err(DatabaseError::EpochExists(epoch.id));
        }
        let temporary = self.inner.temporary();
        let made = self.inner.make_epoch(&temporary, &folder, &epoch);
        let open = made.inspect_err(|_| drop(database.remove_tree(&temporary, true)))?;
        Ok(EpochWriter {
            writer: self.inner.clone(),
            open,
            folder,
            epoch,
            evidence: (0, 0),
            counts: 0,
            stacks: 0,
        })
    }
}

impl WriterInner {
    /// Builds the folder under a temporary name and moves it to its place when it is complete.
    fn make_epoch(
        &self,
        temporary: &Path,
        folder: &Path,
        epoch: &Epoch,
    ) -> Result<Arc<OpenEpoch>, DatabaseError> {
        let disk = &self.database.disk;
        disk.create_dir(temporary).context("create", temporary)?;
        let lock_path = temporary.join(EPOCH_LOCK_FILE);
        let LockOutcome::Held(lock) = disk.lock(&lock_path).context("lock", &lock_path)? else {
            unreachable!("no one else knows this folder");
        };
        let metadata = temporary.join(EPOCH_FILE);
        disk.write_new(&metadata, &epoch_file::encode(epoch)).context("write", &metadata)?;
        disk.sync_dir(temporary).context("sync", temporary)?;
        disk.rename(temporary, folder).context("create", folder)?;
        let epochs = self.database.layout.epochs();
        disk.sync_dir(&epochs).context("sync", &epochs)?;
        Ok(self.register(&epoch.id, lock, 0))
    }

    fn register(&self, id: &EpochId, lock: LockGuard, committed: u64) -> Arc<OpenEpoch> {
        let (committed, full) = (AtomicU64::new(committed), AtomicU64::new(0));
        let open = Arc::new(OpenEpoch { committed, compacting: Mutex::new(()), full, _lock: lock });
        self.open.lock().unwrap_or_else(|e| e.into_inner()).insert(id.clone(), Arc::downgrade(&open));
        open
    }

    /// Returns the lock of an epoch: the one that this process already holds, or a new one.
    pub(super) fn open_epoch(&self, id: &EpochId) -> Result<Arc<OpenEpoch>, DatabaseError> {
        let known = self.open.lock().unwrap_or_else(|e| e.into_inner()).get(id).and_then(Weak::upgrade);
        match known {
            Some(open) => Ok(open),
            None => Ok(self.register(id, self.database.lock_epoch(id)?, u64::MAX)),
        }
    }

    /// Returns a name in `tmp`. If we cannot remove it, the host's next writer does.
    pub(super) fn temporary(&self) -> PathBuf {
        let name =
            format!("{}{}-{}", Layout::writer_prefix(&self.host), std::process::id(), next_temporary());
        self.database.layout.temporary().join(name)
    }

    /// Encodes and publishes a segment, which is durable when this returns. If it fails, the segment is never seen.
    pub(super) fn put_segment(
        &self,
        id: &EpochId,
        range: SegmentRange,
        encode: impl FnOnce(&EpochId, SegmentRange) -> Result<Vec<u8>, SegmentError>,
    ) -> Result<(), DatabaseError> {
        let encoded = encode(id, range);
        let bytes =
            encoded.map_err(|source| DatabaseError::Encode { id: id.clone(), number: range.last, source })?;
        self.put_encoded(id, range, &bytes)
    }

    /// Publishes a segment that was encoded before.
    pub(super) fn put_encoded(
        &self,
        id: &EpochId,
        range: SegmentRange,
        bytes: &[u8],
    ) -> Result<(), DatabaseError> {
        let path = segment_path(&self.database.layout.epoch(id)?, range);
        self.database.write_atomically(&self.temporary(), &path, bytes)
    }
}

impl Database {
    /// Takes the lock that is held by a process that writes, compacts or removes an epoch.
    pub(super) fn lock_epoch(&self, id: &EpochId) -> Result<LockGuard, DatabaseError> {
        let path = self.layout.epoch(id)?.join(EPOCH_LOCK_FILE);
        match self.disk.lock(&path) {
            Ok(LockOutcome::Held(guard)) => Ok(guard),
            Ok(LockOutcome::Busy(pid)) => Err(DatabaseError::EpochBusy { id: id.clone(), pid }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(self.no_such_epoch(&id.0)),
            Err(error) => Err(error).context("lock", &path),
        }
    }
}

/// An epoch that is being collected.
#[derive(Debug)]
pub struct EpochWriter {
    writer: Arc<WriterInner>,
    open: Arc<OpenEpoch>,
    folder: PathBuf,
    epoch: Epoch,
    /// Number of the last durable file of evidence of executions, and of its last piece of evidence.
    evidence: (u64, u32),
    /// Number of the last durable file of execution counts.
    counts: u64,
    /// Number of the last durable file of call stacks.
    stacks: u64,
}

impl EpochWriter {
    /// Returns the metadata as it was last written.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Returns the right to write, for use beside this epoch.
    pub fn writer(&self) -> Writer {
        Writer { inner: self.writer.clone() }
    }

    /// Stores samples and the records of their images as one segment, which is durable when this returns. On an error
    /// nothing is stored: keep the counts and append them again together with later ones. If `counts` and `images` are
    /// both empty, nothing is written.
    pub fn append(&mut self, counts: &Counts, images: &[ImageRecord]) -> Result<(), DatabaseError> {
        if counts.is_empty() && images.is_empty() {
            return Ok(());
        }
        self.append_segment(|id, range| segment::encode(id, range, counts, images))
    }

    /// Stores rows as one segment, like [`EpochWriter::append`], without needing all of them in memory. `hand_out`
    /// passes the rows to its argument run by run. They are sorted by image, event, application, instance, dimensions
    /// and offset; each key occurs once. They have no dimensions other than `dimensions`, and there are at most
    /// [`MAX_SEGMENT_ROWS`](crate::MAX_SEGMENT_ROWS).
    pub fn append_runs(
        &mut self,
        images: &[ImageRecord],
        dimensions: DimensionSet,
        hand_out: impl FnOnce(&mut dyn FnMut(SampleRun<'_>)),
    ) -> Result<(), DatabaseError> {
        self.append_segment(|id, range| segment::encode_runs(id, range, images, dimensions, hand_out))
    }

    fn append_segment(
        &mut self,
        encode: impl FnOnce(&EpochId, SegmentRange) -> Result<Vec<u8>, SegmentError>,
    ) -> Result<(), DatabaseError> {
        let number = self.open.committed.load(Ordering::Acquire) + 1;
        let range = SegmentRange::one(number);
        let stored = self.writer.put_segment(&self.epoch.id, range, encode);
        if stored.is_err() {
            // The file may have got its name without the name being durable. If this removal fails too, the next
            // append, which has the same number, replaces the file.
            let _ = self.writer.database.disk.remove_file(&segment_path(&self.folder, range));
        }
        stored?;
        self.open.committed.store(number, Ordering::Release);
        Ok(())
    }

    /// Stores evidence of executions as one file, which is durable when this returns. Without evidence nothing is
    /// written. On an error nothing is stored, as with [`EpochWriter::append`].
    pub fn append_evidence(&mut self, evidence: &[ExecutionEvidence]) -> Result<(), DatabaseError> {
        if evidence.is_empty() {
            return Ok(());
        }
        let (file, last) = (self.evidence.0 + 1, self.evidence.1);
        let encode = |id: &_, range| segment::encode_evidence(id, range, last + 1, evidence);
        self.put_beside(Beside::Evidence, file, encode)?;
        self.evidence = (file, last + evidence.len() as u32);
        Ok(())
    }

    /// Stores execution counts as one file, which is durable when this returns. Without counts nothing is written.
    /// Counts without samples carry no information and are left out. On an error nothing is stored, as with
    /// [`EpochWriter::append`].
    pub fn append_execution_counts(&mut self, counts: &[ExecutionCount]) -> Result<(), DatabaseError> {
        if counts.iter().all(|count| count.samples == 0) {
            return Ok(());
        }
        let number = self.counts + 1;
        self.put_beside(Beside::Counts, number, |id, range| segment::encode_counts(id, range, counts))?;
        self.counts = number;
        Ok(())
    }

    /// Stores call stacks as one file, which is durable when this returns. Without stacks nothing is written. On an error
    /// nothing is stored, as with [`EpochWriter::append`].
    pub fn append_stacks(&mut self, tree: &StoredCallTree) -> Result<(), DatabaseError> {
        if tree.is_empty() {
            return Ok(());
        }
        let number = self.stacks + 1;
        self.put_beside(Beside::Stacks, number, |id, range| segment::encode_stacks(id, range, tree))?;
        self.stacks = number;
        Ok(())
    }

    fn put_beside(
        &self,
        kind: Beside,
        number: u64,
        encode: impl FnOnce(&EpochId, SegmentRange) -> Result<Vec<u8>, SegmentError>,
    ) -> Result<(), DatabaseError> {
        let encoded = encode(&self.epoch.id, SegmentRange::one(number));
        let bytes =
            encoded.map_err(|source| DatabaseError::Encode { id: self.epoch.id.clone(), number, source })?;
        let path = self.folder.join(kind.file_name(number));
        let stored = self.writer.database.write_atomically(&self.writer.temporary(), &path, &bytes);
        if stored.is_err() {
            let _ = self.writer.database.disk.remove_file(&path); // The reason is the same as for a segment.
        }
        stored
    }

    /// Replaces the metadata. The stored name is kept, since users may rename an epoch while it is collected.
    pub fn update(&mut self, epoch: &Epoch) -> Result<(), DatabaseError> {
        assert_eq!(epoch.id, self.epoch.id, "an epoch keeps its id");
        let database = &self.writer.database;
        let _metadata = database.lock_metadata()?;
        let name = match database.read_epoch(&epoch.id) {
            Ok(stored) => stored.name,
            Err(DatabaseError::Damaged { .. }) => self.epoch.name.clone(),
            Err(error) => return Err(error),
        };
        let epoch = Epoch { name, ..epoch.clone() };
        database.write_epoch(&epoch)?;
        self.epoch = epoch;
        Ok(())
    }

    /// Ends the epoch and returns its metadata.
    pub fn finish(mut self, end: Timestamp) -> Result<Epoch, DatabaseError> {
        let epoch = Epoch { end: Some(end), ..self.epoch.clone() };
        self.update(&epoch)?;
        Ok(self.epoch)
    }
}
