//! Segments → one segment, row by row: what a collector that must stay small compacts with.
//!
//! Enters: the bytes of segments, oldest first. Leaves: the bytes of one that holds their sum. In memory are the files
//! themselves, a batch of rows of each, and a row group on its way out; never all rows. Segments are sorted, so their
//! merge is; a foreign one that is not makes rows that come twice, which readers add up.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BinaryHeap, binary_heap::PeekMut},
    sync::Arc,
};

use bytes::Bytes;
use parquet::{
    column::reader::{ColumnReaderImpl, get_typed_column_reader},
    data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    file::{
        reader::{FileReader, RowGroupReader, SerializedFileReader},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
};

use crate::{
    Dimension, DimensionSet, DimensionValues, EpochId, ImageId, ImageRecord, database::SegmentRange,
};

use super::{
    MAX_TEXT_BYTES, SegmentError,
    columns::{self, NO_CPU},
    decode::{self, Columns, contain},
    metadata::Metadata,
};

/// Rows that are decoded of a segment at a time.
const BATCH_ROWS: usize = 512;
/// Rows of a row group that is written: 20 bytes each in memory.
const ROW_GROUP_ROWS: usize = 1 << 16;
/// Values that are handed to a column at a time.
const WRITE_ROWS: usize = 1 << 10;

/// A segment whose checksum is right, not decoded yet.
pub(crate) struct Opened {
    pub(super) file: SerializedFileReader<Bytes>,
    metadata: Metadata,
    /// How many rows it has.
    pub(crate) rows: usize,
}

impl Opened {
    /// Checks everything but the rows.
    pub(crate) fn open(bytes: Vec<u8>) -> Result<Self, SegmentError> {
        contain(|| {
            let (file, metadata, rows) = decode::open(bytes.into(), true)?;
            Ok(Opened { file, metadata, rows: rows as usize })
        })
    }

    /// Which epoch it belongs to.
    pub(crate) fn epoch(&self) -> EpochId {
        self.metadata.epoch()
    }

    /// Which appends it holds.
    pub(crate) fn range(&self) -> Result<SegmentRange, SegmentError> {
        self.metadata.range()
    }

    /// Which dimensions its samples have.
    pub(crate) fn dimensions(&self) -> Result<DimensionSet, SegmentError> {
        let columns = Columns::find(self.file.metadata().file_metadata().schema_descr())?;
        Ok(columns.dimensions())
    }

    /// What was known of its images.
    pub(crate) fn images(&self) -> Result<Vec<ImageRecord>, SegmentError> {
        self.metadata.images()
    }
}

/// The bytes of the segment that holds what `parts` do, oldest first: of records for one image the newest counts, with
/// the symbols of all.
pub(crate) fn merge_segments(
    epoch: &EpochId,
    range: SegmentRange,
    parts: &[Opened],
) -> Result<Vec<u8>, SegmentError> {
    contain(|| {
        let mut images: BTreeMap<ImageId, ImageRecord> = BTreeMap::new();
        for part in parts {
            ImageRecord::absorb_all(&mut images, part.metadata.images()?);
        }
        let records: Vec<ImageRecord> = images.into_values().collect();
        let metadata = Metadata::new(epoch, range, &records)?;
        let kept = parts.iter().map(Opened::dimensions).collect::<Result<Vec<_>, _>>()?;
        let dimensions = kept.into_iter().fold(DimensionSet::NONE, DimensionSet::union);
        let mut writer = Output::new(&records, dimensions)?;
        drop(records);
        merge_rows(parts, &mut writer)?;
        writer.finish(&metadata)
    })
}

fn merge_rows(parts: &[Opened], writer: &mut Output) -> Result<(), SegmentError> {
    let cursors = parts.iter().map(Cursor::new).collect::<Result<Vec<_>, _>>()?;
    // A heap whose top has the least row: of many parts few are compared for each row.
    let mut heap: BinaryHeap<Cursor<'_>> = cursors.into_iter().filter(|c| c.row().is_some()).collect();
    let mut pending: Option<(Row, u64)> = None;
    while let Some(mut least) = heap.peek_mut() {
        let row = least.row().expect("only cursors with a row are in the heap");
        match &mut pending {
            Some((last, count)) if last.key_order(row) == Ordering::Equal => {
                *count = count.saturating_add(row.count);
            }
            _ => {
                let (row, count) = (row.clone(), row.count);
                if let Some((done, count)) = pending.replace((row, count)) {
                    writer.push(&done, count)?;
                }
            }
        }
        least.advance()?;
        if least.row().is_none() {
            PeekMut::pop(least);
        }
    }
    pending.map_or(Ok(()), |(row, count)| writer.push(&row, count))
}

/// A row as it is in the file.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) image: ByteArray,
    pub(super) event: ByteArray,
    pub(super) app: ByteArray,
    pub(super) instance: u32,
    /// Where the segment has such columns.
    pub(super) thread: Option<ByteArray>,
    pub(super) cgroup: Option<ByteArray>,
    pub(super) cpu: Option<u32>,
    pub(super) offset: u64,
    pub(super) count: u64,
}

