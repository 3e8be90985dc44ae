//! The kernel's symbols, kept in a temporary file without a name.
//!
//! Enters: all symbols, once. Leaves: the symbol that contains an address. The symbols take 5 MB and the kernel needs 40 ms
//! to list them. So a daemon neither keeps them in memory nor reads them again for each new sample: it keeps the first
//! address of each page of records, and finds a name with two reads. Never here: which image an address belongs to.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    os::unix::fs::FileExt,
};

use dwell_attribution::KernelSymbols;
use dwell_profile::{ImageOffset, ImageSymbol, VirtualAddress};
use rustix::fs::{Mode, OFlags};

/// Size of a record: a symbol's address and the offset of its name, 8 bytes each.
const RECORD_BYTES: usize = 16;
/// Number of records in a page.
const PAGE_RECORDS: usize = 4096 / RECORD_BYTES;
/// Longest name of a kernel symbol in bytes (KSYM_NAME_LEN).
const NAME_BYTES_MAX: usize = 512;

/// Kernel symbols, searchable by address.
#[derive(Debug)]
pub enum KernelNames {
    /// Symbols in a temporary file: their records in ascending order, then their names, each terminated by a newline.
    InFile {
        /// The file; it is deleted when it is closed.
        file: File,
        /// Number of symbols in the file.
        count: usize,
        /// Address of the first record of each page.
        pages: Vec<VirtualAddress>,
    },
    /// Symbols in memory because there is no room for a temporary file. They should be dropped when they are not needed.
    InMemory(KernelSymbols),
}

impl KernelNames {
    /// Stores symbols in a temporary file, or keeps them in memory if that fails.
    pub fn new(symbols: KernelSymbols) -> Self {
        match write(&symbols) {
            Ok(file) => {
                let pages = symbols.starts().iter().step_by(PAGE_RECORDS).map(|(start, _)| *start).collect();
                KernelNames::InFile { file, count: symbols.starts().len(), pages }
            }
            Err(_) => KernelNames::InMemory(symbols),
        }
    }

    /// Returns the symbol that contains an address, relative to the image that starts at `base`.
    pub fn find(&self, address: VirtualAddress, base: VirtualAddress) -> Option<ImageSymbol> {
        match self {
            KernelNames::InMemory(symbols) => symbols.find(address, base),
            KernelNames::InFile { file, count, pages } => find(file, *count, pages, address, base),
        }
    }
}

fn write(symbols: &KernelSymbols) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)?);
    let mut out = BufWriter::with_capacity(1 << 16, &file);
    for (start, name) in symbols.starts() {
        out.write_all(&start.0.to_ne_bytes())?;
        out.write_all(&u64::from(*name).to_ne_bytes())?;
    }
    out.write_all(symbols.names().as_bytes())?;
    out.flush()?;
    drop(out);
    Ok(file)
}

fn find(
    file: &File,
    count: usize,
    pages: &[VirtualAddress],
    address: VirtualAddress,
    base: VirtualAddress,
) -> Option<ImageSymbol> {
    let first = pages.partition_point(|start| *start <= address).checked_sub(1)? * PAGE_RECORDS;
    // The first record of the next page is read too: it is the end of this page's last symbol.
    let mut page = [0; (PAGE_RECORDS + 1) * RECORD_BYTES];
    let page = &mut page[..(count - first).min(PAGE_RECORDS + 1) * RECORD_BYTES];
    file.read_exact_at(page, (first * RECORD_BYTES) as u64).ok()?;
    let number = |bytes: &[u8]| u64::from_ne_bytes(*bytes.first_chunk().expect("a record has two numbers"));
    let (records, _) = page.as_chunks::<RECORD_BYTES>();
    let start_of = |record: &[u8]| VirtualAddress(number(record));
    let after = records.partition_point(|record| start_of(record) <= address);
    let record = &records[after.checked_sub(1)?];
    let (start, name) = (start_of(record), number(&record[8..]));
    let end = records.get(after).map_or(start, |next| start_of(next));
    let mut bytes = [0; NAME_BYTES_MAX];
    let read = file.read_at(&mut bytes, (count * RECORD_BYTES) as u64 + name).ok()?;
    let name = bytes[..read].split(|b| *b == b'\n').next()?;
    let name = String::from_utf8_lossy(name).into_owned();
    let offset = ImageOffset(start.checked_bytes_since(base)?);
    Some(ImageSymbol { offset, size_bytes: end.bytes_since(start), name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_attribution::{Modules, read_kernel};

    #[test]
    fn symbols_in_a_file_equal_those_in_memory() {
        let line = |n: u64| format!("{:x} T symbol_{n}\n", 0xffff_ffff_8100_0000 + n * n * 16);
        let text: String = (0..777).map(line).collect();
        let symbols = || read_kernel(text.as_bytes(), Modules::default()).1;
        let (names, memory) = (KernelNames::new(symbols()), symbols());
        assert!(matches!(names, KernelNames::InFile { count: 777, .. }), "no temporary file: {names:?}");
        let base = VirtualAddress(0xffff_ffff_8100_0000);
        let found = (0..10_000_000_u64).step_by(777).filter_map(|distance| {
            let address = base.offset(distance);
            assert_eq!(names.find(address, base), memory.find(address, base));
            names.find(address, base)
        });
        assert_eq!(found.last().unwrap().name, "symbol_776");
        assert_eq!(names.find(base.back(1), base), None);
    }
}
