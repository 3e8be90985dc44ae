//! Compaction: an epoch's segments become one, or as few as can hold them, unseen by readers.

use std::{path::Path, sync::atomic::Ordering};

use crate::{
    DatabaseError, EpochId, Warning,
    error::IoContext,
    segment::{MAX_SEGMENT_BYTES, MAX_SEGMENT_ROWS, Opened, merge_segments},
};

use super::{
    layout::{REMOVALS_FILE, SegmentRange, segment_path},
    writer::Writer,
};

/// A segment of an epoch that goes on is merged again only with no less than a quarter of its rows: a long epoch is written
/// anew less and less often. The same where more follows than one segment holds; one with no room for so many is full.
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
    /// Merges an epoch's segments, up to one that cannot be read, into as few as their bounds allow. Readers and the
    /// epoch's own appends go on beside it.
    pub fn compact(&self, id: &EpochId) -> Result<Compacted, DatabaseError> {
        self.compact_within(id, MAX_SEGMENT_ROWS)
    }

    /// The same; segments that are merged have so many rows together.
    pub(super) fn compact_within(&self, id: &EpochId, rows_max: usize) -> Result<Compacted, DatabaseError> {
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
        let mut ranges: Vec<_> = list.live.iter().copied().filter(|r| r.last <= committed).collect();
        let (unmerged, mut warnings) = (ranges.len(), Vec::new());
        loop {
            let full = open.full.load(Ordering::Acquire);
            let first = ranges.partition_point(|range| range.last <= full);
            let group = self.open_group(id, &ranges[first..], rows_max, &mut warnings);
            let rows: Vec<usize> = group.parts.iter().map(|part| part.rows).collect();
            let count = rows.len();
            if count > 1 && is_worth_it(&rows, ended && !group.full) {
                let merged = SegmentRange { first: full + 1, last: ranges[first + count - 1].last };
                self.replace(id, merged, &ranges[first..first + count], group.parts)?;
                ranges.splice(first..first + count, [merged]);
            } else if group.full {
                open.full.store(ranges[first].last, Ordering::Release);
                continue;
            }
            if !group.full {
                let (before, gone) = (list.live.len(), unmerged - ranges.len());
                return Ok(Compacted { before, after: before - gone, warnings });
            }
        }
    }

    /// Opens segments from the first on, as long as they can be read and one segment can hold them all.
    fn open_group(
        &self,
        id: &EpochId,
        ranges: &[SegmentRange],
        rows_max: usize,
        warnings: &mut Vec<Warning>,
    ) -> Group {
        let folder = self.database().layout.epoch(id).expect("checked by the caller");
        let mut group = Group { parts: Vec::new(), full: false };
        let (mut rows, mut bytes) = (0, 0);
        for &range in ranges {
            let path = segment_path(&folder, range);
            bytes += self.database().disk.bytes(&path).unwrap_or(0);
            group.full = !group.parts.is_empty() && bytes > MAX_SEGMENT_BYTES;
            if group.full {
                break;
            }
            match self.open_one(id, &path, range) {
                Ok(part) if group.parts.is_empty() || rows + part.rows <= rows_max => {
                    rows += part.rows;
                    group.parts.push(part);
                }
                Ok(_) => {
                    group.full = true;
                    break;
                }
                Err(reason) => {
                    warnings.push(Warning { path, reason });
                    break;
                }
            }
        }
        group
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

    /// Publishes the merged segment, then removes its parts; the epoch's lock keeps others from doing the same. The first
    /// range begins at 1 even where the first numbers are missing: readers rely on there being nothing below.
    fn replace(
        &self,
        id: &EpochId,
        range: SegmentRange,
        parts: &[SegmentRange],
        opened: Vec<Opened>,
    ) -> Result<(), DatabaseError> {
        let merged = merge_segments(id, range, &opened);
        drop(opened);
        let bytes =
            merged.map_err(|source| DatabaseError::Encode { id: id.clone(), number: range.last, source })?;
        self.inner.put_encoded(id, range, &bytes)?;
        self.remove_segments(id, parts)
    }

    fn remove_segments(&self, id: &EpochId, ascending: &[SegmentRange]) -> Result<(), DatabaseError> {
        let folder = self.database().layout.epoch(id)?;
        if ascending.first().is_some_and(|range| range.first > 1) {
            let next = self.database().removals(&folder).wrapping_add(1);
            let text = format!("{next}\n");
            let path = folder.join(REMOVALS_FILE);
            self.database().write_atomically(&self.inner.temporary(), &path, text.as_bytes())?;
        }
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

/// Segments that one can hold.
struct Group {
    parts: Vec<Opened>,
    /// There is a next one, and it does not fit.
    full: bool,
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
