//! A cache of values that take long to compute. It is bounded by their size and drops the least recently used ones.
//!
//! Input: a function that computes a value, and the value's size. Output: the value, shared. No value is computed while a
//! lock is held that other threads need.

use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

/// A least-recently-used cache, bounded by the total size of its values.
pub struct LruCache<K, T> {
    slots: Mutex<FxHashMap<K, Slot<T>>>,
    /// Number of look-ups so far. It records when each slot was last used.
    clock: AtomicUsize,
    size: AtomicUsize,
    size_max: usize,
}

struct Slot<T> {
    value: Arc<OnceLock<Arc<T>>>,
    used: usize,
    /// Size of the value; 0 while it is being computed.
    size: usize,
}

impl<K: Hash + Eq + Clone, T> LruCache<K, T> {
    /// Creates an empty cache for values of `size_max` in total, in the unit of the values' sizes.
    pub fn new(size_max: usize) -> Self {
        LruCache { slots: Mutex::default(), clock: AtomicUsize::new(0), size: AtomicUsize::new(0), size_max }
    }

    /// Returns the total size of the values.
    pub fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// Returns the value of `key`. If it is not in the cache, `make` computes it. If several threads look it up at once, one
    /// computes it and the others wait.
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

    /// Returns the value of `key`, if it is in the cache.
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

    /// Adds the size of a new value. If the total is too large, other values are dropped until it is three quarters of the
    /// limit, so that the next value does not exceed it again. The new value stays, even if it alone exceeds the limit.
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

    /// Locks the slots even if a thread panicked while it held the lock: a panic leaves no half-done change behind it.
    fn lock(&self) -> MutexGuard<'_, FxHashMap<K, Slot<T>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::LruCache;

    #[test]
    fn the_least_recently_used_value_is_evicted_first() {
        let cache: LruCache<usize, usize> = LruCache::new(100);
        let read = |key: usize| *cache.get(&key, || key * 10, |_| 30);
        for key in [1, 2, 3] {
            assert_eq!(read(key), key * 10);
        }
        assert_eq!((read(1), cache.size()), (10, 90));
        // One value too many: 2 and 3 are dropped, so that there is room again.
        assert_eq!((read(4), cache.size()), (40, 60));
        assert_eq!(cache.peek(&1).as_deref(), Some(&10));
        assert_eq!((cache.peek(&2), cache.peek(&3)), (None, None));
    }

    #[test]
    fn an_oversized_value_stays_until_the_next_insertion() {
        let cache: LruCache<u8, u8> = LruCache::new(100);
        cache.get(&1, || 1, |_| 500);
        assert_eq!((cache.peek(&1).as_deref(), cache.size()), (Some(&1), 500));
        cache.get(&2, || 2, |_| 10);
        assert_eq!((cache.peek(&1), cache.size()), (None, 10));
    }

    #[test]
    fn concurrent_requests_compute_a_value_once() {
        let cache: LruCache<u8, u8> = LruCache::new(100);
        let made = std::sync::atomic::AtomicUsize::new(0);
        let make = || made.fetch_add(1, std::sync::atomic::Ordering::Relaxed) as u8;
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| cache.get(&1, make, |_| 1));
            }
        });
        assert_eq!((made.load(std::sync::atomic::Ordering::Relaxed), cache.size()), (1, 1));
    }
}
