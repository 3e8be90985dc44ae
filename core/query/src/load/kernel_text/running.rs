//! Reads the running kernel's text, or that of a loaded module, from /proc/kcore, an ELF core file of the kernel's memory.
//!
//! Input: what /proc and /sys contain about the running kernel. Output: the text and its address. This module
//! does not know which kernel is wanted.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::FileExt,
};

use dwell_image::{Image, ImageAddress};
use dwell_profile::ImageSymbol;

/// Largest plausible size of a kernel's text in bytes. Debian's has 16 MiB.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Largest number of program headers that are read. There is one for each range of memory.
const PROGRAM_HEADERS_MAX: u64 = 4096;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const PT_LOAD: u32 = 1;

/// Returns an image of the running kernel's text as it is now, with these symbols. It needs permission to read the kernel's
/// memory.
pub fn image(symbols: &[ImageSymbol]) -> Result<Image, String> {
    let kallsyms = open("/proc/kallsyms")?;
    let (start, end) = bounds(BufReader::new(kallsyms))
        .ok_or("/proc/kallsyms does not show the addresses of the kernel's text")?;
    image_at(start, end, symbols)
}

/// Returns an image of the text of a loaded module, as far as these symbols reach. It needs the same permission.
pub fn module_image(name: &str, symbols: &[ImageSymbol]) -> Result<Image, String> {
    let (start, size_bytes) = module(BufReader::new(open("/proc/modules")?), name)
        .ok_or("/proc/modules does not show the module's address")?;
    let ends = symbols.iter().map(|symbol| symbol.offset.0.saturating_add(symbol.size_bytes));
    let end = ends.max().unwrap_or(0).min(size_bytes);
    image_at(start, start.saturating_add(end), symbols)
}

fn open(path: &str) -> Result<File, String> {
    File::open(path).map_err(|error| format!("{path}: {error}"))
}

fn image_at(start: u64, end: u64, symbols: &[ImageSymbol]) -> Result<Image, String> {
    let (machine, text) = text(&open("/proc/kcore")?, start, end)?;
    Image::of_kernel_text(machine, ImageAddress(start), &text, symbols).map_err(|error| error.to_string())
}

/// Returns the ELF notes of a loaded module, one of which contains its build ID; none of a name that no module can have.
pub fn module_notes(name: &str) -> Vec<u8> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let path = format!("/sys/module/{name}/notes/.note.gnu.build-id");
    if is_plain { fs::read(path).unwrap_or_default() } else { Vec::new() }
}

/// Returns the address and the size in bytes of a loaded module; `None` if it is not there or its address is hidden.
fn module(modules: impl BufRead, name: &str) -> Option<(u64, u64)> {
    let line = modules.lines().map_while(Result::ok).find(|line| line.split(' ').next() == Some(name))?;
    let mut words = line.split_ascii_whitespace();
    let size_bytes = words.nth(1)?.parse().ok()?;
    let start = u64::from_str_radix(words.nth(3)?.strip_prefix("0x")?, 16).ok()?;
    (start != 0).then_some((start, size_bytes))
}

/// Returns the ELF notes of the running kernel, one of which contains its build ID.
pub fn notes() -> Vec<u8> {
    fs::read("/sys/kernel/notes").unwrap_or_default()
}

/// Returns the addresses of `_text` and `_etext`; `None` if they are hidden from this process.
fn bounds(kallsyms: impl BufRead) -> Option<(u64, u64)> {
    let (mut start, mut end) = (None, None);
    for line in kallsyms.lines() {
        let line = line.ok()?;
        let mut words = line.split_ascii_whitespace();
        let (address, name) = (words.next()?, words.nth(1)?);
        match name {
            "_text" => start = u64::from_str_radix(address, 16).ok(),
            "_etext" => end = u64::from_str_radix(address, 16).ok(),
            _ => continue,
        }
        if let (Some(start), Some(end)) = (start, end) {
            return (start < end).then_some((start, end));
        }
    }
    None
}

