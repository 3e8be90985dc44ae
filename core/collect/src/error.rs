//! Why a collection failed, each as one line: what, why and, where there is something, what to do.

use std::{io, path::PathBuf};

use dwell_profile::{CpuId, DatabaseError, Pid};

use crate::source::Backend;

/// Why a collection could not start or could not end well.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// No such event here.
    #[error("no event '{name}': {why}; known here: {}", known.join(", "))]
    NoSuchEvent {
        /// What was asked for.
        name: String,
        /// Why not.
        why: String,
        /// What could be asked for.
        known: Vec<&'static str>,
    },
    /// A frequency or period out of range.
    #[error("cannot sample {asked}: expected {expected}")]
    BadRate {
        /// What was asked for.
        asked: String,
        /// What is possible.
        expected: String,
    },
    /// The kernel allows no sampling of the whole machine.
    #[error("cannot sample the whole machine: {why}")]
    SystemDenied {
        /// The reason for the refusal, and the remedy.
        why: String,
    },
    /// The kernel allows no sampling at all.
    #[error("cannot sample {what}: {why}")]
    Denied {
        /// `process 7`, `the command`.
        what: String,
        /// The reason for the refusal, and the remedy.
        why: String,
    },
    /// A backend does not work here.
    #[error("cannot collect with backend {backend}: {why}")]
    Backend {
        /// Which.
        backend: Backend,
        /// What it lacks, and what to do.
        why: String,
    },
    /// No such process.
    #[error("cannot sample process {0}: no such process")]
    NoSuchProcess(Pid),
    /// The command cannot be started.
    #[error("cannot run '{command}': {source}")]
    Command {
        /// Its first word.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// An empty command.
    #[error("no command was given")]
    NoCommand,
    /// The kernel refused an event for another reason.
    #[error("cannot open event {event} on CPU {cpu}: {source}")]
    Open {
        /// Which.
        event: String,
        /// Where.
        cpu: CpuId,
        /// Why.
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
        /// Why.
        source: io::Error,
    },
    /// The database refused.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The end could not be stored; what was stored before is there.
    #[error("{samples} samples of epoch {epoch} could not be stored: {source}")]
    NotStored {
        /// How many.
        samples: u64,
        /// Of which epoch.
        epoch: dwell_profile::EpochId,
        /// Why.
        source: DatabaseError,
    },
    /// Nobody collects into the database.
    #[error("no daemon collects into {}; start one with `dwell daemon`", .0.display())]
    NoDaemon(PathBuf),
    /// The daemon does not answer as expected.
    #[error("the daemon on {} {why}", socket.display())]
    Daemon {
        /// Its socket.
        socket: PathBuf,
        /// What it did or did not.
        why: String,
    },
    /// No threads can be single-stepped.
    #[error("cannot record path bursts: {0}")]
    Bursts(io::Error),
    /// The system refused something else.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
}
