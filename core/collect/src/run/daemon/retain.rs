//! Retention: which epochs are removed, by age and by size.
//!
//! Enters: the existing epochs, with their sizes. Leaves: the epochs to remove, oldest first. An epoch is removed only if a
//! daemon of this host collected it, it has ended, and it has no name, because a name means that a user wants to keep it.
//! Named epochs are still included in the total size.

use std::time::Duration;

use dwell_profile::{Database, DatabaseError, Epoch, EpochId, Scope};
use jiff::Timestamp;

/// Limits of what may stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Age after its end at which an epoch is removed. `None`: no limit.
    pub age: Option<Duration>,
    /// Size in bytes of all epochs above which the oldest ones are removed. `None`: no limit.
    pub bytes: Option<u64>,
}

/// An epoch, reduced to what retention needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The id of the epoch.
    pub id: EpochId,
    /// When it ended, or when it began if its end is not known.
    pub end: Timestamp,
    /// Size of its files in bytes.
    pub bytes: u64,
    /// Whether retention may remove it.
    pub ours: bool,
}

/// Returns the epochs to remove, oldest first, and whether the remaining ones still exceed the size limit.
pub fn to_remove(mut epochs: Vec<Candidate>, limits: Limits, now: Timestamp) -> (Vec<EpochId>, bool) {
    epochs.sort_by_key(|e| (e.end, e.id.clone()));
    let mut total: u64 = epochs.iter().map(|e| e.bytes).sum();
    let mut removed = Vec::new();
    for epoch in epochs.iter().filter(|e| e.ours) {
        // If the clock was set back, some epochs lie in the future. They are not old.
        let age = Duration::try_from(now.duration_since(epoch.end)).unwrap_or_default();
        let too_old = limits.age.is_some_and(|max| age > max);
        let too_much = limits.bytes.is_some_and(|max| total > max);
        if too_old || too_much {
            total -= epoch.bytes;
            removed.push(epoch.id.clone());
        }
    }
    (removed, limits.bytes.is_some_and(|max| total > max))
}

/// The result of retention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// The removed epochs.
    pub removed: Vec<EpochId>,
    /// Whether the remaining epochs exceed the size limit: named ones, the current one, those of other hosts.
    pub still_too_large: bool,
    /// Whether an epoch that should be removed was in use, most often by our own compaction of the epoch that just ended.
    pub busy: bool,
}

/// Removes the epochs that exceed the limits, except `current`.
pub fn retain(database: &Database, limits: Limits, current: &EpochId) -> Result<Retained, DatabaseError> {
    if limits == Limits::default() {
        return Ok(Retained::default());
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let epochs = database.epochs()?.epochs;
    let mut candidates = Vec::with_capacity(epochs.len());
    for epoch in epochs {
        let bytes = database.epoch_bytes(&epoch.id)?;
        let ours = epoch.id != *current && is_ours(&epoch, &host);
        candidates.push(Candidate { end: epoch.end.unwrap_or(epoch.start), id: epoch.id, bytes, ours });
    }
    let (chosen, still_too_large) = to_remove(candidates, limits, Timestamp::now());
    let mut retained = Retained { still_too_large, ..Retained::default() };
    for id in chosen {
        match database.remove(&id) {
            Ok(()) => retained.removed.push(id),
            Err(DatabaseError::EpochBusy { .. }) => retained.busy = true,
            Err(DatabaseError::NoSuchEpoch { .. }) => {} // Another process removed it.
            Err(error) => return Err(error),
        }
    }
    Ok(retained)
}

fn is_ours(epoch: &Epoch, host: &str) -> bool {
    epoch.name.is_none()
        && epoch.scope == Scope::System
        && epoch.collector.is_some()
        && epoch.host.name == host
}

#[cfg(test)]
mod tests {
    use dwell_profile::CollectorRecord;
    use jiff::SignedDuration;

    use super::*;
    use crate::run::store;

    const DAY: i64 = 86_400;

    /// Creates epochs that ended so many days ago, with so many bytes.
    fn epochs(list: &[(&str, i64, u64, bool)]) -> Vec<Candidate> {
        let candidate = |(id, days, bytes, ours): &(&str, i64, u64, bool)| Candidate {
            id: EpochId((*id).to_owned()),
            end: now() - SignedDuration::from_secs(days * DAY),
            bytes: *bytes,
            ours: *ours,
        };
        list.iter().map(candidate).collect()
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn removed(list: &[(&str, i64, u64, bool)], days: Option<u64>, bytes: Option<u64>) -> (String, bool) {
        let limits = Limits { age: days.map(|d| Duration::from_secs(d * DAY as u64)), bytes };
        let (ids, too_large) = to_remove(epochs(list), limits, now());
        (ids.iter().map(|id| id.0.clone()).collect::<Vec<_>>().join(" "), too_large)
    }

    #[test]
    fn the_oldest_epochs_are_removed_first() {
        let list = [("b", 3, 10, true), ("a", 9, 10, true), ("c", 1, 10, true), ("named", 20, 10, false)];
        assert_eq!(removed(&list, None, None), (String::new(), false));
        assert_eq!(removed(&list, Some(2), None), ("a b".to_owned(), false));
        assert_eq!(removed(&list, None, Some(30)), ("a".to_owned(), false));
        assert_eq!(removed(&list, None, Some(20)), ("a b".to_owned(), false));
        assert_eq!(removed(&list, Some(5), Some(30)), ("a".to_owned(), false), "once for both");
        assert_eq!(removed(&list, None, Some(5)), ("a b c".to_owned(), true), "the named one is too large");
    }

    #[test]
    fn epochs_in_the_future_are_not_old() {
        let list = [("future", -400, 10, true), ("old", 5, 10, true)];
        assert_eq!(removed(&list, Some(2), None), ("old".to_owned(), false));
        assert_eq!(removed(&list, None, Some(10)), ("old".to_owned(), false));
    }

    #[test]
    fn an_epoch_in_use_is_removed_later() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path()).unwrap();
        let collector = Some(CollectorRecord::default());
        let epoch = Epoch { collector, ..store::tests::epoch() };
        let id = epoch.id.clone();
        let held = database.writer().unwrap().begin(epoch).unwrap();
        let limits = Limits { age: None, bytes: Some(0) };
        let retained = || retain(&database, limits, &EpochId("another".to_owned())).unwrap();
        assert_eq!(retained(), Retained { busy: true, ..Retained::default() });
        drop(held);
        assert_eq!(retained().removed, [id]);
    }
}
