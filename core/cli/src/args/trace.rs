//! The arguments of `dwell trace`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand};

use super::examples;

/// The verbs of `dwell trace`.
#[derive(Debug, Subcommand)]
pub enum TraceVerb {
    /// Run a command, and record every instruction and every data address of it and of all processes that it begins.
    #[command(after_help = examples::TRACE_RECORD)]
    Record(TraceRecordArgs),
    /// Print a trace in the form of valgrind's lackey: `I  ADDRESS,SIZE`, ` L `, ` S ` and ` M ` for loads, stores and both.
    #[command(after_help = examples::TRACE_PRINT)]
    Print(TracePrintArgs),
    /// Show how large a trace is, and what could not be traced.
    #[command(after_help = examples::TRACE_STAT)]
    Stat(TraceArgs),
    /// Count how often each instruction was executed, by binary.
    #[command(after_help = examples::TRACE_COUNTS)]
    Counts(TraceArgs),
}

#[derive(Debug, Args)]
pub struct TraceRecordArgs {
    /// Folder for the trace, which must not exist.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Record the instructions only, not the addresses of data.
    #[arg(long)]
    pub control: bool,
    /// Also record every address as it is, so that `dwell trace stat` can compare those that it computes.
    #[arg(long, conflicts_with = "control")]
    pub check: bool,
    /// The command to run.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Folder of the trace.
    pub folder: PathBuf,
}

#[derive(Debug, Args)]
pub struct TracePrintArgs {
    /// Folder of the trace.
    pub folder: PathBuf,
    /// Print only this process.
    #[arg(long, value_name = "PID")]
    pub process: Option<u32>,
    /// Print only this thread.
    #[arg(long, value_name = "TID")]
    pub thread: Option<u32>,
    /// Begin with the instruction of each thread that has this number, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub from: u64,
    /// End before the instruction of each thread that has this number.
    #[arg(long, value_name = "N")]
    pub to: Option<u64>,
}
