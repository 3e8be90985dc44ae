//! The build ID of a mapped file, from its program headers' notes: a few small reads.
//!
//! Enters: a way to read bytes at an offset. Leaves: the build ID. Never here: sections, symbols; `dwell-image` reads
//! whole files for those, tens of milliseconds each, too long between two drains of the rings. What is mapped
//! executable has program headers, and the linker lets PT_NOTE cover the build ID's note.

use dwell_profile::BuildId;

const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
/// More program headers and longer notes than that are not looked at.
const PROGRAM_HEADERS_MAX: usize = 128;
const NOTES_BYTES_MAX: usize = 1 << 16;

/// Where an ELF class keeps its fields.
struct Layout {
    wide: bool,
    table: usize,
    entry_size: usize,
    count: usize,
    entry_offset: usize,
    entry_file_size: usize,
}

const LAYOUT_64: Layout =
    Layout { wide: true, table: 32, entry_size: 54, count: 56, entry_offset: 8, entry_file_size: 32 };
const LAYOUT_32: Layout =
    Layout { wide: false, table: 28, entry_size: 42, count: 44, entry_offset: 4, entry_file_size: 16 };

/// Reads the build ID; `read_at` fills a buffer from a file offset and tells how much it could. `None` where there is
/// none or the bytes are no ELF of this machine's byte order.
pub fn read(read_at: impl Fn(u64, &mut [u8]) -> usize) -> Option<BuildId> {
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
    let size = usize::from(size).max(layout.entry_file_size + 8);
    let table =
        bytes_at(layout.word(&header, layout.table)?, size * usize::from(count).min(PROGRAM_HEADERS_MAX));
    table.chunks_exact(size).filter(|entry| full(entry, 0) == Some(PT_NOTE)).find_map(|entry| {
        let length = usize::try_from(layout.word(entry, layout.entry_file_size)?).ok()?.min(NOTES_BYTES_MAX);
        find_in_notes(&bytes_at(layout.word(entry, layout.entry_offset)?, length))
    })
}

/// Notes: sizes of name and contents, type, then both, each padded to four bytes.
fn find_in_notes(mut notes: &[u8]) -> Option<BuildId> {
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
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn full(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_bytes(bytes: &[u8]) -> Option<BuildId> {
        read(|offset, out| {
            let tail = usize::try_from(offset).ok().and_then(|o| bytes.get(o..)).unwrap_or_default();
            let length = tail.len().min(out.len());
            out[..length].copy_from_slice(&tail[..length]);
            length
        })
    }

    #[test]
    fn it_agrees_with_the_whole_image() {
        let own = std::env::current_exe().unwrap();
        let maps = crate::procfs::parse_maps(&std::fs::read("/proc/self/maps").unwrap());
        let files = maps.into_iter().filter_map(|(.., target)| match target {
            crate::images::Target::File { path, .. } => Some(path),
            _ => None,
        });
        for path in files.chain([own]) {
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(read_bytes(&bytes), dwell_image::build_id_of_file(&path), "{}", path.display());
        }
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
