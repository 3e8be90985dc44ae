//! Runs `dwell export`.

use anyhow::Context;
use dwell_exchange::{Format, Stacked, export};
use dwell_query::{Cancel, Query, QueryError, SampleFilter};

use crate::args::{ExportArgs, ExportFormat};

/// Writes the profile to the file, or to standard output if there is none.
pub fn run(query: &Query, args: &ExportArgs, json: bool) -> anyhow::Result<()> {
    let places = query.places(&args.epoch, &args.image, &Cancel::new())?;
    let format = match args.format {
        ExportFormat::Pprof => Format::Pprof,
        ExportFormat::Folded => Format::Folded,
        ExportFormat::Speedscope => Format::Speedscope,
        ExportFormat::Callgrind => Format::Callgrind,
        ExportFormat::Firefox => Format::Firefox,
        ExportFormat::PerfScript => Format::PerfScript,
        ExportFormat::Otlp => Format::Otlp,
    };
    let stacks = match query.stacks(&args.epoch, &SampleFilter::default(), &Cancel::new()) {
        Ok(stacks) => Some(stacks),
        Err(QueryError::NoStacks { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    // The stacks of one binary's samples lead through others, so they are not written for one alone.
    let stacks = stacks.filter(|_| args.image.is_none());
    let stacked = stacks.as_ref().map(|stacks| Stacked { stacks, all_samples: args.all_samples });
    let bytes = export(&places, stacked, format);
    let Some(path) = &args.output else {
        anyhow::ensure!(!json, "export: --json describes a file: name it with --output");
        return crate::print_raw(&bytes);
    };
    std::fs::write(path, &bytes).with_context(|| format!("export: {}", path.display()))?;
    places.notes.iter().for_each(|note| crate::complain(&format!("export: note: {note}")));
    if json {
        let answer = serde_json::json!({
            "schema": 1, "epochs": places.epochs, "file": path, "bytes": bytes.len(), "notes": places.notes,
        });
        return crate::print_json(&answer);
    }
    crate::print(&format!("{}: {} bytes\n", path.display(), bytes.len()))
}
