//! A file descriptor that the parent process left open for this one.

use std::{
    fs::File,
    io,
    os::fd::{FromRawFd, RawFd},
};

/// Takes over a descriptor by its number, and closes it in programs that this process executes. Call it once for a number,
/// before anything else is opened.
///
/// # Errors
///
/// The descriptor is a standard stream (0 to 2), or is not open.
pub fn take(fd: RawFd) -> io::Result<File> {
    if fd <= libc::STDERR_FILENO {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: fcntl takes any number and reports one that is not open.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and nothing else here owns it, since it was open when this process began.
    Ok(unsafe { File::from_raw_fd(fd) })
}
