//! Why an image cannot be read.

use std::io;
use std::path::{Path, PathBuf};

/// Why bytes or a file give no image. Parts that are broken while the rest can be used are no error: they are absent
/// from the answers.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Not an ELF file, or cut off within its header.
    #[error("no ELF file: {0}")]
    NotElf(&'static str),
    /// An ELF file of a kind that Dwell does not know.
    #[error("unsupported ELF file: {0}")]
    Unsupported(String),
    /// Neither segments nor sections can be read: the file is truncated or overwritten.
    #[error("damaged ELF file: {0}")]
    Damaged(&'static str),
}

impl ImageError {
    pub(crate) fn read(path: &Path, error: io::Error) -> Self {
        ImageError::Read { path: path.to_owned(), error }
    }
}
