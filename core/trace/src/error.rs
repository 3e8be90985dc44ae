//! Why a command could not be traced.

use std::io;

/// The reason why a recording failed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The command cannot be executed.
    #[error("{command}: {source}")]
    Command {
        /// Its name.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// The folder cannot be written, or the program cannot be followed. The command was killed.
    #[error(transparent)]
    Failed(#[from] io::Error),
}
