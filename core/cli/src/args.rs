//! The command line as clap sees it. What is given here is checked once and becomes typed values; see docs/json.md for
//! the contract on verbs and flags.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use dwell_profile::{Dimension, name_to_text};
use dwell_query::Normalize;

mod callpaths;
mod daemon;
mod examples;
mod push;
mod record;
mod roll_up;
mod sql;
mod stacks;
mod top;
mod trace;
mod values;

pub use callpaths::{CallpathsArgs, Metric};
pub use daemon::{DaemonArgs, ResumeArgs, StatusArgs};
pub use push::PushArgs;
pub use record::{CountArg, RecordArgs};
pub use roll_up::RollUpArgs;
pub use sql::{SqlArgs, SqlFormat};
pub use stacks::{CallersArgs, FlameArgs, FlameColors};
pub use top::{By, TopArgs};
pub use trace::{TraceArgs, TracePrintArgs, TraceRecordArgs, TraceVerb};
pub use values::Since;
use values::since;

/// Where have all the cycles gone?
///
/// Samples the whole machine, keeps compact profiles, and shows for each instruction how often it ran, how long it
/// stalled and what caused the stall.
#[derive(Debug, Parser)]
#[command(name = "dwell", version, max_term_width = 110, disable_help_subcommand = true)]
pub struct Cli {
    /// Folder of the profile database, or s3://BUCKET/PREFIX for recordings that `dwell push` sent there; append
    /// ?since=DATE or ?until=DATE for those of some days [default: $XDG_DATA_HOME/dwell].
    #[arg(long, global = true, env = "DWELL_DB", value_name = "DIR")]
    pub db: Option<PathBuf>,
    /// With recordings in a bucket: only those of these machines, by their names.
    #[arg(long, global = true, value_name = "NAME", value_delimiter = ',')]
    pub host: Vec<String>,
    /// With recordings in a bucket: only those that began on this day or later (2026-11-20, UTC, or 7d before now).
    #[arg(long, global = true, value_name = "DATE", value_parser = since)]
    pub since: Option<Since>,
    /// Only samples of services (control groups, containers) whose path or name contains this text. The recording must
    /// have kept control groups (`record --dimensions cgroup`).
    #[arg(long, global = true, value_name = "PART")]
    pub service: Option<String>,
    /// Folders to search for binaries and debug information by build ID, in addition to /usr/lib/debug. Separate
    /// several folders by `:` in the variable.
    #[arg(long, global = true, env = "DWELL_DEBUG_DIRS", value_name = "DIR", value_delimiter = ':')]
    pub debug_dir: Vec<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// When to colour the output.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorWhen,
    #[command(subcommand)]
    pub verb: Verb,
}

