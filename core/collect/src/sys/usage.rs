//! CPU time of this process, in user mode and in the kernel.

use std::time::Duration;

/// Returns the CPU time of this process since it began: in user mode, and in the kernel.
pub fn cpu_time() -> (Duration, Duration) {
    // SAFETY: an all-zero rusage is a valid value of that plain struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writes of its size. It cannot fail with these arguments; zeros if it did.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let duration =
        |t: libc::timeval| Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64);
    (duration(usage.ru_utime), duration(usage.ru_stime))
}
