//! Odometers: executions that programs count themselves, in words of memory to which code adds constants.
//!
//! Enters: samples with registers. Leaves: executions of single instructions with the samples for which they stand. Never here:
//! anything that stops or changes a program; of its memory only words that a watchpoint saw to be counters are read.
//!
//! Samples' registers say where the words are ([`candidates`], [`increments`]), a write watchpoint says who writes them ([`tally`]), and
//! reading them at two times says how often ([`series`]). A thread of its own does that ([`worker`]).

mod candidates;
pub mod exits;
mod increments;
pub mod loops;
pub mod pairs;
mod series;
mod tally;
mod worker;

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use dwell_profile::{CountsRecord, Pid};

use crate::branch::Registers;
use dwell_attribution::{CodeId, ExecutionId};

use worker::Worker;

/// A sample, as far as it matters here.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When it was taken.
    pub time_ns: u64,
    /// Its process.
    pub pid: Pid,
    /// The process's address space.
    pub code: CodeId,
    /// What it executes.
    pub execution: ExecutionId,
    /// Its program counter.
    pub pc: u64,
    /// Whether it is a sample of time.
    pub is_time: bool,
    /// The registers, if it is of user code.
    pub registers: Option<Box<Registers>>,
}

/// Executions of an instruction in a process.
#[derive(Clone, Debug)]
pub struct RawCount {
    /// The process.
    pub pid: Pid,
    /// Its address space then.
    pub code: CodeId,
    /// The instruction.
    pub pc: u64,
    /// How often it was executed.
    pub executions: f64,
    /// While so many samples of the execution were taken.
    pub samples: u64,
    /// Standard deviation of the logarithm of `executions`.
    pub deviation: f64,
}

/// A watchpoint disturbed a process.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// The process.
    pub pid: Pid,
    /// From when …
    pub begin_ns: u64,
    /// … until when.
    pub until_ns: u64,
}

/// What waits for the thread.
#[derive(Default)]
struct Inbox {
    /// Samples in order of time.
    seen: Vec<Seen>,
    /// All samples before have come; `u64::MAX` ends the thread.
    complete_ns: u64,
    /// CPU time of the target so far.
    cpu_ns: f64,
}

/// What both threads know.
struct Shared {
    /// When the watchpoint was set that is set now; `u64::MAX`: none is.
    watching_since_ns: AtomicU64,
    inbox: Mutex<Inbox>,
    /// Nothing comes after what is in the inbox.
    is_last: Condvar,
    /// What the other thread has not taken yet.
    output: Mutex<Output>,
}

#[derive(Default)]
struct Output {
    counts: Vec<RawCount>,
    watched: Vec<Watched>,
    record: CountsRecord,
}

impl Shared {
    /// What has come, after at most so long; samples are in no hurry, and waking a thread for them costs more than they do.
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
    /// Starts the thread, which may spend so many percent of the target's CPU time.
    pub fn start(budget_percent: f64) -> Self {
        let record = CountsRecord { budget_percent, ..CountsRecord::default() };
        let output = Mutex::new(Output { record, ..Output::default() });
        let shared = Arc::new(Shared {
            watching_since_ns: AtomicU64::new(u64::MAX),
            inbox: Mutex::default(),
            is_last: Condvar::new(),
            output,
        });
        let worker = Worker::new(shared.clone(), budget_percent / 100.0);
        let thread = std::thread::Builder::new().name("dwell-odometers".to_owned());
        let thread = thread.spawn(move || worker.run()).ok();
        Odometers { shared, thread }
    }

    /// Hands samples on; all before `complete_ns` have come.
    pub fn offer(&self, seen: Vec<Seen>, complete_ns: u64, cpu_ns: f64) {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return;
        }
        let mut inbox = self.shared.inbox.lock().unwrap_or_else(|error| error.into_inner());
        inbox.seen.extend(seen);
        (inbox.complete_ns, inbox.cpu_ns) = (complete_ns, cpu_ns);
    }

    /// The watchpoints that were set since the last call, and since when one is set that is not among them. Samples from then on
    /// must wait.
    pub fn take_watched(&self) -> (Vec<Watched>, u64) {
        // In this order: one that ends in between is in both.
        let since_ns = self.shared.watching_since_ns.load(Ordering::SeqCst);
        (std::mem::take(&mut self.shared.output().watched), since_ns)
    }

    /// What was counted since the last call.
    pub fn take(&self) -> Vec<RawCount> {
        std::mem::take(&mut self.shared.output().counts)
    }

    /// Lets the thread count what it has all samples of, and ends it.
    pub fn finish(&mut self, seen: Vec<Seen>, cpu_ns: f64) {
        self.offer(seen, u64::MAX, cpu_ns);
        self.shared.is_last.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic there has been reported; what it had counted is there.
        }
    }

    /// What was done so far.
    pub fn record(&self) -> CountsRecord {
        self.shared.output().record.clone()
    }
}
