//! The files of an epoch, for copies in other places: an object store, another host.

use std::io::ErrorKind;

use crate::{
    DatabaseError, EpochId,
    error::IoContext,
    segment::{MAX_SEGMENT_BYTES, SegmentError, with_signed_integers},
};

use super::{
    Database, epoch_file,
    layout::{Beside, EPOCH_FILE},
};

impl Database {
    /// Returns the names of the files that hold an epoch's samples, evidence, counts and call stacks, in an order of their kinds. A
    /// copy of the epoch is made of these, and of `epoch.json`, which comes last: an epoch is there if that file is.
    pub fn epoch_files(&self, id: &EpochId) -> Result<Vec<String>, DatabaseError> {
        let folder = self.layout.epoch(id)?;
        let segments = self.list_segments(id, &folder)?.live.into_iter().map(|range| range.file_name());
        let entries = self.disk.list(&folder).context("list", &folder)?;
        let is_beside = |name: &String| {
            Beside::ALL.iter().any(|kind| kind.number(name).is_some()) || Beside::Stacks.range(name).is_some()
        };
        Ok(segments.chain(entries.into_iter().map(|entry| entry.name).filter(is_beside)).collect())
    }

    /// Reads one of the files that [`Database::epoch_files`] returned, with integers that are declared as signed, which more
    /// engines read well. Returns `None` if a compaction removed it meanwhile: its contents are then in another file. The checksum
    /// of the file is verified.
    pub fn signed_file(&self, id: &EpochId, name: &str) -> Result<Option<Vec<u8>>, DatabaseError> {
        let path = self.layout.epoch(id)?.join(name);
        let bytes = match self.disk.read(&path, MAX_SEGMENT_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.context("read", &path)?,
        };
        let damaged = |error: SegmentError| DatabaseError::Damaged { path, why: error.to_string() };
        with_signed_integers(bytes).map(Some).map_err(damaged)
    }

    /// Reads the file `epoch.json` of an epoch as it is.
    pub fn epoch_json(&self, id: &EpochId) -> Result<Vec<u8>, DatabaseError> {
        let path = self.layout.epoch(id)?.join(EPOCH_FILE);
        self.disk.read(&path, epoch_file::MAX_EPOCH_BYTES).context("read", &path)
    }
}
