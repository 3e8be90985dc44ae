//! Compaction: an epoch's first segments become one, unseen by readers.

use std::{path::Path, sync::atomic::Ordering};

use crate::{
    DatabaseError, EpochId, Warning,
    error::IoContext,
    segment::{MAX_SEGMENT_BYTES, MAX_SEGMENT_ROWS, Opened, merge_segments},
};

use super::{
    layout::{SegmentRange, segment_path},
    writer::{OpenEpoch, Writer},
};

/// While an epoch goes on, its first segment is merged again only with so many times fewer rows: a long epoch is written
/// anew less and less often.
const FIRST_OVER_REST_MAX: usize = 4;

/// What a compaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// How many segments the epoch had.
    pub before: usize,
    /// How many it has now.
    pub after: usize,
    /// The segment that kept it from going on, if one did: what cannot be read is never merged, lest it be lost.
    pub warnings: Vec<Warning>,
}

impl Writer {
    /// Merges an epoch's segments from the first on, up to one that cannot be read. Readers and the epoch's own
    /// appends go on beside it.
    pub fn compact(&self, id: &EpochId) -> Result<Compacted, DatabaseError> {
        let open = self.inner.open_epoch(id)?;
        let _compacting = open.compacting.lock().unwrap_or_else(|e| e.into_inner());
        let folder = self.database().layout.epoch(id)?;
        let list = self.database().list_segments(id, &folder)?;
        if !list.superseded.is_empty() {
            // What a compaction that was cut off left. Whether the merged segment's name is durable, it did not tell.
            self.database().disk.sync_dir(&folder).context("sync", &folder)?;
            self.remove_segments(id, &list.superseded)?;
        }
        let committed = open.committed.load(Ordering::Acquire);
        let ended = committed == u64::MAX;
        let candidates: Vec<_> = list.live.iter().copied().filter(|r| r.last <= committed).collect();
        let mut warnings = Vec::new();
        let parts = self.open_prefix(id, &candidates, &mut warnings);
        let rows: Vec<usize> = parts.iter().map(|part| part.rows).collect();
        let merged = if is_worth_it(&rows, ended) { parts.len() } else { 0 };
        if merged > 1 {
            self.replace(id, &candidates[..merged], parts, &open)?;
        }
        let before = list.live.len();
        Ok(Compacted { before, after: before - merged.saturating_sub(1), warnings })
    }

    /// Opens segments from the first on, as long as they can be read and one segment can hold them all.
    fn open_prefix(&self, id: &EpochId, ranges: &[SegmentRange], warnings: &mut Vec<Warning>) -> Vec<Opened> {
        let folder = self.database().layout.epoch(id).expect("checked by the caller");
        let mut parts: Vec<Opened> = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        for &range in ranges {
            let path = segment_path(&folder, range);
            bytes += self.database().disk.bytes(&path).unwrap_or(0);
            if !parts.is_empty() && bytes > MAX_SEGMENT_BYTES {
                break;
            }
            match self.open_one(id, &path, range) {
                Ok(part) if parts.is_empty() || rows + part.rows <= MAX_SEGMENT_ROWS => {
                    rows += part.rows;
                    parts.push(part);
                }
                Ok(_) => break,
                Err(reason) => {
                    warnings.push(Warning { path, reason });
                    break;
                }
            }
        }
        parts
    }

    fn open_one(&self, id: &EpochId, path: &Path, range: SegmentRange) -> Result<Opened, String> {
        let bytes = self.database().disk.read(path, MAX_SEGMENT_BYTES).map_err(|e| e.to_string())?;
        let part = Opened::open(bytes).map_err(|e| e.to_string())?;
        if part.epoch() == *id && part.range() == Ok(range) {
            Ok(part)
        } else {
            Err("it belongs elsewhere".to_owned())
        }
    }

    /// Publishes the merged segment, then removes its parts. The epoch's lock keeps others from doing the same.
    fn replace(
        &self,
        id: &EpochId,
        parts: &[SegmentRange],
        opened: Vec<Opened>,
        _lock: &OpenEpoch,
    ) -> Result<(), DatabaseError> {
        let last = parts.last().expect("two parts at least").last;
        // From 1 even where the first numbers are missing: readers rely on merged segments being prefixes.
        let range = SegmentRange { first: 1, last };
        let merged = merge_segments(id, range, &opened);
        drop(opened);
        let bytes =
            merged.map_err(|source| DatabaseError::Encode { id: id.clone(), number: range.last, source })?;
        self.inner.put_encoded(id, range, &bytes)?;
        self.remove_segments(id, parts)
    }

    fn remove_segments(&self, id: &EpochId, ascending: &[SegmentRange]) -> Result<(), DatabaseError> {
        let folder = self.database().layout.epoch(id)?;
        for &range in ascending {
            let path = segment_path(&folder, range);
            match self.database().disk.remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).context("remove", &path);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether merging segments of so many rows is worth writing all of them anew.
fn is_worth_it(rows: &[usize], ended: bool) -> bool {
    let Some((first, rest)) = rows.split_first() else { return false };
    ended || *first <= FIRST_OVER_REST_MAX * rest.iter().sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_epoch_is_written_anew_less_and_less_often() {
        assert!(is_worth_it(&[10, 10], false) && is_worth_it(&[100, 15, 10], false));
        assert!(!is_worth_it(&[101, 15, 10], false) && is_worth_it(&[101, 15, 10], true));
        assert!(!is_worth_it(&[], true) && !is_worth_it(&[7], false));
        // So many rows are written in all for a thousand appends of 100 rows.
        let (mut rows, mut written) = (vec![], 0);
        for _ in 0..1000 {
            rows.extend([100]);
            if is_worth_it(&rows, false) {
                written += rows.iter().sum::<usize>();
                rows = vec![rows.iter().sum()];
            }
        }
        assert!(
            written < 10 * 100_000 && rows.len() < 260,
            "{written} rows written, {} segments",
            rows.len()
        );
    }
}
