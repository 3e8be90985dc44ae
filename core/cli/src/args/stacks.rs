//! Arguments of the verbs that show call stacks: `callers`, `callees`, `flame`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dwell_query::SampleFilter;

#[derive(Debug, Args)]
pub struct CallersArgs {
    /// The function: `NAME` or `BINARY:NAME`.
    #[arg(value_parser = super::spelled())]
    pub function: String,
    /// Recordings (epochs) to merge: ids, names, `latest`, `latest~N`, a day (`2026-11-20`, UTC) or `all`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// The event whose call stacks count [default: the event of time], such as `off-cpu` or, of counted calls, `calls`.
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,
    /// Only samples of this application (the name of its executable).
    #[arg(long, value_name = "NAME", value_parser = super::spelled())]
    pub app: Option<String>,
    /// Number of levels that are shown.
    #[arg(long, value_name = "LEVELS", default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub depth: u16,
    /// Omit rows with a smaller share of the function's samples.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    pub min_share: f64,
}

impl CallersArgs {
    /// Returns the filter that selects samples by application.
    pub fn filter(&self) -> SampleFilter {
        SampleFilter { app: self.app.clone(), ..SampleFilter::default() }
    }
}

#[derive(Debug, Args)]
pub struct FlameArgs {
    /// Write the graph to this SVG file; `-`: standard output. With --json and without a file, the graph itself is printed as JSON.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Recordings (epochs) to merge: ids, names, `latest`, `latest~N`, a day (`2026-11-20`, UTC) or `all`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Compare two recordings: widths are those of B, colors show how shares changed. Several runs are separated by commas.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["inverted", "color_by", "epoch"])]
    pub diff: Option<Vec<String>>,
    /// Events whose stacks are drawn [default: the event of time]. Several need periods of one unit, such as `cpu-clock,off-cpu`.
    #[arg(short, long, value_name = "EVENT", value_delimiter = ',')]
    pub event: Vec<String>,
    /// Only samples of this application (the name of its executable).
    #[arg(long, value_name = "NAME", value_parser = super::spelled())]
    pub app: Option<String>,
    /// Begin with the innermost functions, each with its callers below it.
    #[arg(long)]
    pub inverted: bool,
    /// Choose what the colors of frames show.
    #[arg(long, value_name = "WHAT", default_value = "kind")]
    pub color_by: FlameColors,
    /// Keep this many of the largest frames apart; the small ones of each caller become one.
    #[arg(long, value_name = "FRAMES", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub frames: u32,
}

impl FlameArgs {
    /// Returns the filter that selects samples by application.
    pub fn filter(&self) -> SampleFilter {
        SampleFilter { app: self.app.clone(), ..SampleFilter::default() }
    }
}

/// The property that the colors of a flame graph show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FlameColors {
    /// The kind of code: the kernel, inlined functions, C++, the rest.
    Kind,
    /// The binary that contains the function.
    Binary,
    /// Cycles per instruction, where they are known.
    Cpi,
    /// The cause that may explain most of the function's own stalls.
    Cause,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    if (0.0..=100.0).contains(&percent) { Ok(percent) } else { Err("expected 0 to 100".to_owned()) }
}
