//! Where samples come from: one of three backends behind one trait.
//!
//! Enters: whose code to sample, and how. Leaves: timed records (the side band, and samples where each is a record), and
//! batches of entries where the kernel aggregates. Never here: what a sample means.
//!
//! All backends give the same results. `perf` writes one record for each sample into ring buffers: it needs no privilege for
//! the user's own processes, and is the reference for the others. `bpf` and `kmod` count samples in the kernel, by
//! executable and offset or by process and pc, and hand out counts; they sample whole machines.

use std::{collections::BTreeMap, fmt, os::fd::BorrowedFd, time::Duration};

use dwell_profile::{CpuId, EventIndex, Pid, TableRecord};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    CollectError,
    entries::{Batch, Entry},
    source::{merge::Merger, owned_record::OwnedRecord},
    sys::event_times::EventTimes,
};

pub mod bpf;
pub mod choose;
pub mod cpus;
pub mod events;
pub mod kmod;
pub mod merge;
pub mod owned_record;
pub mod perf;
pub mod period;
pub mod records;
pub mod side_band;

/// Shortest interval between two rewrites of timers and two drains of rings.
pub const ROUND_MIN: Duration = Duration::from_millis(10);

/// The backend that takes samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The kernel module `dwell.ko`.
    Kmod,
    /// A BPF program on perf events.
    Bpf,
    /// Ring buffers of perf events.
    Perf,
}

impl Backend {
    /// Returns the name, as used on the command line and in an epoch's `backend`.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Kmod => "kmod",
            Backend::Bpf => "bpf",
            Backend::Perf => "perf",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The backend that is to sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The best backend that works on this machine.
    #[default]
    Auto,
    /// The kernel module; an error if it does not work.
    Kmod,
    /// BPF; an error if it does not work.
    Bpf,
    /// Ring buffers; an error if they do not work.
    Perf,
}

/// A sampling rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// About this many samples per second of a busy CPU. For `cycles` and `instructions` the measured clock converts it to a
    /// period, for rarer events a typical distance between two occurrences.
    Frequency(u32),
    /// One sample per this many occurrences (for `cpu-clock`: nanoseconds).
    Period(u64),
    /// A rate that a machine can bear permanently: 1000 Hz with a timer, DCPI's 62,000 cycles for hardware events (§4.1.1:
    /// 60 to 64 thousand), but at most `hz_max`.
    Continuous {
        /// Maximum number of samples per second of a busy CPU.
        hz_max: u32,
    },
}

/// The tasks that are sampled.
#[derive(Clone, Debug)]
pub enum Tasks {
    /// All tasks of the machine.
    All,
    /// These processes and all their children, those that already exist included, from now on.
    Running(Vec<Pid>),
    /// This process and its children, from its next exec on.
    FromExec(Pid),
}

/// The abilities of an open source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Only user mode is sampled, because the kernel permits no more.
    pub user_only: bool,
    /// Some samples carry registers.
    pub registers: bool,
    /// Branch stacks come beside the samples.
    pub branch_stacks: bool,
    /// Some samples carry call stacks.
    pub call_stacks: bool,
    /// Number of threads that were created while the events of running processes were opened one thread after the other,
    /// in every attempt. They are sampled only if their parent's event was already open.
    pub escaped: usize,
    /// Bytes of memory that we share with the kernel: rings and tables.
    pub shared_bytes: usize,
}

/// Statistics of a source since it was opened. A field is `None` where the source does not keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceTally {
    /// Samples by event index and CPU.
    pub by_cpu: BTreeMap<(EventIndex, CpuId), u64>,
    /// Statistics of the kernel's table.
    pub table: Option<TableRecord>,
    /// Samples in the idle task.
    pub idle: Option<u64>,
    /// Samples whose registers found no room.
    pub registers_lost: Option<u64>,
    /// Samples in the kernel that found no room to be counted a second time, at the place where user code entered it.
    pub kernel_time_lost: Option<u64>,
    /// Executions of programs that the kernel-side program had no room to report.
    pub executions_lost: Option<u64>,
    /// How long events did not count because perf had given them up, in ns, summed over CPUs.
    pub given_up_ns: Option<u64>,
    /// Processes and threads that inherited the events. In each of them the kernel begins a new period.
    pub born: u64,
}

