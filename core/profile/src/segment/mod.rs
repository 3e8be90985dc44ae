//! One segment: counts and image records ⇄ the bytes of a Parquet file. No file system here.
//!
//! `FORMAT.md` has the columns and the key-value metadata. Reading takes hostile bytes: it returns an error, never
//! panics, and its memory is bounded by [`MAX_SEGMENT_BYTES`] and [`MAX_SEGMENT_ROWS`].

mod base64;
mod columns;
mod counts;
mod decode;
mod encode;
mod key;
mod merge;
mod metadata;
mod names;
mod opened;
mod output;
mod page_walk;
mod paths;
mod readers;
mod runs;
mod stream;
#[cfg(test)]
mod tests;
mod thrift;

pub(crate) use counts::encode_counts;
pub use counts::{CountSegment, read_counts, read_counts_unverified};
pub(crate) use decode::read_owned;
pub use decode::{read_segment, read_segment_unverified};
pub(crate) use encode::encode;
pub(crate) use merge::merge_segments;
pub(crate) use opened::Opened;
pub(crate) use paths::encode_paths;
pub use paths::{PathSegment, read_paths, read_paths_unverified};
pub use stream::{SampleRun, sum_runs_unverified};
pub(crate) use stream::{each_run, encode_runs};

use crate::{EpochId, ImageRecord, SampleKey, database::SegmentRange};

/// The version of segments that this crate writes, and the newest that it reads.
pub const SEGMENT_VERSION: u32 = 1;
/// Size of the largest file that is read, in bytes.
pub const MAX_SEGMENT_BYTES: u64 = 256 << 20;
/// Rows that a segment may have.
pub const MAX_SEGMENT_ROWS: usize = 8 << 20;
/// Size of an image's id, an event's or an application's name, in bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// A segment's contents.
#[derive(Debug)]
pub struct Segment {
    /// Which epoch it belongs to.
    pub epoch: EpochId,
    /// Which of that epoch's appends it holds.
    pub range: SegmentRange,
    /// What was known of the images when the samples were taken.
    pub images: Vec<ImageRecord>,
    /// Samples by key. A key may come more than once: add them up.
    pub rows: Vec<(SampleKey, u64)>,
}

/// Why bytes are not a segment, or counts cannot become one.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SegmentError {
    /// The Parquet layer found it malformed.
    #[error("not a readable Parquet file: {0}")]
    Parquet(String),
    /// The Parquet layer stumbled over its own assumptions (it is not ours, and hostile input can do that).
    #[error("not a readable Parquet file: the decoder gave up: {0}")]
    Decoder(String),
    /// A Parquet file, but none of ours.
    #[error("a Parquet file, but no segment of Dwell's: its metadata has no `{0}`")]
    Foreign(&'static str),
    /// Written by a newer Dwell.
    #[error("segment version {found}, this dwell reads up to {SEGMENT_VERSION}")]
    Newer {
        /// The version it names.
        found: u32,
    },
    /// The bytes are not those that were written.
    #[error("its checksum does not match: the file is damaged")]
    Checksum,
    /// A part of the metadata cannot be understood.
    #[error("its metadata `{key}` is malformed: {why}")]
    Metadata {
        /// The key.
        key: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A column is missing or of another type.
    #[error("its column `{column}` {why}")]
    Column {
        /// The column.
        column: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Larger than a segment may be.
    #[error("too large: {what} {found}, the limit is {limit}")]
    TooLarge {
        /// What was measured.
        what: &'static str,
        /// How much there is.
        found: u64,
        /// How much there may be.
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
