//! The memory of an emulated thread: as it was when the thread stopped, plus the emulated writes.
//!
//! Enters: blocks of memory, read when they are first needed. Leaves: bytes. Never here: a write to the thread.
//!
//! A read of another process costs a system call and its checks, whatever its size, but copies must be kept, too. Code with
//! scattered accesses (a walk through lists, a hash table) needs single words, so a block is small, and several accesses to
//! a page read one block each. Code with sequential accesses soon needs the next block, so an access next to a block that
//! was read reads the rest of its page; where one page follows the other, several are read at once.

use std::ops::Range;

use rustc_hash::FxHashMap;

/// Bytes of a block.
const BLOCK_BYTES: usize = 256;
/// Bytes of a page, which is mapped or not as a whole.
pub const PAGE_BYTES: usize = 4096;
/// Number of blocks of a page.
const PAGE_BLOCKS: u64 = (PAGE_BYTES / BLOCK_BYTES) as u64;
/// Number of the last block of the address space.
const BLOCK_NUMBERS: u64 = u64::MAX / BLOCK_BYTES as u64;
/// Number of blocks that one burst may read: 16 MiB. Bursts of code whose every instruction reads another block are complete.
const BLOCKS_MAX: usize = 64 << 10;
/// Number of blocks of a page that are read one by one. The next access to another block reads the whole page.
const SINGLE_BLOCKS_MAX: u8 = 4;
/// Number of pages that are read at once if accesses are sequential.
const PAGES_AT_ONCE: u64 = 16;

/// A way to read a thread's memory.
pub trait Fetch {
    /// Fills `bytes` up to the first page that cannot be read. Returns the number of bytes that were filled.
    fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> usize;
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

/// Blocks of memory, with the emulated writes.
pub struct Memory<F> {
    fetch: F,
    blocks: Vec<[u8; BLOCK_BYTES]>,
    /// Whether code was read from a block, by its index.
    holds_code: Vec<bool>,
    /// Number of writes to blocks that hold code.
    code_writes: u32,
    by_number: FxHashMap<u64, usize>,
    /// Number of blocks that were read one by one, by the number of their page.
    singles: FxHashMap<u64, u8>,
    /// The page at which sequential accesses continue, and the number of pages that were read at once before it.
    sequence: (u64, u64),
    /// Bytes that were just read.
    buffer: Vec<u8>,
    /// Number and index of the block used last, by purpose.
    recent: [(u64, usize); 2],
}

impl<F: Fetch> Memory<F> {
    /// Creates a memory from which nothing was read yet.
    pub fn new(fetch: F) -> Memory<F> {
        Memory {
            fetch,
            blocks: Vec::new(),
            holds_code: Vec::new(),
            code_writes: 0,
            by_number: FxHashMap::default(),
            singles: FxHashMap::default(),
            sequence: (u64::MAX, 0),
            buffer: Vec::new(),
            recent: [(u64::MAX, 0); 2],
        }
    }

    /// Forgets everything that was read, but keeps the room for it: memory that is new to a process costs page faults.
    pub fn restart(&mut self, fetch: F) {
        self.fetch = fetch;
        self.blocks.clear();
        self.holds_code.clear();
        self.by_number.clear();
        self.singles.clear();
        (self.code_writes, self.sequence, self.recent) = (0, (u64::MAX, 0), [(u64::MAX, 0); 2]);
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

    /// Writes at most one block's size to the copies. Writes nothing if not all bytes can be written.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Refused> {
        let (number, start) = (address / BLOCK_BYTES as u64, address as usize % BLOCK_BYTES);
        let (first, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - start));
        let block = self.block(number, Use::Data)?;
        if !rest.is_empty() {
            let next = self.block(number.wrapping_add(1) & BLOCK_NUMBERS, Use::Data)?;
            self.write_in(next, 0, rest);
        }
        self.write_in(block, start, first);
        Ok(())
    }

    fn write_in(&mut self, block: usize, start: usize, bytes: &[u8]) {
        self.blocks[block][start..start + bytes.len()].copy_from_slice(bytes);
        self.code_writes += u32::from(self.holds_code[block]);
    }

    /// Returns how many bytes were filled, and why no more.
    fn copy_out(&mut self, address: u64, bytes: &mut [u8], of: Use) -> (usize, Result<(), Refused>) {
        let mut done = 0;
        while done < bytes.len() {
            let at = address.wrapping_add(done as u64);
            let start = at as usize % BLOCK_BYTES;
            let length = (bytes.len() - done).min(BLOCK_BYTES - start);
            match self.block(at / BLOCK_BYTES as u64, of) {
                Ok(block) => {
                    self.holds_code[block] |= matches!(of, Use::Code);
                    bytes[done..done + length].copy_from_slice(&self.blocks[block][start..start + length]);
                }
                Err(refused) => return (done, Err(refused)),
            }
            done += length;
        }
        (done, Ok(()))
    }

    fn block(&mut self, number: u64, of: Use) -> Result<usize, Refused> {
        let recent = self.recent[of as usize];
        if recent.0 == number {
            return Ok(recent.1);
        }
        let index = match self.by_number.get(&number) {
            Some(&index) => index,
            None => self.fetched(number, of)?,
        };
        self.recent[of as usize] = (number, index);
        Ok(index)
    }

