//! Reading without locks, while a writer and a compaction may be running.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    Counts, DatabaseError, DimensionSet, Epoch, EpochId, ExecutionCount, ExecutionEvidence, ImageRecord,
    Segment, SegmentError, SourceRecord, Warning,
    error::IoContext,
    segment::{
        BesideFile, MAX_SEGMENT_BYTES, Opened, SampleRun, each_run, read_counts, read_evidence, read_owned,
    },
};

use super::{
    Database,
    disk::Entry,
    epoch_file,
    layout::{Beside, REMOVALS_FILE, SegmentList, SegmentRange, is_epoch_id, segment_path},
};

/// Number of times a folder is listed again because a compaction was running.
const READ_ATTEMPTS: usize = 100;
/// Number of times a gap in the numbers is checked again before it is believed.
const GAP_ATTEMPTS: usize = 3;

/// All epochs of a database.
#[derive(Debug)]
pub struct EpochsRead {
    /// The epochs, oldest first.
    pub epochs: Vec<Epoch>,
    /// Warnings about what was left out.
    pub warnings: Vec<Warning>,
}

/// An epoch and its samples.
#[derive(Debug)]
pub struct EpochProfile {
    /// The epoch's metadata.
    pub epoch: Epoch,
    /// The images of the samples, by id. If segments differ, this is the newest record with the symbols of all.
    pub images: Vec<ImageRecord>,
    /// All samples, summed over dimensions; [`EpochRows`] keeps dimensions.
    pub counts: Counts,
    /// The source files that were stored, by path.
    pub sources: Vec<SourceRecord>,
    /// The evidence of executions, in the order in which it was stored.
    pub evidence: Vec<ExecutionEvidence>,
    /// The execution counts by place, application, instance and source; each key occurs once.
    pub execution_counts: Vec<ExecutionCount>,
    /// Warnings about what was left out.
    pub warnings: Vec<Warning>,
}

/// An epoch whose samples are read row by row, so that they need not all be in memory.
pub struct EpochRows {
    /// Everything except the samples.
    pub profile: EpochProfile,
    segments: Vec<(PathBuf, Opened)>,
}

/// The segments of an epoch as files, for readers of Parquet other than this crate.
#[derive(Debug)]
pub struct SegmentFiles {
    /// Paths of the segments that count, in their order, relative to the folder of the database. Each was read whole
    /// and its checksum was correct. A compaction may remove a file afterwards.
    pub files: Vec<PathBuf>,
    /// The images of the samples, by id. If segments differ, this is the newest record with the symbols of all.
    pub images: Vec<ImageRecord>,
    /// The dimensions that any of the segments has.
    pub dimensions: DimensionSet,
    /// Warnings about what was left out.
    pub warnings: Vec<Warning>,
}

/// Reads one segment of a folder.
type ReadOne<'r, T> = dyn Fn(&Path, SegmentRange) -> Result<T, NotRead> + 'r;

/// The reason why a segment was not read.
pub(super) enum NotRead {
    /// The file does not exist.
    Missing,
    /// The file is damaged, for this reason.
    Damaged(String),
    /// The database is out of reach.
    Database(DatabaseError),
}

impl NotRead {
    fn damaged(error: impl std::fmt::Display) -> Self {
        NotRead::Damaged(error.to_string())
    }
}

impl EpochRows {
    /// Passes all samples to `sink`, run by run; a key may occur more than once. Unreadable files become warnings.
    pub fn each(&mut self, sink: &mut dyn FnMut(SampleRun<'_>)) {
        for (path, segment) in self.segments.drain(..) {
            if let Err(error) = each_run(&segment, sink) {
                let reason = format!("a part of it could not be read: {error}");
                self.profile.warnings.push(Warning { path, reason });
            }
        }
    }
}

impl Database {
    /// Returns all epochs, oldest first. A folder that cannot be read is left out with a warning.
    pub fn epochs(&self) -> Result<EpochsRead, DatabaseError> {
        let mut read = EpochsRead { epochs: Vec::new(), warnings: Vec::new() };
        for entry in self.list_epochs()? {
            let path = self.layout.epochs().join(&entry.name);
            let mut warn = |reason| read.warnings.push(Warning { path: path.clone(), reason });
            if !entry.is_dir || !is_epoch_id(&entry.name) {
                warn("not an epoch".to_owned());
                continue;
            }
            match epoch_file::read(&*self.disk, &path, &EpochId(entry.name)) {
                Ok(epoch) => read.epochs.push(epoch),
                Err(epoch_file::ReadError::Bad(why)) => warn(why),
                // The epoch was removed after it was listed.
                Err(epoch_file::ReadError::Missing) if self.disk.list(&path).is_err() => {}
                Err(epoch_file::ReadError::Missing) => warn("no epoch.json in it".to_owned()),
            }
        }
        read.epochs.sort_by(|a, b| (a.start, &a.id).cmp(&(b.start, &b.id)));
        Ok(read)
    }

