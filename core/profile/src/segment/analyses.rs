//! Analyses of procedures, which a job stored as rows of a table ← the bytes of a Parquet file. An engine wrote it: it has no metadata and no
//! checksum of ours, and its columns may be optional.

use parquet::{
    basic::Type as Physical,
    column::reader::get_typed_column_reader,
    data_type::{ByteArray, ByteArrayType, DataType, Int64Type},
    file::reader::{FileReader, RowGroupReader},
};

use crate::{EpochId, ImageId, ImageOffset, StoredAnalysis};

use super::{
    MAX_SEGMENT_ROWS, SegmentError,
    columns::{IMAGE, START},
    decode::{contain, open_foreign, short},
};

const EPOCH: &str = "epoch";
const ANALYSIS: &str = "analysis";

/// Reads the analyses of an image in an epoch, in the order of the file. Hostile bytes never panic: they return an
/// error that says what is wrong with them.
pub(crate) fn read_analyses(
    bytes: &[u8],
    epoch: &EpochId,
    image: &ImageId,
) -> Result<Vec<StoredAnalysis>, SegmentError> {
    contain(|| {
        let file = open_foreign(bytes.to_vec().into())?;
        let mut analyses = Vec::new();
        for at in 0..file.num_row_groups() {
            let group = file.get_row_group(at)?;
            let epochs = values::<ByteArrayType>(&*group, EPOCH)?;
            let images = values::<ByteArrayType>(&*group, IMAGE)?;
            let starts = values::<Int64Type>(&*group, START)?;
            let texts = values::<ByteArrayType>(&*group, ANALYSIS)?;
            let is_of =
                |values: &[ByteArray], id: &str| values.iter().all(|value| value.data() == id.as_bytes());
            if !is_of(&epochs, &epoch.0) || !is_of(&images, image.as_str()) {
                return Err(SegmentError::Parquet("it holds rows of something else".to_owned()));
            }
            for (start, text) in starts.into_iter().zip(texts) {
                let text = std::str::from_utf8(text.data());
                let text = text.map_err(|e| SegmentError::Parquet(format!("text that is none: {e}")))?;
                analyses.push(StoredAnalysis { start: ImageOffset(start as u64), text: text.into() });
            }
        }
        Ok(analyses)
    })
}

/// Reads a column, which has a value in each row.
fn values<T: DataType>(group: &dyn RowGroupReader, column: &'static str) -> Result<Vec<T::T>, SegmentError> {
    let schema = group.metadata().schema_descr();
    let index = schema.columns().iter().position(|c| c.path().parts() == [column]);
    let index = index.ok_or_else(|| SegmentError::Column { column, why: "is missing".into() })?;
    let found = schema.column(index);
    let wanted = T::get_physical_type();
    if found.max_rep_level() > 0 || found.max_def_level() > 1 || found.physical_type() != wanted {
        return Err(SegmentError::Column { column, why: format!("is no {}", name_of(wanted)) });
    }
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
    SegmentError::limit("rows", rows as u64, MAX_SEGMENT_ROWS as u64)?;
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(index)?);
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let levels = (found.max_def_level() > 0).then_some(&mut levels);
    let (records, read, _) = reader.read_records(rows, levels, None, &mut values)?;
    match (records == rows, read == rows) {
        (true, true) => Ok(values),
        (true, false) => Err(SegmentError::Column { column, why: "has rows without a value".into() }),
        (false, _) => Err(short("values")),
    }
}

fn name_of(physical: Physical) -> &'static str {
    if physical == Physical::INT64 { "column of numbers of 64 bits" } else { "column of texts" }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::{
        basic::{LogicalType, Repetition},
        file::{properties::WriterProperties, writer::SerializedFileWriter},
        schema::types::{Type, TypePtr},
    };
    use proptest::prelude::*;

    use super::*;

    /// A row: epoch, image, offset, text; `None` is NULL.
    type Row = (&'static str, &'static str, i64, Option<&'static str>);

    /// Writes rows as Spark does: each column is optional.
    fn file(rows: &[Row]) -> Vec<u8> {
        let column = |name: &str, physical, logical: Option<LogicalType>| -> TypePtr {
            let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
            Arc::new(builder.with_logical_type(logical).build().unwrap())
        };
        let text = |name| column(name, Physical::BYTE_ARRAY, Some(LogicalType::String));
        let columns = vec![
            text(EPOCH),
            text(IMAGE),
            text("procedure"),
            column(START, Physical::INT64, None),
            text(ANALYSIS),
        ];
        let schema = Arc::new(Type::group_type_builder("spark_schema").with_fields(columns).build().unwrap());
        let mut file =
            SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::default())).unwrap();
        let mut group = file.next_row_group().unwrap();
        for name in [EPOCH, IMAGE, "procedure", START, ANALYSIS] {
            let mut column = group.next_column().unwrap().unwrap();
            let text = |row: &Row| match name {
                EPOCH => Some(row.0),
                IMAGE => Some(row.1),
                ANALYSIS => row.3,
                _ => Some("p"),
            };
            let levels: Vec<i16> = rows.iter().map(|row| i16::from(text(row).is_some())).collect();
            if name == START {
                let starts: Vec<i64> = rows.iter().map(|row| row.2).collect();
                column.typed::<Int64Type>().write_batch(&starts, Some(&levels), None).unwrap();
            } else {
                let texts: Vec<ByteArray> = rows.iter().filter_map(text).map(ByteArray::from).collect();
                column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None).unwrap();
            }
            column.close().unwrap();
        }
        group.close().unwrap();
        file.into_inner().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Vec<StoredAnalysis>, SegmentError> {
        read_analyses(bytes, &EpochId("e".to_owned()), &ImageId::named("ab"))
    }

    #[test]
    fn rows_of_an_engine_are_read() {
        let analyses = read(&file(&[("e", "ab", 16, Some("{}")), ("e", "ab", -1, Some("[]"))])).unwrap();
        let found: Vec<(u64, &str)> = analyses.iter().map(|a| (a.start.0, &*a.text)).collect();
        assert_eq!(found, [(16, "{}"), (u64::MAX, "[]")]);
        assert_eq!(read(&file(&[])).unwrap(), []);
    }

    #[test]
    fn foreign_rows_are_refused() {
        let why = |row| read(&file(&[("e", "ab", 0, Some("")), row])).unwrap_err().to_string();
        for row in [("f", "ab", 0, Some("")), ("e", "cd", 0, Some(""))] {
            assert!(why(row).contains("rows of something else"), "{}", why(row));
        }
        assert!(why(("e", "ab", 0, None)).contains("`analysis` has rows without a value"));
        assert!(read(b"PAR1").is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn hostile_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut bytes = file(&[("e", "ab", 16, Some("{}")), ("e", "ab", 32, Some("[]"))]);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = read(&bytes);
            let _ = read(&bytes[..bytes.len() / 2]);
        }
    }
}
