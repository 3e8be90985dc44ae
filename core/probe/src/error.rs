//! Errors of probes.

use std::io;

use dwell_profile::Pid;

use crate::patch::plan::Refusal;

/// Why a process or a function cannot be probed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The process does not exist or ended.
    #[error("process {0} does not exist")]
    Gone(Pid),
    /// It may not be traced.
    #[error(
        "process {pid} cannot be probed: {source}: run as root or as its user, and see /proc/sys/kernel/yama/ptrace_scope"
    )]
    NotPermitted {
        /// The process.
        pid: Pid,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another program traces it.
    #[error("process {pid} is traced by process {tracer} (a debugger?): end that first")]
    Traced {
        /// The process.
        pid: Pid,
        /// Its tracer.
        tracer: u32,
    },
    /// The process has probes already.
    #[error("process {0} has probes already")]
    Probed(Pid),
    /// It must not be probed.
    #[error("process {pid} cannot be probed: {reason}")]
    Unsuitable {
        /// The process.
        pid: Pid,
        /// What is in the way.
        reason: &'static str,
    },
    /// A function cannot be patched.
    #[error("the function at {address:#x} cannot be patched: {refusal}")]
    Function {
        /// Its address.
        address: u64,
        /// Why.
        refusal: Refusal,
    },
    /// No thread came to user mode, or not all threads left the code that changes.
    #[error("process {pid} could not be stopped in time: {reason}")]
    Late {
        /// The process.
        pid: Pid,
        /// What was waited for.
        reason: &'static str,
    },
    /// Something else failed.
    #[error("cannot {what} of process {pid}: {source}")]
    System {
        /// The process.
        pid: Pid,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}