    /// Reads a block, and with it what will probably be needed.
    fn fetched(&mut self, number: u64, of: Use) -> Result<usize, Refused> {
        let numbers = self.choose_blocks(number, of);
        let length = (numbers.end - numbers.start) as usize * BLOCK_BYTES;
        if self.blocks.len() + length / BLOCK_BYTES > BLOCKS_MAX {
            return Err(Refused::TooMuch);
        }
        self.buffer.resize(length.max(self.buffer.len()), 0);
        let bytes = &mut self.buffer[..length];
        let read = self.fetch.fetch(numbers.start.wrapping_mul(BLOCK_BYTES as u64), bytes).min(length);
        for (of_block, bytes) in numbers.zip(bytes[..read].as_chunks::<BLOCK_BYTES>().0) {
            // A block that was read before may have been written to since.
            self.by_number.entry(of_block).or_insert_with(|| {
                self.blocks.push(*bytes);
                self.holds_code.push(false);
                self.blocks.len() - 1
            });
        }
        self.by_number.get(&number).copied().ok_or(Refused::Unreadable)
    }

    /// Returns the blocks to be read if this one is needed: the block itself, its page, or the page and the next ones.
    fn choose_blocks(&mut self, number: u64, of: Use) -> Range<u64> {
        let page = number / PAGE_BLOCKS;
        let whole = |pages: u64| page * PAGE_BLOCKS..(page + pages) * PAGE_BLOCKS;
        if matches!(of, Use::Code) {
            return whole(1);
        }
        let has = |neighbour: u64| self.by_number.contains_key(&neighbour);
        if has(number.wrapping_sub(1)) || has(number.wrapping_add(1)) {
            let (next, before) = self.sequence;
            let pages = if page == next { (2 * before).min(PAGES_AT_ONCE) } else { 1 };
            self.sequence = (page + pages, pages);
            return whole(pages);
        }
        let singles = self.singles.entry(page).or_default();
        *singles += 1;
        if *singles > SINGLE_BLOCKS_MAX { whole(1) } else { number..number + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A memory in which each word contains its address. It records which addresses were read.
    #[derive(Default)]
    struct FakeCode(Vec<(u64, usize)>);

    impl Fetch for FakeCode {
        fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> usize {
            self.0.push((address, bytes.len()));
            let words = bytes.as_chunks_mut::<8>().0.iter_mut().enumerate();
            let at = |n: usize| address + 8 * n as u64;
            // Page 9 is not mapped.
            let readable = words.take_while(|(n, _)| at(*n) / PAGE_BYTES as u64 != 9);
            8 * readable.map(|(n, word)| *word = at(n).to_le_bytes()).count()
        }
    }

    #[test]
    fn scattered_accesses_read_one_block_each() {
        let mut memory = Memory::new(FakeCode::default());
        for round in 0..4 {
            for page in 10..2010 {
                let at = page * PAGE_BYTES as u64 + 0x408 + round * 0x300;
                assert_eq!(memory.read_word(at), Ok(at));
            }
        }
        assert_eq!((memory.fetch.0.len(), memory.blocks.len()), (8000, 8000));
        // More accesses to a page read all of it.
        let mut memory = Memory::new(FakeCode::default());
        (0..8).for_each(|n| assert_eq!(memory.read_word(0xa000 + 0x200 * n), Ok(0xa000 + 0x200 * n)));
        let lengths: Vec<usize> = memory.fetch.0.iter().map(|(_, length)| *length).collect();
        assert_eq!(lengths, [256, 256, 256, 256, 4096]);
    }

    #[test]
    fn sequential_accesses_read_more_and_more_pages_at_once() {
        let mut memory = Memory::new(FakeCode::default());
        (0..4096).for_each(|n| assert_eq!(memory.read_word(0xa000 + 8 * n), Ok(0xa000 + 8 * n)));
        let expected = [(0xa000, 256), (0xa000, 4096), (0xb000, 8192), (0xd000, 16384), (0x1_1000, 32768)];
        assert_eq!(memory.fetch.0, expected);
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
    fn writes_survive_the_read_of_their_page() {
        let mut memory = Memory::new(FakeCode::default());
        memory.write(0xa0fc, &[7; 8]).unwrap(); // This word is in two blocks.
        memory.write(0xa010, &[1, 2]).unwrap();
        assert_eq!(memory.read_word(0xa800), Ok(0xa800));
        assert_eq!(memory.read_word(0xa0fc), Ok(u64::from_le_bytes([7; 8])));
        assert_eq!(memory.read_word(0xa010), Ok(0x0201));
    }

    #[test]
    fn unreadable_memory_and_too_much_memory_are_different_errors() {
        let mut memory = Memory::new(FakeCode::default());
        assert_eq!(memory.read_word(0x9000), Err(Refused::Unreadable));
        assert_eq!(memory.write(0x8ffc, &[1; 8]), Err(Refused::Unreadable), "half of it");
        assert_eq!(memory.read_word(0x8ff8), Ok(0x8ff8), "nothing was written");
        let refused = (0..).map(|n| memory.read_word(0x10_0000 + n * PAGE_BYTES as u64)).find(Result::is_err);
        assert_eq!(refused, Some(Err(Refused::TooMuch)));
    }
}
