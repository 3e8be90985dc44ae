//! Records that outlive their rings: what of them matters to the collector, owned.
//!
//! Enters: parsed records that borrow from a ring's bytes. Leaves: the same without what nobody needs (mappings of
//! data, threads, unknown types). Never here: state.

use dwell_attribution::Target;
use dwell_profile::{EventIndex, Pid, Tid};

use crate::{
    loss::LossCause,
    records::{Body, Sample},
};

/// A record that outlives its ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A sample of the event with this index.
    Sample(EventIndex, Sample),
    /// The registers of a sample of this event that was counted in the kernel: it tells a branch's direction and counts
    /// nothing.
    Registers(EventIndex, Sample),
    /// The last branches of a thread: they count no sample.
    Branches(Box<RawStack>),
    /// Anything else; rare, so kept aside.
    Side(Box<Side>),
    /// A thread was followed, or began to be single-stepped.
    Burst(Box<RawBurst>),
    /// A watchpoint disturbed a process: its samples until then show that.
    Watched {
        /// The process.
        pid: Pid,
        /// Until when.
        until_ns: u64,
    },
    /// A thread's executions of a few places were counted.
    Window(Box<RawWindow>),
    /// The exits of a loop that a thread was in were watched.
    Exits(Box<RawExits>),
}

/// Branches that a thread took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawStack {
    /// Its process.
    pub pid: Pid,
    /// From where to where, the latest first.
    pub branches: Vec<(u64, u64)>,
}

/// Executions that breakpoints counted in a stretch of a thread's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawWindow {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Samples of it until then show the counting.
    pub until_ns: u64,
    /// By address.
    pub counts: Vec<(u64, u64)>,
}

/// How often a thread left a loop in a stretch of its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawExits {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The counter that the loop has.
    pub counter: crate::counts::pairs::CounterId,
    /// From when …
    pub since_ns: u64,
    /// … until when its samples show the watching.
    pub until_ns: u64,
    /// How long the thread ran meanwhile.
    pub running_ns: u64,
    /// How often control reached an exit.
    pub executions: u64,
}

/// What a thread did while it was single-stepped, or would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawBurst {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Samples of it until then show the stepping. 0: it stood still.
    pub stepped_until_ns: u64,
    /// Where it was before each step, and after the last.
    pub pcs: Vec<u64>,
}

/// A side-band record that outlives its ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// Executable memory was mapped.
    Map {
        /// Whose.
        pid: Pid,
        /// First virtual address.
        start: u64,
        /// Bytes.
        length: u64,
        /// Offset of the first byte in the target.
        file_offset: u64,
        /// What was mapped.
        target: Target,
    },
    /// A process executes a program.
    Exec {
        /// It.
        pid: Pid,
        /// Its new name.
        comm: String,
    },
    /// What a process executes since its last [`Side::Exec`], as entries name it.
    Executable {
        /// It.
        pid: Pid,
        /// [`crate::entries::Place::Executable`]'s `id`.
        id: u64,
    },
    /// A task took a name.
    Comm {
        /// Its process.
        pid: Pid,
        /// Its thread.
        tid: Tid,
        /// The name.
        comm: String,
    },
    /// A thread was born, a process's first included; told where thread names are kept.
    BeginThread {
        /// It.
        tid: Tid,
        /// The process that made it, its own where it is not the first.
        parent_pid: Pid,
        /// The thread that made it.
        parent_tid: Tid,
    },
    /// A thread ended; told where thread names are kept.
    EndThread {
        /// It.
        tid: Tid,
    },
    /// A process was born.
    Fork {
        /// It.
        pid: Pid,
        /// Its parent.
        parent_pid: Pid,
    },
    /// A process's first thread ended.
    Exit {
        /// It.
        pid: Pid,
    },
    /// Samples, or records of any kind, are missing.
    Lost {
        /// The event that says so.
        event: Option<EventIndex>,
        /// How many.
        records: u64,
        /// Why.
        cause: LossCause,
    },
    /// The kernel throttled an event.
    Throttle {
        /// It.
        event: Option<EventIndex>,
    },
}

impl Side {
    /// The process that it tells something of.
    pub fn pid(&self) -> Option<Pid> {
        match self {
            Side::Map { pid, .. }
            | Side::Exec { pid, .. }
            | Side::Executable { pid, .. }
            | Side::Comm { pid, .. }
            | Side::Fork { pid, .. }
            | Side::Exit { pid } => Some(*pid),
            Side::BeginThread { .. } | Side::EndThread { .. } | Side::Lost { .. } | Side::Throttle { .. } => {
                None
            }
        }
    }
}

impl Item {
    /// The part of a record that matters here.
    pub fn from_body(event: Option<EventIndex>, body: Body<'_>) -> Option<Item> {
        let side = match body {
            Body::Sample(sample) => return Some(Item::Sample(event?, sample)),
            Body::Branches(stack) => {
                let raw = RawStack { pid: stack.pid, branches: stack.taken().collect() };
                return Some(Item::Branches(Box::new(raw)));
            }
            Body::Mmap(m) if m.executable => Side::Map {
                pid: m.pid,
                start: m.start,
                length: m.length,
                file_offset: m.file_offset,
                target: Target::named(m.path, m.file),
            },
            Body::Comm { pid, exec: true, comm, .. } => Side::Exec { pid, comm: lossy(comm) },
            Body::Comm { pid, tid, comm, .. } => Side::Comm { pid, tid, comm: lossy(comm) },
            Body::Fork { pid, parent_pid, .. } if pid != parent_pid => Side::Fork { pid, parent_pid },
            Body::Exit { pid, tid } if tid.is_first_of(pid) => Side::Exit { pid },
            Body::Lost(records) | Body::LostSamples(records) => {
                Side::Lost { event, records, cause: LossCause::RingFull }
            }
            Body::Throttle => Side::Throttle { event },
            _ => return None,
        };
        Some(Item::Side(Box::new(side)))
    }
}

impl Item {
    /// What a record tells of threads, which matters where their names are kept.
    pub fn of_thread(body: &Body<'_>) -> Option<Item> {
        let side = match *body {
            Body::Fork { tid, parent_pid, parent_tid, .. } => {
                Side::BeginThread { tid, parent_pid, parent_tid }
            }
            Body::Exit { tid, .. } => Side::EndThread { tid },
            _ => return None,
        };
        Some(Item::Side(Box::new(side)))
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
