//! Reads what a thread read from files.
//!
//! Enters: a process, and the system calls that a thread of it made since its release. Leaves: what those that read regular files wrote to
//! memory. Never here: how calls are observed ([`super::calls`]).
//!
//! A program reads one part of a file after the other into the same buffer, within microseconds. So the buffer is no source of what was
//! in it. The file is; its position is known when the thread stands still. We share the program's open file for a moment, and its
//! position does not change.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    os::unix::fs::FileExt,
};

use dwell_profile::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::emulate::calls::{Call, Effect};

const RAX: usize = 0;
const RDI: usize = 7;
/// Most files whose positions are found while a thread stands still.
const FILES_MAX: usize = 8;

/// The files that a process reads.
pub struct Files {
    pid: Pid,
    /// The descriptors from which it read.
    descriptors: BTreeSet<u32>,
    /// Where they stood when the thread was released.
    positions: BTreeMap<u32, u64>,
}

impl Files {
    /// Creates a list of no files.
    pub fn of(pid: Pid) -> Files {
        Files { pid, descriptors: BTreeSet::new(), positions: BTreeMap::new() }
    }

    /// Returns whether these are files of a process.
    pub fn are_of(&self, pid: Pid) -> bool {
        self.pid == pid
    }

    /// Finds the positions of the files that were read before. The thread stands still.
    pub fn find_positions(&mut self) {
        let position = |descriptor: u32| Some((descriptor, self.position(descriptor)?));
        self.positions = self.descriptors.iter().filter_map(|descriptor| position(*descriptor)).collect();
    }

    fn position(&self, descriptor: u32) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/fdinfo/{descriptor}", self.pid)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("pos:"))?.trim().parse().ok()
    }

    /// Returns whether what the call read will be known from a file.
    pub fn have(&self, call: &Call) -> bool {
        call.number == libc::SYS_read as u64 && self.positions.contains_key(&(call.general[RDI] as u32))
    }

    /// Adds to calls, in their order, what they read from files.
    pub fn read<'c>(&mut self, calls: impl Iterator<Item = &'c mut Call>) {
        let mut open: BTreeMap<u32, Option<File>> = BTreeMap::new();
        for call in calls {
            let (descriptor, result) = (call.general[RDI] as u32, call.general[RAX]);
            if (result as i64) < 0 {
                continue;
            }
            match libc::c_long::try_from(call.number) {
                Ok(libc::SYS_read) => {
                    let Effect::Writes(bytes) = Effect::of(call.number, &call.general) else { continue };
                    if self.descriptors.len() < FILES_MAX {
                        self.descriptors.insert(descriptor);
                    }
                    let Some(position) = self.positions.get_mut(&descriptor) else { continue };
                    let file = open.entry(descriptor).or_insert_with(|| shared(self.pid, descriptor));
                    let mut read = vec![0; bytes.length];
                    let is_read =
                        file.as_ref().is_some_and(|file| file.read_exact_at(&mut read, *position).is_ok());
                    call.written = is_read.then_some((bytes.address, read));
                    *position += result;
                }
                Ok(libc::SYS_lseek) if self.positions.contains_key(&descriptor) => {
                    self.positions.insert(descriptor, result);
                }
                Ok(libc::SYS_close) => {
                    self.positions.remove(&descriptor);
                }
                Ok(libc::SYS_open | libc::SYS_openat | libc::SYS_dup) => {
                    self.positions.remove(&(result as u32));
                }
                _ => {}
            }
        }
    }
}

/// Returns a file that a process has open, if it is a regular one: of a pipe or a socket others might notice that it is open for longer.
fn shared(pid: Pid, descriptor: u32) -> Option<File> {
    let is_file = std::fs::metadata(format!("/proc/{pid}/fd/{descriptor}")).is_ok_and(|file| file.is_file());
    let pid = rustix::process::Pid::from_raw(pid.0 as i32)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok().filter(|_| is_file)?;
    Some(File::from(pidfd_getfd(process, descriptor as i32, PidfdGetfdFlags::empty()).ok()?))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Seek, SeekFrom, Write},
        os::fd::AsRawFd,
    };

    use super::*;

    /// Returns a call with this number whose first argument is a descriptor.
    fn call(number: libc::c_long, descriptor: i32, result: u64) -> Call {
        let mut general = [0; 16];
        (general[RAX], general[RDI], general[6]) = (result, descriptor as u64, 0x1000);
        Call { number: number as u64, general, written: None }
    }

    fn written(files: &mut Files, calls: &mut [Call]) -> Vec<Option<Vec<u8>>> {
        files.read(calls.iter_mut());
        calls.iter().map(|call| call.written.as_ref().map(|(_, bytes)| bytes.clone())).collect()
    }

    #[test]
    fn what_was_read_is_known_from_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        file.seek(SeekFrom::Start(2)).unwrap();
        let (mut pipe, _writer) = std::io::pipe().unwrap();
        let [of_file, of_pipe] = [file.as_raw_fd(), pipe.as_raw_fd()];
        let mut files = Files::of(Pid(std::process::id()));
        // At first it is not known which files are read.
        let read = |descriptor, result| call(libc::SYS_read, descriptor, result);
        assert_eq!(written(&mut files, &mut [read(of_file, 3), read(of_pipe, 3)]), [None, None]);
        files.find_positions();
        let mut calls = [
            read(of_file, 3),
            read(of_file, u64::MAX),
            read(of_pipe, 3),
            read(of_file, 2),
            call(libc::SYS_lseek, of_file, 1),
            read(of_file, 2),
            // More than there is, after which nothing is known for sure.
            read(of_file, 20),
            call(libc::SYS_close, of_file, 0),
            read(of_file, 2),
        ];
        assert!(files.have(&calls[0]));
        let known = |bytes: &[u8]| Some(bytes.to_vec());
        let expected = [known(b"234"), None, None, known(b"56"), None, known(b"12"), None, None, None];
        assert_eq!(written(&mut files, &mut calls), expected);
        assert!(!files.have(&calls[0]));
        // The program's own position is as before.
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "23456789");
        drop(_writer);
        assert_eq!(pipe.read(&mut [0]).unwrap(), 0);
    }
}
