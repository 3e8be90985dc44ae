//! The memory of an emulated thread: as it was when the thread stopped, plus the emulated writes.
//!
//! Enters: pages of memory, read when they are first needed. Leaves: bytes. Never here: a write to the thread.
//!
//! A read of another process costs a system call and its checks; one of 4,096 bytes costs a tenth more than one of 8. So
//! pages are read, several at once where one follows the other. Where each of them is, compiled code knows by its address
//! ([`Window`]). It may access a page only after that was permitted here, so that it is known which ones it uses.

use rustc_hash::FxHashMap;

use super::zeros::Zeros;
pub use crate::sys::native::window::{PAGE_BYTES, Page};
use crate::sys::native::window::{PLACES, Permission, Window};

/// Number of the last page of the address space.
const PAGE_NUMBERS: u64 = u64::MAX / PAGE_BYTES as u64;
/// Number of pages that one burst may read: 32 MiB.
const PAGES_MAX: usize = 8 << 10;
/// Number of pages that are read before their memory is given back: 128 MiB.
const KEPT_MAX: usize = 32 << 10;
/// Most calls that read pages ahead: each ends at a page that cannot be read.
const READS_AHEAD_MAX: usize = 64;
/// Number of pages that are read at once if accesses are sequential.
const PAGES_AT_ONCE: u64 = 16;

/// A way to read a thread's memory.
pub trait Fetch {
    /// Fills `pages`, which begin at `address`, up to the first page that cannot be read. Returns the number of bytes that
    /// were filled.
    fn fetch(&mut self, address: u64, pages: &mut [Page]) -> usize;

    /// Fills one page for each number, up to the first one that cannot be read. Returns the number of pages that were filled.
    fn fetch_each(&mut self, numbers: &[u64], pages: &mut [&mut Page]) -> usize {
        let each = numbers.iter().zip(pages);
        let page = |(number, page): (&u64, &mut &mut Page)| {
            self.fetch(number * PAGE_BYTES as u64, std::slice::from_mut(*page))
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
    /// The burst has read as much memory as it may, or there is another page at the same place of the window.
    TooMuch,
}

/// The purpose of an access.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Write,
    Code,
}

/// A page that was read.
struct Held {
    number: u64,
    /// Compiled code may do this to it.
    permission: Permission,
    holds_code: bool,
    is_accessed: bool,
    is_written: bool,
}

impl Held {
    fn new(number: u64, permission: Permission) -> Held {
        Held { number, permission, holds_code: false, is_accessed: false, is_written: false }
    }
}

/// Pages of memory, with the emulated writes.
pub struct Memory<F> {
    fetch: F,
    /// `None` before it is needed.
    window: Option<Window>,
    held: Vec<Held>,
    /// The index of the page that is held at a place of the window.
    by_place: FxHashMap<u64, usize>,
    /// Whether a page may be accessed only after that was permitted.
    is_closed: bool,
    /// Number of pages that were read since their memory was given back.
    kept: usize,
    /// Number of writes to pages that hold code.
    code_writes: u32,
    zeros: Zeros,
    /// The page at which sequential accesses continue, and the number of pages that were read at once before it.
    sequence: (u64, u64),
    /// Number and index of the page used last.
    recent: (u64, usize),
}

impl<F: Fetch> Memory<F> {
    /// Creates a memory from which nothing was read yet.
    pub fn new(fetch: F) -> Memory<F> {
        Memory {
            fetch,
            window: None,
            held: Vec::new(),
            by_place: FxHashMap::default(),
            is_closed: false,
            kept: 0,
            code_writes: 0,
            zeros: Zeros::default(),
            sequence: (u64::MAX, 0),
            recent: (u64::MAX, 0),
        }
    }

    /// Maps the window, so that this need not be done while a thread waits. Returns an error where that is not possible.
    pub fn map(&mut self) -> std::io::Result<()> {
        if self.window.is_none() {
            self.window = Some(Window::new()?);
        }
        Ok(())
    }

    /// Forgets everything that was read, but keeps the room for it: memory that is new to a process costs page faults.
    pub fn restart(&mut self, fetch: F) {
        self.finish();
        self.fetch = fetch;
        self.held.clear();
        self.by_place.clear();
        self.zeros.clear();
        (self.code_writes, self.sequence, self.recent) = (0, (u64::MAX, 0), (u64::MAX, 0));
    }

    /// Does what takes long and must be done before the next restart. What was read is lost.
    pub fn finish(&mut self) {
        self.open();
        if let Some(window) = self.window.as_mut().filter(|_| self.kept > KEPT_MAX) {
            window.discard();
            self.kept = 0;
        }
    }

