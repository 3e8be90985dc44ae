//! Runs `dwell import` for a perf.data file or a table of counts.

use std::path::{Path, PathBuf};

use dwell_exchange::{Fetched, ImportFile, Limits, Servers, import_perf_data};
use dwell_profile::{Database, Unit};
use dwell_query::{ImportRequest, fetched_dir, import_counts};
use jiff::Timestamp;

use crate::args::{ImportArgs, PeriodUnit};

/// Stores the contents of the file as an epoch and prints the epoch's id.
pub fn run(db: &Path, args: &ImportArgs, debug_dirs: Vec<PathBuf>, json: bool) -> anyhow::Result<()> {
    let database = Database::open(db)?;
    match (&args.file, table(args)) {
        (Some(path), _) => file(&database, &request(path, args, debug_dirs)?, json),
        (None, Some(request)) => {
            let id = import_counts(&database, &request, Timestamp::now())?;
            match json {
                true => crate::print_json(&serde_json::json!({ "schema": 1, "epoch": id })),
                false => crate::print(&format!("epoch {id}\n")),
            }
        }
        (None, None) => {
            anyhow::bail!("import: --counts needs --image, --machine, --event, --period and --unit")
        }
    }
}

fn request(path: &Path, args: &ImportArgs, debug_dirs: Vec<PathBuf>) -> anyhow::Result<ImportFile> {
    let urls: Vec<String> = args.debuginfod.iter().filter(|url| !url.is_empty()).cloned().collect();
    let is_url = |url: &&String| url.starts_with("http://") || url.starts_with("https://");
    if let Some(other) = urls.iter().find(|url| !is_url(url)) {
        anyhow::bail!("import: --debuginfod '{other}': expected a URL with http:// or https://");
    }
    let cache = fetched_dir();
    anyhow::ensure!(
        urls.is_empty() || cache.is_some(),
        "import: --debuginfod: no folder for fetched files: set XDG_CACHE_HOME or HOME"
    );
    let limits = Limits::from_variables(|name| std::env::var(name).ok());
    let usual = std::iter::once("/usr/lib/debug".into()).chain(cache.clone());
    Ok(ImportFile {
        path: path.to_owned(),
        symfs: args.symfs.clone(),
        debug_dirs: usual.chain(debug_dirs).collect(),
        servers: Servers { urls, cache: cache.unwrap_or_default(), limits },
        perf_cache: std::env::home_dir().map(|home| home.join(".debug")),
        kallsyms: args.kallsyms.clone(),
        clock_hz: args.clock_hz,
        name: args.name.clone(),
    })
}

fn file(database: &Database, request: &ImportFile, json: bool) -> anyhow::Result<()> {
    let imported = import_perf_data(database, request, Timestamp::now())?;
    if json {
        return crate::print_json(&imported);
    }
    imported.fetched.iter().for_each(|f| crate::complain(&format!("import: {}", fetched(f))));
    imported.notes.iter().for_each(|note| crate::complain(&format!("import: {note}")));
    crate::print(&format!("epoch {}\n", imported.epoch))
}

fn fetched(f: &Fetched) -> String {
    let megabytes = f.bytes as f64 / 1e6;
    format!("fetched {} of {} from {}: {megabytes:.1} MB", f.artifact.name(), f.build_id, f.url)
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
