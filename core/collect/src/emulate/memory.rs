//! The memory of an emulated thread: as it was when the thread stopped, plus the emulated writes.
//!
//! Enters: pages of memory, read when they are first needed. Leaves: bytes. Never here: a write to the thread.
//!
//! A read of another process costs a system call and its checks; one of 4,096 bytes costs a tenth more than one of 8. So
//! pages are read, several at once where one follows the other.

use rustc_hash::FxHashMap;

/// Bytes of a page, which is mapped or not as a whole.
pub const PAGE_BYTES: usize = 4096;
/// Number of the last page of the address space.
const PAGE_NUMBERS: u64 = u64::MAX / PAGE_BYTES as u64;
/// Number of pages that one burst may read: 32 MiB.
const PAGES_MAX: usize = 8 << 10;
/// Most calls that read pages ahead: each ends at a page that cannot be read.
const READS_AHEAD_MAX: usize = 64;
/// Number of pages that most bursts need.
const PAGES_TOUCHED: usize = 384;
/// Number of pages that are read at once if accesses are sequential.
const PAGES_AT_ONCE: u64 = 16;

/// The bytes of a page.
#[repr(C, align(4096))]
#[derive(Clone)]
pub struct Page(pub [u8; PAGE_BYTES]);

/// A way to read a thread's memory.
pub trait Fetch {
    /// Fills `pages`, which begin at `address`, up to the first page that cannot be read. Returns the number of bytes that
    /// were filled.
    fn fetch(&mut self, address: u64, pages: &mut [Page]) -> usize;

    /// Fills one page for each number, up to the first one that cannot be read. Returns the number of pages that were filled.
    fn fetch_each(&mut self, numbers: &[u64], pages: &mut [Page]) -> usize {
        let each = numbers.iter().zip(pages);
        let page = |(number, page): (&u64, &mut Page)| {
            self.fetch(number * PAGE_BYTES as u64, std::slice::from_mut(page))
        };
        each.map(page).take_while(|bytes| *bytes == PAGE_BYTES).count()
    }

    /// Returns for each number, in order, whether the page is in memory: to read another one would change that.
    fn are_present(&mut self, numbers: &[u64]) -> Vec<bool> {
        vec![true; numbers.len()]
    }
}

/// Why memory was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The memory cannot be read.
    Unreadable,
    /// The burst has read as much memory as it may.
    TooMuch,
}

/// The purpose of a read.
#[derive(Clone, Copy)]
enum Use {
    Data,
    Code,
}

/// These are the purposes for which a page was used.
#[derive(Clone, Copy, Default)]
struct Uses {
    holds_code: bool,
    is_accessed: bool,
    is_written: bool,
}

/// Pages of memory, with the emulated writes.
pub struct Memory<F> {
    fetch: F,
    /// Never moved: room for all of them is reserved. There may be more than are used.
    pages: Vec<Page>,
    /// What each page is used for, by its index. Pages without this are not used yet.
    uses: Vec<Uses>,
    /// Number of writes to pages that hold code.
    code_writes: u32,
    by_number: FxHashMap<u64, usize>,
    /// Numbers of pages that are zero wherever they were not read before: from, and to without that one.
    zeros: Vec<(u64, u64)>,
    /// The page at which sequential accesses continue, and the number of pages that were read at once before it.
    sequence: (u64, u64),
    /// Number and index of the page used last, by purpose.
    recent: [(u64, usize); 2],
}

impl<F: Fetch> Memory<F> {
    /// Creates a memory from which nothing was read yet.
    pub fn new(fetch: F) -> Memory<F> {
        Memory {
            fetch,
            pages: Vec::new(),
            uses: Vec::new(),
            code_writes: 0,
            by_number: FxHashMap::default(),
            zeros: Vec::new(),
            sequence: (u64::MAX, 0),
            recent: [(u64::MAX, 0); 2],
        }
    }

    /// Uses room for some pages once, so that it need not be mapped while a thread waits.
    pub fn touch(&mut self) {
        self.reserve();
        self.make_room(PAGES_TOUCHED);
    }

    /// Forgets everything that was read, but keeps the room for it: memory that is new to a process costs page faults.
    pub fn restart(&mut self, fetch: F) {
        self.fetch = fetch;
        self.uses.clear();
        self.by_number.clear();
        self.zeros.clear();
        (self.code_writes, self.sequence, self.recent) = (0, (u64::MAX, 0), [(u64::MAX, 0); 2]);
    }

