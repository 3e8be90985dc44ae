//! Lists the memory that a thread can change.
//!
//! Enters: a process. Leaves: the pages of its own writable memory that it uses, and those that are zero until it does. Never here: what
//! is in them ([`super::copy`]).
//!
//! A thread that goes on while it is emulated changes memory that emulation has not read yet. Where all that it can change is copied
//! before, emulation goes astray only because of others: other threads, other processes, and the kernel. Most programs use a few
//! megabytes, which takes a millisecond or two (docs/measured.md, "All that a thread can change"). The list is made while the thread still
//! runs, and made again if it has used new memory since.

use std::{collections::HashSet, fs, ops::Range};

use super::{
    copy::{Presence, Remote},
    halt::{FAULTS, stat_field},
};
use crate::{
    emulate::memory::PAGE_BYTES,
    host::{Region, procfs::parse_regions},
};

/// Most pages that are copied while a thread stands still: 24 MiB.
const PAGES_MAX: usize = 6 << 10;
/// Most pages after whose copy the thread's time is usual in the end: 12 MiB. With more it is not within 10 ms.
const TIMED_MAX: usize = 3 << 10;
/// Time for which a thread is slower after a copy of few pages, 4 MiB, and for each page more (docs/measured.md, "The weight of each
/// burst", large copies): the copy leaves it little in the caches.
const SLOW_NS: u64 = 2_980_000;
const FEW: u64 = 1 << 10;
const SLOW_NS_OF_PAGE: u64 = 1_600;
/// Most pages that are looked at: 1 GiB of address space, most of it unused. And most while a thread stands still, in half a millisecond.
const LISTED_MAX: u64 = 256 << 10;
const LISTED_AGAIN_MAX: u64 = 32 << 10;
/// Most pages of all files and of one that are copied: large ones are mapped for longer.
const FILES_MAX: usize = 1024;
const FILE_MAX: u64 = 256;

/// The writable memory of a process at some time, by numbers of pages.
#[derive(Debug)]
pub struct Writable {
    tid: libc::pid_t,
    /// Pages that are in memory, in order.
    pub pages: Vec<u64>,
    /// Pages that are zero until they are used: from, and to without that one.
    pub zeros: Vec<(u64, u64)>,
    /// Pages of files that it has mapped as data, which it may give back soon.
    pub files: Vec<u64>,
    /// Number of pages that were looked at.
    listed: u64,
    /// Number of page faults of the process by then.
    faults: Option<u64>,
}

impl Writable {
    /// Returns the memory of a thread's process; `None` if it cannot be known or is too much to be copied.
    pub fn of(tid: libc::pid_t) -> Option<Writable> {
        let faults = faults(tid);
        let regions = parse_regions(&fs::read(format!("/proc/{tid}/maps")).ok()?);
        let mut remote = Remote::of(tid);
        let (pages, zeros, files) = (Vec::new(), Vec::new(), Vec::new());
        let mut writable = Writable { tid, pages, zeros, files, listed: 0, faults };
        for region in regions.iter().filter(|region| region.is_private_data) {
            let [first, end] = [region.start, region.end].map(|address| address.0 / PAGE_BYTES as u64);
            writable.listed += end.checked_sub(first)?;
            if writable.listed > LISTED_MAX {
                return None;
            }
            let presence = remote.presence(first, (end - first) as usize)?;
            writable.add(first, &presence, region.is_anonymous);
        }
        writable.add_files(&regions);
        (writable.pages.len() <= PAGES_MAX).then_some(writable)
    }

    fn add(&mut self, first: u64, presence: &[Presence], is_anonymous: bool) {
        let mut at = first;
        for run in presence.chunk_by(|before, next| before == next) {
            let end = at + run.len() as u64;
            match run[0] {
                Presence::InMemory => self.pages.extend(at..end),
                Presence::Nowhere if is_anonymous => self.zeros.push((at, end)),
                // To read these takes long.
                Presence::Nowhere | Presence::Swapped => {}
            }
            at = end;
        }
    }

