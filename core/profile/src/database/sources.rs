//! Source files, kept as they were when an epoch was recorded, each text once in the database.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use crate::{DatabaseError, EpochId, MAX_SOURCE_BYTES, SourceRecord, Warning, error::IoContext};

use super::{
    Database,
    layout::{SOURCES_FILE, is_epoch_id},
};

/// Size of the largest list of sources that is read, in bytes.
const MAX_LIST_BYTES: u64 = 64 << 20;

impl Database {
    /// Keeps a source file's text for an epoch. The same text, or the same file again, costs nothing more.
    pub fn put_source(&self, id: &EpochId, path: &Path, bytes: &[u8]) -> Result<SourceRecord, DatabaseError> {
        let record = SourceRecord::new(path, bytes);
        if record.size_bytes > MAX_SOURCE_BYTES {
            let (path, size_bytes) = (record.path, record.size_bytes);
            return Err(DatabaseError::SourceTooLarge { path, size_bytes, limit_bytes: MAX_SOURCE_BYTES });
        }
        let folder = self.layout.epoch(id)?;
        self.disk.list(&folder).map_err(|_| self.no_such_epoch(&id.0))?;
        // Also keeps `remove` from collecting the text before the record of it is there.
        let _metadata = self.lock_metadata()?;
        self.put_text(&record, bytes)?;
        let (known, _) = self.read_source_list(&folder)?;
        if !known.contains(&record) {
            let path = folder.join(SOURCES_FILE);
            self.disk.append(&path, &line(&record)).context("write", &path)?;
            self.disk.sync_dir(&folder).context("sync", &folder)?;
        }
        Ok(record)
    }

    /// The text that a record names, checked against its hash.
    pub fn source_text(&self, record: &SourceRecord) -> Result<Vec<u8>, DatabaseError> {
        let path = self.text_path(record)?;
        let packed = self.disk.read(&path, 2 * MAX_SOURCE_BYTES).context("read", &path)?;
        let damaged = |why: String| DatabaseError::Damaged { path: path.clone(), why };
        let mut text = Vec::new();
        let decoder = zstd::Decoder::new(packed.as_slice()).map_err(|e| damaged(e.to_string()))?;
        decoder.take(MAX_SOURCE_BYTES + 1).read_to_end(&mut text).map_err(|e| damaged(e.to_string()))?;
        if record.is_of(&text) {
            Ok(text)
        } else {
            Err(damaged("its text is not the one its hash names".into()))
        }
    }

    fn text_path(&self, record: &SourceRecord) -> Result<PathBuf, DatabaseError> {
        if record.is_well_formed() {
            return Ok(self.layout.sources().join(format!("{}.zst", record.blake3)));
        }
        let why = format!("'{}' is no BLAKE3 hash", record.blake3);
        Err(DatabaseError::Damaged { path: record.path.clone(), why })
    }

    fn put_text(&self, record: &SourceRecord, bytes: &[u8]) -> Result<(), DatabaseError> {
        // Read, not just looked for: a damaged text is replaced while we still have the bytes.
        if self.source_text(record).is_ok() {
            return Ok(());
        }
        let path = self.text_path(record)?;
        let packed = zstd::encode_all(bytes, 9).context("compress", &path)?;
        self.write_atomically(&self.metadata_temporary(), &path, &packed)
    }

    /// An epoch's sources by path; a file that changed while it was recorded has its newest record.
    pub(super) fn read_sources(
        &self,
        id: &EpochId,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<SourceRecord>, DatabaseError> {
        let folder = self.layout.epoch(id)?;
        let (records, bad) = self.read_source_list(&folder)?;
        if bad > 0 {
            let reason = format!("{bad} of its lines are malformed");
            warnings.push(Warning { path: folder.join(SOURCES_FILE), reason });
        }
        let by_path: BTreeMap<_, _> =
            records.into_iter().map(|record| (record.path.clone(), record)).collect();
        Ok(by_path.into_values().collect())
    }

    /// All records in the order in which they were added, and how many lines were malformed.
    fn read_source_list(&self, folder: &Path) -> Result<(Vec<SourceRecord>, usize), DatabaseError> {
        let path = folder.join(SOURCES_FILE);
        let bytes = match self.disk.read(&path, MAX_LIST_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), 0)),
            read => read.context("read", &path)?,
        };
        let lines = bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty());
        let parsed: Vec<Option<SourceRecord>> = lines.map(|line| serde_json::from_slice(line).ok()).collect();
        let bad = parsed.iter().filter(|p| p.is_none()).count();
        Ok((parsed.into_iter().flatten().collect(), bad))
    }

    /// Removes texts that no epoch names. The caller holds the metadata lock.
    pub(super) fn collect_sources(&self) -> Result<(), DatabaseError> {
        let Some(needed) = self.needed_texts()? else { return Ok(()) };
        let folder = self.layout.sources();
        for entry in self.disk.list(&folder).context("list", &folder)? {
            let hash = entry.name.strip_suffix(".zst").filter(|hash| hash.len() == 64);
            if hash.is_some_and(|hash| !needed.contains(hash)) {
                let path = folder.join(&entry.name);
                self.disk.remove_file(&path).context("remove", &path)?;
            }
        }
        Ok(())
    }

    /// The hashes of all texts in use; `None` where a list cannot be read whole, so that nothing may be removed.
    fn needed_texts(&self) -> Result<Option<BTreeSet<String>>, DatabaseError> {
        let mut needed = BTreeSet::new();
        for entry in self.list_epochs()?.iter().filter(|e| e.is_dir && is_epoch_id(&e.name)) {
            match self.read_source_list(&self.layout.epochs().join(&entry.name)) {
                Ok((records, 0)) => needed.extend(records.into_iter().map(|r| r.blake3)),
                _ => return Ok(None),
            }
        }
        Ok(Some(needed))
    }
}

/// A record as a line of its own even where a crash cut the line before it short.
fn line(record: &SourceRecord) -> Vec<u8> {
    let json = serde_json::to_string(record).expect("texts and numbers alone");
    format!("\n{json}\n").into_bytes()
}