    /// Returns a page of code, if it was read before.
    pub fn code_page(&mut self, number: u64) -> Option<&Page> {
        let index = *self.by_number.get(&number)?;
        self.uses[index].holds_code = true;
        Some(&self.pages[index])
    }

    /// Says that no code was read so far.
    pub fn forget_code(&mut self) {
        self.uses.iter_mut().for_each(|uses| uses.holds_code = false);
    }

    /// Reads those of these pages at once that were not read before: one call costs half as much as many. Gives up after some that
    /// cannot be read.
    pub fn read_ahead(&mut self, numbers: &[u64]) {
        let is_new = |number: &&u64| !self.by_number.contains_key(number);
        let new: Vec<u64> = numbers.iter().filter(is_new).copied().collect();
        let mut rest = &new[..];
        for _ in 0..READS_AHEAD_MAX {
            let from = self.read_at_once(rest);
            let read = self.uses.len() - from;
            rest = rest.get(read + 1..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
        }
    }

    /// Reads those of these pages that are in memory and were not read before.
    pub fn read_present(&mut self, numbers: &[u64]) {
        let is_new = |number: &&u64| !self.by_number.contains_key(number);
        let mut new: Vec<u64> = numbers.iter().filter(is_new).copied().collect();
        new.sort_unstable();
        let mut present = self.fetch.are_present(&new).into_iter();
        new.retain(|_| present.next().unwrap_or(false));
        self.read_ahead(&new);
    }

    /// Returns the index of the first page that was read.
    fn read_at_once(&mut self, numbers: &[u64]) -> usize {
        let from = self.uses.len();
        let numbers = &numbers[..numbers.len().min(PAGES_MAX - from)];
        self.reserve();
        self.make_room(from + numbers.len());
        let read = self.fetch.fetch_each(numbers, &mut self.pages[from..from + numbers.len()]);
        self.uses.resize(from + read, Uses::default());
        self.by_number.extend(numbers.iter().copied().zip(from..from + read));
        from
    }

    /// Fills all of `bytes`. Fails if not all can be read.
    pub fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Refused> {
        self.copy_out(address, bytes, Use::Data).1
    }

    /// Fills `bytes` with code as far as it can be read. Returns the number of bytes.
    pub fn read_some(&mut self, address: u64, bytes: &mut [u8]) -> usize {
        self.copy_out(address, bytes, Use::Code).0
    }

    /// Reads eight bytes.
    pub fn read_word(&mut self, address: u64) -> Result<u64, Refused> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Returns the number of writes near code. After one, code that was read before may have changed.
    pub fn code_writes(&self) -> u32 {
        self.code_writes
    }

    /// Returns the page at this address, and whether code was read from it. It does not move before the next restart.
    pub fn page(&mut self, address: u64) -> Result<(&mut Page, bool), Refused> {
        let index = self.index(address / PAGE_BYTES as u64, Use::Data)?;
        Ok((&mut self.pages[index], self.uses[index].holds_code))
    }

    /// Returns the numbers of all pages that were accessed as data, and whether they were written to, since the last restart.
    pub fn accessed(&self) -> impl Iterator<Item = (u64, bool)> {
        let uses = self.by_number.iter().map(|(number, index)| (*number, self.uses[*index]));
        uses.filter(|(_, uses)| uses.is_accessed).map(|(number, uses)| (number, uses.is_written))
    }

    /// Lets whole pages be zero from now on.
    pub fn zero(&mut self, address: u64, length: usize) {
        let (first, end) =
            (address / PAGE_BYTES as u64, address.saturating_add(length as u64).div_ceil(PAGE_BYTES as u64));
        for (_, index) in self.by_number.iter().filter(|(number, _)| (first..end).contains(number)) {
            self.pages[*index].0.fill(0);
            self.code_writes += u32::from(self.uses[*index].holds_code);
        }
        self.zeros.push((first, end));
    }

    fn is_zero(&self, number: u64) -> bool {
        self.zeros.iter().any(|(first, end)| (*first..*end).contains(&number))
    }

    /// Writes at most one page's size to the copies. Writes nothing if not all bytes can be written.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Refused> {
        let (number, start) = (address / PAGE_BYTES as u64, address as usize % PAGE_BYTES);
        let (first, rest) = bytes.split_at(bytes.len().min(PAGE_BYTES - start));
        let page = self.index(number, Use::Data)?;
        if !rest.is_empty() {
            let next = self.index(number.wrapping_add(1) & PAGE_NUMBERS, Use::Data)?;
            self.write_in(next, 0, rest);
        }
        self.write_in(page, start, first);
        Ok(())
    }

