//! Requests `epoch list`, `rename` and `remove`.

use dwell_profile::{Epoch, EpochId, EpochsRead, Scope};

use crate::{
    Query, QueryError,
    answer::{EpochList, EpochSummary, EventSummary},
};

/// Builds the answer from the epochs that were read.
fn list(read: EpochsRead) -> EpochList {
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
        Ok(list(self.database.epochs()?))
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
