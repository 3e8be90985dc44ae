//! Names of JIT code from a jitdump file, as perf's documentation specifies it
//! (tools/perf/Documentation/jitdump-specification.txt).
//!
//! Enters: the file. Leaves: the code it describes, in the order in which it was written. Never here: panics on any bytes;
//! more of the file in memory than one record; the code itself, debug information.

use std::io::{self, BufRead, Read};

use dwell_profile::VirtualAddress;

use crate::host::code_names::Finder;

const MAGIC: u32 = 0x4A69_5444;
const FILE_HEADER_BYTES: u32 = 40;
const RECORD_HEADER_BYTES: u32 = 16;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
/// Most bytes of a record that are read: its fields and the name. The rest is code.
const FIELDS_BYTES_MAX: u64 = 8 << 10;

/// Code that was loaded, or moved to this address.
#[derive(Clone)]
struct Code {
    start: VirtualAddress,
    size_bytes: u64,
    name: String,
}

/// Passes the code that a jitdump describes to `finder`. Reads up to the end, or up to bytes that are no record. Returns the
/// position after the last complete record.
pub fn find_in_jitdump(mut file: impl BufRead, finder: &mut Finder<'_>) -> u64 {
    let Some(mut position) = skip_header(&mut file) else { return 0 };
    while let Some((kind, bytes, fields)) = next_record(&mut file) {
        let code = match kind {
            CODE_LOAD => loaded(&fields),
            CODE_MOVE => moved(&fields, finder),
            _ => None,
        };
        if let Some(Code { start, size_bytes, name }) = code
            && !finder.entry(position, start, size_bytes, || name)
        {
            return position;
        }
        position += bytes;
    }
    position
}

/// Skips the header and returns its size in bytes.
fn skip_header(file: &mut impl BufRead) -> Option<u64> {
    let header = exactly(file, u64::from(FILE_HEADER_BYTES))?;
    let size = word(&header, 8).filter(|size| *size >= FILE_HEADER_BYTES)?;
    skip(file, u64::from(size - FILE_HEADER_BYTES)).ok()?;
    (word(&header, 0)? == MAGIC).then_some(u64::from(size))
}

/// Reads a record: returns its kind, its size in bytes, and the first bytes after its header.
fn next_record(file: &mut impl BufRead) -> Option<(u32, u64, Vec<u8>)> {
    let header = exactly(file, u64::from(RECORD_HEADER_BYTES))?;
    let (kind, size) = (word(&header, 0)?, word(&header, 4)?);
    let rest = u64::from(size.checked_sub(RECORD_HEADER_BYTES)?);
    let wanted = if matches!(kind, CODE_LOAD | CODE_MOVE) { rest.min(FIELDS_BYTES_MAX) } else { 0 };
    let fields = exactly(file, wanted)?;
    skip(file, rest - wanted).ok()?;
    Some((kind, u64::from(size), fields))
}

/// Parses the fields of a code load: pid, tid, virtual address, code address, size, index, name.
fn loaded(fields: &[u8]) -> Option<Code> {
    let (start, size_bytes) = (VirtualAddress(long(fields, 16)?), long(fields, 24)?);
    let name = fields.get(40..)?;
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    Some(Code { start, size_bytes, name: String::from_utf8_lossy(&name[..end]).into_owned() })
}

/// Parses the fields of a code move: pid, tid, virtual address, old code address, new code address, size, index. Samples at
/// the old address keep their name. Samples at the new address get it if the old address was sampled too.
fn moved(fields: &[u8], finder: &Finder<'_>) -> Option<Code> {
    let (old, start) = (VirtualAddress(long(fields, 16)?), VirtualAddress(long(fields, 24)?));
    let size_bytes = long(fields, 32)?;
    let name = finder.name_within(old, size_bytes)?.to_owned();
    Some(Code { start, size_bytes, name })
}