impl Row {
    /// The order of a segment's rows.
    fn key_order(&self, other: &Row) -> Ordering {
        // Within a run, rows share their texts' bytes.
        let texts = |r: &Row| [&r.image, &r.event, &r.app].map(|t| (t.data().as_ptr(), t.len()));
        if texts(self) == texts(other) {
            return self.order_within_app(other);
        }
        (self.image.data(), self.event.data(), self.app.data())
            .cmp(&(other.image.data(), other.event.data(), other.app.data()))
            .then_with(|| self.order_within_app(other))
    }

    fn order_within_app(&self, other: &Row) -> Ordering {
        let dimensions = || {
            let thread = text_of(&self.thread).cmp(&text_of(&other.thread));
            let cgroup = || text_of(&self.cgroup).cmp(&text_of(&other.cgroup));
            thread.then_with(cgroup).then_with(|| self.cpu.cmp(&other.cpu))
        };
        let instance = self.instance.cmp(&other.instance);
        instance.then_with(dimensions).then_with(|| self.offset.cmp(&other.offset))
    }

    /// Of what is kept of threads, groups and CPUs.
    pub(super) fn dimensions(&self) -> Result<Option<DimensionValues>, SegmentError> {
        if self.thread.is_none() && self.cgroup.is_none() && self.cpu.is_none() {
            return Ok(None);
        }
        let text = |bytes: &Option<ByteArray>| {
            bytes.as_ref().map(|b| decode::text(b).map(Arc::<str>::from)).transpose()
        };
        let cpu = self.cpu.filter(|cpu| *cpu != NO_CPU);
        Ok(Some(DimensionValues { thread: text(&self.thread)?, cgroup: text(&self.cgroup)?, cpu }))
    }
}

fn text_of(text: &Option<ByteArray>) -> Option<&[u8]> {
    text.as_ref().map(ByteArray::data)
}

/// Goes through a segment's rows.
struct Cursor<'p> {
    part: &'p Opened,
    columns: Columns,
    next_group: usize,
    readers: Option<Readers>,
    /// Rows of the group that are not decoded yet.
    left: usize,
    /// Decoded rows, the next one last.
    batch: Vec<Row>,
}

/// The columns of a row group.
pub(super) struct Readers {
    image: ColumnReaderImpl<ByteArrayType>,
    event: ColumnReaderImpl<ByteArrayType>,
    app: ColumnReaderImpl<ByteArrayType>,
    instance: ColumnReaderImpl<Int32Type>,
    offset: ColumnReaderImpl<Int64Type>,
    count: ColumnReaderImpl<Int64Type>,
    thread: Option<ColumnReaderImpl<ByteArrayType>>,
    cgroup: Option<ColumnReaderImpl<ByteArrayType>>,
    cpu: Option<ColumnReaderImpl<Int32Type>>,
}

/// The greatest has the least row; every one that is compared has one.
impl Ord for Cursor<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.row().zip(other.row()).map(|(a, b)| b.key_order(a));
        order.unwrap_or_else(|| self.row().is_some().cmp(&other.row().is_some()))
    }
}

impl PartialOrd for Cursor<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cursor<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Cursor<'_> {}

impl<'p> Cursor<'p> {
    fn new(part: &'p Opened) -> Result<Self, SegmentError> {
        let columns = Columns::find(part.file.metadata().file_metadata().schema_descr())?;
        let (next_group, readers, left, batch) = (0, None, 0, Vec::new());
        let mut cursor = Cursor { part, columns, next_group, readers, left, batch };
        cursor.fill()?;
        Ok(cursor)
    }

    fn row(&self) -> Option<&Row> {
        self.batch.last()
    }

    fn advance(&mut self) -> Result<(), SegmentError> {
        self.batch.pop();
        if self.batch.is_empty() { self.fill() } else { Ok(()) }
    }