/// When output is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Sample the machine, some processes or a command, into one recording (epoch).
    #[command(after_help = examples::RECORD)]
    Record(RecordArgs),
    /// Sample the whole machine in the foreground, until SIGTERM or SIGINT.
    #[command(after_help = examples::DAEMON)]
    Daemon(DaemonArgs),
    /// Count the calls of functions in a running program by call path, with the time that each takes (x86-64).
    #[command(after_help = examples::CALLPATHS)]
    Callpaths(CallpathsArgs),
    /// Record every instruction and data address of a command, and read them again.
    #[command(subcommand)]
    #[command(after_help = examples::TRACE)]
    Trace(TraceVerb),
    /// Show the state of the running daemon: rates, losses, share of unknown samples, its own cost.
    #[command(after_help = examples::STATUS)]
    Status(StatusArgs),
    /// Make the running daemon store the samples that it holds in memory.
    #[command(after_help = examples::FLUSH)]
    Flush,
    /// Make the running daemon stop sampling and store what it has. It keeps its recording (epoch) and all that it knows.
    #[command(after_help = examples::PAUSE)]
    Pause,
    /// Make the running daemon sample again after `dwell pause`, all applications or a subset.
    #[command(after_help = examples::RESUME)]
    Resume(ResumeArgs),
    /// List, start, rename and remove recordings (epochs).
    #[command(subcommand)]
    #[command(after_help = examples::EPOCH)]
    Epoch(EpochVerb),
    /// Show where the time goes: the functions, binaries, lines or processes with the most samples.
    #[command(after_help = examples::TOP)]
    Top(TopArgs),
    /// Show who calls a function, by the call stacks of its samples.
    #[command(after_help = examples::CALLERS)]
    Callers(CallersArgs),
    /// Show what a function calls, by the call stacks of its samples.
    #[command(after_help = examples::CALLEES)]
    Callees(CallersArgs),
    /// Draw all call stacks as a flame graph, or the change between those of two recordings.
    #[command(after_help = examples::FLAME)]
    Flame(FlameArgs),
    /// List the instructions of a function with samples, CPI, stalls and culprits.
    #[command(after_help = examples::ANNOTATE)]
    Annotate(AnnotateArgs),
    /// List a source file with the cost of each line.
    #[command(after_help = examples::LIST)]
    List(ListArgs),
    /// Draw the control-flow graph of a function with frequencies, CPI and stalls.
    #[command(after_help = examples::CFG)]
    Cfg(CfgArgs),
    /// Show what the cycles of a function, a binary or the whole recording were spent on, with a range for each cause.
    #[command(after_help = examples::SUMMARY)]
    Summary(SummaryArgs),
    /// Write an HTML page: the hottest functions, where their cycles go, and listings with stalls.
    #[command(after_help = examples::REPORT)]
    Report(ReportArgs),
    /// Show how much functions vary over several runs, and whether two groups of runs differ.
    #[command(after_help = examples::STATS)]
    Stats(StatsArgs),
    /// Compare two profiles: functions, lines or instructions. Changes of cost and of execution count are separated.
    #[command(after_help = examples::DIFF)]
    Diff(DiffArgs),
    /// Query all recordings with SQL, by DuckDB.
    ///
    /// The tables are epochs, events, losses, samples, totals, applications, instances, images, procedures, procedure_samples,
    /// stacks, frames, lines, instructions, stalls, blocks and edges; docs/sql.md describes them and has recipes. Only what a query
    /// names is computed. Nothing can be changed, and no file but those of the recordings is read.
    ///
    /// Without a query it is read from standard input, or typed at a prompt if that is a terminal.
    Sql(SqlArgs),
    /// Send the recordings of this machine, each once: to an object store, OpenTelemetry or Pyroscope.
    Push(PushArgs),
    /// Sum up the recordings of each day in an object store, so that questions about many machines read little.
    RollUp(RollUpArgs),
    /// Make a recording (epoch) from a perf.data file, another tool's profile or a table of counts.
    #[command(after_help = examples::IMPORT)]
    Import(ImportArgs),
    /// Write a profile in another tool's format.
    #[command(after_help = examples::EXPORT)]
    Export(ExportArgs),
    /// Write execution counts for a compiler or linker, in the format that it reads.
    #[command(after_help = examples::FEEDBACK)]
    Feedback(FeedbackArgs),
    /// Show what works on this machine, and what would make the rest work.
    #[command(after_help = examples::DOCTOR)]
    Doctor,
    /// Explain what the numbers, causes and bounds in answers mean.
    #[command(after_help = examples::LEGEND)]
    Legend,
    /// Print a completion script for a shell.
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print a manual page.
    #[command(after_help = examples::MAN)]
    Man {
        /// The verb to describe (default: dwell itself).
        verb: Option<String>,
    },
}

impl Verb {
    /// Returns whether the verb shows or exports samples, so that some of them can be selected.
    pub fn reads_samples(&self) -> bool {
        matches!(
            self,
            Verb::Top(_)
                | Verb::Callers(_)
                | Verb::Callees(_)
                | Verb::Flame(_)
                | Verb::Annotate(_)
                | Verb::List(_)
                | Verb::Cfg(_)
                | Verb::Summary(_)
                | Verb::Report(_)
                | Verb::Stats(_)
                | Verb::Diff(_)
                | Verb::Sql(_)
                | Verb::Export(_)
                | Verb::Feedback(_)
        )
    }
}

