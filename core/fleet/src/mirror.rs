//! A database whose files lie in a bucket: each is fetched when it is first read, and kept in a cache of bounded size.
//!
//! Enters: paths of a database. Leaves: the bytes of files. Objects are never changed, so a file in the cache is always right. The list
//! of objects is asked for when the database is first read, and every five minutes after that.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use dwell_profile::{Database, Disk, Entry, EpochId, LockOutcome, StoredRows, TOTALS_FILE, read_file};
use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::{
    FLEET_FORMAT, FleetError, Location,
    client::Client,
    index::{Index, Listing, Remote},
    keys::{self, EPOCH_FILE, EPOCHS, FORMAT, IMAGES, MARK, RECORDINGS, RollUpFolder, SYMBOLS, TABLES},
};

/// Size limit of a fleet's cache, in bytes, unless [`CACHE_MIB`] says another.
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
    let (database, _) = open_mirror(Location::parse(&place.to_string_lossy())?)?;
    Ok(database)
}

/// Opens the database in a bucket, and what its files come from.
pub(crate) fn open_mirror(location: Location) -> Result<(Database, Arc<Mirror>), FleetError> {
    let client = Client::new(&location)?;
    let identity = blake3::hash(format!("{}\n{}", client.identity(), location.prefix).as_bytes());
    let root = cache_dir()?.join(&identity.to_hex()[..32]);
    let mirror = Arc::new(Mirror {
        client,
        location,
        root: root.clone(),
        stored: Mutex::default(),
        images: Mutex::default(),
        index: Mutex::new(None),
    });
    mirror.make_dir(&root)?;
    mirror.evict()?;
    Ok((Database::on(mirror.clone(), root)?, mirror))
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

/// The variable with the size limit of a fleet's cache, in MiB.
const CACHE_MIB: &str = "DWELL_FLEET_CACHE_MIB";

fn cache_bytes_max() -> Result<u64, FleetError> {
    let Ok(text) = std::env::var(CACHE_MIB) else { return Ok(CACHE_BYTES_MAX) };
    let why = "expected a number of MiB".to_owned();
    let bad = |_| FleetError::Location { given: format!("{CACHE_MIB}={text}"), why };
    Ok(text.parse::<u64>().map_err(bad)?.saturating_mul(1 << 20))
}

/// Time after which the objects are listed again, for editors that stay open.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// How often a binary or its symbols are asked for one by one, before they are listed.
const ASKED_SINGLY: usize = 8;

/// What is known of the binaries and symbols in the bucket.
#[derive(Debug, Default)]
struct Images {
    /// How often one was looked for that is not in the cache.
    asked: usize,
    /// Their keys under the prefix, and when they were listed.
    listed: Option<(Instant, HashSet<String>)>,
}

/// The part of an `epoch.json` that is read here.
#[derive(serde::Deserialize)]
struct Described {
    id: EpochId,
}

/// A database in a bucket, with its cache in the folder `root`.
pub(crate) struct Mirror {
    client: Client,
    location: Location,
    root: PathBuf,
    /// The keys and sizes of stored rows that were listed, by the paths of their files in the cache.
    stored: Mutex<BTreeMap<PathBuf, (String, u64)>>,
    images: Mutex<Images>,
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
    pub(crate) fn index(&self) -> Result<Arc<Index>, FleetError> {
        let mut known = self.index.lock().unwrap_or_else(|e| e.into_inner());
        match &*known {
            Some((listed, index)) if listed.elapsed() < LIST_AGAIN_AFTER => return Ok(index.clone()),
            _ => {}
        }
        let marker = self.client.get(&self.location.key(FORMAT), 64)?;
        check_marker(&self.location, marker.as_deref())?;
        let listing = Listing::of(&self.client, &self.location)?;
        let describing = listing.roll_ups.values().flat_map(|r| [(r, EPOCH_FILE), (r, RECORDINGS)]);
        self.fetch_all(describing.collect())?;
        let described: HashSet<EpochId> = listing.epochs.keys().cloned().collect();
        let index = Index::new(listing, &self.location, |roll_up| {
            self.recordings(roll_up, &described).map_err(|error| {
                // It may have been damaged on its way: the next look fetches it anew.
                let _ = fs::remove_file(self.path(&roll_up.id, RECORDINGS));
                error.to_string()
            })
        });
        // Whoever lists epochs reads what describes each of them.
        self.fetch_all(index.epochs.values().map(|remote| (remote, EPOCH_FILE)).collect())?;
        let index = Arc::new(index);
        *known = Some((Instant::now(), index.clone()));
        Ok(index)
    }

    /// Returns the recordings that are in a roll-up. What describes those that are in the bucket is put into the cache, if it is not
    /// there: this saves a request for each.
    fn recordings(&self, roll_up: &Remote, there: &HashSet<EpochId>) -> io::Result<Vec<EpochId>> {
        let packed = read_file(&self.path(&roll_up.id, RECORDINGS), OBJECT_BYTES_MAX)?;
        let mut text = Vec::new();
        zstd::Decoder::new(&packed[..])?.take(OBJECT_BYTES_MAX).read_to_end(&mut text)?;
        let mut ids = Vec::new();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Described { id } = serde_json::from_slice(line)?;
            let path = self.path(&id, EPOCH_FILE);
            if there.contains(&id) && !path.exists() {
                self.store(&path, line).map_err(io::Error::other)?;
            }
            ids.push(id);
        }
        Ok(ids)
    }

    /// Fetches all files of epochs, for a job that reads them one after another.
    pub(crate) fn fetch_epochs(&self, ids: &[EpochId]) -> Result<(), FleetError> {
        let index = self.index()?;
        let remotes = ids.iter().filter_map(|id| index.remote(id));
        self.fetch_all(
            remotes.flat_map(|remote| remote.files.keys().map(move |file| (remote, file.as_str()))).collect(),
        )
    }

    /// Fetches files that are not in the cache, several at a time.
    fn fetch_all(&self, wanted: Vec<(&Remote, &str)>) -> Result<(), FleetError> {
        let missing: Vec<_> =
            wanted.into_iter().filter(|(remote, file)| !self.path(&remote.id, file).exists()).collect();
        let next = AtomicUsize::new(0);
        let failure: Mutex<Option<FleetError>> = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..missing.len().min(REQUESTS_AT_ONCE) {
                scope.spawn(|| {
                    while let Some((remote, file)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Err(error) = self.fetch(remote, file) {
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
        let key = self.location.key(&format!("{}{file}", remote.folder));
        self.fetch_object(&key, remote.files[file], &self.path(&remote.id, file))
    }

    /// Fetches an object of a known size into the cache.
    fn fetch_object(&self, key: &str, size: u64, path: &Path) -> Result<(), FleetError> {
        let bytes = self.client.get(key, OBJECT_BYTES_MAX)?.unwrap_or_default();
        // An object that went away, or was cut off, must not stay in the cache as the file.
        if bytes.len() as u64 != size {
            let why = format!("it has {} bytes instead of {size}", bytes.len());
            return Err(FleetError::Unreachable {
                place: format!("s3://{}/{key}", self.location.bucket),
                why,
                attempts: 1,
            });
        }
        self.store(path, &bytes)
    }

    /// Writes a file of the cache; readers see it whole or not at all.
    fn store(&self, path: &Path, bytes: &[u8]) -> Result<(), FleetError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let folder = path.parent().unwrap_or(&self.root);
        self.make_dir(folder)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!(".{}-{number}", std::process::id()));
        let mut written = fs::write(&temporary, bytes);
        if written.is_ok() {
            // A file system without attributes keeps files that cannot be checked.
            let _ = setxattr(&temporary, SUM_ATTRIBUTE, &sum(bytes), XattrFlags::empty());
            written = fs::rename(&temporary, path);
        }
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
    pub(crate) fn evict(&self) -> Result<(), FleetError> {
        let bytes_max = cache_bytes_max()?;
        let list = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
        let mut all = Vec::new();
        for entry in
            [EPOCHS, IMAGES, SYMBOLS, TABLES].into_iter().flat_map(|folder| list(&self.root.join(folder)))
        {
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

    /// Returns whether what belongs to a binary may be in the bucket. The first few times the answer is yes, and the store is asked for the
    /// object; whoever looks for more is answered from a list, since most of what is looked for is not there.
    fn may_have(&self, folder: &str, name: &str) -> io::Result<bool> {
        let mut images = self.images.lock().unwrap_or_else(|e| e.into_inner());
        images.asked += 1;
        if images.asked <= ASKED_SINGLY {
            return Ok(true);
        }
        if images.listed.as_ref().is_none_or(|(listed, _)| listed.elapsed() >= LIST_AGAIN_AFTER) {
            let (mut there, start) = (HashSet::new(), self.location.key(""));
            for folder in [IMAGES, SYMBOLS] {
                let listed = self.client.list(&format!("{start}{folder}"), None, &mut |key, _| {
                    there.extend(key.strip_prefix(&start).map(str::to_owned));
                    true
                });
                listed.map_err(io::Error::other)?;
            }
            images.listed = Some((Instant::now(), there));
        }
        let listed = images.listed.as_ref();
        Ok(listed.is_some_and(|(_, there)| there.contains(&format!("{folder}{name}"))))
    }

    /// Returns the path of what belongs to a binary – its copy, its symbols –, which is fetched if it is not in the cache.
    fn read_image(&self, folder: &str, name: &str) -> io::Result<PathBuf> {
        let path = self.root.join(folder).join(name);
        if !path.exists() {
            if !self.may_have(folder, name)? {
                return Err(io::ErrorKind::NotFound.into());
            }
            let key = self.location.key(&format!("{folder}{name}"));
            let packed = self.client.get(&key, OBJECT_BYTES_MAX).map_err(io::Error::other)?;
            let packed = packed.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            self.store(&path, &packed).map_err(io::Error::other)?;
        }
        let _ = fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Ok(path)
    }

    /// Returns the path of stored rows, which are fetched if they are not in the cache.
    fn read_stored(&self, path: &Path) -> io::Result<PathBuf> {
        let known = self.stored.lock().unwrap_or_else(|e| e.into_inner()).get(path).cloned();
        let (key, size) = known.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        if !path.exists() {
            self.fetch_object(&key, size, path).map_err(io::Error::other)?;
        }
        Ok(path.to_owned())
    }

    /// Returns the path in the cache of a file of the database, which is fetched if it is not there.
    fn cached(&self, path: &Path) -> io::Result<PathBuf> {
        let of_image = |folder: &'static str| {
            let name = path.strip_prefix(self.root.join(folder)).ok().and_then(Path::to_str);
            Some((folder, name?))
        };
        let image = of_image(IMAGES).or_else(|| of_image(SYMBOLS));
        let cached = match (self.of_epoch(path), image) {
            _ if path.starts_with(self.root.join(TABLES)) => self.read_stored(path)?,
            (Some((id, Some(file))), _) => self.read_epoch_file(&id, file)?,
            (None, Some((folder, name))) => self.read_image(folder, name)?,
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(cached)
    }

    /// Returns the epoch and the file of a path, if it is one of an epoch.
    fn of_epoch<'p>(&self, path: &'p Path) -> Option<(EpochId, Option<&'p str>)> {
        let mut parts = path.strip_prefix(self.root.join(EPOCHS)).ok()?.components();
        let id = EpochId(parts.next()?.as_os_str().to_str()?.to_owned());
        Some((id, parts.next().and_then(|file| file.as_os_str().to_str())))
    }

    /// Returns the path of the totals of a roll-up, which are fetched if they are not in the cache.
    fn read_totals(&self, id: &EpochId) -> io::Result<PathBuf> {
        let index = self.index().map_err(io::Error::other)?;
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let (remote, _) = index.sums.get(id).ok_or_else(missing)?;
        let path = self.path(id, TOTALS_FILE);
        if !path.exists() {
            let place = format!("{}{EPOCH_FILE}", remote.folder);
            let (folder, _) = RollUpFolder::parse(&place).ok_or_else(missing)?;
            let key = self.location.key(&folder.totals_key());
            let bytes = self.client.get(&key, OBJECT_BYTES_MAX).map_err(io::Error::other)?;
            self.store(&path, &bytes.ok_or_else(missing)?).map_err(io::Error::other)?;
        }
        Ok(path)
    }

    fn read_epoch_file(&self, id: &EpochId, file: &str) -> io::Result<PathBuf> {
        if file == TOTALS_FILE {
            return self.read_totals(id);
        }
        let index = self.index().map_err(io::Error::other)?;
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let remote = index.remote(id).filter(|remote| remote.files.contains_key(file)).ok_or_else(missing)?;
        let path = self.path(id, file);
        if !path.exists() {
            // Whoever reads one file reads the others too, but for call stacks, which are large and which few need.
            let is_of_stacks = |name: &str| name.starts_with("stacks");
            let alike = remote.files.keys().filter(|name| is_of_stacks(name) == is_of_stacks(file));
            let alike = alike.map(|name| (remote, name.as_str()));
            self.fetch_all(alike.collect()).map_err(io::Error::other)?;
        }
        // The time of the folder tells when it was used last.
        let _ = fs::File::open(self.path(id, "")).and_then(|folder| folder.set_modified(SystemTime::now()));
        Ok(path)
    }
}

/// The extended attribute of a file in the cache that holds the sum of its bytes.
const SUM_ATTRIBUTE: &str = "user.dwell.blake3";

fn sum(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

/// Returns whether a file of the cache has the bytes that were fetched, as far as its file system can say.
fn is_as_fetched(path: &Path, bytes: &[u8]) -> bool {
    let mut known = [0; 32];
    match getxattr(path, SUM_ATTRIBUTE, &mut known[..]) {
        Ok(32) => known == sum(bytes),
        _ => true,
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

    fn sums(&self) -> io::Result<Vec<(EpochId, Vec<EpochId>)>> {
        let index = self.index().map_err(io::Error::other)?;
        Ok(index.sums.iter().map(|(id, (_, parts))| (id.clone(), parts.clone())).collect())
    }

    fn stored_rows(&self, table: &str, epoch: Option<&EpochId>) -> io::Result<Vec<StoredRows>> {
        let folder = self.location.key(&format!("{TABLES}{table}/"));
        let of_epoch = epoch.map_or_else(String::new, keys::folder_of_stored_rows);
        let mut found = Vec::new();
        let mut stored = self.stored.lock().unwrap_or_else(|e| e.into_inner());
        let listed = self.client.list(&format!("{folder}{of_epoch}"), None, &mut |key, bytes| {
            if let Some((epoch, image)) = key.strip_prefix(&folder).and_then(keys::stored_rows) {
                let name = format!("{}.parquet", &blake3::hash(key.as_bytes()).to_hex()[..32]);
                let path = self.root.join(TABLES).join(table).join(name);
                stored.insert(path.clone(), (key.to_owned(), bytes));
                found.push(StoredRows { path, epoch, image });
            }
            true
        });
        listed.map_err(io::Error::other)?;
        Ok(found)
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
        let cached = self.cached(path)?;
        let bytes = read_file(&cached, limit_bytes);
        if bytes.as_ref().is_ok_and(|bytes| is_as_fetched(&cached, bytes)) {
            return bytes;
        }
        // It was damaged in the cache.
        fs::remove_file(&cached)?;
        read_file(&self.cached(path)?, limit_bytes)
    }

    fn is_out_of_reach(&self, error: &io::Error) -> bool {
        error.get_ref().is_some_and(|source| source.is::<FleetError>())
    }

    fn bytes(&self, path: &Path) -> io::Result<u64> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let (id, file) = self.of_epoch(path).ok_or_else(missing)?;
        let index = self.index().map_err(io::Error::other)?;
        let found = index.remote(&id).and_then(|remote| remote.files.get(file?).copied());
        found.ok_or_else(missing)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        if path == self.root {
            return Ok(Vec::new());
        }
        let index = self.index().map_err(io::Error::other)?;
        if path.join("") == self.root.join(EPOCHS) {
            let names = index.epochs.keys().map(|id| id.0.clone()).chain(index.left_out.iter().cloned());
            return Ok(names.map(|name| Entry { name, is_dir: true }).collect());
        }
        let found = self.of_epoch(path).and_then(|(id, _)| index.remote(&id));
        let remote = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let of_epoch = remote.files.keys().filter(|name| *name != RECORDINGS);
        Ok(of_epoch.map(|name| Entry { name: name.clone(), is_dir: false }).collect())
    }

    fn changed(&self, _: &Path) -> io::Result<u64> {
        Ok(0)
    }

    fn lock(&self, _: &Path) -> io::Result<LockOutcome> {
        Err(read_only())
    }
}
