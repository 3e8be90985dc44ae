//! Columns whose values occur in long runs (images, events, applications, …), written and read run by run.
//!
//! Enters: values as numbers (of a text in [`Names`], or the value itself) with the lengths of their runs. Leaves: the
//! pages of a column; and the reverse. Never here: one value for each row, which the Parquet crate's own readers and
//! writers produce for such columns.
//!
//! The pages are standard Parquet: a dictionary, and pages with `RLE_DICTIONARY`. Pages that we write contain only
//! runs. Pages of other writers, and of earlier versions of Dwell, may also contain bit-packed groups or plain values
//! (`PLAIN`).

use bytes::Bytes;
use parquet::{
    basic::{Compression, Encoding, EncodingMask, Type as Physical, ZstdLevel},
    column::{
        page::{CompressedPage, Page, PageReader, PageWriter},
        writer::ColumnCloseResult,
    },
    data_type::ByteArray,
    file::{
        metadata::ColumnChunkMetaData,
        reader::RowGroupReader,
        statistics::Statistics,
        writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite},
    },
    schema::types::ColumnDescPtr,
};
use rustc_hash::FxHashMap;

use super::{SegmentError, names::Names};

const ZSTD_LEVEL: i32 = 3;
/// Limit of the number of bits of an index.
const INDEX_BITS_MAX: u32 = 32;

/// A column that is being written.
#[derive(Default)]
pub(super) struct RunColumn {
    /// The dictionary; `places` is the position of each value in it.
    values: Vec<u32>,
    places: FxHashMap<u32, u32>,
    /// Positions in the dictionary, each with the length of its run.
    runs: Vec<(u32, usize)>,
}

impl RunColumn {
    /// Appends a value that occurs `length` times. Returns whether the value was new to the dictionary.
    pub(super) fn push(&mut self, value: u32, length: usize) -> bool {
        let fresh = self.values.len() as u32;
        let place = *self.places.entry(value).or_insert(fresh);
        if place == fresh {
            self.values.push(value);
        }
        match self.runs.last_mut().filter(|(last, _)| *last == place) {
            Some((_, known)) => *known += length,
            None => self.runs.push((place, length)),
        }
        place == fresh
    }

