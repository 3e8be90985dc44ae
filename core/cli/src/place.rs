//! Determines the place of the database.

use std::path::{Path, PathBuf};

use anyhow::Context;
use dwell_fleet::Location;

use crate::args::Since;

/// Returns `given` (from `--db` or `DWELL_DB`), otherwise `$XDG_DATA_HOME/dwell`, otherwise `~/.local/share/dwell`. If it is in a
/// bucket, only the recordings of `hosts` are wanted, if there are any, and those since a day.
pub fn database(given: Option<&Path>, hosts: &[String], since: Option<Since>) -> anyhow::Result<PathBuf> {
    let place = given.map_or_else(usual, |given| Ok(given.to_owned()))?;
    let wanted = [(!hosts.is_empty()).then_some("--host"), since.map(|_| "--since")];
    let wanted = wanted.into_iter().flatten().next().filter(|_| !Location::is_remote(&place));
    if let Some(wanted) = wanted {
        anyhow::bail!(
            "{}: {wanted} selects among the recordings in a bucket (--db s3://BUCKET/PREFIX); this is a folder",
            place.display()
        );
    }
    let day = since.map(|Since(time)| time.strftime("%Y-%m-%d").to_string());
    Ok(Location::narrowed(place, hosts, day.as_deref()))
}

/// Returns the same as [`database`] for commands that change a database, which must be a folder.
pub fn folder(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let place = database(given, &[], None)?;
    anyhow::ensure!(
        !Location::is_remote(&place),
        "{}: recordings in a bucket are only read; make them in a folder and send them by dwell push",
        place.display()
    );
    Ok(place)
}

fn usual() -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    Ok(data
        .context("database: none of DWELL_DB, XDG_DATA_HOME and HOME is set: name its folder with --db")?
        .join("dwell"))
}
