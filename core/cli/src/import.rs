//! `dwell import`: of a perf.data file, or of a table of counts.

use std::path::Path;

use dwell_exchange::{ImportFile, import_perf_data};
use dwell_profile::{Database, Unit};
use dwell_query::{ImportRequest, import_counts};
use jiff::Timestamp;

use crate::args::{ImportArgs, PeriodUnit};

/// Stores what is in the file and prints the epoch's id.
pub fn run(db: &Path, args: &ImportArgs, json: bool) -> anyhow::Result<()> {
    let database = Database::open(db)?;
    match (&args.file, table(args)) {
        (Some(path), _) => file(&database, path, args, json),
        (None, Some(request)) => {
            let id = import_counts(&database, &request, Timestamp::now())?;
            match json {
                true => crate::print_json(&serde_json::json!({ "schema": 1, "epoch": id })),
                false => crate::print(&format!("epoch {id}\n")),
            }
        }
        (None, None) => {
            anyhow::bail!("import: a table needs --image, --machine, --event, --period and --unit")
        }
    }
}

fn file(database: &Database, path: &Path, args: &ImportArgs, json: bool) -> anyhow::Result<()> {
    let request = ImportFile {
        path: path.to_owned(),
        symfs: args.symfs.clone(),
        debug_dirs: vec!["/usr/lib/debug".into()],
        perf_cache: std::env::home_dir().map(|home| home.join(".debug")),
        kallsyms: args.kallsyms.clone(),
        clock_hz: args.clock_hz,
        name: args.name.clone(),
    };
    let imported = import_perf_data(database, &request, Timestamp::now())?;
    if json {
        return crate::print_json(&imported);
    }
    imported.notes.iter().for_each(|note| crate::complain(&format!("import: {note}")));
    crate::print(&format!("epoch {}\n", imported.epoch))
}

fn table(args: &ImportArgs) -> Option<ImportRequest> {
    Some(ImportRequest {
        counts: args.counts.clone()?,
        images: args.image.clone(),
        machine: args.machine.clone()?,
        event: args.event.clone()?,
        period: args.period?,
        unit: match args.unit? {
            PeriodUnit::Cycles => Unit::Cycles,
            PeriodUnit::Ns => Unit::Nanoseconds,
        },
        clock_hz: args.clock_hz,
        name: args.name.clone(),
    })
}
