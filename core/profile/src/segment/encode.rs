//! Encodes counts as a Parquet file.

use std::collections::HashMap;

use parquet::{
    data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    file::writer::{SerializedFileWriter, SerializedRowGroupWriter},
    schema::types::TypePtr,
};

use super::{
    MAX_SEGMENT_ROWS, MAX_TEXT_BYTES, SegmentError,
    columns::{self, NO_CPU},
    metadata::Metadata,
};
use crate::{
    Counts, Dimension, DimensionSet, EpochId, ImageId, ImageRecord, SampleKey, database::SegmentRange,
    path_to_text,
};

/// Number of rows in a row group, which a reader decodes at a time.
const ROW_GROUP_ROWS: usize = 1 << 20;

/// Returns the bytes of a file. Rows are sorted by image, event, application, instance, dimensions and offset; counts
/// of zero are left out.
pub(crate) fn encode(
    epoch: &EpochId,
    range: SegmentRange,
    counts: &Counts,
    images: &[ImageRecord],
) -> Result<Vec<u8>, SegmentError> {
    let rows = sorted(counts);
    SegmentError::limit("rows", rows.len() as u64, MAX_SEGMENT_ROWS as u64)?;
    let metadata = Metadata::new(epoch, range, images)?;
    let dimensions = dimensions(rows.iter().map(|(key, _)| *key));
    let schema = columns::schema(dimensions);
    let mut file = SerializedFileWriter::new(Vec::new(), schema, columns::PROPERTIES.clone())?;
    let paths = images.iter().map(|r| (&r.id, ByteArray::from(&*path_to_text(&r.path)))).collect();
    for group in rows.chunks(ROW_GROUP_ROWS) {
        write_group(file.next_row_group()?, group, dimensions, &paths)?;
    }
    metadata.close(file)
}

/// Returns the bytes of a file with one row group, whose columns `write` writes.
pub(super) fn encode_group(
    schema: &TypePtr,
    metadata: &Metadata,
    write: impl FnOnce(&mut SerializedRowGroupWriter<'_, Vec<u8>>) -> Result<(), SegmentError>,
) -> Result<Vec<u8>, SegmentError> {
    let mut file = SerializedFileWriter::new(Vec::new(), schema.clone(), columns::PROPERTIES.clone())?;
    let mut group = file.next_row_group()?;
    write(&mut group)?;
    group.close()?;
    metadata.close(file)
}

fn sorted(counts: &Counts) -> Vec<(&SampleKey, u64)> {
    let mut rows: Vec<_> =
        counts.iter().filter(|(_, count)| **count > 0).map(|(key, count)| (key, *count)).collect();
    rows.sort_unstable_by(|(a, _), (b, _)| {
        let first = (&a.image, &a.event, &a.app, a.instance).cmp(&(&b.image, &b.event, &b.app, b.instance));
        let then = || match (&a.dimensions, &b.dimensions) {
            (None, None) => std::cmp::Ordering::Equal,
            (a, b) => a.as_ref().map(|d| d.key()).cmp(&b.as_ref().map(|d| d.key())),
        };
        first.then_with(then).then_with(|| a.offset.cmp(&b.offset))
    });
    rows
}

/// Returns the dimensions that occur in any key.
fn dimensions<'k>(keys: impl Iterator<Item = &'k SampleKey>) -> DimensionSet {
    let sets = keys.filter_map(|key| key.dimensions.as_ref()).map(|values| values.set());
    sets.fold(DimensionSet::NONE, DimensionSet::union)
}

fn write_group(
    mut group: SerializedRowGroupWriter<'_, Vec<u8>>,
    rows: &[(&SampleKey, u64)],
    dimensions: DimensionSet,
    paths: &HashMap<&ImageId, ByteArray>,
) -> Result<(), SegmentError> {
    texts(&mut group, rows, |(key, _)| key.image.as_str())?;
    texts(&mut group, rows, |(key, _)| key.event.name())?;
    column::<Int64Type>(&mut group, rows.iter().map(|(key, _)| key.offset.0 as i64).collect())?;
    column::<Int64Type>(&mut group, rows.iter().map(|(_, count)| *count as i64).collect())?;
    texts(&mut group, rows, |(key, _)| &key.app)?;
    column::<Int32Type>(&mut group, rows.iter().map(|(key, _)| key.instance as i32).collect())?;
    let nameless = ByteArray::from("");
    let path = |key: &SampleKey| paths.get(&key.image).unwrap_or(&nameless).clone();
    column::<ByteArrayType>(&mut group, rows.iter().map(|(key, _)| path(key)).collect())?;
    for dimension in dimensions.iter() {
        write_dimension(&mut group, rows, dimension)?;
    }
    group.close()?;
    Ok(())
}

fn write_dimension(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    rows: &[(&SampleKey, u64)],
    dimension: Dimension,
) -> Result<(), SegmentError> {
    match dimension {
        Dimension::Thread => texts(group, rows, |(key, _)| thread(key)),
        Dimension::Cgroup => texts(group, rows, |(key, _)| cgroup(key)),
        Dimension::Cpu => {
            let cpu = |key: &SampleKey| {
                key.dimensions.as_ref().and_then(|values| values.cpu).map_or(NO_CPU, |cpu| cpu.0)
            };
            column::<Int32Type>(group, rows.iter().map(|(key, _)| cpu(key) as i32).collect())
        }
    }
}

fn thread(key: &SampleKey) -> &str {
    key.dimensions.as_ref().and_then(|values| values.thread.as_deref()).unwrap_or_default()
}

fn cgroup(key: &SampleKey) -> &str {
    key.dimensions.as_ref().and_then(|values| values.cgroup.as_deref()).unwrap_or_default()
}

/// Writes a text column; equal neighbours share their bytes.
pub(super) fn texts<'a, R>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    rows: &'a [R],
    text: impl Fn(&'a R) -> &'a str,
) -> Result<(), SegmentError> {
    let mut values: Vec<ByteArray> = Vec::with_capacity(rows.len());
    for row in rows {
        let text = text(row);
        SegmentError::limit("text in bytes", text.len() as u64, MAX_TEXT_BYTES as u64)?;
        let same = values.last().filter(|last| last.data() == text.as_bytes()).cloned();
        values.push(same.unwrap_or_else(|| text.into()));
    }
    column::<ByteArrayType>(group, values)
}

pub(super) fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: Vec<T::T>,
) -> Result<(), SegmentError> {
    let mut column = group.next_column()?.expect("as many columns as the schema has");
    column.typed::<T>().write_batch(&values, None, None)?;
    column.close()?;
    Ok(())
}
