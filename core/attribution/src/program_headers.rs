//! Build ID and code layout of a mapped file, read from its program headers in a few small reads.
//!
//! Enters: a function that reads bytes at an offset. Leaves: the build ID and the executable segments. Never here: sections
//! and symbols. `dwell-image` reads whole files for those, which takes tens of milliseconds each: too long between two
//! drains of the rings. Whatever is mapped executable has program headers, and linkers make a PT_NOTE segment cover the note
//! with the build ID.

use std::{fs::File, os::unix::fs::FileExt};

use dwell_profile::BuildId;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_X: u32 = 1;
const NT_GNU_BUILD_ID: u32 = 3;
/// Limits: further program headers and longer notes are ignored.
const PROGRAM_HEADERS_MAX: usize = 128;
const NOTES_BYTES_MAX: usize = 1 << 16;

/// What the program headers of a file contain for us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramHeaders {
    /// The build ID, if the file has one.
    pub build_id: Option<BuildId>,
    /// The executable segments.
    pub code: CodeLayout,
}

/// The executable segments of a file. They are empty if nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeLayout(Vec<CodeSegment>);

/// An executable segment: `file_bytes` bytes at a file offset, to be loaded at a virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CodeSegment {
    address: u64,
    file_offset: u64,
    file_bytes: u64,
}

impl CodeLayout {
    /// Returns a layout with one segment that begins at file offset 0 and address 0.
    pub fn plain(bytes: u64) -> Self {
        CodeLayout(vec![CodeSegment { address: 0, file_offset: 0, file_bytes: bytes }])
    }

    /// Returns the file offset of the byte `distance` bytes after the kernel's `mm->start_code`, which is the lowest address
    /// of an executable segment (`load_elf_binary` in fs/binfmt_elf.c). Returns `None` if the file has no code there.
    pub fn file_offset(&self, distance: u64) -> Option<u64> {
        let start_code = self.0.iter().map(|s| s.address).min()?;
        let address = start_code.checked_add(distance)?;
        self.0.iter().find_map(|s| {
            let within = address.checked_sub(s.address).filter(|within| *within < s.file_bytes)?;
            s.file_offset.checked_add(within)
        })
    }

    /// Returns whether any segment is known.
    pub fn is_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns whether a file offset lies in an executable segment.
    pub fn has(&self, file_offset: u64) -> bool {
        self.0.iter().any(|s| file_offset.checked_sub(s.file_offset).is_some_and(|at| at < s.file_bytes))
    }
}

/// Positions of the fields in the headers of an ELF class.
struct Layout {
    wide: bool,
    table: usize,
    entry_size: usize,
    count: usize,
    entry_flags: usize,
    entry_offset: usize,
    entry_address: usize,
    entry_file_size: usize,
    entry_bytes: usize,
}

const LAYOUT_64: Layout = Layout {
    wide: true,
    table: 32,
    entry_size: 54,
    count: 56,
    entry_flags: 4,
    entry_offset: 8,
    entry_address: 16,
    entry_file_size: 32,
    entry_bytes: 56,
};
const LAYOUT_32: Layout = Layout {
    wide: false,
    table: 28,
    entry_size: 42,
    count: 44,
    entry_flags: 24,
    entry_offset: 4,
    entry_address: 8,
    entry_file_size: 16,
    entry_bytes: 32,
};

/// Returns whether a file is a 32-bit ELF file.
pub fn is_32_bit(file: &File) -> bool {
    let mut start = [0; 5];
    file.read_exact_at(&mut start, 0).is_ok() && start == *b"\x7fELF\x01"
}

/// Reads the program headers. `read_at` fills a buffer from a file offset and returns how many bytes it read. Returns `None`
/// if the bytes are not an ELF file in this machine's byte order.
pub fn read(read_at: impl Fn(u64, &mut [u8]) -> usize) -> Option<ProgramHeaders> {
    let bytes_at = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        let read = read_at(offset, &mut bytes).min(length);
        bytes.truncate(read);
        bytes
    };
    let header = bytes_at(0, 64);
    let (own_order, class) = (if cfg!(target_endian = "little") { 1 } else { 2 }, *header.get(4)?);
    if !header.starts_with(b"\x7fELF") || header.get(5) != Some(&own_order) {
        return None;
    }
    let layout = if class == 2 { LAYOUT_64 } else { LAYOUT_32 };
    let (size, count) = (half(&header, layout.entry_size)?, half(&header, layout.count)?);
    let size = usize::from(size).max(layout.entry_bytes);
    let table =
        bytes_at(layout.word(&header, layout.table)?, size * usize::from(count).min(PROGRAM_HEADERS_MAX));
    let entries = || table.chunks_exact(size);
    let code = entries().filter_map(|entry| layout.code_segment(entry)).collect();
    let build_id = entries().filter(|entry| full(entry, 0) == Some(PT_NOTE)).find_map(|entry| {
        let length = usize::try_from(layout.word(entry, layout.entry_file_size)?).ok()?.min(NOTES_BYTES_MAX);
        find_in_notes(&bytes_at(layout.word(entry, layout.entry_offset)?, length))
    });
    Some(ProgramHeaders { build_id, code: CodeLayout(code) })
}