    /// Decodes the next batch; none is left at the end.
    fn fill(&mut self) -> Result<(), SegmentError> {
        while self.left == 0 {
            if self.next_group == self.part.file.num_row_groups() {
                return Ok(());
            }
            let group = self.part.file.get_row_group(self.next_group)?;
            self.left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
            self.readers = Some(Readers::new(&*group, &self.columns)?);
            self.next_group += 1;
        }
        let readers = self.readers.as_mut().expect("a group with rows is open");
        let rows = self.left.min(BATCH_ROWS);
        self.batch = readers.read(rows)?;
        self.batch.reverse();
        self.left -= rows;
        Ok(())
    }
}

impl Readers {
    pub(super) fn new(group: &dyn RowGroupReader, columns: &Columns) -> Result<Self, SegmentError> {
        fn reader<T: DataType>(
            group: &dyn RowGroupReader,
            column: usize,
        ) -> Result<ColumnReaderImpl<T>, SegmentError> {
            Ok(get_typed_column_reader::<T>(group.get_column_reader(column)?))
        }
        Ok(Readers {
            image: reader(group, columns.image)?,
            event: reader(group, columns.event)?,
            app: reader(group, columns.app)?,
            instance: reader(group, columns.instance)?,
            offset: reader(group, columns.offset)?,
            count: reader(group, columns.count)?,
            thread: columns.thread.map(|c| reader(group, c)).transpose()?,
            cgroup: columns.cgroup.map(|c| reader(group, c)).transpose()?,
            cpu: columns.cpu.map(|c| reader(group, c)).transpose()?,
        })
    }

    pub(super) fn read(&mut self, rows: usize) -> Result<Vec<Row>, SegmentError> {
        let images = values(&mut self.image, rows)?.into_iter();
        let events = values(&mut self.event, rows)?;
        let apps = values(&mut self.app, rows)?;
        let instances = values(&mut self.instance, rows)?;
        let offsets = values(&mut self.offset, rows)?;
        let counts = values(&mut self.count, rows)?;
        let keys = images.zip(events).zip(apps).zip(instances).zip(offsets).zip(counts);
        let row = |(((((image, event), app), instance), offset), count)| Row {
            image,
            event,
            app,
            instance: instance as u32,
            offset: offset as u64,
            count: count as u64,
            thread: None,
            cgroup: None,
            cpu: None,
        };
        let mut batch: Vec<Row> = keys.map(row).collect();
        self.read_dimensions(&mut batch)?;
        Ok(batch)
    }

    fn read_dimensions(&mut self, batch: &mut [Row]) -> Result<(), SegmentError> {
        if let Some(reader) = &mut self.thread {
            let threads = values(reader, batch.len())?;
            batch.iter_mut().zip(threads).for_each(|(row, thread)| row.thread = Some(thread));
        }
        if let Some(reader) = &mut self.cgroup {
            let cgroups = values(reader, batch.len())?;
            batch.iter_mut().zip(cgroups).for_each(|(row, cgroup)| row.cgroup = Some(cgroup));
        }
        if let Some(reader) = &mut self.cpu {
            let cpus = values(reader, batch.len())?;
            batch.iter_mut().zip(cpus).for_each(|(row, cpu)| row.cpu = Some(cpu as u32));
        }
        Ok(())
    }
}

fn values<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Result<Vec<T::T>, SegmentError> {
    let mut values = Vec::with_capacity(rows);
    while values.len() < rows {
        let (records, ..) = reader.read_records(rows - values.len(), None, None, &mut values)?;
        if records == 0 {
            return Err(decode::short("values"));
        }
    }
    Ok(values)
}

/// Texts of a row group, which come in long runs.
#[derive(Default)]
struct Runs(Vec<(ByteArray, usize)>);

impl Runs {
    fn push(&mut self, text: &ByteArray) -> Result<(), SegmentError> {
        if let Some((last, length)) = self.0.last_mut().filter(|(last, _)| last.data() == text.data()) {
            debug_assert!(last.len() <= MAX_TEXT_BYTES);
            *length += 1;
            return Ok(());
        }
        SegmentError::limit("text in bytes", text.len() as u64, MAX_TEXT_BYTES as u64)?;
        std::str::from_utf8(text.data())
            .map_err(|e| SegmentError::Parquet(format!("text that is none: {e}")))?;
        // A copy, as the original keeps a whole page of its file alive.
        self.0.push((ByteArray::from(text.data().to_vec()), 1));
        Ok(())
    }

