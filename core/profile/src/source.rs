//! The records of the source files that an epoch keeps for its images.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Size of the largest source file that is kept, in bytes.
pub const MAX_SOURCE_BYTES: u64 = 16 << 20;

/// A source file as it was when an epoch was recorded. Its text is stored in the database under its hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceRecord {
    /// The path as debug information spells it.
    #[serde(with = "crate::path_text")]
    pub path: PathBuf,
    /// BLAKE3 hash of the file's bytes, as 64 hexadecimal digits.
    pub blake3: String,
    /// Size of the file in bytes.
    pub size_bytes: u64,
}

impl SourceRecord {
    /// Returns the record of a file with these bytes.
    pub fn new(path: &Path, bytes: &[u8]) -> Self {
        SourceRecord {
            path: path.to_owned(),
            blake3: blake3::hash(bytes).to_hex().to_string(),
            size_bytes: bytes.len() as u64,
        }
    }

    /// Returns whether these bytes are the ones that were recorded.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.size_bytes && blake3::hash(bytes).to_hex().as_str() == self.blake3
    }

    /// Returns whether the hash is spelled as Dwell spells it, so that it can be used in the name of a file.
    pub(crate) fn is_well_formed(&self) -> bool {
        self.blake3.len() == 64 && self.blake3.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    }
}
