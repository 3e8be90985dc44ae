//! The machine beyond the record stream, as the collector sees it. It is a trait so that tests can simulate a machine.

pub mod code_files;
pub mod code_names;
pub mod jitdump;
pub mod kernel_names;
pub mod linux_host;
pub mod live_processes;
pub mod paths;
pub mod procfs;

use std::path::Path;

use dwell_attribution::{CodeId, FileVersion, ImageFiles, Interval, KernelPlace, MappedRange, Target};
use dwell_image::UnwindRules;
use dwell_profile::{ImageId, ImageRecord, ImageSymbol, Pid, Tid, VirtualAddress};

use crate::host::{
    code_names::{CodeName, NamesWindow},
    procfs::MapsLine,
};

/// A process as /proc shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSnapshot {
    /// Name of the executable, or the thread name if there is none.
    pub name: String,
    /// Whether it is a kernel thread.
    pub kernel_thread: bool,
    /// Index of the mapping of the executable in `mappings`.
    pub program: Option<usize>,
    /// Executable mappings.
    pub mappings: Vec<MapsLine>,
}

/// A mapping of a process, with code or data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// First virtual address.
    pub start: VirtualAddress,
    /// First virtual address after it.
    pub end: VirtualAddress,
    /// File offset of the first byte, if a file is mapped.
    pub file_offset: u64,
    /// Whether it is executable.
    pub is_executable: bool,
    /// Whether it is unreadable, like the guard pages below a stack.
    pub is_guard: bool,
    /// Whether the process can write to it, and nobody else.
    pub is_private_data: bool,
    /// Whether no file is mapped.
    pub is_anonymous: bool,
    /// Name that the kernel reports: a path, `[heap]`, …; empty for anonymous memory.
    pub name: String,
}

impl Region {
    /// Returns whether it maps a file, on disk or in memory.
    pub fn is_file(&self) -> bool {
        self.name.starts_with('/')
    }
}

/// Access to what the records of the kernel do not contain.
pub trait Host: ImageFiles {
    /// Returns the process that has this pid now.
    fn process(&mut self, pid: Pid) -> Option<ProcessSnapshot>;

    /// Returns the present name of a thread.
    fn thread_name(&mut self, pid: Pid, tid: Tid) -> Option<String> {
        let _ = (pid, tid);
        None
    }

    /// Returns the path of a process's present control group.
    fn cgroup(&mut self, pid: Pid) -> Option<String> {
        let _ = pid;
        None
    }

    /// Returns all present mappings of a process in ascending order; none if it has ended.
    fn memory(&mut self, pid: Pid) -> Vec<Region> {
        let _ = pid;
        Vec::new()
    }

    /// Returns whether any thread of the process still runs.
    fn is_alive(&self, pid: Pid) -> bool;

    /// Returns the version of the contents that a file's inode had when it was mapped (CLOCK_MONOTONIC ns; `None`: some time
    /// ago). It serves files that nothing else distinguishes. Returns `None` if the file cannot be reached or was written
    /// since.
    fn version(&mut self, target: &Target, place: MappedRange, mapped_ns: Option<u64>)
    -> Option<FileVersion>;

    /// Returns whether a process's memory equals an identified file at an offset; `None` if it cannot be read.
    fn has_in_memory(
        &mut self,
        pid: Pid,
        address: VirtualAddress,
        image: &ImageId,
        file_offset: u64,
    ) -> Option<bool>;

    /// Notes that a process may run generated code from now on, or has possibly run it since `since_ns` (CLOCK_MONOTONIC;
    /// `None`: since some time ago). Finds the files that will name the code, because they may be unreachable after the
    /// process ended. `parent` is the code that a child inherited.
    fn note_code(&mut self, code: CodeId, pid: Pid, parent: Option<CodeId>, since_ns: Option<u64>) {
        let _ = (code, pid, parent, since_ns);
    }

    /// Notes that a process mapped a file that may be a jitdump, which names its code.
    fn note_jitdump(&mut self, code: CodeId, pid: Pid, path: &Path) {
        let _ = (code, pid, path);
    }

    /// Returns the current length of the text that names this code, in bytes.
    fn code_names_bytes(&mut self, code: CodeId) -> u64 {
        let _ = code;
        0
    }

    /// Returns the names of addresses (ascending) in generated code, and how many bytes of text were read. The names come
    /// from the process's jitdump, or else from its perf map file.
    fn code_names(
        &mut self,
        code: CodeId,
        addresses: &[VirtualAddress],
        window: NamesWindow,
    ) -> (Vec<CodeName>, u64) {
        let _ = (code, window);
        (vec![CodeName::Unknown; addresses.len()], 0)
    }

    /// Forgets code that is not needed: its names will not be requested again.
    fn forget_code(&mut self, is_needed: &dyn Fn(CodeId) -> bool) {
        let _ = is_needed;
    }

    /// Reads code of an identified file at a file offset. Returns how many bytes were read.
    fn code(&mut self, image: &ImageId, offset: u64, bytes: &mut [u8]) -> usize;

    /// Reads how callers are found in an image; `None` if its file cannot be read.
    fn unwind_rules(&mut self, image: &ImageRecord) -> Option<UnwindRules> {
        let _ = image;
        None
    }

    /// Returns the place of a kernel address in an interval of the last minutes.
    fn kernel_place(&mut self, address: VirtualAddress, interval: Interval) -> Option<KernelPlace>;

    /// Returns the build ID of the running kernel in hexadecimal, if it has one.
    fn kernel_build(&mut self) -> Option<String> {
        None
    }

    /// Returns the build ID of a kernel module that samples now belong to, in hexadecimal; `None` if it is not certain.
    fn module_build(&mut self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Returns whether a kernel module was unloaded that samples yet to come may belong to.
    fn has_gone_modules(&mut self) -> bool {
        false
    }

    /// Forgets modules unloaded before this time (CLOCK_MONOTONIC), because no sample to come is older.
    fn forget_modules(&mut self, until_ns: u64) {
        let _ = until_ns;
    }

    /// Returns the symbols that contain the given offsets of the kernel or a module; each symbol is returned once.
    fn kernel_symbols(&mut self, image: &ImageId, offsets: &[u64]) -> Vec<ImageSymbol>;

    /// Returns the file of an identified image while it is open.
    fn file(&self, image: &ImageId) -> Option<std::fs::File> {
        let _ = image;
        None
    }

    /// Notes that all counts were handed out. Releases what was kept for them, and what was not used for long.
    fn handed_out(&mut self) {}
}
