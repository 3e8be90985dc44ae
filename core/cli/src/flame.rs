//! The verb `flame`: flame graphs as SVG, and their data as JSON.

use anyhow::Context;
use dwell_exchange::{FlameColor, colored_flame_graph, flame_diff_graph, flame_graph};
use dwell_query::{Cancel, FlameDiffRequest, FlameRequest, Query};
use serde_json::json;

use crate::{
    args::{FlameArgs, FlameColors},
    text::grouped,
};

/// Number of frames of a picture that are kept apart. It is more than a picture of 1,200 pixels shows.
const PICTURE_FRAMES: usize = 1_000_000;

/// Draws the graph, or prints it as JSON.
pub fn run(query: &Query, args: &FlameArgs, json: bool) -> anyhow::Result<()> {
    anyhow::ensure!(args.output.is_some() || json, "flame: name a file for the picture: --output FILE");
    match &args.diff {
        Some(sides) => diff(query, args, sides, json),
        None => graph(query, args, json),
    }
}

fn graph(query: &Query, args: &FlameArgs, json: bool) -> anyhow::Result<()> {
    let cancel = Cancel::new();
    let request = |nodes_max: usize, analyse: bool| FlameRequest {
        epochs: args.epoch.clone(),
        events: args.event.clone(),
        filter: args.filter(),
        nodes_max,
        analyse,
    };
    if args.output.is_none() {
        return crate::print_json(&query.flame(&request(args.frames as usize, true), &cancel)?);
    }
    let color = match args.color_by {
        FlameColors::Kind => FlameColor::Kind,
        FlameColors::Binary => FlameColor::Binary,
        FlameColors::Cpi => FlameColor::Cpi,
        FlameColors::Cause => FlameColor::Cause,
    };
    let is_analysed = matches!(color, FlameColor::Cpi | FlameColor::Cause);
    let (svg, epochs, samples, notes) = if color == FlameColor::Kind && args.event.is_empty() {
        let stacks = query.stacks(&args.epoch, &args.filter(), &cancel)?;
        (flame_graph(&stacks, args.inverted)?, stacks.epochs.clone(), stacks.samples(), stacks.notes)
    } else {
        let flame = query.flame(&request(PICTURE_FRAMES, is_analysed), &cancel)?;
        let samples = flame.events.iter().map(|event| event.samples).sum();
        (colored_flame_graph(&flame, color, args.inverted)?, flame.epochs, samples, flame.notes)
    };
    write(args, &svg, json, json!({ "schema": 1, "epochs": epochs, "samples": samples, "notes": notes }))
}

fn diff(query: &Query, args: &FlameArgs, sides: &[String], json: bool) -> anyhow::Result<()> {
    let [a, b] = [&sides[0], &sides[1]].map(|side| side.split(',').map(str::to_owned).collect::<Vec<_>>());
    anyhow::ensure!(args.event.len() <= 1, "flame: --diff compares one event");
    let request = FlameDiffRequest {
        a,
        b,
        event: args.event.first().cloned(),
        filter: args.filter(),
        nodes_max: if args.output.is_some() { PICTURE_FRAMES } else { args.frames as usize },
    };
    let diff = query.flame_diff(&request, &Cancel::new())?;
    if args.output.is_none() {
        return crate::print_json(&diff);
    }
    let epochs: Vec<&String> = diff.a.epochs.iter().chain(&diff.b.epochs).collect();
    let summary = json!({ "schema": 1, "epochs": epochs, "samples": diff.samples_b, "notes": diff.notes });
    write(args, &flame_diff_graph(&diff)?, json, summary)
}

/// Writes the picture and prints a summary of it.
fn write(args: &FlameArgs, svg: &[u8], json: bool, mut summary: serde_json::Value) -> anyhow::Result<()> {
    let path = args.output.as_ref().context("flame: no file")?;
    if path.as_os_str() == "-" {
        anyhow::ensure!(!json, "flame: --json describes a file: name it with --output");
        return crate::print_raw(svg);
    }
    std::fs::write(path, svg).with_context(|| format!("flame: {}", path.display()))?;
    if json {
        summary["file"] = json!(path);
        summary["bytes"] = json!(svg.len());
        return crate::print_json(&summary);
    }
    let samples = summary["samples"].as_u64().unwrap_or(0);
    crate::print(&format!("{}: {} samples with a call stack\n", path.display(), grouped(samples)))
}
