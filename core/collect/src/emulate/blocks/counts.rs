//! Counts how often a thread went from one block to another.
//!
//! Enters: the counts of the edges that compiled code counts itself, and each other transfer. Leaves: the path so far. Never here: the
//! code. The cost is constant for each transfer that code does not count, and linear in the number of edges for each path.

use dwell_profile::VirtualAddress;
use rustc_hash::FxHashMap;

use crate::{emulate::translate::Edge, path::Path};

/// Number of transfers that are found without the table of all.
const USUAL: usize = 1 << 12;

/// A transfer, and how often it was made.
#[derive(Clone, Copy, Default)]
struct Usual {
    from: u64,
    to: u64,
    count: u64,
}

/// Counts the transfers of a run that the code does not count itself.
#[derive(Default)]
pub struct Counts {
    first: u64,
    /// The path counts after so many steps.
    before: usize,
    /// Paths to some places in the beginning.
    beginning: Vec<Path>,
    steps: u64,
    usual: Vec<Usual>,
    other: FxHashMap<(u64, u64), u64>,
}

impl Counts {
    /// Begins a run at an address.
    pub fn new(first: u64, before: usize) -> Counts {
        Counts { first, before, usual: vec![Usual::default(); USUAL], ..Counts::default() }
    }

    /// Adds a transfer, after as many steps.
    pub fn add(&mut self, from: u64, to: u64, steps: u8) {
        self.steps += u64::from(steps);
        let at = (from ^ (to << 3) ^ (to >> 9)) as usize % USUAL;
        let Some(usual) = self.usual.get_mut(at) else {
            *self.other.entry((from, to)).or_default() += 1;
            return;
        };
        if (usual.from, usual.to) != (from, to) {
            let before = std::mem::replace(usual, Usual { from, to, count: 0 });
            *self.other.entry((before.from, before.to)).or_default() += before.count;
        }
        usual.count += 1;
    }

    /// Keeps what code has counted, whose edges get other numbers.
    pub fn keep(&mut self, counts: &mut [u32], edges: &[Edge]) {
        for (count, edge) in counts.iter_mut().zip(edges).filter(|(count, _)| **count > 0) {
            let count = u64::from(std::mem::take(count));
            self.steps += count * u64::from(edge.steps);
            *self.other.entry((edge.from, edge.to)).or_default() += count;
        }
    }

    /// Returns the number of instructions so far.
    pub fn made(&self, counts: &[u32], edges: &[Edge]) -> usize {
        let counted: u64 =
            counts.iter().zip(edges).map(|(n, edge)| u64::from(*n) * u64::from(edge.steps)).sum();
        (self.steps + counted) as usize
    }

    /// Returns the path so far, whose last step leads to the instruction at `end`.
    pub fn path(&self, counts: &[u32], edges: &[Edge], end: u64) -> Path {
        let counted = counts.iter().zip(edges).map(|(n, edge)| (edge.from, edge.to, u64::from(*n)));
        let usual = self.usual.iter().map(|usual| (usual.from, usual.to, usual.count));
        let other = self.other.iter().map(|((from, to), count)| (*from, *to, *count));
        let all = counted.chain(usual).chain(other).filter(|transfer| transfer.2 > 0);
        let steps = self.made(counts, edges) as u64;
        let transfers = all.map(|(from, to, count)| (VirtualAddress(from), VirtualAddress(to), count));
        let (first, last) = (VirtualAddress(self.first), VirtualAddress(end));
        Path { first, last, steps, transfers: transfers.collect() }.in_order()
    }

    /// Notes the path to a place in the beginning.
    pub fn note_beginning(&mut self, path: Path) {
        self.beginning.push(path);
    }

    /// Returns a path without its beginning: some steps, or half of a path that is shorter than twice as many.
    pub fn without_beginning(&self, path: Path) -> Path {
        let steps = (path.steps / 2).min(self.before as u64);
        let beginning = self.beginning.iter().find(|beginning| beginning.steps >= steps);
        match beginning.filter(|_| steps > 0) {
            Some(beginning) => path.since(beginning),
            None => path,
        }
    }
}
