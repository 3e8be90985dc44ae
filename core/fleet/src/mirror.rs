//! A database whose files lie in a bucket: each is fetched when it is first read, and kept in a cache of bounded size.
//!
//! Enters: paths of a database. Leaves: the bytes of files. Objects are never changed, so a file in the cache is always right. The list
//! of objects is asked for when the database is first read, and every five minutes after that.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use dwell_profile::{Database, Disk, Entry, EpochId, LockOutcome, read_file};

use crate::{
    FLEET_FORMAT, FleetError, Location,
    client::Client,
    keys::{self, EPOCH_FILE, EPOCHS, EpochFolder, FORMAT, IMAGES, MARK},
};

/// Size limit of a fleet's cache, in bytes, unless `DWELL_FLEET_CACHE_MIB` says another.
const CACHE_BYTES_MAX: u64 = 4 << 30;
/// Number of objects that are fetched at a time.
const REQUESTS_AT_ONCE: usize = 16;
/// Size limit in bytes of an object of an epoch, as of its file.
const OBJECT_BYTES_MAX: u64 = dwell_profile::MAX_SEGMENT_BYTES;

/// Opens the database at a path, or the one that a place in a bucket means. The store is asked when the database is first read.
pub fn open(place: &Path) -> Result<Database, FleetError> {
    if !Location::is_remote(place) {
        return Ok(Database::open(place)?);
    }
    let location = Location::parse(&place.to_string_lossy())?;
    let client = Client::new(&location)?;
    let identity = blake3::hash(format!("{}\n{}", client.identity(), location.prefix).as_bytes());
    let root = cache_dir()?.join(&identity.to_hex()[..32]);
    let mirror = Mirror { client, location, root: root.clone(), index: Mutex::new(None) };
    mirror.make_dir(&root)?;
    mirror.evict(cache_bytes_max())?;
    Ok(Database::on(Arc::new(mirror), root)?)
}

/// Checks the version in a bucket; a bucket that was never pushed to has none.
pub(crate) fn check_marker(location: &Location, marker: Option<&[u8]>) -> Result<(), FleetError> {
    let Some(marker) = marker else { return Ok(()) };
    let text = String::from_utf8_lossy(marker);
    let place = location.to_string();
    match text.strip_prefix(MARK).and_then(|version| version.trim_end().parse().ok()) {
        Some(found) if found <= FLEET_FORMAT => Ok(()),
        Some(found) => Err(FleetError::Newer { place, found, known: FLEET_FORMAT }),
        None => Err(FleetError::Location {
            given: place,
            why: "the object FORMAT there is not the marker of a fleet".to_owned(),
        }),
    }
}

fn cache_dir() -> Result<PathBuf, FleetError> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    Ok(cache.ok_or(FleetError::NoCache)?.join("dwell/fleet"))
}

fn cache_bytes_max() -> u64 {
    let mib = std::env::var("DWELL_FLEET_CACHE_MIB").ok().and_then(|text| text.parse::<u64>().ok());
    mib.map_or(CACHE_BYTES_MAX, |mib| mib.saturating_mul(1 << 20))
}

/// Time after which the objects are listed again, for editors that stay open.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// The files of an epoch in the bucket.
#[derive(Debug)]
struct Remote {
    folder: EpochFolder,
    /// Sizes in bytes by name.
    files: BTreeMap<String, u64>,
}

/// The epochs of the bucket that are wanted.
#[derive(Debug, Default)]
struct Index {
    epochs: BTreeMap<EpochId, Remote>,
    /// Epochs that another host's epoch of the same id hides. They are listed by a name that is no epoch's, so that readers warn.
    hidden: BTreeSet<EpochFolder>,
}

/// A database in a bucket, with its cache in the folder `root`.
struct Mirror {
    client: Client,
    location: Location,
    root: PathBuf,
    /// The epochs, and when they were listed.
    index: Mutex<Option<(Instant, Arc<Index>)>>,
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mirror({})", self.location)
    }
}

