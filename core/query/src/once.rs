//! A value that is computed once, even if several threads request it at the same time.

use std::sync::{Mutex, OnceLock, PoisonError};

/// A cell that is empty or contains the computed value. While one thread computes the value, the others wait. A failed
/// attempt leaves the cell empty for the next one.
pub struct Once<T> {
    value: OnceLock<T>,
    /// Held by the thread that computes the value. The lock guards no other data.
    computing: Mutex<()>,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Once { value: OnceLock::new(), computing: Mutex::new(()) }
    }
}

impl<T> Once<T> {
    /// Returns the value. If the cell is empty, `make` computes the value first.
    pub fn get_or_try<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        match self.value.get() {
            Some(value) => Ok(value),
            None => make().map(|value| self.value.get_or_init(|| value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Once;

    #[test]
    fn concurrent_requests_compute_once() {
        let (once, made) = (Once::default(), AtomicUsize::new(0));
        assert_eq!(once.get_or_try(|| Err::<u32, _>("no")), Err("no"));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let value = once.get_or_try(|| {
                        made.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, ()>(7)
                    });
                    assert_eq!(value, Ok(&7));
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }
}
