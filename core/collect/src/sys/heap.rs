//! Keeps the process's memory small: a daemon should hold what it needs now, not what it needed once.
//!
//! glibc keeps an arena for each thread, raises its thresholds to the largest block that was ever freed, and returns no
//! memory below the top. With other allocators these functions do nothing.

/// Uses one arena, and returns large blocks to the system at once. Call it before threads are started.
pub fn keep_small() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in
        [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, 64 << 10), (libc::M_TRIM_THRESHOLD, 64 << 10)]
    {
        // SAFETY: it only sets parameters of the allocator; it may be called at any time.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Uses one arena, and returns large blocks to the system when they are freed, whatever sizes were freed before. This is for
/// a command, whose peak matters. Call it before threads are started.
pub fn keep_peak_small() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, 256 << 10),
        // Memory that is returned at once must also be cleared again at once: 40,000 page faults in a `top` of a million
        // samples.
        (libc::M_TRIM_THRESHOLD, 4 << 20),
    ] {
        // SAFETY: it only sets parameters of the allocator; it may be called at any time.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Returns free memory to the system.
pub fn give_back() {
    // SAFETY: it takes the allocator's own locks, and no pointer of ours is concerned.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Releases the pages of code and constants that are in memory. Those in use come back by themselves from the page cache.
/// Starting up, loading BPF programs and compressing use code that is not needed for long afterwards.
pub fn give_back_code() {
    /// # Safety
    /// As `dl_iterate_phdr` calls it.
    unsafe extern "C" fn each(
        object: *mut libc::dl_phdr_info,
        _: libc::size_t,
        _: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the loader hands out a description of a loaded object, valid during the call.
        let (object, headers) = unsafe {
            let object = &*object;
            (object, std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)))
        };
        let page = rustix::param::page_size();
        for header in headers {
            let start = (object.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            let (first, end) = (start.next_multiple_of(page), start.wrapping_add(header.p_memsz as usize));
            let is_file = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0;
            if is_file && end > first {
                // SAFETY: these are whole pages of a file's mapping that could not be written to since it was mapped.
                // Dropped pages are read from the file again.
                unsafe {
                    libc::madvise(
                        first as *mut libc::c_void,
                        (end - first) & !(page - 1),
                        libc::MADV_DONTNEED,
                    )
                };
            }
        }
        0
    }
    // SAFETY: the callback keeps nothing, and takes no pointer of ours.
    unsafe { libc::dl_iterate_phdr(Some(each), std::ptr::null_mut()) };
}
