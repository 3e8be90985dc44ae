//! Write watchpoints, through perf: finds the writers of a word without stopping or tracing any thread.
//!
//! Enters: threads of a process and a word of it. Leaves: the addresses after the instructions that wrote it. Never here:
//! which words, and when.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use dwell_profile::{Tid, VirtualAddress};
use perf_event_open_sys::{self as perf, bindings as abi};
use rustix::param::page_size;

use super::{
    event::{PerfEvent, REGISTER_MASK},
    guard::Guard,
    ring::Ring,
};
use crate::registers::{REGISTER_COUNT, Registers};

/// A write to the word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The address of the instruction after the one that wrote.
    pub next_pc: VirtualAddress,
    /// The thread that wrote.
    pub tid: Tid,
    /// The thread's registers after the write, if it runs 64-bit code.
    pub registers: Option<Registers>,
}

/// A watchpoint on one word, in some threads. Dropping this removes it.
pub struct Watchpoint {
    events: Vec<(PerfEvent, Ring)>,
    bytes: Vec<u8>,
    writes: Vec<Write>,
}

impl Watchpoint {
    /// Watches a word of 4 or 8 bytes at an aligned address in these threads, which are guarded, from now on, for `writes` writes in each.
    /// Returns an error if any thread that is still alive cannot be watched: its unseen writes would make the shares of the
    /// others wrong.
    pub fn set(_: &Guard, tids: &[Tid], address: VirtualAddress, size: u8, writes: i32) -> io::Result<Self> {
        let mut events = Vec::with_capacity(tids.len());
        for &tid in tids {
            let event = match open(tid, address, size) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue, // The thread has ended.
                opened => opened?,
            };
            let ring = Ring::map(&event, page_size())?;
            events.push((event, ring));
        }
        if events.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        for (event, _) in &events {
            // SAFETY: the argument is a number: overflows until the event disables itself.
            let result = unsafe { perf::ioctls::REFRESH(event.fd().as_raw_fd(), writes) };
            if result < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Watchpoint { events, bytes: Vec::new(), writes: Vec::new() })
    }

    /// Returns the writes so far.
    pub fn writes(&mut self) -> &[Write] {
        for (_, ring) in &mut self.events {
            self.bytes.clear();
            ring.drain(&mut self.bytes);
            parse(&self.bytes, &mut self.writes);
        }
        &self.writes
    }
}

fn word(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?))
}

/// Parses the registers that follow the instruction's address, process and thread, if they belong to 64-bit code.
fn registers(record: &[u8]) -> Option<Registers> {
    if word(record, 24)? != u64::from(abi::PERF_SAMPLE_REGS_ABI_64) {
        return None;
    }
    let mut values = [0; REGISTER_COUNT];
    for (at, value) in values.iter_mut().enumerate() {
        *value = word(record, 32 + 8 * at)?;
    }
    Some(Registers(values))
}

/// Parses samples of an instruction's address, process and thread, and registers. Other records are skipped.
fn parse(mut bytes: &[u8], writes: &mut Vec<Write>) {
    while let Some((header, _)) = bytes.split_first_chunk::<8>() {
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        let Some(record) = bytes.get(..size).filter(|record| record.len() >= 8) else { return };
        if kind == abi::PERF_RECORD_SAMPLE
            && let (Some(pc), Some(tid)) = (word(record, 8), record.get(20..24))
        {
            let tid = u32::from_ne_bytes(tid.try_into().expect("four bytes"));
            let (next_pc, tid) = (VirtualAddress(pc), Tid(tid));
            writes.push(Write { next_pc, tid, registers: registers(record) });
        }
        bytes = &bytes[size..];
    }
}

fn open(tid: Tid, address: VirtualAddress, size: u8) -> io::Result<PerfEvent> {
    let mut attr = abi::perf_event_attr {
        size: size_of::<abi::perf_event_attr>() as u32,
        type_: abi::PERF_TYPE_BREAKPOINT,
        bp_type: abi::HW_BREAKPOINT_W,
        sample_type: u64::from(abi::PERF_SAMPLE_IP | abi::PERF_SAMPLE_TID | abi::PERF_SAMPLE_REGS_USER),
        sample_regs_user: REGISTER_MASK,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_2.wakeup_watermark = 1 << 30;
    attr.__bindgen_anon_3.bp_addr = address.0;
    attr.__bindgen_anon_4.bp_len = u64::from(size);
    attr.set_watermark(1);
    attr.set_disabled(1);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    let flags = libc::c_ulong::from(abi::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a live, initialized perf_event_attr whose `size` is its own; the kernel writes at most its `size`
    // field.
    let fd = unsafe { perf::perf_event_open(&mut attr, tid.0 as libc::pid_t, -1, -1, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor, so nobody else owns it.
    Ok(PerfEvent::of_descriptor(unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[inline(never)]
    extern "C" fn write(word: &AtomicU64) {
        word.store(std::hint::black_box(3), Ordering::Relaxed);
    }

    #[test]
    fn the_writer_of_a_word_is_seen() {
        static WORD: AtomicU64 = AtomicU64::new(0);
        let name = "the_writer_of_a_word_is_seen";
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let address = VirtualAddress(WORD.as_ptr() as u64);
        let mut watch = match Watchpoint::set(&Guard::for_own_thread(), &[Tid(tid)], address, 8, 5) {
            Ok(watch) => watch,
            Err(error) => return println!("SKIPPED {name}: {error}"),
        };
        // If the compiler knew the word, it would need no register for its address.
        (0..20).for_each(|_| write(std::hint::black_box(&WORD)));
        let writes = watch.writes().to_vec();
        if writes.is_empty() {
            return println!("SKIPPED {name}: watchpoints are set without effect");
        }
        assert_eq!(writes.len(), 5);
        assert!(writes.iter().all(|write| write.next_pc == writes[0].next_pc && write.tid == Tid(tid)));
        #[cfg(target_arch = "x86_64")]
        assert!(writes.iter().all(|write| {
            let has_address = |number| write.registers.as_ref().unwrap().general(number) == address.0;
            (0..16).any(has_address)
        }));
    }

    #[test]
    fn registers_of_32_bit_code_are_left_out() {
        let of_abi = |abi: u64| -> Vec<u8> {
            let size = 32 + 8 * REGISTER_COUNT as u64;
            let header = [u64::from(abi::PERF_RECORD_SAMPLE) | size << 48, 0x4000, 17 | 34 << 32, abi];
            header.into_iter().chain((100..).take(REGISTER_COUNT)).flat_map(u64::to_ne_bytes).collect()
        };
        let mut writes = Vec::new();
        parse(&[of_abi(1), of_abi(2)].concat(), &mut writes);
        assert_eq!(writes.iter().map(|write| write.registers.is_some()).collect::<Vec<_>>(), [false, true]);
        assert!(writes.iter().all(|write| write.next_pc == VirtualAddress(0x4000) && write.tid == Tid(34)));
    }

    #[test]
    fn cut_off_records_are_skipped() {
        let mut writes = Vec::new();
        parse(&[9, 0, 0, 0, 0, 0, 32, 0, 1, 2, 3], &mut writes);
        parse(&[9, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3], &mut writes);
        parse(&[9, 0, 0, 0, 0, 0, 12, 0, 1, 2, 3, 4, 5], &mut writes);
        assert_eq!(writes, []);
    }
}
