//! The command line as clap sees it. What is given here is checked once and becomes typed values; see docs/json.md for
//! the contract on verbs and flags.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use dwell_collect::DEFAULT_BRANCH_STACKS_HZ;
use dwell_profile::{Dimension, name_to_text};
use dwell_query::Normalize;

mod top;
pub use top::{By, TopArgs};

/// Where have all the cycles gone?
///
/// Samples the whole machine, keeps compact profiles, and tells for each instruction how often it ran, how long it
/// stalled and who is to blame.
#[derive(Debug, Parser)]
#[command(name = "dwell", version, max_term_width = 110, disable_help_subcommand = true)]
pub struct Cli {
    /// The profile database [default: $XDG_DATA_HOME/dwell].
    #[arg(long, global = true, env = "DWELL_DB", value_name = "DIR")]
    pub db: Option<PathBuf>,
    /// Folders with images and debug information by build id, beside /usr/lib/debug; joined by `:` in the variable.
    #[arg(long, global = true, env = "DWELL_DEBUG_DIRS", value_name = "DIR", value_delimiter = ':')]
    pub debug_dir: Vec<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// Colour the output.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorWhen,
    #[command(subcommand)]
    pub verb: Verb,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Sample the machine, some processes or a command: one epoch from one run.
    Record(RecordArgs),
    /// Sample the whole machine until told to stop (SIGTERM, SIGINT), in the foreground.
    Daemon(DaemonArgs),
    /// Tell how the running daemon does: rates, losses, unknown share, own cost.
    Status(StatusArgs),
    /// Have the running daemon store what it has in memory.
    Flush,
    /// List, start, rename and remove epochs.
    #[command(subcommand)]
    Epoch(EpochVerb),
    /// Tell where the time goes.
    Top(TopArgs),
    /// List a procedure with samples, CPI, stalls and culprits.
    Annotate(AnnotateArgs),
    /// List a source file with what each of its lines costs.
    List(ListArgs),
    /// Draw a procedure's control-flow graph with frequencies, CPI and stalls.
    Cfg(CfgArgs),
    /// Tell where the cycles go, each cause as a range: of a procedure, an image or everything.
    Summary(SummaryArgs),
    /// Write one page for a browser: hot procedures, where their cycles go, listings with bubbles.
    Report(ReportArgs),
    /// Tell how much procedures vary over several runs, and whether two groups of runs differ.
    Stats(StatsArgs),
    /// Tell what changed from one profile to another: procedures, lines, instructions; cost apart from count.
    Diff(DiffArgs),
    /// Make an epoch out of a perf.data file or a table of counts.
    Import(ImportArgs),
    /// Write a profile in another tool's format.
    Export(ExportArgs),
    /// Tell a compiler or a linker how often code is executed, in the format that it reads.
    Feedback(FeedbackArgs),
    /// Print a completion script for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    Man {
        /// Of this verb (default: of dwell itself).
        verb: Option<String>,
    },
}

/// What to sample with.
#[derive(Debug, Args)]
pub struct SamplingArgs {
    /// Events to sample, as perf spells them [default: cycles and, at a quarter of the rate, instructions where there is a PMU, else cpu-clock].
    #[arg(short, long, value_name = "EVENT", value_delimiter = ',')]
    pub event: Vec<String>,
    /// Samples per second and CPU [default: 1000; of the daemon with a PMU, one per 62,000 cycles].
    #[arg(short = 'F', long, value_name = "HZ", conflicts_with = "period",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub frequency: Option<u32>,
    /// Mean period between samples: cycles, ns for clocks, occurrences for other events.
    #[arg(short = 'c', long, value_name = "PERIOD", value_parser = clap::value_parser!(u64).range(1..))]
    pub period: Option<u64>,
    /// Name of the epoch.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Keep each process of these programs apart, as an instance of its own; others only by execution, within bounds.
    #[arg(long, value_name = "IMAGE", value_delimiter = ',')]
    pub by_process: Vec<String>,
    /// What to keep of each sample besides, for `top --by`: thread (its name), cpu, cgroup (container, service).
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub dimensions: Vec<Dimension>,
    /// Who samples: the kernel module, a BPF program or perf's ring buffers.
    #[arg(long, value_name = "BACKEND", default_value = "auto")]
    pub backend: BackendArg,
}

