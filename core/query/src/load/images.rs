//! Finds the files of images: by path if the file there is still the same, otherwise by build ID in the debug folders.

use std::{
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use dwell_image::{DebugSearch, DebugState, Image, ProcedureTable};
use dwell_profile::{BuildId, Database, ImageId, ImageKind, ImageRecord, ImageSymbol};
use rustc_hash::FxHashMap;

use crate::load::kernel_text;

/// Result of looking for an image on this machine.
pub struct Found {
    /// The opened image, or the reason why it was not found.
    pub image: Result<Arc<Image>, String>,
    /// Note that a reader of procedures needs, if the image is missing or has changed.
    pub note: Option<String>,
    path: PathBuf,
    /// The symbols that are stored beside the recordings, if the image is missing.
    symbols: Vec<ImageSymbol>,
}

impl Found {
    /// Returns the symbols that stand for an image that was not found: those of its record, or those stored beside the recordings.
    pub fn symbols<'s>(&'s self, record: &'s ImageRecord) -> &'s [ImageSymbol] {
        if record.symbols.is_empty() { &self.symbols } else { &record.symbols }
    }

    /// Returns the additional note that a reader of source lines needs if debug information is missing or incomplete. The
    /// first call examines every compilation unit. Call it after reading the lines, since some debug files turn out to
    /// belong to another build only when they are read.
    pub fn lines_note(&self) -> Option<String> {
        let state = self.image.as_ref().ok()?.debug_state();
        debug_note(&state).map(|what| format!("{}: {what}", self.path.display()))
    }
}

/// Opened images by id. Each image is looked for once, and the most recently used ones are kept.
pub struct ImageStore {
    search: DebugSearch,
    database: Database,
    found: Mutex<FxHashMap<(ImageId, PathBuf), Entry>>,
    /// Number of look-ups so far. It records when each image was last used.
    clock: AtomicUsize,
    bytes_kept: usize,
}

/// Cache entry of an image that was looked for.
struct Entry {
    record: ImageRecord,
    found: Arc<Found>,
    looked: Instant,
    used: usize,
}

/// Time after which an image that was not found is looked for again: it may have been built, installed or mounted meanwhile.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Number of bytes that images may occupy before the least recently used ones are dropped. This limits the memory of a
/// session that lasts for weeks: it keeps neither all builds of a program nor all libraries of an epoch.
const IMAGE_BYTES_KEPT: usize = 96 << 20;
/// Largest number of images that are kept, regardless of their size.
const IMAGES_KEPT: usize = 2048;

impl ImageStore {
    /// Creates a store. Images that are no longer at their path are looked for in the database and in `debug_dirs`; debug
    /// information is looked for in `debug_dirs`.
    pub fn new(debug_dirs: Vec<PathBuf>, database: Database) -> Self {
        ImageStore {
            search: DebugSearch { debug_dirs },
            database,
            found: Mutex::default(),
            clock: AtomicUsize::new(0),
            bytes_kept: IMAGE_BYTES_KEPT,
        }
    }

    /// Returns the image that `record` describes.
    pub fn find(&self, record: &ImageRecord) -> Arc<Found> {
        // The image is opened outside the lock: two threads may open one image twice, but no thread waits for another image.
        let key = (record.id.clone(), record.path.clone());
        let used = self.clock.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = self.lock().get_mut(&key) {
            entry.used = used;
            return entry.found.clone();
        }
        let found = Arc::new(self.open(record));
        let entry = Entry { record: record.clone(), found, looked: Instant::now(), used };
        let mut images = self.lock();
        let found = images.entry(key).or_insert(entry).found.clone();
        // A pass over hundreds of images uses each of them once, so checking at every sixteenth call is sufficient.
        if used.is_multiple_of(FORGET_EVERY) || images.len() > IMAGES_KEPT {
            forget_unused(&mut images, self.bytes_kept);
        }
        found
    }

    /// Reads the table of the image's procedures, without a cache. Returns `None` if only [`ImageStore::find`] can determine
    /// the procedures.
    pub fn procedure_table(&self, record: &ImageRecord) -> Option<ProcedureTable> {
        if record.kind != ImageKind::File || record.places.numbered {
            return None;
        }
        let open = |path: &Path| ProcedureTable::open(path, &self.search).ok().flatten();
        let Some(id) = record.id.build_id() else {
            return Some(&record.path).filter(|path| is_same(record, path)).and_then(|path| open(path));
        };
        let places = std::iter::once(record.path.clone()).chain(self.by_build_id(&id));
        places.filter_map(|path| open(&path)).find(|table| table.build_id() == Some(&id))
    }

    fn by_build_id(&self, id: &BuildId) -> impl Iterator<Item = PathBuf> + use<'_> {
        let hex = id.to_string();
        self.search.debug_dirs.iter().map(move |dir| dir.join(".build-id").join(&hex[..2]).join(&hex[2..]))
    }

    /// Looks again for files that were not found some time ago. Returns whether one of them exists now.
    pub fn look_again(&self) -> bool {
        let missing = |e: &&mut Entry| {
            matches!(e.record.kind, ImageKind::File | ImageKind::Kernel | ImageKind::Module)
                && e.found.image.is_err()
                && e.looked.elapsed() > LOOK_AGAIN_AFTER
        };
        let due: Vec<_> = self.lock().values_mut().filter(missing).map(|e| e.record.clone()).collect();
        let mut any = false;
        for record in due {
            let found = Arc::new(self.open(&record));
            any |= found.image.is_ok();
            let key = (record.id.clone(), record.path.clone());
            let used = self.clock.fetch_add(1, Ordering::Relaxed);
            self.lock().insert(key, Entry { record, found, looked: Instant::now(), used });
        }
        any
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FxHashMap<(ImageId, PathBuf), Entry>> {
        self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn open(&self, record: &ImageRecord) -> Found {
        let bytes = match record.kind {
            _ if record.places.numbered => {
                Err("the profile names its functions without addresses".to_owned())
            }
            ImageKind::File => self.open_file(record),
            ImageKind::Module => kernel_text::open_module(record),
            ImageKind::Vdso => self.open_vdso(record),
            ImageKind::Kernel => kernel_text::open(record, &self.search.debug_dirs),
            ImageKind::Jit => Err("its code was generated in memory and is gone".to_owned()),
            ImageKind::Unknown => Err("no mapping was known for these samples".to_owned()),
        };
        let path = record.path.clone();
        let about = |what: String| match what.contains(&*record.path.display().to_string()) {
            true => what,
            false => format!("{}: {what}", record.path.display()),
        };
        match bytes {
            Ok(mut image) => {
                image.attach_debug(&self.search);
                Found { image: Ok(Arc::new(image)), note: None, path, symbols: Vec::new() }
            }
            Err(why) => {
                let wanted =
                    matches!(record.kind, ImageKind::File | ImageKind::Vdso) && !record.places.numbered;
                let (symbols, damage) = match self.database.stored_symbols(&record.id) {
                    Ok(symbols) => (symbols.unwrap_or_default(), String::new()),
                    Err(error) => (Vec::new(), format!("; {error}")),
                };
                let note = match (record.places.is_empty(), symbols.is_empty()) {
                    (true, true) => about(why.clone()),
                    (true, false) => format!("{}: names are those that were sent along", about(why.clone())),
                    (false, _) => format!("{}: names and lines are those of the profile", about(why.clone())),
                };
                Found { note: wanted.then_some(note + &damage), image: Err(why), path, symbols }
            }
        }
    }

    fn open_file(&self, record: &ImageRecord) -> Result<Image, String> {
        let why = match same_file(record) {
            Ok(image) => return Ok(image),
            Err(why) => why,
        };
        if let Some(image) = self.kept(record) {
            return Ok(image);
        }
        let Some(id) = record.id.build_id() else { return Err(why) };
        self.by_build_id(&id)
            .filter_map(|p| Image::open(&p).ok())
            .find(|i| i.build_id() == Some(&id))
            .ok_or(why)
    }

    /// Returns the bytes of a binary as it was sampled, if its file or a copy of it is here.
    pub fn bytes(&self, record: &ImageRecord) -> Option<Vec<u8>> {
        if record.kind != ImageKind::File || record.places.numbered {
            return None;
        }
        if same_file(record).is_ok() {
            let bytes = std::fs::read(&record.path).ok()?;
            // It may have been replaced between the two.
            let is_same = |image: Image| image.build_id() == record.id.build_id().as_ref();
            if Image::parse(bytes.clone()).is_ok_and(is_same) {
                return Some(bytes);
            }
        }
        self.kept(record)?;
        self.database.kept_image(&record.id).ok()?
    }

    /// Opens the copy of the binary that the collector stored in the database.
    fn kept(&self, record: &ImageRecord) -> Option<Image> {
        let image = Image::parse(self.database.kept_image(&record.id).ok()??).ok()?;
        let id = record.id.build_id();
        (id.is_none() || image.build_id() == id.as_ref()).then_some(image)
    }

    /// Opens the vdso of this process, if it is the one that was sampled.
    fn open_vdso(&self, record: &ImageRecord) -> Result<Image, String> {
        let bytes = running_vdso().ok_or("the vdso cannot be read here")?;
        let image = Image::parse(bytes).map_err(|e| e.to_string())?;
        let id = record.id.as_str().strip_prefix("vdso:").unwrap_or_default();
        match image.build_id() {
            Some(here) if here.to_string() != id => Err("it is another kernel's vdso".to_owned()),
            _ => Ok(image),
        }
    }
}

/// Number of look-ups between two passes that drop unused images.
const FORGET_EVERY: usize = 16;

/// If the images occupy more than `bytes_kept`, drops the least recently used ones until three quarters of that are left.
/// Also drops images until there are at most [`IMAGES_KEPT`].
fn forget_unused(images: &mut FxHashMap<(ImageId, PathBuf), Entry>, bytes_kept: usize) {
    let bytes = |entry: &Entry| entry.found.image.as_ref().map_or(0, |image| image.memory_bytes());
    let mut by_use: Vec<(usize, usize, (ImageId, PathBuf))> =
        images.iter().map(|(key, entry)| (entry.used, bytes(entry), key.clone())).collect();
    let mut all: usize = by_use.iter().map(|(_, bytes, _)| bytes).sum();
    let goal = if all > bytes_kept { bytes_kept / 4 * 3 } else { bytes_kept };
    by_use.sort_unstable_by_key(|(used, ..)| *used);
    for (_, bytes, key) in by_use {
        if all <= goal && images.len() <= IMAGES_KEPT {
            return;
        }
        // An entry without memory is a small image or one that was not found. Dropping the latter would only lose the time
        // of the last search.
        if bytes > 0 || images.len() > IMAGES_KEPT {
            images.remove(&key);
            all -= bytes;
        }
    }
}

/// Opens the file at the recorded path, if it is the one that was sampled.
fn same_file(record: &ImageRecord) -> Result<Image, String> {
    let image = Image::open(&record.path).map_err(|e| e.to_string())?;
    match record.id.build_id() {
        Some(id) if image.build_id() == Some(&id) => Ok(image),
        Some(id) => {
            let now = image.build_id().map_or("none".to_owned(), |b| b.to_string());
            Err(format!("changed since it was sampled (build id was {id}, is {now})"))
        }
        None if is_same(record, &record.path) => Ok(image),
        None if record.size_bytes.is_none() && record.mtime_ns.is_none() => {
            Err("it is unknown whether it is the file that was sampled".to_owned())
        }
        None => Err("changed since it was sampled (it has no build id; size or time differ)".to_owned()),
    }
}

/// Reads the vdso's bytes from the memory of this process.
fn running_vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let range = maps.lines().find(|l| l.ends_with("[vdso]"))?.split(' ').next()?;
    let (start, end) = range.split_once('-')?;
    let [start, end] = [start, end].map(|a| u64::from_str_radix(a, 16).ok());
    let (start, end) = (start?, end?);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    std::fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// Returns whether size and modification time show that the file at `path` is the one that was sampled; `false` if neither
/// was recorded.
fn is_same(record: &ImageRecord, path: &Path) -> bool {
    (record.size_bytes.is_some() || record.mtime_ns.is_some()) && unchanged(record, path)
}

/// Returns whether the file at `path` has the recorded size and modification time.
pub fn unchanged(record: &ImageRecord, path: &Path) -> bool {
    let Ok(meta) = std::fs::metadata(path) else { return false };
    let mtime_ns = meta.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    let mtime_ns = mtime_ns.and_then(|d| i64::try_from(d.as_nanos()).ok());
    record.size_bytes.is_none_or(|s| s == meta.len())
        && (record.mtime_ns.is_none() || record.mtime_ns == mtime_ns)
}

fn debug_note(state: &DebugState) -> Option<String> {
    match state {
        DebugState::Present | DebugState::Separate(_) => None,
        DebugState::Missing(why) => Some(format!("no source lines: {why}")),
        DebugState::Incomplete(why) => Some(format!("inlined calls are incomplete: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_that_were_not_used_for_longest_are_forgotten() {
        let found = |image: Option<Arc<Image>>| {
            let image = image.ok_or_else(String::new);
            Arc::new(Found { image, note: None, path: PathBuf::new(), symbols: Vec::new() })
        };
        let own = Arc::new(Image::open(std::env::current_exe().unwrap()).unwrap());
        own.procedures();
        let record = |at: usize| ImageRecord {
            id: ImageId::named(&format!("file:{at}")),
            kind: ImageKind::File,
            path: PathBuf::new(),
            deleted: false,
            size_bytes: None,
            mtime_ns: None,
            symbols: Vec::new(),
            places: Default::default(),
            kernel_builds: Vec::new(),
        };
        let entry = |used: usize, image| Entry {
            record: record(used),
            found: found(image),
            looked: Instant::now(),
            used,
        };
        let key = |at: usize| (record(at).id, PathBuf::new());
        let mut images: FxHashMap<_, _> =
            (0..4).map(|at| (key(at), entry(at, (at > 0).then(|| own.clone())))).collect();
        forget_unused(&mut images, 3 * own.memory_bytes());
        assert_eq!(images.len(), 4, "they fit");
        forget_unused(&mut images, 3 * own.memory_bytes() - 1);
        let mut left: Vec<usize> = images.values().map(|e| e.used).collect();
        left.sort_unstable();
        assert_eq!(
            left,
            [0, 2, 3],
            "the oldest that takes something goes; one that was not found takes nothing"
        );
    }
}
