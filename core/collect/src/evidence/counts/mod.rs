//! Odometers: executions that programs count themselves, in words of memory to which code adds constants.
//!
//! Enters: samples with registers. Leaves: executions of single instructions with the samples that they stand for. Never
//! here: anything that stops or changes a program; of its memory only words are read that a watchpoint has shown to be
//! counters.
//!
//! Registers in samples show where the words are ([`candidates`], [`increments`]), a write watchpoint shows which
//! instructions write them ([`tally`]), and reading them at two times shows how often ([`series`]). A separate thread
//! does this ([`worker`]).

mod candidates;
pub mod exits;
mod increments;
pub mod loops;
pub mod pairs;
mod series;
mod tally;
mod times;
mod word_mapping;
mod worker;

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use dwell_attribution::{CodeId, ExecutionId};
use dwell_profile::{CountSource, CountsRecord, Pid, VirtualAddress};
use worker::Worker;

use crate::{registers::Registers, sys::guard::Protection};

/// A sample, reduced to what matters here.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The time of the sample in ns.
    pub time_ns: u64,
    /// The sample's process.
    pub pid: Pid,
    /// The process's address space.
    pub code: CodeId,
    /// What the process executes.
    pub execution: ExecutionId,
    /// The program counter.
    pub pc: VirtualAddress,
    /// Whether it is a sample of time.
    pub is_time: bool,
    /// Whether it is a sample of user code.
    pub is_user: bool,
    /// The registers, if it is a sample of user code.
    pub registers: Option<Box<Registers>>,
}

/// Executions of an instruction in a process.
#[derive(Clone, Debug)]
pub struct RawCount {
    /// The process.
    pub pid: Pid,
    /// The process's address space at that time.
    pub code: CodeId,
    /// The address of the instruction.
    pub pc: VirtualAddress,
    /// Number of executions.
    pub executions: f64,
    /// Number of samples of the execution that were taken meanwhile.
    pub samples: u64,
    /// Standard deviation of the logarithm of `executions`.
    pub deviation: f64,
    /// The method that counted.
    pub source: CountSource,
}

/// A time during which the watchpoint disturbed a process.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// The process.
    pub pid: Pid,
    /// The beginning in ns.
    pub begin_ns: u64,
    /// The end in ns.
    pub until_ns: u64,
}

/// Data that waits for the thread.
#[derive(Default)]
struct Inbox {
    /// Samples in order of time.
    seen: Vec<Seen>,
    /// All samples before this time, in ns, are in the inbox; `u64::MAX` ends the thread.
    complete_ns: u64,
    /// The target's CPU time so far, in ns.
    cpu_ns: f64,
}

/// The data that both threads share.
struct Shared {
    /// The time in ns at which the current watchpoint was set; `u64::MAX` if there is none.
    watching_since_ns: AtomicU64,
    inbox: Mutex<Inbox>,
    /// Whether nothing will be added to the inbox.
    is_last: Condvar,
    /// Results that the other thread has not taken yet.
    output: Mutex<Output>,
}

#[derive(Default)]
struct Output {
    counts: Vec<RawCount>,
    watched: Vec<Watched>,
    record: CountsRecord,
}

impl Shared {
    /// Returns the contents of the inbox after a bounded wait. Samples are not urgent, and waking a thread for them costs
    /// more than processing them.
    fn await_inbox(&self, longest: Duration) -> Inbox {
        let inbox = self.inbox.lock().unwrap_or_else(|error| error.into_inner());
        let waits = |inbox: &mut Inbox| inbox.complete_ns != u64::MAX;
        let (mut inbox, _) =
            self.is_last.wait_timeout_while(inbox, longest, waits).unwrap_or_else(|error| error.into_inner());
        let seen = std::mem::take(&mut inbox.seen);
        Inbox { seen, ..*inbox }
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(|error| error.into_inner())
    }
}

/// Counts executions by words in memory.
pub struct Odometers {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Odometers {
    /// Starts the thread, which may spend `percent` of the target's CPU time.
    pub fn start(budget_percent: f64, protection: Protection) -> Self {
        let record = CountsRecord { budget_percent, ..CountsRecord::default() };
        let output = Mutex::new(Output { record, ..Output::default() });
        let shared = Arc::new(Shared {
            watching_since_ns: AtomicU64::new(u64::MAX),
            inbox: Mutex::default(),
            is_last: Condvar::new(),
            output,
        });
        let worker = Worker::new(shared.clone(), budget_percent / 100.0, protection);
        let thread = std::thread::Builder::new().name("dwell-odometers".to_owned());
        let thread = thread.spawn(move || worker.run()).ok();
        Odometers { shared, thread }
    }

    /// Hands samples to the thread. All samples before `complete_ns` are included.
    pub fn offer(&self, seen: Vec<Seen>, complete_ns: u64, cpu_ns: f64) {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return;
        }
        let mut inbox = self.shared.inbox.lock().unwrap_or_else(|error| error.into_inner());
        inbox.seen.extend(seen);
        (inbox.complete_ns, inbox.cpu_ns) = (complete_ns, cpu_ns);
    }

    /// Returns the disturbances since the last call, and the time since which a watchpoint is set that is not among them.
    /// Samples from then on must wait.
    pub fn take_watched(&self) -> (Vec<Watched>, u64) {
        // This order matters: a disturbance that ends in between is in both.
        let since_ns = self.shared.watching_since_ns.load(Ordering::SeqCst);
        (std::mem::take(&mut self.shared.output().watched), since_ns)
    }

    /// Returns what was counted since the last call.
    pub fn take(&self) -> Vec<RawCount> {
        std::mem::take(&mut self.shared.output().counts)
    }

    /// Lets the thread finish the samples that it has, and ends it.
    pub fn finish(&mut self, seen: Vec<Seen>, cpu_ns: f64) {
        self.offer(seen, u64::MAX, cpu_ns);
        self.shared.is_last.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic there has been reported; what it had counted is there.
        }
    }

    /// Returns the cost so far in ns.
    pub fn cost_ns(&self) -> u64 {
        self.shared.output().record.cost_ns
    }

    /// Returns the record of the work so far.
    pub fn record(&self) -> CountsRecord {
        self.shared.output().record.clone()
    }
}
