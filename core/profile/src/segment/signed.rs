//! Files whose integers are declared as signed, for engines that have no unsigned ones.
//!
//! Enters: a file of an epoch. Leaves: the same data behind a footer that calls its integers signed. Spark reads unsigned integers of
//! 64 bits as decimals, which takes three times as long, and Iceberg does not know them. The bits are the same, so the
//! checksum holds and Dwell reads both alike; values from 2⁶³ on, such as addresses of the kernel, are negative for others.

use std::sync::Arc;

use bytes::Bytes;
use parquet::{
    basic::LogicalType,
    file::{
        metadata::{
            ColumnChunkMetaData, FileMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter,
            RowGroupMetaData,
        },
        reader::{FileReader, SerializedFileReader},
        statistics::Statistics,
    },
    schema::types::{SchemaDescriptor, Type, TypePtr},
};

use super::{SegmentError, decode::contain, metadata::Metadata};

/// Size in bytes of the length and the mark after a footer.
const TAIL_BYTES: usize = 8;

/// Returns a file of an epoch with signed integers. A file whose checksum is wrong is an error.
pub(crate) fn with_signed_integers(bytes: Vec<u8>) -> Result<Vec<u8>, SegmentError> {
    contain(|| {
        let bytes = Bytes::from(bytes);
        let file = SerializedFileReader::new(bytes.clone())?;
        let found = file.metadata().file_metadata();
        Metadata::of_file(found, u32::MAX)?.verify(found, &bytes)?;
        let data = bytes.get(..data_bytes(&bytes)?).ok_or(SegmentError::Checksum)?;
        let schema = Arc::new(SchemaDescriptor::new(signed(found.schema())?));
        let footer = FileMetaData::new(
            found.version(),
            found.num_rows(),
            found.created_by().map(str::to_owned),
            found.key_value_metadata().cloned(),
            schema,
            found.column_orders().cloned(),
        );
        let groups = file.metadata().row_groups().iter().map(group).collect::<Result<_, _>>()?;
        let footer = ParquetMetaDataBuilder::new(footer).set_row_groups(groups).build();
        let mut signed = data.to_vec();
        ParquetMetaDataWriter::new(&mut signed, &footer).finish()?;
        Ok(signed)
    })
}

/// Returns the number of bytes before the footer.
fn data_bytes(bytes: &[u8]) -> Result<usize, SegmentError> {
    let tail = bytes.len().checked_sub(TAIL_BYTES).ok_or(SegmentError::Checksum)?;
    let length = bytes[tail..].first_chunk().copied().map_or(u32::MAX, u32::from_le_bytes);
    tail.checked_sub(length as usize).ok_or(SegmentError::Checksum)
}

fn signed(schema: &Type) -> Result<TypePtr, SegmentError> {
    let column = |field: &TypePtr| -> Result<TypePtr, SegmentError> {
        let Some(LogicalType::Integer(integer)) = field.get_basic_info().logical_type_ref().cloned() else {
            return Ok(field.clone());
        };
        let builder = Type::primitive_type_builder(field.name(), field.get_physical_type())
            .with_repetition(field.get_basic_info().repetition())
            .with_logical_type(Some(LogicalType::integer(integer.bit_width, true)));
        Ok(Arc::new(builder.build()?))
    };
    let fields = schema.get_fields().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(Type::group_type_builder(schema.name()).with_fields(fields).build()?))
}

/// Returns a row group without the statistics whose order is another one for signed integers.
fn group(group: &RowGroupMetaData) -> Result<RowGroupMetaData, SegmentError> {
    let column = |column: &ColumnChunkMetaData| {
        let is_reordered = match column.statistics() {
            Some(Statistics::Int64(values)) => values.max_opt().is_none_or(|greatest| *greatest < 0),
            Some(Statistics::Int32(values)) => values.max_opt().is_none_or(|greatest| *greatest < 0),
            _ => false,
        };
        let builder = column.clone().into_builder();
        if is_reordered { builder.clear_statistics().build() } else { builder.build() }
    };
    let columns = group.columns().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    Ok(group.clone().into_builder().set_column_metadata(columns).build()?)
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::FileReader;

    use super::*;
    use crate::{
        Counts, EpochId, Event, ImageId, ImageOffset, SampleKey,
        database::SegmentRange,
        segment::{encode, read_segment},
    };

    fn segment(offsets: &[u64]) -> Vec<u8> {
        let key = |offset: &u64| SampleKey {
            image: ImageId::kernel(),
            event: Event::named("cycles"),
            offset: ImageOffset(*offset),
            app: "/bin/a".into(),
            instance: 1,
            dimensions: None,
        };
        let counts: Counts = offsets.iter().map(|offset| (key(offset), 3)).collect();
        encode(&EpochId("20261127T000000Z-000001".into()), SegmentRange { first: 1, last: 2 }, &counts, &[])
            .unwrap()
    }

    #[test]
    fn dwell_reads_the_same_from_signed_files() {
        let plain = segment(&[16, 1 << 63, u64::MAX - 1]);
        let signed = with_signed_integers(plain.clone()).unwrap();
        assert_eq!(read_segment(&signed).unwrap().rows, read_segment(&plain).unwrap().rows);
        assert_eq!(with_signed_integers(signed.clone()).unwrap(), signed, "it may be done again");
    }

    #[test]
    fn all_integers_are_signed_and_statistics_in_their_order() {
        for (offsets, has_statistics) in [(&[16, 17][..], true), (&[16, 1 << 63], false)] {
            let signed = with_signed_integers(segment(offsets)).unwrap();
            let file = SerializedFileReader::new(Bytes::from(signed)).unwrap();
            for column in file.metadata().file_metadata().schema_descr().columns() {
                if let Some(LogicalType::Integer(integer)) = column.logical_type_ref() {
                    assert!(integer.is_signed, "{}", column.name());
                }
            }
            let statistics = file.metadata().row_group(0).column(2).statistics();
            assert_eq!(statistics.is_some(), has_statistics, "{offsets:?}");
        }
    }

    #[test]
    fn damage_is_an_error() {
        let plain = segment(&[16]);
        for at in [0, 4, 20, plain.len() - 5] {
            let mut damaged = plain.clone();
            damaged[at] ^= 1;
            assert!(with_signed_integers(damaged).is_err(), "byte {at}");
        }
        assert!(with_signed_integers(Vec::new()).is_err());
        assert!(with_signed_integers(plain[..plain.len() - 1].to_vec()).is_err());
    }
}
