//! Why samples are unknown: nothing unresolved is thrown away, and nothing is unresolved without a reason.

use serde::{Deserialize, Serialize};

/// Why a sample is counted under `unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    NoTask,
    NoProcess,
    NoMapping,
    Ambiguous,
    NoFile,
    Kernel,
    NoMode,
}

/// Samples under `unknown`, by cause: all but `app` add up to what the events' tallies tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnknownCauses {
    /// In user mode of a task that was past its end, so that the kernel told no process.
    pub no_task: u64,
    /// Of a process of which nothing is known: its records were lost, and it had ended before we looked.
    pub no_process: u64,
    /// At an address where the process had mapped nothing that we know of.
    pub no_mapping: u64,
    /// Counted in the kernel while several address spaces had the process's number and explain the address differently.
    pub ambiguous: u64,
    /// In an executable whose program headers could not be read any more.
    pub no_file: u64,
    /// In the kernel, but in no image of it: code that it generated, or a module that is gone.
    pub kernel: u64,
    /// The event could not tell the processor's mode.
    pub no_mode: u64,
    /// Not under `unknown`: the image is known, the application is not.
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
        } += count;
    }

    /// All under `unknown`.
    #[allow(dead_code)] // Until the status shows it.
    pub fn total(&self) -> u64 {
        let UnknownCauses { no_task, no_process, no_mapping, ambiguous, no_file, kernel, no_mode, app: _ } =
            self;
        no_task + no_process + no_mapping + ambiguous + no_file + kernel + no_mode
    }
}
