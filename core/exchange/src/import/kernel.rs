//! The kernel's address space as a file's records tell it, and its symbols.
//!
//! Enters: the kernel's own mappings, the text of a kallsyms. Leaves: in which image an address lies; symbols of sampled
//! offsets. Never here: which kallsyms is the right one.

use std::{borrow::Cow, io::BufRead, ops::Range};

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
        let name = module_name(path);
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

/// A module's name, by its path or as `[module]`.
pub fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).trim_matches(['[', ']']).replace('-', "_")
}

/// A kernel has some MiB of names.
const NAMES_BYTES_MAX: usize = 256 << 20;

/// The kernel's own symbols of code, as a kallsyms has them. Memory: the names and 16 bytes for each.
#[derive(Debug, Default)]
pub struct KernelNames {
    /// After each other.
    names: String,
    /// Address and place of the name, ascending.
    symbols: Vec<(u64, Range<u32>)>,
}

impl KernelNames {
    /// Reads a kallsyms.
    pub fn read(mut kallsyms: impl BufRead) -> Self {
        let (mut all, mut line) = (KernelNames::default(), Vec::new());
        while kallsyms.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0)
            && all.names.len() < NAMES_BYTES_MAX
        {
            if let Some((address, name)) = code(&line) {
                let start = all.names.len() as u32;
                all.names.push_str(&name);
                all.symbols.push((address, start..all.names.len() as u32));
            }
            line.clear();
        }
        all.symbols.sort_by_key(|(address, _)| *address);
        all
    }

    /// The address of `_text`.
    pub fn text(&self) -> Option<u64> {
        self.symbols.iter().find(|(_, place)| self.name(place) == "_text").map(|s| s.0)
    }

    /// The symbols under the given ascending offsets from `_text`.
    pub fn under(&self, offsets: &[u64]) -> Vec<ImageSymbol> {
        let all = &self.symbols;
        let Some(text) = self.text().or(all.first().map(|s| s.0)) else { return Vec::new() };
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
                name: self.name(place).chars().take(1000).collect(),
            });
        }
        found
    }

    fn name(&self, place: &Range<u32>) -> &str {
        &self.names[place.start as usize..place.end as usize]
    }
}

/// Address and name of a line that names code of the kernel itself.
fn code(line: &[u8]) -> Option<(u64, Cow<'_, str>)> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let address = u64::from_str_radix(str::from_utf8(words.next()?).ok()?, 16).ok().filter(|a| *a != 0)?;
    let kind = words.next()?;
    if !matches!(kind, b"t" | b"T" | b"w" | b"W") {
        return None;
    }
    let name = words.next()?;
    words.next().is_none().then(|| (address, String::from_utf8_lossy(name)))
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
        let found: Vec<_> = KernelNames::read(text.as_bytes())
            .under(&[0x12, 0x14, 0x45])
            .into_iter()
            .map(|s| (s.offset.0, s.size_bytes, s.name))
            .collect();
        assert_eq!(found, [(0x10, 0x30, "one".to_owned()), (0x40, 1, "two".to_owned())]);
    }
}
