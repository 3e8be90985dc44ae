//! The names of the kernel's procedures: from the file that was named, else from this machine where it runs the same kernel.
//!
//! Enters: what a file tells of its kernel. Leaves: the names, or why there are none. Never here: samples. They are read by a
//! thread while the records are, since the kernel takes its time to write them.

use std::{
    fs::File,
    io::{self, BufReader},
    path::PathBuf,
    thread::JoinHandle,
};

use dwell_profile::BuildId;
use linux_perf_data::DsoKey;

use super::{ImportFile, kernel::KernelNames, perf_data::Told};

/// Where the names are, and what else must hold for them to be right.
#[derive(Clone, Debug)]
pub struct Kallsyms {
    path: PathBuf,
    /// Whether the kernel that runs here must lie where the sampled one did: it is not known by a build id.
    by_address: bool,
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
        match of.by_address && names.text() != self.kernel.text() {
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