    fn write_in(&mut self, page: usize, start: usize, bytes: &[u8]) {
        self.pages[page].0[start..start + bytes.len()].copy_from_slice(bytes);
        self.uses[page].is_written = true;
        self.code_writes += u32::from(self.uses[page].holds_code);
    }

    /// Returns how many bytes were filled, and why no more.
    fn copy_out(&mut self, address: u64, bytes: &mut [u8], of: Use) -> (usize, Result<(), Refused>) {
        let mut done = 0;
        while done < bytes.len() {
            let at = address.wrapping_add(done as u64);
            let start = at as usize % PAGE_BYTES;
            let length = (bytes.len() - done).min(PAGE_BYTES - start);
            match self.index(at / PAGE_BYTES as u64, of) {
                Ok(page) => {
                    self.uses[page].holds_code |= matches!(of, Use::Code);
                    bytes[done..done + length].copy_from_slice(&self.pages[page].0[start..start + length]);
                }
                Err(refused) => return (done, Err(refused)),
            }
            done += length;
        }
        (done, Ok(()))
    }

    fn index(&mut self, number: u64, of: Use) -> Result<usize, Refused> {
        let recent = self.recent[of as usize];
        if recent.0 == number {
            return Ok(recent.1);
        }
        let index = match self.by_number.get(&number) {
            Some(&index) => index,
            None => self.fetched(number, of)?,
        };
        self.recent[of as usize] = (number, index);
        self.uses[index].is_accessed |= matches!(of, Use::Data);
        Ok(index)
    }

    /// Makes room for this number of pages. Room that was used before is not cleared.
    fn make_room(&mut self, pages: usize) {
        if self.pages.len() < pages {
            self.pages.resize(pages, Page([0; PAGE_BYTES]));
        }
    }

    fn reserve(&mut self) {
        self.pages.reserve_exact(PAGES_MAX.saturating_sub(self.pages.len()));
    }

    /// Reads a page, and with it what will probably be needed.
    fn fetched(&mut self, number: u64, of: Use) -> Result<usize, Refused> {
        self.reserve();
        let index = self.uses.len();
        let wanted = match of {
            Use::Code => 1,
            Use::Data => self.sequential(number),
        };
        let is_zero = self.is_zero(number);
        let is_new = |number: &u64| {
            *number <= PAGE_NUMBERS
                && !self.by_number.contains_key(number)
                && self.is_zero(*number) == is_zero
        };
        let new = (number..number + wanted).take_while(is_new).count().min(PAGES_MAX - index);
        if new == 0 {
            return Err(Refused::TooMuch);
        }
        self.make_room(index + new);
        let pages = &mut self.pages[index..index + new];
        let bytes = if is_zero {
            pages.iter_mut().for_each(|page| page.0.fill(0));
            size_of_val(pages)
        } else {
            self.fetch.fetch(number * PAGE_BYTES as u64, pages)
        };
        let read = (bytes / PAGE_BYTES).min(new);
        self.uses.resize(index + read, Uses::default());
        self.by_number.extend((number..).zip(index..index + read));
        if read == 0 { Err(Refused::Unreadable) } else { Ok(index) }
    }

