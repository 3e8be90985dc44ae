//! A segment that was opened: its checksum is right, its rows are not decoded yet.

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::{
    SegmentError,
    decode::{self, Columns, contain},
    metadata::Metadata,
};
use crate::{DimensionSet, EpochId, ImageRecord, database::SegmentRange};

/// A segment whose checksum is right, not decoded yet.
pub(crate) struct Opened {
    pub(super) file: SerializedFileReader<Bytes>,
    metadata: Metadata,
    /// How many rows it has.
    pub(crate) rows: usize,
}

impl Opened {
    /// Checks everything but the rows.
    pub(crate) fn open(bytes: Vec<u8>) -> Result<Self, SegmentError> {
        Opened::open_with(bytes, true)
    }

    /// The same, its checksum only where `verify` says so.
    pub(super) fn open_with(bytes: Vec<u8>, verify: bool) -> Result<Self, SegmentError> {
        contain(|| {
            let (file, metadata, rows) = decode::open(bytes.into(), verify)?;
            Ok(Opened { file, metadata, rows: rows as usize })
        })
    }

    /// Which epoch it belongs to.
    pub(crate) fn epoch(&self) -> EpochId {
        self.metadata.epoch()
    }

    /// Which appends it holds.
    pub(crate) fn range(&self) -> Result<SegmentRange, SegmentError> {
        self.metadata.range()
    }

    /// Which dimensions its samples have.
    pub(crate) fn dimensions(&self) -> Result<DimensionSet, SegmentError> {
        let columns = Columns::find(self.file.metadata().file_metadata().schema_descr())?;
        Ok(columns.dimensions())
    }

    /// What was known of its images.
    pub(crate) fn images(&self) -> Result<Vec<ImageRecord>, SegmentError> {
        self.metadata.images()
    }
}