/// `--backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// The best that works here; perf for commands and processes.
    Auto,
    /// The kernel module dwell.ko.
    Kmod,
    /// A BPF program that counts in the kernel.
    Bpf,
    /// Ring buffers; needs no privilege for one's own processes.
    Perf,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").args(["all", "pid", "command"]).required(true).multiple(true))]
pub struct RecordArgs {
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Sample the whole machine (with a command: while it runs; without: until interrupted).
    #[arg(short, long, conflicts_with = "pid")]
    pub all: bool,
    /// Sample these processes and their children until they end or you interrupt.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', conflicts_with = "command")]
    pub pid: Vec<u32>,
    /// Stop threads for a millisecond or so now and then and follow them for some thousand instructions, for up to so many
    /// percent of their CPU time: tells how often branches are taken (x86-64; needs the right to trace them). Asked for, threads
    /// that cannot be followed are single-stepped. 0: never [default: 1 for a command; 0 with --all, --pid or --windows].
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub paths: Option<f64>,
    /// Count executions of the hottest places by hardware breakpoints, in windows of some milliseconds, for up to so many
    /// percent of the CPU time: tells what runs how often. Nothing is stopped. 0: never [default: 1 for a command that cannot be
    /// followed or with --paths 0; 0 with --all, --pid or --paths].
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub windows: Option<f64>,
    /// Do not count executions by what the program itself counts. By default registers that loops step, and words of memory to
    /// which code adds constants, tell how often instructions ran, for less than 1% of the program's time: addresses come from
    /// samples, a watchpoint says for a moment who writes a word, and of memory nothing else is read (x86-64, samples through
    /// rings).
    #[arg(long)]
    pub no_odometers: bool,
    /// Record the last branches (LBR, BRBE) so many times a second of a busy CPU, where the processor keeps them and a hardware
    /// event is sampled through rings: tells what runs how often. 0: never.
    #[arg(long, value_name = "HZ", default_value_t = DEFAULT_BRANCH_STACKS_HZ,
          value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub branch_stacks: u32,
    /// Keep what data the sampled instructions refer to, for `top --by data`: symbols, mappings, stack, heap (x86-64; needs
    /// samples' registers).
    #[arg(long)]
    pub data: bool,
    /// End after so many seconds; a command goes on, and the exit status is 0.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub duration: Option<u64>,
    /// Write the JSON object to this open file descriptor, so that it does not mix with what the command prints to standard
    /// output; implies --json.
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(i32).range(3..))]
    pub report_fd: Option<i32>,
    /// Command to run and sample.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Reads a name or a part of a path as answers spell it: a text as it is, other bytes as they are shown.
fn spelled() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new()
        .map(|given| given.into_string().unwrap_or_else(|other| name_to_text(&other).into_owned()))
}

/// More would be another program than the one that was asked about.
const PATHS_PERCENT_MAX: f64 = 50.0;

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    let range = 0.0..=PATHS_PERCENT_MAX;
    if range.contains(&percent) { Ok(percent) } else { Err(format!("expected 0 to {PATHS_PERCENT_MAX}")) }
}

