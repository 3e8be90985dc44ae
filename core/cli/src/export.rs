//! Runs `dwell export`.

use anyhow::Context;
use dwell_exchange::{Format, Stacked, export};
use dwell_query::{Cancel, Query, QueryError, SampleFilter, answer::Places};

use crate::args::{ExportArgs, ExportFormat};

/// Writes the profile to the file, or to standard output if there is none.
pub fn run(query: &Query, args: &ExportArgs, json: bool) -> anyhow::Result<()> {
    let format = match args.format {
        ExportFormat::Pprof => Format::Pprof,
        ExportFormat::Folded => Format::Folded,
        ExportFormat::Speedscope => Format::Speedscope,
        ExportFormat::Callgrind => Format::Callgrind,
        ExportFormat::Firefox => Format::Firefox,
        ExportFormat::PerfScript => Format::PerfScript,
        ExportFormat::Otlp => Format::Otlp,
    };
    let has_stacks_alone = matches!(format, Format::Folded | Format::Speedscope);
    anyhow::ensure!(
        args.event.is_none() || has_stacks_alone && args.image.is_none(),
        "export: --event is for all call stacks, in `folded` and `speedscope`"
    );
    let (event, all_samples) = (args.event.as_deref(), args.all_samples);
    let (places, bytes) = bytes(query, &args.epoch, args.image.clone(), event, all_samples, format)?;
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

/// Returns the places of recordings, or of one of their binaries, and the same as a file of another tool. The call stacks are those of
/// `event`, or else of the primary event.
pub fn bytes(
    query: &Query,
    epochs: &[String],
    image: Option<String>,
    event: Option<&str>,
    all_samples: bool,
    format: Format,
) -> anyhow::Result<(Places, Vec<u8>)> {
    let places = query.places(epochs, &image, &Cancel::new())?;
    let stacks = match event {
        Some(event) => query.stacks_of_event(epochs, event, &Cancel::new()),
        None => query.stacks(epochs, &SampleFilter::default(), &Cancel::new()),
    };
    let stacks = match stacks {
        Ok(stacks) => Some(stacks),
        Err(error @ QueryError::NoStacks { .. }) if event.is_some() => return Err(error.into()),
        Err(QueryError::NoStacks { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    // The stacks of one binary's samples lead through others, so they are not written for one alone.
    let stacks = stacks.filter(|_| image.is_none());
    let stacked = stacks.as_ref().map(|stacks| Stacked { stacks, all_samples });
    let bytes = export(&places, stacked, format);
    Ok((places, bytes))
}
