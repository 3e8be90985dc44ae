//! Compaction: merges an epoch's segments into one, or into as few as can hold them, without disturbing readers.

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

/// Limit of the ratio of a first segment's rows to the rows of the segments after it, for merging in an epoch that is
/// still recorded.
///
/// A segment is merged again only if the segments after it have at least a quarter of its rows, so a long epoch is
/// rewritten less and less often. The same rule holds if more rows follow than one segment can hold. A segment that has
/// no room for a quarter more is full.
const FIRST_OVER_REST_MAX: usize = 4;

/// The result of a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Number of segments that the epoch had.
    pub before: usize,
    /// Number of segments that it has now.
    pub after: usize,
    /// A warning about the segment at which compaction stopped, if there was one. An unreadable segment is never
    /// merged, because its data would be lost.
    pub warnings: Vec<Warning>,
}

impl Writer {
    /// Merges an epoch's segments, up to the first unreadable one, into as few as their size limits allow. Reading and
    /// appending to the epoch can go on meanwhile.
    pub fn compact(&self, id: &EpochId) -> Result<Compacted, DatabaseError> {
        self.compact_within(id, MAX_SEGMENT_ROWS)
    }

    /// Merges like [`Writer::compact`], into segments of at most `rows_max` rows.
    pub(super) fn compact_within(&self, id: &EpochId, rows_max: usize) -> Result<Compacted, DatabaseError> {
        let open = self.inner.open_epoch(id)?;
        let _compacting = open.compacting.lock().unwrap_or_else(|e| e.into_inner());
        let folder = self.database().layout.epoch(id)?;
        let list = self.database().list_segments(id, &folder)?;
        if !list.superseded.is_empty() {
            // An interrupted compaction left these segments. It may not have made the merged segment's name durable, so
            // this must precede their removal.
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
                if ended {
                    self.compact_stacks(id)?;
                }
                let (before, gone) = (list.live.len(), unmerged - ranges.len());
                return Ok(Compacted { before, after: before - gone, warnings });
            }
        }
    }

    /// Opens successive segments from the first on, as long as they can be read and one segment can hold them all.
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

    /// Publishes the merged segment, then removes its parts. The epoch's lock keeps other processes from doing the
    /// same. The first range begins at 1 even if the first numbers are missing, because readers rely on there being
    /// nothing below it.
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

/// Successive segments that one segment can hold.
struct Group {
    parts: Vec<Opened>,
    /// Whether there is a next segment that does not fit.
    full: bool,
}

/// Returns whether merging segments with these numbers of rows is worth rewriting all of them.
fn is_worth_it(rows: &[usize], ended: bool) -> bool {
    let Some((first, rest)) = rows.split_first() else { return false };
    ended || *first <= FIRST_OVER_REST_MAX * rest.iter().sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_epoch_is_rewritten_less_and_less_often() {
        assert!(is_worth_it(&[10, 10], false) && is_worth_it(&[100, 15, 10], false));
        assert!(!is_worth_it(&[101, 15, 10], false) && is_worth_it(&[101, 15, 10], true));
        assert!(!is_worth_it(&[], true) && !is_worth_it(&[7], false));
        // Counts the rows that are written in all during a thousand appends of 100 rows.
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
