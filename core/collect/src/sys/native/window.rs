//! A window to the memory of another program: copies of its pages, found by the low half of an address.
//!
//! Enters: pages by their place in the window, and who may access them. Leaves: the same pages. Never here: what is in them, and where
//! it comes from ([`crate::emulate::memory`]).
//!
//! Compiled code addresses the window through segment gs, with addresses of 32 bits. So the processor itself confines each access to
//! these 4 GiB, and no instruction is needed to find a page: software fault isolation (Wahbe et al., 1993) by the hardware's own
//! arithmetic. Pages whose addresses differ by a multiple of 4 GiB have the same place, and only one of them can be there.

use std::{io, ptr};

/// Bytes of a page, which is mapped or not as a whole.
pub const PAGE_BYTES: usize = 4096;
/// Number of pages in the window.
pub const PLACES: u64 = 1 << 20;
/// Size of the window in bytes.
const BYTES: usize = PLACES as usize * PAGE_BYTES;
/// Bytes after it that nobody can access: an operand may begin in its last byte.
const GUARD_BYTES: usize = PAGE_BYTES;

/// The bytes of a page.
#[repr(C, align(4096))]
#[derive(Clone)]
pub struct Page(pub [u8; PAGE_BYTES]);

/// What may be done to a page, by compiled code and by us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    #[default]
    Nothing,
    Read,
    Write,
}

/// 4 GiB of this process's address space.
pub struct Window(*mut u8);

// SAFETY: the mapping belongs to this value alone, whichever thread has it.
unsafe impl Send for Window {}

impl Window {
    /// Maps a window of pages of zeros, all of which may be written.
    pub fn new() -> io::Result<Window> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(ptr::null_mut(), BYTES + GUARD_BYTES, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut window = Window(base.cast());
        // SAFETY: the mapping above. Each access would bring 2 MiB into memory otherwise.
        unsafe { libc::madvise(base, BYTES, libc::MADV_NOHUGEPAGE) };
        window.permit(0, PLACES, Permission::Write)?;
        Ok(window)
    }

    /// Returns the place of the page with this number.
    pub fn place(number: u64) -> u64 {
        number % PLACES
    }

    /// Returns the address of the first page.
    pub fn base(&self) -> u64 {
        self.0 as u64
    }

    /// Sets what may be done to `count` pages from one place on.
    pub fn permit(&mut self, place: u64, count: u64, permission: Permission) -> io::Result<()> {
        assert!(place + count <= PLACES, "places of the window");
        let protection = match permission {
            Permission::Nothing => libc::PROT_NONE,
            Permission::Read => libc::PROT_READ,
            Permission::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: within the mapping, as was just checked. No reference to its pages is live, since `self` is borrowed.
        let set = unsafe { libc::mprotect(self.at(place).cast(), count as usize * PAGE_BYTES, protection) };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns pages that follow each other, which must be permitted to be read.
    pub fn pages(&self, place: u64, count: usize) -> &[Page] {
        assert!(place + count as u64 <= PLACES, "places of the window");
        // SAFETY: within the mapping, as was just checked; any bytes are a page.
        unsafe { std::slice::from_raw_parts(self.at(place), count) }
    }

    /// Returns pages that follow each other, which must be permitted to be written.
    pub fn pages_mut(&mut self, place: u64, count: usize) -> &mut [Page] {
        assert!(place + count as u64 <= PLACES, "places of the window");
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at(place), count) }
    }

    /// Returns the pages at these places, in ascending order and each once, which must be permitted to be written.
    pub fn each_mut(&mut self, places: &[u64]) -> Vec<&mut Page> {
        assert!(
            places.is_sorted_by(|a, b| a < b) && places.last().is_none_or(|last| *last < PLACES),
            "places"
        );
        // SAFETY: within the mapping and different pages, as was just checked; `self` is borrowed exclusively.
        places.iter().map(|place| unsafe { &mut *self.at(*place) }).collect()
    }

    /// Gives the memory of all pages back. They are zero afterwards.
    pub fn discard(&mut self) {
        // SAFETY: the mapping is ours, and no reference to its pages is live.
        unsafe { libc::madvise(self.0.cast(), BYTES, libc::MADV_DONTNEED) };
    }

    fn at(&self, place: u64) -> *mut Page {
        // SAFETY: callers stay within the mapping.
        unsafe { self.0.cast::<Page>().add(place as usize) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: mapped by us; no reference to its pages is live.
        unsafe { libc::munmap(self.0.cast(), BYTES + GUARD_BYTES) };
    }
}
