//! Counters in the code of programs: blocks that the program itself counts, because code was patched into it.
//!
//! Enters: samples. Leaves: executions of blocks with the samples that they stand for, and which addresses are code that does not
//! belong to the program ([`moved_code`]). Never here: how code is patched, which the caller of a recording brings along as a
//! [`CodeCounter`].

pub mod moved_code;
mod readings;
mod times;
mod windows;
mod worker;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use dwell_profile::{CountsRecord, Pid, VirtualAddress};
use worker::Worker;

use super::counts::{RawCount, Seen};
use moved_code::Span;

/// Counts executions inside one process at a time. Dropping it removes all counters.
pub trait CodeCounter: Send {
    /// Returns the process that will trace those whose code is counted.
    fn tracer(&self) -> Pid;

    /// Prepares a process. What was in another one is gone, or is removed.
    fn attach(&mut self, pid: Pid) -> io::Result<()>;

    /// Counts the blocks of the procedures that have most of the samples, which are addresses with their numbers. In those that are
    /// counted already, chooses again which blocks have counters, by what was counted so far. What is counted meanwhile is lost.
    fn count(&mut self, samples: Vec<(VirtualAddress, u64)>) -> io::Result<NewCounters>;

    /// Returns the executions since the last call of each block whose executions are known, named by the address of its first
    /// instruction; `None` if that is not certain.
    fn executions(&mut self) -> io::Result<Option<CodeCounts>>;

    /// Counts one block of each procedure alone, its anchor, which is not executed often. What is counted meanwhile is lost.
    fn rest(&mut self) -> io::Result<NewCounters>;

    /// Removes all counters.
    fn remove(&mut self) -> io::Result<()>;
}

/// What has changed.
#[derive(Clone, Debug, Default)]
pub struct NewCounters {
    /// Number of procedures that are counted now and were not before.
    pub procedures: u64,
    /// Number of counters that count now.
    pub counters: u64,
    /// Number of procedures that cannot be counted, by cause.
    pub refused: BTreeMap<String, u64>,
    /// Code that counts and was not there before. Samples will be in it.
    pub spans: Vec<Span>,
    /// The anchors by the first addresses of their procedures.
    pub anchors: Vec<(VirtualAddress, VirtualAddress)>,
    /// The longest time for which a thread of the program was stopped.
    pub stopped_ns: u64,
}

/// What was counted since the last reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeCounts {
    /// The process's CPU time when its counters were read, in ns.
    pub cpu_ns: u64,
    /// Each procedure that is counted.
    pub procedures: Vec<ProcedureCounts>,
}

/// Executions of a procedure's blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcedureCounts {
    /// The procedure's first address.
    pub entry: VirtualAddress,
    /// Executions by the address of each block's first instruction.
    pub blocks: Vec<(VirtualAddress, u64)>,
}

/// When executions are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CountWhen {
    /// In short windows that cost so many percent of the program's time.
    Windows(f64),
    /// All the time.
    Always,
}

/// Data that waits for the thread.
#[derive(Default)]
struct Inbox {
    /// Samples in order of time.
    seen: Vec<Seen>,
    /// All samples before this time, in ns, are in the inbox; `u64::MAX` ends the thread.
    complete_ns: u64,
}

/// Results that the other thread has not taken yet.
#[derive(Default)]
struct Output {
    counts: Vec<RawCount>,
    moved: Vec<(Pid, Vec<Span>)>,
    record: CountsRecord,
}

/// The data that both threads share.
struct Shared {
    /// The time in ns at which counters began to be added whose code is not among the results; `u64::MAX` if there are none.
    adding_since_ns: AtomicU64,
    inbox: Mutex<Inbox>,
    /// Whether nothing will be added to the inbox.
    is_last: Condvar,
    output: Mutex<Output>,
}

impl Shared {
    /// Returns the contents of the inbox after a bounded wait.
    fn await_inbox(&self, longest: Duration) -> Inbox {
        let inbox = self.inbox.lock().unwrap_or_else(|error| error.into_inner());
        let waits = |inbox: &mut Inbox| inbox.complete_ns != u64::MAX;
        let waited = self.is_last.wait_timeout_while(inbox, longest, waits);
        let mut inbox = waited.unwrap_or_else(|error| error.into_inner()).0;
        Inbox { seen: std::mem::take(&mut inbox.seen), complete_ns: inbox.complete_ns }
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(|error| error.into_inner())
    }
}

/// Counts executions in the code of the processes that are sampled most.
pub struct CodeCounters {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    tracer: Pid,
}

impl CodeCounters {
    /// Starts the thread.
    pub fn start(counter: Box<dyn CodeCounter>, when: CountWhen) -> Self {
        let shared = Arc::new(Shared {
            adding_since_ns: AtomicU64::new(u64::MAX),
            inbox: Mutex::default(),
            is_last: Condvar::new(),
            output: Mutex::default(),
        });
        let tracer = counter.tracer();
        let worker = Worker::new(shared.clone(), counter, when);
        let thread = std::thread::Builder::new().name("dwell-counters".to_owned());
        let thread = thread.spawn(move || worker.run()).ok();
        CodeCounters { shared, thread, tracer }
    }

    /// The process that traces those whose code is counted.
    pub fn tracer(&self) -> Pid {
        self.tracer
    }

    /// Hands samples to the thread. All samples before `complete_ns` are included.
    pub fn offer(&self, seen: Vec<Seen>, complete_ns: u64) {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return;
        }
        let mut inbox = self.shared.inbox.lock().unwrap_or_else(|error| error.into_inner());
        inbox.seen.extend(seen);
        inbox.complete_ns = complete_ns;
    }

    /// Returns the code that was added since the last call, and the time since which some may have been added that is not among it.
    /// Samples from then on must wait.
    pub fn take_moved(&self) -> (Vec<(Pid, Vec<Span>)>, u64) {
        // This order matters: code that is added in between is in both.
        let since_ns = self.shared.adding_since_ns.load(Ordering::SeqCst);
        (std::mem::take(&mut self.shared.output().moved), since_ns)
    }

    /// Returns what was counted since the last call.
    pub fn take(&self) -> Vec<RawCount> {
        std::mem::take(&mut self.shared.output().counts)
    }

    /// Lets the thread finish the samples that it has, remove all counters, and ends it.
    pub fn finish(&mut self, seen: Vec<Seen>) {
        self.offer(seen, u64::MAX);
        self.shared.is_last.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic there has been reported; what it had counted is there.
        }
    }

    /// Returns the record of the work so far.
    pub fn record(&self) -> CountsRecord {
        self.shared.output().record.clone()
    }
}
