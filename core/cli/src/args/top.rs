//! Arguments of `dwell top`, and the queries that they stand for.

use clap::{Args, ValueEnum};
use dwell_query::{Domain, SampleFilter};

use super::Since;

#[derive(Debug, Args)]
pub struct TopArgs {
    /// What each row shows [default: procedure].
    #[arg(long, value_name = "WHAT")]
    pub by: Option<By>,
    /// Count each sample at all functions of its call stack, not only at the innermost one.
    #[arg(long, conflicts_with_all = ["by", "tui", "image", "kernel", "user", "cpi"])]
    pub inclusive: bool,
    /// With `--by caller`: the function whose callers are shown, `NAME` or `BINARY:NAME`.
    #[arg(long, value_name = "FUNCTION", requires = "by", value_parser = super::spelled())]
    pub of: Option<String>,
    /// Interactive view on the terminal. It refreshes while the recording grows; keys open an image, a procedure,
    /// its listing or its callers.
    #[arg(long, conflicts_with = "json")]
    pub tui: bool,
    /// Recordings (epochs) to merge: ids, names, `latest`, `latest~N`, a day (`2026-11-20`, UTC) or `all`.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',', default_value = "latest")]
    pub epoch: Vec<String>,
    /// Merge all recordings that sampled within this time before now (30m, 12h, 7d), or since this day (2026-11-20,
    /// UTC), each as a whole.
    #[arg(long, value_name = "TIME", conflicts_with = "epoch", value_parser = super::since)]
    pub since: Option<Since>,
    /// Maximum number of rows (0: all).
    #[arg(short = 'n', long, value_name = "ROWS", default_value_t = 20)]
    pub limit: usize,
    /// Only binaries (images) whose path or id contains this text.
    #[arg(long, value_name = "PART", value_parser = super::spelled())]
    pub image: Option<String>,
    /// Only code of the kernel and its modules.
    #[arg(long, conflicts_with = "user")]
    pub kernel: bool,
    /// Only code that runs in user mode.
    #[arg(long)]
    pub user: bool,
    /// Only samples of this application (the name of its executable).
    #[arg(long, value_name = "NAME", value_parser = super::spelled())]
    pub app: Option<String>,
    /// Only samples of threads with this name. The recording must have kept thread names (`record --dimensions
    /// thread`).
    #[arg(long, value_name = "NAME")]
    pub thread: Option<String>,
    /// Only samples on this CPU. The recording must have kept CPUs (`record --dimensions cpu`).
    #[arg(long, value_name = "NUMBER")]
    pub cpu: Option<u32>,
    /// Only samples of control groups (containers, services) whose path or name contains this text. The recording must
    /// have kept them (`record --dimensions cgroup`).
    #[arg(long, value_name = "PART")]
    pub cgroup: Option<String>,
    /// Compute CPI, or a lower bound of it, also where executions are estimated from samples of time alone (slow).
    #[arg(long)]
    pub cpi: bool,
}

impl TopArgs {
    /// The filter that selects samples by application, thread, CPU and control group.
    pub fn filter(&self) -> SampleFilter {
        let TopArgs { app, thread, cpu, cgroup, .. } = self;
        SampleFilter {
            app: app.clone(),
            thread: thread.clone(),
            cpu: *cpu,
            cgroup: cgroup.clone(),
            service: None,
        }
    }

    /// The part of the system whose samples are shown: user mode, the kernel or both.
    pub fn domain(&self) -> Domain {
        match (self.user, self.kernel) {
            (true, _) => Domain::User,
            (_, true) => Domain::Kernel,
            _ => Domain::All,
        }
    }
}

/// What the rows of `top` show.
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
    /// The callers of a function (`--of`). The recording must have call stacks (`record --stacks`).
    Caller,
    /// The data that sampled instructions access. The recording must have kept it (`record --data`).
    Data,
}
