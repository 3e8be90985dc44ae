//! The time off the CPU in a session: which threads wait when it starts or pauses, and the period.

use dwell_profile::Pid;

use super::Session;
use crate::{collector::Waits, host::live_processes::waiting_threads_of};

impl Session {
    /// Finds the threads that wait already. The records of those that began or ended to wait meanwhile are applied later.
    pub(super) fn find_waiting(&mut self, pids: &[Pid], since_ns: u64) {
        let Some(waits) = self.collector.waits() else { return };
        for pid in pids {
            for (tid, pc) in waiting_threads_of(*pid) {
                waits.begin_unseen(since_ns, (*pid, tid), pc);
            }
        }
    }

    /// Forgets which threads wait.
    pub(super) fn forget_waits(&mut self) {
        self.collector.waits().into_iter().for_each(Waits::forget_all);
    }

    /// Passes the period of the time off the CPU to the collector.
    pub(super) fn set_wait_period(&mut self) {
        let period = self.configs.iter().find(|config| config.is_wait()).map(|config| config.period);
        if let (Some(period), Some(waits)) = (period, self.collector.waits()) {
            waits.set_period(period);
        }
    }
}
