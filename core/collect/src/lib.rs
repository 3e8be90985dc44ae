//! Collection: samples of running code are resolved to images and stored as an epoch.
//!
//! Enters: perf's records and /proc. Leaves: counts by (image, event, offset, application instance) in the database, and the
//! number of lost samples by cause. Never here: symbols of user code, source lines, analysis. This is our only crate that
//! makes system calls of its own; all `unsafe` is in `sys`.
//!
//! A sample passes through [`sys`] (rings) → [`records`] (bytes → values) → [`merge`] (CPUs in order of time) →
//! [`collector`] (process → mapping → image) → [`session`] (epoch).

pub mod branch;
mod breakpoint_counts;
mod bursts;
mod clocks;
mod code_files;
mod code_names;
mod collector;
mod control;
mod counts;
mod daemon;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod emulate;
mod entries;
mod error;
mod events;
#[doc(hidden)]
pub mod exercise;
mod host;
mod host_paths;
mod items;
mod jitdump;
mod kernel_names;
mod linux_host;
mod live_processes;
mod loss;
mod machine;
mod merge;
mod operand;
mod options;
mod period;
mod procfs;
mod random;
mod record;
pub mod records;
mod refusal;
mod session;
#[cfg(test)]
mod simulation;
mod source;
mod stop;
mod store;
mod sys;
mod timer;
mod transfers;
mod x86;

pub use control::{Status, flush, new_epoch, set_sampling, status};
pub use daemon::daemon;
pub use error::CollectError;
pub use events::known_names as known_events;
pub use options::{
    BackendChoice, DEFAULT_BRANCH_STACKS_HZ, DEFAULT_RATE, DaemonOptions, ODOMETERS_PERCENT, Progress, Rate,
    RecordOptions, Recorded, Target,
};
pub use record::record;
pub use source::Backend;
pub use stop::{Renew, Stop};
pub use sys::heap::keep_peak_small;
pub use sys::inherited::take as take_inherited_fd;
