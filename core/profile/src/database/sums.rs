//! Sums up epochs: one epoch stands for many, so that a question about many machines or days reads less.
//!
//! Enters: epochs of one kind. Leaves: an epoch with their samples by image, event, offset and application, their evidence, counts and
//! call stacks, and totals that keep epochs apart. Instances, threads, CPUs and control groups are not kept. Memory: 16 bytes for
//! each distinct row of the sum, and one epoch's files at a time.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    DatabaseError, DimensionSet, Epoch, EpochId, EpochRows, Event, ExecutionCount, ExecutionEvidence,
    ImageId, ImageOffset, ImageRecord, MAX_SEGMENT_BYTES, MAX_SEGMENT_ROWS, SampleRun, StackRoot,
    StoredCallTree, TotalRow, Warning, error::IoContext, path_to_text,
};

use super::{Database, writer::EpochWriter};

/// The file of a sum that has its totals ([`encode_totals`](crate::encode_totals)).
pub const TOTALS_FILE: &str = "totals.parquet";

/// Number of rows after which a run is sorted and rows of equal offsets are summed up, at the least.
const ROWS_MIN: usize = 1 << 12;
/// Number of frames of call stacks, or of transfers of evidence, that one file gets.
const FILE_ROWS: usize = 1 << 20;

/// What was summed up.
#[derive(Debug, Default)]
pub struct EpochsSummed {
    /// The epochs that are in the sum.
    pub epochs: Vec<Epoch>,
    /// Samples by epoch, image, event, application and control group, sorted.
    pub totals: Vec<TotalRow>,
    /// What could not be read. The epochs that it belongs to are not in the sum.
    pub warnings: Vec<Warning>,
}

impl Database {
    /// Stores the sum of epochs in another one. An epoch of which anything cannot be read is left out whole.
    pub fn sum_into(
        &self,
        epochs: &[Epoch],
        writer: &mut EpochWriter,
    ) -> Result<EpochsSummed, DatabaseError> {
        let mut sum = Sum::default();
        let mut summed = EpochsSummed::default();
        for epoch in epochs {
            let mut rows = self.read_rows(&epoch.id)?;
            let (stacks, of_stacks) = self.read_call_stacks(&epoch.id)?;
            let warnings = std::mem::take(&mut rows.profile.warnings);
            if !warnings.is_empty() || !of_stacks.is_empty() {
                summed.warnings.extend(warnings.into_iter().chain(of_stacks));
                continue;
            }
            sum.add(epoch, rows, &mut summed.totals)?;
            sum.add_stacks(&stacks, writer)?;
            sum.store_evidence(writer, FILE_ROWS)?;
            summed.epochs.push(epoch.clone());
        }
        sum.store(writer)?;
        summed.totals.sort();
        Ok(summed)
    }

    /// Replaces epochs by others that hold their sums, where all that one sums up are among them. The result is sorted, oldest
    /// first.
    pub fn in_few(&self, epochs: Vec<Epoch>) -> Result<Vec<Epoch>, DatabaseError> {
        if epochs.len() < 2 {
            return Ok(epochs);
        }
        let sums = self.disk.sums().context("list", &self.layout.epochs())?;
        if sums.is_empty() {
            return Ok(epochs);
        }
        let mut wanted: BTreeMap<_, Epoch> =
            epochs.into_iter().map(|epoch| (epoch.id.clone(), epoch)).collect();
        for (sum, parts) in sums {
            if parts.iter().all(|part| wanted.contains_key(part)) {
                let epoch = self.read_epoch(&sum)?;
                parts.iter().for_each(|part| _ = wanted.remove(part));
                wanted.insert(sum, epoch);
            }
        }
        let mut epochs: Vec<Epoch> = wanted.into_values().collect();
        epochs.sort_by(|a, b| (a.start, &a.id).cmp(&(b.start, &b.id)));
        Ok(epochs)
    }

    /// Returns the files of totals that stand for epochs, each with these. Paths are relative to the folder of the database; the files
    /// are there when this returns.
    pub fn totals_files(&self) -> Result<Vec<(PathBuf, Vec<EpochId>)>, DatabaseError> {
        let mut files = Vec::new();
        for (sum, parts) in self.disk.sums().context("list", &self.layout.epochs())? {
            let path = self.layout.epoch(&sum)?.join(TOTALS_FILE);
            match self.disk.read(&path, MAX_SEGMENT_BYTES) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read.context("read", &path)?,
            };
            files.push((path.strip_prefix(self.path()).map(Path::to_owned).unwrap_or(path), parts));
        }
        Ok(files)
    }
}

/// The keys of rows: image, event, application. Their order is that of a segment.
type Key = (ImageId, Event, Arc<str>);

#[derive(Default)]
struct Sum {
    rows: BTreeMap<Key, Rows>,
    images: BTreeMap<ImageId, ImageRecord>,
    evidence: Vec<ExecutionEvidence>,
    counts: Vec<ExecutionCount>,
    stacks: StoredCallTree,
}

