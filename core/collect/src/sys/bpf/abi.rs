//! The structures that the BPF program and we share, as `kmod/sample_table.h` and `core/collect/bpf/collect.bpf.h` define
//! them.
//!
//! Enters: nothing. Leaves: mirrors; a test compiles the headers and compares sizes and offsets.

use super::SampledRegisters;

/// Executables whose processes can be kept apart.
pub const APART_MAX: usize = 16;
/// Events that there are programs for.
pub const EVENTS_MAX: usize = 8;
/// Registers of a sample.
pub const REGISTERS: usize = 17;
/// Entries of a bucket.
const WAYS: usize = 6;
/// An overflow buffer is the kernel's.
pub const SPILL_FREE: u32 = 0;
/// An overflow buffer is ours.
pub const SPILL_FULL: u32 = 1;
const NOTICE_REGISTERS: u32 = 2;

/// Plain data: any bytes are a value, and there is no padding.
///
/// # Safety
/// Both must hold.
pub unsafe trait Plain: Copy + Default {}

// SAFETY: these are `repr(C)`, consist of integers alone and have no padding (asserted below).
unsafe impl Plain for Control {}
// SAFETY: as above.
unsafe impl Plain for Head {}
// SAFETY: as above.
unsafe impl Plain for Bucket {}
// SAFETY: as above.
unsafe impl Plain for RawEntry {}

/// `struct dwell_control`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Control {
    pub side: u32,
    pub apart_count: u32,
    pub apart: [u64; APART_MAX],
    pub registers_every: u32,
    pub registers_events: u32,
}

/// `struct dwell_spill`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Spill {
    pub active: u32,
    pub full_count: u32,
    pub used: [u32; 2],
    pub state: [u32; 2],
}

/// `struct dwell_head`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    pub spill: Spill,
    pub slot: u32,
    pub until_registers: u32,
    pub found: u64,
    pub idle: u64,
    pub registers_lost: u64,
    pub samples: [u64; EVENTS_MAX],
    pub lost: [u64; EVENTS_MAX],
    pub unused: u64,
}

/// `struct dwell_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawEntry {
    pub key: u64,
    pub place: u64,
}

/// `struct dwell_bucket`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    pub entries: [RawEntry; WAYS],
}

/// `struct dwell_full_notice`.
#[repr(C)]
pub struct FullNotice {
    pub kind: u64,
}

/// `struct dwell_registers_notice`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RegistersNotice {
    pub kind: u32,
    pub event: u32,
    pub time_ns: u64,
    pub pc: u64,
    pub pid: u32,
    pub tid: u32,
    pub registers: [u64; REGISTERS],
}

const _: () = {
    assert!(size_of::<Control>() == 4 * 2 + 8 * APART_MAX + 4 * 2);
    assert!(size_of::<Head>() == 192);
    assert!(size_of::<Bucket>() == 96);
    assert!(size_of::<RawEntry>() == 16);
};

impl RegistersNotice {
    /// Reads one; `None` if the bytes are something else.
    pub fn parse(bytes: &[u8]) -> Option<SampledRegisters> {
        if bytes.len() != size_of::<RegistersNotice>() {
            return None;
        }
        // SAFETY: as many bytes as it has, of which any are a value; unaligned as they may be.
        let notice = unsafe { bytes.as_ptr().cast::<RegistersNotice>().read_unaligned() };
        (notice.kind == NOTICE_REGISTERS).then_some(SampledRegisters {
            event: notice.event as u8,
            time_ns: notice.time_ns,
            pc: notice.pc,
            pid: notice.pid,
            tid: notice.tid,
            registers: notice.registers,
        })
    }
}
