//! A thread's memory as it was when it stopped, and what following it would have written since.
//!
//! Enters: pages, read when they are first needed. Leaves: bytes. Never here: a write to the thread.

use rustc_hash::FxHashMap;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Pages of one burst: beyond, it is over.
const PAGES_MAX: usize = 1024;

/// How pages are read.
pub trait Fetch {
    /// Reads the page at an address that its size divides; whether it could.
    fn page(&mut self, address: u64, page: &mut [u8; PAGE_BYTES]) -> bool;
}

/// It cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// Pages, as they were or as they would be.
pub struct Memory<F> {
    fetch: F,
    pages: Vec<Box<[u8; PAGE_BYTES]>>,
    by_number: FxHashMap<u64, usize>,
    /// Number and index of the pages used last: of data, and of code.
    recent: [(u64, usize); 2],
}

impl<F: Fetch> Memory<F> {
    /// Nothing read yet.
    pub fn new(fetch: F) -> Memory<F> {
        Memory { fetch, pages: Vec::new(), by_number: FxHashMap::default(), recent: [(u64::MAX, 0); 2] }
    }

    /// Fills all of `bytes`.
    pub fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Unreadable> {
        let length = bytes.len();
        if self.copy_out(address, bytes, 0) == length { Ok(()) } else { Err(Unreadable) }
    }

    /// Fills `bytes` with code, as far as it can be read: so many.
    pub fn read_some(&mut self, address: u64, bytes: &mut [u8]) -> usize {
        self.copy_out(address, bytes, 1)
    }

    /// Eight bytes.
    pub fn read_word(&mut self, address: u64) -> Result<u64, Unreadable> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Writes to the copies; nothing, where not all can be.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Unreadable> {
        let ends = [address, address.wrapping_add(bytes.len().saturating_sub(1) as u64)];
        for end in ends {
            self.page(end / PAGE_BYTES as u64, 0).ok_or(Unreadable)?;
        }
        let (mut at, mut left) = (address, bytes);
        while !left.is_empty() {
            let start = at as usize % PAGE_BYTES;
            let (now, later) = left.split_at(left.len().min(PAGE_BYTES - start));
            let page = self.page(at / PAGE_BYTES as u64, 0).ok_or(Unreadable)?;
            self.pages[page][start..start + now.len()].copy_from_slice(now);
            (at, left) = (at.wrapping_add(now.len() as u64), later);
        }
        Ok(())
    }

    fn copy_out(&mut self, address: u64, bytes: &mut [u8], use_: usize) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let at = address.wrapping_add(done as u64);
            let start = at as usize % PAGE_BYTES;
            let length = (bytes.len() - done).min(PAGE_BYTES - start);
            let Some(page) = self.page(at / PAGE_BYTES as u64, use_) else { break };
            bytes[done..done + length].copy_from_slice(&self.pages[page][start..start + length]);
            done += length;
        }
        done
    }

    fn page(&mut self, number: u64, use_: usize) -> Option<usize> {
        if self.recent[use_].0 == number {
            return Some(self.recent[use_].1);
        }
        let index = match self.by_number.get(&number) {
            Some(&index) => index,
            None => self.fetched(number)?,
        };
        self.recent[use_] = (number, index);
        Some(index)
    }

    fn fetched(&mut self, number: u64) -> Option<usize> {
        let index = self.pages.len();
        let mut page = Box::new([0; PAGE_BYTES]);
        if index >= PAGES_MAX || !self.fetch.page(number * PAGE_BYTES as u64, &mut page) {
            return None;
        }
        self.pages.push(page);
        self.by_number.insert(number, index);
        Some(index)
    }
}
