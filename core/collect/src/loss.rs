//! Causes of losses: every missing sample is counted under one of them.

/// Why samples are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossCause {
    /// A ring was full. Mappings and exits may be among what is missing.
    RingFull,
    /// The kernel's buffers of evicted entries were full.
    BuffersFull,
    /// A sample interrupted the handling of another one: only an NMI can do that, and only the kernel module detects it.
    /// Also counts interrupts of the module's timer that came without registers, which have never been observed.
    Nested,
    /// The kernel module's device failed. The number of samples that this cost is not known.
    DeviceFailed,
}

impl LossCause {
    /// Returns the name, as used in status and epoch.json.
    pub fn name(self) -> &'static str {
        match self {
            LossCause::RingFull => "ring-full",
            LossCause::BuffersFull => "buffers-full",
            LossCause::Nested => "nested",
            LossCause::DeviceFailed => "device-failed",
        }
    }
}
