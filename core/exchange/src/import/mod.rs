//! `import FILE`: an epoch out of a perf.data file.
//!
//! The way of a sample: [`source`] (which file? [`packed`]?) → [`header`] (which events?) → [`records`] (in order) → [`perf_data`] (what they say) → [`sample`] (its fields) → [`space`]
//! (process → mapping) → [`Ledger`](dwell_profile::Ledger) (sums; [`BranchSums`](dwell_profile::BranchSums) of branch stacks) → [`locate`] (mapping → image) → [`finish`] (rows) → the database.

mod attribute;
mod branches;
mod epoch;
pub mod exercise;
mod features;
mod fields;
mod finish;
mod gather;
mod header;
mod imported;
mod jit;
mod jit_layout;
mod kallsyms;
mod kernel;
mod locate;
mod names;
mod packed;
mod perf_data;
mod pprof;
mod records;
mod sample;
mod script;
mod slot;
mod source;
mod space;
mod tracing;

use std::path::PathBuf;

use dwell_profile::{Database, DimensionSet, Epoch, EpochId, ImageRecord, PathBurst};
use jiff::Timestamp;
use serde::Serialize;

use crate::{Debuginfod, ExchangeError, Fetched, Limits};

/// What to import.
#[derive(Clone, Debug, Default)]
pub struct ImportFile {
    /// The file, or the folder of `perf record --threads`; `-` is standard input.
    pub path: PathBuf,
    /// The folder that stands for the root of the machine that was sampled.
    pub symfs: Option<PathBuf>,
    /// Folders with images or debug information by build id.
    pub debug_dirs: Vec<PathBuf>,
    /// Who is asked for images, and for the debug information of the hottest, that are not here; by default nobody.
    pub servers: Servers,
    /// Where perf keeps copies of the images that it sampled, as `.build-id/ab/cdef…/elf`: `~/.debug`.
    pub perf_cache: Option<PathBuf>,
    /// The kernel's symbols, as /proc/kallsyms spells them; this machine's where it runs the same kernel.
    pub kallsyms: Option<PathBuf>,
    /// The core clock, which makes cycles of nanoseconds.
    pub clock_hz: Option<f64>,
    /// The epoch's name.
    pub name: Option<String>,
}

/// debuginfod's servers.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    /// Their URLs, in the order in which they are asked.
    pub urls: Vec<String>,
    /// The folder in which what they send is kept: give it to whoever reads the epoch as a folder with debug information.
    pub cache: PathBuf,
    /// How long to wait, how much to take.
    pub limits: Limits,
}

/// What came of it; `dwell import --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Imported {
    /// Version of this answer's shape.
    pub schema: u32,
    /// The new epoch's id.
    pub epoch: EpochId,
    /// Samples of the file that are stored.
    pub samples: u64,
    /// What the file lacks, and what had to be left out.
    pub notes: Vec<String>,
    /// What servers sent.
    pub fetched: Vec<Fetched>,
}

/// Everything of an epoch, before it is stored.
struct Gathered {
    epoch: Epoch,
    images: Vec<ImageRecord>,
    rows: finish::Rows,
    /// Branch stacks.
    burst: Option<PathBurst>,
    /// Which images are not here. Not among the epoch's notes: whoever reads it looks again, and may find them.
    missing: Vec<String>,
    /// Samples that the file has. Its events have more where one of a group told of the others.
    samples: u64,
}

/// Rows of one segment: a half of what a segment may hold.
const ROWS: usize = dwell_profile::MAX_SEGMENT_ROWS / 2;

/// Stores a perf.data file (of a file, a folder or a pipe, compressed or not) as an epoch of its own.
pub fn import_perf_data(
    database: &Database,
    request: &ImportFile,
    now: Timestamp,
) -> Result<Imported, ExchangeError> {
    let servers = &request.servers;
    let debuginfod = Debuginfod::new(&servers.urls, &servers.cache, servers.limits);
    let gathered = gather::gather(request, debuginfod.as_ref(), now)?;
    let mut notes = gathered.epoch.notes.clone();
    notes.extend(gathered.missing);
    notes.extend(debuginfod.iter().flat_map(Debuginfod::take_problems));
    let fetched = debuginfod.iter().flat_map(Debuginfod::take_fetched).collect();
    let id = gathered.epoch.id.clone();
    let samples = gathered.samples;
    let mut writer = database.writer()?.begin(gathered.epoch)?;
    let mut rows = gathered.rows;
    while !rows.are_over() {
        writer.append_runs(&gathered.images, DimensionSet::NONE, |sink| rows.hand_out(ROWS, sink))?;
    }
    writer.append_paths(gathered.burst.as_slice())?;
    writer.finish(now)?;
    Ok(Imported { schema: 1, epoch: id, samples, notes, fetched })
}
