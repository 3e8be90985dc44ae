//! Causes of losses: every sample that is missing is counted under one of them.

/// Why samples are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossCause {
    /// A ring was full. Mappings and exits may be among what is missing.
    RingFull,
    /// The kernel's buffers of evicted entries were full.
    BuffersFull,
    /// A sample interrupted the handling of another one: only an NMI can, and only the kernel module sees it. Likewise an
    /// interrupt of its timer that came without registers, which nobody has seen yet.
    Nested,
    /// The kernel module's device failed; how many samples that took is not known.
    DeviceFailed,
}

impl LossCause {
    /// As status and epoch.json name it.
    pub fn name(self) -> &'static str {
        match self {
            LossCause::RingFull => "ring-full",
            LossCause::BuffersFull => "buffers-full",
            LossCause::Nested => "nested",
            LossCause::DeviceFailed => "device-failed",
        }
    }
}
