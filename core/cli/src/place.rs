//! Determines the folder of the database.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Returns `given` (from `--db` or `DWELL_DB`), otherwise `$XDG_DATA_HOME/dwell`, otherwise `~/.local/share/dwell`.
pub fn database(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    Ok(data
        .context("database: none of DWELL_DB, XDG_DATA_HOME and HOME is set: name its folder with --db")?
        .join("dwell"))
}
