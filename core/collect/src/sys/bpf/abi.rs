//! The structures that the BPF program and this process share, as defined in `kmod/sample_table.h` and
//! `core/collect/bpf/collect.bpf.h`.
//!
//! Enters: nothing. Leaves: mirrors of the structures. A test compiles the headers and compares sizes and offsets.

use dwell_profile::VirtualAddress;

use super::{Notice, SampledRegisters};
use crate::entries::EntryWords;

/// Maximum number of executables whose processes can be kept apart.
pub const APART_MAX: usize = 16;
/// Number of events for which there are programs.
pub const EVENTS_MAX: usize = 8;
/// Number of registers of a sample.
pub const REGISTERS: usize = crate::registers::REGISTERS_REPORTED;
/// Maximum number of entries that wait for their table.
pub const WAITING: usize = 32;
/// Number of entries of a bucket.
const WAYS: usize = 6;
/// State of an overflow buffer that belongs to the kernel.
pub const SPILL_FREE: u32 = 0;
/// State of an overflow buffer that belongs to us.
pub const SPILL_FULL: u32 = 1;
const NOTICE_REGISTERS: u32 = 2;
const NOTICE_EXEC: u32 = 3;

/// A type of plain data: any bytes are a valid value, and there is no padding.
///
/// # Safety
/// Both properties must hold.
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
    pub registers_every: u32,
    pub registers_events: u32,
    pub apart_count: u32,
    pub entered_events: u32,
    pub unused: u32,
    pub apart: [u64; APART_MAX],
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

/// `struct dwell_executable`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Executable {
    pub mm: u64,
    pub tag: u64,
    pub start_code: u64,
    pub end_code: u64,
    pub pid: u32,
    pub executions: u32,
}

/// `struct dwell_head`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    pub slot: u32,
    pub until_registers: u32,
    pub waiting_count: u32,
    pub touched: u32,
    pub latest: Executable,
    pub samples: [u64; EVENTS_MAX],
    pub lost: [u64; EVENTS_MAX],
    pub found: u64,
    pub idle: u64,
    pub registers_lost: u64,
    pub spill: Spill,
    pub executions_lost: u64,
    pub entered_lost: u64,
    pub unused: u64,
    pub waiting: [RawEntry; WAITING],
}

/// `struct dwell_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawEntry {
    pub key: u64,
    pub place: u64,
}

impl RawEntry {
    pub fn words(&self) -> EntryWords {
        [self.key, self.place]
    }
}

/// `struct dwell_bucket`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    pub entries: [RawEntry; WAYS],
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
    assert!(size_of::<Control>() == 6 * 4 + 8 * APART_MAX);
    assert!(size_of::<Head>() == 256 + 16 * WAITING);
    assert!(size_of::<Bucket>() == 96);
    assert!(size_of::<RawEntry>() == 16);
};

/// `struct dwell_exec_notice`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ExecNotice {
    pub kind: u32,
    pub pid: u32,
    pub time_ns: u64,
    pub tag: u64,
}

// SAFETY: `repr(C)`, integers alone, no padding (asserted below).
unsafe impl PlainNotice for RegistersNotice {}
// SAFETY: as above.
unsafe impl PlainNotice for ExecNotice {}

const _: () = {
    assert!(size_of::<RegistersNotice>() == 32 + 8 * REGISTERS);
    assert!(size_of::<ExecNotice>() == 24);
};

/// A notice for which any bytes are a valid value.
///
/// # Safety
/// This property must hold.
unsafe trait PlainNotice: Sized {
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: the length equals the size of the type, any bytes are a valid value, and the read may be unaligned.
        (bytes.len() == size_of::<Self>()).then(|| unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

impl Notice {
    /// Parses a notice. Returns `None` for the notice that an overflow buffer is full: the caller then checks all of them.
    pub fn parse(bytes: &[u8]) -> Option<Notice> {
        let registers = RegistersNotice::of_bytes(bytes).filter(|n| n.kind == NOTICE_REGISTERS);
        if let Some(n) = registers {
            let (event, registers) = (n.event as u8, n.registers);
            let (time_ns, pc, pid, tid) = (n.time_ns, n.pc, n.pid, n.tid);
            let pc = VirtualAddress(pc);
            return Some(Notice::Registers(SampledRegisters { event, time_ns, pc, pid, tid, registers }));
        }
        let executed = ExecNotice::of_bytes(bytes).filter(|n| n.kind == NOTICE_EXEC);
        executed.map(|n| Notice::Executed { time_ns: n.time_ns, pid: n.pid, executable: n.tag })
    }
}
