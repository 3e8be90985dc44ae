//! `dwell-accuracy`: developers run it to see how far the analysis is from the truth.
//!
//! Enters: arguments, captures on disk. Leaves: tables on standard output, a report in a folder. Never here: anything
//! that users install.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dwell_accuracy::{
    commands::{judge, speed},
    export_capture,
};

/// Judges Dwell's analysis by captures whose truth is known.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Estimate the frequencies of every capture, compare them with the truth, and report.
    Judge(judge::Arguments),
    /// Analyse every procedure of the captures, and report the time that this takes.
    Speed(speed::Arguments),
    /// Write the samples of a recorded program as tables of a capture.
    ExportCapture(export_capture::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Judge(arguments) => judge::run(&arguments),
        Command::Speed(arguments) => speed::run(&arguments),
        Command::ExportCapture(arguments) => export_capture::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dwell-accuracy: {error:#}");
            ExitCode::FAILURE
        }
    }
}
