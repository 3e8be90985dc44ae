//! Errors of reading an image.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why bytes or a file cannot be read as an image. If only parts are damaged, there is no error: these parts are
/// absent from the answers.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The bytes are not an ELF file, or end within its header.
    #[error("not an ELF file: {0}")]
    NotElf(&'static str),
    /// The ELF file is of a kind that Dwell does not support.
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
