//! Finds the numbers of the kernel's tracepoints.
//!
//! Enters: the name of a tracepoint. Leaves: the number by which an event of it is opened. Never here: such events ([`super::event`]).
//!
//! The numbers are files of the tracing file system. Where it is not mounted, as in most containers, it is attached to no folder, so nobody
//! else sees it.

use std::{
    io::{self, Read},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

/// Where it is usually mounted, and was before Linux 4.1.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Returns the number of a tracepoint, for example of `raw_syscalls/sys_exit`. Needs permission to see the tracing file system.
pub fn id(name: &str) -> io::Result<u64> {
    let file = Path::new("events").join(name).join("id");
    let mounted =
        MOUNTED.iter().find_map(|folder| std::fs::read_to_string(Path::new(folder).join(&file)).ok());
    let text = match mounted {
        Some(text) => text,
        None => read(&unattached()?, &file)?,
    };
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Returns the tracing file system, which is attached to no folder.
fn unattached() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?)
}

fn read(folder: &OwnedFd, file: &Path) -> io::Result<String> {
    let opened = openat(folder, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    std::fs::File::from(opened).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracepoints_have_numbers() {
        let numbers = ["raw_syscalls/sys_enter", "raw_syscalls/sys_exit"].map(|name| id(name).unwrap());
        assert!(numbers[0] > 0 && numbers[0] != numbers[1]);
        assert_eq!(id("raw_syscalls/none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
