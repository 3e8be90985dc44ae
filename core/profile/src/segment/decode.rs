//! Decodes a Parquet file to counts. The bytes are untrusted.

use std::{panic::AssertUnwindSafe, sync::Arc};

use bytes::Bytes;
use parquet::{
    column::reader::get_typed_column_reader,
    data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    file::reader::{FileReader, RowGroupReader, SerializedFileReader},
    schema::types::{SchemaDescriptor, Type},
};
use rustc_hash::FxHashMap;

use super::{
    MAX_SEGMENT_BYTES, MAX_SEGMENT_ROWS, MAX_TEXT_BYTES, SEGMENT_VERSION, Segment, SegmentError,
    columns::{self, APP, CGROUP, COUNT, CPU, EVENT, IMAGE, INSTANCE, NO_CPU, OFFSET, SCHEMA, THREAD},
    metadata::Metadata,
    page_walk,
};
use crate::{
    CpuId, Dimension, DimensionSet, DimensionValues, EpochId, Event, ImageId, ImageOffset, SampleKey,
    database::SegmentRange,
};

/// Size of the largest footer that is parsed, in bytes. The lists in a footer take more memory than space in the file.
const MAX_FOOTER_BYTES: u64 = 192 << 20;
/// Limit of the row groups in a file.
const MAX_ROW_GROUPS: usize = 4096;
/// Number of values that are decoded at a time.
const BATCH_ROWS: usize = 64 << 10;

/// Reads one segment completely. Hostile bytes return an error that says what is wrong, and never panic.
pub fn read_segment(bytes: &[u8]) -> Result<Segment, SegmentError> {
    read_owned(bytes.to_vec())
}

/// Reads one segment without verifying its checksum, which would keep a fuzzer from reaching the code after it. For
/// tests alone.
#[doc(hidden)]
pub fn read_segment_unverified(bytes: &[u8]) -> Result<Segment, SegmentError> {
    contain(|| read(bytes.to_vec().into(), false))
}

/// Reads one segment like [`read_segment`], without copying the bytes.
pub(crate) fn read_owned(bytes: Vec<u8>) -> Result<Segment, SegmentError> {
    contain(|| read(bytes.into(), true))
}

/// Converts a panic of the Parquet crate to an error, because that crate asserts on some malformed files. We share no
/// state with it across calls, so a panic only means that the file is malformed.
pub(super) fn contain<T>(read: impl FnOnce() -> Result<T, SegmentError>) -> Result<T, SegmentError> {
    std::panic::catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Err(SegmentError::Decoder(text.to_owned()))
    })
}

fn read(bytes: Bytes, verify: bool) -> Result<Segment, SegmentError> {
    let (file, metadata, rows) = open(bytes, verify, SEGMENT_VERSION)?;
    let columns = Columns::find(file.metadata().file_metadata().schema_descr())?;
    let mut segment = Segment {
        epoch: metadata.epoch(),
        range: metadata.range()?,
        images: metadata.images()?,
        rows: Vec::new(),
    };
    for i in 0..file.num_row_groups() {
        columns.read_group(&*file.get_row_group(i)?, &mut segment.rows)?;
    }
    if segment.rows.len() as u64 == rows { Ok(segment) } else { Err(short("rows")) }
}

/// A row group of a file that lies beside the segments.
pub(super) struct Group<'f> {
    group: Box<dyn RowGroupReader + 'f>,
    schema: &'static Type,
    /// The version of the file.
    pub(super) version: u32,
    /// Number of rows.
    pub(super) rows: usize,
}

impl Group<'_> {
    pub(super) fn texts<T: Clone>(
        &self,
        column: &'static str,
        make: impl Fn(&str) -> T,
    ) -> Result<Vec<T>, SegmentError> {
        texts(&*self.group, self.find(column)?, self.rows, make)
    }

    pub(super) fn values<T: DataType>(&self, column: &'static str) -> Result<Vec<T::T>, SegmentError> {
        values::<T>(&*self.group, self.find(column)?, self.rows)
    }

    fn find(&self, column: &'static str) -> Result<usize, SegmentError> {
        find_column(self.group.metadata().schema_descr(), self.schema, column)
    }
}

