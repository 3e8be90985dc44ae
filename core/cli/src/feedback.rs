//! Runs `dwell feedback`.

use std::io::Write;

use anyhow::Context;
use dwell_exchange::{Counts, Optimizer, feedback};
use dwell_query::{Cancel, Query};

use crate::args::{FeedbackArgs, FeedbackCounts, FeedbackFor};

/// Version of the profile format that GCC 10 to 15 read.
const GCC_VERSION: u32 = 2;

/// Writes the profile to the file, or to standard output if there is none.
pub fn run(query: &Query, args: &FeedbackArgs, json: bool) -> anyhow::Result<()> {
    anyhow::ensure!(
        !json || args.output.is_some(),
        "feedback: --json describes a file: name it with --output"
    );
    let told = query.feedback(&args.epoch, &args.image, &Cancel::new())?;
    let optimizer = match args.r#for {
        FeedbackFor::Clang => Optimizer::Clang,
        FeedbackFor::Gcc => Optimizer::Gcc { version: GCC_VERSION },
        FeedbackFor::Go => Optimizer::Go,
        FeedbackFor::Bolt => Optimizer::Bolt,
        FeedbackFor::BoltBlocks => Optimizer::BoltBlocks,
    };
    let counts = match args.counts {
        FeedbackCounts::Executions => Counts::Executions,
        FeedbackCounts::Samples => Counts::Samples,
    };
    let bytes = feedback(&told, optimizer, counts);
    told.notes.iter().for_each(|note| crate::complain(&format!("feedback: note: {note}")));
    anyhow::ensure!(
        !told.procedures.is_empty() && !bytes.is_empty(),
        "feedback: nothing to write: no function with debug information has samples"
    );
    let Some(path) = &args.output else {
        // Written as they are: anstream would remove bytes that look like colours.
        let mut out = std::io::stdout().lock();
        return out.write_all(&bytes).and_then(|()| out.flush()).context("standard output");
    };
    std::fs::write(path, &bytes).with_context(|| format!("feedback: {}", path.display()))?;
    if json {
        let answer = serde_json::json!({
            "schema": 1, "epochs": told.epochs, "file": path, "bytes": bytes.len(),
            "procedures": told.procedures.len(), "notes": told.notes,
        });
        return crate::print_json(&answer);
    }
    let procedures = told.procedures.len();
    crate::print(&format!("{}: {procedures} functions, {} bytes\n", path.display(), bytes.len()))
}
