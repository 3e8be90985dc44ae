//! `import FILE` makes an epoch of a profile.
//!
//! A sample passes through these modules and types:
//!
//! - [`source`] opens the file, and [`packed`] decompresses it;
//! - [`header`] reads the events, [`records`] returns the records in order of time, [`perf_data`] interprets them, and
//!   [`sample`] reads the fields of samples;
//! - [`space`] finds the mapping of an address in its process, and [`unwind`] the callers, from what [`chain`] reads;
//! - [`SampleAccumulator`](dwell_profile::SampleAccumulator) adds up samples, [`BranchSums`](dwell_profile::BranchSums) branch stacks, and
//!   [`call_stacks`] call stacks;
//! - [`locate`] finds the image of a mapping, and [`finish`] makes rows for the database.

mod attribute;
mod branches;
mod call_stacks;
mod chain;
mod epoch;
mod features;
mod fields;
mod finish;
pub mod fuzzing;
mod gather;
mod header;
mod imported;
mod jit;
mod jit_layout;
mod kallsyms;
mod locate;
mod mapped;
mod named_stacks;
mod names;
mod otlp;
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
mod unwind;

use std::path::PathBuf;

use dwell_profile::{Database, DimensionSet, Epoch, EpochId, ExecutionEvidence, ImageRecord, StoredCallTree};
use jiff::Timestamp;
use serde::Serialize;

use crate::{Debuginfod, ExchangeError, Fetched, Limits};

/// The arguments of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportFile {
    /// The file, or the folder of `perf record --threads`; `-` is standard input.
    pub path: PathBuf,
    /// The folder that replaces the root folder of the machine that was sampled.
    pub symfs: Option<PathBuf>,
    /// Folders with images or debug information by build ID.
    pub debug_dirs: Vec<PathBuf>,
    /// The servers from which missing images and the debug information of the hottest ones are requested; none by
    /// default.
    pub servers: Servers,
    /// The folder where perf keeps copies of the images that it sampled, as `.build-id/ab/cdef…/elf`: `~/.debug`.
    pub perf_cache: Option<PathBuf>,
    /// A file with the kernel's symbols, in the format of /proc/kallsyms; by default those of this machine are used if
    /// it runs the same kernel.
    pub kallsyms: Option<PathBuf>,
    /// The core clock in Hz, which converts nanoseconds to cycles.
    pub clock_hz: Option<f64>,
    /// The name of the new epoch.
    pub name: Option<String>,
}

/// Servers of debuginfod.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    /// The URLs of the servers, in the order in which they are used.
    pub urls: Vec<String>,
    /// The folder in which files from servers are stored. Readers of the epoch should use it as a folder with debug
    /// information.
    pub cache: PathBuf,
    /// Limits of time and size.
    pub limits: Limits,
}

/// The result of an import, printed by `dwell import --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Imported {
    /// Version of the structure of this answer.
    pub schema: u32,
    /// The id of the new epoch.
    pub epoch: EpochId,
    /// Number of samples that were stored.
    pub samples: u64,
    /// Notes on what the file lacks and what was left out.
    pub notes: Vec<String>,
    /// The files that servers sent.
    pub fetched: Vec<Fetched>,
}

/// All parts of an epoch before it is stored.
struct Gathered {
    epoch: Epoch,
    images: Vec<ImageRecord>,
    rows: finish::Rows,
    /// The sum of the branch stacks.
    evidence: Option<ExecutionEvidence>,
    call_stacks: StoredCallTree,
    /// Notes on images that are not on this machine. They are not stored in the epoch, because a reader searches again
    /// and may find them.
    missing: Vec<String>,
    /// Number of samples in the file. The events have more if a sample of a group reported the counters of other
    /// events.
    samples: u64,
}

/// Number of rows in one segment: half of what a segment may hold.
const ROWS: usize = dwell_profile::MAX_SEGMENT_ROWS / 2;

/// Stores a profile (from a file, a folder or a pipe, compressed or not) as a new epoch.
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
    writer.append_evidence(gathered.evidence.as_slice())?;
    writer.append_stacks(&gathered.call_stacks)?;
    writer.finish(now)?;
    Ok(Imported { schema: 1, epoch: id, samples, notes, fetched })
}
