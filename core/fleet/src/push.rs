//! Sends the recordings of a host to a bucket: once each, and resumed after whatever went wrong.
//!
//! Enters: a database on this machine, and a place. Leaves: objects, and what was sent. An epoch is sent when it has ended; its files
//! go first and `epoch.json` last, so that nobody reads half of it. Each object is put only if there is none with its key, so
//! that sending again changes nothing.

use std::{
    collections::{BTreeSet, HashSet},
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use dwell_profile::{
    Database, Epoch, EpochId, EpochsRead, ImageId, ImageKind, ImageRecord, ImageSymbol, MAX_SEGMENT_BYTES,
    Warning, encode_symbols,
};

use crate::{
    FLEET_FORMAT, FleetError, Location,
    client::{Client, Put},
    keys::{EPOCH_FILE, EpochFolder, FORMAT, IMAGES, MARK, SYMBOLS},
    mirror::check_marker,
    sent::Sent,
};

/// Level of zstd for binaries: each is packed once for the whole fleet.
const BINARIES_LEVEL: i32 = 6;

/// Returns the bytes of a binary as it was sampled, if it is on this machine.
pub type FindBinary<'f> = dyn Fn(&ImageRecord) -> Option<Vec<u8>> + 'f;

/// Returns the symbols of a binary as it was sampled, if it is on this machine.
pub type FindSymbols<'f> = dyn Fn(&ImageRecord) -> Option<Vec<ImageSymbol>> + 'f;

/// How a push is done.
#[derive(Default)]
pub struct PushOptions<'f> {
    /// The most bytes a second that are sent on average; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// A folder that remembers what was sent, so that the store need not be asked; `None` to ask it each time.
    pub state: Option<PathBuf>,
    /// Whether to send recordings that have no end although nothing shows that their collector died.
    pub unended: bool,
    /// Finds the symbols of sampled binaries, which are then sent too, each once for the whole fleet; `None` to send none.
    pub symbols: Option<&'f FindSymbols<'f>>,
    /// Finds the sampled binaries, which are then sent too, each once for the whole fleet; `None` to send none: code leaves the
    /// machine.
    pub binaries: Option<&'f FindBinary<'f>>,
}

/// What was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Epochs that are in the bucket since this push.
    pub epochs: Vec<EpochId>,
    /// Number of epochs that were there before.
    pub known: usize,
    /// Epochs that have not ended.
    pub unended: Vec<EpochId>,
    /// Number of binaries whose symbols were sent.
    pub symbols: usize,
    /// Paths of the binaries that were sent.
    pub binaries: Vec<PathBuf>,
    /// Paths of sampled binaries that are not on this machine, or are too large.
    pub missing: BTreeSet<PathBuf>,
    /// Number of objects that were stored.
    pub objects: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Epochs that could not be sent, each with the reason.
    pub failed: Vec<(EpochId, String)>,
}

impl Pushed {
    /// Returns the epochs of a database that cannot be read, each with the reason.
    pub(crate) fn unreadable(read: &EpochsRead) -> Vec<(EpochId, String)> {
        let named = |warning: &Warning| {
            EpochId(warning.path.file_name().unwrap_or_default().to_string_lossy().into())
        };
        read.warnings.iter().map(|warning| (named(warning), warning.reason.clone())).collect()
    }
}

/// Sends the epochs of a database that are not in the bucket. An epoch that cannot be read is left out and counted; a store that
/// refuses or does not answer ends the push with an error, after which the next one goes on where this one ended.
pub fn push(
    database: &Database,
    location: &Location,
    options: &PushOptions<'_>,
) -> Result<Pushed, FleetError> {
    let client = Client::new(location)?;
    let mut sender = Sender {
        sent: Sent::open(options.state.as_deref(), &format!("{}\n{}", client.identity(), location.prefix))?,
        pace: Pace { bytes_per_second: options.bytes_per_second, start: Instant::now(), bytes: 0 },
        client,
        images: HashSet::new(),
        location,
        pushed: Pushed::default(),
    };
    sender.mark()?;
    let read = database.epochs()?;
    sender.pushed.failed = Pushed::unreadable(&read);
    sender.sent.keep_only(&read.epochs)?;
    for epoch in &read.epochs {
        if sender.sent.contains(&epoch.id.0) {
            sender.pushed.known += 1;
        } else if !has_ended(epoch, &read.epochs) && !options.unended {
            sender.pushed.unended.push(epoch.id.clone());
        } else {
            sender.send(database, epoch, options)?;
        }
    }
    Ok(sender.pushed)
}