    fn write(&self, group: &mut SerializedRowGroupWriter<'_, Vec<u8>>) -> Result<(), SegmentError> {
        let mut column = group.next_column()?.expect("as many columns as the schema has");
        let writer = column.typed::<ByteArrayType>();
        for (text, length) in &self.0 {
            let values = vec![text.clone(); (*length).min(WRITE_ROWS)];
            let mut left = *length;
            while left > 0 {
                let batch = &values[..left.min(WRITE_ROWS)];
                // Least and greatest are known: the writer need not compare each value.
                let (least, greatest) = (Some(text), Some(text));
                writer.write_batch_with_statistics(batch, None, None, least, greatest, None)?;
                left -= batch.len();
            }
        }
        column.close()?;
        Ok(())
    }
}

/// A segment on its way out.
pub(super) struct Output {
    file: SerializedFileWriter<Vec<u8>>,
    paths: BTreeMap<Vec<u8>, ByteArray>,
    dimensions: DimensionSet,
    group: Group,
}

#[derive(Default)]
struct Group {
    images: Runs,
    events: Runs,
    offsets: Vec<i64>,
    counts: Vec<i64>,
    apps: Runs,
    instances: Vec<i32>,
    paths: Runs,
    threads: Runs,
    cgroups: Runs,
    cpus: Vec<i32>,
}

impl Output {
    pub(super) fn new(images: &[ImageRecord], dimensions: DimensionSet) -> Result<Self, SegmentError> {
        let (schema, properties) = (columns::schema(dimensions), columns::PROPERTIES.clone());
        let path = |r: &ImageRecord| {
            (r.id.as_str().as_bytes().to_vec(), ByteArray::from(&*r.path.to_string_lossy()))
        };
        Ok(Output {
            file: SerializedFileWriter::new(Vec::new(), schema, properties)?,
            paths: images.iter().map(path).collect(),
            dimensions,
            group: Group::default(),
        })
    }

    pub(super) fn push(&mut self, row: &Row, count: u64) -> Result<(), SegmentError> {
        let group = &mut self.group;
        group.images.push(&row.image)?;
        group.events.push(&row.event)?;
        group.offsets.push(row.offset as i64);
        group.counts.push(count as i64);
        group.apps.push(&row.app)?;
        group.instances.push(row.instance as i32);
        let nameless = ByteArray::from("");
        group.paths.push(self.paths.get(row.image.data()).unwrap_or(&nameless))?;
        for dimension in self.dimensions.iter() {
            let text = |text: &Option<ByteArray>| text.clone().unwrap_or_else(|| nameless.clone());
            match dimension {
                Dimension::Thread => group.threads.push(&text(&row.thread))?,
                Dimension::Cgroup => group.cgroups.push(&text(&row.cgroup))?,
                Dimension::Cpu => group.cpus.push(row.cpu.unwrap_or(NO_CPU) as i32),
            }
        }
        if group.offsets.len() == ROW_GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), SegmentError> {
        let Group { images, events, offsets, counts, apps, instances, paths, threads, cgroups, cpus } =
            std::mem::take(&mut self.group);
        let mut group = self.file.next_row_group()?;
        images.write(&mut group)?;
        events.write(&mut group)?;
        super::encode::column::<Int64Type>(&mut group, offsets)?;
        super::encode::column::<Int64Type>(&mut group, counts)?;
        apps.write(&mut group)?;
        super::encode::column::<Int32Type>(&mut group, instances)?;
        paths.write(&mut group)?;
        if self.dimensions.has(Dimension::Thread) {
            threads.write(&mut group)?;
        }
        if self.dimensions.has(Dimension::Cpu) {
            super::encode::column::<Int32Type>(&mut group, cpus)?;
        }
        if self.dimensions.has(Dimension::Cgroup) {
            cgroups.write(&mut group)?;
        }
        group.close()?;
        Ok(())
    }