/// Finds the build ID in a sequence of notes. A note has the sizes of name and contents, a type, the name and the contents;
/// name and contents are each padded to four bytes.
pub fn find_in_notes(mut notes: &[u8]) -> Option<BuildId> {
    loop {
        let (name, length, kind) = (full(notes, 0)? as usize, full(notes, 4)? as usize, full(notes, 8)?);
        let contents = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let end = contents.checked_add(length)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..16) == Some(b"GNU\0") {
            return BuildId::new(notes.get(contents..end)?);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

impl Layout {
    fn word(&self, bytes: &[u8], at: usize) -> Option<u64> {
        if !self.wide {
            return full(bytes, at).map(u64::from);
        }
        Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
    }

    fn code_segment(&self, entry: &[u8]) -> Option<CodeSegment> {
        let executable = full(entry, 0)? == PT_LOAD && full(entry, self.entry_flags)? & PF_X != 0;
        let address = self.word(entry, self.entry_address)?;
        let file_offset = self.word(entry, self.entry_offset)?;
        let file_bytes = self.word(entry, self.entry_file_size)?;
        executable.then_some(CodeSegment { address, file_offset, file_bytes })
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn full(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::{ops::Range, path::PathBuf};

    use super::*;

    fn read_bytes(bytes: &[u8]) -> Option<ProgramHeaders> {
        read(|offset, out| {
            let tail = usize::try_from(offset).ok().and_then(|o| bytes.get(o..)).unwrap_or_default();
            let length = tail.len().min(out.len());
            out[..length].copy_from_slice(&tail[..length]);
            length
        })
    }

    /// Returns the executable mappings of this process: address range, first address, offset of the first byte, and path.
    fn code_mappings() -> Vec<(Range<u64>, u64, u64, String)> {
        let hex = |digits: &str| u64::from_str_radix(digits, 16).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let code = maps.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mapping = |words: Vec<&str>| {
            let (start, end) = words[0].split_once('-').unwrap();
            (hex(start)..hex(end), hex(start), hex(words[2]), words.get(5).unwrap_or(&"").to_string())
        };
        code.filter(|words| words[1].contains('x')).map(mapping).collect()
    }

    #[test]
    fn program_headers_agree_with_the_whole_image() {
        let own = std::env::current_exe().unwrap();
        let files = code_mappings().into_iter().map(|(.., path)| path).filter(|path| path.starts_with('/'));
        for path in files.map(PathBuf::from).chain([own]) {
            let bytes = std::fs::read(&path).unwrap();
            let headers = read_bytes(&bytes).unwrap();
            assert_eq!(headers.build_id, dwell_image::build_id_of_file(&path), "{}", path.display());
            assert!(headers.code.is_known());
        }
    }

    /// Field 26 of /proc/PID/stat is the kernel's `start_code`.
    #[test]
    fn distances_from_start_code_are_file_offsets() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let words: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let start_code: u64 = words[23].parse().unwrap();
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let code = read_bytes(&own).unwrap().code;
        let here = distances_from_start_code_are_file_offsets as fn() as usize as u64;
        let mappings = code_mappings();
        let (_, start, offset, _) = mappings.iter().find(|(range, ..)| range.contains(&here)).unwrap();
        assert_eq!(code.file_offset(here - start_code), Some(offset + (here - start)));
        assert!(code.has(offset + (here - start)) && !code.has(u64::MAX));
        assert_eq!(code.file_offset(u64::MAX), None);
    }

    #[test]
    fn code_may_lie_in_several_segments() {
        let segment = |address, file_offset, file_bytes| CodeSegment { address, file_offset, file_bytes };
        let code = CodeLayout(vec![segment(0x5200, 0x3200, 0x100), segment(0x1010, 0x10, 0x20)]);
        let told: Vec<_> = [0, 0x1f, 0x20, 0x41f0, 0x42ef, 0x42f0].map(|d| code.file_offset(d)).into();
        assert_eq!(told, [Some(0x10), Some(0x2f), None, Some(0x3200), Some(0x32ff), None]);
    }

    #[test]
    fn hostile_files_never_panic() {
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let head = &whole[..4096.min(whole.len())];
        assert_eq!(read_bytes(b""), None);
        assert_eq!(read_bytes(b"#!/bin/sh\n"), None);
        let mut state = 0xe1f_u64;
        for _ in 0..50_000 {
            let mut bytes = head.to_vec();
            for _ in 0..4 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = (state >> 40) as usize % 1024;
                bytes[at] = (state >> 33) as u8;
            }
            bytes.truncate((state >> 20) as usize % 4097);
            let _ = read_bytes(&bytes);
        }
    }
}
