//! Execution counts ⇄ the bytes of a Parquet file beside the segments, with the same metadata, checksum and checks as a
//! segment.

use parquet::{
    data_type::{Int32Type, Int64Type},
    file::{
        reader::{FileReader, RowGroupReader},
        writer::SerializedFileWriter,
    },
    schema::types::SchemaDescriptor,
};

use crate::{CountSource, EpochId, ExecutionCount, ImageId, ImageOffset, PathPlace, database::SegmentRange};

use super::{
    MAX_SEGMENT_ROWS, SegmentError,
    columns::{
        APP, COUNTS_SCHEMA, DEVIATION_PPM, EXECUTIONS, IMAGE, INSTANCE, OFFSET, PROPERTIES, SAMPLES, SOURCE,
    },
    decode::{contain, find_column, open, short, texts as read_texts, values},
    encode::{column, texts},
    metadata::Metadata,
};

/// A file of execution counts.
#[derive(Debug)]
pub struct CountSegment {
    /// The epoch that the file belongs to.
    pub epoch: EpochId,
    /// Number of the file, stored like the range of a segment.
    pub range: SegmentRange,
    /// The counts, in the order of the file. If a key occurs more than once, its counts must be added up
    /// ([`ExecutionCount::sum`]).
    pub counts: Vec<ExecutionCount>,
    /// Number of rows that were left out because this version does not know their source.
    pub unknown_sources: u64,
}

/// Encodes a file. Counts without samples carry no information and are left out.
pub(crate) fn encode_counts(
    epoch: &EpochId,
    range: SegmentRange,
    counts: &[ExecutionCount],
) -> Result<Vec<u8>, SegmentError> {
    let rows: Vec<&ExecutionCount> = counts.iter().filter(|count| count.samples > 0).collect();
    SegmentError::limit("rows", rows.len() as u64, MAX_SEGMENT_ROWS as u64)?;
    let metadata = Metadata::new(epoch, range, &[])?;
    let mut file = SerializedFileWriter::new(Vec::new(), COUNTS_SCHEMA.clone(), PROPERTIES.clone())?;
    let mut group = file.next_row_group()?;
    texts(&mut group, &rows, |r| r.place.image.as_str())?;
    column::<Int64Type>(&mut group, rows.iter().map(|r| r.place.offset.0 as i64).collect())?;
    texts(&mut group, &rows, |r| &r.app)?;
    column::<Int32Type>(&mut group, rows.iter().map(|r| r.instance as i32).collect())?;
    texts(&mut group, &rows, |r| r.source.name())?;
    column::<Int64Type>(&mut group, rows.iter().map(|r| r.executions as i64).collect())?;
    column::<Int64Type>(&mut group, rows.iter().map(|r| r.samples as i64).collect())?;
    column::<Int32Type>(&mut group, rows.iter().map(|r| r.deviation_ppm as i32).collect())?;
    group.close()?;
    file.flush().map_err(|e| SegmentError::Parquet(e.to_string()))?;
    let checksum = metadata.checksum(file.inner());
    metadata.key_values(checksum).into_iter().for_each(|kv| file.append_key_value_metadata(kv));
    Ok(file.into_inner()?)
}

/// Reads a file of execution counts completely. Hostile bytes return an error that says what is wrong, and never panic.
pub fn read_counts(bytes: &[u8]) -> Result<CountSegment, SegmentError> {
    contain(|| read(bytes, true))
}

/// Reads a file of execution counts without verifying its checksum, which would keep a fuzzer from reaching the code
/// after it. For tests alone.
#[doc(hidden)]
pub fn read_counts_unverified(bytes: &[u8]) -> Result<CountSegment, SegmentError> {
    contain(|| read(bytes, false))
}

fn read(bytes: &[u8], verify: bool) -> Result<CountSegment, SegmentError> {
    let (file, metadata, rows) = open(bytes.to_vec().into(), verify)?;
    let columns = Columns::find(file.metadata().file_metadata().schema_descr())?;
    let mut segment = CountSegment {
        epoch: metadata.epoch(),
        range: metadata.range()?,
        counts: Vec::new(),
        unknown_sources: 0,
    };
    let mut read = 0;
    for i in 0..file.num_row_groups() {
        read += columns.read_group(&*file.get_row_group(i)?, &mut segment)?;
    }
    if read as u64 == rows { Ok(segment) } else { Err(short("rows")) }
}

/// Positions of our columns in the file.
struct Columns {
    image: usize,
    offset: usize,
    app: usize,
    instance: usize,
    source: usize,
    executions: usize,
    samples: usize,
    deviation_ppm: usize,
}

impl Columns {
    fn find(schema: &SchemaDescriptor) -> Result<Self, SegmentError> {
        let find = |name: &'static str| find_column(schema, &COUNTS_SCHEMA, name);
        Ok(Columns {
            image: find(IMAGE)?,
            offset: find(OFFSET)?,
            app: find(APP)?,
            instance: find(INSTANCE)?,
            source: find(SOURCE)?,
            executions: find(EXECUTIONS)?,
            samples: find(SAMPLES)?,
            deviation_ppm: find(DEVIATION_PPM)?,
        })
    }

