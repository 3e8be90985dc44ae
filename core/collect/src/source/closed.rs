//! Placeholder for a source whose events were closed: it returns the source's last statistics, and no samples.
//!
//! Enters: a source that fell silent. Leaves: nothing. A device has one reader at a time, so the old source must be closed
//! before another one is opened. Until that succeeds, everything else goes on.

use std::{os::fd::BorrowedFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, poll},
    time::Timespec,
};

use super::{Backend, Features, Source, SourceTally, now_ns, times::EventTimes};
use crate::{CollectError, items::Item, merge::Merger};

/// Round of a source without samples, and so the interval between attempts to open another source.
const ROUND: Duration = Duration::from_millis(250);

/// A closed source.
pub struct Closed {
    backend: Backend,
    features: Features,
    tally: SourceTally,
    times: Vec<EventTimes>,
}

impl Closed {
    /// Creates the placeholder from the current statistics of `source`.
    pub fn of(source: &mut dyn Source) -> Self {
        let (backend, features) = (source.backend(), source.features());
        Closed { backend, features, tally: source.tally(), times: source.times() }
    }
}

impl Source for Closed {
    fn backend(&self) -> Backend {
        self.backend
    }

    fn features(&self) -> Features {
        Features { aggregates: false, shared_bytes: 0, ..self.features }
    }

    fn enable_side_band(&mut self) -> Result<(), CollectError> {
        Ok(())
    }

    fn enable(&mut self) -> Result<(), CollectError> {
        Ok(())
    }

    fn disable(&mut self) -> Result<(), CollectError> {
        Ok(())
    }

    fn round(&self) -> Duration {
        ROUND
    }

    fn wait(&mut self, timeout: Duration, wake: Option<BorrowedFd<'_>>) {
        let mut polled: Vec<PollFd<'_>> =
            wake.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let _ = poll(&mut polled, Some(&timeout)); // A signal only ends the wait.
    }

    fn drain(&mut self, _merger: &mut Merger<Item>) -> u64 {
        now_ns()
    }

    fn tend(&mut self, _warn: &mut dyn FnMut(String)) {}

    fn set_periods(&mut self, _periods: &[u64]) {}

    fn tally(&self) -> SourceTally {
        self.tally.clone()
    }

    fn times(&mut self) -> Vec<EventTimes> {
        self.times.clone()
    }

    fn take_malformed(&mut self) -> u64 {
        0
    }
}
