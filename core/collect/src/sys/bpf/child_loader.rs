//! Loads a BPF program in a separate process, which then ends. The kernel's types take 17 MB while they are read, more than
//! everything else of a collector.
//!
//! Enters: a function that loads. Leaves: the descriptors that it created, taken over from the child. Never here: what they
//! are; a wait without an end. If this is impossible (no permission to take descriptors over), the caller loads in its own
//! process.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pipe::{PipeFlags, pipe_with},
    process::{
        Pid, PidfdFlags, PidfdGetfdFlags, Signal, getpid, getppid, kill_process, pidfd_getfd, pidfd_open,
    },
};

/// Time limit of loading. It takes a tenth of a second; if it takes this long, it never ends.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Maximum number of descriptors that are handed over.
const FDS_MAX: usize = 32;

/// A child process. Dropping this kills it and waits for its end.
struct Child(Pid);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
        let mut status = 0;
        // SAFETY: waits for our own child; `status` is valid for writes.
        unsafe { libc::waitpid(self.0.as_raw_nonzero().get(), &mut status, 0) };
    }
}

/// Calls `make` in a child process. Returns the descriptors that it created, or `None` if that failed. `make` returns those
/// that are open in the child.
pub fn load_in_child(make: impl FnOnce() -> Option<Vec<RawFd>>) -> Option<Vec<OwnedFd>> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).ok()?;
    let parent = getpid();
    // SAFETY: the child runs `make`, which takes no lock but the allocator's (glibc's fork takes care of that), and never
    // returns from here.
    match unsafe { libc::fork() } {
        ..0 => None,
        0 => {
            restrict_child(parent, &writer);
            let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(make)).ok().flatten();
            let bytes: Vec<u8> = made.unwrap_or_default().iter().flat_map(|fd| fd.to_ne_bytes()).collect();
            let _ = File::from(writer).write_all(&bytes);
            // The descriptors stay open until the parent has taken them over, and kills us.
            std::thread::sleep(if bytes.is_empty() { Duration::ZERO } else { TIME_MAX });
            // SAFETY: ends the child without what its parent has registered for its own end.
            unsafe { libc::_exit(0) }
        }
        pid => {
            drop(writer);
            let child = Child(Pid::from_raw(pid)?);
            take_over(&child, &File::from(reader))
        }
    }
}

/// Makes the child end with its parent, and closes all its files except the pipe, so that the locks of a killed parent are
/// released at once.
fn restrict_child(parent: Pid, writer: &OwnedFd) {
    let (kept_fd, last) = (writer.as_raw_fd() as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: takes no pointers. In the child, nothing uses a descriptor of the parent except the owner of `writer`.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if getppid() != Some(parent) {
            libc::_exit(0); // The parent ended before the kernel knew.
        }
        if kept_fd > 3 {
            libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, kept_fd - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept_fd.max(2) + 1, last, 0);
    }
}

fn take_over(child: &Child, mut reader: &File) -> Option<Vec<OwnedFd>> {
    let timeout = Timespec { tv_sec: TIME_MAX.as_secs() as i64, tv_nsec: 0 };
    let mut wait = [PollFd::new(reader, PollFlags::IN)];
    if poll(&mut wait, Some(&timeout)).ok()? == 0 {
        return None;
    }
    let mut bytes = [0; FDS_MAX * size_of::<RawFd>()];
    let read = reader.read(&mut bytes).ok()?; // A pipe delivers the bytes of one write in one read.
    let numbers = bytes[..read].as_chunks::<{ size_of::<RawFd>() }>().0;
    let pidfd = pidfd_open(child.0, PidfdFlags::empty()).ok()?;
    let take = |number: &[u8; 4]| {
        pidfd_getfd(pidfd.as_fd(), RawFd::from_ne_bytes(*number), PidfdGetfdFlags::empty()).ok()
    };
    let taken: Option<Vec<OwnedFd>> = numbers.iter().map(take).collect();
    taken.filter(|taken| !taken.is_empty())
}

/// Attaches a loaded program to the tracepoint that it was loaded for, until the descriptor is closed.
pub fn attach_to_tracepoint(program: &OwnedFd) -> std::io::Result<OwnedFd> {
    const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
    /// The fields of `union bpf_attr` for this command.
    #[repr(C)]
    struct Attr {
        name: u64,
        program: u32,
        padding: u32,
        cookie: u64,
    }
    let attr = Attr { name: 0, program: program.as_raw_fd() as u32, padding: 0, cookie: 0 };
    // SAFETY: the kernel reads exactly the passed number of bytes from the pointer, which is live.
    let fd =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_RAW_TRACEPOINT_OPEN, &raw const attr, size_of::<Attr>()) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel has just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_a_child_are_taken_over() {
        let other = File::open("/dev/null").unwrap();
        let made = load_in_child(|| {
            // SAFETY: takes a number only.
            assert_eq!(
                unsafe { libc::fcntl(other.as_raw_fd(), libc::F_GETFD) },
                -1,
                "the parent's files are closed"
            );
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"made").unwrap();
            let fd = file.as_raw_fd();
            std::mem::forget(file);
            Some(vec![fd, fd])
        });
        let Some(made) = made else {
            return eprintln!(
                "SKIPPED descriptors_of_a_child_are_taken_over: no permission to take them over"
            );
        };
        assert_eq!(made.len(), 2);
        assert_eq!(File::from(made.into_iter().next().unwrap()).metadata().unwrap().len(), 4);
        assert!(load_in_child(|| None).is_none());
        assert!(load_in_child(|| panic!("in a child")).is_none());
    }
}
