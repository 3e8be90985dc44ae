//! Causes of unknown samples: no unresolved sample is dropped, and each has a cause.

use serde::{Deserialize, Serialize};

/// Cause for which a sample is counted under `unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    NoTask,
    NoProcess,
    NoMapping,
    Ambiguous,
    NoFile,
    Kernel,
    NoMode,
    NoPlace,
}

/// Samples under `unknown` by cause. All fields except `app` add up to the `unknown` samples in the totals of the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnknownCauses {
    /// Samples in user mode of a task that had exited, for which the kernel reported no process.
    pub no_task: u64,
    /// Samples of an unknown process: its records were lost, and it ended before we looked.
    pub no_process: u64,
    /// Samples at an address in no known mapping of the process.
    pub no_mapping: u64,
    /// Samples aggregated in the kernel whose pid had several address spaces that resolve the address differently.
    pub ambiguous: u64,
    /// Samples in an executable whose program headers could no longer be read.
    pub no_file: u64,
    /// Samples in the kernel but in no image of it: in generated code, or in a module that was unloaded.
    pub kernel: u64,
    /// Samples for which the event did not report the processor's mode.
    pub no_mode: u64,
    /// Periods of waits whose place the kernel did not show: the user may not look into the kernel, or the thread waited when
    /// recording began.
    pub no_place: u64,
    /// Samples with a known image but an unknown application. They are not under `unknown`.
    pub app: u64,
}

impl UnknownCauses {
    pub(super) fn add(&mut self, cause: Cause, count: u64) {
        *match cause {
            Cause::NoTask => &mut self.no_task,
            Cause::NoProcess => &mut self.no_process,
            Cause::NoMapping => &mut self.no_mapping,
            Cause::Ambiguous => &mut self.ambiguous,
            Cause::NoFile => &mut self.no_file,
            Cause::Kernel => &mut self.kernel,
            Cause::NoMode => &mut self.no_mode,
            Cause::NoPlace => &mut self.no_place,
        } += count;
    }
}

#[cfg(test)]
impl UnknownCauses {
    /// Returns all samples under `unknown`.
    pub(super) fn total(&self) -> u64 {
        let UnknownCauses {
            no_task,
            no_process,
            no_mapping,
            ambiguous,
            no_file,
            kernel,
            no_mode,
            no_place,
            app: _,
        } = self;
        no_task + no_process + no_mapping + ambiguous + no_file + kernel + no_mode + no_place
    }
}
