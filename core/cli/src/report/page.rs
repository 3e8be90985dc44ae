//! Data of the page in the form that its template needs: formatted texts and lengths.

use askama::Template;
use dwell_query::answer::{EpochSummary, LineCost, ScaleKind, Summary, TopRow};
use jiff::Timestamp;

use super::cause_class::class;
use super::{
    Listed, Material,
    chart::{self, Bar, Causes},
    flame::FlameSection,
    listing::{self, INSTRUCTIONS_MAX, Row},
};
use crate::list::causes;
use crate::text::{counted, cycles_each, cycles_interval, grouped, seconds, share_range, si, si_or_dash};

/// The whole page.
#[derive(Template)]
#[template(path = "report.html")]
pub struct Page {
    title: String,
    /// Random text by which the page's security policy permits its own script.
    nonce: String,
    made: String,
    version: &'static str,
    epochs: Vec<String>,
    tiles: Vec<Tile>,
    causes: Option<Causes>,
    scope: String,
    procedures: Vec<ProcedureRow>,
    omitted: usize,
    images: Vec<ShareRow>,
    lines: Vec<LineRow>,
    sections: Vec<Section>,
    flame: Option<FlameSection>,
    limit: usize,
    instructions_max: usize,
    notes: Vec<String>,
    legend: &'static str,
}

/// A key figure at the top of the page.
struct Tile {
    label: &'static str,
    value: String,
    note: String,
}

struct ProcedureRow {
    /// Number of the section that lists the procedure.
    section: Option<usize>,
    name: String,
    image: String,
    path: String,
    /// Numeric value for sorting.
    share: f64,
    percent: String,
    samples: u64,
    samples_told: String,
    seconds: f64,
    time: String,
    cpi: f64,
    cpi_told: String,
    /// 90 % interval of the CPI; empty if there is no number.
    interval: String,
    /// What the procedure waits for most.
    why: String,
    class: &'static str,
}

struct ShareRow {
    name: String,
    title: String,
    share: f64,
    percent: String,
    detail: String,
}

/// A line with its costs: time first, then causes, then cycles per instruction if the scale is absolute.
struct LineRow {
    name: String,
    title: String,
    image: String,
    share: f64,
    percent: String,
    time: String,
    causes: String,
    cpi: String,
    interval: String,
}