    /// Adds the counts of a row group and returns how many rows it has.
    fn read_group(
        &self,
        group: &dyn RowGroupReader,
        segment: &mut CountSegment,
    ) -> Result<usize, SegmentError> {
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
        SegmentError::limit("rows", rows as u64, MAX_SEGMENT_ROWS as u64)?;
        let images = read_texts(group, self.image, rows, ImageId::named)?;
        let offsets = values::<Int64Type>(group, self.offset, rows)?;
        let apps = read_texts(group, self.app, rows, str::to_owned)?;
        let instances = values::<Int32Type>(group, self.instance, rows)?;
        let sources = read_texts(group, self.source, rows, CountSource::named)?;
        let executions = values::<Int64Type>(group, self.executions, rows)?;
        let samples = values::<Int64Type>(group, self.samples, rows)?;
        let deviations = values::<Int32Type>(group, self.deviation_ppm, rows)?;
        if samples.contains(&0) {
            return Err(SegmentError::Column { column: SAMPLES, why: "has a row with 0".into() });
        }
        for (row, (image, app)) in images.into_iter().zip(apps).enumerate() {
            let Some(source) = sources[row] else {
                segment.unknown_sources += 1;
                continue;
            };
            segment.counts.push(ExecutionCount {
                place: PathPlace { image, offset: ImageOffset(offsets[row] as u64) },
                app,
                instance: instances[row] as u32,
                executions: executions[row] as u64,
                samples: samples[row] as u64,
                deviation_ppm: deviations[row] as u32,
                source,
            });
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count() -> impl Strategy<Value = ExecutionCount> {
        let place = (prop_oneof![Just("ab12"), Just("unknown"), Just("jit:node")], any::<u64>())
            .prop_map(|(i, o)| PathPlace { image: ImageId::named(i), offset: ImageOffset(o) });
        let app = prop_oneof![Just("xz"), Just(""), Just("python3.11")];
        let source = prop::sample::select(&CountSource::ALL[..]);
        let numbers = (any::<u32>(), any::<u64>(), 1..=u64::MAX, any::<u32>());
        (place, app, numbers, source).prop_map(|(place, app, numbers, source)| {
            let (instance, executions, samples, deviation_ppm) = numbers;
            let app = app.to_owned();
            ExecutionCount { place, app, instance, executions, samples, deviation_ppm, source }
        })
    }

    fn epoch() -> EpochId {
        EpochId("20261121T110131Z-5f3a9c".into())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_is_written_is_read(counts in prop::collection::vec(count(), 0..20)) {
            let bytes = encode_counts(&epoch(), SegmentRange::one(3), &counts).unwrap();
            let read = read_counts(&bytes).unwrap();
            prop_assert_eq!((read.epoch, read.range, read.unknown_sources), (epoch(), SegmentRange::one(3), 0));
            prop_assert_eq!(read.counts, counts);
        }

        #[test]
        fn damage_is_reported(counts in prop::collection::vec(count(), 1..6), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let mut bytes = encode_counts(&epoch(), SegmentRange::one(1), &counts).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(read) = read_counts(&bytes) {
                // Only bytes that neither the checksum nor the reader examines may change.
                prop_assert_eq!(read.counts, counts);
            }
        }

        /// The checksum does not protect against a hostile writer, so anything may follow it.
        #[test]
        fn hostile_bytes_never_panic(counts in prop::collection::vec(count(), 1..6), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut bytes = encode_counts(&epoch(), SegmentRange::one(1), &counts).unwrap();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = read_counts_unverified(&bytes);
            let _ = read_counts_unverified(&bytes[..bytes.len() / 2]);
        }
    }

    #[test]
    fn counts_without_samples_are_left_out() {
        let place = PathPlace { image: ImageId::unknown(), offset: ImageOffset(1) };
        let (app, source) = ("a".to_owned(), CountSource::MemoryWord);
        let nothing =
            ExecutionCount { place, app, instance: 0, executions: 5, samples: 0, deviation_ppm: 1, source };
        let bytes = encode_counts(&epoch(), SegmentRange::one(1), &[nothing]).unwrap();
        assert_eq!(read_counts(&bytes).unwrap().counts, []);
    }

    #[test]
    fn other_files_are_no_execution_counts() {
        let segment = super::super::encode(&epoch(), SegmentRange::one(1), &Default::default(), &[]).unwrap();
        assert!(matches!(read_counts(&segment), Err(SegmentError::Column { column: "source", .. })));
        let paths = super::super::encode_paths(&epoch(), SegmentRange::one(1), &[]).unwrap();
        assert!(matches!(read_counts(&paths), Err(SegmentError::Column { column: "app", .. })));
        let counts = encode_counts(&epoch(), SegmentRange::one(1), &[]).unwrap();
        assert!(super::super::read_paths(&counts).is_err() && super::super::read_segment(&counts).is_err());
    }
}