/// Rows by offset; those from `sorted` on have not been summed up yet.
#[derive(Default)]
struct Rows {
    rows: Vec<(ImageOffset, u64)>,
    sorted: usize,
}

impl Rows {
    fn add(&mut self, rows: &[(ImageOffset, u64)]) {
        self.rows.extend_from_slice(rows);
        if self.rows.len() > ROWS_MIN.max(2 * self.sorted) {
            self.settle();
        }
    }

    fn settle(&mut self) {
        SampleRun::put_in_order(&mut self.rows);
        self.sorted = self.rows.len();
    }
}

impl Sum {
    fn add(
        &mut self,
        epoch: &Epoch,
        mut read: EpochRows,
        totals: &mut Vec<TotalRow>,
    ) -> Result<(), DatabaseError> {
        let (id, host): (Arc<str>, Arc<str>) = (epoch.id.0.as_str().into(), epoch.host.name.as_str().into());
        let none: Arc<str> = "".into();
        let mut of_epoch: BTreeMap<(Key, Arc<str>), u64> = BTreeMap::new();
        read.each(&mut |run| {
            let key = (run.image.clone(), run.event.clone(), run.app.clone());
            if !run.event.is_derived() {
                let cgroup = run.dimensions.as_ref().and_then(|values| values.cgroup.clone());
                let total =
                    of_epoch.entry((key.clone(), cgroup.unwrap_or_else(|| none.clone()))).or_default();
                *total = run.rows.iter().fold(*total, |sum, (_, count)| sum.saturating_add(*count));
            }
            self.rows.entry(key).or_default().add(run.rows);
        });
        // The checksum was right, so this is no accident, and the rows before it are in the sum already.
        if let Some(Warning { path, reason: why }) = read.profile.warnings.pop() {
            return Err(DatabaseError::Damaged { path, why });
        }
        let paths: BTreeMap<ImageId, Arc<str>> =
            read.profile.images.iter().map(|r| (r.id.clone(), path_to_text(&r.path).into())).collect();
        totals.extend(of_epoch.into_iter().map(|(((image, event, app), cgroup), count)| TotalRow {
            epoch: id.clone(),
            host: host.clone(),
            path: paths.get(&image).unwrap_or(&none).clone(),
            image,
            event,
            app,
            cgroup,
            count,
        }));
        ImageRecord::absorb_all(&mut self.images, read.profile.images);
        self.evidence.append(&mut read.profile.evidence);
        let counts = read.profile.execution_counts.into_iter();
        self.counts.extend(counts.map(|count| ExecutionCount { instance: 0, ..count }));
        Ok(())
    }

    fn add_stacks(&mut self, tree: &StoredCallTree, writer: &mut EpochWriter) -> Result<(), DatabaseError> {
        let roots: Vec<StackRoot> =
            tree.roots().iter().map(|root| StackRoot { instance: 0, ..root.clone() }).collect();
        self.stacks.absorb(tree, &roots, tree.nodes().iter().map(|node| node.frame.clone()));
        if self.stacks.nodes().len() > FILE_ROWS {
            writer.append_stacks(&std::mem::take(&mut self.stacks))?;
        }
        Ok(())
    }

    /// Stores the evidence if it has more transfers than `rows_max`.
    fn store_evidence(&mut self, writer: &mut EpochWriter, rows_max: usize) -> Result<(), DatabaseError> {
        let rows: usize = self.evidence.iter().map(|evidence| 1 + evidence.transfers().len()).sum();
        if rows > rows_max {
            writer.append_evidence(&std::mem::take(&mut self.evidence))?;
        }
        Ok(())
    }

    fn store(mut self, writer: &mut EpochWriter) -> Result<(), DatabaseError> {
        self.store_evidence(writer, 0)?;
        writer.append_execution_counts(&ExecutionCount::sum(std::mem::take(&mut self.counts)))?;
        writer.append_stacks(&self.stacks)?;
        self.rows.values_mut().for_each(Rows::settle);
        let mut segment: Vec<(&Key, &[(ImageOffset, u64)])> = Vec::new();
        let mut room = MAX_SEGMENT_ROWS;
        for (key, rows) in &self.rows {
            let mut rest = &rows.rows[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(room.min(rest.len()));
                segment.push((key, now));
                (rest, room) = (later, room - now.len());
                if room == 0 {
                    self.store_segment(writer, &std::mem::take(&mut segment))?;
                    room = MAX_SEGMENT_ROWS;
                }
            }
        }
        self.store_segment(writer, &segment)
    }

    fn store_segment(
        &self,
        writer: &mut EpochWriter,
        rows: &[(&Key, &[(ImageOffset, u64)])],
    ) -> Result<(), DatabaseError> {
        let mut images: Vec<ImageRecord> = Vec::new();
        for ((image, ..), _) in rows {
            if images.last().is_none_or(|last| last.id != *image) {
                images.extend(self.images.get(image).cloned());
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        writer.append_runs(&images, DimensionSet::NONE, |sink| {
            for ((image, event, app), rows) in rows {
                sink(SampleRun { image, event, app, instance: 0, dimensions: &None, rows });
            }
        })
    }
}
