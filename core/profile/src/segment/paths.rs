//! Path bursts ⇄ the bytes of a Parquet file beside the segments, with the same metadata, checksum and checks as a
//! segment.
//!
//! Each row is a transfer. A row with a count of 0 begins each burst and holds its first and last place.

use std::collections::BTreeMap;

use parquet::{
    data_type::{Int32Type, Int64Type},
    file::{
        reader::{FileReader, RowGroupReader},
        writer::SerializedFileWriter,
    },
    schema::types::SchemaDescriptor,
};

use crate::{EpochId, ImageId, ImageOffset, PathBurst, PathPlace, PathTransfer, database::SegmentRange};

use super::{
    MAX_SEGMENT_ROWS, SegmentError,
    columns::{BURST, COUNT, IMAGE, OFFSET, PATHS_SCHEMA, PROPERTIES, TO_IMAGE, TO_OFFSET},
    decode::{contain, find_column, open, short, texts as read_texts, values},
    encode::{column, texts},
    metadata::Metadata,
};

/// A file of path bursts.
#[derive(Debug)]
pub struct PathSegment {
    /// The epoch that the file belongs to.
    pub epoch: EpochId,
    /// Number of the file, stored like the range of a segment.
    pub range: SegmentRange,
    /// The bursts, by number.
    pub bursts: Vec<PathBurst>,
}

/// Encodes a file.
pub(crate) fn encode_paths(
    epoch: &EpochId,
    range: SegmentRange,
    bursts: &[PathBurst],
) -> Result<Vec<u8>, SegmentError> {
    let rows: Vec<Row<'_>> = bursts.iter().flat_map(rows_of).collect();
    SegmentError::limit("rows", rows.len() as u64, MAX_SEGMENT_ROWS as u64)?;
    let metadata = Metadata::new(epoch, range, &[])?;
    let mut file = SerializedFileWriter::new(Vec::new(), PATHS_SCHEMA.clone(), PROPERTIES.clone())?;
    let mut group = file.next_row_group()?;
    column::<Int32Type>(&mut group, rows.iter().map(|r| r.burst as i32).collect())?;
    texts(&mut group, &rows, |r| r.from.image.as_str())?;
    column::<Int64Type>(&mut group, rows.iter().map(|r| r.from.offset.0 as i64).collect())?;
    texts(&mut group, &rows, |r| r.to.image.as_str())?;
    column::<Int64Type>(&mut group, rows.iter().map(|r| r.to.offset.0 as i64).collect())?;
    column::<Int64Type>(&mut group, rows.iter().map(|r| r.count as i64).collect())?;
    group.close()?;
    file.flush().map_err(|e| SegmentError::Parquet(e.to_string()))?;
    let checksum = metadata.checksum(file.inner());
    metadata.key_values(checksum).into_iter().for_each(|kv| file.append_key_value_metadata(kv));
    Ok(file.into_inner()?)
}

struct Row<'a> {
    burst: u32,
    from: &'a PathPlace,
    to: &'a PathPlace,
    count: u64,
}

fn rows_of(burst: &PathBurst) -> impl Iterator<Item = Row<'_>> {
    let opening = Row { burst: burst.number, from: &burst.first, to: &burst.last, count: 0 };
    let transfers = burst.transfers.iter().filter(|t| t.count > 0).map(|t| Row {
        burst: burst.number,
        from: &t.from,
        to: &t.to,
        count: t.count,
    });
    std::iter::once(opening).chain(transfers)
}

/// Reads a file of path bursts completely. Hostile bytes return an error that says what is wrong, and never panic.
/// Transfers of a burst without a first row are left out.
pub fn read_paths(bytes: &[u8]) -> Result<PathSegment, SegmentError> {
    contain(|| read(bytes, true))
}

/// Reads a file of path bursts without verifying its checksum, which would keep a fuzzer from reaching the code after
/// it. For tests alone.
#[doc(hidden)]
pub fn read_paths_unverified(bytes: &[u8]) -> Result<PathSegment, SegmentError> {
    contain(|| read(bytes, false))
}

fn read(bytes: &[u8], verify: bool) -> Result<PathSegment, SegmentError> {
    let (file, metadata, rows) = open(bytes.to_vec().into(), verify)?;
    let columns = Columns::find(file.metadata().file_metadata().schema_descr())?;
    let mut bursts = BTreeMap::new();
    let mut read = 0;
    for i in 0..file.num_row_groups() {
        read += columns.read_group(&*file.get_row_group(i)?, &mut bursts)?;
    }
    if read as u64 != rows {
        return Err(short("rows"));
    }
    let bursts = bursts.into_values().collect();
    Ok(PathSegment { epoch: metadata.epoch(), range: metadata.range()?, bursts })
}

