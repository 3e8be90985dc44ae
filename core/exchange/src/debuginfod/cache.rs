//! A cache of files that servers sent, by build ID, with a size limit.
//!
//! Enters: complete files. Leaves: their paths: `.build-id/ab/cdef…` and `….debug`. Never here: an incomplete file
//! (each is written beside its place and renamed), the network. Several sessions may share one folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use dwell_profile::BuildId;
use tempfile::NamedTempFile;

use super::Artifact;

pub struct Cache {
    folder: PathBuf,
    bytes_max: u64,
    miss: Duration,
}

/// One file of the cache.
struct Kept {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// The extension of files that record that no server had a file.
const MISSED: &str = "missed";

impl Cache {
    pub fn new(folder: &Path, bytes_max: u64, miss: Duration) -> Cache {
        Cache { folder: folder.to_owned(), bytes_max, miss }
    }

    /// Returns the file if it is in the cache, and marks it as read now.
    pub fn find(&self, id: &BuildId, artifact: Artifact) -> Option<PathBuf> {
        let path = self.place(id, artifact);
        let file = fs::File::open(&path).ok()?;
        // If its time cannot be set (the folder belongs to others), the file is evicted earlier, which does no harm.
        let _ = file.set_modified(SystemTime::now());
        Some(path)
    }

    /// Returns whether all servers reported recently that they do not have the file.
    pub fn missed(&self, id: &BuildId, artifact: Artifact) -> bool {
        let marked = fs::metadata(self.mark(id, artifact)).and_then(|m| m.modified());
        marked.is_ok_and(|then| then.elapsed().is_ok_and(|ago| ago < self.miss))
    }

    /// Records that no server has the file. Losing this record only costs another request.
    pub fn note_miss(&self, id: &BuildId, artifact: Artifact) {
        let mark = self.mark(id, artifact);
        let _ = mark.parent().map(fs::create_dir_all).transpose().and_then(|_| fs::write(&mark, []));
    }

    /// Returns a file to write to, in the cache's folder.
    pub fn begin(&self) -> io::Result<NamedTempFile> {
        fs::create_dir_all(&self.folder)?;
        tempfile::Builder::new().prefix(".fetching-").tempfile_in(&self.folder)
    }

    /// Moves a complete file to its place and evicts others if necessary.
    pub fn keep(&self, file: NamedTempFile, id: &BuildId, artifact: Artifact) -> io::Result<PathBuf> {
        let place = self.place(id, artifact);
        fs::create_dir_all(place.parent().expect("a place lies in a folder"))?;
        file.persist(&place).map_err(|e| e.error)?;
        let _ = fs::remove_file(self.mark(id, artifact));
        self.make_room(&place);
        Ok(place)
    }

    fn place(&self, id: &BuildId, artifact: Artifact) -> PathBuf {
        let hex = id.to_string();
        let (folder, rest) = hex.split_at(2.min(hex.len()));
        let ending = if artifact == Artifact::DebugInfo { ".debug" } else { "" };
        self.folder.join(".build-id").join(folder).join(format!("{rest}{ending}"))
    }

    fn mark(&self, id: &BuildId, artifact: Artifact) -> PathBuf {
        let mut mark = self.place(id, artifact).into_os_string();
        mark.push(format!(".{MISSED}"));
        mark.into()
    }

    /// Removes the least recently read files, but never the newest one, and records of missing files that have expired.
    fn make_room(&self, newest: &Path) {
        let (marks, mut files): (Vec<Kept>, Vec<Kept>) =
            self.all().into_iter().partition(|k| k.path.extension().is_some_and(|e| e == MISSED));
        let is_old = |k: &&Kept| k.used.elapsed().is_ok_and(|ago| ago >= self.miss);
        marks.iter().filter(is_old).for_each(|k| drop(fs::remove_file(&k.path)));
        let mut bytes: u64 = files.iter().map(|k| k.bytes).sum();
        files.sort_by_key(|k| k.used);
        for kept in files.iter().filter(|k| k.path != newest) {
            if bytes <= self.bytes_max {
                return;
            }
            if fs::remove_file(&kept.path).is_ok() {
                bytes -= kept.bytes;
            }
        }
    }

    fn all(&self) -> Vec<Kept> {
        let list = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = list(&self.folder.join(".build-id"));
        let kept = |entry: fs::DirEntry| {
            let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some(Kept { path: entry.path(), bytes: meta.len(), used: meta.modified().ok()? })
        };
        folders.flat_map(|f| list(&f.path())).filter_map(kept).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn id(hex: &str) -> BuildId {
        BuildId::from_hex(hex).unwrap()
    }

    fn keep(cache: &Cache, id: &BuildId, bytes: usize) -> PathBuf {
        let mut file = cache.begin().unwrap();
        file.write_all(&vec![7; bytes]).unwrap();
        cache.keep(file, id, Artifact::Executable).unwrap()
    }

    #[test]
    fn the_least_recently_read_file_is_evicted_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path(), 250, Duration::from_secs(600));
        let ids = ["aa01", "bb02", "cc03"].map(id);
        let paths = [keep(&cache, &ids[0], 100), keep(&cache, &ids[1], 100)];
        let back = |path: &Path, seconds| {
            let then = SystemTime::now() - Duration::from_secs(seconds);
            fs::File::open(path).unwrap().set_modified(then).unwrap();
        };
        back(&paths[0], 500);
        back(&paths[1], 400);
        assert!(cache.find(&ids[0], Artifact::Executable).is_some(), "it was read just now");
        keep(&cache, &ids[2], 100);
        let is_here = ids.map(|id| cache.find(&id, Artifact::Executable).is_some());
        assert_eq!(is_here, [true, false, true]);
        // A file that is larger than the limit still exists for those that requested it.
        let large = keep(&cache, &id("dd04"), 1000);
        assert!(large.exists() && cache.find(&id("aa01"), Artifact::Executable).is_none());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left lying about");
    }

    #[test]
    fn misses_are_remembered_for_a_limited_time() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path(), 1000, Duration::from_secs(600));
        let (one, what) = (id("aa01"), Artifact::DebugInfo);
        assert!(!cache.missed(&one, what));
        cache.note_miss(&one, what);
        assert!(cache.missed(&one, what) && !cache.missed(&one, Artifact::Executable));
        let mark = folder.path().join(".build-id/aa/01.debug.missed");
        let then = SystemTime::now() - Duration::from_secs(601);
        fs::File::open(&mark).unwrap().set_modified(then).unwrap();
        assert!(!cache.missed(&one, what));
        keep(&cache, &id("bb02"), 1);
        assert!(!mark.exists(), "old marks go");
    }
}
