//! Why a collection failed. Each error is one line that says what failed, why and, where it helps, what to do.

use std::{io, path::PathBuf};

use dwell_profile::{CpuId, DatabaseError, Pid};

use crate::source::Backend;

/// Why a collection could not start or could not end well.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The event does not exist on this machine.
    #[error("cannot sample event '{name}': {why}; known events: {}", known.join(", "))]
    NoSuchEvent {
        /// The requested name.
        name: String,
        /// The reason why it cannot be sampled.
        why: String,
        /// The names of events that can be requested.
        known: Vec<&'static str>,
    },
    /// The requested frequency or period is out of range.
    #[error("cannot sample {asked}: expected {expected}")]
    BadRate {
        /// The requested rate, with the event if it matters.
        asked: String,
        /// The range of rates that are possible.
        expected: String,
    },
    /// The kernel does not permit sampling of the whole machine.
    #[error("cannot sample the whole machine: {why}")]
    SystemDenied {
        /// The reason for the refusal, and the remedy.
        why: String,
    },
    /// The kernel does not permit sampling of this target.
    #[error("cannot sample {what}: {why}")]
    Denied {
        /// The target, such as `process 7` or `the command`.
        what: String,
        /// The reason for the refusal, and the remedy.
        why: String,
    },
    /// The backend does not work on this machine.
    #[error("cannot collect with backend {backend}: {why}")]
    Backend {
        /// The backend.
        backend: Backend,
        /// What the backend lacks, and what to do.
        why: String,
    },
    /// The process does not exist.
    #[error("cannot sample process {0}: no such process")]
    NoSuchProcess(Pid),
    /// The command cannot be started.
    #[error("cannot run '{command}': {source}")]
    Command {
        /// The first word of the command.
        command: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The command is empty.
    #[error("no command was given")]
    NoCommand,
    /// The kernel refused an event for another reason.
    #[error("cannot open event {event} on CPU {cpu}: {source}")]
    Open {
        /// The name of the event.
        event: String,
        /// The CPU on which it was to be opened.
        cpu: CpuId,
        /// The error of the kernel.
        source: io::Error,
    },
    /// No ring buffer could be mapped.
    #[error(
        "cannot map a ring buffer of {bytes} bytes: {source}; raise `sysctl kernel.perf_event_mlock_kb` or \
         `ulimit -l`"
    )]
    Ring {
        /// The smallest size that was tried.
        bytes: usize,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The database returned an error.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The last samples could not be stored. Samples that were stored before remain.
    #[error("{samples} samples of epoch {epoch} could not be stored: {source}")]
    NotStored {
        /// The number of samples that are lost.
        samples: u64,
        /// The epoch that they belong to.
        epoch: dwell_profile::EpochId,
        /// The error of the database.
        source: DatabaseError,
    },
    /// No daemon collects into the database.
    #[error("no daemon collects into {}; start one with `dwell daemon`", .0.display())]
    NoDaemon(PathBuf),
    /// The daemon does not answer as expected.
    #[error("the daemon on {} {why}", socket.display())]
    Daemon {
        /// The path of its socket.
        socket: PathBuf,
        /// What went wrong, beginning with a verb.
        why: String,
    },
    /// Path bursts cannot be recorded on this machine.
    #[error("cannot record path bursts: {0}")]
    Bursts(io::Error),
    /// The system refused another action.
    #[error("cannot {action}: {source}")]
    System {
        /// The action, as it follows "cannot".
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}
