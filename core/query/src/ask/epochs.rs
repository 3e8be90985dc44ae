//! Requests `epoch list`, `rename` and `remove`.

use std::collections::BTreeMap;

use dwell_profile::{Epoch, EpochId, EpochsRead, Scope};
use jiff::{SignedDuration, Timestamp};

use crate::{
    Query, QueryError,
    answer::{EpochList, EpochSummary, EventSummary},
};

/// Builds the answer from the epochs that were read.
fn list(read: EpochsRead, now: Timestamp) -> EpochList {
    let left_out = read.warnings.iter().map(ToString::to_string);
    EpochList {
        schema: 1,
        epochs: read.epochs.iter().map(summary).collect(),
        warnings: left_out.chain(wrong_clocks(&read.epochs, now)).chain(same_names(&read.epochs)).collect(),
    }
}

/// Returns a warning for each epoch that begins in the future.
fn wrong_clocks(epochs: &[Epoch], now: Timestamp) -> impl Iterator<Item = String> {
    epochs.iter().filter(move |epoch| epoch.begins_in_future(now)).map(|epoch| {
        format!(
            "recording {} begins in the future ({}): the clock of {} was wrong; `latest` passes it over",
            epoch.id, epoch.start, epoch.host.name
        )
    })
}

/// Time that two recordings of one machine may have in common: a collector empties its buffers while the next recording begins.
const SAME_TIME_MIN: SignedDuration = SignedDuration::from_mins(1);

/// Returns a warning for each name that two machines seem to have: each machine is sampled as a whole by one collector at a time.
fn same_names(epochs: &[Epoch]) -> impl Iterator<Item = String> {
    let mut before: BTreeMap<&str, &Epoch> = BTreeMap::new();
    let mut same: BTreeMap<&str, String> = BTreeMap::new();
    for epoch in epochs.iter().filter(|epoch| epoch.scope == Scope::System) {
        let name = epoch.host.name.as_str();
        let Some(earlier) = before.insert(name, epoch) else { continue };
        if earlier.end.is_some_and(|end| end.duration_since(epoch.start) > SAME_TIME_MIN) {
            same.entry(name).or_insert_with(|| {
                format!(
                    "two machines seem to be called {name}: recordings {} and {} are of the same time; they are shown as one machine",
                    earlier.id, epoch.id
                )
            });
        }
        if earlier.end > epoch.end {
            before.insert(name, earlier);
        }
    }
    same.into_values()
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
            running_share: r.running_share,
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
            let list = pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            format!("pid {list}")
        }
        Scope::Command(words) => words.join(" "),
        Scope::Import(what) => format!("import {what}"),
        Scope::Sum { recordings, hosts, .. } => format!("{recordings} recordings of {hosts} hosts"),
    }
}

impl Query {
    /// Returns every epoch, the newest last.
    pub fn epochs(&self) -> Result<EpochList, QueryError> {
        Ok(list(self.database.epochs()?, Timestamp::now()))
    }

    /// Returns the ids of the epochs that the selectors (ids, names, `latest`, `latest~N`) name: the oldest first, each one
    /// once. A selector that names no epoch is skipped.
    pub fn selected_epochs(&self, selectors: &[String]) -> Vec<EpochId> {
        let mut ids: Vec<_> =
            selectors.iter().filter_map(|s| Some(self.database.resolve(s).ok()?.id)).collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// Gives an epoch a name. The epoch is found by its id, its name, `latest` or `latest~N`. Returns its id.
    pub fn rename_epoch(&self, selector: &str, name: &str) -> Result<EpochId, QueryError> {
        let id = self.database.resolve(selector)?.id;
        self.database.rename(&id, name)?;
        Ok(id)
    }

    /// Removes epochs permanently and returns their ids. All selectors are resolved before anything is removed, since
    /// `latest~1` means another epoch afterwards. The caller has to ask the user for confirmation first.
    pub fn remove_epochs(&self, selectors: &[String]) -> Result<Vec<EpochId>, QueryError> {
        let mut ids = selectors.iter().map(|s| self.removable(s)).collect::<Result<Vec<_>, _>>()?;
        ids.sort();
        ids.dedup();
        ids.iter().try_for_each(|id| self.database.remove(id))?;
        Ok(ids)
    }

    /// Returns the epoch that the selector names. An epoch that cannot be read is found by its full id.
    fn removable(&self, selector: &str) -> Result<EpochId, QueryError> {
        let is_id = !selector.is_empty() && selector.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let is_there = || self.database.path().join("epochs").join(selector).is_dir();
        match self.database.resolve(selector) {
            Ok(epoch) => Ok(epoch.id),
            Err(_) if is_id && is_there() => Ok(EpochId(selector.to_owned())),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(id: &str, host: &str, start: &str, end: &str) -> Epoch {
        serde_json::from_value(serde_json::json!({
            "id": id, "start": start, "end": end, "host": {"name": host, "kernel_release": "6"},
            "cpu": {"arch": "x86_64", "vendor": "v", "model_name": "m", "family": 6, "model": 1, "stepping": 1, "count": 2},
            "backend": "perf", "scope": "system", "events": {},
        }))
        .unwrap()
    }

    #[test]
    fn wrong_clocks_and_machines_of_one_name_are_said() {
        let epochs = vec![
            epoch("a", "web", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"),
            epoch("b", "web", "2026-11-02T00:00:00Z", "2026-11-03T00:00:00Z"),
            epoch("c", "db", "2026-11-02T00:00:00Z", "2026-11-03T00:00:00Z"),
            epoch("d", "db", "2026-11-02T12:00:00Z", "2026-11-02T13:00:00Z"),
            epoch("e", "db", "2026-11-02T14:00:00Z", "2026-11-02T15:00:00Z"),
            epoch("g", "next", "2026-11-02T00:00:00Z", "2026-11-02T10:00:00.1Z"),
            epoch("h", "next", "2026-11-02T10:00:00Z", "2026-11-02T11:00:00Z"),
            epoch("f", "old", "2099-01-01T00:00:00Z", "2099-01-02T00:00:00Z"),
        ];
        let now = "2026-11-05T00:00:00Z".parse().unwrap();
        let list = list(EpochsRead { epochs, warnings: Vec::new() }, now);
        let [clock, name] = &list.warnings[..] else { panic!("{:?}", list.warnings) };
        assert!(clock.contains("recording f begins in the future") && clock.contains("old"), "{clock}");
        assert!(name.contains("called db: recordings c and d"), "{name}");
    }
}
