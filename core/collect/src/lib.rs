//! Collection: samples of running code are resolved to images and stored as an epoch.
//!
//! Enters: perf's records and /proc. Leaves: counts by (image, event, offset, application instance) in the database, and the
//! number of lost samples by cause. Never here: symbols of user code, source lines, analysis. This is our only crate that
//! makes system calls of its own; all `unsafe` is in `sys`.
//!
//! A sample passes through [`sys`] (rings and tables of the kernel) → [`source`] (bytes → records in order of time) →
//! [`collector`] (process → mapping → image, with what [`host`] knows of the machine) → [`run`] (epoch). [`evidence`] observes
//! how often code is executed beside that.

mod abilities;
mod collector;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod emulate;
mod entries;
mod error;
mod evidence;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod loss;
mod path;
mod random;
mod refusal;
mod registers;
mod run;
#[cfg(test)]
mod simulation;
mod source;
mod sys;
mod x86;

pub use abilities::{Ability, State, abilities};
pub use error::CollectError;
pub use evidence::{
    branch,
    code_counters::{CodeCounter, CodeCounts, CountWhen, NewCounters, ProcedureCounts, moved_code::Span},
};
pub use registers::REGISTER_COUNT;
pub use run::{
    control::{Status, flush, new_epoch, pause, resume, status},
    daemon::daemon,
    machine,
    options::{
        COUNTING_PERCENT, DAEMON_ODOMETERS_PERCENT, DEFAULT_BRANCH_STACKS_HZ, DEFAULT_RATE_HZ,
        DEFAULT_STACKS_HZ, DEFAULT_STACKS_HZ_OF_MACHINES, DaemonOptions, ODOMETERS_PERCENT, Progress,
        RecordOptions, Recorded, Target,
    },
    record::record,
    stop::{Renew, Stop},
};
pub use source::{Backend, BackendChoice, Rate, events::known_names as known_events, records};
pub use sys::{
    alarm::{Alarm, Signals, keep_switches_watched},
    clock::process_cpu_ns,
    command::PausedCommand,
    heap::keep_peak_small,
    inherited::take as take_inherited_fd,
};
