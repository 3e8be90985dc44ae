//! The arguments of `dwell daemon`, `dwell resume` and `dwell status`.

use std::time::Duration;

use clap::Args;

use super::{
    SamplingArgs,
    values::{Limit, budget, duration, size},
};

#[derive(Debug, Args)]
pub struct DaemonArgs {
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Keep samples of these applications only (the names of their executables). Those of others are taken and counted, but
    /// not kept, so this does not lower the cost of sampling.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = super::application())]
    pub app: Vec<String>,
    /// Seconds between two stores of the samples in memory. At most this much is lost by kill -9. `dwell flush` stores
    /// at once.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub flush_interval: u32,
    /// Percentage of each CPU that sampling may cost, interrupts included. Above it, the rate is lowered. 0: no limit.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = budget)]
    pub budget: f64,
    /// Also count executions by words of memory and registers in which programs count themselves, for absolute numbers.
    /// Samples then arrive one by one, and threads are watched by breakpoints for moments, for 0.1 % of the CPU time.
    #[arg(long)]
    pub odometers: bool,
    /// Follow threads for some milliseconds at times, for absolute numbers (x86-64; needs the right to trace all processes).
    /// They stand still for at most this percentage of the CPU time, and emulation at the lowest priority takes as much again.
    /// Samples then arrive one by one.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = super::record::percent)]
    pub paths: f64,
    /// Record the call stack of this many samples per second of each CPU, for `callers`, `flame` and exports (x86-64, not
    /// with the kernel module). 0 turns it off.
    #[arg(long, value_name = "HZ", default_value_t = dwell_collect::DEFAULT_STACKS_HZ_OF_MACHINES,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub stacks: u32,
    /// Begin a new recording (epoch) after this time: 30m, 12h, 7d; `never`: only by `dwell epoch new` or SIGHUP.
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = duration)]
    pub rotate: Limit<Duration>,
    /// Begin a new recording (epoch) when a binary whose path contains this text is rebuilt. May be given several
    /// times.
    #[arg(long, value_name = "PART")]
    pub rotate_on_rebuild: Vec<String>,
    /// Remove recordings without a name that ended longer ago than this: 12h, 30d; `never`.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration)]
    pub keep_for: Limit<Duration>,
    /// Remove the oldest recordings without a name while all recordings together are larger than this: 500M, 2G; `any`:
    /// no limit.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub keep_size: Limit<u64>,
    /// Keep copies of sampled binaries, up to this total size, so that profiles remain readable after rebuilds: 500M,
    /// 2G.
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "1G", value_parser = size)]
    pub keep_images: Option<Limit<u64>>,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// From now on, keep samples of these applications only (the names of their executables). This begins a new recording
    /// (epoch) if they are others than before.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = super::application())]
    pub app: Vec<String>,
    /// From now on, keep samples of all applications.
    #[arg(long, conflicts_with = "app")]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Show the statistics of a stored recording (ended or not) instead of the running daemon's: id, name, `latest` or
    /// `latest~N`.
    #[arg(long, value_name = "EPOCH", conflicts_with = "watch")]
    pub epoch: Option<String>,
    /// Refresh the output until interrupted.
    #[arg(short, long)]
    pub watch: bool,
    /// Seconds between two refreshes.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub interval: u32,
}