    pub(super) fn list_epochs(&self) -> Result<Vec<Entry>, DatabaseError> {
        let folder = self.layout.epochs();
        match self.disk.list(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            listed => {
                let mut entries = listed.context("list", &folder)?;
                entries.retain(|e| !e.name.starts_with('.'));
                Ok(entries)
            }
        }
    }

    /// Reads an epoch and all its samples as of some moment during the call. Each append that had returned before the
    /// call is included once.
    pub fn read(&self, id: &EpochId) -> Result<EpochProfile, DatabaseError> {
        let epoch = self.read_epoch(id)?;
        let mut warnings = Vec::new();
        let segments = self.read_segments(id, &mut warnings)?;
        let sources = self.read_sources(id, &mut warnings)?;
        let evidence = self.read_all_evidence(id, &mut warnings)?;
        let execution_counts = self.read_all_execution_counts(id, &mut warnings)?;
        self.check_stack_files(id, &mut warnings)?;
        let (counts, images) = merge(segments);
        Ok(EpochProfile { epoch, images, counts, sources, evidence, execution_counts, warnings })
    }

    /// Reads an epoch except for its samples, which are read through the result.
    pub fn read_rows(&self, id: &EpochId) -> Result<EpochRows, DatabaseError> {
        let epoch = self.read_epoch(id)?;
        let mut warnings = Vec::new();
        let segments = self.read_listed_segments(id, &mut warnings, &|folder, range| {
            let opened = self.open_one_segment(id, folder, range)?;
            Ok((segment_path(folder, range), opened))
        })?;
        let sources = self.read_sources(id, &mut warnings)?;
        let evidence = self.read_all_evidence(id, &mut warnings)?;
        let execution_counts = self.read_all_execution_counts(id, &mut warnings)?;
        self.check_stack_files(id, &mut warnings)?;
        let mut images = std::collections::BTreeMap::new();
        for (path, segment) in &segments {
            match segment.images() {
                Ok(records) => ImageRecord::absorb_all(&mut images, records),
                Err(e) => warnings.push(Warning { path: path.clone(), reason: e.to_string() }),
            }
        }
        let (images, counts) = (images.into_values().collect(), Counts::default());
        let profile = EpochProfile { epoch, images, counts, sources, evidence, execution_counts, warnings };
        Ok(EpochRows { profile, segments })
    }

    /// Returns the files that hold an epoch's samples: those that [`Database::read_rows`] would read.
    pub fn segment_files(&self, id: &EpochId) -> Result<SegmentFiles, DatabaseError> {
        let mut warnings = Vec::new();
        let segments = self.read_listed_segments(id, &mut warnings, &|folder, range| {
            let opened = self.open_one_segment(id, folder, range)?;
            let dimensions = opened.dimensions().map_err(NotRead::damaged)?;
            let path = segment_path(folder, range);
            Ok((path, dimensions, opened.images()))
        })?;
        let mut images = std::collections::BTreeMap::new();
        let mut found =
            SegmentFiles { files: Vec::new(), images: Vec::new(), dimensions: Default::default(), warnings };
        for (path, dimensions, records) in segments {
            found.dimensions = found.dimensions.union(dimensions);
            match records {
                Ok(records) => ImageRecord::absorb_all(&mut images, records),
                Err(e) => found.warnings.push(Warning { path: path.clone(), reason: e.to_string() }),
            }
            found.files.push(path.strip_prefix(self.path()).map(Path::to_owned).unwrap_or(path));
        }
        found.images = images.into_values().collect();
        Ok(found)
    }

