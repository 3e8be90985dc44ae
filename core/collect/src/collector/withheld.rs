//! The collector's part in programs whose samples the kernel withholds.
//!
//! Enters: processes that end. Leaves: the names of such programs. Never here: what is said of them.

use std::collections::BTreeSet;

use dwell_profile::Pid;

use super::Collector;
use crate::host::Host;

/// Programs that are named whose samples the kernel withholds.
const WITHHELD_MAX: usize = 16;

impl<H: Host> Collector<H> {
    /// Of a process that executes a program with more rights than it has (setuid), the kernel takes a user's events away: the
    /// execution is the last that they tell, and an end that is none.
    pub(super) fn note_withheld(&mut self, pid: Pid) {
        let process = self.processes.get(pid).filter(|p| p.awaits_program && p.space.is_empty());
        if let Some(execution) = process.filter(|_| !self.gaps).map(|p| p.execution)
            && self.withheld.len() < WITHHELD_MAX
        {
            self.withheld.insert(self.apps.resolve(execution).app.to_string());
        }
    }

    /// The programs whose samples the kernel withheld since the last call.
    pub fn take_withheld(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.withheld)
    }
}
