//! Owned copies of kernel records, without the fields that the collector does not need.
//!
//! Enters: parsed records that borrow from a ring's bytes. Leaves: owned values that outlive the ring. Records that the
//! collector does not need (mappings of data, threads, unknown types) are left out. Never here: state.

use dwell_attribution::Target;
use dwell_profile::{EventIndex, Pid, Tid, VirtualAddress};

use crate::{
    loss::LossCause,
    path::Path,
    source::records::{Body, CallStack, Sample, SwitchTo},
};

/// A record that outlives its ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedRecord {
    /// A sample of the event with this index.
    Sample(EventIndex, Sample),
    /// A sample of the event with this index, with its call stack.
    SampleWithStack(EventIndex, Sample, Box<RawCallStack>),
    /// A thread left its CPU at this place, with this stack.
    BeginWait(Sample, Box<RawCallStack>),
    /// A thread got a CPU or left it. If it left, its [`OwnedRecord::BeginWait`] comes first, where the kernel shows the place.
    Switch {
        /// The process of the thread.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The state of the thread from now on.
        to: SwitchTo,
    },
    /// The registers of a sample of this event. The sample itself was counted in the kernel, so this item is not counted; it
    /// only shows which way a branch went.
    Registers(EventIndex, Sample),
    /// The last branches of a thread. They count as no sample.
    Branches(Box<RawStack>),
    /// Any other record. These are rare, so they are boxed.
    SideBand(Box<SideBandRecord>),
    /// A burst: the thread was emulated, or single-stepping of it began.
    Burst(Box<RawBurst>),
    /// A watchpoint disturbed a process. Its samples up to `until_ns` contain the disturbance.
    Watched {
        /// The process.
        pid: Pid,
        /// End of the disturbance: CLOCK_MONOTONIC in ns.
        until_ns: u64,
    },
    /// Breakpoints counted the executions of a few places by one thread.
    BreakpointCounts(Box<RawBreakpointCounts>),
    /// The exits of a loop were watched while a thread was in the loop.
    Exits(Box<RawExits>),
}

/// The call stack of a sample, not unwound yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawCallStack {
    /// The kernel's calls: the sampled address, then return addresses outwards. Empty for a sample in user mode.
    pub kernel: Box<[VirtualAddress]>,
    /// What the kernel found in user mode by following frame pointers: the sampled address, then return addresses.
    pub frame_pointers: Box<[VirtualAddress]>,
    /// The user's stack from the stack pointer on.
    pub user: Box<[u8]>,
    /// Whether the stack may go on behind these bytes.
    pub is_cut: bool,
}

impl From<CallStack<'_>> for RawCallStack {
    fn from(stack: CallStack<'_>) -> Self {
        RawCallStack {
            kernel: stack.kernel().collect(),
            frame_pointers: stack.frame_pointers().collect(),
            user: stack.user.into(),
            is_cut: stack.is_cut,
        }
    }
}

/// Branches that a thread took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawStack {
    /// The process of the thread.
    pub pid: Pid,
    /// Source and target address of each branch, the latest first.
    pub branches: Vec<(VirtualAddress, VirtualAddress)>,
}

/// Executions that hardware breakpoints counted during a window of a thread's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawBreakpointCounts {
    /// The process of the thread.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Samples of the thread up to this time contain the cost of counting.
    pub until_ns: u64,
    /// Pairs of an address and its number of executions.
    pub counts: Vec<(VirtualAddress, u64)>,
}

/// How often a thread left a loop during an interval of its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawExits {
    /// The process of the thread.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The counter that the loop steps.
    pub counter: crate::evidence::counts::pairs::CounterId,
    /// Start of the interval.
    pub since_ns: u64,
    /// End of the interval: samples up to this time contain the cost of watching.
    pub until_ns: u64,
    /// How long the thread ran during the interval, in ns.
    pub running_ns: u64,
    /// How often control reached an exit of the loop.
    pub executions: u64,
}

/// The instructions that a thread executed while it was single-stepped, or would execute by emulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawBurst {
    /// The process of the thread.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Samples of the thread up to this time contain the cost of stepping. 0: the thread was emulated while it stood still.
    pub stepped_until_ns: u64,
    /// What it executed, from its first to its last program counter.
    pub path: Path,
    /// CPU time that the thread itself took for it, in ns, if that is known.
    pub cpu_ns: Option<u64>,
}

