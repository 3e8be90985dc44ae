//! Copies sampled images into the database, so that profiles outlive the files. A separate thread copies one after the
//! other.
//!
//! Enters: images that were sampled, with their open files. Leaves: copies in the database, within a bound. All images are
//! copied if that was requested, otherwise only those that no path leads to (a deleted program, one that was executed from
//! memory, one in a root or mount namespace of its own), because their names would be lost with their processes. Never here:
//! finding files.

use std::{
    collections::VecDeque, fs, fs::File, os::unix::fs::FileExt, os::unix::fs::MetadataExt, thread::JoinHandle,
};

use dwell_profile::{DatabaseError, ImageId, ImageKind, ImageRecord, Kept, Writer};
use rustc_hash::FxHashSet;

use crate::{host::linux_host::mtime_ns, run::options::Progress, sys::heap};

/// Maximum number of files that wait to be copied. Further images are copied only if they are sampled again.
const WAITING_MAX: usize = 64;
/// Maximum number of ids that are remembered, so that their images are not checked again before the next epoch.
const SEEN_MAX: usize = 1 << 13;
/// Maximum size in bytes of all copies that were not requested.
const UNREQUESTED_BYTES_MAX: u64 = 256 << 20;

/// Copies sampled images.
pub struct Keeping {
    /// Size limit in bytes if all images are copied. `None`: only those that no path leads to are copied.
    bytes_max: Option<u64>,
    seen: FxHashSet<ImageId>,
    waiting: VecDeque<(ImageId, File)>,
    running: Option<JoinHandle<Result<Kept, DatabaseError>>>,
    /// A failure since the last query, if there was one.
    failed: Option<String>,
}

impl Keeping {
    /// Creates a copier of all images, up to this many bytes. `None`: only images that no path leads to are copied.
    pub fn new(bytes_max: Option<u64>) -> Self {
        let (seen, waiting) = Default::default();
        Keeping { bytes_max, seen, waiting, running: None, failed: None }
    }

    /// Adds a sampled image. `file` is called only if the image is to be copied.
    pub fn note_image(&mut self, record: &ImageRecord, file: impl FnOnce() -> Option<File>) {
        let id = &record.id;
        if record.kind != ImageKind::File || self.waiting.len() >= WAITING_MAX || self.seen.contains(id) {
            return;
        }
        if self.bytes_max.is_none() && has_path(record) {
            return;
        }
        if let Some(file) = file() {
            if self.seen.len() >= SEEN_MAX {
                self.seen.clear();
            }
            self.seen.insert(id.clone());
            self.waiting.push_back((id.clone(), file));
        }
    }

    /// Starts the next copy if the last one is done.
    pub fn go_on(&mut self, writer: &Writer, progress: &mut dyn FnMut(Progress)) {
        if self.running.as_ref().is_some_and(|r| !r.is_finished()) {
            return;
        }
        self.next(writer);
        if let Some(failed) = self.failed.take() {
            progress(Progress::Warning(failed));
        }
    }

    /// Copies all remaining images. Returns a description of what could not be copied.
    pub fn finish(&mut self, writer: &Writer) -> Option<String> {
        while self.running.is_some() || !self.waiting.is_empty() {
            self.next(writer);
        }
        self.failed.take()
    }

    /// Waits for the current copy and starts the next.
    fn next(&mut self, writer: &Writer) {
        if let Some(Ok(Err(error))) = self.running.take().map(JoinHandle::join) {
            self.failed = Some(format!("an image could not be copied into the database: {error}"));
        }
        let Some((id, file)) = self.waiting.pop_front() else { return };
        let (writer, requested_max) = (writer.clone(), self.bytes_max);
        self.running = Some(std::thread::spawn(move || {
            // Copies that were not requested must not evict copies that were.
            let unrequested_max = || UNREQUESTED_BYTES_MAX.max(writer.database().kept_images_bytes());
            let kept = writer.keep_image(
                &id,
                &mut FromStart { file, at: 0 },
                requested_max.unwrap_or_else(unrequested_max),
            );
            heap::give_back();
            kept
        }));
    }

    /// Begins another epoch: images that are still sampled count as used again.
    pub fn began(&mut self) {
        self.seen.clear();
    }
}

/// Returns whether the recorded path leads to the file.
fn has_path(record: &ImageRecord) -> bool {
    fs::metadata(&record.path).is_ok_and(|m| {
        m.is_file() && Some(m.size()) == record.size_bytes && Some(mtime_ns(&m)) == record.mtime_ns
    })
}

/// Reads from its start a file whose position is shared with others.
struct FromStart {
    file: File,
    at: u64,
}

impl std::io::Read for FromStart {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(bytes, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
