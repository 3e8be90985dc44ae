//! The key-value metadata of a segment: its identity, its image records, and the checksum over them and the data.

use std::io::Read;

use parquet::file::{
    metadata::{FileMetaData, KeyValue},
    writer::SerializedFileWriter,
};

use crate::{EpochId, ImageRecord, database::SegmentRange};

use super::{SEGMENT_VERSION, SegmentError, base64};

pub(super) const VERSION: &str = "dwell.version";
pub(super) const EPOCH: &str = "dwell.epoch";
pub(super) const APPENDS: &str = "dwell.appends";
pub(super) const IMAGES: &str = "dwell.images";
pub(super) const CHECKSUM: &str = "dwell.blake3";

/// Size limit of the unpacked image records, in bytes. All symbols of a kernel take 20 MiB.
const MAX_IMAGES_BYTES: u64 = 128 << 20;

/// The metadata as texts, in the order in which the checksum covers them.
pub(super) struct Metadata {
    /// The version of the file. The checksum covers it from version 2 on.
    pub(super) version: u32,
    pub(super) epoch: String,
    pub(super) appends: String,
    pub(super) images: String,
}

impl Metadata {
    pub(super) fn new(
        epoch: &EpochId,
        range: SegmentRange,
        images: &[ImageRecord],
    ) -> Result<Self, SegmentError> {
        let (epoch, appends, images) = (epoch.0.clone(), range.to_string(), pack_images(images)?);
        Ok(Metadata { version: SEGMENT_VERSION, epoch, appends, images })
    }

    /// Reads all metadata except the checksum. `newest` is the newest version that can be read. The errors distinguish
    /// foreign and newer files from damaged ones.
    pub(super) fn of_file(file: &FileMetaData, newest: u32) -> Result<Self, SegmentError> {
        let text = value(file, VERSION)?;
        let version: u32 = text.parse().map_err(|_| malformed(VERSION, format!("'{text}' is no number")))?;
        if version == 0 {
            return Err(malformed(VERSION, "there is no version 0"));
        }
        if version > newest {
            return Err(SegmentError::Newer { found: version, newest });
        }
        let text = |key| value(file, key).map(str::to_owned);
        Ok(Metadata { version, epoch: text(EPOCH)?, appends: text(APPENDS)?, images: text(IMAGES)? })
    }

    pub(super) fn epoch(&self) -> EpochId {
        EpochId(self.epoch.clone())
    }

    pub(super) fn range(&self) -> Result<SegmentRange, SegmentError> {
        SegmentRange::parse(&self.appends).ok_or_else(|| malformed(APPENDS, format!("'{}'", self.appends)))
    }

    pub(super) fn images(&self) -> Result<Vec<ImageRecord>, SegmentError> {
        unpack_images(&self.images)
    }

    /// Returns `<length of the data>:<BLAKE3 of the data and this metadata>`, the value of `CHECKSUM`.
    fn checksum(&self, data: &[u8]) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(data);
        let version = (self.version > 1).then(|| self.version.to_string());
        for text in [&self.epoch, &self.appends, &self.images].into_iter().chain(&version) {
            hasher.update(b"\n").update(text.as_bytes());
        }
        format!("{}:{}", data.len(), hasher.finalize().to_hex())
    }

    pub(super) fn verify(&self, file: &FileMetaData, bytes: &[u8]) -> Result<(), SegmentError> {
        let stored = value(file, CHECKSUM)?;
        let data_bytes = stored.split_once(':').and_then(|(length, _)| length.parse::<usize>().ok());
        let data = data_bytes.and_then(|n| bytes.get(..n)).ok_or(SegmentError::Checksum)?;
        if self.checksum(data) == stored { Ok(()) } else { Err(SegmentError::Checksum) }
    }

    /// Ends a file, to which all row groups are written, with this metadata and returns its bytes.
    pub(super) fn close(&self, mut file: SerializedFileWriter<Vec<u8>>) -> Result<Vec<u8>, SegmentError> {
        file.flush().map_err(|e| SegmentError::Parquet(e.to_string()))?;
        let checksum = self.checksum(file.inner());
        for (key, value) in [
            (VERSION, &self.version.to_string()),
            (EPOCH, &self.epoch),
            (APPENDS, &self.appends),
            (IMAGES, &self.images),
            (CHECKSUM, &checksum),
        ] {
            file.append_key_value_metadata(KeyValue::new(key.to_owned(), value.clone()));
        }
        Ok(file.into_inner()?)
    }
}

fn value<'a>(file: &'a FileMetaData, key: &'static str) -> Result<&'a str, SegmentError> {
    let all = file.key_value_metadata().map_or(&[][..], Vec::as_slice);
    let found = all.iter().find(|kv| kv.key == key).and_then(|kv| kv.value.as_deref());
    found.ok_or(SegmentError::Foreign(key))
}

fn malformed(key: &'static str, why: impl ToString) -> SegmentError {
    SegmentError::Metadata { key, why: why.to_string() }
}

/// Packs image records as base64 of zstd of JSON: values in Parquet are texts, and 2,000 kernel symbols take 120 KB as
/// plain JSON.
fn pack_images(images: &[ImageRecord]) -> Result<String, SegmentError> {
    let json = serde_json::to_vec(images).map_err(|e| malformed(IMAGES, e))?;
    SegmentError::limit("image records in bytes", json.len() as u64, MAX_IMAGES_BYTES)?;
    let packed = zstd::encode_all(json.as_slice(), 3).map_err(|e| malformed(IMAGES, e))?;
    Ok(base64::encode(&packed))
}

fn unpack_images(text: &str) -> Result<Vec<ImageRecord>, SegmentError> {
    let packed = base64::decode(text).ok_or_else(|| malformed(IMAGES, "no base64"))?;
    let mut json = Vec::new();
    let decoder = zstd::Decoder::new(packed.as_slice()).map_err(|e| malformed(IMAGES, e))?;
    decoder.take(MAX_IMAGES_BYTES + 1).read_to_end(&mut json).map_err(|e| malformed(IMAGES, e))?;
    SegmentError::limit("image records in bytes", json.len() as u64, MAX_IMAGES_BYTES)?;
    serde_json::from_slice(&json).map_err(|e| malformed(IMAGES, e))
}
