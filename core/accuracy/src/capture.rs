//! A capture: the samples of one program and the truth about it, as a folder of tables.
//!
//! Enters: a folder (`FORMAT.md` beside this crate's manifest describes its format). Leaves: plain tables, or one error
//! that names the file, the line and the problem. Linear in the bytes.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use dwell_analysis::{Cause, Level};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::truth::{self, TrueCause};

/// An address as in the headers of its image.
pub type Address = u64;

/// Stands for all addresses in other images, in path bursts.
pub const ELSEWHERE: Address = u64::MAX;

/// One program: its samples and the truth.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The folder that it was read from.
    pub folder: PathBuf,
    /// The set of captures that it belongs to: the name of the folder above (`inorder-aarch64`, …).
    pub set: String,
    /// What was run, how, and in which unit it was sampled.
    pub meta: Meta,
    /// Time samples by address, as they landed.
    pub samples: BTreeMap<Address, u64>,
    /// Observed directions of conditional branches by address: taken, not taken.
    pub directions: BTreeMap<Address, (u64, u64)>,
    /// Directions of the branch after a sample, by the sample's address: taken, not taken. All samples are included; the
    /// reader determines which of them registers could have decided.
    pub ahead: BTreeMap<Address, (u64, u64)>,
    /// Truth: executions of each instruction that was executed.
    pub executions: FxHashMap<Address, u64>,
    /// Truth: how often control went from one instruction to another by a branch, a jump or a call.
    pub edges: FxHashMap<(Address, Address), u64>,
    /// Truth, simulated cores only: cycles at the head of the queue, by cause.
    pub stalls: Option<Vec<TrueStall>>,
    /// Kernels only: what the analysis must say of some instructions, and what it must not.
    pub expected: Vec<Expectation>,
    /// Samples of other events, by the event's name.
    pub events: BTreeMap<String, EventSamples>,
    /// Path bursts.
    pub bursts: Vec<Burst>,
    /// Breakpoint counts by window: executions of the places that each counted, including those of other images.
    pub windows: Vec<Vec<(Address, u64)>>,
    /// Blocks that llvm-mca measured, by the address of their first instruction.
    pub mca: Option<BTreeMap<Address, McaBlock>>,
}

/// The contents of `meta.json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Meta {
    /// The program's name.
    pub name: String,
    /// The language that it was written in.
    pub language: String,
    /// Its package, version and command.
    pub source: String,
    /// The role, which says whether settings may be chosen on it.
    pub role: Role,
    /// The name of the model of the machine that it ran on.
    pub machine: String,
    /// The event that measures time: `cycles` or `cpu-clock`.
    pub event: String,
    /// The unit of `period`.
    pub unit: Unit,
    /// Average distance between two time samples.
    pub period: f64,
    /// The clock measured beside the samples.
    #[serde(default)]
    pub clock_ghz: Option<f64>,
    /// Number of time samples in all, including those of other images.
    pub samples: u64,
    /// Number of runs that were sampled, each of which did what the truth counts.
    #[serde(default)]
    pub runs: Option<u64>,
}

/// The use of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Settings are chosen on it.
    Tune,
    /// The capture is one that the analysis is judged by.
    Judge,
    /// The capture is of a kernel that shows one cause of stalls in isolation.
    Kernel,
}

/// The unit of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Cycles of the processor.
    Cycles,
    /// Nanoseconds.
    Ns,
}

/// Cycles that an instruction truly waited at the head of the queue for one reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrueStall {
    /// The address of the instruction that waited.
    pub address: Address,
    /// The cause of the stall, as the simulator knows it.
    pub cause: TrueCause,
    /// The address of the instruction that caused it, if one did.
    pub culprit: Option<Address>,
    /// Number of cycles over the whole run.
    pub cycles: f64,
    /// For a data miss, the level that the data came from.
    pub level: Option<Level>,
}

/// What a kernel's comment says of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The address of the instruction that the comment is about.
    pub address: Address,
    /// The cause that the comment is about.
    pub cause: Cause,
    /// The verdict that the analysis is expected to give.
    pub verdict: Expected,
}

