//! Which recordings and roll-ups are in a bucket, and which of them are wanted.
//!
//! Enters: the keys in a bucket, and what each roll-up says is in it. Leaves: the epochs of a database. Nothing is fetched but lists.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use dwell_profile::EpochId;

use crate::{
    FleetError, Location,
    client::Client,
    keys::{self, EPOCH_FILE, EPOCHS, EpochFolder, RECORDINGS, ROLL_UPS, RollUpFolder},
};

/// The files of an epoch or a roll-up in the bucket.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) id: EpochId,
    /// Their keys without their names, under the prefix.
    pub(crate) folder: String,
    /// Sizes in bytes by name.
    pub(crate) files: BTreeMap<String, u64>,
}

impl Remote {
    fn new(id: &EpochId, folder: String) -> Self {
        Remote { id: id.clone(), folder, files: BTreeMap::new() }
    }

    /// Returns the folder of an epoch; `None` for a roll-up.
    fn of_epoch(&self) -> Option<EpochFolder> {
        EpochFolder::parse(&format!("{}{EPOCH_FILE}", self.folder)).map(|(folder, _)| folder)
    }
}

/// All that is in a bucket in the wanted days.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The epochs of all hosts.
    pub(crate) epochs: BTreeMap<EpochId, Remote>,
    /// The roll-ups.
    pub(crate) roll_ups: BTreeMap<EpochId, Remote>,
    /// What is left out, each with the reason.
    left_out: BTreeSet<String>,
}

impl Listing {
    /// Asks the store, for the recordings and the roll-ups at the same time.
    pub(crate) fn of(client: &Client, location: &Location) -> Result<Self, FleetError> {
        std::thread::scope(|scope| {
            let roll_ups = scope.spawn(|| list_roll_ups(client, location));
            let listing = Listing::of_epochs(client, location)?;
            let roll_ups = roll_ups.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(Listing { roll_ups, ..listing })
        })
    }

    fn of_epochs(client: &Client, location: &Location) -> Result<Self, FleetError> {
        let mut listing = Listing::default();
        list_dates(client, location, EPOCHS, &mut |key, bytes| {
            let Some((folder, file)) = EpochFolder::parse(key) else { return }; // It is nothing of ours.
            let (id, place) = (&folder.id, folder.key(""));
            let remote = listing.epochs.entry(id.clone()).or_insert_with(|| Remote::new(id, place.clone()));
            // Two hosts would have to draw the same id in the same second. The first is shown, whole.
            if remote.folder == place {
                remote.files.insert(file.to_owned(), bytes);
            } else if wants_host(location, &folder.host) {
                listing.left_out.insert(format!("{id} of {}, hidden by another host's", folder.host));
            }
        })?;
        // The rest of what lacks this file is still on its way.
        listing.epochs.retain(|_, remote| remote.files.contains_key(EPOCH_FILE));
        Ok(listing)
    }
}

fn list_roll_ups(client: &Client, location: &Location) -> Result<BTreeMap<EpochId, Remote>, FleetError> {
    let mut roll_ups: BTreeMap<EpochId, Remote> = BTreeMap::new();
    list_dates(client, location, ROLL_UPS, &mut |key, bytes| {
        let Some((folder, file)) = RollUpFolder::parse(key) else { return };
        let new = || Remote::new(&folder.id, folder.key(""));
        roll_ups.entry(folder.id.clone()).or_insert_with(new).files.insert(file.to_owned(), bytes);
    })?;
    let files = [EPOCH_FILE, RECORDINGS];
    roll_ups.retain(|_, remote| files.iter().all(|file| remote.files.contains_key(*file)));
    Ok(roll_ups)
}

/// Lists the objects under `folder`, which has a folder for each date, as far as their dates are wanted.
fn list_dates(
    client: &Client,
    location: &Location,
    folder: &str,
    take: &mut dyn FnMut(&str, u64),
) -> Result<(), FleetError> {
    let start = location.key("");
    let dates = format!("{start}{folder}date=");
    let after = location.since.as_ref().map(|date| format!("{dates}{date}"));
    client.list(&format!("{start}{folder}"), after.as_deref(), &mut |key, bytes| {
        let date = key.strip_prefix(&dates).and_then(|rest| rest.get(..10));
        let is_late = date.zip(location.until.as_deref()).is_some_and(|(date, until)| date > until);
        if let Some(key) = key.strip_prefix(&start).filter(|_| !is_late) {
            take(key, bytes);
        }
        !is_late
    })
}

fn wants_host(location: &Location, host: &str) -> bool {
    location.hosts.is_empty() || location.hosts.iter().any(|wanted| keys::host_in_keys(wanted) == host)
}

/// The epochs of the bucket that are wanted.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) epochs: BTreeMap<EpochId, Remote>,
    /// Roll-ups of wanted epochs, with these. No epoch is in two of them.
    pub(crate) sums: BTreeMap<EpochId, (Remote, Vec<EpochId>)>,
    /// What is left out, each with the reason. It is listed among the epochs, by a name that is no epoch's, so that readers warn.
    pub(crate) left_out: BTreeSet<String>,
}

