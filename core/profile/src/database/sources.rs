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
        self.put_sources(id, &[(path, bytes)]).map(|mut records| records.remove(0))
    }

    /// Keeps several, which is faster than one after the other. All or none is recorded; a record for each, in order.
    pub fn put_sources(
        &self,
        id: &EpochId,
        sources: &[(&Path, &[u8])],
    ) -> Result<Vec<SourceRecord>, DatabaseError> {
        let records =
            sources.iter().map(|(path, bytes)| new_record(path, bytes)).collect::<Result<Vec<_>, _>>()?;
        let folder = self.layout.epoch(id)?;
        self.disk.list(&folder).map_err(|_| self.no_such_epoch(&id.0))?;
        // Also keeps `remove` from collecting a text before the record of it is there.
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
            // Whoever put them there may have been cut off before this.
            return self.disk.sync_dir(folder).context("sync", folder);
        }
        // Lines that we cannot read stay: a newer Dwell may.
        if !list.is_empty() && !list.ends_with(b"\n") {
            list.push(b'\n');
        }
        list.extend(new);
        self.write_atomically(&self.metadata_temporary(), &path, &list)
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
        // The caller syncs the folder, once for all texts.
        self.write_and_rename(&self.metadata_temporary(), &path, &packed)
    }

    /// An epoch's sources by path; a file that changed while it was recorded has its newest record.
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

    /// A list's bytes; none where there is no list yet.
    fn read_bytes(&self, path: &Path) -> Result<Vec<u8>, DatabaseError> {
        match self.disk.read(path, MAX_LIST_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            read => read.context("read", path),
        }
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

/// A list of sources, read.
struct Lines {
    /// In the order in which they were added.
    records: Vec<SourceRecord>,
    /// Lines that are no records.
    malformed: usize,
}

fn parse(bytes: &[u8]) -> Lines {
    let lines = bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty());
    let parsed: Vec<Option<SourceRecord>> = lines.map(|line| serde_json::from_slice(line).ok()).collect();
    let malformed = parsed.iter().filter(|p| p.is_none()).count();
    Lines { records: parsed.into_iter().flatten().collect(), malformed }
}

/// Of the records of one path, the last: the file changed while the epoch was recorded.
fn by_path(records: Vec<SourceRecord>) -> BTreeMap<PathBuf, SourceRecord> {
    records.into_iter().map(|record| (record.path.clone(), record)).collect()
}

fn line(record: &SourceRecord) -> Vec<u8> {
    let mut json = serde_json::to_vec(record).expect("texts and numbers alone");
    json.push(b'\n');
    json
}