/// A verdict about one cause at one instruction, as the kernel's source states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The cause stalls the instruction, and the instruction at this address is the culprit.
    Culprit(Address),
    /// The cause is that the instruction entered the kernel.
    Kernel,
    /// The cause stalls no instruction, because the machine has no such stall.
    Never,
}

/// Samples of an event that does not measure time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventSamples {
    /// Average number of occurrences between two samples.
    pub period: u64,
    /// Number of samples by address.
    pub counts: BTreeMap<Address, u64>,
}

/// A path burst: a part of the execution that was followed instruction by instruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Burst {
    /// The addresses of its first and last instruction.
    pub span: (Address, Address),
    /// How often control went from one instruction to another within it.
    pub transfers: Vec<(Address, Address, u64)>,
}

/// The figures of llvm-mca for a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct McaBlock {
    /// Number of its instructions.
    pub instructions: u64,
    /// Cycles of an execution.
    pub cycles: f64,
}

/// Why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A file is missing or unreadable.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        error: std::io::Error,
    },
    /// `meta.json` has the wrong form.
    #[error("{}: {error}", path.display())]
    Meta {
        /// The path of the file.
        path: PathBuf,
        /// The position and the problem.
        error: serde_json::Error,
    },
    /// A line of a table has the wrong form.
    #[error("{}:{line}: {problem}", path.display())]
    Line {
        /// The path of the file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The message that says what is wrong with the line.
        problem: String,
    },
}

/// Returns the folders below `root`, at most two levels deep, that contain a `meta.json`, sorted. Folders whose names end
/// in `.making` are being written and left out.
pub fn find(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let is_capture = |p: &PathBuf| p.join("meta.json").is_file();
    let mut found = vec![];
    let mut level = vec![root.to_owned()];
    for _ in 0..3 {
        found.extend(level.iter().filter(|p| is_capture(p)).cloned());
        level.retain(|p| !is_capture(p));
        level = level.iter().map(|p| folders(p)).collect::<Result<Vec<_>, _>>()?.concat();
    }
    found.sort();
    Ok(found)
}

fn folders(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
    Ok(entries
        .into_iter()
        .map(|e| e.path())
        .filter(|p| p.is_dir() && p.extension().is_none_or(|e| e != "making"))
        .collect())
}

impl Capture {
    /// Reads the capture in `folder`.
    pub fn read(folder: &Path) -> Result<Capture, CaptureError> {
        let (set, meta) = identify(folder)?;
        let mut stalls = None;
        if let Some(table) = Table::read_if_there(&folder.join("stalls.tsv"))? {
            stalls = Some(table.rows(stall)?);
        }
        Ok(Capture {
            folder: folder.to_owned(),
            set,
            meta,
            samples: Table::read(&folder.join("samples.tsv"))?.summed(|r| Ok((r.hex()?, r.number()?)))?,
            directions: directions(&folder.join("directions.tsv"))?,
            ahead: directions(&folder.join("ahead.tsv"))?,
            executions: by_key(&folder.join("executions.tsv"), |r| r.hex())?,
            edges: by_key(&folder.join("edges.tsv"), |r| Ok((r.hex()?, r.hex()?)))?,
            stalls,
            expected: expected(folder)?,
            events: events(folder)?,
            bursts: bursts(folder)?,
            windows: windows(folder)?,
            mca: mca(folder)?,
        })
    }

    /// Returns the path of the program's file.
    pub fn program(&self) -> PathBuf {
        self.folder.join("program")
    }

    /// Whether executions can be compared without a scale: the period is known in cycles, and the number of sampled runs
    /// of what was counted is known. A simulator counts while it samples.
    pub fn is_absolute(&self) -> bool {
        self.period_cycles().is_some() && (self.meta.unit == Unit::Cycles || self.meta.runs.is_some())
    }

    /// Returns the average cycles between two time samples; `None` if the clock is unknown.
    pub fn period_cycles(&self) -> Option<f64> {
        match self.meta.unit {
            Unit::Cycles => Some(self.meta.period),
            Unit::Ns => self.meta.clock_ghz.map(|ghz| ghz * self.meta.period),
        }
    }
}

