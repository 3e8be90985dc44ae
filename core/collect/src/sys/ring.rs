//! The memory-mapped ring buffer of a perf event.

use std::{
    io, ptr,
    sync::atomic::{AtomicU64, Ordering},
};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::{
    mm::{MapFlags, ProtFlags, mmap, munmap},
    param::page_size,
};

use super::event::PerfEvent;

/// The ring buffer into which the kernel writes one CPU's records.
pub struct Ring {
    base: *mut u8,
    mapped_bytes: usize,
    data_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and `&mut self` guards every access to it from our side.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of `data_bytes` (a power of two, at least a page) for `event`.
    pub fn map(event: &PerfEvent, data_bytes: usize) -> io::Result<Self> {
        assert!(data_bytes.is_power_of_two() && data_bytes >= page_size());
        let mapped_bytes = data_bytes + page_size();
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else refers to it.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event.fd(),
                0,
            )
        }?;
        Ok(Ring { base: base.cast(), mapped_bytes, data_bytes })
    }

    /// Appends to `out` all whole records that the kernel has written since the last call, oldest first, and returns their
    /// room to the kernel.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        // Barrier A pairs with the kernel's store of data_head after it has written the records.
        let head = self.head().load(Ordering::Acquire);
        let tail = self.tail().load(Ordering::Relaxed); // Only we write it.
        let length = usize::try_from(head.wrapping_sub(tail)).unwrap_or(self.data_bytes).min(self.data_bytes);
        let start = tail as usize & (self.data_bytes - 1);
        let first = length.min(self.data_bytes - start);
        self.copy(start, first, out);
        self.copy(0, length - first, out);
        // Barrier B pairs with the kernel's load of data_tail before it overwrites what we have just copied.
        self.tail().store(head, Ordering::Release);
    }

    /// Passes all whole records that the kernel has written since the last call to `each`, oldest first, and returns their
    /// room to the kernel. A record is copied into `scratch` only if it wraps around the end of the ring, so parts that
    /// nobody looks at cost nothing.
    pub fn each_record(&mut self, scratch: &mut Vec<u8>, mut each: impl FnMut(&[u8])) {
        /// Bytes of `perf_event_header`, which never wraps since records are aligned to 8 bytes.
        const HEADER_BYTES: usize = 8;
        // Barriers A and B are those of `drain`.
        let head = self.head().load(Ordering::Acquire);
        let mut at = self.tail().load(Ordering::Relaxed);
        while head.wrapping_sub(at) >= HEADER_BYTES as u64 {
            let start = at as usize & (self.data_bytes - 1) & !(HEADER_BYTES - 1);
            let header = self.bytes(start, HEADER_BYTES);
            let length = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if length < HEADER_BYTES || length as u64 > head.wrapping_sub(at) || length > self.data_bytes {
                break; // The rest cannot be told apart.
            }
            let first = length.min(self.data_bytes - start);
            if first == length {
                each(self.bytes(start, length));
            } else {
                scratch.clear();
                self.copy(start, first, scratch);
                self.copy(0, length - first, scratch);
                each(scratch);
            }
            at = at.wrapping_add(length as u64);
        }
        self.tail().store(head, Ordering::Release);
    }

    fn copy(&self, start: usize, length: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes(start, length));
    }

    fn bytes(&self, start: usize, length: usize) -> &[u8] {
        assert!(start + length <= self.data_bytes);
        // SAFETY: the range lies in the data pages (asserted), which stay mapped as long as `self`; between barriers
        // A and B the kernel does not write there.
        unsafe { std::slice::from_raw_parts(self.base.add(page_size() + start), length) }
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: the first page is a perf_event_mmap_page; the field is aligned, lives as long as `self`, and both
        // sides access it atomically.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.base.cast::<perf_event_mmap_page>()).data_head) }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as for `head`.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.base.cast::<perf_event_mmap_page>()).data_tail) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: base and length are those of our own mapping, and no reference into it outlives `self`. A failure
        // leaks it, no more.
        let _ = unsafe { munmap(self.base.cast(), self.mapped_bytes) };
    }
}
