//! The arguments of `dwell callpaths`.

use std::{ffi::OsString, time::Duration};

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub struct CallpathsArgs {
    /// Running programs, whose calls are added up.
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        required_unless_present = "command",
        conflicts_with = "command"
    )]
    pub pid: Vec<u32>,
    /// What to measure at each call: `calls`, time on the clock (`wall`), on the CPU (`cpu`), and off it (`blocked`).
    #[arg(short, long, value_name = "METRIC", value_delimiter = ',', default_value = "calls,wall")]
    pub metric: Vec<Metric>,
    /// Stop after this many seconds [default: when the program ends or you interrupt].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<Duration>,
    /// Also show the numbers so far after each interval. With --json, one object a line.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub interval: Option<Duration>,
    /// Number of call paths of a function in the table; 0 for all. --json has all.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// Also keep the calls as a recording, for `flame -e calls`, `callers`, `diff`, `export` and `sql`: event `calls`, and for each
    /// metric of time an event such as `calls-wall`, in ns.
    #[arg(long, conflicts_with = "clean")]
    pub keep: bool,
    /// Name of that recording.
    #[arg(long, value_name = "NAME", requires = "keep")]
    pub name: Option<String>,
    /// Remove the probes that a killed `dwell` left in the program.
    #[arg(long, conflicts_with_all = ["function", "metric", "duration", "interval", "limit", "command"])]
    pub clean: bool,
    /// Also count the calls of all processes that the command starts, and those start, from their first call on. A process is left
    /// alone if its program has none of the functions. The calls of all are added up. Ends when all have ended.
    #[arg(long, requires = "command", conflicts_with_all = ["pid", "clean"])]
    pub follow_children: bool,
    /// Functions: `NAME`, `IMAGE:NAME`, with `*` and `?` for any text and any character, or `FILE:LINE`.
    #[arg(required_unless_present = "clean", value_name = "FUNCTION")]
    pub function: Vec<String>,
    /// Command to run: its calls are counted from the first one on.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What is measured at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Metric {
    /// Nothing but the call.
    Calls,
    /// Time on the clock.
    Wall,
    /// Time on the CPU.
    Cpu,
    /// Time on the clock without time on the CPU.
    Blocked,
}

/// Parses a positive number of seconds, with decimals or without.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("'{text}' is not a number of seconds"))
}
