//! Where samples come from: one of three backends behind one trait.
//!
//! Enters: whose code to sample and how. Leaves: timed records (side band, and samples where each is a record), and
//! batches of entries where the kernel aggregates. Never here: what a sample means.
//!
//! All backends mean the same. `perf` writes a record for each sample into ring buffers: it needs no privilege for one's
//! own processes, and the others are held against it. `bpf` and `kmod` count samples in the kernel, by executable and
//! offset or by process and pc, and hand out counts; they watch whole machines.

use std::{collections::BTreeMap, fmt, os::fd::BorrowedFd, time::Duration};

use dwell_profile::{CpuId, EventIndex, Pid, TableRecord};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    CollectError,
    entries::{Batch, Entry},
    items::Item,
    merge::Merger,
    sys::clock::namespace_offset_ns,
};

pub mod bpf;
pub mod choose;
pub mod closed;
pub mod cpus;
pub mod kmod;
pub mod perf;
pub mod times;

use times::EventTimes;

/// Timers are rewritten, and rings drained, no more often than that.
pub const ROUND_MIN: Duration = Duration::from_millis(10);

/// Who samples.
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
    /// As the command line and an epoch's `backend` spell it.
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

/// Whose records.
#[derive(Clone, Debug)]
pub enum Tasks {
    /// Everybody's.
    All,
    /// Those of these processes, with what they were the parents of and will be, at once.
    Running(Vec<Pid>),
    /// This process's and its children's, from its next exec on.
    FromExec(Pid),
}

/// What a source turned out to be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// User mode only, since the kernel allows no more.
    pub user_only: bool,
    /// Some samples carry registers.
    pub registers: bool,
    /// Stacks of branches come beside the samples.
    pub branch_stacks: bool,
    /// Threads that were born while those of running processes were opened one by one, each time that was tried: they are
    /// sampled if they are children of one that had been opened by then, else not.
    pub escaped: usize,
    /// Samples are counted in the kernel and come in batches; only the side band, and samples with registers, are timed.
    pub aggregates: bool,
    /// Memory that we share with the kernel: rings and tables.
    pub shared_bytes: usize,
}

/// What a source has done since it was opened, as far as it keeps account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceTally {
    /// Samples by index of the event and CPU.
    pub by_cpu: BTreeMap<(EventIndex, CpuId), u64>,
    /// What the kernel's table did, where there is one.
    pub table: Option<TableRecord>,
    /// Samples in the idle task, where they are counted.
    pub idle: Option<u64>,
    /// Registers that could not be handed out, where that is counted.
    pub registers_lost: Option<u64>,
    /// Samples in the kernel that found no room to be counted once more, where the user's code entered it, if they are.
    pub kernel_time_lost: Option<u64>,
    /// Executions of programs that the kernel's part had no room to tell of, where it tells them.
    pub executions_lost: Option<u64>,
    /// For how long events were to count that perf had given up, added up over CPUs, where that can be.
    pub given_up_ns: Option<u64>,
    /// Processes and threads that inherited the events, in each of which the kernel begins a period anew.
    pub born: u64,
}

/// A source of samples. The caller owns the control flow: once a round it waits, drains, applies what is old enough,
/// takes batches that are due, and lets the source tend to itself.
pub trait Source {
    /// Which backend it is.
    fn backend(&self) -> Backend;

    /// What it can do.
    fn features(&self) -> Features;

    /// Starts the side band of a whole machine and no sampling: who runs can be found out, however long that takes on a busy
    /// machine, before the first sample needs to be explained. Without effect where tasks are sampled, whose events cannot
    /// be quiet meanwhile: children would inherit that.
    fn enable_side_band(&mut self) -> Result<(), CollectError>;

    /// Starts all events that do not wait for an exec. May follow [`Source::disable`].
    fn enable(&mut self) -> Result<(), CollectError>;

    /// Stops all events.
    fn disable(&mut self) -> Result<(), CollectError>;

    /// How long [`Source::wait`] may take at most for the source to do well.
    fn round(&self) -> Duration;

    /// Waits until there is much to take, `wake` can be read, or the time is over.
    fn wait(&mut self, timeout: Duration, wake: Option<BorrowedFd<'_>>);

    /// Moves timed records to the merger. Returns a time before which nothing of them is missing.
    fn drain(&mut self, merger: &mut Merger<Item>) -> u64;

    /// The batch of entries that waits, if one does. It is to be taken when the records up to the end of its interval were applied,
    /// and none after.
    fn batch(&self) -> Option<Batch> {
        None
    }

    /// Hands out the entries of the batch that waits, piece by piece, and lets the kernel use their room again.
    fn hand_out(&mut self, each: &mut dyn FnMut(&[Entry])) {
        let _ = each;
    }

    /// Ends the batch that the kernel is filling, so that it waits to be taken; without effect while one waits already.
    fn cut_batch(&mut self) {}

    /// What must be done now and then: draws new periods, looks for CPUs that came or went. Warnings are for the user.
    fn tend(&mut self, warn: &mut dyn FnMut(String));

    /// Other mean periods, by index of the event, from now on.
    fn set_periods(&mut self, periods: &[u64]);

    /// Executables (low bits included: [`crate::entries::Place::Executable`]'s `id`) whose samples are to be kept apart
    /// by process from now on.
    fn by_process(&mut self, executables: &[u64]) {
        let _ = executables;
    }

    /// What it has done since it was opened.
    fn tally(&self) -> SourceTally {
        SourceTally::default()
    }

    /// For how long each event has counted since it was opened, in the order of the plans. May interrupt each CPU for each event:
    /// for when something is stored or asked for.
    fn times(&mut self) -> Vec<EventTimes> {
        Vec::new()
    }

    /// Records since the last call that could not be understood; a defect of ours, but counted as a loss.
    fn take_malformed(&mut self) -> u64;
}

/// CLOCK_MONOTONIC, the clock of the records, in ns: as the kernel stamps them, also where our time namespace shifts it.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let ours_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    ours_ns.wrapping_sub(namespace_offset_ns() as u64)
}

/// Whether our pid namespace is the initial one. In another one rings know processes by our numbers, and those that we do not
/// see by none; tables in the kernel know all by numbers that are not ours.
pub fn sees_all_processes() -> bool {
    /// The kernel's own number of it (PROC_PID_INIT_INO), the same everywhere.
    const INITIAL: &str = "pid:[4026531836]";
    std::fs::read_link("/proc/self/ns/pid").map_or(true, |namespace| namespace.as_os_str() == INITIAL)
}

/// kernel.perf_event_paranoid, as text.
pub fn paranoid() -> String {
    let value = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    value.map_or_else(|_| "unknown".to_owned(), |v| v.trim().to_owned())
}
