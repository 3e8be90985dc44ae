//! Copies the registers of a stopped thread and gives access to its memory.
//!
//! Enters: the id of a thread that we trace and that is stopped. Leaves: a [`Thread`] to be emulated. Never here: a change
//! of the thread.

use std::{arch::x86_64::__cpuid_count, fs::File, mem, os::unix::fs::FileExt, ptr};

use super::clock_data::ClockData;
use crate::{
    emulate::{
        Thread,
        calls::Calls,
        memory::{Fetch, Memory, PAGE_BYTES, Page},
        strings::REPETITIONS_MAX,
    },
    sys::{native::Registers, tracer::Ending},
};

/// The register set of the vector registers for `PTRACE_GETREGSET`.
const NT_X86_XSTATE: libc::c_int = 0x202;
/// Size of the buffer for that set: larger than the state of any current machine (AMX: 11 KB).
const STATE_BYTES: usize = 16 << 10;
/// Mask of the arithmetic flags and the direction flag.
const FLAGS: u64 = 0xcd5;
/// Offset of the SSE registers in the state, and their number in its oldest part.
const XMM_AT: usize = 160;

/// Most pieces of memory that one call reads.
const PARTS_MAX: usize = 1024;
/// The code segment of 64-bit programs.
const USER_CS: u64 = 0x33;

/// Copies the thread's registers and gives access to its memory. `memory` is that of an earlier thread, of which the room is taken.
/// Returns an error for 32-bit code, which cannot be emulated.
pub fn thread(tid: libc::pid_t, memory: &mut Memory<Remote>) -> Result<Thread<Remote>, Ending> {
    // SAFETY: the kernel writes the live struct, for which zeros are valid.
    let user = unsafe {
        let mut user: libc::user_regs_struct = mem::zeroed();
        let got = libc::ptrace(libc::PTRACE_GETREGS, tid, 0, &raw mut user);
        (got == 0).then_some(user).ok_or(Ending::Exited)?
    };
    if user.cs != USER_CS {
        return Err(Ending::Narrow);
    }
    let mut registers = Box::new(Registers::new());
    registers.general = [
        user.rax, user.rcx, user.rdx, user.rbx, user.rsp, user.rbp, user.rsi, user.rdi, user.r8, user.r9,
        user.r10, user.r11, user.r12, user.r13, user.r14, user.r15,
    ];
    registers.flags = user.eflags & FLAGS;
    vectors(tid, &mut registers).ok_or(Ending::Exited)?;
    let mut memory = mem::replace(memory, Memory::new(Remote::nowhere()));
    memory.restart(Remote::of(tid));
    Ok(Thread {
        registers,
        pc: user.rip,
        fs: user.fs_base,
        gs: user.gs_base,
        memory,
        calls: Calls::default(),
        repetitions_max: REPETITIONS_MAX,
    })
}

fn vectors(tid: libc::pid_t, registers: &mut Registers) -> Option<()> {
    let mut state = vec![0_u8; STATE_BYTES];
    let mut vector = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: STATE_BYTES };
    // SAFETY: the kernel writes at most that many bytes to the live buffer, and how many to the vector.
    let got = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &raw mut vector) };
    if got != 0 {
        return None;
    }
    state.truncate(vector.iov_len);
    registers.x87.copy_from_slice(state.get(..512)?);
    let mxcsr = state.get(24..28)?.try_into().ok()?;
    registers.mxcsr = u32::from_le_bytes(mxcsr);
    for number in 0..16 {
        part(&state, XMM_AT, number, 16, &mut registers.vectors[number][..16]);
    }
    let [upper, masks, uppermost, more] = [2, 5, 6, 7].map(component_at);
    for number in 0..16 {
        part(&state, upper, number, 16, &mut registers.vectors[number][16..32]);
        part(&state, uppermost, number, 32, &mut registers.vectors[number][32..]);
        part(&state, more, number, 64, &mut registers.vectors[16 + number]);
    }
    for number in 0..8 {
        let mut mask = [0; 8];
        part(&state, masks, number, 8, &mut mask);
        registers.masks[number] = u64::from_le_bytes(mask);
    }
    Some(())
}

/// Returns the offset of a component in the state (CPUID leaf 0xd); 0 where the machine has no such component.
fn component_at(component: u32) -> usize {
    __cpuid_count(0xd, component).ebx as usize
}

/// Copies one register of a component. If the machine does not have it, `to` stays unchanged.
fn part(state: &[u8], at: usize, number: usize, size: usize, to: &mut [u8]) {
    let start = at + number * size;
    if let Some(bytes) = state.get(start..start + size).filter(|_| at > 0) {
        to.copy_from_slice(bytes);
    }
}