/// A file that lies beside the segments.
#[derive(Debug)]
pub(crate) struct BesideFile<T> {
    /// The epoch that the file belongs to.
    pub(crate) epoch: EpochId,
    /// Number of the file, stored like the range of a segment.
    pub(crate) range: SegmentRange,
    /// The version of its format.
    pub(super) version: u32,
    /// What it stores.
    pub(crate) contents: T,
}

impl<T> BesideFile<T> {
    /// Converts the contents.
    pub(super) fn map<U>(self, convert: impl FnOnce(T) -> U) -> BesideFile<U> {
        let BesideFile { epoch, range, version, contents } = self;
        BesideFile { epoch, range, version, contents: convert(contents) }
    }
}

/// Reads a file that lies beside the segments by passing its row groups and `contents` to `read`. `schema` returns the
/// columns that a version of the file must have. Hostile bytes return an error and never panic.
pub(super) fn read_beside<T>(
    bytes: &[u8],
    verify: bool,
    newest_version: u32,
    schema: impl Fn(u32) -> &'static Type,
    mut contents: T,
    read: impl Fn(&Group<'_>, &mut T) -> Result<(), SegmentError>,
) -> Result<BesideFile<T>, SegmentError> {
    contain(|| {
        let (file, metadata, expected) = open(bytes.to_vec().into(), verify, newest_version)?;
        let (version, schema) = (metadata.version, schema(metadata.version));
        for column in schema.get_fields() {
            find_column(file.metadata().file_metadata().schema_descr(), schema, column.name())?;
        }
        let mut read_rows = 0;
        for i in 0..file.num_row_groups() {
            let group = file.get_row_group(i)?;
            let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
            SegmentError::limit("rows", rows as u64, MAX_SEGMENT_ROWS as u64)?;
            read(&Group { group, schema, version, rows }, &mut contents)?;
            read_rows += rows as u64;
        }
        if read_rows != expected {
            return Err(short("rows"));
        }
        Ok(BesideFile { epoch: metadata.epoch(), range: metadata.range()?, version, contents })
    })
}

/// Opens a file after checking its sizes, its version, its pages and, if requested, its checksum; returns its metadata
/// and its reader.
pub(super) fn open(
    bytes: Bytes,
    verify: bool,
    newest_version: u32,
) -> Result<(SerializedFileReader<Bytes>, Metadata, u64), SegmentError> {
    let file = open_unchecked(&bytes)?;
    let footer = file.metadata().file_metadata();
    let metadata = Metadata::of_file(footer, newest_version)?;
    if verify {
        metadata.verify(footer, &bytes)?;
    }
    let rows = check_contents(&bytes, &file)?;
    Ok((file, metadata, rows))
}

/// Opens a file that another program may have written, after checking its sizes and its pages.
pub(super) fn open_foreign(bytes: Bytes) -> Result<SerializedFileReader<Bytes>, SegmentError> {
    let file = open_unchecked(&bytes)?;
    check_contents(&bytes, &file)?;
    Ok(file)
}

fn open_unchecked(bytes: &Bytes) -> Result<SerializedFileReader<Bytes>, SegmentError> {
    SegmentError::limit("bytes", bytes.len() as u64, MAX_SEGMENT_BYTES)?;
    check_footer(bytes)?;
    Ok(SerializedFileReader::new(bytes.clone())?)
}

/// Checks what the footer says of rows and pages; returns the number of rows.
fn check_contents(bytes: &[u8], file: &SerializedFileReader<Bytes>) -> Result<u64, SegmentError> {
    let rows = u64::try_from(file.metadata().file_metadata().num_rows()).unwrap_or(u64::MAX);
    SegmentError::limit("rows", rows, MAX_SEGMENT_ROWS as u64)?;
    SegmentError::limit("row groups", file.num_row_groups() as u64, MAX_ROW_GROUPS as u64)?;
    page_walk::check_pages(bytes, file.metadata())?;
    Ok(rows)
}

pub(super) fn short(what: &str) -> SegmentError {
    SegmentError::Parquet(format!("it holds another number of {what} than its footer says"))
}

/// Checks the end of a Parquet file: the footer, its length in 4 bytes, and `PAR1`.
fn check_footer(bytes: &[u8]) -> Result<(), SegmentError> {
    let Some((rest, &[a, b, c, d, b'P', b'A', b'R', b'1'])) = bytes.split_last_chunk::<8>() else {
        return Err(SegmentError::Parquet("its end is missing: truncated, or another kind of file".into()));
    };
    let length = u32::from_le_bytes([a, b, c, d]);
    SegmentError::limit("footer in bytes", length.into(), MAX_FOOTER_BYTES)?;
    let footer = rest.len().checked_sub(length as usize).and_then(|at| rest.get(at..));
    page_walk::check_footer(footer.ok_or_else(|| SegmentError::Parquet("its footer is cut off".into()))?)
}

/// Positions of our columns in the file.
pub(super) struct Columns {
    pub(super) image: usize,
    pub(super) event: usize,
    pub(super) offset: usize,
    pub(super) count: usize,
    pub(super) app: usize,
    pub(super) instance: usize,
    pub(super) thread: Option<usize>,
    pub(super) cgroup: Option<usize>,
    pub(super) cpu: Option<usize>,
}

impl Columns {
    pub(super) fn find(schema: &SchemaDescriptor) -> Result<Self, SegmentError> {
        let find = |name: &'static str| find_column(schema, &SCHEMA, name);
        let all = columns::schema(Dimension::ALL.into_iter().collect());
        let there = |name: &str| schema.columns().iter().any(|c| c.path().parts() == [name]);
        let optional = |name: &'static str| there(name).then(|| find_column(schema, &all, name)).transpose();
        Ok(Columns {
            image: find(IMAGE)?,
            event: find(EVENT)?,
            offset: find(OFFSET)?,
            count: find(COUNT)?,
            app: find(APP)?,
            instance: find(INSTANCE)?,
            thread: optional(THREAD)?,
            cgroup: optional(CGROUP)?,
            cpu: optional(CPU)?,
        })
    }

    /// Returns the dimensions that have columns.
    pub(super) fn dimensions(&self) -> DimensionSet {
        let columns =
            [(Dimension::Thread, self.thread), (Dimension::Cpu, self.cpu), (Dimension::Cgroup, self.cgroup)];
        columns.into_iter().filter(|(_, column)| column.is_some()).map(|(dimension, _)| dimension).collect()
    }

    fn read_group(
        &self,
        group: &dyn RowGroupReader,
        rows: &mut Vec<(SampleKey, u64)>,
    ) -> Result<(), SegmentError> {
        let count = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
        SegmentError::limit("rows", rows.len().saturating_add(count) as u64, MAX_SEGMENT_ROWS as u64)?;
        let images = texts(group, self.image, count, ImageId::named)?;
        let events = texts(group, self.event, count, Event::named)?;
        let offsets = values::<Int64Type>(group, self.offset, count)?;
        let counts = values::<Int64Type>(group, self.count, count)?;
        let apps = texts(group, self.app, count, |text| Arc::<str>::from(text))?;
        let instances = values::<Int32Type>(group, self.instance, count)?;
        let first = rows.len();
        let keys = images.into_iter().zip(events).zip(offsets).zip(apps).zip(instances);
        rows.extend(keys.zip(counts).map(|(((((image, event), offset), app), instance), count)| {
            let (offset, dimensions) = (ImageOffset(offset as u64), None);
            (SampleKey { image, event, offset, app, instance: instance as u32, dimensions }, count as u64)
        }));
        self.read_dimensions(group, &mut rows[first..])
    }

    /// Adds the values of threads, control groups and CPUs to the keys of a row group.
    fn read_dimensions(
        &self,
        group: &dyn RowGroupReader,
        rows: &mut [(SampleKey, u64)],
    ) -> Result<(), SegmentError> {
        if (self.thread, self.cgroup, self.cpu) == (None, None, None) {
            return Ok(());
        }
        let text = |column: Option<usize>| {
            column.map(|c| texts(group, c, rows.len(), |text| Arc::<str>::from(text))).transpose()
        };
        let (threads, cgroups) = (text(self.thread)?, text(self.cgroup)?);
        let cpus = self.cpu.map(|c| values::<Int32Type>(group, c, rows.len())).transpose()?;
        let mut last: Option<Arc<DimensionValues>> = None;
        for (at, (key, _)) in rows.iter_mut().enumerate() {
            let values = DimensionValues {
                thread: threads.as_ref().map(|t| t[at].clone()),
                cgroup: cgroups.as_ref().map(|c| c[at].clone()),
                cpu: cpus.as_ref().map(|c| c[at] as u32).filter(|cpu| *cpu != NO_CPU).map(CpuId),
            };
            key.dimensions = Some(shared(&mut last, values));
        }
        Ok(())
    }
}

/// Returns the values of the last row if they are equal, as they are in most rows; otherwise the new ones.
pub(super) fn shared(
    last: &mut Option<Arc<DimensionValues>>,
    values: DimensionValues,
) -> Arc<DimensionValues> {
    match last {
        Some(known) if **known == values => known.clone(),
        _ => last.insert(Arc::new(values)).clone(),
    }
}

pub(super) fn find_column(
    schema: &SchemaDescriptor,
    ours: &Type,
    column: &'static str,
) -> Result<usize, SegmentError> {
    let wanted = ours.get_fields().iter().find(|f| f.name() == column).expect("a column of ours");
    let found = schema.columns().iter().position(|c| c.path().parts() == [column]);
    let index = found.ok_or_else(|| SegmentError::Column { column, why: "is missing".into() })?;
    let actual = schema.column(index);
    let plain = actual.max_def_level() == 0 && actual.max_rep_level() == 0;
    if plain && actual.physical_type() == wanted.get_physical_type() {
        Ok(index)
    } else {
        let why = format!("is not a required {}", wanted.get_physical_type());
        Err(SegmentError::Column { column, why })
    }
}

/// Reads a text column; equal texts become one value that is cheap to clone.
pub(super) fn texts<T: Clone>(
    group: &dyn RowGroupReader,
    column: usize,
    count: usize,
    make: impl Fn(&str) -> T,
) -> Result<Vec<T>, SegmentError> {
    let mut made: FxHashMap<Box<[u8]>, T> = FxHashMap::default();
    let mut last: Option<(ByteArray, T)> = None;
    let texts = values::<ByteArrayType>(group, column, count)?.into_iter().map(|bytes| {
        if let Some((_, value)) = last.as_ref().filter(|(text, _)| text.data() == bytes.data()) {
            return Ok(value.clone());
        }
        let value = match made.get(bytes.data()) {
            Some(value) => value.clone(),
            None => made.entry(bytes.data().into()).or_insert(make(text(&bytes)?)).clone(),
        };
        last = Some((bytes, value.clone()));
        Ok(value)
    });
    texts.collect()
}

pub(super) fn text(bytes: &ByteArray) -> Result<&str, SegmentError> {
    SegmentError::limit("text in bytes", bytes.len() as u64, MAX_TEXT_BYTES as u64)?;
    std::str::from_utf8(bytes.data()).map_err(|e| SegmentError::Parquet(format!("text that is none: {e}")))
}

pub(super) fn values<T: DataType>(
    group: &dyn RowGroupReader,
    column: usize,
    count: usize,
) -> Result<Vec<T::T>, SegmentError> {
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(column)?);
    let mut values = Vec::new();
    while values.len() < count {
        let batch = (count - values.len()).min(BATCH_ROWS);
        let (records, ..) = reader.read_records(batch, None, None, &mut values)?;
        if records == 0 {
            return Err(short("values"));
        }
    }
    Ok(values)
}
