//! The collector's handling of programs whose samples the kernel withholds.
//!
//! Enters: processes that end. Leaves: the names of such programs. Never here: the message about them.

use std::collections::BTreeSet;

use dwell_profile::Pid;

use super::Collector;
use crate::host::Host;

/// Most programs that are reported.
const WITHHELD_MAX: usize = 16;

impl<H: Host> Collector<H> {
    /// Notes the program of an ending process if the kernel withheld its samples. When a process executes a program with
    /// more rights than its user has (setuid), the kernel closes the user's events: the exec is the last record they report,
    /// and the exit we see is not a real one.
    pub(super) fn note_withheld(&mut self, pid: Pid) {
        let process = self.processes.get(pid).filter(|p| p.awaits_program && p.space.is_empty());
        if let Some(execution) = process.filter(|_| !self.gaps).map(|p| p.execution)
            && self.withheld.len() < WITHHELD_MAX
        {
            self.withheld.insert(self.apps.resolve(execution).app.to_string());
        }
    }

    /// Returns the programs whose samples the kernel withheld since the last call.
    pub fn take_withheld(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.withheld)
    }
}
