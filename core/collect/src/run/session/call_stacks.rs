//! What an epoch says of its call stacks.

use dwell_profile::CallStacksRecord;

use super::Session;
use crate::source::Backend;

/// The beginning of the note of an epoch whose stacks could not be sampled.
const REFUSED: &str = "call stacks are not recorded";

/// Returns the note of an epoch whose stacks could not be sampled.
pub(super) fn refused(backend: Backend) -> String {
    match backend {
        _ if cfg!(not(target_arch = "x86_64")) => format!("{REFUSED}: they are unwound on x86-64 only"),
        Backend::Kmod => format!("{REFUSED}: the kernel module takes none; use --backend bpf or perf"),
        Backend::Bpf | Backend::Perf => format!(
            "{REFUSED}: the kernel refuses to copy stacks here, or too little memory may be locked for them (ulimit -l, \
             kernel.perf_event_mlock_kb)"
        ),
    }
}

impl Session {
    /// Returns the numbers of the epoch's call stacks, if they are recorded.
    pub(super) fn call_stacks_record(&self) -> Option<CallStacksRecord> {
        let record = self.collector.call_stacks.record();
        let is_refused = self.store.epoch.notes.iter().any(|note| note.starts_with(REFUSED));
        (record.hz > 0 && !is_refused).then(|| record.clone())
    }
}
