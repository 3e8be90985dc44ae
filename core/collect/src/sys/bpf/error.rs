//! Errors that explain in one line why BPF cannot be used.
//!
//! Enters: errors of the kernel and of aya. Leaves: the missing right, or the chain of errors. Never here: what is tried
//! instead.

use std::io;

use rustix::io::Errno;

use crate::refusal::{Rights, Wanted};

/// Why BPF cannot be used here.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The kernel denies it.
    #[error("dwell lacks {0}; run as root or give it CAP_BPF and CAP_PERFMON")]
    Denied(String),
    /// A seccomp filter denies it.
    #[error("a seccomp filter, as containers use it, forbids bpf or perf_event_open; allow both calls")]
    Filtered,
    /// The kernel does not provide its types (BTF).
    #[error("the kernel has no BTF (/sys/kernel/btf/vmlinux)")]
    NoBtf,
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

/// Returns the error for a part that the program lacks.
pub fn missing(name: &str) -> BpfError {
    BpfError::Other(format!("the program has no '{name}'"))
}

/// Returns the chain of an error in one line. If the kernel refused, it names the missing capability.
pub fn explain(error: &(dyn std::error::Error + 'static)) -> BpfError {
    let chain: Vec<_> = std::iter::successors(Some(error), |e| e.source()).collect();
    if chain.iter().any(|e| is_refusal(*e)) {
        let rights = Rights::now(Wanted::Machine);
        let lacking = rights.lacking_for_bpf();
        if !lacking.is_empty() {
            return BpfError::Denied(lacking.join(" and "));
        }
        if rights.is_filtered {
            return BpfError::Filtered;
        }
    }
    let texts: Vec<String> = chain.iter().map(|e| first_line(&e.to_string())).collect();
    BpfError::Other(texts.join(": "))
}

fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
    let errno = error.downcast_ref::<io::Error>().and_then(Errno::from_io_error);
    matches!(errno, Some(Errno::PERM | Errno::ACCESS))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