    /// Lets compiled code access only what [`Memory::permit`] permits from now on. Returns the address of the window; `None` if there
    /// is none.
    pub fn close(&mut self) -> Option<u64> {
        self.map().ok()?;
        let window = self.window.as_mut()?;
        if !self.is_closed {
            window.permit(0, PLACES, Permission::Nothing).ok()?;
            self.held.iter_mut().for_each(|held| held.permission = Permission::Nothing);
            self.is_closed = true;
        }
        Some(window.base())
    }

    /// Permits all accesses again, to read many pages.
    fn open(&mut self) {
        if let Some(window) = self.window.as_mut().filter(|_| self.is_closed) {
            window.permit(0, PLACES, Permission::Write).expect("a window can be opened");
            self.held.iter_mut().for_each(|held| held.permission = Permission::Write);
            self.is_closed = false;
        }
    }

    /// Lets compiled code access the page at an address, to read or to write. Returns false if it would write near code.
    pub fn permit(&mut self, address: u64, is_written: bool) -> Result<bool, Refused> {
        let index =
            self.index(address / PAGE_BYTES as u64, if is_written { Use::Write } else { Use::Read })?;
        let held = &mut self.held[index];
        held.is_written |= is_written;
        let is_permitted = !(is_written && held.holds_code);
        self.code_writes += u32::from(!is_permitted);
        Ok(is_permitted)
    }

    /// Returns a page of code, if it was read before.
    pub fn code_page(&mut self, number: u64) -> Option<&Page> {
        let index = self.known(number).ok()??;
        self.held[index].holds_code = true;
        self.let_access(index, Permission::Read);
        Some(&self.window.as_ref()?.pages(Window::place(number), 1)[0])
    }

    /// Returns the rest of a page from an address on, if code was read from that page before.
    pub fn known_code(&mut self, address: u64) -> Option<&[u8]> {
        let index = self.known(address / PAGE_BYTES as u64).ok()??;
        if !self.held[index].holds_code {
            return None;
        }
        self.let_access(index, Permission::Read);
        Some(&self.at(index).0[address as usize % PAGE_BYTES..])
    }

    /// Says that no code was read so far.
    pub fn forget_code(&mut self) {
        self.held.iter_mut().for_each(|held| held.holds_code = false);
    }

