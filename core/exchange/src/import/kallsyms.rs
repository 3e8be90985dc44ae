//! The names of the kernel's procedures: from the file that was named, else from this machine where it runs the same kernel.
//!
//! Enters: what a file tells of its kernel. Leaves: the names, or why there are none. Never here: samples. They are read by a
//! thread while the records are, since the kernel takes its time to write them.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::PathBuf,
    thread::JoinHandle,
};

use dwell_attribution::{KernelSymbols, Modules, read_kernel};
use dwell_profile::{BuildId, ImageSymbol};
use linux_perf_data::DsoKey;

use super::{ImportFile, perf_data::Told};

/// Where the names are, and what else must hold for them to be right.
#[derive(Clone, Debug)]
pub struct Kallsyms {
    path: PathBuf,
    /// Whether the kernel that runs here must lie where the sampled one did: it is not known by a build id.
    by_address: bool,
}

/// The kernel's symbols of code, and where its text begins.
pub struct KernelNames {
    text: Option<u64>,
    symbols: KernelSymbols,
}

/// A longer name is cut.
const NAME_CHARACTERS_MAX: usize = 1000;

impl KernelNames {
    fn read(kallsyms: impl BufRead) -> Self {
        let (layout, symbols) = read_kernel(kallsyms, Modules::default());
        KernelNames { text: Some(layout.text).filter(|text| *text != 0), symbols }
    }

    /// Returns the symbols under the given ascending offsets from the beginning of the kernel's text, each once.
    pub fn under(&self, offsets: &[u64]) -> Vec<ImageSymbol> {
        let Some(text) = self.text else { return Vec::new() };
        let symbol = |offset: &u64| self.symbols.find(text.checked_add(*offset)?, text);
        let mut found: Vec<ImageSymbol> = offsets.iter().filter_map(symbol).collect();
        found.dedup_by_key(|symbol| symbol.offset);
        for symbol in &mut found {
            symbol.name = symbol.name.chars().take(NAME_CHARACTERS_MAX).collect();
            symbol.size_bytes = symbol.size_bytes.max(1);
        }
        found
    }
}

/// Names that are being read.
pub struct Reading {
    of: Kallsyms,
    thread: JoinHandle<io::Result<KernelNames>>,
}

impl Kallsyms {
    fn read(self) -> Reading {
        let path = self.path.clone();
        let thread = std::thread::spawn(move || {
            File::open(path).map(|file| KernelNames::read(BufReader::with_capacity(1 << 16, file)))
        });
        Reading { of: self, thread }
    }
}

impl Told {
    /// Looks which names could be the right ones, as far as the file tells before its records.
    pub(super) fn look_for_kallsyms(&mut self, request: &ImportFile) {
        let here = |by_address| Kallsyms { path: "/proc/kallsyms".into(), by_address };
        self.kallsyms = match (&request.kallsyms, self.build_id(&DsoKey::Kernel)) {
            (Some(path), _) => Some(Kallsyms { path: path.clone(), by_address: false }),
            (None, Some(id)) => runs_here(id).then(|| here(false)),
            (None, None) => self.release.as_deref().is_some_and(is_release_here).then(|| here(true)),
        };
    }

    /// Begins to read them.
    pub(super) fn read_kallsyms(&mut self) {
        self.kernel_names = self.kallsyms.clone().map(Kallsyms::read);
    }

    /// The names, or why there are none.
    pub(super) fn kernel_names(&mut self, request: &ImportFile) -> Result<KernelNames, String> {
        let elsewhere = "the kernel's procedures have no names: it is not the kernel that runs here; --kallsyms names its symbols";
        if self.kernel_names.is_none() {
            self.look_for_kallsyms(request);
            self.read_kallsyms();
        }
        let Some(Reading { of, thread }) = self.kernel_names.take() else { return Err(elsewhere.to_owned()) };
        let failed =
            |e: io::Error| format!("the kernel's procedures have no names: {}: {e}", of.path.display());
        let names = thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())).map_err(failed)?;
        match of.by_address && names.text != self.kernel.text() {
            true => Err(elsewhere.to_owned()),
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
    }
}
