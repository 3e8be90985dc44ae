//! Rows in and out of a segment one by one, for profiles that are larger than what a reader wants to hold.
//!
//! Enters: rows in the order of a segment; or a segment whose checksum is right. Leaves: a segment's bytes; or its rows. Never
//! here: all rows at once.

use std::sync::Arc;

use parquet::{data_type::ByteArray, file::reader::FileReader};

use crate::{
    DimensionSet, DimensionValues, EpochId, Event, ImageId, ImageOffset, ImageRecord, SampleKey,
    database::SegmentRange,
};

use super::{
    MAX_SEGMENT_ROWS, SegmentError,
    decode::{self, Columns, contain},
    merge::{Opened, Output, Readers, Row},
    metadata::Metadata,
};

/// Rows that are decoded at a time: few enough that the allocator keeps their memory for the next ones, whose pages are there then.
const BATCH_ROWS: usize = 512;

/// A row of a segment; what it borrows stays the same object as long as the text does.
#[derive(Clone, Copy, Debug)]
pub struct SampleRow<'a> {
    /// The image the sampled instruction lies in.
    pub image: &'a ImageId,
    /// What was sampled.
    pub event: &'a Event,
    /// Where in the image.
    pub offset: ImageOffset,
    /// The application.
    pub app: &'a Arc<str>,
    /// Its how-many-th execution.
    pub instance: u32,
    /// Thread, CPU and control group, where they were kept.
    pub dimensions: &'a Option<Arc<DimensionValues>>,
    /// Samples.
    pub count: u64,
}

impl SampleRow<'_> {
    /// What the samples are counted by.
    pub fn key(&self) -> SampleKey {
        SampleKey {
            image: self.image.clone(),
            event: self.event.clone(),
            offset: self.offset,
            app: self.app.clone(),
            instance: self.instance,
            dimensions: self.dimensions.clone(),
        }
    }
}

/// Hands each row to `sink`. After an error some of them were.
pub(crate) fn each_row(part: &Opened, sink: &mut dyn FnMut(SampleRow<'_>)) -> Result<(), SegmentError> {
    contain(|| {
        let columns = Columns::find(part.file.metadata().file_metadata().schema_descr())?;
        let (mut rows, mut texts) = (0, Texts::default());
        for group in 0..part.file.num_row_groups() {
            let group = part.file.get_row_group(group)?;
            let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
            rows += left;
            SegmentError::limit("rows", rows as u64, MAX_SEGMENT_ROWS as u64)?;
            let mut readers = Readers::new(&*group, &columns)?;
            while left > 0 {
                let batch = readers.read(left.min(BATCH_ROWS))?;
                left -= batch.len();
                for row in batch {
                    sink(texts.row(row)?);
                }
            }
        }
        if rows == part.rows { Ok(()) } else { Err(decode::short("rows")) }
    })
}

/// The texts of the last row, which most rows share.
#[derive(Default)]
struct Texts {
    image: Option<(ByteArray, ImageId)>,
    event: Option<(ByteArray, Event)>,
    app: Option<(ByteArray, Arc<str>)>,
    dimensions: Option<Arc<DimensionValues>>,
}

impl Texts {
    fn row(&mut self, row: Row) -> Result<SampleRow<'_>, SegmentError> {
        if let Some(values) = row.dimensions()? {
            decode::shared(&mut self.dimensions, values);
        }
        Ok(SampleRow {
            dimensions: &self.dimensions,
            image: latest(&mut self.image, row.image, ImageId::named)?,
            event: latest(&mut self.event, row.event, Event::named)?,
            offset: ImageOffset(row.offset),
            app: latest(&mut self.app, row.app, |text| text.into())?,
            instance: row.instance,
            count: row.count,
        })
    }
}

/// The value of a text: the last one's where it is the same.
fn latest<T>(
    last: &mut Option<(ByteArray, T)>,
    text: ByteArray,
    make: impl Fn(&str) -> T,
) -> Result<&T, SegmentError> {
    if last.as_ref().is_none_or(|(known, _)| known.data() != text.data()) {
        let value = make(decode::text(&text)?);
        *last = Some((text, value));
    }
    Ok(&last.as_ref().expect("it was just made").1)
}

/// The bytes of a segment with these rows, which come in its order, each key once, all with the dimensions of the first.
pub(crate) fn encode_rows(
    epoch: &EpochId,
    range: SegmentRange,
    images: &[ImageRecord],
    rows: &mut dyn Iterator<Item = (SampleKey, u64)>,
) -> Result<Vec<u8>, SegmentError> {
    let metadata = Metadata::new(epoch, range, images)?;
    let mut rows = rows.peekable();
    let kept = |(key, _): &(SampleKey, u64)| key.dimensions.as_ref().map(|values| values.set());
    let dimensions = rows.peek().and_then(kept).unwrap_or(DimensionSet::NONE);
    let mut output = Output::new(images, dimensions)?;
    let mut last: Option<(SampleKey, Row)> = None;
    for (number, (key, count)) in rows.enumerate() {
        SegmentError::limit("rows", number as u64 + 1, MAX_SEGMENT_ROWS as u64)?;
        let values = key.dimensions.as_deref();
        let thread = values.and_then(|v| v.thread.as_deref()).map(ByteArray::from);
        let cgroup = values.and_then(|v| v.cgroup.as_deref()).map(ByteArray::from);
        let cpu = values.and_then(|v| v.cpu);
        let row = match last.take().filter(|(known, _)| same_texts(known, &key)) {
            Some((_, row)) => {
                let (instance, offset) = (key.instance, key.offset.0);
                Row { instance, offset, count, thread, cgroup, cpu, ..row }
            }
            None => Row {
                image: key.image.as_str().into(),
                event: key.event.name().into(),
                app: (&*key.app).into(),
                instance: key.instance,
                offset: key.offset.0,
                count,
                thread,
                cgroup,
                cpu,
            },
        };
        output.push(&row, count)?;
        last = Some((key, row));
    }
    output.finish(&metadata)
}

fn same_texts(a: &SampleKey, b: &SampleKey) -> bool {
    a.image == b.image && a.event == b.event && a.app == b.app
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counts, segment::read_segment};

    #[test]
    fn rows_that_are_written_one_by_one_are_read_again() {
        let key = |n: u64| SampleKey {
            image: ImageId::named(&format!("i{}", n / 50_000)),
            event: Event::CYCLES,
            offset: ImageOffset(n * 3),
            app: format!("a{}", n / 10_000 % 5).into(),
            instance: 7,
            dimensions: None,
        };
        let rows: Vec<(SampleKey, u64)> = (0..150_000).map(|n| (key(n), n + 1)).collect();
        let range = SegmentRange { first: 1, last: 1 };
        let bytes = encode_rows(&EpochId("e".into()), range, &[], &mut rows.iter().cloned()).unwrap();
        let mut read = Counts::default();
        let part = Opened::open(bytes.clone()).unwrap();
        each_row(&part, &mut |row| assert_eq!(read.insert(row.key(), row.count), None)).unwrap();
        assert_eq!(read, rows.iter().cloned().collect());
        assert_eq!(read_segment(&bytes).unwrap().rows, rows);
    }
}
