//! Sampled images, copied aside so that profiles outlive rebuilds; on a thread of its own, one after the other.
//!
//! Enters: images that were stored, with their open files. Leaves: copies in the database, within a bound. Never here:
//! finding files.

use std::{collections::VecDeque, fs::File, os::unix::fs::FileExt, thread::JoinHandle};

use dwell_profile::{DatabaseError, ImageId, Kept, Writer};
use rustc_hash::FxHashSet;

use crate::{options::Progress, sys::heap};

/// Files that wait to be copied; beyond, an image has to come again.
const WAITING_MAX: usize = 64;
/// Ids that are remembered not to be looked at again before the next epoch.
const SEEN_MAX: usize = 1 << 13;

/// Copies images.
pub struct Keeping {
    bytes_max: Option<u64>,
    seen: FxHashSet<ImageId>,
    waiting: VecDeque<(ImageId, File)>,
    running: Option<JoinHandle<Result<Kept, DatabaseError>>>,
}

impl Keeping {
    /// Up to so many bytes; `None`: none.
    pub fn new(bytes_max: Option<u64>) -> Self {
        Keeping { bytes_max, seen: FxHashSet::default(), waiting: VecDeque::new(), running: None }
    }

    /// Takes in an image that was sampled; its file is asked for if it is to be copied.
    pub fn met(&mut self, id: &ImageId, file: impl FnOnce() -> Option<File>) {
        if self.bytes_max.is_none() || self.waiting.len() >= WAITING_MAX || self.seen.contains(id) {
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
        self.wait(progress);
        let (Some(bytes_max), Some((id, file))) = (self.bytes_max, self.waiting.pop_front()) else { return };
        let writer = writer.clone();
        self.running = Some(std::thread::spawn(move || {
            let kept = writer.keep_image(&id, &mut FromStart { file, at: 0 }, bytes_max);
            heap::give_back();
            kept
        }));
    }

    /// Another epoch began: what runs on counts as used again.
    pub fn began(&mut self) {
        self.seen.clear();
    }

    /// Waits for the one that is being copied.
    pub fn wait(&mut self, progress: &mut dyn FnMut(Progress)) {
        if let Some(Ok(Err(error))) = self.running.take().map(JoinHandle::join) {
            progress(Progress::Warning(format!("an image could not be kept: {error}")));
        }
    }
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
