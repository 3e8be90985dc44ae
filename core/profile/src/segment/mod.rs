//! One segment: counts and image records ⇄ the bytes of a Parquet file. This module does not access the file system.
//!
//! `FORMAT.md` describes the columns and the key-value metadata. Input may be hostile: reading returns an error and
//! never panics, and [`MAX_SEGMENT_BYTES`] and [`MAX_SEGMENT_ROWS`] bound its memory.

mod analyses;
mod base64;
mod call_stacks;
mod columns;
mod counts;
mod decode;
mod encode;
mod evidence;
mod key;
mod merge;
mod metadata;
mod names;
mod opened;
mod output;
mod page_walk;
mod readers;
mod runs;
mod signed;
mod stream;
mod symbols;
#[cfg(test)]
mod tests;
mod thrift;
mod totals;

pub(crate) use analyses::read_analyses;
pub(crate) use call_stacks::{check_stacks, encode_stacks, read_stacks};
pub(crate) use counts::{encode_counts, read_counts};
pub(crate) use decode::{BesideFile, read_owned};
pub use decode::{read_segment, read_segment_unverified};
pub(crate) use encode::encode;
pub(crate) use evidence::{encode_evidence, read_evidence};
pub(crate) use merge::merge_segments;
pub(crate) use opened::Opened;
pub(crate) use signed::with_signed_integers;
pub use stream::{SampleRun, sum_runs_unverified};
pub(crate) use stream::{each_run, encode_runs};
pub use symbols::encode_symbols;
pub(crate) use symbols::read_symbols;
pub use totals::{TotalRow, encode_totals};

use crate::{EpochId, ImageRecord, SampleKey, database::SegmentRange};

/// The version of segments, of execution counts and of call stacks that this crate writes, and the newest that it reads.
pub const SEGMENT_VERSION: u32 = 1;
/// Size of the largest file that is read, in bytes.
pub const MAX_SEGMENT_BYTES: u64 = 256 << 20;
/// Number of rows that a segment may have.
pub const MAX_SEGMENT_ROWS: usize = 8 << 20;
/// Size limit of an image's id, an event's name or an application's name, in bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// Reads bytes as files that lie beside the segments, without verifying the checksum, which would keep a fuzzer from
/// reaching the code after it. A panic is a bug.
#[doc(hidden)]
pub fn fuzz_beside(bytes: &[u8]) {
    let _ = read_evidence(bytes, false);
    let _ = read_counts(bytes, false);
    let _ = read_stacks(bytes, false);
    let _ = read_symbols(bytes, &crate::ImageId::unknown(), false);
    let _ = read_analyses(bytes, &EpochId(String::new()), &crate::ImageId::unknown());
}

/// The contents of a segment.
#[derive(Debug)]
pub struct Segment {
    /// The epoch that the segment belongs to.
    pub epoch: EpochId,
    /// The appends of that epoch that the segment holds.
    pub range: SegmentRange,
    /// What was known about the images when the samples were taken.
    pub images: Vec<ImageRecord>,
    /// Samples by key. If a key occurs more than once, its counts must be added up.
    pub rows: Vec<(SampleKey, u64)>,
}

/// The reason why bytes are not a segment, or counts cannot be encoded as one.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SegmentError {
    /// The Parquet crate found the file malformed.
    #[error("not a readable Parquet file: {0}")]
    Parquet(String),
    /// The Parquet crate panicked: hostile input can violate its assumptions.
    #[error("not a readable Parquet file: the decoder gave up: {0}")]
    Decoder(String),
    /// The file is a Parquet file, but was not written by Dwell.
    #[error("a Parquet file, but no segment of Dwell's: its metadata has no `{0}`")]
    Foreign(&'static str),
    /// The file was written by a newer Dwell.
    #[error("segment version {found}, this dwell reads up to {newest}")]
    Newer {
        /// The version that the file names.
        found: u32,
        /// The newest version of such files that can be read.
        newest: u32,
    },
    /// The bytes differ from those that were written.
    #[error("its checksum does not match: the file is damaged")]
    Checksum,
    /// A part of the metadata is malformed.
    #[error("its metadata `{key}` is malformed: {why}")]
    Metadata {
        /// The key of that metadata.
        key: &'static str,
        /// The reason.
        why: String,
    },
    /// A column is missing or has another type.
    #[error("its column `{column}` {why}")]
    Column {
        /// Name of the column.
        column: &'static str,
        /// The reason.
        why: String,
    },
    /// Something exceeds its limit.
    #[error("too large: {what} {found}, the limit is {limit}")]
    TooLarge {
        /// The thing that is too large.
        what: &'static str,
        /// Its size or number.
        found: u64,
        /// The limit.
        limit: u64,
    },
}

impl SegmentError {
    fn limit(what: &'static str, found: u64, limit: u64) -> Result<(), Self> {
        if found > limit { Err(SegmentError::TooLarge { what, found, limit }) } else { Ok(()) }
    }
}

impl From<parquet::errors::ParquetError> for SegmentError {
    fn from(error: parquet::errors::ParquetError) -> Self {
        SegmentError::Parquet(error.to_string())
    }
}
