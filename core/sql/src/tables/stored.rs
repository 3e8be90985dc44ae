//! Rows of analysed tables that were computed before and stored beside the recordings, as the job in `fleet/` does.
//!
//! Enters: the database and what a statement selects. Leaves: files, and which epochs and images they cover. A statement
//! sees no difference between rows that were computed before and rows that are computed for it.

use std::{collections::BTreeSet, path::PathBuf};

use dwell_profile::{Database, DatabaseError, Epoch, EpochId, ImageId, StoredRows};

use crate::{
    duckdb::Connection,
    segments::literal,
    selected::{Selected, Selection},
};

/// The tables whose rows may be stored.
pub const TABLES: [&str; 5] = ["instructions", "stalls", "blocks", "edges", "analyses"];

/// The stored rows that a statement may need, by table.
#[derive(Debug, Default)]
pub struct Stored(Vec<(&'static str, Vec<StoredRows>)>);

impl Stored {
    /// Finds the files of these tables for the statements, each with what it selects.
    pub fn of(
        database: &Database,
        epochs: &[Epoch],
        tables: &BTreeSet<String>,
        selected: &[Selected],
    ) -> Result<Self, DatabaseError> {
        let known: BTreeSet<&EpochId> = epochs.iter().map(|epoch| &epoch.id).collect();
        let mut found = Vec::new();
        for table in TABLES.into_iter().filter(|table| tables.contains(*table)) {
            let selections: Vec<Selection> =
                selected.iter().flat_map(|selected| selected.of(table)).collect();
            let takes = |rows: &StoredRows| {
                known.contains(&rows.epoch) && selections.iter().any(|selection| may_take(selection, rows))
            };
            found.push((table, database.stored_rows(table, &takes)?));
        }
        Ok(Stored(found))
    }

    /// Leaves out files whose rows are not those of the table, the epoch and the image that their place says, as anyone who may write
    /// there can put them. `list_of` names files for DuckDB. Returns why each was left out.
    pub fn check(&mut self, connection: &Connection, list_of: &dyn Fn(&PathBuf) -> String) -> Vec<String> {
        let mut left_out = Vec::new();
        for (table, all) in &mut self.0 {
            let columns = super::columns_of(table).join(", ");
            all.retain(|rows| {
                let (epoch, image) = (literal(&rows.epoch.0), literal(rows.image.as_str()));
                let sql = format!(
                    "SELECT count(*)::VARCHAR FROM (SELECT {columns} FROM read_parquet({}))
                     WHERE epoch IS DISTINCT FROM {epoch} OR image IS DISTINCT FROM {image}",
                    list_of(&rows.path)
                );
                let counted = connection.prepare(&sql).and_then(|prepared| prepared.execute()?.texts());
                let why = match counted {
                    Ok(strange) if strange == ["0"] => return true,
                    Ok(_) => "it holds rows of something else".to_owned(),
                    Err(why) => why.lines().next().unwrap_or_default().to_owned(),
                };
                let place =
                    format!("stored rows of {table}, recording {}, binary {}", rows.epoch, rows.image);
                left_out.push(format!("{place}: {why}; left out, computed anew"));
                false
            });
        }
        left_out
    }

    /// Returns the files of a table, relative to the folder of the database.
    pub fn files_of(&self, table: &str) -> Vec<PathBuf> {
        self.rows_of(table).iter().map(|rows| rows.path.clone()).collect()
    }

    /// Returns all files.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.iter().flat_map(|(_, rows)| rows.iter().map(|rows| &rows.path))
    }

    /// Returns whether the rows of an image in an epoch are stored.
    pub fn has(&self, table: &str, epoch: &EpochId, image: &ImageId) -> bool {
        self.rows_of(table).iter().any(|rows| rows.epoch == *epoch && rows.image == *image)
    }

    fn rows_of(&self, table: &str) -> &[StoredRows] {
        self.0.iter().find(|(name, _)| *name == table).map_or(&[], |(_, rows)| rows)
    }
}

/// Returns whether a statement may need the rows. It may name an epoch by `latest` or its name, and an image by its path; neither looks like
/// an id.
fn may_take(selection: &Selection, rows: &StoredRows) -> bool {
    let is_build_id = |name: &String| ImageId::named(name).build_id().is_some();
    let is_id = |name: &String| name.len() > 16 && name.as_bytes()[8] == b'T';
    let image = selection
        .images
        .as_ref()
        .is_none_or(|names| names.contains(rows.image.as_str()) || !names.iter().all(is_build_id));
    let epoch = selection
        .epochs
        .as_ref()
        .is_none_or(|names| names.contains(&rows.epoch.0) || !names.iter().all(is_id));
    image && epoch
}
