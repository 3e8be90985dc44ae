//! What `dwell top` is asked.

use std::time::Duration;

use clap::{Args, ValueEnum};
use dwell_query::{Domain, SampleFilter};

use super::past;

#[derive(Debug, Args)]
pub struct TopArgs {
    /// What the rows are [default: procedure].
    #[arg(long, value_name = "WHAT")]
    pub by: Option<By>,
    /// Live on the terminal: re-read as the epoch grows, by keys from image to procedure to listing.
    #[arg(long, conflicts_with = "json")]
    pub tui: bool,
    /// Epochs to merge: ids, names, `latest`, `latest~N`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Merge the epochs that were sampled in within this time, whole: 30m, 12h, 7d.
    #[arg(long, value_name = "TIME", conflicts_with = "epoch", value_parser = past)]
    pub since: Option<Duration>,
    /// How many rows (0: all).
    #[arg(short = 'n', long, value_name = "ROWS", default_value_t = 20)]
    pub limit: usize,
    /// Only images whose path or id contains this.
    #[arg(long, value_name = "PART", value_parser = super::spelled())]
    pub image: Option<String>,
    /// Only the kernel and its modules.
    #[arg(long, conflicts_with = "user")]
    pub kernel: bool,
    /// Only what runs in user mode.
    #[arg(long)]
    pub user: bool,
    /// Only this application (its executable's name).
    #[arg(long, value_name = "NAME", value_parser = super::spelled())]
    pub app: Option<String>,
    /// Only threads of this name, of an epoch that kept them (--dimensions).
    #[arg(long, value_name = "NAME")]
    pub thread: Option<String>,
    /// Only this CPU, likewise.
    #[arg(long, value_name = "NUMBER")]
    pub cpu: Option<u32>,
    /// Only control groups (containers, services) whose path or name contains this, likewise.
    #[arg(long, value_name = "PART")]
    pub cgroup: Option<String>,
    /// Look for CPI, or the least that it can be, even where samples of time alone tell of executions (slow).
    #[arg(long)]
    pub cpi: bool,
}

impl TopArgs {
    /// Whose samples count.
    pub fn filter(&self) -> SampleFilter {
        let TopArgs { app, thread, cpu, cgroup, .. } = self;
        SampleFilter { app: app.clone(), thread: thread.clone(), cpu: *cpu, cgroup: cgroup.clone() }
    }

    /// Whose code counts.
    pub fn domain(&self) -> Domain {
        match (self.user, self.kernel) {
            (true, _) => Domain::User,
            (_, true) => Domain::Kernel,
            _ => Domain::All,
        }
    }
}

/// What the rows of `top` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    Procedure,
    Image,
    Line,
    App,
    #[value(alias = "process")]
    Instance,
    Thread,
    Cpu,
    Cgroup,
    /// What data the sampled instructions refer to, of an epoch that kept it (record --data).
    Data,
}