    /// Adds files of which no code is mapped: those with code stay.
    fn add_files(&mut self, regions: &[Region]) {
        let programs: HashSet<&str> =
            regions.iter().filter(|region| region.is_executable).map(|region| &*region.name).collect();
        let is_data = |region: &&Region| {
            !region.is_anonymous
                && !region.is_private_data
                && !region.is_guard
                && !programs.contains(&*region.name)
        };
        let pages =
            regions.iter().filter(is_data).flat_map(|region| pages_of_file(region.start.0, region.end.0));
        self.files.extend(pages.take(FILES_MAX));
    }

    /// Returns whether to copy it makes the thread slower for too long.
    pub fn is_large(&self) -> bool {
        self.pages.len() > TIMED_MAX
    }

    /// Returns the list as it is now that the thread stands still. Where it would take long to make it again, new pages are missing, and
    /// nothing is known to be zero.
    pub fn now(self) -> Option<Writable> {
        if self.faults.is_some() && self.faults == faults(self.tid) {
            Some(self)
        } else if self.listed <= LISTED_AGAIN_MAX {
            Writable::of(self.tid)
        } else {
            Some(Writable { zeros: Vec::new(), ..self })
        }
    }
}

/// Returns the CPU time after a release for which a thread may be slower than usual, because its caches and predictions were those of
/// others: its caches were used to copy so many pages.
pub fn slow_ns(copied: usize) -> u64 {
    SLOW_NS + SLOW_NS_OF_PAGE * (copied as u64).saturating_sub(FEW)
}

/// Returns the pages of a file that is mapped from an address on; none of a large one.
pub fn pages_of_file(start: u64, end: u64) -> Range<u64> {
    let (first, end) = (start / PAGE_BYTES as u64, end.div_ceil(PAGE_BYTES as u64));
    first..if end.saturating_sub(first) > FILE_MAX { first } else { end }
}

/// Returns the number of page faults of a thread's process so far. Without one it gets no new page.
fn faults(tid: libc::pid_t) -> Option<u64> {
    stat_field(&format!("/proc/{tid}/stat"), FAULTS)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        process::{Command, Stdio},
    };

    use super::*;

    /// Uses a page of its memory, says where that is, and uses another one for each line of input.
    const PROGRAM: &str = "
        #include <stdio.h>
        static char pages[64][4096] __attribute__((aligned(4096)));
        int main(void) {
            for (int page = 8; printf(\"%p %p\\n\", pages, &page), fflush(stdout), getchar() > 0; page += 32) pages[page][0] = 1;
        }";

    #[test]
    fn a_thread_is_slow_for_longer_after_a_larger_copy() {
        assert_eq!([0, 1 << 10].map(slow_ns), [SLOW_NS; 2]);
        assert!((5_000_000..6_000_000).contains(&slow_ns((10 << 20) / PAGE_BYTES)));
    }

    #[test]
    fn used_pages_are_listed_and_others_are_zero() {
        let folder = tempfile::tempdir().unwrap();
        let [source, program] = ["pages.c", "pages"].map(|name| folder.path().join(name));
        fs::write(&source, PROGRAM).unwrap();
        assert!(Command::new("gcc").arg("-o").args([&program, &source]).status().unwrap().success());
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = || {
            let line = lines.next().unwrap().unwrap();
            let page = |text: &str| u64::from_str_radix(&text[2..], 16).unwrap() / PAGE_BYTES as u64;
            let (data, stack) = line.split_once(' ').unwrap();
            (page(data), page(stack))
        };
        let tid = child.id() as libc::pid_t;
        let is_zero = |writable: &Writable, page: u64| {
            writable.zeros.iter().any(|(from, to)| (*from..*to).contains(&page))
        };
        next();
        let before = Writable::of(tid).unwrap();
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let (first, stack) = next();
        assert!(!before.pages.contains(&(first + 8)) && is_zero(&before, first + 8));
        let after = before.now().unwrap();
        assert!(after.pages.contains(&(first + 8)) && !is_zero(&after, first + 8));
        assert!(!after.pages.contains(&(first + 40)) && is_zero(&after, first + 40));
        assert!(after.pages.is_sorted() && after.pages.contains(&stack));
        // Nothing was used since.
        assert_eq!(after.faults, faults(tid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(Writable::of(tid).is_none());
    }
}