/// What is sampled, how often and by which backend: the options that `record` and `daemon` share.
#[derive(Debug, Args)]
pub struct SamplingArgs {
    /// Events to sample, as perf spells them [default: with a PMU cycles and, at a quarter of the rate, instructions;
    /// without one cpu-clock].
    #[arg(short, long, value_name = "EVENT", value_delimiter = ',')]
    pub event: Vec<String>,
    /// Samples per second and CPU [default: 1000; daemon with a PMU: one per 62,000 cycles].
    #[arg(short = 'F', long, value_name = "HZ", conflicts_with = "period",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub frequency: Option<u32>,
    /// Mean period between samples: in cycles, in ns for clocks, in occurrences for other events.
    #[arg(short = 'c', long, value_name = "PERIOD", value_parser = clap::value_parser!(u64).range(1..))]
    pub period: Option<u64>,
    /// Name of the recording (epoch).
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Keep every process of these programs apart, as an instance of its own. Processes of other programs are kept
    /// apart by execution only, up to a limit.
    #[arg(long, value_name = "IMAGE", value_delimiter = ',')]
    pub by_process: Vec<String>,
    /// Attributes to keep with each sample, for `top --by`: thread (its name), cpu, cgroup (container, service).
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub dimensions: Vec<Dimension>,
    /// What takes the samples: the kernel module, a BPF program or perf's ring buffers.
    #[arg(long, value_name = "BACKEND", default_value = "auto")]
    pub backend: BackendArg,
}

/// Values of `--backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// The best backend that works on this machine; perf for commands and processes.
    Auto,
    /// The kernel module dwell.ko.
    Kmod,
    /// A BPF program that aggregates counts in the kernel.
    Bpf,
    /// Ring buffers of perf; one's own processes need no privilege.
    Perf,
}

/// Parses a name or a part of a path as answers spell it: text stays as it is, other bytes are escaped.
fn spelled() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new()
        .map(|given| given.into_string().unwrap_or_else(|other| name_to_text(&other).into_owned()))
}

/// Parses the name of an application, which is not empty.
fn application() -> impl TypedValueParser<Value = String> {
    spelled()
        .try_map(|name| if name.is_empty() { Err("expected the name of an executable") } else { Ok(name) })
}

