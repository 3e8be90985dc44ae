//! `epoch list`.

use dwell_profile::{Epoch, EpochsRead, Scope};

use crate::answer::{EpochList, EpochSummary, EventSummary};

/// The answer for what was read.
pub fn list(read: EpochsRead) -> EpochList {
    EpochList {
        schema: 1,
        epochs: read.epochs.iter().map(summary).collect(),
        warnings: read.warnings.iter().map(ToString::to_string).collect(),
    }
}

fn summary(epoch: &Epoch) -> EpochSummary {
    let events = epoch.events.iter().map(|(event, r)| {
        let summary = EventSummary {
            period: r.period,
            unit: r.unit.name().to_owned(),
            samples: r.samples,
            lost: r.lost,
            throttled: r.throttled,
            unknown: r.unknown,
        };
        (event.name().to_owned(), summary)
    });
    EpochSummary {
        id: epoch.id.to_string(),
        name: epoch.name.clone(),
        start: epoch.start.to_string(),
        end: epoch.end.map(|t| t.to_string()),
        host: epoch.host.name.clone(),
        cpu: epoch.cpu.model_name.clone(),
        backend: epoch.backend.clone(),
        scope: scope(&epoch.scope),
        events: events.collect(),
        notes: epoch.notes.clone(),
    }
}

fn scope(scope: &Scope) -> String {
    match scope {
        Scope::System => "system".to_owned(),
        Scope::Processes(pids) => {
            let list = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            format!("pid {list}")
        }
        Scope::Command(words) => words.join(" "),
        Scope::Import(what) => format!("import {what}"),
    }
}
