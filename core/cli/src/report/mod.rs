//! Writes `dwell report --html FILE`: one page with the whole profile, which needs no network and no server.
//!
//! Input: answers of the query. Output: a self-contained HTML page with styles, script and pictures. The page states its own
//! limits: how many procedures are listed, and how many instructions of each.
//!
//! Names, paths and source lines never reach the page unescaped. Everything goes through the template, which escapes it, and
//! the page's security policy permits no script except its own.

mod cause_class;
mod chart;
mod flame;
mod listing;
mod page;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::Context;
use askama::Template;
use dwell_query::{
    Cancel, FlameRequest, Query, QueryError, SampleFilter, SummaryRequest, TopBy, TopRequest,
    answer::{EpochSummary, Flame, LineCost, Listing, Summary, Top, TopRow},
};

use crate::args::ReportArgs;

/// Largest number of rows in the tables of images and lines.
const ROWS_MAX: usize = 15;

/// Answers that the page is built from.
struct Material {
    epochs: Vec<EpochSummary>,
    procedures: Top,
    images: Top,
    lines: Top,
    /// The cost and the causes of each of `lines`; `None` where they are not known.
    line_costs: Vec<Option<LineCost>>,
    /// Summary of where the cycles go; `None` if the epochs have no samples of time.
    summary: Option<Summary>,
    listed: Vec<Listed>,
    /// All call stacks; `None` if none were recorded.
    flame: Option<Flame>,
}

/// A procedure that is shown instruction by instruction.
struct Listed {
    id: String,
    listing: Listing,
    summary: Option<Summary>,
}

/// Writes the page and prints its size.
pub fn run(query: &Query, args: &ReportArgs, json: bool) -> anyhow::Result<()> {
    let material = gather(query, args)?;
    let listed = material.listed.len();
    let html = page::Page::new(&material, args.limit).render().context("report")?;
    let to_output = args.html.as_os_str() == "-";
    if to_output {
        anyhow::ensure!(!json, "report: --json describes a file: name it with --html");
        return crate::print_raw(html.as_bytes());
    }
    std::fs::write(&args.html, &html).with_context(|| format!("report: {}", args.html.display()))?;
    if json {
        let answer = serde_json::json!({
            "schema": 1, "epochs": material.procedures.epochs, "file": args.html, "bytes": html.len(),
            "procedures": listed,
        });
        return crate::print_json(&answer);
    }
    let size = crate::text::bytes(html.len() as u64);
    crate::print(&format!("{}: {listed} functions listed by instruction, {size}\n", args.html.display()))
}

fn gather(query: &Query, args: &ReportArgs) -> anyhow::Result<Material> {
    let cancel = Cancel::new();
    let top = |by, limit| {
        let request = TopRequest {
            by,
            limit: Some(limit),
            ..crate::top::request(&args.epoch, &args.image, &SampleFilter::default())
        };
        query.top(&request, &cancel)
    };
    let procedures = top(TopBy::Procedure, args.rows.max(args.limit))?;
    let summary = |procedure: Option<String>| {
        let image = args.image.clone().filter(|_| procedure.is_none());
        match query
            .summary(&SummaryRequest { epochs: args.epoch.clone(), procedure, image, under: None }, &cancel)
        {
            Ok(summary) => Ok(Some(summary)),
            Err(QueryError::NoTime { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let mut listed = Vec::new();
    for id in procedures.rows.iter().filter_map(|r| r.id.as_ref()) {
        if listed.len() == args.limit {
            break;
        }
        // A function whose instructions are not available, such as one of the kernel or of a missing binary, is
        // skipped.
        let Ok(listing) = query.listing(&args.epoch, id, &cancel) else { continue };
        listed.push(Listed { id: id.clone(), listing, summary: summary(Some(id.clone()))? });
    }
    let request = FlameRequest {
        epochs: args.epoch.clone(),
        events: Vec::new(),
        filter: SampleFilter::default(),
        nodes_max: flame::FRAMES_MAX,
        analyse: true,
    };
    let flame = match query.flame(&request, &cancel) {
        Ok(mut flame) => {
            if args.image.is_some() {
                flame.notes.push("the flame graph has the stacks of all binaries".to_owned());
            }
            Some(flame)
        }
        Err(QueryError::NoStacks { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let list = query.epochs()?;
    let lines = top(TopBy::Line, ROWS_MAX)?;
    Ok(Material {
        epochs: list.epochs.into_iter().filter(|e| procedures.epochs.contains(&e.id)).collect(),
        images: top(TopBy::Image, ROWS_MAX)?,
        line_costs: line_costs(query, &args.epoch, &lines.rows, &cancel),
        lines,
        summary: summary(None)?,
        procedures,
        listed,
        flame,
    })
}

/// Returns the costs of lines. A line whose file was edited since the build, or that several binaries share, has none here.
fn line_costs(query: &Query, epochs: &[String], rows: &[TopRow], cancel: &Cancel) -> Vec<Option<LineCost>> {
    const SAME: f64 = 1e-6;
    let files: BTreeSet<&str> = rows.iter().filter_map(|row| row.file.as_deref()).collect();
    let costs = |file: &str| query.file_costs(epochs, Path::new(file), cancel).ok();
    let known: BTreeMap<&str, Vec<LineCost>> =
        files.into_iter().filter_map(|file| Some((file, costs(file)?.lines))).collect();
    let cost = |row: &TopRow| {
        let mut lines = known.get(row.file.as_deref()?)?.iter();
        let is_same = |l: &&LineCost| Some(l.line) == row.line && (l.share - row.share).abs() < SAME;
        lines.find(is_same).cloned()
    };
    rows.iter().map(cost).collect()
}
