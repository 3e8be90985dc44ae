//! The memory that a probed program and Dwell share, as `payload/shared.h` defines it. A test compares both.

use crate::unwind_table::Rule;

/// Beginning of every memory of a payload.
pub const MAGIC: u64 = 0x6562_6f72_704c_4c44;
/// Version of the layout.
pub const VERSION: u32 = 3;
/// Number of functions that can be probed at once.
pub const FUNCTIONS_MAX: usize = 256;
/// Number of threads that can be recorded.
pub const THREADS_MAX: usize = 1024;
/// Bits of a function's metrics.
pub const WITH_RETURNS: u32 = 1;
/// Bits of a function's metrics.
pub const WITH_WALL: u32 = 2;
/// Bits of a function's metrics.
pub const WITH_CPU: u32 = 4;
/// Bits of a function's metrics.
pub const WITH_BLOCKED: u32 = 8;
/// Number of causes for which calls are missed.
pub const MISSED_KINDS: usize = 4;
/// Number of buckets of a histogram.
pub const BUCKETS: usize = 192;

const THREAD_MAP: usize = 4096;
const FRAMES_MAX: usize = 256;
const DEPTH_MAX: usize = 256;
const PAIRS_MAX: usize = 2 * DEPTH_MAX;
const LOOKUPS: usize = 256;
/// Number of paths of a thread.
pub const PATHS_MAX: usize = 4096;
/// The value of a thread's `page` if it can have none.
pub const NO_PAGE: u64 = 1;
/// Size of the journal.
pub const JOURNAL_BYTES: usize = 524288;

/// `struct shared`: the beginning of the memory.
#[repr(C)]
pub struct Shared {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// The process that controls the probes.
    pub controller: u32,
    /// Size of the memory.
    pub bytes: u64,
    /// Offset of the next free chunk.
    pub chunks: u64,
    /// Offset of the images.
    pub images: u64,
    /// Offset of the threads.
    pub threads_at: u64,
    /// Ticks of a nanosecond, times 2^20.
    pub ticks_per_ns: u64,
    /// Number of threads.
    pub threads: u32,
    /// Unused.
    pub pad: u32,
    /// Threads by hash.
    pub map: [u32; THREAD_MAP],
    /// Functions.
    pub function: [Function; FUNCTIONS_MAX],
    /// For the controller.
    pub journal: [u8; JOURNAL_BYTES],
}

/// `struct function`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Function {
    /// What is measured.
    pub metrics: u32,
    /// Unused.
    pub pad: u32,
    /// Calls that were missed, by cause.
    pub missed: [u64; MISSED_KINDS],
}

/// `struct image`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Image {
    /// First address in the program.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Offset of the starts of rows.
    pub starts: u64,
    /// Offset of the rules of rows.
    pub rules: u64,
    /// Offset of the index.
    pub buckets: u64,
    /// Offset of the distinct [`Rule`]s.
    pub table: u64,
}

/// `struct metric`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Metric {
    /// Sum of all values.
    pub sum: u64,
    /// The largest value.
    pub max: u64,
    /// Numbers of values: four buckets for each power of two.
    pub buckets: [u64; BUCKETS],
}

/// `struct pair`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pair {
    /// Address, with its lowest bit set if the value is a return address.
    pub at: u64,
    /// The value.
    pub value: u64,
}

/// `struct path`, which `pairs_max` [`Pair`]s and the return addresses follow.
#[repr(C)]
pub struct Path {
    /// Hash of function and return addresses.
    pub hash: u64,
    /// Number of the function.
    pub function: u32,
    /// Why it ends: `enum end`.
    pub end: u32,
    /// Number of pairs.
    pub pairs: u32,
    /// Number of return addresses.
    pub frames: u32,
    /// rbp at the call.
    pub rbp: u64,
    /// Whether the path depends on it.
    pub needs_rbp: u32,
    /// Room for pairs.
    pub pairs_max: u32,
    /// The outermost return address's place on the stack of the call.
    pub base: u64,
    /// Offset of the thread's next path.
    pub next: u64,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that returned.
    pub returns: u64,
    /// Number of calls that an exception or longjmp ended.
    pub unwound: u64,
    /// Time on the clock, in ticks.
    pub wall: Metric,
    /// CPU time in ticks.
    pub cpu: Metric,
    /// Time on the clock without CPU time, in ticks.
    pub blocked: Metric,
}

