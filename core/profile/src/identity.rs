//! Typed identities: processes, threads, CPUs and sampled events by number.
//!
//! Enters: numbers as the kernel writes them. Leaves: a value with a type for each kind of number, so that they cannot
//! be mixed up. Never here: what a process, thread, CPU or event is doing.

use std::{fmt, num::ParseIntError, str::FromStr};

use serde::{Deserialize, Serialize};

/// A process by its number: what the kernel calls a thread group (`tgid`). The number is reused after the process has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Pid(pub u32);

/// A thread by its number: what the kernel calls a task (`pid`). The first thread of a process has the process's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Tid(pub u32);

/// A logical CPU by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct CpuId(pub u32);

/// A sampled event by its position in the list of events that a collection samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct EventIndex(pub u8);

impl Pid {
    /// The idle task of every CPU, which the kernel reports as process 0.
    pub const IDLE: Pid = Pid(0);
    /// The process that the kernel reports for a task that has already ended.
    pub const ENDED: Pid = Pid(u32::MAX);

    /// Returns the first thread of the process, which has the same number.
    pub fn first_thread(self) -> Tid {
        Tid(self.0)
    }
}

impl Tid {
    /// Returns whether this is the first thread of `pid`. The kernel reports the end of that thread as the end of the
    /// process.
    pub fn is_first_of(self, pid: Pid) -> bool {
        self.0 == pid.0
    }
}

impl EventIndex {
    /// Returns the position as an index into a slice.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pid {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Pid)
    }
}

impl FromStr for Tid {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Tid)
    }
}
