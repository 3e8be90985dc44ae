//! What the collector must look at outside of the record stream, as a trait, so that tests can simulate a machine.

use std::path::Path;

use dwell_attribution::{CodeId, FileVersion, ImageFiles, Interval, KernelPlace, MappedRange, Target};
use dwell_profile::{ImageId, ImageSymbol, Pid, Tid};

use crate::code_names::{CodeName, NamesWindow};

/// A process as /proc shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSnapshot {
    /// Its executable's name, or its comm where it has none.
    pub name: String,
    /// Whether it is the kernel's own.
    pub kernel_thread: bool,
    /// Which of the mappings is of its executable.
    pub program: Option<usize>,
    /// Executable mappings: first address, address after it, offset, target.
    pub mappings: Vec<(u64, u64, u64, Target)>,
}

/// A mapping of a process, of code or data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// First virtual address.
    pub start: u64,
    /// First virtual address after it.
    pub end: u64,
    /// The offset in its file of its first byte, where it is of one.
    pub file_offset: u64,
    /// Whether code in it may run.
    pub is_executable: bool,
    /// Whether nobody may read it.
    pub is_guard: bool,
    /// As the kernel names it: a path, `[heap]`, …; empty: anonymous memory.
    pub name: String,
}

impl Region {
    /// Whether it is of a file, in memory or not.
    pub fn is_file(&self) -> bool {
        self.name.starts_with('/')
    }
}

/// The machine, as far as samples do not tell.
pub trait Host: ImageFiles {
    /// The process that has this pid now.
    fn process(&mut self, pid: Pid) -> Option<ProcessSnapshot>;

    /// What a thread is called now.
    fn thread_name(&mut self, pid: Pid, tid: Tid) -> Option<String> {
        let _ = (pid, tid);
        None
    }

    /// The path of a process's control group now.
    fn cgroup(&mut self, pid: Pid) -> Option<String> {
        let _ = pid;
        None
    }

    /// All that a process has mapped now, ascending; nothing where it has ended.
    fn memory(&mut self, pid: Pid) -> Vec<Region> {
        let _ = pid;
        Vec::new()
    }

    /// Whether any thread of the process still lives.
    fn is_alive(&self, pid: Pid) -> bool;

    /// What the contents of a file's inode are, where nothing else tells them apart: those that were mapped there at that
    /// time (CLOCK_MONOTONIC; `None`: some time ago). `None` where the file is out of reach or was written since.
    fn version(&mut self, target: &Target, place: MappedRange, mapped_ns: Option<u64>)
    -> Option<FileVersion>;

    /// Whether a process has an identified file's bytes in memory there; `None` where that cannot be seen.
    fn has_in_memory(&mut self, pid: Pid, address: u64, image: &ImageId, file_offset: u64) -> Option<bool>;

    /// A process may run generated code from now on, and may have done so from that time on (CLOCK_MONOTONIC; `None`: from
    /// some time ago): finds what will name it, which may be out of reach once the process has ended.
    /// A child inherited code of its parent's.
    fn note_code(&mut self, code: CodeId, pid: Pid, parent: Option<CodeId>, since_ns: Option<u64>) {
        let _ = (code, pid, parent, since_ns);
    }

    /// A process mapped a file that may be a jitdump, which names its code.
    fn note_jitdump(&mut self, code: CodeId, pid: Pid, path: &Path) {
        let _ = (code, pid, path);
    }

    /// Returns the current length of the text that names this code, in bytes.
    fn code_names_bytes(&mut self, code: CodeId) -> u64 {
        let _ = code;
        0
    }

    /// The names of addresses (ascending) in generated code, as its process's jitdump, else its perf map file has them, and how
    /// much of that text was read.
    fn code_names(&mut self, code: CodeId, addresses: &[u64], window: NamesWindow) -> (Vec<CodeName>, u64) {
        let _ = (code, window);
        (vec![CodeName::Unknown; addresses.len()], 0)
    }

    /// Forgets all other code: its names will not be asked for again.
    fn forget_code(&mut self, is_needed: &dyn Fn(CodeId) -> bool) {
        let _ = is_needed;
    }

    /// Code bytes of an identified file at a file offset; how many could be read.
    fn code(&mut self, image: &ImageId, offset: u64, bytes: &mut [u8]) -> usize;

    /// Where in the kernel an address lay in an interval of the last minutes.
    fn kernel_place(&mut self, address: u64, interval: Interval) -> Option<KernelPlace>;

    /// The running kernel's build id in hex, where it has one.
    fn kernel_build(&mut self) -> Option<String> {
        None
    }

    /// Whether a module of the kernel is gone that samples still to come may be of.
    fn has_gone_modules(&mut self) -> bool {
        false
    }

    /// No sample to come was taken before that (CLOCK_MONOTONIC).
    fn forget_modules(&mut self, until_ns: u64) {
        let _ = until_ns;
    }

    /// The kernel's symbols under the given offsets of `kernel` or a module, one for each that has any.
    fn kernel_symbols(&mut self, image: &ImageId, offsets: &[u64]) -> Vec<ImageSymbol>;

    /// The file of an identified image, while it is at hand.
    fn file(&self, image: &ImageId) -> Option<std::fs::File> {
        let _ = image;
        None
    }

    /// All that was counted has been handed out: what is kept for that alone may go, and what was not used for long.
    fn handed_out(&mut self) {}
}
