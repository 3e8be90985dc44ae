//! Finds where two sequences agree and where they differ.
//!
//! Input: two sequences of comparable items. Output: stretches of both sequences, in order. This module knows nothing about
//! what the items are.
//! The algorithm is the histogram diff of `git diff --histogram` (imara-diff); it usually runs in O(n + m).

use std::{hash::Hash, ops::Range};

use imara_diff::{Algorithm, Diff, InternedInput, Interner};

/// A stretch of both sequences. All stretches together cover both sequences completely and in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// Equal items, the same number on each side.
    Same { a: Range<usize>, b: Range<usize> },
    /// Items that were not paired with any item of the other side; one of the ranges may be empty.
    Differs { a: Range<usize>, b: Range<usize> },
}

/// Returns the stretches of two sequences.
pub fn stretches<T: Hash + Eq>(
    a: impl ExactSizeIterator<Item = T>,
    b: impl ExactSizeIterator<Item = T>,
) -> Vec<Stretch> {
    let (len_a, len_b) = (a.len(), b.len());
    let (before, after) = (Vec::with_capacity(len_a), Vec::with_capacity(len_b));
    let mut input = InternedInput { before, after, interner: Interner::new(len_a + len_b) };
    input.update_before(a);
    input.update_after(b);
    let mut found = Vec::new();
    let (mut at_a, mut at_b) = (0, 0);
    let diff = Diff::compute(Algorithm::Histogram, &input);
    for hunk in diff.hunks() {
        let [a, b] = [hunk.before, hunk.after].map(|r| r.start as usize..r.end as usize);
        if a.start > at_a {
            found.push(Stretch::Same { a: at_a..a.start, b: at_b..b.start });
        }
        (at_a, at_b) = (a.end, b.end);
        found.push(Stretch::Differs { a, b });
    }
    if at_a < len_a {
        found.push(Stretch::Same { a: at_a..len_a, b: at_b..len_b });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_cover_both_sequences() {
        let of = |a: &str, b: &str| {
            let [a, b] = [a, b].map(|text| text.chars().collect::<Vec<_>>());
            stretches(a.iter(), b.iter())
        };
        assert_eq!(of("", ""), []);
        assert_eq!(of("abc", "abc"), [Stretch::Same { a: 0..3, b: 0..3 }]);
        assert_eq!(of("", "ab"), [Stretch::Differs { a: 0..0, b: 0..2 }]);
        let replaced = [
            Stretch::Same { a: 0..1, b: 0..1 },
            Stretch::Differs { a: 1..2, b: 1..3 },
            Stretch::Same { a: 2..4, b: 3..5 },
        ];
        assert_eq!(of("abcd", "axycd"), replaced);
    }
}
