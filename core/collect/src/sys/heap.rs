//! The C library's heap, kept small: a daemon's memory is what it needs now, not what it once needed.
//!
//! glibc keeps an arena for each thread, raises its thresholds with the largest block that was ever freed, and gives
//! nothing back below the top. Elsewhere nothing is done.

/// One arena, and large blocks to the system at once. To be called before threads are started.
pub fn keep_small() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in
        [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, 64 << 10), (libc::M_TRIM_THRESHOLD, 64 << 10)]
    {
        // SAFETY: it only sets parameters of the allocator; it may be called at any time.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Gives free memory back to the system.
pub fn give_back() {
    // SAFETY: it takes the allocator's own locks, and no pointer of ours is concerned.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}
