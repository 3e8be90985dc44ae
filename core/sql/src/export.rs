//! Writes the tables as Parquet files, for people with another engine.
//!
//! Enters: a database. Leaves: a folder with a file for each table and `prelude.sql`, which makes the same tables and
//! macros of them in another DuckDB. Nothing in the folder depends on this machine.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use dwell_query::Options;

use crate::{
    Engine, Format, Limits, SqlError, Stopper,
    segments::literal,
    session::{Session, VIEWS},
    tables::COMPUTED,
};

/// Name of the script.
const PRELUDE: &str = "prelude.sql";

/// Writes all tables into `folder`, which must be empty or missing. `started` gets an object that stops the export.
/// Returns warnings about what was left out.
pub fn export(
    engine: &Engine,
    options: Options,
    limits: &Limits,
    folder: &Path,
    started: &mut dyn FnMut(Stopper),
) -> Result<Vec<String>, SqlError> {
    let io = |source| SqlError::Io { what: folder.display().to_string(), source };
    fs::create_dir_all(folder).map_err(io)?;
    if fs::read_dir(folder).map_err(io)?.next().is_some() {
        return Err(SqlError::Usage("export: the folder has files already: name a new one"));
    }
    let session = Session::unlocked(engine, options, limits, None, Format::Table)?;
    started(session.stopper());
    let mut prelude =
        String::from("-- Tables of Dwell, version 1 (docs/sql.md). Run this in the folder of this file.\n");
    let names = COMPUTED.iter().map(|table| table.name).chain(["samples", "totals"]);
    for name in names {
        let path: PathBuf = folder.join(format!("{name}.parquet"));
        let path = path.to_str().ok_or(SqlError::Usage("export: the folder's name is not UTF-8"))?;
        session.run_own(&format!(
            "COPY (SELECT * FROM {name}) TO {} (FORMAT parquet, COMPRESSION zstd)",
            literal(path)
        ))?;
        writeln!(prelude, "CREATE VIEW {name} AS SELECT * FROM read_parquet('{name}.parquet');")
            .expect("a String takes every text");
    }
    prelude.push('\n');
    prelude.push_str(VIEWS);
    fs::write(folder.join(PRELUDE), prelude).map_err(io)?;
    Ok(session.warnings().to_vec())
}
