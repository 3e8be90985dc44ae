//! Sampled images, copied aside so that profiles outlive them; on a thread of its own, one after the other.
//!
//! Enters: images that were sampled, with their open files. Leaves: copies in the database, within a bound: of all where that was
//! asked for, else of those that no path leads to (a deleted program, one that was executed from memory, one in a root or mount
//! namespace of its own): their names would be lost with their processes. Never here: finding files.

use std::{
    collections::VecDeque, fs, fs::File, os::unix::fs::FileExt, os::unix::fs::MetadataExt, thread::JoinHandle,
};

use dwell_profile::{DatabaseError, ImageId, ImageKind, ImageRecord, Kept, Writer};
use rustc_hash::FxHashSet;

use crate::{linux_host::mtime_ns, options::Progress, sys::heap};

/// Files that wait to be copied; beyond, an image has to come again.
const WAITING_MAX: usize = 64;
/// Ids that are remembered not to be looked at again before the next epoch.
const SEEN_MAX: usize = 1 << 13;
/// Copies that nobody asked for take no more than that.
const UNASKED_BYTES_MAX: u64 = 256 << 20;

/// Copies images.
pub struct Keeping {
    /// Up to so many bytes of all images; `None`: those alone that no path leads to.
    bytes_max: Option<u64>,
    seen: FxHashSet<ImageId>,
    waiting: VecDeque<(ImageId, File)>,
    running: Option<JoinHandle<Result<Kept, DatabaseError>>>,
    /// What went wrong since somebody asked.
    failed: Option<String>,
}

impl Keeping {
    /// Keeps all images, up to so many bytes; `None`: those alone that no path leads to.
    pub fn new(bytes_max: Option<u64>) -> Self {
        let (seen, waiting) = Default::default();
        Keeping { bytes_max, seen, waiting, running: None, failed: None }
    }

    /// Takes in an image that was sampled; its file is asked for if it is to be copied.
    pub fn met(&mut self, record: &ImageRecord, file: impl FnOnce() -> Option<File>) {
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

    /// Begins with the next one where the last one is done.
    pub fn go_on(&mut self, writer: &Writer, progress: &mut dyn FnMut(Progress)) {
        if self.running.as_ref().is_some_and(|r| !r.is_finished()) {
            return;
        }
        self.next(writer);
        if let Some(failed) = self.failed.take() {
            progress(Progress::Warning(failed));
        }
    }

    /// Copies what is left; what could not be kept.
    pub fn finish(&mut self, writer: &Writer) -> Option<String> {
        while self.running.is_some() || !self.waiting.is_empty() {
            self.next(writer);
        }
        self.failed.take()
    }

    /// Waits for the one that is being copied, and begins with the next.
    fn next(&mut self, writer: &Writer) {
        if let Some(Ok(Err(error))) = self.running.take().map(JoinHandle::join) {
            self.failed = Some(format!("an image could not be kept: {error}"));
        }
        let Some((id, file)) = self.waiting.pop_front() else { return };
        let (writer, asked) = (writer.clone(), self.bytes_max);
        self.running = Some(std::thread::spawn(move || {
            // What others asked to be kept does not go for what nobody asked for.
            let unasked = || UNASKED_BYTES_MAX.max(writer.database().kept_images_bytes());
            let kept = writer.keep_image(&id, &mut FromStart { file, at: 0 }, asked.unwrap_or_else(unasked));
            heap::give_back();
            kept
        }));
    }

    /// Another epoch began: what runs on counts as used again.
    pub fn began(&mut self) {
        self.seen.clear();
    }
}

/// Whether the recorded path leads to the file.
fn has_path(record: &ImageRecord) -> bool {
    fs::metadata(&record.path).is_ok_and(|m| {
        m.is_file() && Some(m.size()) == record.size_bytes && Some(mtime_ns(&m)) == record.mtime_ns
    })
}

/// Reads a file whose position it shares with others from its start.
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
