//! Source files, stored as they were when an epoch was recorded. Each text is stored once in the database.

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
    /// Stores the text of a source file for an epoch. Storing the same text or the same file again takes no more space.
    pub fn put_source(&self, id: &EpochId, path: &Path, bytes: &[u8]) -> Result<SourceRecord, DatabaseError> {
        self.put_sources(id, &[(path, bytes)]).map(|mut records| records.remove(0))
    }

    /// Stores several source files, which is faster than storing them one by one. Either all or none are recorded.
    /// Returns a record for each, in order.
    pub fn put_sources(
        &self,
        id: &EpochId,
        sources: &[(&Path, &[u8])],
    ) -> Result<Vec<SourceRecord>, DatabaseError> {
        let records =
            sources.iter().map(|(path, bytes)| new_record(path, bytes)).collect::<Result<Vec<_>, _>>()?;
        let folder = self.layout.epoch(id)?;
        self.disk.list(&folder).map_err(|_| self.no_such_epoch(&id.0))?;
        // The lock also keeps `remove` from deleting a text whose record is not written yet.
        let _metadata = self.lock_metadata()?;
        for (record, (_, bytes)) in records.iter().zip(sources) {
            self.put_text(record, bytes)?;
        }
        let texts = self.layout.sources();
        self.disk.sync_dir(&texts).context("sync", &texts)?;
        self.put_records(&folder, &records)?;
        Ok(records)
    }

    fn put_records(&self, folder: &Path, records: &[SourceRecord]) -> Result<(), DatabaseError> {
        let path = folder.join(SOURCES_FILE);
        let mut list = self.read_bytes(&path)?;
        let known = by_path(parse(&list).records);
        let new: Vec<u8> = records.iter().filter(|r| known.get(&r.path) != Some(r)).flat_map(line).collect();
        if new.is_empty() {
            // The process that stored them may have been interrupted before this sync.
            return self.disk.sync_dir(folder).context("sync", folder);
        }
        // Lines that we cannot read are kept, because a newer Dwell may be able to.
        if !list.is_empty() && !list.ends_with(b"\n") {
            list.push(b'\n');
        }
        list.extend(new);
        self.write_atomically(&self.metadata_temporary(), &path, &list)
    }

    /// Returns the text that a record names, after checking it against its hash.
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
            Err(damaged("its content does not match its hash".into()))
        }
    }

    fn text_path(&self, record: &SourceRecord) -> Result<PathBuf, DatabaseError> {
        if record.is_well_formed() {
            return Ok(self.layout.sources().join(format!("{}.zst", record.blake3)));
        }
        let why = format!("'{}' is not a BLAKE3 hash", record.blake3);
        Err(DatabaseError::Damaged { path: record.path.clone(), why })
    }

    fn put_text(&self, record: &SourceRecord, bytes: &[u8]) -> Result<(), DatabaseError> {
        // The text is read, not just looked up: a damaged text is replaced while we still have its bytes.
        if self.source_text(record).is_ok() {
            return Ok(());
        }
        let path = self.text_path(record)?;
        let packed = zstd::encode_all(bytes, 9).context("compress", &path)?;
        // The caller syncs the folder once for all texts.
        self.write_and_rename(&self.metadata_temporary(), &path, &packed)
    }

    /// Returns an epoch's sources by path; for a file that changed while the epoch was recorded, the newest record.
    pub(super) fn read_sources(
        &self,
        id: &EpochId,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<SourceRecord>, DatabaseError> {
        let folder = self.layout.epoch(id)?;
        let path = folder.join(SOURCES_FILE);
        let Lines { records, malformed } = parse(&self.read_bytes(&path)?);
        if malformed > 0 {
            let reason = format!("{malformed} of its lines cannot be read");
            warnings.push(Warning { path, reason });
        }
        let by_path: BTreeMap<_, _> =
            records.into_iter().map(|record| (record.path.clone(), record)).collect();
        Ok(by_path.into_values().collect())
    }

    /// Returns the bytes of a list; none if there is no list yet.
    fn read_bytes(&self, path: &Path) -> Result<Vec<u8>, DatabaseError> {
        match self.disk.read(path, MAX_LIST_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            read => read.context("read", path),
        }
    }

    /// Removes texts that no epoch refers to. The caller holds the metadata lock.
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

    /// Returns the hashes of all texts in use; `None` if a list cannot be read completely, because then nothing may be
    /// removed.
    fn needed_texts(&self) -> Result<Option<BTreeSet<String>>, DatabaseError> {
        let mut needed = BTreeSet::new();
        for entry in self.list_epochs()?.iter().filter(|e| e.is_dir && is_epoch_id(&e.name)) {
            let bytes = self.read_bytes(&self.layout.epochs().join(&entry.name).join(SOURCES_FILE));
            match bytes.map(|bytes| parse(&bytes)) {
                Ok(Lines { records, malformed: 0 }) => {
                    needed.extend(by_path(records).into_values().map(|r| r.blake3));
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(needed))
    }
}

fn new_record(path: &Path, bytes: &[u8]) -> Result<SourceRecord, DatabaseError> {
    let (path, size_bytes) = (path.to_owned(), bytes.len() as u64);
    if size_bytes > MAX_SOURCE_BYTES {
        return Err(DatabaseError::SourceTooLarge { path, size_bytes, limit_bytes: MAX_SOURCE_BYTES });
    }
    Ok(SourceRecord::new(&path, bytes))
}

/// A parsed list of sources.
struct Lines {
    /// The records in the order in which they were added.
    records: Vec<SourceRecord>,
    /// Number of lines that are not records.
    malformed: usize,
}

fn parse(bytes: &[u8]) -> Lines {
    let lines = bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty());
    let parsed: Vec<Option<SourceRecord>> = lines.map(|line| serde_json::from_slice(line).ok()).collect();
    let malformed = parsed.iter().filter(|p| p.is_none()).count();
    Lines { records: parsed.into_iter().flatten().collect(), malformed }
}

/// Keeps the last record of each path, because a file may change while the epoch is recorded.
fn by_path(records: Vec<SourceRecord>) -> BTreeMap<PathBuf, SourceRecord> {
    records.into_iter().map(|record| (record.path.clone(), record)).collect()
}

fn line(record: &SourceRecord) -> Vec<u8> {
    let mut json = serde_json::to_vec(record).expect("texts and numbers alone");
    json.push(b'\n');
    json
}
