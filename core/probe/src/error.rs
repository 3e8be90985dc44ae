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
    /// The process that probes it lives.
    #[error("the probes of process {pid} belong to process {controller}, which lives: end that instead")]
    Controlled {
        /// The process.
        pid: Pid,
        /// The process that probes it.
        controller: u32,
    },
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
    /// No thread came to user mode, or not all threads left the code that changes. Nothing was changed.
    #[error(
        "the threads of process {pid} could not be stopped unnoticed in time: none runs, or one gets no CPU, or blocks every \
         signal that it would not notice"
    )]
    Late {
        /// The process.
        pid: Pid,
    },
    /// The probes are removed, but a thread may come back to the payload, which stays mapped.
    #[error(
        "all probes of process {pid} are removed, but a signal handler that interrupted the payload has not returned to it: its \
         memory stays mapped until the process ends, or `dwell callpaths --clean -p {pid}` unmaps it later"
    )]
    Held {
        /// The process.
        pid: Pid,
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
