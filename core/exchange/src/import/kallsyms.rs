//! The names of the kernel's procedures, from the file that the user named, or from this machine if it runs the same
//! kernel.
//!
//! Enters: what a profile reports about its kernel. Leaves: the names, or why there are none. Never here: samples. A
//! thread reads the names while the records are read, since the kernel takes long to write them.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    thread::JoinHandle,
};

use dwell_attribution::{KernelSymbols, Modules, read_kernel};
use dwell_profile::{BuildId, ImageSymbol, VirtualAddress};

/// Source of the names, and the condition under which they are right.
#[derive(Clone, Debug)]
pub struct Kallsyms {
    path: PathBuf,
    /// Whether the running kernel must be at the address of the sampled one, because no build ID identifies the sampled
    /// kernel.
    by_address: bool,
}

/// The kernel's code symbols, and the address of its text.
pub struct KernelNames {
    text: Option<VirtualAddress>,
    symbols: KernelSymbols,
}

/// A longer name is truncated to this many characters.
const NAME_CHARACTERS_MAX: usize = 1000;

impl KernelNames {
    fn read(kallsyms: impl BufRead) -> Self {
        let (layout, symbols) = read_kernel(kallsyms, Modules::default());
        // A list that a user made may lack the symbols that mark the start of the kernel.
        let first = symbols.starts().first().map(|(address, _)| *address);
        KernelNames { text: layout.text.or(first), symbols }
    }

    /// Returns the symbols under the given ascending offsets from the beginning of the kernel's text, each once.
    pub fn under(&self, offsets: &[u64]) -> Vec<ImageSymbol> {
        let Some(text) = self.text else { return Vec::new() };
        let symbol = |offset: &u64| self.symbols.find(text.checked_offset(*offset)?, text);
        let mut found: Vec<ImageSymbol> = offsets.iter().filter_map(symbol).collect();
        found.dedup_by_key(|symbol| symbol.offset);
        for symbol in &mut found {
            symbol.name = symbol.name.chars().take(NAME_CHARACTERS_MAX).collect();
            symbol.size_bytes = symbol.size_bytes.max(1);
        }
        found
    }
}

/// Names that are being read by a thread.
pub struct Reading {
    of: Kallsyms,
    thread: JoinHandle<io::Result<KernelNames>>,
}

impl Kallsyms {
    /// Chooses a possible source of the names: the file that the user named, or else the running kernel if it is the
    /// sampled one by its build ID or, if the profile has no build ID, by its release.
    pub fn choose(user_file: Option<&Path>, kernel: Option<&BuildId>, release: Option<&str>) -> Option<Self> {
        let here = |by_address| Kallsyms { path: "/proc/kallsyms".into(), by_address };
        match (user_file, kernel) {
            (Some(path), _) => Some(Kallsyms { path: path.to_owned(), by_address: false }),
            (None, Some(id)) => runs_here(id).then(|| here(false)),
            (None, None) => release.is_some_and(is_release_here).then(|| here(true)),
        }
    }

    /// Starts to read the names.
    pub fn read(self) -> Reading {
        let path = self.path.clone();
        let thread = std::thread::spawn(move || {
            File::open(path).map(|file| KernelNames::read(BufReader::with_capacity(1 << 16, file)))
        });
        Reading { of: self, thread }
    }
}

/// Message for the case that the sampled kernel is not the running one.
pub const IS_ELSEWHERE: &str = "the kernel's functions have no names: it is not the kernel that runs here; name its symbols with --kallsyms";

impl Reading {
    /// Waits for the names, or returns why there are none. `text` is the address of the sampled kernel's text, if it is
    /// known.
    pub fn join(self, text: Option<VirtualAddress>) -> Result<KernelNames, String> {
        let Reading { of, thread } = self;
        let failed =
            |e: io::Error| format!("the kernel's functions have no names: {}: {e}", of.path.display());
        let names = thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())).map_err(failed)?;
        match of.by_address && names.text != text {
            true => Err(IS_ELSEWHERE.to_owned()),
            false => Ok(names),
        }
    }
}

fn runs_here(id: &BuildId) -> bool {
    let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
    notes.windows(id.bytes().len()).any(|w| w == id.bytes())
}

fn is_release_here(release: &str) -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|here| here.trim() == release)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_under_offsets() {
        let text = "ffff0000 T _text\nffff0010 t one\nffff0020 D data\nffff0040 T two\nffff9000 t other [snd]\nbad\n";
        let found: Vec<_> = KernelNames::read(text.as_bytes())
            .under(&[0x12, 0x14, 0x45])
            .into_iter()
            .map(|s| (s.offset.0, s.size_bytes, s.name))
            .collect();
        assert_eq!(found, [(0x10, 0x30, "one".to_owned()), (0x40, 0x8fc0, "two".to_owned())]);
        let without_text = KernelNames::read(&b"ffff0010 t one\nffff0040 T two\n"[..]).under(&[4, 0x31]);
        assert_eq!(without_text.iter().map(|s| &*s.name).collect::<Vec<_>>(), ["one", "two"]);
    }
}
