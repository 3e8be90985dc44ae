//! Execution counts ⇄ the bytes of a Parquet file beside the segments, with the same metadata, checksum and checks as a
//! segment.

use parquet::data_type::{Int32Type, Int64Type};

use crate::{CodePlace, CountSource, EpochId, ExecutionCount, ImageId, ImageOffset, database::SegmentRange};

use super::{
    MAX_SEGMENT_ROWS, SEGMENT_VERSION, SegmentError,
    columns::{APP, COUNTS_SCHEMA, DEVIATION_PPM, EXECUTIONS, IMAGE, INSTANCE, OFFSET, SAMPLES, SOURCE},
    decode::{BesideFile, Group, read_beside},
    encode::{column, encode_group, texts},
    metadata::Metadata,
};

/// Encodes a file. Counts without samples carry no information and are left out.
pub(crate) fn encode_counts(
    epoch: &EpochId,
    range: SegmentRange,
    counts: &[ExecutionCount],
) -> Result<Vec<u8>, SegmentError> {
    let rows: Vec<&ExecutionCount> = counts.iter().filter(|count| count.samples > 0).collect();
    SegmentError::limit("rows", rows.len() as u64, MAX_SEGMENT_ROWS as u64)?;
    let metadata = Metadata::new(epoch, range, &[])?;
    encode_group(&COUNTS_SCHEMA, &metadata, |group| {
        texts(group, &rows, |r| r.place.image.as_str())?;
        column::<Int64Type>(group, rows.iter().map(|r| r.place.offset.0 as i64).collect())?;
        texts(group, &rows, |r| &r.app)?;
        column::<Int32Type>(group, rows.iter().map(|r| r.instance as i32).collect())?;
        texts(group, &rows, |r| r.source.name())?;
        column::<Int64Type>(group, rows.iter().map(|r| r.executions as i64).collect())?;
        column::<Int64Type>(group, rows.iter().map(|r| r.samples as i64).collect())?;
        column::<Int32Type>(group, rows.iter().map(|r| r.deviation_ppm as i32).collect())
    })
}

/// The counts of a file, in its order, and the number of rows that were left out because their source is not known. If a
/// key occurs more than once, its counts must be added up ([`ExecutionCount::sum`]).
type Contents = (Vec<ExecutionCount>, u64);

/// Reads a file of execution counts completely. Hostile bytes return an error that says what is wrong, and never panic.
/// Without `verify` the checksum is not checked.
pub(crate) fn read_counts(bytes: &[u8], verify: bool) -> Result<BesideFile<Contents>, SegmentError> {
    read_beside(bytes, verify, SEGMENT_VERSION, |_| &COUNTS_SCHEMA, Contents::default(), read_group)
}

fn read_group(group: &Group<'_>, (counts, unknown_sources): &mut Contents) -> Result<(), SegmentError> {
    let images = group.texts(IMAGE, ImageId::named)?;
    let offsets = group.values::<Int64Type>(OFFSET)?;
    let apps = group.texts(APP, str::to_owned)?;
    let instances = group.values::<Int32Type>(INSTANCE)?;
    let sources = group.texts(SOURCE, CountSource::named)?;
    let executions = group.values::<Int64Type>(EXECUTIONS)?;
    let samples = group.values::<Int64Type>(SAMPLES)?;
    let deviations = group.values::<Int32Type>(DEVIATION_PPM)?;
    if samples.contains(&0) {
        return Err(SegmentError::Column { column: SAMPLES, why: "has a row with 0".into() });
    }
    for (row, (image, app)) in images.into_iter().zip(apps).enumerate() {
        let Some(source) = sources[row] else {
            *unknown_sources += 1;
            continue;
        };
        counts.push(ExecutionCount {
            place: CodePlace { image, offset: ImageOffset(offsets[row] as u64) },
            app,
            instance: instances[row] as u32,
            executions: executions[row] as u64,
            samples: samples[row] as u64,
            deviation_ppm: deviations[row] as u32,
            source,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count() -> impl Strategy<Value = ExecutionCount> {
        let place = (prop_oneof![Just("ab12"), Just("unknown"), Just("jit:node")], any::<u64>())
            .prop_map(|(i, o)| CodePlace { image: ImageId::named(i), offset: ImageOffset(o) });
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
            let read = read_counts(&bytes, true).unwrap();
            prop_assert_eq!((read.epoch, read.range), (epoch(), SegmentRange::one(3)));
            prop_assert_eq!(read.contents, (counts, 0));
        }

        #[test]
        fn damage_is_reported(counts in prop::collection::vec(count(), 1..6), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let mut bytes = encode_counts(&epoch(), SegmentRange::one(1), &counts).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(read) = read_counts(&bytes, true) {
                // Only bytes that neither the checksum nor the reader examines may change.
                prop_assert_eq!(read.contents, (counts, 0));
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
            let _ = read_counts(&bytes, false);
            let _ = read_counts(&bytes[..bytes.len() / 2], false);
        }
    }

    #[test]
    fn counts_without_samples_are_left_out() {
        let place = CodePlace { image: ImageId::unknown(), offset: ImageOffset(1) };
        let (app, source) = ("a".to_owned(), CountSource::MemoryWord);
        let nothing =
            ExecutionCount { place, app, instance: 0, executions: 5, samples: 0, deviation_ppm: 1, source };
        let bytes = encode_counts(&epoch(), SegmentRange::one(1), &[nothing]).unwrap();
        assert_eq!(read_counts(&bytes, true).unwrap().contents, (vec![], 0));
    }

    #[test]
    fn other_files_are_no_execution_counts() {
        let segment = super::super::encode(&epoch(), SegmentRange::one(1), &Default::default(), &[]).unwrap();
        assert!(matches!(read_counts(&segment, true), Err(SegmentError::Column { column: "source", .. })));
        let evidence = super::super::encode_evidence(&epoch(), SegmentRange::one(1), 1, &[]).unwrap();
        assert_eq!(read_counts(&evidence, true).unwrap_err(), SegmentError::Newer { found: 2, newest: 1 });
        let counts = encode_counts(&epoch(), SegmentRange::one(1), &[]).unwrap();
        assert!(
            super::super::read_evidence(&counts, true).is_err()
                && super::super::read_segment(&counts).is_err()
        );
    }
}