#[derive(Debug, Args)]
pub struct DaemonArgs {
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Seconds between two times that samples are stored; what kill -9 may lose. `dwell flush` stores at once.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub flush_interval: u32,
    /// Percent of each CPU that sampling may cost, interrupts included; beyond, the rate is lowered. 0: no limit.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = budget)]
    pub budget: f64,
    /// Begin a new epoch after that time: 30m, 12h, 7d; `never`: only when asked for (`dwell epoch new`, SIGHUP).
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = duration)]
    pub rotate: Limit<Duration>,
    /// Begin a new epoch when an image whose path contains this was built anew; may be given more than once.
    #[arg(long, value_name = "PART")]
    pub rotate_on_rebuild: Vec<String>,
    /// Remove epochs that ended longer ago, but those with a name: 12h, 30d; `never`.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration)]
    pub keep_for: Limit<Duration>,
    /// Remove the oldest epochs, but those with a name, when all take more: 500M, 2G; `any`: no limit.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub keep_size: Limit<u64>,
    /// Copy sampled images aside, up to this size in all, so that profiles outlive rebuilds: 500M, 2G.
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "1G", value_parser = size)]
    pub keep_images: Option<Limit<u64>>,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The account of a stored epoch, ended or not, instead of the running daemon's: id, name, `latest` or `latest~N`.
    #[arg(long, value_name = "EPOCH", conflicts_with = "watch")]
    pub epoch: Option<String>,
    /// Tell it again and again, until interrupted.
    #[arg(short, long)]
    pub watch: bool,
    /// Seconds between two times.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub interval: u32,
}

/// A limit that need not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<T>(pub Option<T>);

fn budget(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    if (0.0..=100.0).contains(&percent) { Ok(percent) } else { Err("expected 0 to 100".to_owned()) }
}

/// `30s`, `15m`, `12h`, `7d`, or `never`.
fn duration(text: &str) -> Result<Limit<Duration>, String> {
    if text == "never" {
        return Ok(Limit(None));
    }
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let seconds = with_unit(text, &units).filter(|s| *s > 0);
    let seconds = seconds.ok_or("expected a number with s, m, h or d, or `never`")?;
    Ok(Limit(Some(Duration::from_secs(seconds))))
}

/// `30s`, `15m`, `12h`, `7d`.
fn past(text: &str) -> Result<Duration, String> {
    duration(text)?.0.ok_or_else(|| "expected a number with s, m, h or d".to_owned())
}