impl Index {
    /// Chooses what is wanted. `recordings` returns the epochs that are in a roll-up, or why that cannot be known.
    ///
    /// A roll-up whose epochs are all wanted can be read in place of them. One of whose epochs some are gone, by the store's rules, is
    /// an epoch itself; so are all of them if that is asked for.
    pub(crate) fn new(
        listing: Listing,
        location: &Location,
        mut recordings: impl FnMut(&Remote) -> Result<Vec<EpochId>, String>,
    ) -> Self {
        let Listing { mut epochs, roll_ups, mut left_out } = listing;
        let all: HashSet<EpochId> = epochs.keys().cloned().collect();
        epochs.retain(|_, remote| remote.of_epoch().is_some_and(|folder| wants_host(location, &folder.host)));
        let mut index = Index { epochs, ..Index::default() };
        let mut summed: HashSet<EpochId> = HashSet::new();
        for (id, remote) in roll_ups {
            let parts = match recordings(&remote) {
                Ok(parts) => parts,
                Err(why) => {
                    left_out.insert(format!("the roll-up {id}: {why}"));
                    continue;
                }
            };
            // Two jobs at once may make roll-ups of the same epochs.
            if parts.is_empty() || parts.iter().any(|part| summed.contains(part)) {
                continue;
            }
            let some_are_gone = !parts.iter().all(|part| all.contains(part));
            if location.hosts.is_empty() && (location.roll_ups_shown || some_are_gone) {
                parts.iter().for_each(|part| _ = index.epochs.remove(part));
                summed.extend(parts);
                index.epochs.insert(id, remote);
            } else if parts.iter().all(|part| index.epochs.contains_key(part)) {
                summed.extend(parts.iter().cloned());
                index.sums.insert(id, (remote, parts));
            }
        }
        index.left_out = left_out;
        index
    }

    /// Returns an epoch or a roll-up.
    pub(crate) fn remote(&self, id: &EpochId) -> Option<&Remote> {
        self.epochs.get(id).or_else(|| self.sums.get(id).map(|(remote, _)| remote))
    }

    /// Returns the wanted epochs that are in no roll-up and are none, with the dates on which they began.
    pub(crate) fn apart(&self) -> Vec<(String, EpochId)> {
        let summed: HashSet<&EpochId> = self.sums.values().flat_map(|(_, parts)| parts).collect();
        let apart = self.epochs.values().filter(|remote| !summed.contains(&remote.id));
        apart.filter_map(Remote::of_epoch).map(|folder| (folder.date, folder.id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(epochs: &[&str], roll_ups: &[&str]) -> Listing {
        let folder = |id: &&str| {
            let id = EpochId((*id).to_owned());
            let host = id.0[..1].to_owned();
            (
                id.clone(),
                Remote::new(&id, EpochFolder { date: "2026-11-27".into(), host, id: id.clone() }.key("")),
            )
        };
        let roll_up = |id: &&str| {
            let id = EpochId((*id).to_owned());
            (id.clone(), Remote::new(&id, RollUpFolder { date: "2026-11-27".into(), id: id.clone() }.key("")))
        };
        Listing {
            epochs: epochs.iter().map(folder).collect(),
            roll_ups: roll_ups.iter().map(roll_up).collect(),
            left_out: BTreeSet::new(),
        }
    }

    /// Describes an index: the epochs, then the roll-ups that can be read in place of some, then what is left out.
    fn shown(index: &Index) -> String {
        let ids = |ids: Vec<&EpochId>| ids.iter().map(|id| id.0.as_str()).collect::<Vec<_>>().join(" ");
        let epochs = ids(index.epochs.keys().collect());
        let (sums, left_out) = (ids(index.sums.keys().collect()), index.left_out.len());
        format!("{epochs} / {sums} / {left_out}")
    }

    fn index(place: &str, epochs: &[&str], roll_ups: &[(&str, &[&str])]) -> Index {
        let names: Vec<&str> = roll_ups.iter().map(|(id, _)| *id).collect();
        Index::new(listing(epochs, &names), &Location::parse(place).unwrap(), |remote| {
            let (_, parts) = roll_ups.iter().find(|(id, _)| remote.id.0 == *id).unwrap();
            if parts == &["?"] {
                return Err("damaged".to_owned());
            }
            Ok(parts.iter().map(|part| EpochId((*part).to_owned())).collect())
        })
    }

    #[test]
    fn a_roll_up_stands_for_its_epochs_if_all_are_wanted() {
        let all = index("s3://fleet/p", &["a1", "b1", "b2"], &[("s1", &["a1", "b1"])]);
        assert_eq!(shown(&all), "a1 b1 b2 / s1 / 0");
        assert_eq!(all.apart(), [("2026-11-27".to_owned(), EpochId("b2".into()))]);
        assert!(all.remote(&EpochId("s1".into())).is_some());
        let of_b = index("s3://fleet/p?host=b", &["a1", "b1", "b2"], &[("s1", &["a1", "b1"])]);
        assert_eq!(shown(&of_b), "b1 b2 /  / 0");
    }

    #[test]
    fn no_epoch_counts_twice() {
        let twice =
            index("s3://fleet/p", &["a1", "b1", "b2"], &[("s1", &["a1", "b1"]), ("s2", &["b1", "b2"])]);
        assert_eq!(shown(&twice), "a1 b1 b2 / s1 / 0");
    }

    #[test]
    fn a_roll_up_outlives_its_epochs() {
        let some_are_gone = index("s3://fleet/p", &["b1", "b2"], &[("s1", &["a1", "b1"])]);
        assert_eq!(shown(&some_are_gone), "b2 s1 /  / 0");
        let with_host = index("s3://fleet/p?host=b", &["b1", "b2"], &[("s1", &["a1", "b1"])]);
        assert_eq!(shown(&with_host), "b1 b2 /  / 0");
    }

    #[test]
    fn roll_ups_are_epochs_if_they_are_shown() {
        let shown_ones = index("s3://fleet/p?rollups=shown", &["a1", "b1", "b2"], &[("s1", &["a1", "b1"])]);
        assert_eq!(shown(&shown_ones), "b2 s1 /  / 0");
    }

    #[test]
    fn a_damaged_roll_up_is_left_out_and_told() {
        let damaged = index("s3://fleet/p", &["a1"], &[("s1", &["?"]), ("s2", &[])]);
        assert_eq!(shown(&damaged), "a1 /  / 1");
    }
}