/// A source of samples. The caller owns the control flow: in each round it waits, drains, applies the records that are old
/// enough, takes the batches that are due, and calls [`Source::tend`].
pub trait Source {
    /// Returns the backend of this source.
    fn backend(&self) -> Backend;

    /// Returns the abilities of this source.
    fn features(&self) -> Features;

    /// Starts the side band of a whole machine without sampling, so that all running processes can be looked up, however
    /// long that takes on a busy machine, before the first sample. Has no effect where single tasks are sampled: their
    /// events cannot be silent meanwhile, because children would inherit that.
    fn enable_side_band(&mut self) -> Result<(), CollectError>;

    /// Starts all events that do not wait for an exec. May be called after [`Source::disable`].
    fn enable(&mut self) -> Result<(), CollectError>;

    /// Stops all events.
    fn disable(&mut self) -> Result<(), CollectError>;

    /// Returns the longest time that [`Source::wait`] may take without harm to the source.
    fn round(&self) -> Duration;

    /// Waits until there is much to take, `wake` becomes readable, or `timeout` has passed.
    fn wait(&mut self, timeout: Duration, wake: Option<BorrowedFd<'_>>);

    /// Moves timed records to the merger. Returns a time before which none of them is missing.
    fn drain(&mut self, merger: &mut Merger<OwnedRecord>) -> u64;

    /// Runs periodic maintenance: draws new periods, looks for CPUs that came or went. Warnings are for the user.
    fn tend(&mut self, warn: &mut dyn FnMut(String));

    /// Sets new mean periods, by index of the event.
    fn set_periods(&mut self, periods: &[u64]);

    /// Returns the kernel's tables if samples are counted there. Then only the side band and samples with registers are timed
    /// records.
    fn tables(&mut self) -> Option<&mut dyn KernelTables> {
        None
    }

    /// Returns the statistics since the source was opened.
    fn tally(&self) -> SourceTally {
        SourceTally::default()
    }

    /// Returns how long each event has counted since it was opened, in the order of the configurations. This may interrupt each CPU
    /// once for each event, so call it only when something is stored or a user requests it.
    fn times(&mut self) -> Vec<EventTimes> {
        Vec::new()
    }

    /// Returns the number of records since the last call that could not be parsed. That would be a defect of ours, but it is
    /// counted as a loss.
    fn take_malformed(&mut self) -> u64;
}

/// Tables in which the kernel counts samples. They come in batches of entries.
pub trait KernelTables {
    /// Returns the batch of entries that waits, if there is one. The caller takes it after it has applied the records up to
    /// the end of the batch's interval, and none after.
    fn batch(&self) -> Option<Batch>;

    /// Hands out the entries of the waiting batch, piece by piece, and returns their memory to the kernel.
    fn hand_out(&mut self, each: &mut dyn FnMut(&[Entry]));

    /// Ends the batch that the kernel is filling, so that it can be taken. Has no effect while another batch waits.
    fn cut_batch(&mut self);

    /// Sets the executables whose samples are kept apart by process from now on, named by the `id` of
    /// [`crate::entries::Place::Executable`] (low bits included).
    fn by_process(&mut self, executables: &[u64]) {
        let _ = executables;
    }
}

/// Waits until `wake` becomes readable, or `timeout` has passed.
pub fn wait_for(timeout: Duration, wake: Option<BorrowedFd<'_>>) {
    let mut polled: Vec<PollFd<'_>> = wake.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let _ = poll(&mut polled, Timespec::try_from(timeout).ok().as_ref()); // A signal only ends the wait.
}

/// Returns whether our pid namespace is the initial one. In another namespace, rings name processes by our numbers, and name
/// those that we cannot see not at all; the kernel's tables name all processes by the numbers of the initial namespace.
pub fn sees_all_processes() -> bool {
    /// The inode number of the initial pid namespace (PROC_PID_INIT_INO), the same on every machine.
    const INITIAL: &str = "pid:[4026531836]";
    std::fs::read_link("/proc/self/ns/pid").map_or(true, |namespace| namespace.as_os_str() == INITIAL)
}

/// Returns kernel.perf_event_paranoid as text.
pub fn paranoid() -> String {
    let value = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    value.map_or_else(|_| "unknown".to_owned(), |v| v.trim().to_owned())
}
