//! `dwell import`.

use std::path::Path;

use dwell_profile::{Database, Unit};
use dwell_query::{ImportRequest, import_counts};
use jiff::Timestamp;

use crate::args::{ImportArgs, PeriodUnit};

/// Stores the table and prints the epoch's id.
pub fn run(db: &Path, args: &ImportArgs, json: bool) -> anyhow::Result<()> {
    let request = ImportRequest {
        counts: args.counts.clone(),
        images: args.image.clone(),
        machine: args.machine.clone(),
        event: args.event.clone(),
        period: args.period,
        unit: match args.unit {
            PeriodUnit::Cycles => Unit::Cycles,
            PeriodUnit::Ns => Unit::Nanoseconds,
        },
        clock_hz: args.clock_hz,
        name: args.name.clone(),
    };
    let id = import_counts(&Database::open(db)?, &request, Timestamp::now())?;
    match json {
        true => crate::print_json(&serde_json::json!({ "schema": 1, "epoch": id })),
        false => crate::print(&format!("epoch {id}\n")),
    }
}
