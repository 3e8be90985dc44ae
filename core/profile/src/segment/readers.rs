//! Reads the rows of a segment run by run.
//!
//! Enters: a row group. Leaves: runs of rows that differ only in offset and count, with their keys by number. Never
//! here: all rows.

use std::ops::Range;

use parquet::{
    column::reader::{ColumnReaderImpl, get_typed_column_reader},
    data_type::Int64Type,
    file::reader::{FileReader, RowGroupReader},
};

use crate::ImageOffset;

use super::{
    MAX_SEGMENT_ROWS, SegmentError,
    decode::{self, Columns},
    key::Key,
    names::Names,
    opened::Opened,
    runs::RunReader,
};

/// Number of offsets and counts that are decoded at a time.
const BATCH_ROWS: usize = 1 << 10;

/// Iterates over the rows of a segment.
pub(super) struct Readers<'p> {
    part: &'p Opened,
    columns: Columns,
    next_group: usize,
    group: Option<Group>,
    /// Number of rows in the row groups up to the current one.
    rows: usize,
    /// Offsets and counts that are decoded; those before `at` have been returned already.
    batch: Vec<(ImageOffset, u64)>,
    at: usize,
}

/// The columns of a row group.
struct Group {
    image: RunReader,
    event: RunReader,
    app: RunReader,
    instance: RunReader,
    thread: Option<RunReader>,
    cgroup: Option<RunReader>,
    cpu: Option<RunReader>,
    offset: ColumnReaderImpl<Int64Type>,
    count: ColumnReaderImpl<Int64Type>,
    /// Number of rows that are not decoded yet.
    left: usize,
}

impl<'p> Readers<'p> {
    pub(super) fn new(part: &'p Opened) -> Result<Self, SegmentError> {
        let columns = Columns::find(part.file.metadata().file_metadata().schema_descr())?;
        Ok(Readers { part, columns, next_group: 0, group: None, rows: 0, batch: Vec::new(), at: 0 })
    }

    /// Returns the key of the next rows, and their range for [`Readers::rows`]; `None` at the end.
    pub(super) fn next(&mut self, names: &mut Names) -> Result<Option<(Key, Range<usize>)>, SegmentError> {
        if self.at == self.batch.len() && !self.fill()? {
            return Ok(None);
        }
        let group = self.group.as_mut().expect("its rows were decoded");
        let (key, rows) = group.key(self.batch.len() - self.at, names)?;
        let start = self.at;
        self.at += rows;
        Ok(Some((key, start..self.at)))
    }

    /// Returns the rows of the last run.
    pub(super) fn rows(&self, run: Range<usize>) -> &[(ImageOffset, u64)] {
        &self.batch[run]
    }

    /// Decodes the next offsets and counts; returns `false` at the end.
    fn fill(&mut self) -> Result<bool, SegmentError> {
        while self.group.as_ref().is_none_or(|group| group.left == 0) {
            if self.next_group == self.part.file.num_row_groups() {
                return if self.rows == self.part.rows { Ok(false) } else { Err(decode::short("rows")) };
            }
            let group = Group::new(&*self.part.file.get_row_group(self.next_group)?, &self.columns)?;
            self.rows = self.rows.saturating_add(group.left);
            SegmentError::limit("rows", self.rows as u64, MAX_SEGMENT_ROWS as u64)?;
            self.group = Some(group);
            self.next_group += 1;
        }
        self.at = 0;
        self.group.as_mut().expect("one with rows is open").decode(&mut self.batch)?;
        Ok(true)
    }
}

impl Group {
    fn new(group: &dyn RowGroupReader, columns: &Columns) -> Result<Self, SegmentError> {
        let number = |column| -> Result<ColumnReaderImpl<Int64Type>, SegmentError> {
            Ok(get_typed_column_reader::<Int64Type>(group.get_column_reader(column)?))
        };
        let runs = |column| RunReader::new(group, column);
        Ok(Group {
            image: runs(columns.image)?,
            event: runs(columns.event)?,
            app: runs(columns.app)?,
            instance: runs(columns.instance)?,
            thread: columns.thread.map(runs).transpose()?,
            cgroup: columns.cgroup.map(runs).transpose()?,
            cpu: columns.cpu.map(runs).transpose()?,
            offset: number(columns.offset)?,
            count: number(columns.count)?,
            left: usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX),
        })
    }

    fn decode(&mut self, batch: &mut Vec<(ImageOffset, u64)>) -> Result<(), SegmentError> {
        let rows = self.left.min(BATCH_ROWS);
        let (offsets, counts) = (values(&mut self.offset, rows)?, values(&mut self.count, rows)?);
        batch.clear();
        batch.extend(
            offsets.into_iter().map(|o| ImageOffset(o as u64)).zip(counts.into_iter().map(|c| c as u64)),
        );
        self.left -= rows;
        Ok(())
    }

    /// Returns the key of the next rows and their number, which is at most `rows`, and skips these rows in the columns
    /// of the key.
    fn key(&mut self, mut rows: usize, names: &mut Names) -> Result<(Key, usize), SegmentError> {
        let mut value = |column: &mut RunReader| -> Result<u32, SegmentError> {
            let (value, length) = column.peek(names)?.ok_or_else(|| decode::short("values"))?;
            rows = rows.min(length);
            Ok(value)
        };
        let key = Key {
            image: value(&mut self.image)?,
            event: value(&mut self.event)?,
            app: value(&mut self.app)?,
            instance: value(&mut self.instance)?,
            thread: self.thread.as_mut().map(&mut value).transpose()?,
            cgroup: self.cgroup.as_mut().map(&mut value).transpose()?,
            cpu: self.cpu.as_mut().map(&mut value).transpose()?,
        };
        let fixed = [&mut self.image, &mut self.event, &mut self.app, &mut self.instance];
        let kept = [&mut self.thread, &mut self.cgroup, &mut self.cpu].into_iter().flatten();
        fixed.into_iter().chain(kept).for_each(|column| column.pass(rows));
        Ok((key, rows))
    }
}

fn values(reader: &mut ColumnReaderImpl<Int64Type>, rows: usize) -> Result<Vec<i64>, SegmentError> {
    let mut values = Vec::with_capacity(rows);
    while values.len() < rows {
        let (records, ..) = reader.read_records(rows - values.len(), None, None, &mut values)?;
        if records == 0 {
            return Err(decode::short("values"));
        }
    }
    Ok(values)
}