/// Time after which a host's next epoch shows that an epoch without an end was abandoned: a collector that goes from one epoch to the next
/// stores the rest of the former within seconds.
const ABANDONED_AFTER_S: i64 = 3600;

/// Returns whether nothing more will be stored in an epoch: it has an end, or its collector was killed and a later one has long been
/// running on that host.
pub(crate) fn has_ended(epoch: &Epoch, all: &[Epoch]) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let follows = |other: &&Epoch| {
        other.host.name == epoch.host.name
            && other.start > epoch.start
            && other.start.as_second() < now - ABANDONED_AFTER_S
    };
    epoch.end.is_some() || all.iter().any(|other| follows(&other))
}

/// What became of the attempt to send something.
#[derive(PartialEq)]
enum Sending {
    /// It is there since now.
    Done,
    /// It was there.
    There,
    /// It is not on this machine, or too large.
    Missing,
}

struct Sender<'l> {
    client: Client,
    /// Images whose symbols and copies this push has seen to.
    images: HashSet<ImageId>,
    location: &'l Location,
    sent: Sent,
    pace: Pace,
    pushed: Pushed,
}

impl Sender<'_> {
    /// Writes the marker of the layout, or checks it.
    fn mark(&mut self) -> Result<(), FleetError> {
        let key = self.location.key(FORMAT);
        let marker = self.client.get(&key, 64)?;
        check_marker(self.location, marker.as_deref())?;
        if marker.is_none() {
            self.put(&key, format!("{MARK}{FLEET_FORMAT}\n").as_bytes())?;
        }
        Ok(())
    }

    fn send(
        &mut self,
        database: &Database,
        epoch: &Epoch,
        options: &PushOptions<'_>,
    ) -> Result<(), FleetError> {
        let folder = EpochFolder::of(epoch);
        let last = self.location.key(&folder.key(EPOCH_FILE));
        if self.client.exists(&last)? {
            self.pushed.known += 1;
            return self.sent.add(&epoch.id.0);
        }
        let has_samples = epoch.events.values().any(|record| record.samples > 0);
        if has_samples && !database.epoch_files(&epoch.id)?.iter().any(|file| file.starts_with("segment-")) {
            let why = "its samples are gone: no segment is there".to_owned();
            self.pushed.failed.push((epoch.id.clone(), why));
            return Ok(());
        }
        let sent = self.send_files(database, epoch, &folder);
        match sent.and_then(|()| self.send_images(database, epoch, options)) {
            Err(FleetError::Database(error)) => {
                self.pushed.failed.push((epoch.id.clone(), error.to_string()));
                Ok(())
            }
            Err(error) => Err(error),
            Ok(()) => {
                self.put(&last, &database.epoch_json(&epoch.id)?)?;
                self.pushed.epochs.push(epoch.id.clone());
                self.sent.add(&epoch.id.0)
            }
        }
    }

    /// Sends symbols and sampled binaries that no machine of the fleet sent before.
    fn send_images(
        &mut self,
        database: &Database,
        epoch: &Epoch,
        options: &PushOptions<'_>,
    ) -> Result<(), FleetError> {
        if options.symbols.is_none() && options.binaries.is_none() {
            return Ok(());
        }
        for record in database.segment_files(&epoch.id)?.images {
            let Some(build_id) = record.id.build_id().filter(|_| record.kind == ImageKind::File) else {
                continue;
            };
            if !self.images.insert(record.id.clone()) {
                continue;
            }
            // To ask the store for what is not here would cost a request for each recording.
            let is_here = record.path.exists() || database.keeps_image(&record.id);
            if let Some(find) = options.symbols.filter(|_| is_here) {
                let name = format!("{SYMBOLS}{build_id}.parquet");
                let found = || find(&record).and_then(|symbols| encode_symbols(&record.id, &symbols).ok());
                self.pushed.symbols += usize::from(self.send_image(&name, &found)? == Sending::Done);
            }
            if let Some(find) = options.binaries {
                let pack = |bytes: Vec<u8>| zstd::encode_all(&bytes[..], BINARIES_LEVEL).ok();
                let name = format!("{IMAGES}{build_id}.zst");
                match self.send_image(&name, &|| find(&record).and_then(pack))? {
                    Sending::Done => self.pushed.binaries.push(record.path),
                    Sending::Missing => _ = self.pushed.missing.insert(record.path),
                    Sending::There => {}
                }
            }
        }
        Ok(())
    }

    /// Sends what belongs to an image, unless it is there.
    fn send_image(&mut self, name: &str, find: &dyn Fn() -> Option<Vec<u8>>) -> Result<Sending, FleetError> {
        if self.sent.contains(name) {
            return Ok(Sending::There);
        }
        let key = self.location.key(name);
        if self.client.exists(&key)? {
            self.sent.add(name)?;
            return Ok(Sending::There);
        }
        let Some(bytes) = find().filter(|bytes| bytes.len() as u64 <= MAX_SEGMENT_BYTES) else {
            return Ok(Sending::Missing);
        };
        self.put(&key, &bytes)?;
        self.sent.add(name)?;
        Ok(Sending::Done)
    }

    /// Sends the files of an epoch. If a compaction replaced some of them meanwhile, those that replaced them are sent too; readers
    /// know which of them count.
    fn send_files(
        &mut self,
        database: &Database,
        epoch: &Epoch,
        folder: &EpochFolder,
    ) -> Result<(), FleetError> {
        let mut done = BTreeSet::new();
        loop {
            let files = database.epoch_files(&epoch.id)?;
            let Some(next) = files.into_iter().find(|file| !done.contains(file)) else { return Ok(()) };
            if let Some(bytes) = database.signed_file(&epoch.id, &next)? {
                self.put(&self.location.key(&folder.key(&next)), &bytes)?;
            }
            done.insert(next);
        }
    }

    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), FleetError> {
        if self.client.put_once(key, bytes)? == Put::New {
            self.pushed.objects += 1;
            self.pushed.bytes += bytes.len() as u64;
            self.pace.wait_after(bytes.len() as u64);
        }
        Ok(())
    }
}

