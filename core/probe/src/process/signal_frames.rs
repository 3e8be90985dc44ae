//! Signal frames: where threads will continue when their signal handlers return.
//!
//! Enters: a process's memory and its threads' stack pointers. Leaves: whether a frame leads to some addresses. Never here: what is
//! done about it.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt};

use dwell_profile::{Pid, Tid, VirtualAddress};

use super::procfs::{self, Mapping, Position};

/// Returns whether a signal handler will return to such an address: whether a stack contains the registers of a signal frame with one.
/// A frame of a handler that has returned is found as well, if nothing was written over it. `pointers` are stack pointers of
/// threads that ran.
pub fn any_returns_to(
    memory: &File,
    pid: Pid,
    pointers: &BTreeMap<Tid, u64>,
    is_there: &impl Fn(u64) -> bool,
) -> io::Result<bool> {
    // Without handlers there are no frames.
    if procfs::status(pid, Tid(pid.0)).is_some_and(|status| status.signals.caught == 0) {
        return Ok(false);
    }
    let mappings = procfs::mappings(pid)?;
    for tid in procfs::threads(pid)? {
        let Some(pointer) = stack_pointer(pid, tid).or(pointers.get(&tid).copied()) else { continue };
        let is_in = |mapping: &&Mapping| mapping.contains(VirtualAddress(pointer));
        let Some(stack) = mappings.iter().find(is_in) else { continue };
        let from = VirtualAddress(pointer & !7).max(stack.start);
        let mut bytes = vec![0; stack.end.bytes_since(from) as usize];
        if memory.read_exact_at(&mut bytes, from.0).is_err() {
            continue;
        }
        if bytes.windows(SIGNAL_FRAME_BYTES).step_by(8).any(|frame| is_signal_frame(frame, memory, is_there))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Bytes of a signal frame up to the registers of segments (struct rt_sigframe in arch/x86/include/asm/sigframe.h).
const SIGNAL_FRAME_BYTES: usize = 200;

/// Returns whether this is a signal frame that continues at such an address.
fn is_signal_frame(frame: &[u8], memory: &File, is_there: &impl Fn(u64) -> bool) -> bool {
    const RIP: usize = 176;
    const CS: usize = 192;
    const USER_CODE: u16 = 0x33;
    /// `mov rax, 15` and `mov eax, 15`: the number of rt_sigreturn, and `syscall`.
    const RETURNS: [&[u8]; 2] =
        [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];
    let word = |at: usize| u64::from_ne_bytes(frame[at..at + 8].try_into().expect("eight bytes"));
    if word(CS) as u16 != USER_CODE || !is_there(word(RIP)) {
        return false;
    }
    let mut code = [0; 9];
    let read = memory.read_exact_at(&mut code, word(0));
    read.is_ok() && RETURNS.iter().any(|returns| code.starts_with(returns))
}

/// Returns the stack pointer of a blocked thread.
fn stack_pointer(pid: Pid, tid: Tid) -> Option<u64> {
    match procfs::position(pid, tid)? {
        Position::Running => None,
        Position::InCall { stack_pointer, .. } | Position::Blocked { stack_pointer, .. } => {
            Some(stack_pointer)
        }
    }
}
