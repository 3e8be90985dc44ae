//! Repository chores. Enters: a chore's name, run anywhere in the repository. Leaves: one line for each problem on
//! standard error, and exit status 1 if there was any. Nothing here is part of what users run.

mod rooms;
mod source;
mod tidy;

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::tidy(),
        _ => {
            eprintln!("usage: cargo run -p dwell-xtask -- tidy");
            Ok(ExitCode::from(2))
        }
    }
}
