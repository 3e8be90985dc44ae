//! Files of call stacks: reading them as one tree, and merging those of an ended epoch.
//!
//! Merging follows the rules of segments ("Compaction" in FORMAT.md): the merged file begins at 1, and its parts are removed in
//! ascending order after it has its name. So a reader whose listing misses a part sees a gap, or a file that is gone, and
//! lists again.

use std::{io::ErrorKind, path::PathBuf, time::Duration};

use crate::{
    DatabaseError, EpochId, StoredCallTree, Warning,
    error::IoContext,
    segment::{self, MAX_SEGMENT_BYTES, check_stacks, read_stacks},
};

use super::{
    Database,
    layout::{Beside, SegmentRange},
    writer::Writer,
};

/// Number of times a folder is listed again because files went or were missing.
const ATTEMPTS: usize = 20;
/// Number of attempts after which a gap in the numbers is believed.
const GAP_ATTEMPTS: usize = 3;
/// Number of frames above which files are not merged.
const MERGED_FRAMES_MAX: usize = 1 << 20;

/// Files that were read, each with its tree.
type Read = Vec<(SegmentRange, StoredCallTree)>;

impl Database {
    /// Reads all call stacks of an epoch as one tree, and warnings about files that could not be read.
    pub fn read_call_stacks(&self, id: &EpochId) -> Result<(StoredCallTree, Vec<Warning>), DatabaseError> {
        let mut warnings = Vec::new();
        let read = self.read_stack_files(id, &mut warnings)?;
        Ok((merged(read), warnings))
    }

    /// Adds a warning for each damaged file of call stacks, for readers that do not decode them. Files in a bucket would be fetched for
    /// this alone, so they are left to those who read them.
    pub(super) fn check_stack_files(
        &self,
        id: &EpochId,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), DatabaseError> {
        if self.disk.place().is_some() {
            return Ok(());
        }
        for range in self.stack_ranges(id)?.0 {
            let path = self.stack_path(id, range)?;
            let reason = match self.disk.read(&path, MAX_SEGMENT_BYTES) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue, // It was merged meanwhile.
                bytes => bytes
                    .map_err(|error| error.to_string())
                    .and_then(|bytes| check_stacks(bytes).map_err(|error| error.to_string())),
            };
            warnings.extend(reason.err().map(|reason| Warning { path, reason }));
        }
        Ok(())
    }

    fn read_stack_files(&self, id: &EpochId, warnings: &mut Vec<Warning>) -> Result<Read, DatabaseError> {
        for attempt in 1.. {
            let (live, _) = self.stack_ranges(id)?;
            let mut found = Vec::new();
            // A gap that stays means that someone took a file away; the rest is read.
            let is_last = attempt >= ATTEMPTS;
            if has_gap(&live) && attempt < GAP_ATTEMPTS {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            if let Some(read) = self.read_each(id, &live, is_last, &mut found)? {
                warnings.append(&mut found);
                return Ok(read);
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Reads these files. Returns `None` if one is gone, unless this is the last attempt.
    fn read_each(
        &self,
        id: &EpochId,
        ranges: &[SegmentRange],
        is_last: bool,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<Read>, DatabaseError> {
        let mut read = Vec::new();
        for &range in ranges {
            let path = self.stack_path(id, range)?;
            let bytes = match self.read_or_why(&path)? {
                Err(error) if error.kind() == ErrorKind::NotFound && !is_last => return Ok(None),
                bytes => bytes.map_err(|error| error.to_string()),
            };
            match bytes.and_then(|bytes| read_stacks(&bytes, true).map_err(|error| error.to_string())) {
                Ok(file) if file.epoch == *id && file.range == range => read.push((range, file.contents)),
                Ok(_) => warnings.push(Warning { path, reason: "it belongs elsewhere".to_owned() }),
                Err(reason) => warnings.push(Warning { path, reason }),
            }
        }
        Ok(Some(read))
    }

    /// Returns the ranges of an epoch's files that count, ascending, and of those that a merged file contains.
    fn stack_ranges(&self, id: &EpochId) -> Result<(Vec<SegmentRange>, Vec<SegmentRange>), DatabaseError> {
        let folder = self.layout.epoch(id)?;
        let entries = match self.disk.list(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(self.no_such_epoch(&id.0)),
            listed => listed.context("list", &folder)?,
        };
        let mut ranges: Vec<SegmentRange> =
            entries.iter().filter_map(|entry| Beside::Stacks.range(&entry.name)).collect();
        ranges.sort_by_key(|range| (range.first, std::cmp::Reverse(range.last)));
        let (mut live, mut superseded) = (Vec::<SegmentRange>::new(), Vec::new());
        for range in ranges {
            match live.last() {
                Some(last) if range.last <= last.last => superseded.push(range),
                _ => live.push(range),
            }
        }
        Ok((live, superseded))
    }

    fn stack_path(&self, id: &EpochId, range: SegmentRange) -> Result<PathBuf, DatabaseError> {
        Ok(self.layout.epoch(id)?.join(Beside::Stacks.file_name_of(range)))
    }
}

impl Writer {
    /// Merges the files of call stacks of an ended epoch into one, unless it would be very large. A file that cannot be read
    /// ends the merging, so a newer Dwell may still read it.
    pub(super) fn compact_stacks(&self, id: &EpochId) -> Result<(), DatabaseError> {
        let database = self.database();
        let (live, superseded) = database.stack_ranges(id)?;
        if !superseded.is_empty() {
            // They are left of a merging that was interrupted, perhaps before the merged file's name was durable.
            let folder = database.layout.epoch(id)?;
            database.disk.sync_dir(&folder).context("sync", &folder)?;
            self.remove_stacks(id, &superseded)?;
        }
        let (mut read, mut warnings) = (Vec::new(), Vec::new());
        let mut frames = 0;
        for &range in live.iter().filter(|_| !has_gap(&live)) {
            let Some(mut file) = database.read_each(id, &[range], true, &mut warnings)? else { break };
            frames += file.first().map_or(0, |(_, tree)| tree.nodes().len());
            if !warnings.is_empty() || frames > MERGED_FRAMES_MAX {
                break;
            }
            read.append(&mut file);
        }
        let [(first, _), .., (last, _)] = &read[..] else { return Ok(()) };
        let range = SegmentRange { first: first.first, last: last.last };
        let parts: Vec<SegmentRange> = read.iter().map(|(range, _)| *range).collect();
        let bytes = segment::encode_stacks(id, range, &merged(read))
            .map_err(|source| DatabaseError::Encode { id: id.clone(), number: range.last, source })?;
        database.write_atomically(&self.inner.temporary(), &database.stack_path(id, range)?, &bytes)?;
        self.remove_stacks(id, &parts)
    }

    fn remove_stacks(&self, id: &EpochId, ascending: &[SegmentRange]) -> Result<(), DatabaseError> {
        for &range in ascending {
            let path = self.database().stack_path(id, range)?;
            match self.database().disk.remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).context("remove", &path);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn merged(read: Read) -> StoredCallTree {
    let mut files = read.into_iter().map(|(_, tree)| tree);
    let mut tree = files.next().unwrap_or_default();
    files.for_each(|more| {
        tree.absorb(&more, more.roots(), more.nodes().iter().map(|node| node.frame.clone()));
    });
    tree
}

/// Returns whether a number below the last one is in no file.
fn has_gap(live: &[SegmentRange]) -> bool {
    let mut next = 1;
    live.iter().any(|range| std::mem::replace(&mut next, range.last + 1) != range.first)
}