/// `struct frame`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frame {
    /// Address of the return address.
    pub slot: u64,
    /// The outermost one's on the same stack.
    pub base: u64,
    /// Offset of the path.
    pub path: u64,
    /// When the call began, in ticks.
    pub wall: u64,
    /// The CPU time then, in ticks.
    pub cpu: u64,
}

/// `struct thread`.
#[repr(C)]
pub struct Thread {
    /// Its identity while it lives.
    pub fs: u64,
    /// Address of its id, by which its successor with the same `fs` is told apart.
    pub tid_at: u64,
    /// Its id.
    pub tid: u32,
    /// Unused.
    pub pad: u32,
    /// The slot that the payload works on.
    pub busy: u64,
    /// A readable part of the stack.
    pub readable: [u64; 2],
    /// Address of its perf page; 0: none yet; [`NO_PAGE`].
    pub page: u64,
    /// Its CPU time and when that was.
    pub cpu: [u64; 3],
    /// Offset of its first path.
    pub first_path: u64,
    /// Its chunk and the chunk's end.
    pub chunk: [u64; 2],
    /// Returns without a recorded call.
    pub unmatched: u64,
    /// Number of calls in progress.
    pub depth: u32,
    /// Number of paths.
    pub paths: u32,
    /// Recent paths.
    pub lookup: [u64; LOOKUPS],
    /// Paths by hash.
    pub table: [u64; PATHS_MAX * 2],
    /// Calls in progress.
    pub frame: [Frame; FRAMES_MAX],
    /// The payload's.
    pub scratch: [Pair; PAIRS_MAX],
}

/// Size of a [`Rule`], which the payload indexes by.
const _: () = assert!(size_of::<Rule>() == 16);

#[cfg(test)]
mod tests {
    use std::{mem::offset_of, process::Command};

    use super::*;

    #[test]
    fn the_layout_is_that_of_the_payload() {
        let ours = [
            size_of::<Shared>(),
            size_of::<Thread>(),
            size_of::<Path>(),
            size_of::<Image>(),
            offset_of!(Shared, threads),
            offset_of!(Shared, map),
            offset_of!(Shared, function),
            offset_of!(Shared, journal),
            offset_of!(Thread, page),
            offset_of!(Thread, first_path),
            offset_of!(Thread, unmatched),
            offset_of!(Thread, frame),
            offset_of!(Path, next),
            offset_of!(Path, calls),
            offset_of!(Path, wall),
            offset_of!(Path, cpu),
            offset_of!(Path, blocked),
        ];
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/payload/shared.h");
        let text = format!(
            "#include \"{header}\"\n#include <stddef.h>\n#include <stdio.h>\n\
             #define S(t) printf(\"%zu \", sizeof(struct t));\n#define O(t, f) printf(\"%zu \", offsetof(struct t, f));\n\
             int main(void) {{ S(shared) S(thread) S(path) S(image) O(shared, threads) O(shared, map) O(shared, function) \
             O(shared, journal) O(thread, page) O(thread, first_path) O(thread, unmatched) O(thread, frame) O(path, next) O(path, calls) \
             O(path, wall) O(path, cpu) O(path, blocked) return 0; }}"
        );
        std::fs::write(&source, text).unwrap();
        assert!(Command::new("cc").arg("-o").args([&program, &source]).status().unwrap().success());
        let theirs = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
        let theirs: Vec<usize> = theirs.split_whitespace().map(|number| number.parse().unwrap()).collect();
        assert_eq!(theirs, ours);
    }
}
