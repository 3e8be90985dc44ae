//! Errors of the SQL interface. Each message is one line that says what failed and why.

use std::{io, path::PathBuf, time::Duration};

use dwell_query::QueryError;

use crate::{LoadError, locate};

/// The reason why a statement was not answered.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// There is no libduckdb.
    #[error("{}", locate::how_to_get())]
    NoLibrary,
    /// The libduckdb that was found cannot be used.
    #[error("{0}; {advice}", advice = locate::how_to_get())]
    Library(#[from] LoadError),
    /// A file in the node_modules of the current folder or of the home folder could have been replaced by another user.
    #[error("{}: not loaded, since another user could have changed it: name it by DWELL_DUCKDB to load it all the same", .0.display())]
    UntrustedLibrary(PathBuf),
    /// DuckDB refused or failed to run a statement.
    #[error("{0}")]
    Statement(String),
    /// The statement needs more memory than it may use.
    #[error(
        "the query needs more memory than it may use: group or select less, or give it more with `dwell sql --memory`"
    )]
    Memory,
    /// The process has capabilities that it cannot give up.
    #[error("the capabilities of this process cannot be given up before DuckDB is loaded: {0}")]
    Privileges(io::Error),
    /// The statement took longer than it may.
    #[error("the query took more than {seconds} s: select fewer recordings, images or procedures, or run it with `dwell sql`", seconds = .0.as_secs())]
    TooLong(Duration),
    /// The statement was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// The statement is none that only reads.
    #[error(
        "only queries can be run (SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE, EXPLAIN): dwell sql is read only"
    )]
    NotAQuery,
    /// The statement calls a function that must not be called.
    #[error("the function {0} cannot be used in dwell sql")]
    Forbidden(String),
    /// The text has no statement, or more than the format can hold.
    #[error("{0}")]
    Usage(&'static str),
    /// The database cannot be read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// Output cannot be written.
    #[error("{what}: {source}")]
    Io {
        /// The output.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl From<String> for SqlError {
    fn from(message: String) -> Self {
        match message {
            message if message.starts_with("INTERRUPT") => SqlError::Interrupted,
            message if message.starts_with("Out of Memory") => SqlError::Memory,
            message => SqlError::Statement(message),
        }
    }
}

impl From<dwell_profile::DatabaseError> for SqlError {
    fn from(error: dwell_profile::DatabaseError) -> Self {
        SqlError::Query(error.into())
    }
}

impl SqlError {
    /// Returns the error of an output.
    pub(crate) fn output(source: io::Error) -> Self {
        SqlError::Io { what: "output".to_owned(), source }
    }

    /// Returns the error without the lines of DuckDB's message that draw an arrow to the place in the statement.
    pub fn without_place(self) -> Self {
        match self {
            SqlError::Statement(message) => {
                SqlError::Statement(message.split("\n\nLINE ").next().unwrap_or_default().to_owned())
            }
            error => error,
        }
    }

    /// Returns a stable code for programs, in addition to those of `QueryError`.
    pub fn code(&self) -> &'static str {
        match self {
            SqlError::Query(error) => error.code(),
            SqlError::NoLibrary | SqlError::Library(_) | SqlError::UntrustedLibrary(_) => "no-duckdb",
            SqlError::NotAQuery | SqlError::Forbidden(_) => "not-a-query",
            _ => "sql",
        }
    }
}
