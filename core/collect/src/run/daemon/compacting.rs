//! Compacts an epoch's segments from time to time, on a separate thread, because the rings must be drained in the meantime.

use std::{
    collections::VecDeque,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use dwell_profile::{DatabaseError, EpochId, Writer};

use crate::{run::options::Progress, sys::heap};

/// Number of flushes after which segments are compacted. They are also compacted after [`COMPACT_EVERY`] if there were
/// several.
const FLUSHES_PER_COMPACTION: u32 = 16;
const COMPACT_EVERY: Duration = Duration::from_secs(1200);
/// Maximum number of ended epochs that wait for compaction. If there are more, the oldest is not compacted, which only costs
/// space.
const WAITING_MAX: usize = 16;

/// Runs compactions, one at a time.
pub struct Compacting {
    flushes: u32,
    /// Time at which the last compaction was requested.
    since: Instant,
    waiting: VecDeque<EpochId>,
    running: Option<JoinHandle<Result<(), DatabaseError>>>,
}

impl Default for Compacting {
    fn default() -> Self {
        Compacting { flushes: 0, since: Instant::now(), waiting: VecDeque::new(), running: None }
    }
}

impl Compacting {
    /// Records that the current epoch got another segment.
    pub fn flushed(&mut self, writer: &Writer, epoch: &EpochId, progress: &mut dyn FnMut(Progress)) {
        self.flushes += 1;
        let is_time = self.flushes > 1 && self.since.elapsed() >= COMPACT_EVERY;
        if (is_time || self.flushes >= FLUSHES_PER_COMPACTION) && self.waiting.is_empty() {
            (self.flushes, self.since) = (0, Instant::now());
            self.waiting.push_back(epoch.clone());
        }
        self.go_on(writer, progress);
    }

    /// Records that an epoch ended, so it will get no further segment.
    pub fn ended(&mut self, writer: &Writer, epoch: &EpochId, progress: &mut dyn FnMut(Progress)) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        if !self.waiting.contains(epoch) {
            self.waiting.push_back(epoch.clone());
        }
        self.go_on(writer, progress);
    }

    fn go_on(&mut self, writer: &Writer, progress: &mut dyn FnMut(Progress)) {
        if self.running.as_ref().is_some_and(|r| !r.is_finished()) {
            return;
        }
        self.join(progress);
        let Some(epoch) = self.waiting.pop_front() else { return };
        let writer = writer.clone();
        self.running = Some(std::thread::spawn(move || {
            let compacted = writer.compact(&epoch);
            heap::give_back();
            heap::give_back_code(); // It is long until the next flush.
            match compacted {
                Err(DatabaseError::NoSuchEpoch { .. }) => Ok(()), // It was removed in the meantime.
                compacted => compacted.map(|_| ()),
            }
        }));
    }

    /// Waits for the running compaction. Waiting ones are not started.
    pub fn wait(&mut self, progress: &mut dyn FnMut(Progress)) {
        self.join(progress);
    }

    fn join(&mut self, progress: &mut dyn FnMut(Progress)) {
        if let Some(Ok(Err(error))) = self.running.take().map(JoinHandle::join) {
            progress(Progress::Warning(format!("segments could not be compacted: {error}")));
        }
    }
}