impl Mirror {
    /// Returns the epochs, which are listed once.
    fn index(&self) -> Result<Arc<Index>, FleetError> {
        let mut known = self.index.lock().unwrap_or_else(|e| e.into_inner());
        match &*known {
            Some((listed, index)) if listed.elapsed() < LIST_AGAIN_AFTER => return Ok(index.clone()),
            _ => {}
        }
        let marker = self.client.get(&self.location.key(FORMAT), 64)?;
        check_marker(&self.location, marker.as_deref())?;
        let index = Arc::new(self.list_epochs()?);
        *known = Some((Instant::now(), index.clone()));
        drop(known);
        // Whoever lists epochs reads what describes each of them.
        let describing = index.epochs.keys().map(|id| (id, EPOCH_FILE));
        self.fetch_all(&index, describing.collect())?;
        Ok(index)
    }

    fn list_epochs(&self) -> Result<Index, FleetError> {
        let start = self.location.key("");
        let hosts: HashSet<String> =
            self.location.hosts.iter().map(|host| keys::host_in_keys(host)).collect();
        let after = self.location.since.as_ref().map(|date| format!("{start}{EPOCHS}date={date}"));
        let mut index = Index::default();
        self.client.list(&format!("{start}{EPOCHS}"), after.as_deref(), &mut |key, bytes| {
            let Some((folder, file)) = key.strip_prefix(&start).and_then(EpochFolder::parse) else {
                return true; // It is nothing of ours.
            };
            if self.location.until.as_ref().is_some_and(|until| folder.date > *until) {
                return false;
            }
            if !hosts.is_empty() && !hosts.contains(&folder.host) {
                return true;
            }
            let id = folder.id.clone();
            let remote = index
                .epochs
                .entry(id)
                .or_insert_with(|| Remote { folder: folder.clone(), files: BTreeMap::new() });
            // Two hosts would have to draw the same id in the same second. The first is shown, whole.
            if remote.folder == folder {
                remote.files.insert(file.to_owned(), bytes);
            } else {
                index.hidden.insert(folder);
            }
            true
        })?;
        // The rest of an epoch without this file is still on its way.
        index.epochs.retain(|_, remote| remote.files.contains_key(EPOCH_FILE));
        Ok(index)
    }

    /// Fetches files that are not in the cache, several at a time.
    fn fetch_all(&self, index: &Index, wanted: Vec<(&EpochId, &str)>) -> Result<(), FleetError> {
        let missing: Vec<_> = wanted.into_iter().filter(|(id, file)| !self.path(id, file).exists()).collect();
        let next = AtomicUsize::new(0);
        let failure: Mutex<Option<FleetError>> = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..missing.len().min(REQUESTS_AT_ONCE) {
                scope.spawn(|| {
                    while let Some((id, file)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Err(error) = self.fetch(&index.epochs[*id], file) {
                            *failure.lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
                            next.store(missing.len(), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        failure.into_inner().unwrap_or_else(|e| e.into_inner()).map_or(Ok(()), Err)
    }

    /// Fetches a file of an epoch into the cache.
    fn fetch(&self, remote: &Remote, file: &str) -> Result<(), FleetError> {
        let key = self.location.key(&remote.folder.key(file));
        let bytes = self.client.get(&key, OBJECT_BYTES_MAX)?.unwrap_or_default();
        // An object that went away, or was cut off, must not stay in the cache as the file.
        if bytes.len() as u64 != remote.files[file] {
            let why = format!("it has {} bytes instead of {}", bytes.len(), remote.files[file]);
            return Err(FleetError::Unreachable {
                place: format!("s3://{}/{key}", self.location.bucket),
                why,
                attempts: 1,
            });
        }
        self.store(&self.path(&remote.folder.id, file), &bytes)
    }

    /// Writes a file of the cache; readers see it whole or not at all.
    fn store(&self, path: &Path, bytes: &[u8]) -> Result<(), FleetError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let folder = path.parent().unwrap_or(&self.root);
        self.make_dir(folder)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!(".{}-{number}", std::process::id()));
        let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
        written.map_err(|source| {
            let _ = fs::remove_file(&temporary);
            FleetError::File { path: path.to_owned(), source }
        })
    }

    fn make_dir(&self, folder: &Path) -> Result<(), FleetError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|source| FleetError::File { path: folder.to_owned(), source })
    }

    fn path(&self, id: &EpochId, file: &str) -> PathBuf {
        self.root.join(EPOCHS).join(&id.0).join(file)
    }

    /// Removes the epochs and binaries that were used least recently until the cache is within its limit.
    fn evict(&self, bytes_max: u64) -> Result<(), FleetError> {
        let list = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
        let mut all = Vec::new();
        for entry in [EPOCHS, IMAGES].into_iter().flat_map(|folder| list(&self.root.join(folder))) {
            let Ok(metadata) = entry.metadata() else { continue };
            let files = list(&entry.path()).filter_map(|file| file.metadata().ok());
            let bytes = if metadata.is_dir() { files.map(|m| m.size()).sum() } else { metadata.size() };
            all.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), entry.path(), bytes));
        }
        all.sort();
        let mut total: u64 = all.iter().map(|(.., bytes)| bytes).sum();
        for (_, path, bytes) in all {
            if total <= bytes_max {
                break;
            }
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(|source| FleetError::File { path, source })?;
            total -= bytes;
        }
        Ok(())
    }

    /// Returns the path of a copy of a binary, which is fetched if it is not in the cache.
    fn read_image(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.root.join(IMAGES).join(name);
        if !path.exists() {
            let key = self.location.key(&format!("{IMAGES}{name}"));
            let packed = self.client.get(&key, OBJECT_BYTES_MAX).map_err(io::Error::other)?;
            let packed = packed.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            self.store(&path, &packed).map_err(io::Error::other)?;
        }
        let _ = fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Ok(path)
    }

    /// Returns the epoch and the file of a path, if it is one of an epoch.
    fn of_epoch<'p>(&self, path: &'p Path) -> Option<(EpochId, Option<&'p str>)> {
        let mut parts = path.strip_prefix(self.root.join(EPOCHS)).ok()?.components();
        let id = EpochId(parts.next()?.as_os_str().to_str()?.to_owned());
        Some((id, parts.next().and_then(|file| file.as_os_str().to_str())))
    }

    fn read_epoch_file(&self, id: &EpochId, file: &str) -> io::Result<PathBuf> {
        let index = self.index().map_err(io::Error::other)?;
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let remote =
            index.epochs.get(id).filter(|remote| remote.files.contains_key(file)).ok_or_else(missing)?;
        let path = self.path(id, file);
        if !path.exists() {
            // Whoever reads one file of samples reads the others too.
            let all = remote.files.keys().map(|name| (id, name.as_str()));
            self.fetch_all(&index, all.collect()).map_err(io::Error::other)?;
        }
        // The time of the folder tells when it was used last.
        let _ = fs::File::open(self.path(id, "")).and_then(|folder| folder.set_modified(SystemTime::now()));
        Ok(path)
    }
}

