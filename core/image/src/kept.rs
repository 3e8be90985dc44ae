//! What is dear to make, kept while it is used and there is room.
//!
//! Enters: what makes a value, and how large it is. Leaves: the value, shared. Never here: a value that is made while a
//! lock is held that others need.

use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

/// Values by key; beyond a total size, those that were not used for longest go.
pub struct Kept<K, T> {
    slots: Mutex<FxHashMap<K, Slot<T>>>,
    /// Counts look-ups: when a slot was used.
    clock: AtomicUsize,
    size: AtomicUsize,
    size_max: usize,
}

struct Slot<T> {
    value: Arc<OnceLock<Arc<T>>>,
    used: usize,
    /// 0 while it is being made.
    size: usize,
}

impl<K: Hash + Eq + Clone, T> Kept<K, T> {
    /// Keeps values of `size_max` together, in whatever unit sizes are.
    pub fn new(size_max: usize) -> Self {
        Kept { slots: Mutex::default(), clock: AtomicUsize::new(0), size: AtomicUsize::new(0), size_max }
    }

    /// The size of what is kept.
    pub fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// The value of `key`; made by `make` unless it is there. Of several who ask at once one makes it, the others wait.
    pub fn get(&self, key: &K, make: impl FnOnce() -> T, size: impl Fn(&T) -> usize) -> Arc<T> {
        let slot = self.slot(key);
        let mut made = false;
        let value = slot.get_or_init(|| {
            made = true;
            Arc::new(make())
        });
        if made {
            self.account(key, size(value));
        }
        value.clone()
    }

    /// The value of `key`, if it is there.
    pub fn peek(&self, key: &K) -> Option<Arc<T>> {
        self.lock().get(key)?.value.get().cloned()
    }

    fn slot(&self, key: &K) -> Arc<OnceLock<Arc<T>>> {
        let used = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut slots = self.lock();
        if let Some(slot) = slots.get_mut(key) {
            slot.used = used;
            return slot.value.clone();
        }
        let value = Arc::new(OnceLock::new());
        slots.insert(key.clone(), Slot { value: value.clone(), used, size: 0 });
        value
    }

    /// Counts a value that was made, and lets others go where it is too much: some at once, so that it is not soon too
    /// much again, and never the one that was just made, which alone may be larger than all should be.
    fn account(&self, key: &K, size: usize) {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(key) else { return };
        slot.size = size;
        let mut all = self.size.load(Ordering::Relaxed) + size;
        if all > self.size_max {
            let mut by_use: Vec<(usize, K)> = slots.iter().map(|(key, s)| (s.used, key.clone())).collect();
            by_use.sort_unstable_by_key(|(used, _)| *used);
            for (_, oldest) in by_use.iter().filter(|(_, oldest)| oldest != key) {
                if all <= self.size_max / 4 * 3 {
                    break;
                }
                all -= slots.remove(oldest).map_or(0, |s| s.size);
            }
        }
        self.size.store(all, Ordering::Relaxed);
    }

    /// A panic elsewhere leaves nothing half-done behind this lock.
    fn lock(&self) -> MutexGuard<'_, FxHashMap<K, Slot<T>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Kept;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let kept: Kept<usize, usize> = Kept::new(100);
        let read = |key: usize| *kept.get(&key, || key * 10, |_| 30);
        for key in [1, 2, 3] {
            assert_eq!(read(key), key * 10);
        }
        assert_eq!((read(1), kept.size()), (10, 90));
        // One too many: 2 and 3 go, so that there is room again.
        assert_eq!((read(4), kept.size()), (40, 60));
        assert_eq!(kept.peek(&1).as_deref(), Some(&10));
        assert_eq!((kept.peek(&2), kept.peek(&3)), (None, None));
    }

    #[test]
    fn a_value_larger_than_all_should_be_stays_until_the_next() {
        let kept: Kept<u8, u8> = Kept::new(100);
        kept.get(&1, || 1, |_| 500);
        assert_eq!((kept.peek(&1).as_deref(), kept.size()), (Some(&1), 500));
        kept.get(&2, || 2, |_| 10);
        assert_eq!((kept.peek(&1), kept.size()), (None, 10));
    }

    #[test]
    fn of_many_who_ask_one_makes_it() {
        let kept: Kept<u8, u8> = Kept::new(100);
        let made = std::sync::atomic::AtomicUsize::new(0);
        let make = || made.fetch_add(1, std::sync::atomic::Ordering::Relaxed) as u8;
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| kept.get(&1, make, |_| 1));
            }
        });
        assert_eq!((made.load(std::sync::atomic::Ordering::Relaxed), kept.size()), (1, 1));
    }
}