/// Returns the set and `meta.json` of the capture in `folder`.
pub fn identify(folder: &Path) -> Result<(String, Meta), CaptureError> {
    let set = folder.canonicalize().ok().and_then(|f| Some(f.parent()?.file_name()?.to_owned()));
    let set = set.map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    Ok((set, read_meta(&folder.join("meta.json"))?))
}

fn read_meta(path: &Path) -> Result<Meta, CaptureError> {
    let text = fs::read(path).map_err(|error| CaptureError::Unreadable { path: path.to_owned(), error })?;
    serde_json::from_slice(&text).map_err(|error| CaptureError::Meta { path: path.to_owned(), error })
}

fn by_key<K: Eq + std::hash::Hash>(
    path: &Path,
    key: impl Fn(&mut Row) -> Result<K, String>,
) -> Result<FxHashMap<K, u64>, CaptureError> {
    let mut counts = FxHashMap::default();
    for (key, count) in Table::read(path)?.rows(|row| Ok((key(row)?, row.number()?)))? {
        *counts.entry(key).or_default() += count;
    }
    Ok(counts)
}

fn directions(path: &Path) -> Result<BTreeMap<Address, (u64, u64)>, CaptureError> {
    let Some(table) = Table::read_if_there(path)? else {
        return Ok(BTreeMap::new());
    };
    Ok(table.rows(|r| Ok((r.hex()?, (r.number()?, r.number()?))))?.into_iter().collect())
}

fn stall(row: &mut Row) -> Result<TrueStall, String> {
    let address = row.hex()?;
    let cause = TrueCause::from_str(row.field()?)?;
    let culprit = match row.field()? {
        "-" => None,
        text => Some(hex(text)?),
    };
    let cycles = row.amount()?;
    let level = row.0.next().map(truth::level).transpose()?;
    Ok(TrueStall { address, cause, culprit, cycles, level })
}

fn expected(folder: &Path) -> Result<Vec<Expectation>, CaptureError> {
    let Some(table) = Table::read_if_there(&folder.join("expected.tsv"))? else { return Ok(Vec::new()) };
    table.rows(|row| {
        let address = row.hex()?;
        let TrueCause::Dynamic(cause) = TrueCause::from_str(row.field()?)? else {
            return Err("\"base\" is not a cause that a listing shows".to_owned());
        };
        let verdict = match row.field()? {
            "kernel" => Expected::Kernel,
            "never" => Expected::Never,
            text => Expected::Culprit(hex(text)?),
        };
        Ok(Expectation { address, cause, verdict })
    })
}

fn events(folder: &Path) -> Result<BTreeMap<String, EventSamples>, CaptureError> {
    let mut events: BTreeMap<String, EventSamples> = BTreeMap::new();
    let Some(table) = Table::read_if_there(&folder.join("events.tsv"))? else { return Ok(events) };
    let rows = table.rows(|r| Ok((r.field()?.to_owned(), r.number()?, r.hex()?, r.number()?)))?;
    for (name, period, address, count) in rows {
        let event = events.entry(name).or_default();
        event.period = period;
        *event.counts.entry(address).or_default() += count;
    }
    Ok(events)
}

/// A row with count 0 begins a burst and contains the addresses of its first and last instruction.
fn bursts(folder: &Path) -> Result<Vec<Burst>, CaptureError> {
    let Some(table) = Table::read_if_there(&folder.join("bursts.tsv"))? else { return Ok(Vec::new()) };
    let mut bursts: BTreeMap<u64, Burst> = BTreeMap::new();
    for (number, from, to, count) in table.rows(|r| Ok((r.number()?, r.hex()?, r.hex()?, r.number()?)))? {
        let burst = bursts.entry(number).or_default();
        match count {
            0 => burst.span = (from, to),
            _ => burst.transfers.push((from, to, count)),
        }
    }
    Ok(bursts.into_values().collect())
}

