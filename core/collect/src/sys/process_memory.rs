//! Reads words of another process's memory without stopping it, and the CPU time of the calling thread.
//!
//! Enters: a process and addresses of words. Leaves: their values. Never here: which words.

use std::{io, time::Duration};

use dwell_profile::{Pid, VirtualAddress};

/// Reads words of 4 or 8 bytes in one call. A word whose page is not mapped reads as `None`. Returns an error if the process
/// has ended or may not be read.
pub fn read_words(pid: Pid, words: &[(VirtualAddress, u8)]) -> io::Result<Vec<Option<u64>>> {
    let mut values = vec![0_u64; words.len()];
    let mut read = vec![None; words.len()];
    let mut from = 0;
    while from < words.len() {
        let local: Vec<libc::iovec> = values[from..]
            .iter_mut()
            .zip(&words[from..])
            .map(|(value, (_, size))| libc::iovec {
                iov_base: (&raw mut *value).cast(),
                iov_len: usize::from((*size).min(8)),
            })
            .collect();
        let remote: Vec<libc::iovec> = words[from..]
            .iter()
            .map(|(address, size)| libc::iovec {
                iov_base: address.0 as usize as *mut libc::c_void,
                iov_len: usize::from((*size).min(8)),
            })
            .collect();
        // SAFETY: each local vector lies in a live u64 of `values` and has at most its size; the remote ones are addresses in
        // the other process, which the kernel checks.
        let count = unsafe {
            libc::process_vm_readv(
                pid.0 as libc::pid_t,
                local.as_ptr(),
                local.len() as libc::c_ulong,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        let mut left = match usize::try_from(count) {
            Ok(bytes) => bytes,
            Err(_) => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EFAULT) => 0, // The first word is not mapped.
                error => return Err(error),
            },
        };
        let mut at = from;
        while at < words.len() && left >= usize::from(words[at].1.min(8)) {
            left -= usize::from(words[at].1.min(8));
            read[at] = Some(values[at]);
            at += 1;
        }
        from = at + 1; // The call ended at an unmapped word, or at the end.
    }
    Ok(read)
}

/// Makes the calling thread wake at the requested time, instead of up to 50 µs later together with others.
pub fn wake_in_time() {
    // SAFETY: the call takes numbers only; where it fails, the thread wakes later.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_u64, 0, 0, 0) };
}

/// Returns the CPU time of the calling thread.
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_words_are_read() {
        let words = [7_u64, u64::MAX, 9];
        let address = |at: usize| (&raw const words[at]) as u64;
        let requested = [(address(0), 8), (16, 8), (address(1), 4), (24, 4), (address(2), 8), (32, 8)];
        let requested = requested.map(|(address, size)| (VirtualAddress(address), size));
        let read = read_words(Pid(std::process::id()), &requested).unwrap();
        assert_eq!(read, [Some(7), None, Some(0xffff_ffff), None, Some(9), None]);
        assert_eq!(read_words(Pid(std::process::id()), &[]).unwrap(), []);
        assert!(read_words(Pid(u32::MAX / 2), &requested).is_err());
    }
}