/// `100K`, `500M`, `2G`, or `any`.
fn size(text: &str) -> Result<Limit<u64>, String> {
    if text == "any" {
        return Ok(Limit(None));
    }
    let units = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];
    let bytes = with_unit(text, &units).ok_or("expected a number with K, M, G or T, or `any`")?;
    Ok(Limit(Some(bytes)))
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, factor) = units.iter().find_map(|(unit, f)| Some((text.strip_suffix(unit)?, f)))?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[derive(Debug, Subcommand)]
pub enum EpochVerb {
    /// List the epochs, newest last.
    List,
    /// Have the running daemon start a new epoch.
    New {
        /// Its name.
        name: Option<String>,
    },
    /// Give an epoch a name.
    Rename {
        /// Id, name, `latest` or `latest~N`.
        epoch: String,
        /// The new name.
        name: String,
    },
    /// Keep the source files of an epoch's sampled lines, as the daemon does when an epoch ends.
    #[command(hide = true)]
    KeepSources {
        /// Its id.
        epoch: String,
    },
    /// Remove epochs for good.
    Remove {
        /// Ids, names, `latest` or `latest~N`.
        #[arg(required = true)]
        epochs: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub struct AnnotateArgs {
    /// `NAME`, `IMAGE:NAME` or `IMAGE:0xADDRESS` [default: the procedure with most samples].
    #[arg(value_parser = spelled())]
    pub procedure: Option<String>,
    /// Epochs to merge: ids, names, `latest`, `latest~N`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Leave source lines out.
    #[arg(long)]
    pub no_source: bool,
    /// Show blocks without samples too (by default they are folded).
    #[arg(long)]
    pub full: bool,
    /// Show samples where they landed; by default they stand at the instruction that was waited for.
    #[arg(long)]
    pub raw: bool,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// The source file.
    pub file: PathBuf,
    /// Epochs to merge: ids, names, `latest`, `latest~N`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Show lines far from any cost too.
    #[arg(long)]
    pub full: bool,
}

#[derive(Debug, Args)]
pub struct CfgArgs {
    /// `NAME`, `IMAGE:NAME` or `IMAGE:0xADDRESS`.
    #[arg(value_parser = spelled())]
    pub procedure: String,
    /// Epochs to merge: ids, names, `latest`, `latest~N`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// As a picture or for Graphviz.
    #[arg(short, long, value_name = "FORMAT", default_value = "svg")]
    pub format: GraphFormat,
    /// Write to this file [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// How a graph is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    Svg,
    Dot,
}

#[derive(Debug, Args)]
pub struct SummaryArgs {
    /// `NAME`, `IMAGE:NAME` or `IMAGE:0xADDRESS` [default: all of them].
    #[arg(value_parser = spelled())]
    pub procedure: Option<String>,
    /// Epochs to merge: ids, names, `latest`, `latest~N`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// All procedures of the images whose path or id contains this.
    #[arg(long, value_name = "PART", conflicts_with = "procedure", value_parser = spelled())]
    pub image: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Write the page to this file; `-`: standard output. It needs no network and no other file.
    #[arg(long, value_name = "FILE")]
    pub html: PathBuf,
    /// Epochs to merge: ids, names, `latest`, `latest~N`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// List the instructions of so many of the hottest procedures.
    #[arg(short = 'n', long, value_name = "PROCEDURES", default_value_t = 20)]
    pub limit: usize,
    /// Rows of the table of procedures.
    #[arg(long, value_name = "ROWS", default_value_t = 100)]
    pub rows: usize,
    /// Only images whose path or id contains this.
    #[arg(long, value_name = "PART", value_parser = spelled())]
    pub image: Option<String>,
}

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Epochs, one for each run: ids, names, `latest`, `latest~N`.
    #[arg(required = true, value_name = "EPOCH")]
    pub epochs: Vec<String>,
    /// Epochs of other runs, to compare them against; or write them after `--`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',')]
    pub against: Vec<String>,
    /// Epochs to compare against.
    #[arg(last = true, value_name = "EPOCH")]
    pub others: Vec<String>,
    #[arg(long, value_name = "BY", default_value = "run", value_parser = normalize, help = NORMALIZE_HELP)]
    pub normalize: Normalize,
    /// How many procedures (0: all).
    #[arg(short = 'n', long, value_name = "ROWS", default_value_t = 20)]
    pub limit: usize,
    /// Leave out procedures with less of all samples: their range is chance.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.5)]
    pub min_share: f64,
    /// Only images whose path or id contains this.
    #[arg(long, value_name = "PART", value_parser = spelled())]
    pub image: Option<String>,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Before: an epoch, or several runs joined by commas.
    #[arg(value_name = "A")]
    pub a: String,
    /// After.
    #[arg(value_name = "B")]
    pub b: String,
    /// One procedure, instruction by instruction: `NAME`, `IMAGE:NAME` or `IMAGE:0xADDRESS`.
    #[arg(value_parser = spelled())]
    pub procedure: Option<String>,
    #[arg(long, value_name = "BY", default_value = "run", value_parser = normalize, help = NORMALIZE_HELP)]
    pub normalize: Normalize,
    /// Show what may be chance, too.
    #[arg(long)]
    pub all: bool,
    /// How many procedures and lines (0: all).
    #[arg(short = 'n', long, value_name = "ROWS", default_value_t = 20)]
    pub limit: usize,
}

/// Of every verb that compares epochs.
const NORMALIZE_HELP: &str = "What makes unlike epochs comparable: `run` (each did the same work), `time` (per second), \
    `samples` (parts of the whole) or the name of a procedure that did the same work in each";

fn normalize(text: &str) -> Result<Normalize, String> {
    Ok(match text {
        "run" => Normalize::Run,
        "time" => Normalize::Time,
        "samples" => Normalize::Samples,
        "" => return Err("expected run, time, samples or the name of a procedure".to_owned()),
        procedure => Normalize::Procedure(procedure.to_owned()),
    })
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").args(["file", "counts"]).required(true))]
pub struct ImportArgs {
    /// A perf.data file, of `perf record` or `perf record -o -`, the folder of `perf record --threads`, the text of `perf script`,
    /// or a profile of pprof's, also packed by gzip, xz or zstd; `-` is standard input.
    #[arg(conflicts_with_all = ["image", "machine", "event", "period", "unit"])]
    pub file: Option<PathBuf>,
    /// The folder that stands for the root of the machine that was sampled.
    #[arg(long, value_name = "DIR", conflicts_with = "counts")]
    pub symfs: Option<PathBuf>,
    /// debuginfod's servers, asked in this order for images that are not here, and for the debug information of the hottest;
    /// joined by spaces in the variable. Without one nobody is asked.
    #[arg(long, value_name = "URL", env = "DEBUGINFOD_URLS", value_delimiter = ' ', hide_env_values = true)]
    pub debuginfod: Vec<String>,
    /// The kernel's symbols, as /proc/kallsyms spells them [default: this machine's, if it runs the same kernel].
    #[arg(long, value_name = "FILE", conflicts_with = "counts")]
    pub kallsyms: Option<PathBuf>,
    /// Table of counts: `image<TAB>hex address<TAB>count`.
    #[arg(long, value_name = "FILE", requires_all = ["image", "machine", "event", "period", "unit"])]
    pub counts: Option<PathBuf>,
    /// ELF files that the table speaks of.
    #[arg(long, value_name = "ELF", num_args = 1..)]
    pub image: Vec<PathBuf>,
    /// Machine model of the processor that was sampled.
    #[arg(long, value_name = "MODEL")]
    pub machine: Option<String>,
    /// Name of the table's event.
    #[arg(long, value_name = "NAME")]
    pub event: Option<String>,
    /// Mean period between samples.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub period: Option<u64>,
    /// The period's unit.
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<PeriodUnit>,
    /// Core clock, which makes cycles of nanoseconds.
    #[arg(long, value_name = "HZ")]
    pub clock_hz: Option<f64>,
    /// Name of the epoch.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Whose format.
    #[arg(short, long, value_name = "FORMAT")]
    pub format: ExportFormat,
    /// Epochs to merge: ids, names, `latest`, `latest~N`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Only images whose path or id contains this.
    #[arg(long, value_name = "PART", value_parser = spelled())]
    pub image: Option<String>,
    /// Write to this file [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct FeedbackArgs {
    /// Who is told.
    #[arg(long, value_name = "OPTIMIZER")]
    pub r#for: FeedbackFor,
    /// Epochs to merge: ids, names, `latest`, `latest~N`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Only images whose path or id contains this.
    #[arg(long, value_name = "PART", value_parser = spelled())]
    pub image: Option<String>,
    /// What counts: to compare with other tools, samples may.
    #[arg(long, value_name = "WHAT", default_value = "executions")]
    pub counts: FeedbackCounts,
    /// Write to this file [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Who reads feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FeedbackFor {
    /// `clang -fprofile-sample-use=FILE`; `llvm-profdata merge --sample` makes other forms of it.
    Clang,
    /// `gcc -fauto-profile=FILE`.
    Gcc,
    /// `go build -pgo=FILE`.
    Go,
    /// `llvm-bolt -data=FILE`: transfers between blocks.
    Bolt,
    /// The same without transfers: only how often blocks ran.
    BoltBlocks,
}

/// What feedback is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FeedbackCounts {
    /// Estimated executions.
    Executions,
    /// Samples where they landed, as tools without estimates do it.
    Samples,
}

/// Formats of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// `go tool pprof`: samples, time and executed instructions.
    Pprof,
    /// Folded stacks, for flame graphs.
    Folded,
    /// speedscope.app.
    Speedscope,
    /// KCachegrind, callgrind_annotate: cycles and executed instructions.
    Callgrind,
    /// profiler.firefox.com, samply load: by address, line and inlined call.
    Firefox,
    /// The text of perf script: a record for each sample.
    PerfScript,
    /// OpenTelemetry's profiles, as a protocol buffer.
    Otlp,
}

/// Unit of an imported period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PeriodUnit {
    Cycles,
    Ns,
}