fn windows(folder: &Path) -> Result<Vec<Vec<(Address, u64)>>, CaptureError> {
    let Some(table) = Table::read_if_there(&folder.join("windows.tsv"))? else { return Ok(Vec::new()) };
    let mut windows: BTreeMap<u64, Vec<(Address, u64)>> = BTreeMap::new();
    for (number, address, count) in table.rows(|r| Ok((r.number()?, r.hex()?, r.number()?)))? {
        windows.entry(number).or_default().push((address, count));
    }
    Ok(windows.into_values().collect())
}

fn mca(folder: &Path) -> Result<Option<BTreeMap<Address, McaBlock>>, CaptureError> {
    let Some(table) = Table::read_if_there(&folder.join("mca.tsv"))? else { return Ok(None) };
    let row = |r: &mut Row| Ok((r.hex()?, McaBlock { instructions: r.number()?, cycles: r.amount()? }));
    Ok(Some(table.rows(row)?.into_iter().collect()))
}

/// Greatest count. No counter of a real run reaches it, and a million of them can be added.
const NUMBER_MAX: u64 = 1 << 43;

/// A file of lines with fields between tabs.
struct Table {
    path: PathBuf,
    text: String,
}

impl Table {
    fn read(path: &Path) -> Result<Table, CaptureError> {
        let text = fs::read_to_string(path)
            .map_err(|error| CaptureError::Unreadable { path: path.to_owned(), error })?;
        Ok(Table { path: path.to_owned(), text })
    }

    fn read_if_there(path: &Path) -> Result<Option<Table>, CaptureError> {
        if path.exists() { Table::read(path).map(Some) } else { Ok(None) }
    }

    /// Parses every line. Too many fields are as wrong as too few.
    fn rows<T>(&self, parse: impl Fn(&mut Row) -> Result<T, String>) -> Result<Vec<T>, CaptureError> {
        let lines = self.text.lines().enumerate().filter(|(_, l)| !l.is_empty() && !l.starts_with('#'));
        lines
            .map(|(index, line)| {
                let mut row = Row(line.split('\t'));
                let parsed = parse(&mut row).and_then(|value| match row.0.next() {
                    Some(more) => Err(format!("\"{more}\" is one field too many")),
                    None => Ok(value),
                });
                parsed.map_err(|problem| CaptureError::Line {
                    path: self.path.clone(),
                    line: index + 1,
                    problem,
                })
            })
            .collect()
    }

    fn summed(
        &self,
        parse: impl Fn(&mut Row) -> Result<(Address, u64), String>,
    ) -> Result<BTreeMap<Address, u64>, CaptureError> {
        let mut sums = BTreeMap::new();
        for (address, count) in self.rows(parse)? {
            let sum: &mut u64 = sums.entry(address).or_default();
            *sum = sum.saturating_add(count);
        }
        Ok(sums)
    }
}

/// The fields of a line.
struct Row<'a>(std::str::Split<'a, char>);

impl<'a> Row<'a> {
    fn field(&mut self) -> Result<&'a str, String> {
        self.0.next().map(str::trim).ok_or_else(|| "a field is missing".to_owned())
    }

    fn hex(&mut self) -> Result<Address, String> {
        hex(self.field()?)
    }

    /// Parses a whole number up to [`NUMBER_MAX`], so that many can be added.
    fn number(&mut self) -> Result<u64, String> {
        let text = self.field()?;
        let number: u64 = text.parse().map_err(|_| format!("\"{text}\" is not a whole number"))?;
        if number <= NUMBER_MAX { Ok(number) } else { Err(format!("\"{text}\" is too large")) }
    }

    /// Parses a finite amount that is not negative.
    fn amount(&mut self) -> Result<f64, String> {
        let text = self.field()?;
        let amount: Option<f64> = text.parse().ok();
        amount.filter(|a| a.is_finite() && *a >= 0.0).ok_or_else(|| format!("\"{text}\" is not an amount"))
    }
}

fn hex(text: &str) -> Result<Address, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| format!("\"{text}\" is not a hexadecimal address"))
}
