//! Compaction: an epoch's first segments become one, unseen by readers.

use std::sync::atomic::Ordering;

use crate::{DatabaseError, EpochId, Segment, Warning, error::IoContext, segment::MAX_SEGMENT_ROWS};

use super::{
    layout::{SegmentRange, segment_path},
    reader::merge,
    writer::{OpenEpoch, Writer},
};

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
        let candidates: Vec<_> = list.live.iter().copied().filter(|r| r.last <= committed).collect();
        let mut warnings = Vec::new();
        let segments = self.read_prefix(id, &candidates, &mut warnings);
        let merged = segments.len();
        if merged > 1 {
            self.replace(id, &candidates[..merged], segments, &open)?;
        }
        let before = list.live.len();
        Ok(Compacted { before, after: before - merged.saturating_sub(1), warnings })
    }

    /// Decodes segments from the first on, as long as they can be read and one segment can hold them all.
    fn read_prefix(
        &self,
        id: &EpochId,
        ranges: &[SegmentRange],
        warnings: &mut Vec<Warning>,
    ) -> Vec<Segment> {
        let folder = self.database().layout.epoch(id).expect("checked by the caller");
        let mut segments: Vec<Segment> = Vec::new();
        let mut rows = 0;
        for &range in ranges {
            match self.database().read_one(id, &folder, range) {
                Ok(segment) if rows + segment.rows.len() <= MAX_SEGMENT_ROWS => {
                    rows += segment.rows.len();
                    segments.push(segment);
                }
                Ok(_) => break,
                Err(reason) => {
                    let reason = reason.unwrap_or_else(|| "it went away".to_owned());
                    warnings.push(Warning { path: segment_path(&folder, range), reason });
                    break;
                }
            }
        }
        segments
    }

    /// Publishes the merged segment, then removes its parts. The epoch's lock keeps others from doing the same.
    fn replace(
        &self,
        id: &EpochId,
        parts: &[SegmentRange],
        segments: Vec<Segment>,
        _lock: &OpenEpoch,
    ) -> Result<(), DatabaseError> {
        let last = parts.last().expect("two parts at least").last;
        // From 1 even where the first numbers are missing: readers rely on merged segments being prefixes.
        let range = SegmentRange { first: 1, last };
        let (counts, images) = merge(segments);
        self.inner.put_segment(id, range, &counts, &images)?;
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
