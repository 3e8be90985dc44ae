//! A BPF array map, mapped into our memory.
//!
//! Enters: the map. Leaves: its elements. Never here: which of them the kernel may be writing. Reads are volatile, so a
//! wrong assumption about that can cause no more than a torn value.

use std::{io, marker::PhantomData, os::fd::BorrowedFd, ptr, sync::atomic::AtomicU32};

use rustix::{
    mm::{MapFlags, ProtFlags, mmap, munmap},
    param::page_size,
};

use super::abi::{Plain, RawEntry};

/// The elements of a map of type BPF_MAP_TYPE_ARRAY that was created with BPF_F_MMAPABLE.
pub struct Array<T> {
    base: *mut u8,
    /// Offset of the first element in the mapping, in bytes.
    skew_bytes: usize,
    mapped_bytes: usize,
    elements: usize,
    element: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl<T> Send for Array<T> {}

impl<T: Plain> Array<T> {
    /// Maps all elements.
    pub fn map(fd: BorrowedFd<'_>, elements: usize) -> io::Result<Self> {
        Self::map_from(fd, 0, elements)
    }

    /// Maps some elements, beginning with `first`.
    pub fn map_from(fd: BorrowedFd<'_>, first: usize, elements: usize) -> io::Result<Self> {
        assert!(size_of::<T>().is_multiple_of(8), "the kernel rounds elements up to 8 bytes");
        let first_byte = first * size_of::<T>();
        let skew_bytes = first_byte % page_size();
        let mapped_bytes = (skew_bytes + elements * size_of::<T>()).next_multiple_of(page_size());
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else refers to it.
        let base = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let offset = (first_byte - skew_bytes) as u64;
            mmap(ptr::null_mut(), mapped_bytes, protection, MapFlags::SHARED, fd, offset)
        }?;
        Ok(Array { base: base.cast(), skew_bytes, mapped_bytes, elements, element: PhantomData })
    }

    /// Returns the number of bytes that are mapped.
    pub fn bytes(&self) -> usize {
        self.mapped_bytes
    }

    /// Reads an element.
    pub fn read(&self, index: usize) -> T {
        // SAFETY: in bounds and aligned (see `at`), and any bytes are a valid value.
        unsafe { self.at(index).read_volatile() }
    }

    /// Replaces an element.
    pub fn write(&mut self, index: usize, value: T) {
        // SAFETY: as for `read`.
        unsafe { self.at(index).write_volatile(value) }
    }

    /// Returns the aligned word at an offset in an element. Both sides access it atomically.
    pub fn field_u32(&self, index: usize, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= size_of::<T>() && offset.is_multiple_of(4));
        // SAFETY: inside of an element, aligned, and mapped as long as `self`.
        unsafe { AtomicU32::from_ptr(self.at(index).cast::<u8>().add(offset).cast()) }
    }

    fn at(&self, index: usize) -> *mut T {
        assert!(index < self.elements);
        // SAFETY: in bounds of the mapping, which begins at a page, as the kernel's elements do.
        unsafe { self.base.add(self.skew_bytes).cast::<T>().add(index) }
    }
}

impl Array<super::abi::Bucket> {
    /// Reads the place of the first entry of a bucket. For most buckets nothing else needs to be read.
    pub fn read_first_place(&self, index: usize) -> u64 {
        let first = self.at(index).cast::<RawEntry>();
        // SAFETY: a bucket begins with its first entry.
        unsafe { (&raw const (*first).place).read_volatile() }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: base and length are those of our own mapping, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.base.cast(), self.mapped_bytes) };
    }
}
