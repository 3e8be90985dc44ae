//! Writes a segment row by row.
//!
//! Enters: rows in the order of a segment, with keys by number. Leaves: the segment's bytes. Memory holds these bytes
//! and one row group; never all rows.

use parquet::{
    data_type::Int64Type,
    file::writer::{SerializedFileWriter, SerializedRowGroupWriter},
    schema::types::ColumnDescPtr,
};
use rustc_hash::FxHashMap;

use crate::{Dimension, DimensionSet, ImageRecord, path_to_text};

use super::{
    SegmentError,
    columns::{self, NO_CPU},
    key::Key,
    metadata::Metadata,
    names::Names,
    runs::RunColumn,
};

/// Number of rows in a row group that is written; each takes 16 bytes of memory.
pub(super) const ROW_GROUP_ROWS: usize = 1 << 16;
/// A row group ends when its dictionaries exceed this size, in bytes. They exceed it by one key at most, since readers
/// refuse large pages.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// A segment that is being written.
pub(super) struct Output {
    file: SerializedFileWriter<Vec<u8>>,
    columns: Vec<ColumnDescPtr>,
    /// Paths of images, by image id.
    paths: FxHashMap<String, String>,
    dimensions: DimensionSet,
    /// The texts of the keys.
    pub(super) names: Names,
    /// The key of the last rows; `pending` is the number of its rows that are not yet in the columns of the key.
    key: Option<Key>,
    pending: usize,
    group: Group,
}

/// A row group that is being written.
#[derive(Default)]
struct Group {
    images: RunColumn,
    events: RunColumn,
    offsets: Vec<i64>,
    counts: Vec<i64>,
    apps: RunColumn,
    instances: RunColumn,
    paths: RunColumn,
    threads: RunColumn,
    cpus: RunColumn,
    cgroups: RunColumn,
    /// Size of the texts in the dictionaries, in bytes.
    text_bytes: usize,
}

impl Output {
    pub(super) fn new(images: &[ImageRecord], dimensions: DimensionSet) -> Result<Self, SegmentError> {
        let (schema, properties) = (columns::schema(dimensions), columns::PROPERTIES.clone());
        let file = SerializedFileWriter::new(Vec::new(), schema, properties)?;
        let path = |r: &ImageRecord| (r.id.as_str().to_owned(), path_to_text(&r.path).into_owned());
        Ok(Output {
            columns: file.schema_descr().columns().to_vec(),
            file,
            paths: images.iter().map(path).collect(),
            dimensions,
            names: Names::default(),
            key: None,
            pending: 0,
            group: Group::default(),
        })
    }

    /// Sets the key of the rows that follow.
    pub(super) fn begin(&mut self, key: Key) -> Result<(), SegmentError> {
        if self.key == Some(key) {
            return Ok(());
        }
        self.settle()?;
        self.key = Some(key);
        if self.group.text_bytes > TEXT_BYTES_MAX { self.write_group() } else { Ok(()) }
    }

    /// Adds a row with the current key.
    pub(super) fn push(&mut self, offset: u64, count: u64) -> Result<(), SegmentError> {
        debug_assert!(self.key.is_some());
        self.pending += 1;
        self.group.offsets.push(offset as i64);
        self.group.counts.push(count as i64);
        if self.group.offsets.len() < ROW_GROUP_ROWS {
            return Ok(());
        }
        self.settle()?;
        self.write_group()
    }

    /// Adds the pending rows to the columns of the key.
    fn settle(&mut self) -> Result<(), SegmentError> {
        let Some(key) = self.key.filter(|_| self.pending > 0) else { return Ok(()) };
        let rows = std::mem::take(&mut self.pending);
        let nameless = self.names.intern("")?;
        let path = match self.paths.get(&**self.names.text(key.image)) {
            Some(path) => self.names.intern(path)?,
            None => nameless,
        };
        let group = &mut self.group;
        group.instances.push(key.instance, rows);
        group.cpus.push(key.cpu.unwrap_or(NO_CPU), rows);
        for (column, text) in [
            (&mut group.images, key.image),
            (&mut group.events, key.event),
            (&mut group.apps, key.app),
            (&mut group.paths, path),
            (&mut group.threads, key.thread.unwrap_or(nameless)),
            (&mut group.cgroups, key.cgroup.unwrap_or(nameless)),
        ] {
            let fresh = column.push(text, rows);
            group.text_bytes += if fresh { self.names.text(text).len() } else { 0 };
        }
        Ok(())
    }

    /// Writes the row group; all its rows must be settled.
    fn write_group(&mut self) -> Result<(), SegmentError> {
        debug_assert_eq!(self.pending, 0);
        let group = std::mem::take(&mut self.group);
        let mut writer = self.file.next_row_group()?;
        let runs = |writer: &mut SerializedRowGroupWriter<'_, Vec<u8>>, column: &RunColumn, at: usize| {
            column.write(writer, &self.columns[at], &self.names)
        };
        runs(&mut writer, &group.images, 0)?;
        runs(&mut writer, &group.events, 1)?;
        numbers(&mut writer, &group.offsets)?;
        numbers(&mut writer, &group.counts)?;
        runs(&mut writer, &group.apps, 4)?;
        runs(&mut writer, &group.instances, 5)?;
        runs(&mut writer, &group.paths, 6)?;
        for (dimension, at) in self.dimensions.iter().zip(7..) {
            let column = match dimension {
                Dimension::Thread => &group.threads,
                Dimension::Cpu => &group.cpus,
                Dimension::Cgroup => &group.cgroups,
            };
            runs(&mut writer, column, at)?;
        }
        writer.close()?;
        Ok(())
    }

    /// Returns the bytes of the segment.
    pub(super) fn finish(mut self, metadata: &Metadata) -> Result<Vec<u8>, SegmentError> {
        self.settle()?;
        if !self.group.offsets.is_empty() {
            self.write_group()?;
        }
        metadata.close(self.file)
    }
}

/// Writes a column of offsets or counts. The least and the greatest value are passed to the writer, so that it need not
/// search for them.
fn numbers(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: &[i64]) -> Result<(), SegmentError> {
    let least = values.iter().min_by_key(|value| **value as u64);
    let greatest = values.iter().max_by_key(|value| **value as u64);
    let mut column = group.next_column()?.expect("as many columns as the schema has");
    let writer = column.typed::<Int64Type>();
    writer.write_batch_with_statistics(values, None, None, least, greatest, None)?;
    column.close()?;
    Ok(())
}
