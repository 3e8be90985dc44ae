//! Reads the data from which programs compute the time without a system call.
//!
//! Enters: an address in a process. Leaves: a page of that data as it is now. Never here: other memory.
//!
//! The kernel maps this data (`[vvar]`) into each process, next to the code that reads it (vdso(7)). Nobody can read it from another
//! process, but that is not needed: it is the same in all. A thread that asks for the time is emulated with a later one, so it goes the
//! same way unless it decides by the time. Then none of its later moments is met.

use std::{
    fs,
    io::{self, Read},
    ops::Range,
    os::fd::AsRawFd,
    ptr,
    sync::OnceLock,
};

use crate::{
    emulate::memory::{PAGE_BYTES, Page},
    host::procfs::parse_regions,
};

/// Name of the mapping.
const NAME: &str = "[vvar]";
/// Most attempts to read it while the kernel does not change it.
const ATTEMPTS: usize = 100;

/// This is the part of a process's memory that contains the data.
pub struct ClockData(Range<u64>);

impl ClockData {
    /// Returns where the process of a thread has it; `None` if it does not, as programs of old or special kernels.
    pub fn of(tid: libc::pid_t) -> Option<ClockData> {
        let regions = parse_regions(&fs::read(format!("/proc/{tid}/maps")).ok()?);
        let data = regions.into_iter().find(|region| region.name == NAME)?;
        Some(ClockData(data.start.0..data.end.0))
    }

    /// Fills a page of it. Returns `None` if the address is elsewhere or the page cannot be read.
    pub fn read(&self, address: u64, page: &mut Page) -> Option<()> {
        static OWN: OnceLock<Option<ClockData>> = OnceLock::new();
        let own = OWN.get_or_init(|| ClockData::of(std::process::id() as libc::pid_t)).as_ref()?;
        let offset = address.checked_sub(self.0.start).filter(|_| self.0.contains(&address))?;
        let from = own.0.start.checked_add(offset).filter(|from| own.0.contains(from))?;
        for _ in 0..ATTEMPTS {
            copy(from, page).ok()?;
            // The kernel counts its changes in the first word, which is odd meanwhile.
            if offset > 0 || page.0[0] & 1 == 0 {
                return Some(());
            }
        }
        None
    }
}

/// Copies a page of ours of which some cannot be read: the kernel tells so, while an access of our own would end this process.
fn copy(from: u64, page: &mut Page) -> io::Result<()> {
    let (mut reader, writer) = io::pipe()?;
    let from = ptr::without_provenance(from as usize);
    // SAFETY: the kernel reads at most a page from any address, and fails where that is not possible.
    let written = unsafe { libc::write(writer.as_raw_fd(), from, PAGE_BYTES) };
    drop(writer);
    if written != PAGE_BYTES as isize {
        return Err(io::Error::last_os_error());
    }
    reader.read_exact(&mut page.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_another_process_is_ours() {
        let mut child = std::process::Command::new("sleep").arg("9").spawn().unwrap();
        let tid = child.id() as libc::pid_t;
        let data = std::iter::repeat_with(|| ClockData::of(tid)).flatten().next().unwrap();
        let mut page = Page([0xff; PAGE_BYTES]);
        assert_eq!(data.read(data.0.start, &mut page), Some(()));
        assert!(page.0[0] & 1 == 0 && page.0.iter().any(|byte| *byte != 0));
        assert_eq!(data.read(data.0.end, &mut page), None);
        assert_eq!(data.read(data.0.start - 1, &mut page), None);
        assert!(copy(PAGE_BYTES as u64, &mut page).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ClockData::of(tid).is_none());
    }
}