/// Section that shows one procedure instruction by instruction.
struct Section {
    number: usize,
    name: String,
    image: String,
    percent: String,
    told: String,
    causes: Option<Causes>,
    skyline: Vec<Bar>,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Page {
    pub fn new(material: &Material, limit: usize) -> Page {
        let now = Timestamp::now();
        let all_notes = || material.procedures.notes.iter();
        let mut notes: Vec<String> = all_notes().cloned().collect();
        if let Some(summary) = &material.summary {
            notes.extend(summary.notes.iter().cloned());
        }
        let mut seen = std::collections::BTreeSet::new();
        notes.retain(|n| seen.insert(n.clone()));
        Page {
            title: material.epochs.iter().map(title).collect::<Vec<_>>().join(" + "),
            nonce: format!("{:x}", now.as_nanosecond()),
            made: now.strftime("%Y-%m-%d %H:%M UTC").to_string(),
            version: env!("CARGO_PKG_VERSION"),
            epochs: material.epochs.iter().map(told).collect(),
            tiles: tiles(material),
            causes: material.summary.as_ref().map(Causes::new),
            scope: material.summary.as_ref().map_or(String::new(), scope),
            procedures: material.procedures.rows.iter().map(|r| procedure_row(r, material)).collect(),
            omitted: material.procedures.omitted_rows,
            images: material.images.rows.iter().map(image_row).collect(),
            lines: material.lines.rows.iter().zip(&material.line_costs).map(line_row).collect(),
            sections: material.listed.iter().enumerate().map(|(n, l)| section(n, l, &notes)).collect(),
            flame: material.flame.as_ref().map(|f| FlameSection::new(f, &material.listed, &notes)),
            limit,
            instructions_max: INSTRUCTIONS_MAX,
            notes,
            legend: crate::legend::TEXT,
        }
    }
}

/// Returns the title of an epoch: its name, or a description of what was sampled.
fn title(epoch: &EpochSummary) -> String {
    epoch.name.clone().unwrap_or_else(|| epoch.scope.clone())
}

fn told(e: &EpochSummary) -> String {
    let end = e.end.as_deref().map_or("now".to_owned(), clock);
    format!("{} · {} to {end} · {} · {} · by {}", e.id, clock(&e.start), e.host, e.cpu, e.backend)
}

/// Formats an RFC 3339 time without fractions of a second.
fn clock(time: &str) -> String {
    let whole = time.split('.').next().unwrap_or(time);
    whole.trim_end_matches('Z').replace('T', " ")
}

fn tiles(material: &Material) -> Vec<Tile> {
    let mut tiles = Vec::new();
    let event = |name: &str| material.epochs.iter().filter_map(|e| e.events.get(name)).collect::<Vec<_>>();
    if let Some((name, _)) = material.procedures.primary() {
        let sum = |of: fn(&dwell_query::answer::EventSummary) -> u64| {
            event(name).iter().map(|e| of(e)).sum::<u64>()
        };
        let (samples, lost, unknown) = (sum(|e| e.samples), sum(|e| e.lost), sum(|e| e.unknown));
        let period =
            event(name).last().map_or(String::new(), |e| format!("every {} {}", grouped(e.period), e.unit));
        tiles.push(Tile { label: "samples", value: grouped(samples), note: format!("{name} {period}") });
        let unknown = 100.0 * unknown as f64 / samples.max(1) as f64;
        let lost_told = if lost == 0 { "none lost".to_owned() } else { format!("{} lost", grouped(lost)) };
        tiles.push(Tile { label: "of unknown binaries", value: format!("{unknown:.2}%"), note: lost_told });
    }
    if let Some(s) = &material.summary {
        let cycles = s.period_cycles.map(|p| p * s.samples as f64);
        tiles.push(Tile { label: "cycles", value: si_or_dash(cycles), note: "estimated".to_owned() });
        let best = s.best_case_cpi.map(|c| format!("best case {c:.2}"));
        let interval = cycles_interval(s.cpi, s.cpi_min, s.cpi_max);
        let notes: Vec<String> = interval.into_iter().chain(best).collect();
        tiles.push(Tile {
            label: "cycles per instruction",
            value: cycles_each(s.cpi, s.cpi_min),
            note: notes.join(", "),
        });
        let stalled = share_range(s.subtotal_dynamic_min.max(0.0), s.subtotal_dynamic_max.max(0.0));
        tiles.push(Tile {
            label: "lost to dynamic stalls",
            value: stalled.unwrap_or_else(|| "not known".to_owned()),
            note: s.machine_model.clone(),
        });
    }
    tiles
}

fn scope(s: &Summary) -> String {
    let what = if s.scope.kind == "epoch" { "everything sampled" } else { &s.scope.name };
    let guessed = match s.scale {
        Some(ScaleKind::Absolute) | None => "",
        Some(_) => ". How often the code ran is not known: shares are ranges of what is possible",
    };
    format!(
        "Of {what}: {} analysed, {:.1}% of the samples tallied, machine model {}{guessed}",
        counted(s.procedures, "function"),
        100.0 * s.tallied_share,
        s.machine_model
    )
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn procedure_row(row: &TopRow, material: &Material) -> ProcedureRow {
    let section = material.listed.iter().position(|l| Some(&l.id) == row.id.as_ref());
    let summary = section.and_then(|s| material.listed[s].summary.as_ref());
    let (why, class) = summary.and_then(worst).unwrap_or((String::new(), "unknown"));
    let path = row.image.clone().unwrap_or_default();
    let primary = material.procedures.primary().and_then(|(event, _)| row.samples.get(event));
    let samples = primary.copied().unwrap_or(0);
    ProcedureRow {
        section,
        name: row.demangled.clone().unwrap_or_default(),
        image: file_name(&path),
        path,
        share: 100.0 * row.share,
        percent: format!("{:.2}%", 100.0 * row.share),
        samples,
        samples_told: grouped(samples),
        seconds: row.seconds.unwrap_or(-1.0),
        time: seconds(row.seconds),
        cpi: row.cpi.or(row.cpi_min).unwrap_or(-1.0),
        cpi_told: cycles_each(row.cpi, row.cpi_min),
        interval: cycles_interval(row.cpi, row.cpi_min, row.cpi_max).unwrap_or_default(),
        why,
        class,
    }
}

/// Returns the cause that may explain most, if it matters. If several cannot be told apart, all of them are named.
fn worst(s: &Summary) -> Option<(String, &'static str)> {
    let most = s.dynamic.iter().map(|r| r.share_max).fold(0.05, f64::max);
    let worst: Vec<_> = s.dynamic.iter().filter(|r| r.share_max >= most - 0.0005).collect();
    let names: Vec<&str> = worst.iter().map(|r| r.label).collect();
    let first = worst.first()?;
    // Causes that may explain equally much share their range's upper end only. Without an absolute scale that is no bound: if
    // the code ran less often, more instructions waited.
    let least = if worst.len() == 1 { first.share_min } else { 0.0 };
    let is_bounded = s.scale == Some(ScaleKind::Absolute);
    let share = share_range(least, if is_bounded { most } else { 1.0 });
    let share = share.map_or(String::new(), |share| format!("{share} "));
    Some((format!("{share}{}", names.join(" or ")), class(&first.cause)))
}

fn image_row(row: &TopRow) -> ShareRow {
    let path = row.image.clone().unwrap_or_default();
    ShareRow {
        name: file_name(&path),
        title: path,
        share: 100.0 * row.share,
        percent: format!("{:.1}%", 100.0 * row.share),
        detail: row.cycles.map_or(String::new(), |c| format!("{} cycles", si(c))),
    }
}

fn line_row((row, cost): (&TopRow, &Option<LineCost>)) -> LineRow {
    let image = row.image.as_deref().map(file_name).unwrap_or_default();
    let (name, title) = match (&row.file, row.line) {
        (Some(file), Some(line)) => (format!("{}:{line}", file_name(file)), format!("{file}:{line}")),
        _ => ("no source line".to_owned(), row.image.clone().unwrap_or_default()),
    };
    let cost = cost.as_ref();
    let file = row.file.as_deref().unwrap_or_default();
    LineRow {
        name,
        title,
        image,
        share: 100.0 * row.share,
        percent: format!("{:.1}%", 100.0 * row.share),
        time: seconds(row.seconds),
        causes: cost.and_then(|cost| causes(cost, file).into_iter().next()).unwrap_or_default(),
        cpi: cost.and_then(|cost| cost.cpi).map_or(String::new(), |cpi| format!("{cpi:.2}")),
        interval: cost.and_then(|c| cycles_interval(c.cpi, Some(c.cpi_min), c.cpi_max)).unwrap_or_default(),
    }
}

/// Builds a section. `known` are notes that are already elsewhere on the page.
fn section(number: usize, listed: &Listed, known: &[String]) -> Section {
    let l = &listed.listing;
    let samples = l.procedure.samples.get(&l.time_event).copied().unwrap_or(0);
    let cycles = l.period_cycles.map_or(String::new(), |p| format!(", {} cycles", si(p * samples as f64)));
    Section {
        number,
        name: l.procedure.demangled.clone(),
        image: l.image.path.clone(),
        percent: format!("{:.1}%", 100.0 * l.procedure.share),
        told: format!(
            "{} samples{cycles}, {} bytes at {:x}",
            grouped(samples),
            l.procedure.size,
            l.procedure.address
        ),
        causes: listed.summary.as_ref().map(Causes::new),
        skyline: chart::skyline(l),
        rows: listing::rows(l),
        notes: l.notes.iter().filter(|n| !known.contains(n)).cloned().collect(),
    }
}