/// Keeps the average rate of bytes within a limit.
struct Pace {
    bytes_per_second: Option<u64>,
    start: Instant,
    bytes: u64,
}

impl Pace {
    fn wait_after(&mut self, bytes: u64) {
        self.bytes += bytes;
        let Some(rate) = self.bytes_per_second.filter(|rate| *rate > 0) else { return };
        let due = Duration::from_secs_f64(self.bytes as f64 / rate as f64);
        std::thread::sleep(due.saturating_sub(self.start.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(host: &str, start: &str, end: Option<&str>) -> Epoch {
        let epoch = serde_json::json!({
            "id": format!("{host}-1"), "start": start, "end": end, "host": {"name": host, "kernel_release": "6"},
            "cpu": {"arch": "x86_64", "vendor": "v", "model_name": "m", "family": 6, "model": 1, "stepping": 1, "count": 2},
            "backend": "bpf", "scope": "system", "events": {},
        });
        serde_json::from_value(epoch).unwrap()
    }

    #[test]
    fn a_killed_collectors_recording_ends_when_another_has_long_begun() {
        let killed = epoch("a", "2026-01-01T00:00:00Z", None);
        let ended = epoch("a", "2026-01-01T00:00:00Z", Some("2026-01-01T01:00:00Z"));
        assert!(has_ended(&ended, &[]) && !has_ended(&killed, std::slice::from_ref(&killed)));
        assert!(has_ended(&killed, &[epoch("a", "2026-01-02T00:00:00Z", None)]));
        assert!(!has_ended(&killed, &[epoch("b", "2026-01-02T00:00:00Z", None)]), "another host's");
        assert!(!has_ended(&killed, &[epoch("a", "2025-12-31T00:00:00Z", None)]), "an earlier one");
        // In the year 9000 it will be.
        assert!(!has_ended(&killed, &[epoch("a", "9000-01-01T00:00:00Z", None)]), "one that began just now");
    }
}
