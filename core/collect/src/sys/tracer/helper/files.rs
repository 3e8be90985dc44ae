//! Reads what a thread read from files.
//!
//! Enters: a process, and the system calls that a thread of it makes after its release. Leaves: what those that read regular files
//! wrote to memory. Never here: how calls are observed ([`super::calls`]).
//!
//! A program reads one part of a file after the other into the same buffer, within microseconds. So the buffer is no source of what was
//! in it. The file is; its position is known when the thread stands still, or opens it. We share the program's open file for some
//! microseconds after a call, since it may be closed soon, and its position does not change.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, MetadataExt},
    },
};

use dwell_profile::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::emulate::calls::{BYTES_MAX, Call};

const RAX: usize = 0;
const RSI: usize = 6;
const RDI: usize = 7;
const R10: usize = 10;
/// Most files whose positions are found while a thread stands still.
const FILES_MAX: usize = 8;

/// The files that a process reads.
pub struct Files {
    pid: Pid,
    /// The process, once it was needed.
    process: Option<OwnedFd>,
    /// The descriptors from which it read.
    descriptors: BTreeSet<u32>,
    /// These are the positions of files after the calls that were noted.
    positions: BTreeMap<u32, u64>,
}

impl Files {
    /// Creates a list of no files.
    pub fn of(pid: Pid) -> Files {
        Files { pid, process: None, descriptors: BTreeSet::new(), positions: BTreeMap::new() }
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

    /// Notes the next call of the thread, soon after it returned. Adds to it what it read from a file, if that is known.
    pub fn note(&mut self, call: &mut Call) {
        let result = call.general[RAX];
        let Ok(number) = libc::c_long::try_from(call.number) else { return };
        if (result as i64) < 0 {
            return;
        }
        let (address, descriptor) = (call.general[RSI], call.general[RDI] as u32);
        match number {
            libc::SYS_read => {
                if self.descriptors.len() < FILES_MAX {
                    self.descriptors.insert(descriptor);
                }
                let Some(position) = self.positions.get(&descriptor).copied() else { return };
                self.positions.insert(descriptor, position + result);
                call.written = self.bytes(descriptor, position, result).map(|bytes| (address, bytes));
            }
            libc::SYS_pread64 => {
                let bytes = self.bytes(descriptor, call.general[R10], result);
                call.written = bytes.map(|bytes| (address, bytes));
            }
            libc::SYS_lseek if self.positions.contains_key(&descriptor) => {
                self.positions.insert(descriptor, result);
            }
            libc::SYS_close => {
                self.positions.remove(&descriptor);
            }
            libc::SYS_open | libc::SYS_openat => {
                self.positions.insert(result as u32, 0);
            }
            libc::SYS_dup => {
                self.positions.remove(&(result as u32));
            }
            libc::SYS_dup2 | libc::SYS_dup3 => {
                self.positions.remove(&(address as u32));
            }
            _ => {}
        }
    }

    /// Returns bytes of a file; `None` if there are fewer, or if they are too many.
    fn bytes(&mut self, descriptor: u32, position: u64, length: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length).ok().filter(|length| *length <= BYTES_MAX)?];
        self.shared(descriptor)?.read_exact_at(&mut bytes, position).ok()?;
        Some(bytes)
    }

    /// Returns a file that the process has open, if it is a regular one with data: of a pipe or a socket others might notice that it is open
    /// for longer, and to read a file of the kernel may change something.
    fn shared(&mut self, descriptor: u32) -> Option<File> {
        let file = std::fs::metadata(format!("/proc/{}/fd/{descriptor}", self.pid)).ok()?;
        if !file.is_file() || file.blocks() == 0 {
            return None;
        }
        if self.process.is_none() {
            let pid = rustix::process::Pid::from_raw(self.pid.0 as i32)?;
            self.process = Some(pidfd_open(pid, PidfdFlags::empty()).ok()?);
        }
        let process = self.process.as_ref()?;
        Some(File::from(pidfd_getfd(process, descriptor as i32, PidfdGetfdFlags::empty()).ok()?))
    }
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

    fn offset(mut call: Call, offset: u64) -> Call {
        call.general[R10] = offset;
        call
    }

    fn written(files: &mut Files, calls: &mut [Call]) -> Vec<Option<Vec<u8>>> {
        calls.iter_mut().for_each(|call| files.note(call));
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
            call(libc::SYS_openat, libc::AT_FDCWD, of_file as u64),
            read(of_file, 3),
            offset(call(libc::SYS_pread64, of_file, 2), 4),
        ];
        let known = |bytes: &[u8]| Some(bytes.to_vec());
        let expected = [known(b"234"), None, None, known(b"56"), None, known(b"12"), None, None, None];
        let opened = [None, known(b"012"), known(b"45")];
        assert_eq!(written(&mut files, &mut calls), [&expected[..], &opened].concat());
        let status = File::open("/proc/self/status").unwrap();
        assert_eq!(
            written(&mut files, &mut [offset(call(libc::SYS_pread64, status.as_raw_fd(), 2), 0)]),
            [None]
        );
        // The program's own position is as before.
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "23456789");
        drop(_writer);
        assert_eq!(pipe.read(&mut [0]).unwrap(), 0);
    }
}