    /// Writes the column as the next one of a row group; `column` describes it.
    pub(super) fn write(
        &self,
        group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
        column: &ColumnDescPtr,
        names: &Names,
    ) -> Result<(), SegmentError> {
        let is_text = column.physical_type() == Physical::BYTE_ARRAY;
        let (dictionary, statistics) = if is_text { self.texts(names) } else { self.numbers() };
        let rows: usize = self.runs.iter().map(|(_, length)| length).sum();
        let (dictionary_bytes, indices) = (dictionary.len(), self.indices());
        let dictionary = Page::DictionaryPage {
            buf: packed(&dictionary)?,
            num_values: self.values.len() as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let data = Page::DataPage {
            buf: packed(&indices)?,
            num_values: rows as u32,
            encoding: Encoding::RLE_DICTIONARY,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let mut sink = TrackedWrite::new(Vec::new());
        let mut pages = SerializedPageWriter::new(&mut sink);
        let first = pages.write_page(CompressedPage::new(dictionary, dictionary_bytes))?;
        let second = pages.write_page(CompressedPage::new(data, indices.len()))?;
        let encodings = [Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY];
        let metadata = ColumnChunkMetaData::builder(column.clone())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_encodings_mask(EncodingMask::new_from_encodings(encodings.iter()))
            .set_total_compressed_size((first.compressed_size + second.compressed_size) as i64)
            .set_total_uncompressed_size((first.uncompressed_size + second.uncompressed_size) as i64)
            .set_num_values(rows as i64)
            .set_dictionary_page_offset(Some(first.offset as i64))
            .set_data_page_offset(second.offset as i64)
            .set_statistics(statistics)
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: sink.bytes_written() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        group.append_column(&Bytes::from(sink.into_inner()?), close)?;
        Ok(())
    }

    /// Returns the dictionary as `PLAIN` encodes texts, each preceded by its length, and the least and the greatest
    /// text.
    fn texts(&self, names: &Names) -> (Vec<u8>, Statistics) {
        let texts = || self.values.iter().map(|value| names.text(*value).as_bytes());
        let mut plain = Vec::new();
        for text in texts() {
            plain.extend_from_slice(&(text.len() as u32).to_le_bytes());
            plain.extend_from_slice(text);
        }
        let value = |text: Option<&[u8]>| text.map(|text| ByteArray::from(text.to_vec()));
        (plain, Statistics::byte_array(value(texts().min()), value(texts().max()), None, Some(0), false))
    }

    fn numbers(&self) -> (Vec<u8>, Statistics) {
        let plain = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let number = |value: Option<&u32>| value.map(|value| *value as i32);
        let (least, greatest) = (self.values.iter().min(), self.values.iter().max());
        (plain, Statistics::int32(number(least), number(greatest), None, Some(0), false))
    }

    /// Returns a data page: the number of bits of an index, then for each run twice its length and its index.
    fn indices(&self) -> Vec<u8> {
        let bits = u32::BITS - (self.values.len() as u32).saturating_sub(1).leading_zeros();
        let mut bytes = vec![bits as u8];
        for &(place, length) in &self.runs {
            let mut head = (length as u64) << 1;
            while head >= 0x80 {
                bytes.push(head as u8 | 0x80);
                head >>= 7;
            }
            bytes.push(head as u8);
            bytes.extend_from_slice(&place.to_le_bytes()[..bits.div_ceil(8) as usize]);
        }
        bytes
    }
}

fn packed(bytes: &[u8]) -> Result<Bytes, SegmentError> {
    let packed = zstd::bulk::compress(bytes, ZSTD_LEVEL);
    Ok(packed.map_err(|e| SegmentError::Parquet(e.to_string()))?.into())
}

/// Reads a column of a row group.
pub(super) struct RunReader {
    pages: Box<dyn PageReader>,
    is_text: bool,
    /// The dictionary: numbers of texts, or the values themselves.
    values: Vec<u32>,
    /// The runs of the current page that remain, in reverse order: the next one is last.
    runs: Vec<(u32, usize)>,
}

impl RunReader {
    /// Opens a column of texts or of 32-bit numbers, whose type the caller has checked.
    pub(super) fn new(group: &dyn RowGroupReader, column: usize) -> Result<Self, SegmentError> {
        let is_text = group.metadata().column(column).column_type() == Physical::BYTE_ARRAY;
        Ok(RunReader {
            pages: group.get_column_page_reader(column)?,
            is_text,
            values: Vec::new(),
            runs: Vec::new(),
        })
    }

    /// Returns the value of the next rows and for how many rows at least it holds; `None` at the end.
    pub(super) fn peek(&mut self, names: &mut Names) -> Result<Option<(u32, usize)>, SegmentError> {
        while self.runs.is_empty() {
            let Some(page) = self.pages.get_next_page()? else { return Ok(None) };
            self.read_page(&page, names)?;
            self.runs.reverse();
        }
        Ok(self.runs.last().copied())
    }

    /// Skips rows of the run that [`RunReader::peek`] returned.
    pub(super) fn pass(&mut self, rows: usize) {
        let run = self.runs.last_mut().expect("peek found a run");
        run.1 -= rows;
        if run.1 == 0 {
            self.runs.pop();
        }
    }

    fn read_page(&mut self, page: &Page, names: &mut Names) -> Result<(), SegmentError> {
        let (bytes, count) = (page.buffer(), page.num_values() as usize);
        match (page, page.encoding()) {
            (Page::DictionaryPage { .. }, _) => {
                let mut values = Vec::new();
                self.plain(bytes, count, names, |value| values.push(value))?;
                self.values = values;
                Ok(())
            }
            (_, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY) => self.indexed(bytes, count),
            (_, Encoding::PLAIN) => {
                let mut runs = std::mem::take(&mut self.runs);
                self.plain(bytes, count, names, |value| extend(&mut runs, value, 1))?;
                self.runs = runs;
                Ok(())
            }
            (_, other) => Err(SegmentError::Parquet(format!("{other} is no encoding of such columns"))),
        }
    }

    /// Reads plain values.
    fn plain(
        &self,
        bytes: &[u8],
        count: usize,
        names: &mut Names,
        mut take: impl FnMut(u32),
    ) -> Result<(), SegmentError> {
        let mut rest = bytes;
        for _ in 0..count {
            let number = u32::from_le_bytes(*split(&mut rest, 4)?.first_chunk().expect("it has 4 bytes"));
            take(match self.is_text {
                true => names.intern_bytes(split(&mut rest, number as usize)?)?,
                false => number,
            });
        }
        Ok(())
    }

    /// Reads indices into the dictionary: runs, and bit-packed groups of eight.
    fn indexed(&mut self, bytes: &[u8], count: usize) -> Result<(), SegmentError> {
        let mut rest = bytes;
        let bits = u32::from(split(&mut rest, 1)?[0]);
        if bits > INDEX_BITS_MAX {
            return Err(malformed());
        }
        let mut left = count;
        while left > 0 {
            let head = varint(&mut rest)?;
            let length = usize::try_from(head >> 1).map_err(|_| malformed())?;
            if head & 1 == 0 {
                let index = little_endian(split(&mut rest, bits.div_ceil(8) as usize)?);
                let rows = length.min(left);
                self.push(index, rows)?;
                left -= rows;
            } else {
                let packed = split(&mut rest, length.checked_mul(bits as usize).ok_or_else(malformed)?)?;
                let rows = length.saturating_mul(8).min(left);
                for row in 0..rows {
                    self.push(bits_at(packed, row * bits as usize, bits), 1)?;
                }
                left -= rows;
            }
        }
        Ok(())
    }

    fn push(&mut self, index: u64, rows: usize) -> Result<(), SegmentError> {
        let value = usize::try_from(index).ok().and_then(|index| self.values.get(index));
        extend(&mut self.runs, *value.ok_or_else(malformed)?, rows);
        Ok(())
    }
}

fn extend(runs: &mut Vec<(u32, usize)>, value: u32, rows: usize) {
    match runs.last_mut().filter(|(last, _)| *last == value) {
        Some((_, known)) => *known += rows,
        None if rows > 0 => runs.push((value, rows)),
        None => {}
    }
}

fn split<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], SegmentError> {
    let (taken, left) = rest.split_at_checked(bytes).ok_or_else(malformed)?;
    *rest = left;
    Ok(taken)
}

fn varint(rest: &mut &[u8]) -> Result<u64, SegmentError> {
    let mut value = 0_u64;
    for shift in (0..63).step_by(7) {
        let byte = split(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(malformed())
}

/// Returns up to 8 bytes as a little-endian number.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Returns the `bits` bits from bit `at` on, least significant bit first.
fn bits_at(bytes: &[u8], at: usize, bits: u32) -> u64 {
    let end = (at + bits as usize).div_ceil(8);
    little_endian(&bytes[at / 8..end]) >> (at % 8) & ((1 << bits) - 1)
}

fn malformed() -> SegmentError {
    SegmentError::Parquet("malformed runs".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::{
        data_type::{ByteArrayType, Int32Type},
        file::{
            reader::{FileReader, SerializedFileReader},
            writer::SerializedFileWriter,
        },
        schema::types::Type,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::segment::{columns, decode::values};

    /// Returns a schema with the image and the instance columns of segments.
    fn schema() -> Arc<Type> {
        let fields = columns::SCHEMA.get_fields();
        let columns = vec![fields[0].clone(), fields[5].clone()];
        Arc::new(Type::group_type_builder("two").with_fields(columns).build().unwrap())
    }

    fn file() -> SerializedFileWriter<Vec<u8>> {
        SerializedFileWriter::new(Vec::new(), schema(), columns::PROPERTIES.clone()).unwrap()
    }

    fn text(value: u32) -> String {
        "größer".repeat(value as usize % 3) + &value.to_string()
    }

    /// Writes runs as a column of texts and a column of numbers.
    fn ours(runs: &[(u32, usize)]) -> Vec<u8> {
        let (mut names, mut file) = (Names::default(), file());
        let (mut texts, mut numbers) = (RunColumn::default(), RunColumn::default());
        for &(value, length) in runs {
            texts.push(names.intern(&text(value)).unwrap(), length);
            numbers.push(value, length);
        }
        let columns = file.schema_descr().columns().to_vec();
        let mut group = file.next_row_group().unwrap();
        texts.write(&mut group, &columns[0], &names).unwrap();
        numbers.write(&mut group, &columns[1], &names).unwrap();
        group.close().unwrap();
        file.into_inner().unwrap()
    }

    /// Writes the same columns with the Parquet crate's writer, value by value.
    fn theirs(runs: &[(u32, usize)]) -> Vec<u8> {
        let rows = || runs.iter().flat_map(|(value, length)| std::iter::repeat_n(*value, *length));
        let mut file = file();
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let texts: Vec<ByteArray> = rows().map(|value| text(value).as_str().into()).collect();
        column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let numbers: Vec<i32> = rows().map(|value| value as i32).collect();
        column.typed::<Int32Type>().write_batch(&numbers, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        file.into_inner().unwrap()
    }

    /// Returns the values that [`RunReader`] reads from a column; two successive runs differ.
    fn read(bytes: Vec<u8>, column: usize, names: &mut Names) -> Result<Vec<u32>, SegmentError> {
        let file = SerializedFileReader::new(Bytes::from(bytes))?;
        let mut reader = RunReader::new(&*file.get_row_group(0)?, column)?;
        let mut values = Vec::new();
        while let Some((value, length)) = reader.peek(names)? {
            values.extend(std::iter::repeat_n(value, length));
            reader.pass(length);
        }
        Ok(values)
    }

    fn runs() -> impl Strategy<Value = Vec<(u32, usize)>> {
        let value = prop_oneof![0..3_u32, 0..300_u32, any::<u32>()];
        prop::collection::vec((value, prop_oneof![1..4_usize, 1..400_usize]), 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn whoever_wrote_runs_they_are_read(runs in runs()) {
            let rows: Vec<u32> =
                runs.iter().flat_map(|(value, length)| std::iter::repeat_n(*value, *length)).collect();
            for bytes in [ours(&runs), theirs(&runs)] {
                let mut names = Names::default();
                prop_assert_eq!(&read(bytes.clone(), 1, &mut names).unwrap(), &rows);
                let texts = read(bytes, 0, &mut names).unwrap();
                let expected: Vec<String> = rows.iter().map(|value| text(*value)).collect();
                let texts: Vec<String> = texts.iter().map(|number| names.text(*number).to_string()).collect();
                prop_assert_eq!(texts, expected);
            }
        }

        #[test]
        fn the_parquet_crate_reads_ours(runs in runs()) {
            let rows: Vec<u32> =
                runs.iter().flat_map(|(value, length)| std::iter::repeat_n(*value, *length)).collect();
            let file = SerializedFileReader::new(Bytes::from(ours(&runs))).unwrap();
            let group = file.get_row_group(0).unwrap();
            let numbers = values::<Int32Type>(&*group, 1, rows.len()).unwrap();
            prop_assert_eq!(numbers.iter().map(|n| *n as u32).collect::<Vec<_>>(), rows.clone());
            let texts = values::<ByteArrayType>(&*group, 0, rows.len()).unwrap();
            let texts: Vec<&str> = texts.iter().map(|t| t.as_utf8().unwrap()).collect();
            prop_assert_eq!(texts, rows.iter().map(|value| text(*value)).collect::<Vec<_>>());
            let statistics = group.metadata().column(1).statistics().unwrap().clone();
            let Statistics::Int32(statistics) = statistics else { panic!("of numbers") };
            prop_assert_eq!(statistics.min_opt().map(|n| *n as u32), rows.iter().min().copied());
        }

        #[test]
        fn no_bytes_are_more_than_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60), count in 0..5000_usize) {
            let group = SerializedFileReader::new(Bytes::from(ours(&[(7, 9)]))).unwrap();
            for column in 0..2 {
                let mut reader = RunReader::new(&*group.get_row_group(0).unwrap(), column).unwrap();
                reader.values = vec![3, 4, 5];
                let before = reader.indexed(&bytes, count).is_ok();
                let rows: usize = reader.runs.iter().map(|(_, length)| length).sum();
                prop_assert!(rows <= count && (!before || rows == count));
                let _ = reader.plain(&bytes, count, &mut Names::default(), |_| {});
            }
        }
    }
}
