//! What a forked process has of its parent's probes: the patched code and the trampolines, but no memory to record in.
//!
//! Enters: a forked process that is stopped before it runs. Leaves: the same process with memory of its own at the place where its
//! parent has the shared memory, or with the program's own code. Never here: what is recorded.

use std::{collections::BTreeMap, io, os::unix::fs::FileExt};

use dwell_profile::Pid;
use serde::{Deserialize, Serialize};

use super::{
    hook::open_memory,
    installation::{MADV_DONTFORK, NAME, is_ours},
    procfs::mappings,
    tracee::Tracee,
};
use crate::patch::plan::JUMP_BYTES;

/// The places of probes in a probed process, which are the same in each process that is forked from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// The file of the trampolines, which a copy keeps.
    pub family: String,
    /// Address of the shared memory.
    pub shared_at: u64,
    /// Size of the shared memory in bytes.
    pub shared_bytes: u64,
    /// A `syscall` instruction.
    pub syscall_at: u64,
    /// The program's own code where it is patched.
    pub originals: Vec<(u64, [u8; JUMP_BYTES])>,
}

impl Copied {
    /// Returns what a new process has of the probes of one of these families; `None` if it has none, or shares its parent's memory.
    pub fn of(pid: Pid, families: &BTreeMap<String, Copied>) -> Option<&Copied> {
        if families.is_empty() {
            return None;
        }
        let mappings = mappings(pid).ok()?;
        let mut ours = mappings.iter().filter(|mapping| is_ours(mapping));
        let copied = ours.find_map(|mapping| families.get(mapping.file.as_ref()?))?;
        // Only a process with the same memory, as after vfork, has this.
        let is_shared =
            mappings.iter().any(|mapping| is_ours(mapping) && mapping.start.0 == copied.shared_at);
        (!is_shared).then_some(copied)
    }

    /// Maps new memory to record in, and returns the descriptor by which the stopped process has it open. It is empty.
    pub fn map_memory(&self, pid: Pid, tracee: Tracee) -> io::Result<i32> {
        let memory = open_memory(pid)?;
        let call = |number, arguments| tracee.system_call(self.syscall_at, number, arguments);
        // The name is written below the stack's red zone, where nothing is alive.
        let name_at = (tracee.registers()?.rsp - 1024) & !15;
        memory.write_all_at(format!("{NAME}\0").as_bytes(), name_at)?;
        let fd = call(libc::SYS_memfd_create, [name_at, u64::from(libc::MFD_CLOEXEC), 0, 0, 0, 0])?;
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE) as u64;
        let place = [self.shared_at, self.shared_bytes, protection, flags, fd, 0];
        let mapped = call(libc::SYS_mmap, place).and_then(|at| {
            if at != self.shared_at {
                call(libc::SYS_munmap, [at, self.shared_bytes, 0, 0, 0, 0])?;
                return Err(io::Error::from_raw_os_error(libc::EEXIST)); // An old kernel ignores the flag.
            }
            call(libc::SYS_madvise, [at, self.shared_bytes, MADV_DONTFORK, 0, 0, 0]).map(drop)
        });
        if let Err(error) = mapped {
            call(libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
            return Err(error);
        }
        Ok(fd as i32)
    }

    /// Closes the descriptor, which is not needed any more.
    pub fn close(&self, tracee: Tracee, descriptor: i32) -> io::Result<()> {
        tracee.system_call(self.syscall_at, libc::SYS_close, [descriptor as u64, 0, 0, 0, 0, 0]).map(drop)
    }

    /// Puts the program's own code back, and unmaps the memory that is open as this descriptor. The trampolines stay: a
    /// signal handler may return there.
    pub fn undo(&self, pid: Pid, tracee: Tracee, descriptor: Option<i32>) -> io::Result<()> {
        let memory = open_memory(pid)?;
        for (address, bytes) in &self.originals {
            memory.write_all_at(bytes, *address)?;
        }
        if let Some(descriptor) = descriptor {
            let place = [self.shared_at, self.shared_bytes, 0, 0, 0, 0];
            tracee.system_call(self.syscall_at, libc::SYS_munmap, place)?;
            self.close(tracee, descriptor)?;
        }
        Ok(())
    }
}
