//! The job that sums up the recordings of each day in a bucket, so that a question about many machines reads little.
//!
//! Enters: a place in a bucket. Leaves: roll-ups in the same place. A roll-up is an epoch that is the sum of others
//! ([`Database::sum_into`]), with totals that keep them apart and with what describes each of them. It is never changed, and its id
//! follows from what is in it; so a job can be killed, repeated or run twice at once.

use std::{collections::BTreeMap, io::Write};

use dwell_profile::{Database, Epoch, EpochId, EpochKind, EpochsSummed, Warning, encode_totals};

use crate::{
    FleetError, Location,
    client::{Client, Put},
    keys::{EPOCH_FILE, RECORDINGS, RollUpFolder},
    mirror::{self, Mirror},
};

/// Level of zstd for what describes recordings: they are much alike.
const RECORDINGS_LEVEL: i32 = 9;

/// How recordings are summed up.
#[derive(Clone, Debug)]
pub struct RollUpOptions {
    /// The largest number of recordings in a roll-up.
    pub recordings_max: usize,
    /// Whether recordings of today are summed up too. Those of the same day that come later get another roll-up.
    pub today: bool,
    /// The recordings that are summed up, whatever their number and day, as a plan has them; empty for all.
    pub only: Vec<EpochId>,
}

impl Default for RollUpOptions {
    fn default() -> Self {
        RollUpOptions { recordings_max: 1000, today: false, only: Vec::new() }
    }
}

/// What a job did.
#[derive(Debug, Default)]
pub struct RolledUp {
    /// The roll-ups that were made, each with its number of recordings.
    pub made: Vec<(EpochId, usize)>,
    /// Number of objects that were stored.
    pub objects: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// What could not be read. The recordings that it belongs to are in no roll-up.
    pub warnings: Vec<Warning>,
    /// Recordings that are in no roll-up, since none of their day and kind can be summed up with them.
    pub alone: Vec<EpochId>,
    /// Number of recordings of today, which were left for later.
    pub today: usize,
}

/// Returns which recordings would be summed up together: those of a day and a kind that are in no roll-up yet.
pub fn plan(location: &Location, options: &RollUpOptions) -> Result<Vec<Vec<EpochId>>, FleetError> {
    let mut job = Job::open(location)?;
    let groups = job.groups(options)?;
    Ok(groups.into_iter().map(|(_, epochs)| epochs.into_iter().map(|epoch| epoch.id).collect()).collect())
}

/// Sums up recordings.
pub fn roll_up(location: &Location, options: &RollUpOptions) -> Result<RolledUp, FleetError> {
    let mut job = Job::open(location)?;
    for (date, epochs) in job.groups(options)? {
        job.sum_up(&date, epochs)?;
        job.mirror.evict()?;
    }
    Ok(job.done)
}

struct Job<'l> {
    location: &'l Location,
    client: Client,
    database: Database,
    mirror: std::sync::Arc<Mirror>,
    done: RolledUp,
}

impl<'l> Job<'l> {
    fn open(location: &'l Location) -> Result<Self, FleetError> {
        if !location.hosts.is_empty() || location.service.is_some() {
            let why = "a roll-up holds the recordings of all hosts and services: only since and until can choose some";
            return Err(FleetError::Location { given: location.to_string(), why: why.to_owned() });
        }
        let client = Client::new(location)?;
        let (database, mirror) = mirror::open_mirror(location.clone())?;
        Ok(Job { location, client, database, mirror, done: RolledUp::default() })
    }

