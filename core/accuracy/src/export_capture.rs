//! `export-capture`: a database of recorded epochs → the samples of a capture.
//!
//! Enters: a profile database and the program that was recorded, all epochs of one period. Leaves: `samples.tsv`,
//! `directions.tsv`, `events.tsv`, `bursts.tsv`, `windows.tsv` in a folder, and what `meta.json` says of the samples, as JSON on standard output.
//! Never here: the truth. O(samples' rows · log).

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};
use dwell_analysis::{MachineModel, directions};
use dwell_image::{BuildId, Image};
use dwell_profile::{
    CodePlace, Counts, Database, Epoch, Event, ExecutionEvidence, ImageAddress, ImageId, SampleKey,
};
use serde::Serialize;

use crate::capture::ELSEWHERE;

/// These arguments select what `export` writes, and where.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The profile database. All its recordings are added up.
    #[arg(long, value_name = "DIR")]
    pub db: PathBuf,
    /// Database with path bursts, if it is another one.
    #[arg(long, value_name = "DIR")]
    pub bursts: Option<PathBuf>,
    /// Database with breakpoint counts, if it is another one.
    #[arg(long, value_name = "DIR")]
    pub windows: Option<PathBuf>,
    /// The program that was recorded.
    #[arg(long, value_name = "PATH")]
    pub image: PathBuf,
    /// Folder of the capture to write.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// The description of the samples: the part of `meta.json` that the database contains.
#[derive(Debug, Serialize, PartialEq)]
struct Sampling {
    machine: &'static str,
    event: String,
    unit: &'static str,
    period: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_ghz: Option<f64>,
    /// Number of time samples of all images.
    samples: u64,
    /// Number of time samples of the program itself.
    image_samples: u64,
    /// Number of path bursts.
    bursts: usize,
    /// Number of windows of time in which breakpoints counted.
    windows: usize,
}

/// Samples of the program, by event and address.
type Tables = BTreeMap<Event, BTreeMap<ImageAddress, u64>>;

/// Exports the samples.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let image = Image::open(&arguments.image).with_context(|| arguments.image.display().to_string())?;
    let build_id = image.build_id().context("the program has no build id: link it with --build-id")?;
    let database = Database::open(&arguments.db).with_context(|| arguments.db.display().to_string())?;
    let epochs = database.epochs()?.epochs;
    let mut sampling = sampling(&epochs)?;
    let (mut tables, mut evidence) = (Tables::new(), Vec::new());
    for epoch in &epochs {
        let profile = database.read(&epoch.id)?;
        add(&mut tables, &profile.counts, build_id, &image)?;
        evidence.extend(profile.evidence);
    }
    let is_counted = |e: &ExecutionEvidence| matches!(e, ExecutionEvidence::BreakpointCounts(_));
    let (mut windows, mut bursts): (Vec<_>, Vec<_>) = evidence.into_iter().partition(is_counted);
    if let Some(folder) = &arguments.bursts {
        bursts = all_evidence(folder)?.into_iter().filter(|e| !is_counted(e)).collect();
    }
    if let Some(folder) = &arguments.windows {
        windows = all_evidence(folder)?.into_iter().filter(is_counted).collect();
    }
    (sampling.bursts, sampling.windows) = (bursts.len(), windows.len());
    let time = Event::named(&sampling.event);
    sampling.image_samples = tables.get(&time).map_or(0, |table| table.values().sum());
    ensure!(sampling.image_samples > 0, "the recording has no samples of {}", arguments.image.display());
    let derived = [
        ("directions.tsv", directions_table(&tables, &image)),
        ("bursts.tsv", bursts_table(&bursts, build_id, &image)),
        ("windows.tsv", windows_table(&windows, build_id, &image)),
    ];
    write(&arguments.out, &tables, &time, &epochs[0], derived)?;
    println!("{}", serde_json::to_string(&sampling)?);
    Ok(())
}

/// Returns the evidence of executions in all epochs of the database in `folder`.
fn all_evidence(folder: &Path) -> anyhow::Result<Vec<ExecutionEvidence>> {
    let database = Database::open(folder).with_context(|| folder.display().to_string())?;
    let epochs = database.epochs()?.epochs;
    let profiles = epochs.iter().map(|epoch| Ok(database.read(&epoch.id)?.evidence));
    Ok(profiles.collect::<anyhow::Result<Vec<_>>>()?.concat())
}

/// Returns what the epochs have in common. Fails if their samples cannot be added up.
fn sampling(epochs: &[Epoch]) -> anyhow::Result<Sampling> {
    let first = epochs.first().context("the database has no recordings")?;
    let (event, record) =
        first.events.iter().find(|(event, _)| event.is_time()).context("no time event was recorded")?;
    let mut samples = 0;
    for epoch in epochs {
        match epoch.events.get(event) {
            Some(other) if other.period == record.period => samples += other.samples,
            _ => bail!("recording {} has other events or periods than {}", epoch.id, first.id),
        }
    }
    Ok(Sampling {
        machine: MachineModel::for_cpu(&first.cpu).name(),
        event: event.name().to_owned(),
        unit: record.unit.name(),
        period: record.period,
        clock_ghz: mean_clock_hz(epochs).map(|hz| hz / 1e9),
        samples,
        image_samples: 0,
        bursts: 0,
        windows: 0,
    })
}

