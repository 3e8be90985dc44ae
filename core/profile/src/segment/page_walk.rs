//! Judges a file's claims about its own sizes before the Parquet crate allocates by them.
//!
//! That crate (60.1) trusts a dictionary page's number of values, a page's uncompressed size and the lengths within a
//! page header: a few hostile bytes make it ask for tens of gigabytes, and a failed allocation is nothing that
//! `catch_unwind` could catch.

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use super::{MAX_SEGMENT_ROWS, SegmentError, thrift};

/// Size of a page when unpacked, in bytes. The writer's are about 1 MiB.
const MAX_PAGE_BYTES: i64 = 64 << 20;
/// Size of all pages when unpacked, in bytes.
const MAX_UNPACKED_BYTES: u64 = 1 << 30;

/// Checks that the footer is one that the Parquet crate reads in bounded time and memory.
pub(super) fn check_footer(footer: &[u8]) -> Result<(), SegmentError> {
    thrift::walk(footer, &mut |_, _| {}).map(|_| ()).ok_or_else(|| malformed("footer"))
}

/// Checks all pages of all columns. Linear in the number of pages.
pub(super) fn check_pages(bytes: &[u8], footer: &ParquetMetaData) -> Result<(), SegmentError> {
    let mut unpacked = 0;
    for group in footer.row_groups() {
        for column in group.columns() {
            check_column(bytes, column, &mut unpacked)?;
        }
    }
    Ok(())
}

fn check_column(bytes: &[u8], column: &ColumnChunkMetaData, unpacked: &mut u64) -> Result<(), SegmentError> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let range = usize::try_from(start).ok().zip(usize::try_from(column.compressed_size()).ok());
    let chunk = range.and_then(|(start, length)| bytes.get(start..start.checked_add(length)?));
    let mut rest = chunk.ok_or_else(|| malformed("column chunk"))?;
    while !rest.is_empty() {
        let mut page = Page::default();
        rest = thrift::walk(rest, &mut |path, value| page.note(path, value))
            .ok_or_else(|| malformed("page header"))?;
        let body = page.check()?;
        *unpacked += page.unpacked_bytes as u64;
        SegmentError::limit("pages in bytes", *unpacked, MAX_UNPACKED_BYTES)?;
        rest = rest.get(body..).ok_or_else(|| malformed("page"))?;
    }
    Ok(())
}

/// What a page's header claims.
#[derive(Default)]
struct Page {
    packed_bytes: i64,
    unpacked_bytes: i64,
    values: i64,
    dictionary_values: i64,
    levels_bytes: i64,
}

impl Page {
    /// Field ids are those of `PageHeader` in parquet.thrift.
    fn note(&mut self, path: &[u64], value: i64) {
        match path {
            [2] => self.unpacked_bytes = value,
            [3] => self.packed_bytes = value,
            [5, 1] | [8, 1] => self.values = value,
            [7, 1] => self.dictionary_values = value,
            [8, 5] | [8, 6] => self.levels_bytes |= value,
            _ => {}
        }
    }

    /// The size of the page's body in the file.
    fn check(&self) -> Result<usize, SegmentError> {
        let fits = (0..=MAX_PAGE_BYTES).contains(&self.unpacked_bytes)
            && (0..=MAX_SEGMENT_ROWS as i64).contains(&self.values)
            // Texts and numbers in a dictionary take four bytes at least.
            && (0..=self.unpacked_bytes / 4).contains(&self.dictionary_values)
            // Our columns have no levels.
            && self.levels_bytes == 0;
        let body = usize::try_from(self.packed_bytes).ok().filter(|_| fits);
        body.ok_or_else(|| malformed("page header"))
    }
}

fn malformed(what: &str) -> SegmentError {
    SegmentError::Parquet(format!("malformed {what}"))
}
