//! Unwind rows in the form that the payload searches.
//!
//! Enters: rows of an image. Leaves: starts, rules and an index by address, all relative to the first address. Pure.

use dwell_image::{Caller, CallerRbp, UnwindRow};
use rustc_hash::FxHashMap;

/// Number of bytes of code of an entry of the index.
const BUCKET_BYTES: u64 = 256;

/// A rule as the payload reads it (`struct rule` in `payload/shared.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// One of `enum rule_kind`.
    pub kind: i32,
    /// The offset that the kind needs.
    pub offset: i32,
    /// Where rbp is saved; 0: nowhere.
    pub saved_rbp: i32,
    /// Unused.
    pub pad: i32,
}

/// The unwind table of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindTable {
    /// Where rows start, ascending from 0; the last is `u32::MAX`.
    pub starts: Vec<u32>,
    /// The rule of each row, by its number in `rules`.
    pub rows: Vec<u16>,
    /// For each 256 bytes, the last row that starts there or before.
    pub buckets: Vec<u32>,
    /// Distinct rules. The first one is unknown.
    pub rules: Vec<Rule>,
}

impl UnwindTable {
    /// Makes the table of an image's addresses from `first` on, of `length` bytes.
    pub fn new(rows: &[UnwindRow], first: u64, length: u64) -> Self {
        let length = length.min(u64::from(u32::MAX - 1));
        let mut numbers = FxHashMap::default();
        let mut rules = vec![Rule::default()];
        numbers.insert(Rule::default(), 0);
        let (mut starts, mut numbered) = (vec![0u32], vec![0u16]);
        for row in rows {
            let Some(start) = row.start.0.checked_sub(first).filter(|start| *start < length) else {
                continue;
            };
            let rule = rule(row);
            let number = *numbers.entry(rule).or_insert_with(|| {
                let number = u16::try_from(rules.len()).unwrap_or(0); // Too many rules: unknown.
                if number != 0 {
                    rules.push(rule);
                }
                number
            });
            if starts.last() == Some(&(start as u32)) {
                *numbered.last_mut().expect("as long as the starts") = number;
            } else {
                starts.push(start as u32);
                numbered.push(number);
            }
        }
        starts.push(u32::MAX);
        numbered.push(0);
        let mut buckets = Vec::with_capacity((length / BUCKET_BYTES) as usize + 1);
        let mut row = 0;
        for start in (0..=length).step_by(BUCKET_BYTES as usize) {
            while u64::from(starts[row + 1]) <= start {
                row += 1;
            }
            buckets.push(row as u32);
        }
        UnwindTable { starts, rows: numbered, buckets, rules }
    }

    /// Number of bytes of all parts.
    pub fn bytes(&self) -> usize {
        4 * (self.starts.len() + self.buckets.len())
            + 2 * self.rows.len()
            + size_of::<Rule>() * self.rules.len()
    }
}

fn rule(row: &UnwindRow) -> Rule {
    let (kind, offset) = match row.caller {
        // Calls are in no such code: a stub jumps, and assembly that saves its stack pointer calls nothing.
        Caller::Unknown | Caller::StoredAtStackPointer { .. } | Caller::LinkageStub(_) => (0, 0),
        Caller::StackPointer(offset) => (1, offset),
        Caller::FramePointer(offset) => (2, offset),
        Caller::StoredAtFramePointer(offset) => (3, offset),
        Caller::Signal => (4, 0),
        Caller::Outermost => (5, 0),
    };
    let saved_rbp = match row.rbp {
        CallerRbp::Unchanged => 0,
        CallerRbp::Saved(offset) => offset,
        CallerRbp::SavedAtFramePointer => 1,
    };
    Rule { kind, offset, saved_rbp, pad: 0 }
}

#[cfg(test)]
mod tests {
    use dwell_image::ImageAddress;

    use super::*;

    fn row(start: u64, caller: Caller) -> UnwindRow {
        UnwindRow { start: ImageAddress(start), caller, rbp: CallerRbp::Unchanged }
    }

    #[test]
    fn rows_are_found_by_address() {
        let rows = [
            row(0x900, Caller::Outermost),
            row(0x1000, Caller::StackPointer(8)),
            row(0x1001, Caller::StackPointer(16)),
            row(0x1400, Caller::StackPointer(8)),
            row(0x1500, Caller::Unknown),
            row(0x9000, Caller::StackPointer(8)),
        ];
        let table = UnwindTable::new(&rows, 0x1000, 0x600);
        assert_eq!(table.starts, [0, 1, 0x400, 0x500, u32::MAX]);
        assert_eq!(table.rows, [1, 2, 1, 0, 0]);
        assert_eq!(table.rules.len(), 3);
        assert_eq!(table.buckets, [0, 1, 1, 1, 2, 3, 3]);
    }
}
