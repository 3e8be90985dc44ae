//! Code in processes that does not belong to their programs: copies of instructions, and counters between them.
//!
//! Enters: where such code is. Leaves: for an address in it the instruction that it stands for.

use std::collections::BTreeMap;

use dwell_profile::{Pid, VirtualAddress};
use rustc_hash::FxHashMap;

/// A range of added code and the instruction of the program that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first address.
    pub start: VirtualAddress,
    /// The address behind the last.
    pub end: VirtualAddress,
    /// The instruction's address; none for code that only counts.
    pub stands_for: Option<VirtualAddress>,
}

/// Added code by process and address.
#[derive(Default)]
pub struct MovedCode {
    processes: FxHashMap<Pid, BTreeMap<VirtualAddress, Span>>,
}

impl MovedCode {
    /// Adds code of a process.
    pub fn add(&mut self, pid: Pid, spans: &[Span]) {
        self.processes.entry(pid).or_default().extend(spans.iter().map(|span| (span.start, *span)));
    }

    /// Forgets a process that has ended or executes another program.
    pub fn forget(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// Notes that a process is a copy of another one.
    pub fn fork(&mut self, pid: Pid, parent_pid: Pid) {
        if let Some(spans) = self.processes.get(&parent_pid) {
            self.processes.insert(pid, spans.clone());
        }
    }

    /// Returns the added code at an address.
    pub fn find(&self, pid: Pid, address: VirtualAddress) -> Option<Span> {
        if self.processes.is_empty() {
            return None;
        }
        let (_, span) = self.processes.get(&pid)?.range(..=address).next_back()?;
        (address < span.end).then_some(*span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_their_process() {
        let (pid, child) = (Pid(7), Pid(8));
        let span = |start, end, stands_for: Option<u64>| Span {
            start: VirtualAddress(start),
            end: VirtualAddress(end),
            stands_for: stands_for.map(VirtualAddress),
        };
        let mut moved = MovedCode::default();
        moved.add(pid, &[span(100, 109, None), span(109, 112, Some(50))]);
        moved.fork(child, pid);
        moved.fork(Pid(9), Pid(10));
        let find = |moved: &MovedCode, pid, address| moved.find(pid, VirtualAddress(address));
        for pid in [pid, child] {
            assert_eq!(find(&moved, pid, 99), None);
            assert_eq!(find(&moved, pid, 108), Some(span(100, 109, None)));
            let stands_for = find(&moved, pid, 109).and_then(|span| span.stands_for);
            assert_eq!(stands_for, Some(VirtualAddress(50)));
            assert_eq!(find(&moved, pid, 112), None);
        }
        moved.forget(pid);
        assert_eq!((find(&moved, pid, 100), find(&moved, Pid(9), 100)), (None, None));
        assert!(find(&moved, child, 100).is_some());
    }
}
