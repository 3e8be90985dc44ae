//! The arguments of `dwell push`.

use std::path::PathBuf;

use clap::Args;

use super::values::{Limit, size};

#[derive(Debug, Args)]
#[command(after_help = "Example:
  dwell push --to s3://profiles/production
  dwell top --db 's3://profiles/production?since=2026-11-20' --host web-1 --epoch all

The store and the credentials are found as the tools of AWS find them: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, or ~/.aws; AWS_REGION; AWS_ENDPOINT_URL for other stores than AWS.

Sent are samples, counts and call stacks by place in a binary, names of binaries, functions, programs and hosts, and \
command lines. No source text and no data of programs; code only with --binaries.")]
pub struct PushArgs {
    /// Send them to this place: s3://BUCKET/PREFIX.
    #[arg(long, value_name = "PLACE", required_unless_present_any = ["otlp", "pprof"])]
    pub to: Option<String>,
    /// Send profiles to this receiver of OpenTelemetry instead (OTLP/HTTP, the signal `v1development` of
    /// opentelemetry-proto 1.10): http://localhost:4318. OTEL_EXPORTER_OTLP_HEADERS names further headers.
    #[arg(long, value_name = "URL", conflicts_with_all = ["to", "rate", "no_symbols", "binaries", "unended"])]
    pub otlp: Option<String>,
    /// Send them as pprof to this Pyroscope server instead (its push API, as of Pyroscope 2.0): http://localhost:4040.
    /// DWELL_PPROF_HEADERS names further headers, as OTEL_EXPORTER_OTLP_HEADERS does.
    #[arg(long, value_name = "URL", conflicts_with_all = ["to", "otlp", "rate", "no_symbols", "binaries", "unended"])]
    pub pprof: Option<String>,
    /// Send at most so many bytes a second on average: 500K, 2M [default: no limit].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub rate: Option<Limit<u64>>,
    /// Folder that remembers what was sent, so that the store need not be asked, and a receiver gets nothing twice [default: $STATE_DIRECTORY, otherwise
    /// $XDG_STATE_HOME/dwell/push].
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Do not send the names of functions of the sampled binaries. (They are sent once for all machines, so that functions have names
    /// wherever the recordings are read.)
    #[arg(long)]
    pub no_symbols: bool,
    /// Also send the sampled binaries, each once for all machines, so that functions have listings elsewhere: code
    /// leaves this machine.
    #[arg(long)]
    pub binaries: bool,
    /// Also send a recording that has no end because its collector was killed just now. Do not use it while one runs. (It is
    /// sent without this option once another recording of this machine is an hour old.)
    #[arg(long)]
    pub unended: bool,
}