    /// Reads those of these pages, in order, at once that were not read before: one call costs half as much as many. Gives up after
    /// some that cannot be read.
    pub fn read_ahead(&mut self, numbers: &[u64]) {
        let mut new: Vec<u64> =
            numbers.iter().filter(|number| self.known(**number) == Ok(None)).copied().collect();
        // One page for each place, in the order of places.
        new.sort_unstable_by_key(|number| Window::place(*number));
        new.dedup_by_key(|number| Window::place(*number));
        let mut rest = &new[..];
        for _ in 0..READS_AHEAD_MAX {
            let read = self.read_at_once(rest);
            rest = rest.get(read + 1..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
        }
    }

    /// Reads those of these pages that are in memory and were not read before.
    pub fn read_present(&mut self, numbers: &[u64]) {
        let is_new = |number: &&u64| self.known(**number) == Ok(None);
        let mut new: Vec<u64> = numbers.iter().filter(is_new).copied().collect();
        new.sort_unstable();
        let mut present = self.fetch.are_present(&new).into_iter();
        new.retain(|_| present.next().unwrap_or(false));
        self.read_ahead(&new);
    }

    /// Returns the number of pages that were read.
    fn read_at_once(&mut self, numbers: &[u64]) -> usize {
        let numbers = &numbers[..numbers.len().min(PAGES_MAX - self.held.len())];
        if numbers.is_empty() || self.map().is_err() {
            return 0;
        }
        self.open();
        let Some(window) = &mut self.window else { return 0 };
        let places: Vec<u64> = numbers.iter().map(|number| Window::place(*number)).collect();
        let read = self.fetch.fetch_each(numbers, &mut window.each_mut(&places)).min(numbers.len());
        numbers[..read].iter().for_each(|number| self.hold(*number, Permission::Write));
        read
    }

    fn hold(&mut self, number: u64, permission: Permission) {
        self.by_place.insert(Window::place(number), self.held.len());
        self.held.push(Held::new(number, permission));
        self.kept += 1;
    }

    /// Fills all of `bytes`. Fails if not all can be read.
    pub fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Refused> {
        self.copy_out(address, bytes, Use::Read).1
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

    /// Returns the page at this address.
    #[cfg(test)]
    pub fn page(&mut self, address: u64) -> Result<&Page, Refused> {
        let index = self.index(address / PAGE_BYTES as u64, Use::Read)?;
        Ok(self.at(index))
    }

    /// Returns the numbers of all pages that were accessed as data, and whether they were written to, since the last restart.
    pub fn accessed(&self) -> impl Iterator<Item = (u64, bool)> {
        self.held.iter().filter(|held| held.is_accessed).map(|held| (held.number, held.is_written))
    }

    /// Lets whole pages be zero from now on.
    pub fn zero(&mut self, address: u64, length: usize) {
        let (first, end) =
            (address / PAGE_BYTES as u64, address.saturating_add(length as u64).div_ceil(PAGE_BYTES as u64));
        for index in 0..self.held.len() {
            if (first..end).contains(&self.held[index].number) {
                self.let_access(index, Permission::Write);
                self.code_writes += u32::from(self.held[index].holds_code);
                self.at_mut(index).0.fill(0);
            }
        }
        self.zeros.add(first..end);
    }

    /// Moves whole pages, and lets what is new be zero. What was not read before is read where it is then.
    pub fn relocate(&mut self, from: u64, length: usize, to: u64, new_length: usize) -> Result<(), Refused> {
        let [from, to] = [from, to].map(|address| address / PAGE_BYTES as u64);
        let [old, new] = [length, new_length].map(|length| length.div_ceil(PAGE_BYTES) as u64);
        let kept = from..from + old.min(new);
        if from != to {
            self.zeros.relocate(kept.clone(), to);
            let held = self.held.iter().map(|held| held.number).filter(|number| kept.contains(number));
            for number in held.collect::<Vec<u64>>() {
                let index = self.index(number, Use::Read)?;
                let bytes = self.at(index).0;
                let moved = number - from + to;
                // What is at the new place by now is not read.
                self.zeros.add(moved..moved + 1);
                self.write(moved * PAGE_BYTES as u64, &bytes)?;
            }
        }
        if new > old {
            self.zero((to + old) * PAGE_BYTES as u64, (new - old) as usize * PAGE_BYTES);
        }
        Ok(())
    }

    /// Lets these pages be zero unless they were read before: from, and to without that one.
    pub fn add_zeros(&mut self, numbers: &[(u64, u64)]) {
        numbers.iter().for_each(|(first, end)| self.zeros.add(*first..*end));
    }

    /// Writes at most one page's size to the copies. Writes nothing if not all bytes can be written.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Refused> {
        let (number, start) = (address / PAGE_BYTES as u64, address as usize % PAGE_BYTES);
        let (first, rest) = bytes.split_at(bytes.len().min(PAGE_BYTES - start));
        let page = self.index(number, Use::Write)?;
        if !rest.is_empty() {
            let next = self.index(number.wrapping_add(1) & PAGE_NUMBERS, Use::Write)?;
            self.write_in(next, 0, rest);
        }
        self.write_in(page, start, first);
        Ok(())
    }

    fn write_in(&mut self, page: usize, start: usize, bytes: &[u8]) {
        self.at_mut(page).0[start..start + bytes.len()].copy_from_slice(bytes);
        self.held[page].is_written = true;
        self.code_writes += u32::from(self.held[page].holds_code);
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
                    bytes[done..done + length].copy_from_slice(&self.at(page).0[start..start + length]);
                }
                Err(refused) => return (done, Err(refused)),
            }
            done += length;
        }
        (done, Ok(()))
    }

    /// Returns the index of a page that may be accessed, after reading it if need be.
    fn index(&mut self, number: u64, of: Use) -> Result<usize, Refused> {
        let index = match self.recent {
            (recent, index) if recent == number => index,
            _ => match self.known(number)? {
                Some(index) => index,
                None => self.fetched(number, of)?,
            },
        };
        self.recent = (number, index);
        let held = &mut self.held[index];
        match of {
            Use::Code => held.holds_code = true,
            Use::Read | Use::Write => held.is_accessed = true,
        }
        self.let_access(index, if of == Use::Write { Permission::Write } else { Permission::Read });
        Ok(index)
    }

    /// Returns the index of a page that was read before. Fails if there is another one at its place.
    fn known(&self, number: u64) -> Result<Option<usize>, Refused> {
        match self.by_place.get(&Window::place(number)) {
            Some(&index) if self.held[index].number == number => Ok(Some(index)),
            Some(_) => Err(Refused::TooMuch),
            None => Ok(None),
        }
    }

    /// Lets everyone access a page. Compiled code shall not write to code.
    fn let_access(&mut self, index: usize, wanted: Permission) {
        let held = &mut self.held[index];
        let is_too_much = held.holds_code && held.permission > wanted;
        if let Some(window) = self.window.as_mut().filter(|_| self.is_closed)
            && (held.permission < wanted || is_too_much)
        {
            window.permit(Window::place(held.number), 1, wanted).expect("a page can be permitted");
            held.permission = wanted;
        }
    }

    fn at(&self, index: usize) -> &Page {
        let window = self.window.as_ref().expect("a window with pages");
        &window.pages(Window::place(self.held[index].number), 1)[0]
    }

    fn at_mut(&mut self, index: usize) -> &mut Page {
        let window = self.window.as_mut().expect("a window with pages");
        &mut window.pages_mut(Window::place(self.held[index].number), 1)[0]
    }

    /// Reads a page, and with it what will probably be needed. Returns its index.
    fn fetched(&mut self, number: u64, of: Use) -> Result<usize, Refused> {
        self.map().map_err(|_| Refused::TooMuch)?;
        let index = self.held.len();
        let wanted = if of == Use::Code { 1 } else { self.sequential(number) };
        let is_zero = self.zeros.contains(number);
        let place = Window::place(number);
        let is_new = |number: &u64| {
            *number <= PAGE_NUMBERS
                && Window::place(*number) >= place
                && self.known(*number) == Ok(None)
                && self.zeros.contains(*number) == is_zero
        };
        let new = (number..number + wanted).take_while(is_new).count().min(PAGES_MAX - index);
        let Some(window) = self.window.as_mut().filter(|_| new > 0) else { return Err(Refused::TooMuch) };
        if self.is_closed {
            window.permit(place, new as u64, Permission::Write).map_err(|_| Refused::TooMuch)?;
        }
        let pages = window.pages_mut(place, new);
        let bytes = if is_zero {
            pages.iter_mut().for_each(|page| page.0.fill(0));
            size_of_val(pages)
        } else {
            self.fetch.fetch(number * PAGE_BYTES as u64, pages)
        };
        let read = (bytes / PAGE_BYTES).min(new);
        let permission = if self.is_closed { Permission::Nothing } else { Permission::Write };
        if self.is_closed {
            window.permit(place, new as u64, permission).map_err(|_| Refused::TooMuch)?;
        }
        (number..).take(read).for_each(|number| self.hold(number, permission));
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
        assert_eq!((memory.fetch.0.len(), memory.held.len()), (2000, 2000));
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
    fn pages_keep_their_bytes_where_they_are_moved() {
        let mut memory = Memory::new(FakeCode::default());
        memory.write(0xa010, &[1; 8]).unwrap();
        memory.zero(0x20_0000, 0x4000);
        memory.relocate(0xa000, 0x2000, 0x20_0000, 0x3000).unwrap();
        let words = [0x20_0010, 0x20_1010, 0x20_2010, 0x20_3010].map(|address| memory.read_word(address));
        // The second page was not read before the move.
        assert_eq!(words, [Ok(0x0101_0101_0101_0101), Ok(0x20_1010), Ok(0), Ok(0)]);
        memory.relocate(0x20_0000, 0x3000, 0x20_0000, 0x1000).unwrap();
        assert_eq!(memory.read_word(0x20_0010), Ok(0x0101_0101_0101_0101));
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

    /// Of pages whose addresses differ by 4 GiB only one can be held.
    #[test]
    fn pages_at_the_same_place_are_refused() {
        struct All;
        impl Fetch for All {
            fn fetch(&mut self, address: u64, pages: &mut [Page]) -> usize {
                pages.iter_mut().for_each(|page| page.0.fill((address >> 32) as u8));
                size_of_val(pages)
            }
        }
        let mut memory = Memory::new(All);
        let byte = |memory: &mut Memory<All>, address: u64| {
            let mut byte = [0];
            memory.read(address, &mut byte).map(|()| byte[0])
        };
        assert_eq!(byte(&mut memory, 0x5_0000_1000), Ok(5));
        assert_eq!(byte(&mut memory, 0x6_0000_1000), Err(Refused::TooMuch));
        assert_eq!(byte(&mut memory, 0x6_0000_2000), Ok(6));
        memory.restart(All);
        assert_eq!(byte(&mut memory, 0x6_0000_1000), Ok(6));
    }
}
