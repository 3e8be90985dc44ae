//! Which pages of memory threads accessed lately.
//!
//! Enters: numbers of pages, as threads are emulated. Leaves: those that the next one is likely to access. Never here: what is in them.

use rustc_hash::{FxHashMap, FxHashSet};

/// Most pages that are copied at once: 6 MiB, in about a millisecond.
const PAGES_MAX: usize = 1536;
/// Number of threads after which a page that none of them accessed is forgotten.
const THREADS_MAX: u32 = 32;
/// Number of pages that are copied after each one that was written to, since programs fill memory upward; and on both
/// sides of those that pointers lead to.
const PAGES_AFTER: u64 = 4;
const PAGES_AROUND: u64 = 1;
/// Greatest distance of pages that are near others, and most of them.
const NEAR: u64 = 16;
const NEAR_MAX: usize = 4096;

/// Pages by number, with the number of the last emulated thread that accessed each.
#[derive(Default)]
pub struct RecentPages {
    thread: u32,
    accessed: FxHashMap<u64, u32>,
    written: FxHashMap<u64, u32>,
}

impl RecentPages {
    /// Begins another thread.
    pub fn begin(&mut self) {
        let thread = self.thread;
        self.accessed.retain(|_, last| thread - *last < THREADS_MAX);
        self.written.retain(|_, last| thread - *last < THREADS_MAX);
        self.thread += 1;
    }

    /// Notes that the thread accesses a page.
    pub fn note(&mut self, page: u64, is_written: bool) {
        self.accessed.insert(page, self.thread);
        if is_written {
            self.written.insert(page, self.thread);
        }
    }

    /// Returns whether a page was written to lately.
    pub fn was_written(&self, page: u64) -> bool {
        self.written.contains_key(&page)
    }

    /// Returns pages that the last thread accessed, in order.
    pub fn accessed_last(&self) -> Vec<u64> {
        first(self.accessed.iter().filter(|(_, last)| **last == self.thread).map(|(page, _)| *page).collect())
    }

    /// Returns pages that were accessed lately, in order; those that were written to before others, if there are too many.
    pub fn all(&self) -> Vec<u64> {
        let age = |(page, last): (&u64, &u32)| (!self.written.contains_key(page), self.thread - last, *page);
        let mut by_age: Vec<(bool, u32, u64)> = self.accessed.iter().map(age).collect();
        by_age.sort_unstable();
        first(by_age.into_iter().take(PAGES_MAX).map(|(.., page)| page).collect())
    }

    /// Returns pages after those that the thread has written to, and around those to which it has pointers, in order.
    pub fn next(&self, pointers: &[u64]) -> Vec<u64> {
        let written = self.written.iter().filter(|(_, last)| **last == self.thread);
        let after = written.flat_map(|(page, _)| *page + 1..=*page + PAGES_AFTER);
        let around = |page: &u64| page.saturating_sub(PAGES_AROUND)..=page.saturating_add(PAGES_AROUND);
        first(after.chain(pointers.iter().flat_map(around)).collect())
    }

    /// Returns pages near those that were accessed lately, which are not among these; the nearest ones first.
    pub fn near(&self) -> Vec<u64> {
        let mut accessed: Vec<u64> = self.accessed.keys().copied().collect();
        accessed.sort_unstable();
        let mut near = Vec::new();
        let mut known = FxHashSet::default();
        for (distance, page) in
            (1..=NEAR).flat_map(|distance| accessed.iter().map(move |page| (distance, *page)))
        {
            for page in [page.saturating_add(distance), page.saturating_sub(distance)] {
                if near.len() < NEAR_MAX && !self.accessed.contains_key(&page) && known.insert(page) {
                    near.push(page);
                }
            }
        }
        near
    }
}

/// Returns pages in order, each once, and not too many.
fn first(mut pages: Vec<u64>) -> Vec<u64> {
    pages.sort_unstable();
    pages.dedup();
    pages.truncate(PAGES_MAX);
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_forgotten_when_nobody_accesses_them() {
        let mut recent = RecentPages::default();
        [(7, true), (3, false), (7, false)]
            .into_iter()
            .for_each(|(page, written)| recent.note(page, written));
        recent.begin();
        assert!(recent.was_written(7) && !recent.was_written(3));
        recent.note(5, true);
        recent.note(3, false);
        assert_eq!((recent.accessed_last(), recent.all()), (vec![3, 5], vec![3, 5, 7]));
        assert_eq!(recent.next(&[100]), (6..=9).chain(99..=101).collect::<Vec<_>>());
        (0..THREADS_MAX).for_each(|_| recent.begin());
        assert_eq!(recent.all(), [3, 5]);
        recent.begin();
        assert!(recent.all().is_empty() && recent.accessed_last().is_empty());
    }

    #[test]
    fn the_oldest_pages_are_left_out() {
        let mut recent = RecentPages::default();
        recent.note(0, true);
        recent.begin();
        (1..=PAGES_MAX as u64).for_each(|page| recent.note(page, page != 9));
        let all = |left_out| (0..=PAGES_MAX as u64).filter(|page| *page != left_out).collect::<Vec<_>>();
        assert_eq!(recent.all(), all(9));
        recent.note(9, true);
        assert_eq!(recent.all(), all(0));
    }
}