/// A side-band record that outlives its ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SideBandRecord {
    /// Executable memory was mapped.
    Map {
        /// The process.
        pid: Pid,
        /// First virtual address.
        start: VirtualAddress,
        /// Bytes.
        length: u64,
        /// Offset of the first byte in the target's file.
        file_offset: u64,
        /// What was mapped.
        target: Target,
    },
    /// A process executes a program.
    Exec {
        /// The process.
        pid: Pid,
        /// Its new name.
        comm: String,
    },
    /// The executable that a process runs since its last [`SideBandRecord::Exec`], in the form in which entries name it.
    Executable {
        /// The process.
        pid: Pid,
        /// [`crate::entries::Place::Executable`]'s `id`.
        id: u64,
    },
    /// A task changed its name.
    Comm {
        /// The process of the task.
        pid: Pid,
        /// The thread of the task.
        tid: Tid,
        /// The name.
        comm: String,
    },
    /// A thread began, the first one of a process included. Only recorded where thread names are kept.
    BeginThread {
        /// The new thread.
        tid: Tid,
        /// The process that created it. It differs from the thread's own process only for the first thread of a process.
        parent_pid: Pid,
        /// The thread that created it.
        parent_tid: Tid,
    },
    /// A thread ended. Only recorded where thread names are kept.
    EndThread {
        /// The thread.
        tid: Tid,
    },
    /// A process was created.
    Fork {
        /// The new process.
        pid: Pid,
        /// Its parent process.
        parent_pid: Pid,
    },
    /// The first thread of a process ended.
    Exit {
        /// The process.
        pid: Pid,
    },
    /// Samples, or records of any kind, are missing.
    Lost {
        /// The event whose records are missing, where it is known.
        event: Option<EventIndex>,
        /// Number of missing records.
        records: u64,
        /// Why they are missing.
        cause: LossCause,
    },
    /// The kernel throttled an event.
    Throttle {
        /// The throttled event, where it is known.
        event: Option<EventIndex>,
    },
}

impl SideBandRecord {
    /// Returns the process that this record is about, if it is about one.
    pub fn pid(&self) -> Option<Pid> {
        match self {
            SideBandRecord::Map { pid, .. }
            | SideBandRecord::Exec { pid, .. }
            | SideBandRecord::Executable { pid, .. }
            | SideBandRecord::Comm { pid, .. }
            | SideBandRecord::Fork { pid, .. }
            | SideBandRecord::Exit { pid } => Some(*pid),
            SideBandRecord::BeginThread { .. }
            | SideBandRecord::EndThread { .. }
            | SideBandRecord::Lost { .. }
            | SideBandRecord::Throttle { .. } => None,
        }
    }
}

impl OwnedRecord {
    /// Returns the part of a record that the collector needs, or `None` if it needs nothing of it.
    pub fn from_body(event: Option<EventIndex>, body: Body<'_>) -> Option<OwnedRecord> {
        let side = match body {
            Body::Sample(sample) => return Some(OwnedRecord::Sample(event?, sample)),
            Body::SampleWithStack(sample, stack) => {
                return Some(OwnedRecord::SampleWithStack(event?, sample, Box::new(stack.into())));
            }
            Body::Switch { pid, tid, to } => return Some(OwnedRecord::Switch { pid, tid, to }),
            Body::Branches(stack) => {
                let raw = RawStack { pid: stack.pid, branches: stack.taken().collect() };
                return Some(OwnedRecord::Branches(Box::new(raw)));
            }
            Body::Mmap(m) if m.executable => SideBandRecord::Map {
                pid: m.pid,
                start: m.start,
                length: m.length,
                file_offset: m.file_offset,
                target: Target::named(m.path, m.file),
            },
            Body::Comm { pid, exec: true, comm, .. } => SideBandRecord::Exec { pid, comm: lossy(comm) },
            Body::Comm { pid, tid, comm, .. } => SideBandRecord::Comm { pid, tid, comm: lossy(comm) },
            Body::Fork { pid, parent_pid, .. } if pid != parent_pid => {
                SideBandRecord::Fork { pid, parent_pid }
            }
            Body::Exit { pid, tid } if tid.is_first_of(pid) => SideBandRecord::Exit { pid },
            Body::Lost(records) | Body::LostSamples(records) => {
                SideBandRecord::Lost { event, records, cause: LossCause::RingFull }
            }
            Body::Throttle => SideBandRecord::Throttle { event },
            _ => return None,
        };
        Some(OwnedRecord::SideBand(Box::new(side)))
    }
}

impl OwnedRecord {
    /// Returns what a record reports about threads. This is needed only where thread names are kept.
    pub fn of_thread(body: &Body<'_>) -> Option<OwnedRecord> {
        let side = match *body {
            Body::Fork { tid, parent_pid, parent_tid, .. } => {
                SideBandRecord::BeginThread { tid, parent_pid, parent_tid }
            }
            Body::Exit { tid, .. } => SideBandRecord::EndThread { tid },
            _ => return None,
        };
        Some(OwnedRecord::SideBand(Box::new(side)))
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