#[derive(Debug, Subcommand)]
pub enum EpochVerb {
    /// List the recordings (epochs), the newest last.
    List,
    /// Make the running daemon start a new recording (epoch).
    New {
        /// Name of the new recording.
        name: Option<String>,
    },
    /// Give a recording (epoch) a name.
    Rename {
        /// Id, name, `latest` or `latest~N`.
        epoch: String,
        /// The new name.
        name: String,
    },
    /// Store the source files of a recording's sampled lines, as the daemon does when an epoch ends.
    #[command(hide = true)]
    KeepSources {
        /// Id of the epoch.
        epoch: String,
    },
    /// Remove recordings (epochs) permanently.
    Remove {
        /// Ids, names, `latest` or `latest~N`.
        #[arg(required = true)]
        epochs: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub struct AnnotateArgs {
    /// `NAME`, `IMAGE:NAME` or `IMAGE:0xADDRESS` [default: the function with the most samples].
    #[arg(value_parser = spelled())]
    pub procedure: Option<String>,
    /// Recordings (epochs) to merge: ids, names, `latest`, `latest~N`, a day (`2026-11-20`, UTC) or `all`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Omit source lines.
    #[arg(long)]
    pub no_source: bool,
    /// Also show blocks without samples, which are folded by default.
    #[arg(long)]
    pub full: bool,
    /// Show samples at the instruction where they landed. By default they are shown at the instruction that was waited
    /// for.
    #[arg(long)]
    pub raw: bool,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// The source file.
    pub file: PathBuf,
    /// Recordings (epochs) to merge: ids, names, `latest`, `latest~N`, a day (`2026-11-20`, UTC) or `all`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Also show lines far from any line with a cost.
    #[arg(long)]
    pub full: bool,
}

#[derive(Debug, Args)]
pub struct CfgArgs {
    /// `NAME`, `IMAGE:NAME` or `IMAGE:0xADDRESS`.
    #[arg(value_parser = spelled())]
    pub procedure: String,
    /// Recordings (epochs) to merge: ids, names, `latest`, `latest~N`, a day (`2026-11-20`, UTC) or `all`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Output format: a picture or Graphviz source.
    #[arg(short, long, value_name = "FORMAT", default_value = "svg")]
    pub format: GraphFormat,
    /// Write to this file [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Format of a control-flow graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    Svg,
    Dot,
}

#[derive(Debug, Args)]
pub struct SummaryArgs {
    /// `NAME`, `IMAGE:NAME` or `IMAGE:0xADDRESS` [default: all functions].
    #[arg(value_parser = spelled())]
    pub procedure: Option<String>,
    /// Recordings (epochs) to merge: ids, names, `latest`, `latest~N`, a day (`2026-11-20`, UTC) or `all`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// All functions of the binaries (images) whose path or id contains this text.
    #[arg(long, value_name = "PART", conflicts_with = "procedure", value_parser = spelled())]
    pub image: Option<String>,
    /// All samples in this function and in what it calls, by their call stacks: `NAME` or `BINARY:NAME`.
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["procedure", "image"], value_parser = spelled())]
    pub under: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Write the page to this file; `-`: standard output. The page needs no network and no other file.
    #[arg(long, value_name = "FILE")]
    pub html: PathBuf,
    /// Recordings (epochs) to merge: ids, names, `latest`, `latest~N`, a day (`2026-11-20`, UTC) or `all`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Number of functions, the hottest first, whose instructions are listed.
    #[arg(short = 'n', long, value_name = "PROCEDURES", default_value_t = 20)]
    pub limit: usize,
    /// Number of rows in the table of functions.
    #[arg(long, value_name = "ROWS", default_value_t = 100)]
    pub rows: usize,
    /// Only binaries (images) whose path or id contains this text.
    #[arg(long, value_name = "PART", value_parser = spelled())]
    pub image: Option<String>,
}

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Recordings (epochs), one for each run: ids, names, `latest` or `latest~N`.
    #[arg(required = true, value_name = "EPOCH")]
    pub epochs: Vec<String>,
    /// Recordings (epochs) of other runs to compare with. They can also be written after `--`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',')]
    pub against: Vec<String>,
    /// Recordings (epochs) to compare with.
    #[arg(last = true, value_name = "EPOCH")]
    pub others: Vec<String>,
    #[arg(long, value_name = "BY", default_value = "run", value_parser = normalize, help = NORMALIZE_HELP)]
    pub normalize: Normalize,
    /// Maximum number of functions (0: all).
    #[arg(short = 'n', long, value_name = "ROWS", default_value_t = 20)]
    pub limit: usize,
    /// Omit functions with a smaller share of all samples, because their range is chance.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.5)]
    pub min_share: f64,
    /// Only binaries (images) whose path or id contains this text.
    #[arg(long, value_name = "PART", value_parser = spelled())]
    pub image: Option<String>,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The profile before the change: a recording (epoch), several runs separated by commas, or a day (`2026-11-20`). With several
    /// machines, all recordings of one are a run.
    #[arg(value_name = "A")]
    pub a: String,
    /// The profile after the change, given in the same way.
    #[arg(value_name = "B")]
    pub b: String,
    /// Compare one function instruction by instruction: `NAME`, `IMAGE:NAME` or `IMAGE:0xADDRESS`.
    #[arg(value_parser = spelled())]
    pub procedure: Option<String>,
    #[arg(long, value_name = "BY", default_value = "run", value_parser = normalize, help = NORMALIZE_HELP)]
    pub normalize: Normalize,
    /// Also show changes that may be chance.
    #[arg(long)]
    pub all: bool,
    /// Maximum number of functions and of lines (0: all).
    #[arg(short = 'n', long, value_name = "ROWS", default_value_t = 20)]
    pub limit: usize,
}

/// Help of `--normalize`, an option of all verbs that compare recordings.
const NORMALIZE_HELP: &str = "How to scale recordings of different length: `run` (each did the same work), `time` (per second), \
    `samples` (shares of all samples) or the name of a function that did the same work in each";

