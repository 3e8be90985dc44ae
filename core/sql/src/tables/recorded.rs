//! Tables of what was recorded about epochs: `epochs`, `events`, `losses`.

use std::sync::Arc;

use dwell_profile::{Epoch, Event, EventRecord, Scope};
use dwell_query::Cancel;

use super::{Context, count, double, text};
use crate::{
    duckdb::{Cell, CellRows, Column},
    selected::Selection,
};

pub const EPOCHS: &[(&str, Column)] = &[
    ("epoch", Column::Text),
    ("name", Column::Text),
    ("host", Column::Text),
    ("start", Column::Time),
    ("end", Column::Time),
    ("cpu", Column::Text),
    ("backend", Column::Text),
    ("scope", Column::Text),
];

pub fn epochs(context: &Arc<Context>, _: Vec<Selection>, _: Cancel, _: &[bool]) -> Result<CellRows, String> {
    Ok(rows(context.epochs.iter().map(|epoch| {
        vec![
            text(&epoch.id.0),
            epoch.name.as_ref().map_or(Cell::Null, text),
            text(&epoch.host.name),
            Cell::Time(epoch.start.as_microsecond()),
            epoch.end.map_or(Cell::Null, |end| Cell::Time(end.as_microsecond())),
            text(&epoch.cpu.model_name),
            text(&epoch.backend),
            text(scope(&epoch.scope)),
        ]
    })))
}

fn scope(scope: &Scope) -> &'static str {
    match scope {
        Scope::System => "system",
        Scope::Processes(_) => "processes",
        Scope::Command(_) => "command",
        Scope::Import(_) => "import",
        Scope::Sum { .. } => "sum",
    }
}

pub const EVENTS: &[(&str, Column)] = &[
    ("epoch", Column::Text),
    ("event", Column::Text),
    ("period", Column::Integer),
    ("unit", Column::Text),
    ("samples", Column::Integer),
    ("seconds_per_sample", Column::Double),
];

pub fn events(context: &Arc<Context>, _: Vec<Selection>, _: Cancel, _: &[bool]) -> Result<CellRows, String> {
    Ok(rows(context.epochs.iter().flat_map(|epoch| {
        epoch.events.iter().map(|(event, record)| {
            vec![
                text(&epoch.id.0),
                text(event.name()),
                count(record.period),
                text(record.unit.name()),
                count(record.samples),
                double(seconds_per_sample(epoch, event, record)),
            ]
        })
    })))
}

/// Returns the CPU time that a sample of a time event stands for.
fn seconds_per_sample(epoch: &Epoch, event: &Event, record: &EventRecord) -> Option<f64> {
    let hz = match record.unit.name() {
        _ if !event.is_time() => None,
        "ns" => Some(1e9),
        _ => epoch.cpu.clock_hz,
    };
    Some(record.period as f64 / hz.filter(|hz| *hz > 0.0)?)
}

pub const LOSSES: &[(&str, Column)] = &[
    ("epoch", Column::Text),
    ("event", Column::Text),
    ("kind", Column::Text),
    ("cause", Column::Text),
    ("count", Column::Integer),
];

pub fn losses(context: &Arc<Context>, _: Vec<Selection>, _: Cancel, _: &[bool]) -> Result<CellRows, String> {
    Ok(rows(context.epochs.iter().flat_map(losses_of)))
}

/// Returns the losses of an epoch: those of each event, and their causes over all events where the collector recorded
/// them.
fn losses_of(epoch: &Epoch) -> Vec<Vec<Cell>> {
    let row = |event: Option<&Event>, kind: &str, cause: Option<&str>, number: u64| {
        vec![
            text(&epoch.id.0),
            event.map_or(Cell::Null, |event| text(event.name())),
            text(kind),
            cause.map_or(Cell::Null, text),
            count(number),
        ]
    };
    let mut rows = Vec::new();
    for (event, record) in &epoch.events {
        let kinds = [("lost", record.lost), ("throttled", record.throttled), ("unknown", record.unknown)];
        rows.extend(kinds.map(|(kind, number)| row(Some(event), kind, None, number)));
    }
    if let Some(collector) = &epoch.collector {
        for (kind, causes) in [("lost", &collector.lost), ("unknown", &collector.unknown)] {
            rows.extend(causes.iter().map(|(cause, number)| row(None, kind, Some(cause), *number)));
        }
    }
    rows
}

fn rows(rows: impl Iterator<Item = Vec<Cell>>) -> CellRows {
    Box::new(rows.map(Ok).collect::<Vec<_>>().into_iter())
}
