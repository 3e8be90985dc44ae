//! A segment after it was opened: its checksum has been verified, its rows are not decoded yet.

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::{
    SEGMENT_VERSION, SegmentError,
    decode::{self, Columns, contain},
    metadata::Metadata,
};
use crate::{DimensionSet, EpochId, ImageRecord, database::SegmentRange};

/// A segment whose checksum has been verified and whose rows are not decoded yet.
pub(crate) struct Opened {
    pub(super) file: SerializedFileReader<Bytes>,
    metadata: Metadata,
    /// Number of rows.
    pub(crate) rows: usize,
}

impl Opened {
    /// Opens a segment after checking everything except the rows.
    pub(crate) fn open(bytes: Vec<u8>) -> Result<Self, SegmentError> {
        Opened::open_with(bytes, true)
    }

    /// Opens a segment like [`Opened::open`]; the checksum is checked only if `verify` is true.
    pub(super) fn open_with(bytes: Vec<u8>, verify: bool) -> Result<Self, SegmentError> {
        contain(|| {
            let (file, metadata, rows) = decode::open(bytes.into(), verify, SEGMENT_VERSION)?;
            Ok(Opened { file, metadata, rows: rows as usize })
        })
    }

    /// Returns the epoch that the segment belongs to.
    pub(crate) fn epoch(&self) -> EpochId {
        self.metadata.epoch()
    }

    /// Returns the appends that the segment holds.
    pub(crate) fn range(&self) -> Result<SegmentRange, SegmentError> {
        self.metadata.range()
    }

    /// Returns the dimensions of its samples.
    pub(crate) fn dimensions(&self) -> Result<DimensionSet, SegmentError> {
        let columns = Columns::find(self.file.metadata().file_metadata().schema_descr())?;
        Ok(columns.dimensions())
    }

    /// Returns what was known about its images.
    pub(crate) fn images(&self) -> Result<Vec<ImageRecord>, SegmentError> {
        self.metadata.images()
    }
}