/// The error of operations that would change a fleet's recordings.
fn read_only() -> io::Error {
    io::Error::new(
        io::ErrorKind::ReadOnlyFilesystem,
        "recordings in a bucket are only read: dwell push sends those of a folder",
    )
}

impl Disk for Mirror {
    fn place(&self) -> Option<String> {
        Some(self.location.to_string())
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn write_new(&self, _: &Path, _: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn remove_file(&self, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn read(&self, path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
        let image = path.strip_prefix(self.root.join(IMAGES)).ok().and_then(Path::to_str);
        let path = match (self.of_epoch(path), image) {
            (Some((id, Some(file))), _) => self.read_epoch_file(&id, file)?,
            (None, Some(name)) => self.read_image(name)?,
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        read_file(&path, limit_bytes)
    }

    fn bytes(&self, path: &Path) -> io::Result<u64> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let (id, file) = self.of_epoch(path).ok_or_else(missing)?;
        let index = self.index().map_err(io::Error::other)?;
        let found = index.epochs.get(&id).and_then(|remote| remote.files.get(file?).copied());
        found.ok_or_else(missing)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        if path == self.root {
            return Ok(Vec::new());
        }
        let index = self.index().map_err(io::Error::other)?;
        if path.join("") == self.root.join(EPOCHS) {
            let hidden = index
                .hidden
                .iter()
                .map(|folder| format!("{} of {}, hidden by another host's", folder.id, folder.host));
            let names = index.epochs.keys().map(|id| id.0.clone()).chain(hidden);
            return Ok(names.map(|name| Entry { name, is_dir: true }).collect());
        }
        let found = self.of_epoch(path).and_then(|(id, _)| index.epochs.get(&id));
        let remote = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(remote.files.keys().map(|name| Entry { name: name.clone(), is_dir: false }).collect())
    }

    fn changed(&self, _: &Path) -> io::Result<u64> {
        Ok(0)
    }

    fn lock(&self, _: &Path) -> io::Result<LockOutcome> {
        Err(read_only())
    }
}