fn normalize(text: &str) -> Result<Normalize, String> {
    Ok(match text {
        "run" => Normalize::Run,
        "time" => Normalize::Time,
        "samples" => Normalize::Samples,
        "" => return Err("expected run, time, samples or the name of a function".to_owned()),
        procedure => Normalize::Procedure(procedure.to_owned()),
    })
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").args(["file", "counts"]).required(true))]
pub struct ImportArgs {
    /// File to import: perf.data from `perf record` or `perf record -o -`, the folder of `perf record --threads`, the
    /// text of `perf script`, a pprof profile, or profiles of OpenTelemetry (OTLP: protocol buffers or JSON). It may be
    /// compressed by gzip, xz or zstd. `-` is standard input.
    #[arg(conflicts_with_all = ["image", "machine", "event", "period", "unit"])]
    pub file: Option<PathBuf>,
    /// Folder that contains the root file system of the sampled machine.
    #[arg(long, value_name = "DIR", conflicts_with = "counts")]
    pub symfs: Option<PathBuf>,
    /// URLs of debuginfod servers. They are asked in this order for binaries that are missing here, and for the debug
    /// information of the hottest ones. Separate several URLs by spaces in the variable. Without a URL no server is
    /// asked.
    #[arg(long, value_name = "URL", env = "DEBUGINFOD_URLS", value_delimiter = ' ', hide_env_values = true)]
    pub debuginfod: Vec<String>,
    /// File with the kernel's symbols, in the format of /proc/kallsyms [default: those of this machine, if it runs the
    /// same kernel].
    #[arg(long, value_name = "FILE", conflicts_with = "counts")]
    pub kallsyms: Option<PathBuf>,
    /// Table of counts to import, one per line: `image<TAB>hex address<TAB>count`.
    #[arg(long, value_name = "FILE", requires_all = ["image", "machine", "event", "period", "unit"])]
    pub counts: Option<PathBuf>,
    /// ELF files that the table refers to.
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
    /// Unit of the period.
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<PeriodUnit>,
    /// Clock frequency of the cores, to convert nanoseconds to cycles.
    #[arg(long, value_name = "HZ")]
    pub clock_hz: Option<f64>,
    /// Name of the recording (epoch).
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The format to write.
    #[arg(short, long, value_name = "FORMAT")]
    pub format: ExportFormat,
    /// Recordings (epochs) to merge: ids, names, `latest`, `latest~N`, a day (`2026-11-20`, UTC) or `all`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Only binaries (images) whose path or id contains this text.
    #[arg(long, value_name = "PART", value_parser = spelled())]
    pub image: Option<String>,
    /// In `folded` and `speedscope`: the call stacks of this event, instead of those of time.
    #[arg(short, long, value_name = "EVENT", conflicts_with = "all_samples")]
    pub event: Option<String>,
    /// In `folded`, `pprof` and `otlp`, also write the samples without a call stack (in `folded` under `[no stack]`).
    #[arg(long)]
    pub all_samples: bool,
    /// Write to this file [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct FeedbackArgs {
    /// The tool that reads the feedback.
    #[arg(long, value_name = "OPTIMIZER")]
    pub r#for: FeedbackFor,
    /// Recordings (epochs) to merge: ids, names, `latest`, `latest~N`, a day (`2026-11-20`, UTC) or `all`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Only binaries (images) whose path or id contains this text.
    #[arg(long, value_name = "PART", value_parser = spelled())]
    pub image: Option<String>,
    /// What the counts are: executions, or samples to compare with other tools.
    #[arg(long, value_name = "WHAT", default_value = "executions")]
    pub counts: FeedbackCounts,
    /// Write to this file [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// A tool that reads feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FeedbackFor {
    /// `clang -fprofile-sample-use=FILE`; `llvm-profdata merge --sample` converts it to other formats.
    Clang,
    /// `gcc -fauto-profile=FILE`.
    Gcc,
    /// `go build -pgo=FILE`.
    Go,
    /// `llvm-bolt -data=FILE`: transfers between blocks.
    Bolt,
    /// `llvm-bolt -data=FILE` without transfers: only how often blocks ran.
    BoltBlocks,
}

/// What the counts of feedback are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FeedbackCounts {
    /// Estimated executions.
    Executions,
    /// Samples where they landed, as tools write them that do not estimate executions.
    Samples,
}

/// Formats of other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// For `go tool pprof`: samples, time and executed instructions.
    Pprof,
    /// Folded stacks for flame graphs.
    Folded,
    /// For speedscope.app.
    Speedscope,
    /// For KCachegrind and callgrind_annotate: cycles and executed instructions.
    Callgrind,
    /// For profiler.firefox.com and samply load: by address, line and inlined call.
    Firefox,
    /// The text of `perf script`, with a record for each sample.
    PerfScript,
    /// A profile of OpenTelemetry (OTLP), as a protocol buffer.
    Otlp,
}

/// Unit of the period of an imported table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PeriodUnit {
    Cycles,
    Ns,
}
