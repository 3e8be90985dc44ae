//! Samples that the kernel aggregated: what a table of counts hands out.
//!
//! Enters: decoded records of the kernel module or of the BPF program. Leaves: plain values. Never here: whose image a
//! place is in (that is [`crate::collector`]'s), the layout of the table (that is `kmod/sample_table.h`'s).

/// So many samples of one event at one place, all of them within the [`Interval`] that they are handed out for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// Where.
    pub place: Place,
    /// The process that ran; for a place by executable, the first of those that were sampled there. 0: the idle task.
    pub pid: u32,
    /// Index of the event.
    pub event: u8,
    /// Samples, at least one.
    pub count: u64,
}

/// A place, as far as the kernel can tell it cheaply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In the text of a process's executable.
    Executable {
        /// An opaque mix of the executable's inode, generation and device.
        id: u64,
        /// Bytes after `mm->start_code`.
        offset: u64,
    },
    /// Elsewhere in a process.
    Process {
        /// The virtual address.
        pc: u64,
        /// The low 32 bits of the `id` of its executable, which tell apart what one pid executed one after the other;
        /// 0 where there is none.
        executable: u32,
    },
    /// In the kernel.
    Kernel {
        /// The virtual address.
        pc: u64,
        /// The executable of the process that ran, if it was one; the kernel's own threads have none.
        executable: Option<u64>,
    },
}

/// When the samples of a batch of entries were taken: after `since_ns`, up to `until_ns` (CLOCK_MONOTONIC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// When the table was empty.
    pub since_ns: u64,
    /// When the kernel had stopped writing to it.
    pub until_ns: u64,
}