fn exactly(file: &mut impl BufRead, bytes: u64) -> Option<Vec<u8>> {
    let mut read = Vec::new();
    file.take(bytes).read_to_end(&mut read).ok()?;
    (read.len() as u64 == bytes).then_some(read)
}

fn skip(file: &mut impl BufRead, bytes: u64) -> io::Result<()> {
    let skipped = io::copy(&mut file.take(bytes), &mut io::sink())?;
    if skipped == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::code_names::{CodeName, NamesWindow};

    fn record(kind: u32, fields: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((RECORD_HEADER_BYTES + fields.len() as u32).to_ne_bytes());
        bytes.extend(77_u64.to_ne_bytes());
        bytes.extend(fields);
        bytes
    }

    fn load(start: u64, size: u64, name: &str) -> Vec<u8> {
        let mut fields = vec![0; 8];
        [start, start, size, 1].iter().for_each(|v| fields.extend(v.to_ne_bytes()));
        fields.extend(name.as_bytes());
        fields.push(0);
        fields.resize(fields.len() + size as usize, 0x90);
        record(CODE_LOAD, &fields)
    }

    fn dump(records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        [MAGIC, 1, 48, 62, 0, 9].iter().for_each(|v| bytes.extend(v.to_ne_bytes()));
        bytes.resize(48, 0);
        bytes.extend(records.concat());
        bytes
    }

    /// A window that begins after everything was written.
    const BEFORE: NamesWindow = NamesWindow { since: u64::MAX, until: None };

    fn names(bytes: &[u8], addresses: &[u64], window: NamesWindow) -> Vec<String> {
        let addresses: Vec<VirtualAddress> = addresses.iter().copied().map(VirtualAddress).collect();
        let mut finder = Finder::new(&addresses, window);
        find_in_jitdump(bytes, &mut finder);
        let describe = |name| match name {
            CodeName::Named(s) => format!("{}@{:x}+{}", s.name, s.offset.0, s.size_bytes),
            other => format!("{other:?}"),
        };
        finder.finish().into_iter().map(describe).collect()
    }

    #[test]
    fn the_last_code_at_an_address_names_it() {
        let mut relocation = vec![0; 8];
        [0_u64, 0x1000, 0x9000, 16, 1].iter().for_each(|v| relocation.extend(v.to_ne_bytes()));
        let records = [
            load(0x1000, 16, "first"),
            record(3, &[0; 24]),
            load(0x2000, 16, "old"),
            load(0x2008, 16, "new é"),
            record(CODE_MOVE, &relocation),
        ];
        let dumped = dump(&records);
        let addresses = [0x100f, 0x1010, 0x2001, 0x2009, 0x9003];
        assert_eq!(
            names(&dumped, &addresses, BEFORE),
            ["first@1000+16", "Unknown", "old@2000+16", "new é@2008+16", "first@9000+16"]
        );
        assert_eq!(
            names(&dumped, &addresses, NamesWindow::default()),
            ["first@1000+16", "Unknown", "old@2000+16", "Ambiguous", "first@9000+16"]
        );
        assert_eq!(
            names(&dumped[..dumped.len() / 2], &[0x1001], BEFORE),
            ["first@1000+16"],
            "cut short: what there is"
        );
        assert_eq!(names(b"", &[1], BEFORE), ["Unknown"]);
    }

    #[test]
    fn hostile_files_never_panic() {
        let whole = dump(&[load(0x1000, 40, "first"), load(0x2000, 16, "old"), record(CODE_MOVE, &[9; 48])]);
        let addresses = [0x1000, 0x2004, u64::MAX].map(VirtualAddress);
        let mut state = 0x5eed_u64;
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = (state >> 40) as usize % bytes.len();
                bytes[at] = (state >> 33) as u8;
            }
            bytes.truncate((state >> 20) as usize % (whole.len() + 1));
            let mut finder = Finder::new(&addresses, NamesWindow::default());
            find_in_jitdump(&bytes[..], &mut finder);
        }
    }
}