/// Returns from a core file the ELF number of the instruction set, and the bytes from `start` to `end`.
fn text(core: &File, start: u64, end: u64) -> Result<(u16, Vec<u8>), String> {
    let size_bytes = end.checked_sub(start).filter(|size| (1..=TEXT_BYTES_MAX).contains(size));
    let size_bytes = size_bytes.ok_or("the kernel's text has no plausible size")?;
    let mut header = [0; HEADER_BYTES];
    core.read_exact_at(&mut header, 0).map_err(|error| format!("the core file: {error}"))?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Err("the core file is not a 64-bit ELF file".to_owned());
    }
    let machine = u16::from_le_bytes([header[18], header[19]]);
    let (table, count) = (long(&header, 32), u64::from(u16::from_le_bytes([header[56], header[57]])));
    for at in 0..count.min(PROGRAM_HEADERS_MAX) {
        let mut entry = [0; PROGRAM_HEADER_BYTES];
        let place = table.saturating_add(at * PROGRAM_HEADER_BYTES as u64);
        core.read_exact_at(&mut entry, place).map_err(|error| format!("the core file: {error}"))?;
        let kind = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let (offset, address, bytes) = (long(&entry, 8), long(&entry, 16), long(&entry, 32));
        let within = start.checked_sub(address).filter(|within| {
            kind == PT_LOAD && within.checked_add(size_bytes).is_some_and(|end| end <= bytes)
        });
        if let Some(within) = within {
            let mut text = vec![0; size_bytes as usize];
            core.read_exact_at(&mut text, offset.saturating_add(within))
                .map_err(|error| format!("the core file: {error}"))?;
            return Ok((machine, text));
        }
    }
    Err("the core file does not contain the kernel's text".to_owned())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Creates an x86-64 core file with these ranges of memory: address and bytes.
    fn core(ranges: &[(u64, &[u8])]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(HEADER_BYTES, 0);
        bytes[16] = 4; // ET_CORE
        bytes[18] = 62;
        bytes[32] = HEADER_BYTES as u8;
        bytes[56] = ranges.len() as u8;
        let mut offset = (HEADER_BYTES + ranges.len() * PROGRAM_HEADER_BYTES) as u64;
        for (address, range) in ranges {
            let size = range.len() as u64;
            let values = [u64::from(PT_LOAD) | 7 << 32, offset, *address, 0, size, size, 0];
            values.into_iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            offset += size;
        }
        ranges.iter().for_each(|(_, range)| bytes.extend_from_slice(range));
        file.write_all(&bytes).unwrap();
        file
    }

    #[test]
    fn the_text_is_where_the_core_file_says() {
        let memory = [0x11, 0x22, 0x90, 0xc3, 0x33];
        let core = core(&[(0xffff_8880_0000_0000, &[1; 64]), (0xffff_ffff_8100_0000, &memory)]);
        let (start, end) = (0xffff_ffff_8100_0002, 0xffff_ffff_8100_0004);
        assert_eq!(text(&core, start, end), Ok((62, vec![0x90, 0xc3])));
        for (start, end, why) in [
            (start, start + 4, "does not contain"),
            (0x1000, 0x1004, "does not contain"),
            (start, start, "no plausible size"),
            (0, u64::MAX, "no plausible size"),
        ] {
            assert!(text(&core, start, end).unwrap_err().contains(why), "{start:x} to {end:x}");
        }
    }

    #[test]
    fn what_is_no_core_file_is_refused() {
        let of = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            text(&file, 0x1000, 0x1010).unwrap_err()
        };
        assert!(of(b"").contains("the core file"));
        assert!(of(&[0; 200]).contains("not a 64-bit ELF file"));
        let mut cut = b"\x7fELF\x02\x01\x01".to_vec();
        cut.resize(HEADER_BYTES, 0xff);
        assert!(of(&cut).contains("the core file"), "its table lies nowhere");
    }

    #[test]
    fn a_module_is_where_the_list_says() {
        let list = "ab 8192 1 - Live 0xffffffffc0000000\na 4096 0 - Live 0xffffffffc0010000 (OE)\nhidden 9 0 - Live 0x0000000000000000\n";
        let of = |name| module(list.as_bytes(), name);
        assert_eq!(of("a"), Some((0xffff_ffff_c001_0000, 4096)));
        assert_eq!((of("hidden"), of("b")), (None, None));
        assert!(module_notes("../kernel").is_empty());
    }

    #[test]
    fn hidden_addresses_tell_no_bounds() {
        let listed = "ffffffff81000000 T _text\nffffffff81000040 T f\nffffffff82000000 T _etext\n";
        assert_eq!(bounds(listed.as_bytes()), Some((0xffff_ffff_8100_0000, 0xffff_ffff_8200_0000)));
        assert_eq!(bounds("0000000000000000 T _text\n0000000000000000 T _etext\n".as_bytes()), None);
        assert_eq!(bounds("".as_bytes()), None);
    }
}