    /// Returns the recordings that are in no roll-up, by the day on which they began and by kind, in groups of bounded size. A recording
    /// that has none of its like is in no group.
    fn groups(&mut self, options: &RollUpOptions) -> Result<Vec<(String, Vec<Epoch>)>, FleetError> {
        let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
        let dates: BTreeMap<EpochId, String> =
            self.mirror.index()?.apart().into_iter().map(|(date, id)| (id, date)).collect();
        let mut alike: BTreeMap<(String, EpochKind), Vec<Epoch>> = BTreeMap::new();
        let epochs = self.database.epochs()?.epochs;
        if let Some(id) = options.only.iter().find(|id| !epochs.iter().any(|epoch| epoch.id == **id)) {
            let why = format!("no such recording is in {}", self.location);
            return Err(FleetError::Location { given: id.to_string(), why });
        }
        for epoch in epochs {
            let is_chosen = |date: &&String| match &options.only[..] {
                [] => options.today || **date < today,
                only => only.contains(&epoch.id),
            };
            match dates.get(&epoch.id) {
                Some(date) if is_chosen(&date) => {
                    alike.entry((date.clone(), epoch.kind())).or_default().push(epoch);
                }
                Some(_) if options.only.is_empty() => self.done.today += 1,
                _ => {}
            }
        }
        let mut groups = Vec::new();
        for ((date, _), mut epochs) in alike {
            epochs.sort_by(|a, b| a.id.cmp(&b.id));
            // No group is left with a single recording.
            let size_max = if options.only.is_empty() { options.recordings_max } else { epochs.len() };
            let number = epochs.len().div_ceil(size_max.max(2)).max(1);
            let size = epochs.len().div_ceil(number);
            for part in epochs.chunks(size.max(1)) {
                match part {
                    [single] => self.done.alone.push(single.id.clone()),
                    part => groups.push((date.clone(), part.to_vec())),
                }
            }
        }
        Ok(groups)
    }

    /// Makes the roll-up of some recordings of a day.
    fn sum_up(&mut self, date: &str, mut epochs: Vec<Epoch>) -> Result<(), FleetError> {
        while epochs.len() > 1 {
            let ids: Vec<EpochId> = epochs.iter().map(|epoch| epoch.id.clone()).collect();
            self.mirror.fetch_epochs(&ids)?;
            let folder = RollUpFolder { date: date.to_owned(), id: id_of(date, &ids) };
            let scratch = tempfile::tempdir()
                .map_err(|source| FleetError::File { path: std::env::temp_dir(), source })?;
            let local = Database::open(scratch.path().join("sum"))?;
            let Some(sum) = Epoch::sum(folder.id.clone(), &epochs) else { return Ok(()) };
            let end = sum.end.unwrap_or(sum.start);
            let mut writer = local.writer()?.begin(sum)?;
            let EpochsSummed { epochs: summed, totals, warnings } =
                self.database.sum_into(&epochs, &mut writer)?;
            self.done.warnings.extend(warnings);
            // The id says what is in it.
            if summed.len() < epochs.len() {
                epochs = summed;
                continue;
            }
            writer.finish(end)?;
            for name in local.epoch_files(&folder.id)? {
                if let Some(bytes) = local.signed_file(&folder.id, &name)? {
                    self.put(&folder.key(&name), &bytes)?;
                }
            }
            let encode =
                |source| dwell_profile::DatabaseError::Encode { id: folder.id.clone(), number: 1, source };
            self.put(&folder.totals_key(), &encode_totals(&totals).map_err(encode)?)?;
            self.put(&folder.key(RECORDINGS), &self.described(&epochs)?)?;
            self.put(&folder.key(EPOCH_FILE), &local.epoch_json(&folder.id)?)?;
            self.done.made.push((folder.id, epochs.len()));
            return Ok(());
        }
        self.done.alone.extend(epochs.into_iter().map(|epoch| epoch.id));
        Ok(())
    }

    /// Returns what describes each recording, one on a line, packed.
    fn described(&self, epochs: &[Epoch]) -> Result<Vec<u8>, FleetError> {
        let mut lines = Vec::new();
        for epoch in epochs {
            let text = self.database.epoch_json(&epoch.id)?;
            let value: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            lines.extend(value.to_string().into_bytes());
            lines.push(b'\n');
        }
        let pack = || {
            let mut encoder = zstd::Encoder::new(Vec::new(), RECORDINGS_LEVEL)?;
            encoder.include_checksum(true)?;
            encoder.write_all(&lines)?;
            encoder.finish()
        };
        pack().map_err(|source| FleetError::File { path: RECORDINGS.into(), source })
    }

    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), FleetError> {
        if self.client.put_once(&self.location.key(key), bytes)? == Put::New {
            self.done.objects += 1;
            self.done.bytes += bytes.len() as u64;
        }
        Ok(())
    }
}

/// Returns the id of the roll-up of these recordings. It depends on the version of this program, which decides on the bytes of the
/// files: those of one roll-up are never of two versions.
fn id_of(date: &str, ids: &[EpochId]) -> EpochId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
    ids.iter().for_each(|id| _ = hasher.update(b"\n").update(id.0.as_bytes()));
    EpochId(format!("{}T000000Z-{}", date.replace('-', ""), &hasher.finalize().to_hex()[..16]))
}
