//! The file `epoch.json`: an epoch's metadata with a version.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{DatabaseError, Epoch, EpochId};

use super::{Database, disk::Disk, layout::EPOCH_FILE};

/// The version of `epoch.json` that this crate writes, and the newest that it reads.
const EPOCH_VERSION: u32 = 1;
/// Size of the largest `epoch.json` that is read, in bytes.
pub(super) const MAX_EPOCH_BYTES: u64 = 16 << 20;

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    #[serde(flatten)]
    epoch: &'a Epoch,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Returns the text of an epoch's file.
pub(super) fn encode(epoch: &Epoch) -> Vec<u8> {
    let mut epoch = epoch.clone();
    // JSON cannot represent infinities, and a `null` in a pair could not be read back.
    epoch.cpu.clock_hz = epoch.cpu.clock_hz.filter(|hz| hz.is_finite());
    epoch.cpu.clock_hz_range =
        epoch.cpu.clock_hz_range.filter(|(low, high)| low.is_finite() && high.is_finite());
    let written = Written { version: EPOCH_VERSION, epoch: &epoch };
    let mut text = serde_json::to_vec_pretty(&written).expect("texts and numbers alone");
    text.push(b'\n');
    text
}

/// Reads the metadata in an epoch's folder. The error gives the reason in the form of a warning.
pub(super) fn read(disk: &dyn Disk, folder: &Path, id: &EpochId) -> Result<Epoch, ReadError> {
    let bytes = disk.read(&folder.join(EPOCH_FILE), MAX_EPOCH_BYTES).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => ReadError::Missing,
        _ => ReadError::Bad(error.to_string()),
    })?;
    decode(&bytes, id).map_err(ReadError::Bad)
}

/// The reason why metadata could not be read.
pub(super) enum ReadError {
    /// The file or the folder does not exist.
    Missing,
    /// The file is unreadable, damaged, not of Dwell, or newer.
    Bad(String),
}

fn decode(bytes: &[u8], id: &EpochId) -> Result<Epoch, String> {
    let Version { version } =
        serde_json::from_slice(bytes).map_err(|e| format!("not the metadata of an epoch: {e}"))?;
    if version > EPOCH_VERSION {
        return Err(format!("epoch version {version}, this dwell reads up to {EPOCH_VERSION}"));
    }
    let epoch: Epoch = serde_json::from_slice(bytes).map_err(|e| format!("malformed metadata: {e}"))?;
    if epoch.id == *id { Ok(epoch) } else { Err(format!("it describes another epoch, {}", epoch.id)) }
}

/// Decodes any bytes as `epoch.json`, for fuzzing and for the replay of its findings. If they can be decoded, the
/// result is encoded and must decode again. A panic is a bug.
pub fn fuzz_epoch_file(bytes: &[u8]) {
    let Ok(epoch) = serde_json::from_slice::<Epoch>(bytes) else {
        let _ = decode(bytes, &EpochId(String::new()));
        return;
    };
    let written = encode(&epoch);
    let read = decode(&written, &epoch.id).expect("what we wrote ourselves");
    assert_eq!(encode(&read), written);
}

impl Database {
    /// Reads an epoch's metadata; returns an error if it is missing or unreadable.
    pub(super) fn read_epoch(&self, id: &EpochId) -> Result<Epoch, DatabaseError> {
        let folder = self.layout.epoch(id)?;
        read(&*self.disk, &folder, id).map_err(|error| match error {
            ReadError::Missing => self.no_such_epoch(&id.0),
            ReadError::Bad(why) => DatabaseError::Damaged { path: folder.join(EPOCH_FILE), why },
        })
    }

    /// Replaces an epoch's metadata. The caller holds the metadata lock.
    pub(super) fn write_epoch(&self, epoch: &Epoch) -> Result<(), DatabaseError> {
        let path = self.layout.epoch(&epoch.id)?.join(EPOCH_FILE);
        self.write_atomically(&self.metadata_temporary(), &path, &encode(epoch))
    }
}