    pub(super) fn finish(mut self, metadata: &Metadata) -> Result<Vec<u8>, SegmentError> {
        if !self.group.offsets.is_empty() {
            self.write_group()?;
        }
        let mut file = self.file;
        file.flush().map_err(|e| SegmentError::Parquet(e.to_string()))?;
        let checksum = metadata.checksum(file.inner());
        metadata.key_values(checksum).into_iter().for_each(|kv| file.append_key_value_metadata(kv));
        Ok(file.into_inner()?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Counts, Event, ImageKind, ImageOffset, SampleKey,
        segment::{encode, read_segment},
    };

    fn record(id: &str, path: &str) -> ImageRecord {
        ImageRecord {
            id: ImageId::named(id),
            kind: ImageKind::File,
            path: path.into(),
            deleted: false,
            size_bytes: None,
            mtime_ns: None,
            symbols: Vec::new(),
        }
    }

    fn encoded(number: u64, counts: &Counts, images: &[ImageRecord]) -> Opened {
        let range = SegmentRange { first: number, last: number };
        Opened::open(encode(&EpochId("e".into()), range, counts, images).unwrap()).unwrap()
    }

    fn merged(parts: &[Opened]) -> crate::Segment {
        let range = SegmentRange { first: 1, last: parts.len() as u64 };
        read_segment(&merge_segments(&EpochId("e".into()), range, parts).unwrap()).unwrap()
    }

    fn key(image: u8, event: u8, app: u8, instance: u32, offset: u64) -> SampleKey {
        SampleKey {
            image: ImageId::named(&format!("i{image}")),
            event: Event::named(&format!("e{event}")),
            offset: ImageOffset(offset),
            app: format!("a{app}").into(),
            instance,
            dimensions: None,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The merge is the sum, sorted, each key once.
        #[test]
        fn merges_add_up(parts in prop::collection::vec(
            prop::collection::vec(((0_u8..3, 0_u8..2, 0_u8..3, 0_u32..3, 0_u64..6), 1_u64..9), 0..2000), 2..5)
        ) {
            let (mut sum, mut opened) = (Counts::default(), Vec::new());
            for (number, part) in parts.iter().enumerate() {
                let mut counts = Counts::default();
                for ((image, event, app, instance, offset), count) in part {
                    let key = key(*image, *event, *app, *instance, *offset);
                    *counts.entry(key.clone()).or_default() += count;
                    *sum.entry(key).or_default() += count;
                }
                opened.push(encoded(number as u64 + 1, &counts, &[record("i1", "/old"), record("i2", "/two")]));
            }
            let merged = merged(&opened);
            prop_assert_eq!(merged.rows.len(), sum.len());
            let of = |k: &SampleKey| (k.image.clone(), k.event.clone(), k.app.clone(), k.instance, k.offset);
            prop_assert!(merged.rows.windows(2).all(|w| of(&w[0].0) < of(&w[1].0)));
            prop_assert_eq!(merged.rows.into_iter().collect::<Counts>(), sum);
        }
    }

    #[test]
    fn several_row_groups_and_the_newest_records() {
        let rows = ROW_GROUP_ROWS as u64 + 10;
        let many = |step: u64| -> Counts { (0..rows).map(|n| (key(1, 1, 1, 0, n * step), 1)).collect() };
        let parts =
            [encoded(1, &many(2), &[record("i1", "/old")]), encoded(2, &many(1), &[record("i1", "/new")])];
        let merged = merged(&parts);
        assert_eq!(merged.rows.iter().map(|(_, n)| n).sum::<u64>(), 2 * rows);
        assert_eq!(merged.rows.len() as u64, rows + rows / 2);
        assert_eq!(merged.images, [record("i1", "/new")]);
    }

    /// What is kept of threads, CPUs and groups survives; a segment without meets one with.
    #[test]
    fn dimensions_are_merged_like_the_rest_of_a_key() {
        let with = |offset, thread: Option<&str>, cpu, cgroup: Option<&str>| {
            let values = crate::DimensionValues {
                thread: thread.map(Into::into),
                cgroup: cgroup.map(Into::into),
                cpu,
            };
            SampleKey { dimensions: Some(Arc::new(values)), ..key(1, 1, 1, 1, offset) }
        };
        let first = Counts::from_iter([
            (with(8, Some("io"), Some(0), Some("/a")), 1),
            (with(4, Some("io"), Some(1), Some("/a")), 2),
            (with(4, Some("main"), Some(0), Some("/b")), 4),
        ]);
        let second = Counts::from_iter([
            (with(4, Some("io"), Some(1), Some("/a")), 8),
            (with(4, Some("io"), None, Some("")), 16),
        ]);
        let plain = Counts::from_iter([(key(1, 1, 1, 1, 4), 32)]);
        let parts = [encoded(1, &first, &[]), encoded(2, &second, &[]), encoded(3, &plain, &[])];
        assert!(!parts[0].dimensions().unwrap().is_empty() && parts[2].dimensions().unwrap().is_empty());
        let mut expected = first;
        for (key, count) in second {
            *expected.entry(key).or_default() += count;
        }
        expected.insert(with(4, Some(""), None, Some("")), 32);
        let rows = merged(&parts).rows;
        assert_eq!(rows.len(), 5);
        assert_eq!(rows.into_iter().collect::<Counts>(), expected);
        let mut streamed = Counts::default();
        crate::segment::each_row(&parts[0], &mut |row| {
            streamed.insert(row.key(), row.count);
        })
        .unwrap();
        assert_eq!(streamed.len(), 3);
        assert_eq!(streamed[&with(8, Some("io"), Some(0), Some("/a"))], 1);
    }
}