/// Returns the clock measured beside the samples, if every epoch has one.
fn mean_clock_hz(epochs: &[Epoch]) -> Option<f64> {
    let clocks: Option<Vec<f64>> = epochs.iter().map(|epoch| epoch.cpu.clock_hz).collect();
    clocks.map(|clocks| clocks.iter().sum::<f64>() / clocks.len() as f64)
}

fn add(tables: &mut Tables, counts: &Counts, build_id: &BuildId, image: &Image) -> anyhow::Result<()> {
    let id = ImageId::of_build(build_id);
    for (SampleKey { event, offset, .. }, count) in counts.iter().filter(|(key, _)| key.image == id) {
        let address = image.address_of(*offset).with_context(|| format!("no segment contains {offset}"))?;
        *tables.entry(event.clone()).or_default().entry(address).or_default() += count;
    }
    Ok(())
}

fn write(
    folder: &Path,
    tables: &Tables,
    time: &Event,
    epoch: &Epoch,
    derived: [(&str, String); 3],
) -> anyhow::Result<()> {
    let (mut samples, mut events) = (String::new(), String::new());
    for (event, table) in tables.iter().filter(|(event, _)| !event.is_derived()) {
        for (address, count) in table {
            if event == time {
                writeln!(samples, "{address}\t{count}")?;
            } else {
                let period = epoch.events.get(event).map_or(0, |record| record.period);
                writeln!(events, "{event}\t{period}\t{address}\t{count}")?;
            }
        }
    }
    for (name, text) in [("samples.tsv", samples), ("events.tsv", events)].into_iter().chain(derived) {
        // Tables that were not recorded must not exist: an older file would belong to another recording.
        let path = folder.join(name);
        if text.is_empty() && path.exists() {
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        } else if !text.is_empty() {
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Writes `burst<TAB>from<TAB>to<TAB>count`. Each burst begins with its first and last address and a count of 0;
/// addresses in other images, and the unknown ends of branch stacks, are [`ELSEWHERE`]. Bursts without any address in the
/// program are left out.
fn bursts_table(bursts: &[ExecutionEvidence], build_id: &BuildId, image: &Image) -> String {
    let id = ImageId::of_build(build_id);
    let address = |place: &CodePlace| {
        let address = Some(place).filter(|p| p.image == id).and_then(|p| image.address_of(p.offset));
        address.unwrap_or(ImageAddress(ELSEWHERE))
    };
    let mut text = String::new();
    for (number, burst) in bursts.iter().enumerate() {
        let (first, last) = match burst {
            ExecutionEvidence::PathBurst { first, last, .. } => (address(first), address(last)),
            _ => (ImageAddress(ELSEWHERE), ImageAddress(ELSEWHERE)),
        };
        let transfers = burst.transfers().iter().map(|t| (address(&t.from), address(&t.to), t.count));
        let rows: Vec<_> = std::iter::once((first, last, 0)).chain(transfers).collect();
        let elsewhere = |from: ImageAddress, to: ImageAddress| from.0 == ELSEWHERE && to.0 == ELSEWHERE;
        if rows.iter().all(|(from, to, _)| elsewhere(*from, *to)) {
            continue;
        }
        for (from, to, count) in rows.into_iter().filter(|(f, t, n)| *n == 0 || !elsewhere(*f, *t)) {
            text.push_str(&format!("{number}\t{from}\t{to}\t{count}\n"));
        }
    }
    text
}

/// Writes `window<TAB>address<TAB>executions`, for the addresses in the program.
fn windows_table(windows: &[ExecutionEvidence], build_id: &BuildId, image: &Image) -> String {
    let id = ImageId::of_build(build_id);
    let mut text = String::new();
    for (number, window) in windows.iter().enumerate() {
        let ExecutionEvidence::BreakpointCounts(counts) = window else { continue };
        for (place, executions) in counts.iter().filter(|(place, _)| place.image == id) {
            if let Some(address) = image.address_of(place.offset) {
                text.push_str(&format!("{number}\t{address}\t{executions}\n"));
            }
        }
    }
    text
}

/// Writes `branch<TAB>taken<TAB>not taken`, from the events that the collector derived from registers: the input of the
/// analysis.
fn directions_table(tables: &Tables, image: &Image) -> String {
    let mut text = String::new();
    for procedure in image.procedures().iter() {
        let end = procedure.address.offset(procedure.size_bytes);
        let derived = tables.iter().filter(|(event, _)| event.is_derived());
        if derived.clone().all(|(_, table)| table.range(procedure.address..end).next().is_none()) {
            continue;
        }
        let instructions = image.instructions(procedure.address, procedure.size_bytes);
        let pairs = |events: [&Event; 2]| -> Vec<(u64, u64)> {
            let count = |event, address| {
                tables
                    .get(event)
                    .and_then(|t: &BTreeMap<ImageAddress, u64>| t.get(&address))
                    .copied()
                    .unwrap_or(0)
            };
            instructions.iter().map(|i| (count(events[0], i.address), count(events[1], i.address))).collect()
        };
        let at_branch = pairs([&Event::BRANCH_TAKEN, &Event::BRANCH_NOT_TAKEN]);
        let ahead = pairs([&Event::AHEAD_TAKEN, &Event::AHEAD_NOT_TAKEN]);
        for (i, (taken, not_taken)) in instructions.iter().zip(directions(&instructions, &at_branch, &ahead))
        {
            if taken + not_taken > 0 {
                text.push_str(&format!("{}\t{taken}\t{not_taken}\n", i.address));
            }
        }
    }
    text
}
