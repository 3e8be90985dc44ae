//! The arguments of `dwell roll-up`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell roll-up --db s3://profiles/production                      once a day, on any machine
  dwell roll-up --db 's3://profiles/production?since=2026-11-20'   only these days

A roll-up holds the samples of many recordings of one kind of machine by binary, place, event and application; their evidence, counts and call \
stacks; and totals of each recording. Commands read it in place of the recordings when all of these are asked for. Recordings \
stay as they are.")]
pub struct RollUpArgs {
    /// Also sum up recordings that began today. Those that come later get another roll-up.
    #[arg(long)]
    pub today: bool,
    /// The largest number of recordings in a roll-up.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..))]
    pub recordings: u32,
    /// Print which recordings would be summed up together, and do nothing. Other machines can then do a part each, with --only.
    #[arg(long, conflicts_with = "only")]
    pub plan: bool,
    /// Sum up only these recordings (epochs): the ids of one group of --plan.
    #[arg(long, value_name = "EPOCH", value_delimiter = ',')]
    pub only: Vec<String>,
}
