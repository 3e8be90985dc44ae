//! `dwell epoch list|new|rename|remove`.

use std::path::Path;

use dwell_profile::{Database, EpochId};
use dwell_query::{Options, Query};
use serde_json::json;

use crate::{
    args::EpochVerb,
    complain, print, print_json,
    text::{DIM, paint},
    top::heading,
};

/// Does what the verb says.
pub fn run(db: &Path, verb: &EpochVerb, json: bool) -> anyhow::Result<()> {
    match verb {
        EpochVerb::List => list(db, json),
        EpochVerb::New { name } => {
            let id = crate::daemon::new_epoch(db, name.as_deref())?;
            tell(json, &json!({ "schema": 1, "epoch": id }), &format!("epoch {id}"))
        }
        EpochVerb::Rename { epoch, name } => {
            let database = Database::open(db)?;
            let id = database.resolve(epoch)?.id;
            database.rename(&id, name)?;
            tell(json, &json!({ "schema": 1, "epoch": id, "name": name }), &format!("epoch {id} '{name}'"))
        }
        EpochVerb::Remove { epochs } => remove(db, epochs, json),
        EpochVerb::KeepSources { epoch } => {
            crate::collect::keep_sources(db, &Database::open(db)?.resolve(epoch)?.id);
            Ok(())
        }
    }
}

fn list(db: &Path, json: bool) -> anyhow::Result<()> {
    let list = Query::open(Options::for_database(db))?.epochs()?;
    if json {
        return print_json(&list);
    }
    let mut text = String::new();
    for epoch in &list.epochs {
        text += &format!("{}\n", heading(epoch));
        let on = format!("  on {} ({}), {}", epoch.host, epoch.cpu, epoch.backend);
        text += &format!("{}\n", paint(DIM, on));
        epoch.notes.iter().for_each(|n| text += &format!("{}\n", paint(DIM, format!("  note: {n}"))));
    }
    if list.epochs.is_empty() {
        text += "no epoch yet: 'dwell record -- CMD' makes one\n";
    }
    list.warnings.iter().for_each(|w| complain(&format!("warning: {w}")));
    print(&text)
}

/// Resolves every selector before anything is removed, since `latest~1` means another epoch afterwards.
fn remove(db: &Path, selectors: &[String], json: bool) -> anyhow::Result<()> {
    let database = Database::open(db)?;
    let mut ids = selectors.iter().map(|s| removable(&database, s)).collect::<anyhow::Result<Vec<_>>>()?;
    ids.sort();
    ids.dedup();
    ids.iter().try_for_each(|id| database.remove(id))?;
    let names = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    tell(json, &json!({ "schema": 1, "removed": ids }), &format!("removed {names}"))
}

/// What the selector names; an epoch that cannot be read answers to its full id.
fn removable(database: &Database, selector: &str) -> anyhow::Result<EpochId> {
    let unreadable = |id: &EpochId| database.path().join("epochs").join(&id.0).is_dir();
    match database.resolve(selector) {
        Ok(epoch) => Ok(epoch.id),
        Err(error) => {
            let id = EpochId(selector.to_owned());
            let is_id =
                selector.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') && !selector.is_empty();
            if is_id && unreadable(&id) { Ok(id) } else { Err(error.into()) }
        }
    }
}

fn tell(json: bool, object: &serde_json::Value, text: &str) -> anyhow::Result<()> {
    if json { print_json(object) } else { print(&format!("{text}\n")) }
}