/// Positions of our columns in the file.
struct Columns {
    burst: usize,
    image: usize,
    offset: usize,
    to_image: usize,
    to_offset: usize,
    count: usize,
}

impl Columns {
    fn find(schema: &SchemaDescriptor) -> Result<Self, SegmentError> {
        let find = |name: &'static str| find_column(schema, &PATHS_SCHEMA, name);
        Ok(Columns {
            burst: find(BURST)?,
            image: find(IMAGE)?,
            offset: find(OFFSET)?,
            to_image: find(TO_IMAGE)?,
            to_offset: find(TO_OFFSET)?,
            count: find(COUNT)?,
        })
    }

    /// Adds the bursts of a row group and returns how many rows it has.
    fn read_group(
        &self,
        group: &dyn RowGroupReader,
        bursts: &mut BTreeMap<u32, PathBurst>,
    ) -> Result<usize, SegmentError> {
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
        SegmentError::limit("rows", rows as u64, MAX_SEGMENT_ROWS as u64)?;
        let numbers = values::<Int32Type>(group, self.burst, rows)?;
        let places = |image, offset| -> Result<Vec<PathPlace>, SegmentError> {
            let images = read_texts(group, image, rows, ImageId::named)?;
            let offsets = values::<Int64Type>(group, offset, rows)?;
            let place = |(image, offset)| PathPlace { image, offset: ImageOffset(offset as u64) };
            Ok(images.into_iter().zip(offsets.into_iter().map(|o: i64| o)).map(place).collect())
        };
        let (from, to) = (places(self.image, self.offset)?, places(self.to_image, self.to_offset)?);
        let counts = values::<Int64Type>(group, self.count, rows)?;
        for (((number, from), to), count) in numbers.into_iter().zip(from).zip(to).zip(counts) {
            let (number, count) = (number as u32, count as u64);
            if count == 0 {
                let opened = PathBurst { number, first: from, last: to, transfers: Vec::new() };
                bursts.entry(number).or_insert(opened);
            } else if let Some(burst) = bursts.get_mut(&number) {
                burst.transfers.push(PathTransfer { from, to, count });
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place() -> impl Strategy<Value = PathPlace> {
        let image = prop_oneof![Just("ab12"), Just("unknown"), Just("jit:node")];
        (image, any::<u64>())
            .prop_map(|(i, o)| PathPlace { image: ImageId::named(i), offset: ImageOffset(o) })
    }

    fn burst() -> impl Strategy<Value = PathBurst> {
        let transfer =
            (place(), place(), 1..=u64::MAX).prop_map(|(from, to, count)| PathTransfer { from, to, count });
        (place(), place(), prop::collection::vec(transfer, 0..20))
            .prop_map(|(first, last, transfers)| PathBurst { number: 0, first, last, transfers })
    }

    fn epoch() -> EpochId {
        EpochId("20261121T110131Z-5f3a9c".into())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_is_written_is_read(mut bursts in prop::collection::vec(burst(), 0..8)) {
            bursts.iter_mut().enumerate().for_each(|(i, b)| b.number = i as u32 * 7);
            let bytes = encode_paths(&epoch(), SegmentRange::one(3), &bursts).unwrap();
            let read = read_paths(&bytes).unwrap();
            prop_assert_eq!((read.epoch, read.range), (epoch(), SegmentRange::one(3)));
            prop_assert_eq!(read.bursts, bursts);
        }

        #[test]
        fn damage_is_told(bursts in prop::collection::vec(burst(), 1..4), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let mut bytes = encode_paths(&epoch(), SegmentRange::one(1), &bursts).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(read) = read_paths(&bytes) {
                // Only bytes that neither the checksum nor the reader examines may change.
                prop_assert_eq!(read.bursts.len(), 1.min(bursts.len()));
            }
        }
    }

    #[test]
    fn a_segment_of_samples_is_no_file_of_bursts() {
        let segment = super::super::encode(&epoch(), SegmentRange::one(1), &Default::default(), &[]).unwrap();
        assert!(matches!(read_paths(&segment), Err(SegmentError::Column { column: "burst", .. })));
    }
}
