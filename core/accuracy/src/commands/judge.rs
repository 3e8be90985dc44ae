//! `judge`: captures → tables, JSON, pictures.

use std::path::PathBuf;

use anyhow::Context;

use crate::capture::{self, Capture};

/// What to judge.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A capture, or a folder with captures up to two levels below
    pub captures_root: PathBuf,
}

/// Judges.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let root = &arguments.captures_root;
    let folders = capture::find(root).with_context(|| root.display().to_string())?;
    for folder in folders {
        let capture = Capture::read(&folder)?;
        println!("{}", capture.meta.name);
    }
    Ok(())
}
