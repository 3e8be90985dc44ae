//! Rows of analysed tables that a job computed and stored beside the recordings.
//!
//! Enters: a table, an epoch, an image. Leaves: files, or the analyses in them. Never here: what an analysis says.

use std::path::Path;

use crate::{
    DatabaseError, EpochId, ImageOffset, StoredRows,
    error::IoContext,
    segment::{MAX_SEGMENT_BYTES, read_analyses},
};

use super::Database;

/// The table of the analyses.
const ANALYSES: &str = "analyses";

/// The analysis of a procedure, as it was stored. Its text says more than the rows of other tables do, and is for Dwell itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnalysis {
    /// Offset of the procedure's first byte in the image.
    pub start: ImageOffset,
    /// The analysis. It is untrusted: whoever may write beside the recordings wrote it.
    pub text: Box<str>,
}

impl Database {
    /// Returns the files of rows of a table that were computed before, as far as `takes` wants them. Paths are relative to the folder of
    /// the database; the files are there when this returns.
    pub fn stored_rows(
        &self,
        table: &str,
        takes: &dyn Fn(&StoredRows) -> bool,
    ) -> Result<Vec<StoredRows>, DatabaseError> {
        let mut found = self.disk.stored_rows(table, None).context("list", self.path())?;
        found.retain(takes);
        for stored in &mut found {
            self.disk.read(&stored.path, MAX_SEGMENT_BYTES).context("read", &stored.path)?;
            stored.path = stored.path.strip_prefix(self.path()).map(Path::to_owned).unwrap_or_default();
        }
        Ok(found)
    }

    /// Returns the files of the analyses of an epoch that were stored, each of one image.
    pub fn stored_analyses(&self, epoch: &EpochId) -> Result<Vec<StoredRows>, DatabaseError> {
        self.disk.stored_rows(ANALYSES, Some(epoch)).context("list", self.path())
    }

    /// Reads the analyses of a file that [`Database::stored_analyses`] found.
    pub fn read_analyses(&self, stored: &StoredRows) -> Result<Vec<StoredAnalysis>, DatabaseError> {
        let bytes = self.disk.read(&stored.path, MAX_SEGMENT_BYTES).context("read", &stored.path)?;
        read_analyses(&bytes, &stored.epoch, &stored.image).map_err(|error| DatabaseError::Damaged {
            path: stored.path.clone(),
            why: format!("stored analyses of recording {}, binary {}: {error}", stored.epoch, stored.image),
        })
    }
}