/// Access to the memory of a thread.
///
/// `/proc/PID/mem` would take two thirds of the time of this call (docs/measured.md, "What a burst reads"), but it also reads
/// pages that the thread itself may not read, and then emulation would continue where the thread gets a signal.
pub struct Remote {
    tid: libc::pid_t,
    /// What is known of its pages; `None` if it was not needed yet.
    page_map: Option<File>,
    /// This is where it has the data of the clock; `None` if that was not needed yet.
    clock_data: Option<Option<ClockData>>,
}

impl Remote {
    /// Creates access to the memory of no thread.
    pub fn nowhere() -> Remote {
        Remote::of(-1)
    }

    /// Creates access to the memory of a thread.
    pub fn of(tid: libc::pid_t) -> Remote {
        Remote { tid, page_map: None, clock_data: None }
    }

    /// Returns bytes of its memory; `None` if not all can be read.
    pub fn bytes(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
        (length == 0 || self.read(&[local], &[piece(address, length)]) == length).then_some(bytes)
    }

    /// Returns the number of bytes that were read.
    fn read(&self, local: &[libc::iovec], remote: &[libc::iovec]) -> usize {
        // SAFETY: the kernel writes at most so many bytes to the live pages; the other addresses are the thread's.
        let read = unsafe {
            libc::process_vm_readv(
                self.tid,
                local.as_ptr(),
                local.len() as libc::c_ulong,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        usize::try_from(read).unwrap_or(0)
    }
}

fn piece(address: u64, length: usize) -> libc::iovec {
    libc::iovec { iov_base: ptr::without_provenance_mut(address as usize), iov_len: length }
}

/// Bytes of an entry of a page map, and the bits of it that say that a page is in memory or in swap space.
const ENTRY_BYTES: usize = 8;
const IS_IN_MEMORY: u64 = 1 << 63;
const IS_SWAPPED: u64 = 1 << 62;
/// Greatest distance of pages whose entries are read at once: entries cost less than a call.
const GAP_MAX: u64 = 64;

/// A presence tells where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The page was not used yet, or was given back.
    Nowhere,
    Swapped,
    InMemory,
}

impl Remote {
    /// Returns where `count` pages from `first` on are.
    pub fn presence(&mut self, first: u64, count: usize) -> Option<Vec<Presence>> {
        if self.page_map.is_none() {
            self.page_map = File::open(format!("/proc/{}/pagemap", self.tid)).ok();
        }
        let mut entries = vec![0; count * ENTRY_BYTES];
        let read = self.page_map.as_ref()?.read_at(&mut entries, first * ENTRY_BYTES as u64).ok()?;
        let entries = entries[..read].as_chunks().0.iter().map(|entry| u64::from_ne_bytes(*entry));
        let presence = |entry: u64| match entry & (IS_IN_MEMORY | IS_SWAPPED) {
            0 => Presence::Nowhere,
            IS_SWAPPED => Presence::Swapped,
            _ => Presence::InMemory,
        };
        Some(entries.map(presence).collect())
    }
}

impl Fetch for Remote {
    fn are_present(&mut self, numbers: &[u64]) -> Vec<bool> {
        let mut all = Vec::new();
        for run in numbers.chunk_by(|before, next| next - before <= GAP_MAX) {
            let pages = run[run.len() - 1] - run[0] + 1;
            let presence = self.presence(run[0], pages as usize).unwrap_or_default();
            let is_in_memory =
                |number: &u64| presence.get((number - run[0]) as usize) == Some(&Presence::InMemory);
            all.extend(run.iter().map(is_in_memory));
        }
        all
    }

    fn fetch(&mut self, address: u64, pages: &mut [Page]) -> usize {
        let length = size_of_val(pages);
        let local = libc::iovec { iov_base: pages.as_mut_ptr().cast(), iov_len: length };
        let read = self.read(&[local], &[piece(address, length)]);
        if read > 0 {
            return read;
        }
        let clock_data = self.clock_data.get_or_insert_with(|| ClockData::of(self.tid));
        let page = pages.first_mut().zip(clock_data.as_ref());
        page.and_then(|(page, data)| data.read(address, page)).map_or(0, |()| PAGE_BYTES)
    }

    fn fetch_each(&mut self, numbers: &[u64], pages: &mut [&mut Page]) -> usize {
        let mut read = 0;
        for (numbers, pages) in numbers.chunks(PARTS_MAX).zip(pages.chunks_mut(PARTS_MAX)) {
            // A piece of many pages takes less time than many of one.
            let run = |run: &[u64]| piece(run[0] * PAGE_BYTES as u64, run.len() * PAGE_BYTES);
            let remote: Vec<libc::iovec> =
                numbers.chunk_by(|before, next| before + 1 == *next).map(run).collect();
            let local = |page: &mut &mut Page| libc::iovec {
                iov_base: (&raw mut **page).cast(),
                iov_len: PAGE_BYTES,
            };
            let local: Vec<libc::iovec> = pages.iter_mut().map(local).collect();
            let pages = self.read(&local, &remote) / PAGE_BYTES;
            read += pages;
            if pages < numbers.len() {
                break;
            }
        }
        read
    }
}
