//! Checks the sizes that a file claims before the Parquet crate allocates memory by them.
//!
//! The crate (60.1) trusts the number of values of a dictionary page, the uncompressed size of a page and the lengths
//! in a page header. A few hostile bytes can therefore make it allocate tens of gigabytes, and `catch_unwind` cannot
//! catch a failed allocation.

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use super::{MAX_SEGMENT_ROWS, SegmentError, thrift};

/// Limit of the unpacked size of a page, in bytes. The writer's pages take about 1 MiB.
const MAX_PAGE_BYTES: i64 = 64 << 20;
/// Limit of the unpacked size of all pages, in bytes.
const MAX_UNPACKED_BYTES: u64 = 1 << 30;

/// Checks that the Parquet crate can read the footer in bounded time and memory.
pub(super) fn check_footer(footer: &[u8]) -> Result<(), SegmentError> {
    thrift::walk(footer, &mut |_, _| {}).map(|_| ()).ok_or_else(|| malformed("footer"))
}

/// Checks all pages of all columns, in time linear in the number of pages.
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

/// The claims of a page header.
#[derive(Default)]
struct Page {
    packed_bytes: i64,
    unpacked_bytes: i64,
    values: i64,
    dictionary_values: i64,
    levels_bytes: i64,
}

impl Page {
    /// Notes a field; field ids are those of `PageHeader` in parquet.thrift.
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

    /// Checks the claims and returns the size of the page's body in the file.
    fn check(&self) -> Result<usize, SegmentError> {
        let fits = (0..=MAX_PAGE_BYTES).contains(&self.unpacked_bytes)
            && (0..=MAX_SEGMENT_ROWS as i64).contains(&self.values)
            // A text or a number takes at least four bytes in a dictionary.
            && (0..=self.unpacked_bytes / 4).contains(&self.dictionary_values)
            // Our columns have no definition or repetition levels.
            && self.levels_bytes == 0;
        let body = usize::try_from(self.packed_bytes).ok().filter(|_| fits);
        body.ok_or_else(|| malformed("page header"))
    }
}

fn malformed(what: &str) -> SegmentError {
    SegmentError::Parquet(format!("malformed {what}"))
}