    /// Returns the number of pages to read: more and more where one follows the other.
    fn sequential(&mut self, number: u64) -> u64 {
        let (next, before) = self.sequence;
        let pages = if number == next { (2 * before).min(PAGES_AT_ONCE) } else { 1 };
        self.sequence = (number + pages, pages);
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A memory in which each word contains its address. It records which addresses were read.
    #[derive(Default)]
    struct FakeCode(Vec<(u64, usize)>);

    impl Fetch for FakeCode {
        fn fetch(&mut self, address: u64, pages: &mut [Page]) -> usize {
            self.0.push((address, pages.len()));
            let addresses = (address..).step_by(PAGE_BYTES);
            // Page 9 is not mapped.
            let readable = addresses.zip(pages).take_while(|(at, _)| at / PAGE_BYTES as u64 != 9);
            let fill = |(at, page): (u64, &mut Page)| {
                let words = page.0.as_chunks_mut::<8>().0;
                (at..).step_by(8).zip(words).for_each(|(at, word)| *word = at.to_le_bytes());
            };
            PAGE_BYTES * readable.map(fill).count()
        }
    }

    #[test]
    fn scattered_accesses_read_one_page_each() {
        let mut memory = Memory::new(FakeCode::default());
        for round in 0..4 {
            for page in (10..2010).rev() {
                let at = page * PAGE_BYTES as u64 + 0x408 + round * 0x300;
                assert_eq!(memory.read_word(at), Ok(at));
            }
        }
        assert_eq!((memory.fetch.0.len(), memory.pages.len()), (2000, 2000));
    }

    #[test]
    fn sequential_accesses_read_more_and_more_pages_at_once() {
        let mut memory = Memory::new(FakeCode::default());
        (0..4096).for_each(|n| assert_eq!(memory.read_word(0xa000 + 8 * n), Ok(0xa000 + 8 * n)));
        assert_eq!(memory.fetch.0, [(0xa000, 1), (0xb000, 2), (0xd000, 4), (0x1_1000, 8)]);
        // They end at memory that is not mapped, and no earlier.
        let mut memory = Memory::new(FakeCode::default());
        (0..0x600).for_each(|n| assert_eq!(memory.read_word(0x6000 + 8 * n), Ok(0x6000 + 8 * n)));
        assert_eq!(memory.read_word(0x9000), Err(Refused::Unreadable));
        assert_eq!(memory.read_word(0x5ff8), Ok(0x5ff8), "backward");
    }

    #[test]
    fn a_restart_forgets_what_was_read_and_written() {
        let mut memory = Memory::new(FakeCode::default());
        memory.write(0xa010, &[1; 8]).unwrap();
        memory.restart(FakeCode::default());
        assert_eq!((memory.read_word(0xa010), memory.fetch.0.len()), (Ok(0xa010), 1));
    }

    #[test]
    fn pages_are_read_ahead_beyond_one_that_cannot_be_read() {
        let mut memory = Memory::new(FakeCode::default());
        memory.read_ahead(&[12, 10, 9, 11]);
        assert!(memory.code_page(10).is_some() && memory.code_page(11).is_some());
        assert!(memory.code_page(9).is_none() && memory.code_page(13).is_none());
        assert_eq!((memory.read_word(0xa010), memory.read_word(0xc000)), (Ok(0xa010), Ok(0xc000)));
        assert_eq!(memory.fetch.0.len(), 4);
        memory.write(0xa010, &[1; 8]).unwrap();
        assert_eq!(memory.code_writes(), 1);
    }

    #[test]
    fn writes_survive_a_read_of_the_pages_before() {
        let mut memory = Memory::new(FakeCode::default());
        memory.write(0xcffc, &[7; 8]).unwrap(); // This word is in two pages.
        memory.write(0xc010, &[1, 2]).unwrap();
        (0..0x400).for_each(|n| assert_eq!(memory.read_word(0xa000 + 8 * n), Ok(0xa000 + 8 * n)));
        assert_eq!(memory.read_word(0xcffc), Ok(u64::from_le_bytes([7; 8])));
        assert_eq!(memory.read_word(0xc010), Ok(0x0201));
    }

    #[test]
    fn unreadable_memory_and_too_much_memory_are_different_errors() {
        let mut memory = Memory::new(FakeCode::default());
        assert_eq!(memory.read_word(0x9000), Err(Refused::Unreadable));
        assert_eq!(memory.write(0x8ffc, &[1; 8]), Err(Refused::Unreadable), "half of it");
        assert_eq!(memory.read_word(0x8ff8), Ok(0x8ff8), "nothing was written");
        let refused =
            (0..).map(|n| memory.read_word(0x10_0000 + 2 * n * PAGE_BYTES as u64)).find(Result::is_err);
        assert_eq!(refused, Some(Err(Refused::TooMuch)));
    }
}
