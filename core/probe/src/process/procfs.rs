//! What `/proc` says of a process and its threads.
//!
//! Enters: ids. Leaves: mappings, states, signal masks, and where blocked threads continue. Reading it stops nobody.

use std::{fs, io};

use dwell_collect::Signals;
use dwell_profile::{Pid, Tid, VirtualAddress};

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: VirtualAddress,
    /// Address behind the last byte.
    pub end: VirtualAddress,
    /// Offset in the file of the first byte.
    pub offset: u64,
    /// Whether it may be written.
    pub is_writable: bool,
    /// Whether it may be executed.
    pub is_executable: bool,
    /// Device and inode of the file, as text; `None` for anonymous memory.
    pub file: Option<String>,
    /// The path of the file, or a name such as `[vdso]`; may be empty.
    pub path: String,
}

impl Mapping {
    /// Returns whether an address is in it.
    pub fn contains(&self, address: VirtualAddress) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.end.bytes_since(self.start)
    }
}

/// Returns the mappings of a process, ascending.
pub fn mappings(pid: Pid) -> io::Result<Vec<Mapping>> {
    Ok(parse_mappings(&fs::read_to_string(format!("/proc/{pid}/maps"))?))
}

fn parse_mappings(text: &str) -> Vec<Mapping> {
    let parse = |line: &str| {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let access = fields.next()?;
        let offset = fields.next()?;
        let (device, inode) = (fields.next()?, fields.next()?);
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Mapping {
            start: VirtualAddress(number(start)?),
            end: VirtualAddress(number(end)?),
            offset: number(offset)?,
            is_writable: access.contains('w'),
            is_executable: access.contains('x'),
            file: (inode != "0").then(|| format!("{device} {inode}")),
            path: fields.next().unwrap_or("").trim_start().to_owned(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Returns the threads of a process.
pub fn threads(pid: Pid) -> io::Result<Vec<Tid>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// What a file `status` says of a thread.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The letter of its state: `R`, `S`, `D`, `T`, `t`, `Z`, ….
    pub state: char,
    /// The process that traces it, or 0.
    pub tracer: u32,
    /// 0: no seccomp, 1: strict, 2: a filter.
    pub seccomp: u32,
    /// The thread's signals.
    pub signals: Signals,
    /// Whether it has a shadow stack.
    pub has_shadow_stack: bool,
}

/// Reads the status of a thread; `None` if there is none.
pub fn status(pid: Pid, tid: Tid) -> Option<Status> {
    Some(parse_status(&fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?))
}

fn parse_status(text: &str) -> Status {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map_or("", str::trim)
    };
    Status {
        state: field("State").chars().next().unwrap_or('?'),
        tracer: field("TracerPid").parse().unwrap_or(0),
        seccomp: field("Seccomp").parse().unwrap_or(0),
        signals: Signals::parse(text),
        has_shadow_stack: field("x86_Thread_features").split(' ').any(|feature| feature == "shstk"),
    }
}

/// Returns the process of a thread, and that one's parent.
pub fn process_of(tid: Tid) -> Option<(Pid, Pid)> {
    let text = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line?.trim().parse().ok().map(Pid)
    };
    Some((field("Tgid")?, field("PPid")?))
}

/// Returns whether a thread has ended, even if nobody has waited for it yet.
pub fn has_ended(pid: Pid, tid: Tid) -> bool {
    status(pid, tid).is_none_or(|status| matches!(status.state, 'Z' | 'X'))
}

/// Returns whether all threads of a process have ended.
pub fn is_over(pid: Pid) -> bool {
    threads(pid).map_or(true, |threads| threads.into_iter().all(|tid| has_ended(pid, tid)))
}

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// On a CPU, or about to be.
    Running,
    /// Blocked in a system call; it continues at `pc`.
    InCall {
        /// Number of the system call.
        number: i64,
        /// Its first six arguments.
        arguments: [u64; 6],
        /// Address of the instruction after the call.
        pc: u64,
        /// Its stack pointer.
        stack_pointer: u64,
    },
    /// Blocked outside of a system call, in a page fault for example; it continues at `pc`.
    Blocked {
        /// Address of the next instruction.
        pc: u64,
        /// Its stack pointer.
        stack_pointer: u64,
    },
}

/// Returns where a thread is; `None` if there is none, or if it may not be traced.
pub fn position(pid: Pid, tid: Tid) -> Option<Position> {
    parse_position(&fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?)
}

fn parse_position(text: &str) -> Option<Position> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    match fields[..] {
        ["running"] => Some(Position::Running),
        ["-1", sp, pc] => Some(Position::Blocked { pc: number(pc)?, stack_pointer: number(sp)? }),
        [call, a, b, c, d, e, f, sp, pc] => {
            let mut arguments = [0; 6];
            for (argument, text) in arguments.iter_mut().zip([a, b, c, d, e, f]) {
                *argument = number(text)?;
            }
            Some(Position::InCall {
                number: call.parse().ok()?,
                arguments,
                pc: number(pc)?,
                stack_pointer: number(sp)?,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_parsed() {
        let text = "55d0-55e0 r-xp 00001000 fe:00 42                         /usr/bin/a b\n\
                    7f00-7f10 rw-s 00000000 00:01 7   /memfd:x (deleted)\n7f10-7f20 ---p 00000000 00:00 0 \nbad";
        let parsed = parse_mappings(text);
        assert_eq!(parsed.len(), 3);
        assert_eq!((parsed[0].start.0, parsed[0].end.0, parsed[0].offset), (0x55d0, 0x55e0, 0x1000));
        assert!(parsed[0].is_executable && !parsed[0].is_writable && parsed[0].path == "/usr/bin/a b");
        assert_eq!(parsed[0].file.as_deref(), Some("fe:00 42"));
        assert_eq!((parsed[1].path.as_str(), &parsed[2].file), ("/memfd:x (deleted)", &None));
    }

    #[test]
    fn positions_are_parsed() {
        assert_eq!(parse_position("running\n"), Some(Position::Running));
        assert_eq!(
            parse_position("-1 0x7ffc 0x4010\n"),
            Some(Position::Blocked { pc: 0x4010, stack_pointer: 0x7ffc })
        );
        let call = parse_position("232 0x3 0x7f 0x40 0xffffffffffffffff 0x0 0x0 0x7ffe 0x7f12");
        let arguments = [3, 0x7f, 0x40, u64::MAX, 0, 0];
        assert_eq!(
            call,
            Some(Position::InCall { number: 232, arguments, pc: 0x7f12, stack_pointer: 0x7ffe })
        );
        assert_eq!(parse_position(""), None);
    }

    #[test]
    fn own_status_is_read() {
        let pid = Pid(std::process::id());
        let tid = threads(pid).unwrap()[0];
        let status = status(pid, tid).unwrap();
        assert!("RS".contains(status.state) && status.tracer == 0, "{status:?}");
        assert!(mappings(pid).unwrap().iter().any(|mapping| mapping.is_executable));
    }
}
