//! The arguments of `dwell record`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};
use dwell_collect::DEFAULT_BRANCH_STACKS_HZ;

use super::SamplingArgs;

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").args(["all", "pid", "command"]).required(true).multiple(true))]
pub struct RecordArgs {
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Sample the whole machine: while the command runs, or without a command until interrupted.
    #[arg(short, long, conflicts_with = "pid")]
    pub all: bool,
    /// Sample these processes and their children until they end or you interrupt.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', conflicts_with = "command")]
    pub pid: Vec<u32>,
    /// Measure how often branches are taken: stop threads at times for some milliseconds and follow them for ten to
    /// two hundred thousand instructions (x86-64; needs the right to trace them). At most this percentage of their CPU time is
    /// used; 0 turns it off. If you give this option, threads that cannot be followed are single-stepped. [default: what
    /// the program's own counters leave of 1%; 0 with --all or --windows]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub paths: Option<f64>,
    /// Measure how often the hottest places run: count their executions by hardware breakpoints, in windows of some
    /// milliseconds. No thread is stopped. At most this percentage of the CPU time is used; 0 turns it off. [default: 1
    /// for a command that cannot be followed or with --paths 0; 0 with --all, --pid or --paths]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub windows: Option<f64>,
    /// Count how often the blocks of hot procedures are executed: counters are put into the code of the running program
    /// and removed again (x86-64; as `dwell callpaths` does it). `windows`: in short windows at random times, paced to
    /// cost 2% of the time. `always`: from when a procedure is found to be hot until the end, exactly. The other methods of
    /// counting are off then.
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "windows",
          conflicts_with_all = ["all", "paths", "windows"])]
    pub count: Option<CountArg>,
    /// Do not derive executions from the program's own counters. By default Dwell derives how often instructions ran
    /// from registers that loops step, and from words of memory to which code adds constants, for 0.3% of the
    /// program's time. It takes their addresses from samples, briefly sets a watchpoint to learn who writes a word, and
    /// reads no other memory (x86-64, samples through rings).
    #[arg(long)]
    pub no_odometers: bool,
    /// Record the last branches (LBR, BRBE) this many times per second of a busy CPU, to measure how often branches are
    /// taken. The processor must keep them, and a hardware event must be sampled through rings. 0 turns it off.
    #[arg(long, value_name = "HZ", default_value_t = DEFAULT_BRANCH_STACKS_HZ,
          value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub branch_stacks: u32,
    /// Record the call stack of this many samples per second: of each thread, or of each CPU with --all. 0 turns it off. For
    /// `callers`, `flame` and exports (x86-64). [default: 500; 19 with --all]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub stacks: Option<u32>,
    /// Keep which data the sampled instructions access, for `top --by data`: symbols, mappings, stack, heap (x86-64;
    /// needs the registers of samples).
    #[arg(long)]
    pub data: bool,
    /// Stop sampling after this many seconds. A command keeps running, and the exit status is 0.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub duration: Option<u64>,
    /// Write the JSON object to this open file descriptor, so that it does not mix with what the command prints to
    /// standard output. Implies --json.
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(i32).range(3..))]
    pub report_fd: Option<i32>,
    /// Also write the JSON object to this file, for programs that run `dwell` in a terminal.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Command to run and sample.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// When `--count` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CountArg {
    /// Count in short windows.
    Windows,
    /// Count all the time.
    Always,
}

/// Largest accepted `--paths` and `--windows`. A higher share would change the program's behaviour too much.
const PATHS_PERCENT_MAX: f64 = 50.0;

/// Parses a percentage of the CPU time for which threads may stand still.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    let range = 0.0..=PATHS_PERCENT_MAX;
    if range.contains(&percent) { Ok(percent) } else { Err(format!("expected 0 to {PATHS_PERCENT_MAX}")) }
}
