//! Runs `dwell epoch list|new|rename|remove`.

use std::path::Path;

use dwell_profile::Database;
use dwell_query::{Options, Query};
use serde_json::json;

use crate::{
    args::EpochVerb,
    complain, print, print_json,
    text::{DIM, paint},
    top::heading,
};

/// Runs one of the verbs of `dwell epoch`.
pub fn run(db: &Path, verb: &EpochVerb, json: bool) -> anyhow::Result<()> {
    match verb {
        EpochVerb::List => list(&Query::open(Options::for_database(db))?, json),
        EpochVerb::New { name } => {
            let id = crate::daemon::new_epoch(db, name.as_deref())?;
            tell(json, &json!({ "schema": 1, "epoch": id }), &format!("epoch {id}"))
        }
        EpochVerb::Rename { epoch, name } => {
            let id = Query::open(Options::for_database(db))?.rename_epoch(epoch, name)?;
            tell(json, &json!({ "schema": 1, "epoch": id, "name": name }), &format!("epoch {id} '{name}'"))
        }
        EpochVerb::Remove { epochs } => remove(db, epochs, json),
        EpochVerb::KeepSources { epoch } => {
            crate::collect::keep_sources(db, &Database::open(db)?.resolve(epoch)?.id);
            Ok(())
        }
    }
}

/// Lists the recordings.
pub fn list(query: &Query, json: bool) -> anyhow::Result<()> {
    let list = query.epochs()?;
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
        text += "no recording yet: make one with 'dwell record -- CMD'\n";
    }
    list.warnings.iter().for_each(|w| complain(&format!("warning: {w}")));
    print(&text)
}

fn remove(db: &Path, selectors: &[String], json: bool) -> anyhow::Result<()> {
    let ids = Query::open(Options::for_database(db))?.remove_epochs(selectors)?;
    let names = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    tell(json, &json!({ "schema": 1, "removed": ids }), &format!("removed {names}"))
}

fn tell(json: bool, object: &serde_json::Value, text: &str) -> anyhow::Result<()> {
    if json { print_json(object) } else { print(&format!("{text}\n")) }
}