    /// Returns the generation of the database: a number for watchers to poll, which changes when an epoch or a segment
    /// is added or removed, or metadata is replaced. It lists the folder of each epoch once. It is 0 for an empty
    /// database.
    pub fn generation(&self) -> u64 {
        // The clock of a file system may stand still for 4 ms, so the names themselves are compared for the newest
        // epochs.
        const LISTED: usize = 4;
        let mut hasher = rustc_hash::FxHasher::default();
        let entries = self.list_epochs().unwrap_or_default();
        for (i, entry) in entries.iter().enumerate() {
            let path = self.layout.epochs().join(&entry.name);
            let names = if i + LISTED >= entries.len() {
                self.disk.list(&path).unwrap_or_default()
            } else {
                Vec::new()
            };
            let names: Vec<_> = names.iter().map(|e| &e.name).collect();
            std::hash::Hash::hash(&(&entry.name, self.disk.changed(&path).unwrap_or(0), names), &mut hasher);
        }
        std::hash::Hasher::finish(&hasher)
    }

    /// Reads and decodes all live segments.
    pub(super) fn read_segments(
        &self,
        id: &EpochId,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<Segment>, DatabaseError> {
        self.read_listed_segments(id, warnings, &|folder, range| self.read_one(id, folder, range))
    }

    /// Reads all live segments by calling `read`. The section
    /// "Reading beside a compaction" in FORMAT.md explains why this is correct.
    fn read_listed_segments<T>(
        &self,
        id: &EpochId,
        warnings: &mut Vec<Warning>,
        read: &ReadOne<T>,
    ) -> Result<Vec<T>, DatabaseError> {
        let folder = self.layout.epoch(id)?;
        for attempt in 1.. {
            let removals = self.removals(&folder);
            let list = self.list_segments(id, &folder)?;
            // If there are no segments, or numbers are missing, the folder may have been listed while a merged segment
            // appeared and its parts were removed.
            let suspicious = list.live.is_empty() || !list.gaps().is_empty();
            if suspicious && attempt < GAP_ATTEMPTS {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let mut found = Vec::new();
            match read_listed(&folder, &list, read, &mut found)? {
                Some(segments) if self.removals(&folder) == removals => {
                    warnings.append(&mut found);
                    return Ok(segments);
                }
                _ if attempt < READ_ATTEMPTS => {}
                _ => {
                    let why = format!("its segments changed during each of {READ_ATTEMPTS} attempts");
                    return Err(DatabaseError::Damaged { path: folder, why });
                }
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Reads all evidence of executions.
    fn read_all_evidence(
        &self,
        id: &EpochId,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<ExecutionEvidence>, DatabaseError> {
        let files = self.read_beside(id, Beside::Evidence, warnings, read_evidence)?;
        Ok(files.into_iter().flat_map(|(_, evidence)| evidence.into_values()).collect())
    }

    /// Reads all execution counts and adds them up.
    fn read_all_execution_counts(
        &self,
        id: &EpochId,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<ExecutionCount>, DatabaseError> {
        let files = self.read_beside(id, Beside::Counts, warnings, read_counts)?;
        let mut counts = Vec::new();
        for (path, (of_file, unknown_sources)) in files {
            counts.extend(of_file);
            if unknown_sources > 0 {
                let reason =
                    format!("{unknown_sources} of its counts have a source that this dwell does not know");
                warnings.push(Warning { path, reason });
            }
        }
        Ok(ExecutionCount::sum(counts))
    }

    /// Reads all files of a kind, in their order. They are never merged or replaced; only new ones may appear
    /// meanwhile.
    fn read_beside<T>(
        &self,
        id: &EpochId,
        kind: Beside,
        warnings: &mut Vec<Warning>,
        read: impl Fn(&[u8], bool) -> Result<BesideFile<T>, SegmentError>,
    ) -> Result<Vec<(PathBuf, T)>, DatabaseError> {
        let folder = self.layout.epoch(id)?;
        let entries = match self.disk.list(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(self.no_such_epoch(&id.0)),
            listed => listed.context("list", &folder)?,
        };
        let mut numbers: Vec<u64> = entries.iter().filter_map(|e| kind.number(&e.name)).collect();
        numbers.sort_unstable();
        let mut files = Vec::new();
        for number in numbers {
            let path = folder.join(kind.file_name(number));
            let bytes = self.read_or_why(&path)?.map_err(|e| e.to_string());
            match bytes.and_then(|b| read(&b, true).map_err(|e| e.to_string())) {
                Ok(file) if file.epoch == *id && file.range == SegmentRange::one(number) => {
                    files.push((path, file.contents));
                }
                Ok(_) => warnings.push(Warning { path, reason: "it belongs elsewhere".to_owned() }),
                Err(reason) => warnings.push(Warning { path, reason }),
            }
        }
        Ok(files)
    }

    pub(super) fn list_segments(&self, id: &EpochId, folder: &Path) -> Result<SegmentList, DatabaseError> {
        match self.disk.list(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.no_such_epoch(&id.0)),
            listed => Ok(SegmentList::of(&listed.context("list", folder)?)),
        }
    }

    /// Returns how often merged segments beyond the first were removed, as recorded in a file; 0 if there is no such
    /// file.
    pub(super) fn removals(&self, folder: &Path) -> u64 {
        let bytes = self.disk.read(&folder.join(REMOVALS_FILE), 64).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end().parse().unwrap_or(0)
    }

    /// Reads one segment of an epoch and decodes all its rows.
    pub(super) fn read_one(
        &self,
        id: &EpochId,
        folder: &Path,
        range: SegmentRange,
    ) -> Result<Segment, NotRead> {
        let segment = read_owned(self.segment_bytes(folder, range)?).map_err(NotRead::damaged)?;
        check_place(id, range, &segment.epoch, segment.range)?;
        Ok(segment)
    }

    /// Opens one segment without decoding its rows.
    fn open_one_segment(&self, id: &EpochId, folder: &Path, range: SegmentRange) -> Result<Opened, NotRead> {
        let segment = Opened::open(self.segment_bytes(folder, range)?).map_err(NotRead::damaged)?;
        check_place(id, range, &segment.epoch(), segment.range().map_err(NotRead::damaged)?)?;
        Ok(segment)
    }

    fn segment_bytes(&self, folder: &Path, range: SegmentRange) -> Result<Vec<u8>, NotRead> {
        match self.read_or_why(&segment_path(folder, range)) {
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => Err(NotRead::Missing),
            Ok(bytes) => bytes.map_err(NotRead::damaged),
            Err(error) => Err(NotRead::Database(error)),
        }
    }

    /// Reads a file of an epoch. The inner error concerns the file alone, which may be left out.
    pub(super) fn read_or_why(&self, path: &Path) -> Result<std::io::Result<Vec<u8>>, DatabaseError> {
        match self.disk.read(path, MAX_SEGMENT_BYTES) {
            Err(error) if self.disk.is_out_of_reach(&error) => Err(error).context("read", path),
            read => Ok(read),
        }
    }
}

/// Checks that a segment belongs to the epoch and the range that its place says.
fn check_place(
    id: &EpochId,
    range: SegmentRange,
    its_epoch: &EpochId,
    its_range: SegmentRange,
) -> Result<(), NotRead> {
    if its_epoch == id && its_range == range {
        return Ok(());
    }
    Err(NotRead::Damaged(format!("it belongs elsewhere: segment {its_range} of epoch {its_epoch}")))
}

/// Returns `None` if a segment was removed after it was listed.
fn read_listed<T>(
    folder: &Path,
    list: &SegmentList,
    read: &ReadOne<T>,
    warnings: &mut Vec<Warning>,
) -> Result<Option<Vec<T>>, DatabaseError> {
    let mut segments = Vec::new();
    for &range in &list.live {
        match read(folder, range) {
            Ok(segment) => segments.push(segment),
            Err(NotRead::Missing) => return Ok(None),
            Err(NotRead::Damaged(reason)) => {
                warnings.push(Warning { path: segment_path(folder, range), reason });
            }
            Err(NotRead::Database(error)) => return Err(error),
        }
    }
    for (name, why) in &list.foreign {
        warnings.push(Warning { path: folder.join(name), reason: (*why).to_owned() });
    }
    for gap in list.gaps() {
        let reason = "this segment is missing: its samples are lost".to_owned();
        warnings.push(Warning { path: segment_path(folder, gap), reason });
    }
    Ok(Some(segments))
}

/// Adds up segments, oldest first, and sums over threads, CPUs and control groups.
pub(super) fn merge(segments: Vec<Segment>) -> (Counts, Vec<ImageRecord>) {
    let mut counts = Counts::default();
    let mut images = std::collections::BTreeMap::new();
    for segment in segments {
        counts.reserve(segment.rows.len() / 2);
        for (mut key, count) in segment.rows {
            key.dimensions = None;
            let total = counts.entry(key).or_insert(0);
            *total = total.saturating_add(count);
        }
        ImageRecord::absorb_all(&mut images, segment.images);
    }
    (counts, images.into_values().collect())
}
