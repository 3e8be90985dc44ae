//! Programs whose samples the kernel withholds.
//!
//! Enters: processes that end. Leaves: the names of such programs. Never here: the message about them.

use std::collections::BTreeSet;

use dwell_profile::Pid;

use super::attribution::Attribution;

/// Most programs that are reported.
const WITHHELD_MAX: usize = 16;

/// Names of programs since they were last taken.
#[derive(Default)]
pub struct WithheldPrograms(BTreeSet<String>);

impl WithheldPrograms {
    /// Notes the program of an ending process if the kernel withheld its samples. When a process executes a program with
    /// more rights than its user has (setuid), the kernel closes the user's events: the exec is the last record they report,
    /// and the exit we see is not a real one.
    pub(super) fn note<H>(&mut self, attribution: &mut Attribution<H>, pid: Pid) {
        let process = attribution.processes.get(pid).filter(|p| p.awaits_program && p.space.is_empty());
        if let Some(execution) = process.map(|p| p.execution)
            && self.0.len() < WITHHELD_MAX
        {
            self.0.insert(attribution.apps.resolve(execution).app.to_string());
        }
    }

    /// Returns the programs since the last call.
    pub fn take(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.0)
    }
}
