//! Repository chores. Enters: a chore's name, run anywhere in the repository. Leaves: one line for each problem on
//! standard error, and exit status 1 if there was any. Nothing here is part of what users run.

mod links;
mod machines;
mod rooms;
mod source;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["tidy"] => tidy::tidy(),
        ["machines"] => machines::machines(&root(), false),
        ["machines", "--check"] => machines::machines(&root(), true),
        _ => {
            eprintln!("usage: cargo run -p dwell-xtask -- tidy | machines [--check]");
            Ok(ExitCode::from(2))
        }
    }
}

/// Root folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
