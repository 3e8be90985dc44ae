//! Runs where a stopped thread ran.
//!
//! Enters: a CPU. Leaves: nothing. Never here: work.
//!
//! What another CPU reads leaves the caches of the one that wrote it: a thread whose memory was copied from elsewhere is a tenth slower
//! for three milliseconds (docs/measured.md, "Timed bursts"). So we copy it on its own CPU, which is free meanwhile, and go before the
//! thread comes back, since the scheduler would give it another CPU otherwise.

use std::mem;

/// The calling thread on the CPU of a stopped one. When dropped it may run again wherever it might before.
pub struct Place {
    cpu: usize,
    before: libc::cpu_set_t,
}

impl Place {
    /// Goes to that CPU. Returns `None` if that is not possible.
    pub fn take(cpu: usize) -> Option<Place> {
        let place = Place { cpu, before: allowed()? };
        // SAFETY: zeros are an empty set; a larger number is not added.
        let only = unsafe {
            let mut only: libc::cpu_set_t = mem::zeroed();
            if cpu < 8 * size_of::<libc::cpu_set_t>() {
                libc::CPU_SET(cpu, &mut only);
            }
            only
        };
        allow(&only).then_some(place)
    }

    /// Goes elsewhere, if there is another CPU.
    pub fn leave(&self) {
        let mut others = self.before;
        // SAFETY: the number was in a set, so it is not too large.
        unsafe { libc::CPU_CLR(self.cpu, &mut others) };
        allow(&others);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        allow(&self.before);
    }
}

/// Returns the CPUs that the calling thread may run on.
fn allowed() -> Option<libc::cpu_set_t> {
    // SAFETY: the kernel writes at most its size to the live set, for which zeros are valid.
    unsafe {
        let mut cpus: libc::cpu_set_t = mem::zeroed();
        (libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut cpus) == 0).then_some(cpus)
    }
}

fn allow(cpus: &libc::cpu_set_t) -> bool {
    // SAFETY: the set is live.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), cpus) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_goes_to_a_cpu_and_may_go_everywhere_afterwards() {
        // SAFETY: takes no pointer.
        let here = || unsafe { libc::sched_getcpu() } as usize;
        // SAFETY: the set is live.
        let count = |cpus: &libc::cpu_set_t| unsafe { libc::CPU_COUNT(cpus) };
        let before = allowed().unwrap();
        let target = here();
        let place = Place::take(target).unwrap();
        assert_eq!((here(), count(&allowed().unwrap())), (target, 1));
        place.leave();
        assert!(count(&before) == 1 || here() != target);
        drop(place);
        // SAFETY: both sets are live.
        assert!(unsafe { libc::CPU_EQUAL(&allowed().unwrap(), &before) });
        assert!(Place::take(usize::MAX).is_none());
    }
}
