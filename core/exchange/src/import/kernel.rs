//! The kernel's address space as a file's records tell it, and its symbols.
//!
//! Enters: the kernel's own mappings, the text of a kallsyms. Leaves: in which image an address lies; symbols of sampled
//! offsets. Never here: I/O.

use std::{io::BufRead, ops::Range};

use dwell_profile::{ImageOffset, ImageSymbol};

/// The kernel and its modules, as far as they are known.
#[derive(Debug, Default)]
pub struct KernelSpace {
    /// Address of `_text`, and of what comes after the kernel.
    text: Option<(u64, u64)>,
    /// First address, the one after the last, and name.
    modules: Vec<(u64, u64, String)>,
}

/// An address in the kernel: a module by its index, or the kernel itself, and the offset in it.
pub type KernelPlace = (Option<usize>, u64);

impl KernelSpace {
    /// Takes in a mapping of the kernel's: `[kernel.kallsyms]_text`, `[module]`, `/lib/modules/…/module.ko.xz`.
    pub fn map(&mut self, path: &str, start: u64, length: u64, page_offset: u64) {
        let end = start.saturating_add(length);
        if path.starts_with("[kernel.kallsyms]")
            || path.starts_with("/proc/kcore")
            || path.ends_with("vmlinux")
        {
            // perf writes the address of the reference symbol, `_text` or `_stext`, as the offset.
            let text = if (start..end).contains(&page_offset) { page_offset } else { start };
            self.text.get_or_insert((text, end));
            return;
        }
        let file = path.rsplit('/').next().unwrap_or(path);
        let name = file.split(".ko").next().unwrap_or(file).trim_matches(['[', ']']).replace('-', "_");
        if !name.is_empty() && !self.modules.iter().any(|m| m.0 == start) {
            self.modules.push((start, end, name));
        }
    }

    /// Where an address lies; `None` where nothing tells.
    pub fn place(&self, address: u64) -> Option<KernelPlace> {
        let module = self.modules.iter().position(|m| (m.0..m.1).contains(&address));
        if let Some(module) = module {
            return Some((Some(module), address - self.modules[module].0));
        }
        let (text, end) = self.text?;
        (text..end).contains(&address).then(|| (None, address - text))
    }

    /// The address of `_text`.
    pub fn text(&self) -> Option<u64> {
        self.text.map(|(text, _)| text)
    }

    /// A module's name.
    pub fn module(&self, index: usize) -> &str {
        &self.modules[index].2
    }
}

/// A kernel has some MiB of names.
const NAMES_BYTES_MAX: usize = 256 << 20;

/// The kernel's own symbols under the given ascending offsets from `_text`, from a kallsyms of the same build. Memory: what a
/// symbol of code takes.
pub fn symbols(kallsyms: impl BufRead, offsets: &[u64]) -> Vec<ImageSymbol> {
    let (names, mut all) = read(kallsyms);
    all.sort_by_key(|(address, _)| *address);
    let name = |place: &Range<u32>| &names[place.start as usize..place.end as usize];
    let Some(text) = all.iter().find(|(_, place)| name(place) == "_text").or(all.first()).map(|s| s.0) else {
        return Vec::new();
    };
    let mut found: Vec<ImageSymbol> = Vec::new();
    for &offset in offsets {
        let Some(address) = text.checked_add(offset) else { continue };
        let after = all.partition_point(|(start, _)| *start <= address);
        let (Some((start, place)), next) = (all[..after].last(), all.get(after)) else { continue };
        let size_bytes = next.map_or(1, |n| n.0 - start);
        if *start < text || found.last().is_some_and(|f| f.offset.0 == start - text) {
            continue;
        }
        found.push(ImageSymbol {
            offset: ImageOffset(start - text),
            size_bytes,
            name: name(place).chars().take(1000).collect(),
        });
    }
    found
}

/// All names after each other; address and place of the name of each symbol of code.
fn read(mut lines: impl BufRead) -> (String, Vec<(u64, Range<u32>)>) {
    let (mut names, mut all, mut line) = (String::new(), Vec::new(), String::new());
    while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && names.len() < NAMES_BYTES_MAX {
        if let Some((address, name)) = code(&line) {
            let start = names.len() as u32;
            names.push_str(name);
            all.push((address, start..names.len() as u32));
        }
        line.clear();
    }
    (names, all)
}

/// Address and name of a line that names code of the kernel itself.
fn code(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|a| *a != 0)?;
    let kind = words.next()?;
    let name = words.next()?;
    (matches!(kind, "t" | "T" | "w" | "W") && words.next().is_none()).then_some((address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_symbols() {
        let mut kernel = KernelSpace::default();
        kernel.map("[kernel.kallsyms]_text", 0xffff_8000, 0x1000, 0xffff_8000);
        kernel.map("/lib/modules/6.1/kernel/snd-seq.ko.xz", 0xffff_a000, 0x100, 0);
        assert_eq!(kernel.place(0xffff_8010), Some((None, 0x10)));
        assert_eq!(kernel.place(0xffff_a004), Some((Some(0), 4)));
        assert_eq!((kernel.module(0), kernel.place(0x10)), ("snd_seq", None));
        let text = "ffff0000 T _text\nffff0010 t one\nffff0020 D data\nffff0040 T two\nffff9000 t other [snd]\nbad\n";
        let found: Vec<_> = symbols(text.as_bytes(), &[0x12, 0x14, 0x45])
            .into_iter()
            .map(|s| (s.offset.0, s.size_bytes, s.name))
            .collect();
        assert_eq!(found, [(0x10, 0x30, "one".to_owned()), (0x40, 1, "two".to_owned())]);
    }
}
