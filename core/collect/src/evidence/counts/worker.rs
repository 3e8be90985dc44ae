//! The thread that finds, watches and reads words.
//!
//! Enters: samples in order of time. Leaves: executions of instructions by process, and the times at which watchpoints
//! disturbed processes. Never here: images, the database. It stops no process. Its cost, its own CPU time and the traps
//! of watchpoints, stays within a share of the target's CPU time.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    ops::RangeInclusive,
    sync::{Arc, atomic::Ordering},
    thread::sleep,
    time::Duration,
};

use dwell_attribution::{CodeId, ExecutionId, program_headers::is_32_bit};
use dwell_profile::{CountSource, Pid, Tid, VirtualAddress};
use rustc_hash::FxHashMap;

use super::{
    Inbox, RawCount, Seen, Shared, Watched,
    candidates::Candidates,
    increments::{Increment, Written},
    series::{INTERVAL_NS_MAX, Series, Span},
    tally::{Executions, Round, Tally},
    times::Times,
    word_mapping,
};
use crate::{
    random::Random,
    sys::{
        clock::now_ns,
        guard::{self, Guard, Protection},
        process_memory::{read_words, thread_cpu_time, wake_in_time},
        watchpoint::{Watchpoint, Write},
    },
};

/// Number of samples with registers before a process is considered, because short processes are not worth the cost.
const SAMPLES_MIN: u32 = 20;
/// Number of processes that are considered.
const PROCESSES_MAX: usize = 64;
/// A process without words keeps its place for this time in ns after its last sample.
const IDLE_NS_MAX: u64 = 10_000_000_000;
/// Number of words of a process.
const WORDS_MAX: usize = 48;
/// Number of words that are watched at a time: x86 has four watchpoints.
const WATCHED_MAX: usize = 4;
/// Number of threads of a process that are watched.
const THREADS_MAX: usize = guard::THREADS_MAX;
/// The longest duration of a round in ns, until all words are verified and later.
const ROUND_NS_FIRST: u64 = 20_000_000;
const ROUND_NS_LATER: u64 = 6_000_000;
/// The mean time in ns from one round in a process to the next, until all words are verified and later.
const ROUND_EVERY_NS_FIRST: f64 = 50e6;
const ROUND_EVERY_NS_LATER: f64 = 250e6;
/// How long before a round words are read to determine their rate just before it.
const MOMENT: Duration = Duration::from_millis(1);
/// The interval at which watched words are checked.
const LOOK: Duration = Duration::from_micros(300);
/// The cost in ns of a write that a watchpoint traps, and of setting a watchpoint, measured on a virtual machine with Zen
/// 3 cores.
const TRAP_NS: u64 = 13_000;
const SETTING_NS: u64 = 20_000;
/// The allowance in ns before the target has run for long.
const ADVANCE_NS: f64 = 2e6;
/// The allowance in ns that must be available for reading to continue after a pause: enough for a useful span.
const RESUME_NS: f64 = 0.5e6;
/// How much of the budget is earned in ns before the thread wakes to look at samples, so that waking takes a small part of it.
const EARNED_PER_LOOK_NS: f64 = 500_000.0;
/// The shortest and the longest time in ns that samples wait.
const INBOX_NS: RangeInclusive<f64> = 2e7..=1e9;
/// The debt in ns at which nothing is read any more, not even words that need few reads.
const DEBT_NS_MAX: f64 = 2e6;
/// Number of samples with registers after which the thread's own cost is measured again, which is a system call.
const SAMPLES_PER_CLOCK: u32 = 16;
/// The shortest and the longest interval in ns at which the end of a pause is checked.
const PAUSE_NS: RangeInclusive<f64> = 5e7..=1e9;
/// The least share of an execution's samples that a process must have to stand for it.
const ONE_PROCESS_SHARE: f64 = 0.97;

/// The state of the thread.
pub struct Worker {
    shared: Arc<Shared>,
    budget: f64,
    protection: Protection,
    processes: FxHashMap<Pid, Tracked>,
    /// Samples with registers of processes that are not considered yet.
    untracked: FxHashMap<Pid, u32>,
    /// The times of samples of each execution whose processes are considered.
    times: FxHashMap<ExecutionId, Times>,
    complete_ns: u64,
    cpu_ns: f64,
    traps_ns: u64,
    /// Whether more could be spent when the cost was measured last, and the number of samples with registers since then.
    solvency: (bool, u32),
    random: Random,
}

/// A process that is considered.
struct Tracked {
    code: CodeId,
    execution: ExecutionId,
    memory: File,
    candidates: Candidates,
    words: Vec<Tally>,
    times: Times,
    /// The time of its last sample with registers in ns.
    seen_ns: u64,
    /// Whether words that go back are not read until more may be spent.
    is_paused: bool,
    next_read_ns: u64,
    next_round_ns: u64,
    /// Index of the word at which the next round begins.
    turn: usize,
    /// When it was found to have ended, in ns.
    ended_ns: Option<u64>,
}

impl Tracked {
    /// Begins to consider the process of a sample, whose memory is open.
    fn new(seen: &Seen, memory: File) -> Self {
        Tracked {
            code: seen.code,
            execution: seen.execution,
            memory,
            candidates: Candidates::default(),
            words: Vec::new(),
            times: Times::default(),
            seen_ns: seen.time_ns,
            is_paused: false,
            next_read_ns: u64::MAX,
            next_round_ns: u64::MAX,
            turn: 0,
            ended_ns: None,
        }
    }

    /// Returns whether nothing more is expected of it: it has ended, or it has no words and was not sampled for long. Then it
    /// gives its place to another process.
    fn is_over(&self, complete_ns: u64) -> bool {
        let is_idle = || self.words.is_empty() && self.seen_ns + IDLE_NS_MAX < complete_ns;
        self.ended_ns.map_or_else(is_idle, |ended_ns| ended_ns < complete_ns)
    }
}

impl Worker {
    /// Creates the state of a thread that may spend this share of the target's CPU time.
    pub fn new(shared: Arc<Shared>, budget: f64, protection: Protection) -> Self {
        Worker {
            shared,
            budget,
            protection,
            processes: FxHashMap::default(),
            untracked: FxHashMap::default(),
            times: FxHashMap::default(),
            complete_ns: 0,
            cpu_ns: 0.0,
            traps_ns: 0,
            solvency: (true, 0),
            random: Random::new(now_ns()),
        }
    }

    /// Works until the inbox ends.
    pub fn run(mut self) {
        wake_in_time();
        while self.complete_ns != u64::MAX {
            let Inbox { seen, complete_ns, cpu_ns } = self.shared.await_inbox(self.until_due());
            if complete_ns > self.complete_ns {
                (self.complete_ns, self.cpu_ns) = (complete_ns, cpu_ns);
                self.solvency = (self.may_spend(), 0);
                seen.iter().for_each(|seen| self.sample(seen));
                self.emit();
                self.account();
            }
            if complete_ns != u64::MAX {
                self.work();
            }
        }
    }

    fn until_due(&self) -> Duration {
        let due = |tracked: &Tracked| tracked.next_read_ns.min(tracked.next_round_ns);
        let next_ns = self.processes.values().filter(|t| !t.words.is_empty()).map(due).min();
        let left_ns = next_ns.map_or(u64::MAX, |next_ns| next_ns.saturating_sub(now_ns()));
        let longest_ns = (EARNED_PER_LOOK_NS / self.budget).clamp(*INBOX_NS.start(), *INBOX_NS.end());
        Duration::from_nanos(left_ns.clamp(10_000, longest_ns as u64))
    }

    fn spent_ns(&self) -> u64 {
        self.traps_ns + thread_cpu_time().as_nanos() as u64
    }

    /// Returns the time in ns that may still be spent.
    fn left_ns(&self) -> f64 {
        self.budget * self.cpu_ns + ADVANCE_NS - self.spent_ns() as f64
    }

    fn may_spend(&self) -> bool {
        self.left_ns() >= 0.0
    }

    /// Returns whether to use the registers of another sample.
    fn may_use_registers(&mut self) -> bool {
        self.solvency.1 += 1;
        if self.solvency.1.is_multiple_of(SAMPLES_PER_CLOCK) {
            self.solvency.0 = self.may_spend();
        }
        self.solvency.0
    }

    fn refuse(&self, cause: &str) {
        let mut output = self.shared.output();
        *output.record.refused.entry(cause.to_owned()).or_default() += 1;
    }

    fn account(&self) {
        let spent_ns = self.spent_ns();
        self.shared.output().record.cost_ns = spent_ns;
    }

    fn sample(&mut self, seen: &Seen) {
        if self.processes.get(&seen.pid).is_some_and(|tracked| tracked.code != seen.code) {
            self.conclude(seen.pid); // It executes another program, or is another process.
        }
        if seen.is_time {
            let of_execution = self.times.get_mut(&seen.execution);
            let of_process = self.processes.get_mut(&seen.pid).map(|tracked| &mut tracked.times);
            of_execution.into_iter().chain(of_process).for_each(|times| times.push(seen.time_ns));
        }
        let Some(registers) = &seen.registers else { return };
        let may_use = self.may_use_registers();
        if may_use && !self.processes.contains_key(&seen.pid) && !self.track(seen) {
            return;
        }
        let Some(tracked) = self.processes.get_mut(&seen.pid) else { return };
        tracked.seen_ns = seen.time_ns;
        if !may_use {
            return;
        }
        let found = tracked.candidates.sample(&tracked.memory, seen.pc, registers);
        let Some(word) = found.filter(|_| tracked.words.len() < WORDS_MAX) else { return };
        self.shared.output().record.candidates += 1;
        match word_mapping::refused(seen.pid, word) {
            Some(cause) => self.refuse(cause),
            None => {
                if tracked.words.is_empty() {
                    tracked.next_round_ns = now_ns();
                }
                tracked.words.push(Tally::new(word));
            }
        }
    }

    /// Begins to consider a process, if it has enough samples and may be read.
    fn track(&mut self, seen: &Seen) -> bool {
        let untracked = self.untracked.entry(seen.pid).or_default();
        *untracked += 1;
        if *untracked != SAMPLES_MIN {
            if self.untracked.len() > 1 << 14 {
                self.untracked.clear();
            }
            return false;
        }
        if seen.pid == Pid(std::process::id()) {
            return false;
        }
        if self.processes.len() >= PROCESSES_MAX {
            self.refuse("too many processes");
            return false;
        }
        if File::open(format!("/proc/{}/exe", seen.pid)).is_ok_and(|exe| is_32_bit(&exe)) {
            self.refuse("32-bit code");
            return false;
        }
        let memory = match File::open(format!("/proc/{}/mem", seen.pid)) {
            Ok(memory) => memory,
            Err(error) => {
                self.refuse(cause(&error));
                return false;
            }
        };
        self.times.entry(seen.execution).or_default();
        self.processes.insert(seen.pid, Tracked::new(seen, memory));
        true
    }

    /// Reports what was counted in a process, and forgets it.
    fn conclude(&mut self, pid: Pid) {
        self.settle(pid);
        self.report(pid);
        self.untracked.remove(&pid);
        if let Some(tracked) = self.processes.remove(&pid)
            && !self.processes.values().any(|other| other.execution == tracked.execution)
        {
            self.times.remove(&tracked.execution);
        }
    }

    /// Reads and watches what is due.
    fn work(&mut self) {
        let now = now_ns();
        let due: Vec<Pid> = self
            .processes
            .iter()
            .filter(|(_, tracked)| !tracked.words.is_empty())
            .filter(|(_, tracked)| now >= tracked.next_read_ns.min(tracked.next_round_ns))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in due {
            let is_round = self.processes[&pid].next_round_ns <= now_ns();
            let done = if is_round && self.may_spend() { self.round(pid) } else { self.read(pid) };
            if let Err(error) = done {
                if error.raw_os_error() != Some(libc::ESRCH) {
                    self.refuse(cause(&error));
                }
                // Pending results wait for their samples; nothing is read any more.
                if let Some(tracked) = self.processes.get_mut(&pid) {
                    (tracked.next_read_ns, tracked.next_round_ns) = (u64::MAX, u64::MAX);
                    tracked.ended_ns = Some(now_ns());
                }
            }
        }
    }

    /// Reads all words of a process that were observed to count. Words that go back are only read while there is an
    /// allowance, so that they have no gaps; the others need so few reads that a small debt does not matter.
    fn read(&mut self, pid: Pid) -> io::Result<()> {
        let left_ns = self.left_ns();
        let Some(tracked) = self.processes.get_mut(&pid) else { return Ok(()) };
        tracked.is_paused = left_ns < if tracked.is_paused { RESUME_NS } else { 0.0 };
        let is_paused = tracked.is_paused;
        let is_in_debt = left_ns < -DEBT_NS_MAX;
        let waits = |series: &Series| is_paused && (is_in_debt || series.goes_back());
        let series = tracked.words.iter_mut().filter_map(|tally| tally.series.as_mut());
        series.filter(|series| waits(series)).for_each(Series::cut);
        let is_read = |tally: &&mut Tally| tally.series.as_ref().is_some_and(|series| !waits(series));
        let mut words: Vec<&mut Tally> = tracked.words.iter_mut().filter(is_read).collect();
        let addresses: Vec<(VirtualAddress, u8)> =
            words.iter().map(|tally| (tally.word.address, tally.word.size)).collect();
        let time_ns = now_ns();
        let values = read_words(pid, &addresses)?;
        let mut interval_ns = INTERVAL_NS_MAX;
        let mut refused: BTreeMap<VirtualAddress, &'static str> = BTreeMap::new();
        for (tally, value) in words.iter_mut().zip(values) {
            let address = tally.word.address;
            let Some(series) = &mut tally.series else { continue };
            match value {
                None => _ = refused.insert(address, "its memory went away"),
                Some(value) => {
                    series.read(time_ns, value);
                    interval_ns = interval_ns.min(series.interval_ns(time_ns));
                    refused.extend(tally.doubt().map(|doubt| (address, doubt)));
                }
            }
        }
        tracked.words.retain(|tally| !refused.contains_key(&tally.word.address));
        let jitter = 0.75 + 0.5 * self.random.uniform();
        tracked.next_read_ns = time_ns + (interval_ns as f64 * jitter) as u64;
        if is_paused {
            let earned_in_ns = (RESUME_NS - left_ns) / self.budget;
            let pause_ns = earned_in_ns.clamp(*PAUSE_NS.start(), *PAUSE_NS.end()) as u64;
            let is_any_read = !addresses.is_empty();
            tracked.next_read_ns = if is_any_read { tracked.next_read_ns } else { time_ns + pause_ns };
            tracked.next_round_ns = tracked.next_round_ns.max(time_ns + pause_ns);
        }
        self.shared.output().record.reads += u64::from(!addresses.is_empty());
        refused.into_values().for_each(|cause| self.refuse(cause));
        Ok(())
    }

    /// Watches some words of a process for a moment, which confirms what was read before, or not.
    fn round(&mut self, pid: Pid) -> io::Result<()> {
        let tids = threads(pid)?;
        if tids.len() > THREADS_MAX {
            self.processes.get_mut(&pid).into_iter().for_each(|tracked| tracked.words.clear());
            self.refuse("too many threads");
            return Ok(());
        }
        let guard = match self.protection.guard(pid, &tids, true) {
            Ok(guard) => guard,
            Err(refusal) => {
                let next_ns = now_ns() + self.random.delay(ROUND_EVERY_NS_LATER) as u64;
                self.processes.get_mut(&pid).into_iter().for_each(|tracked| tracked.next_round_ns = next_ns);
                self.refuse(&refusal.to_string());
                return Ok(());
            }
        };
        self.read(pid)?;
        sleep(MOMENT);
        self.read(pid)?;
        let Some(tracked) = self.processes.get_mut(&pid) else { return Ok(()) };
        let is_later = tracked.words.iter().all(Tally::is_verified);
        let (every_ns, longest_ns) = if is_later {
            (ROUND_EVERY_NS_LATER, ROUND_NS_LATER)
        } else {
            (ROUND_EVERY_NS_FIRST, ROUND_NS_FIRST)
        };
        let delay_ns = self.random.delay(every_ns).clamp(0.2 * every_ns, 3.0 * every_ns) as u64;
        let rate = |tally: &Tally| tally.series.as_ref().and_then(Series::latest_rate);
        let rates: Vec<Option<f64>> = tracked.words.iter().map(rate).collect();
        for tally in &mut tracked.words {
            tally.series.iter_mut().for_each(Series::cut);
        }
        let number = tracked.words.len();
        let first = tracked.turn % number.max(1);
        let chosen: Vec<usize> = (0..number.min(WATCHED_MAX)).map(|at| (first + at) % number).collect();
        tracked.turn = first + chosen.len();
        let begin_ns = now_ns();
        self.shared.watching_since_ns.store(begin_ns, Ordering::SeqCst);
        let (seen, until_ns) = watch(&guard, &tids, chosen.iter().map(|at| &tracked.words[*at]), longest_ns);
        {
            let mut output = self.shared.output();
            output.watched.push(Watched { pid, begin_ns, until_ns });
        }
        self.shared.watching_since_ns.store(u64::MAX, Ordering::SeqCst);
        if guard.release() > 0 {
            // A write was not seen, so the shares of the others would be wrong.
            tracked.next_round_ns = now_ns() + delay_ns;
            self.refuse("the machine lost a debug exception");
            return Ok(());
        }
        let mut refused: BTreeMap<usize, &'static str> = BTreeMap::new();
        let mut verified = 0;
        let mut is_held = false;
        for (at, seen) in chosen.iter().zip(seen) {
            let writes = match seen {
                Ok(writes) => writes,
                // Another tool has the watchpoints, perhaps only for a while: the word waits.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                    is_held = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.traps_ns += SETTING_NS * tids.len() as u64 + TRAP_NS * writes.len() as u64;
            let tally = &mut tracked.words[*at];
            let mut round = Round { rate_before: rates[*at], ..Round::default() };
            for write in &writes {
                round.tids.insert(write.tid);
                let registers = write.registers.as_ref();
                match tracked.candidates.written(&tracked.memory, write.next_pc, tally.word, registers) {
                    Some(Written::Added(writer)) => round.known.push(writer),
                    Some(Written::Set) => round.set += 1,
                    None => round.unknown += 1,
                }
            }
            let was_verified = tally.is_verified();
            if let Err(cause) = tally.round(&round) {
                refused.insert(*at, cause);
            }
            verified += u64::from(!was_verified && tally.is_verified());
        }
        for at in refused.keys().rev() {
            tracked.words.remove(*at);
        }
        let now = now_ns();
        tracked.next_round_ns = now + delay_ns;
        tracked.next_read_ns = now;
        self.shared.output().record.verified += verified;
        refused.into_values().for_each(|cause| self.refuse(cause));
        if is_held {
            self.refuse("watchpoints in use");
        }
        Ok(())
    }

    /// Adds up the confirmed spans whose samples are complete, and reports processes that have ended, or at the end all.
    fn emit(&mut self) {
        let complete_ns = self.complete_ns;
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        for pid in pids {
            let is_over = self.processes.get(&pid).is_some_and(|tracked| tracked.is_over(complete_ns));
            if complete_ns == u64::MAX || is_over {
                self.conclude(pid);
            } else {
                self.settle(pid);
            }
        }
    }

    /// Adds up a process's confirmed spans whose samples are complete.
    fn settle(&mut self, pid: Pid) {
        let complete_ns = self.complete_ns;
        let Some(tracked) = self.processes.get_mut(&pid) else { return };
        let Some(of_execution) = self.times.get(&tracked.execution) else { return };
        let mut refused = 0;
        for tally in &mut tracked.words {
            let (due, pending): (Vec<Span>, Vec<Span>) =
                std::mem::take(&mut tally.pending).into_iter().partition(|span| span.end_ns < complete_ns);
            tally.pending = pending;
            for span in due {
                let (own, all) = (tracked.times.within(&span), of_execution.within(&span));
                let [own_samples, all_samples] =
                    [&own, &all].map(|within| (within.end - within.start) as f64);
                if own_samples < ONE_PROCESS_SHARE * all_samples {
                    refused += 1;
                } else {
                    tally.add(span, all);
                }
            }
        }
        if refused > 0 {
            let mut output = self.shared.output();
            let cause = "other processes of the execution ran".to_owned();
            *output.record.refused.entry(cause).or_default() += refused;
        }
    }

    /// Passes on what the verified words of a process counted. A word's count is less certain, the more of the run it does
    /// not cover, so this is done once.
    fn report(&self, pid: Pid) {
        let Some(tracked) = self.processes.get(&pid) else { return };
        let Some(of_execution) = self.times.get(&tracked.execution) else { return };
        let (mut refused, mut counts, mut words) = (BTreeMap::<&str, u64>::new(), Vec::new(), 0);
        for tally in tracked.words.iter().filter(|tally| tally.is_verified()) {
            let own = |writer: &Increment| tracked.candidates.share_of(writer, tally.word);
            match tally.executions(of_execution.all(), own) {
                Err(cause) => *refused.entry(cause).or_default() += 1,
                Ok(Executions { samples, of }) => {
                    words += 1;
                    counts.extend(of.into_iter().map(|(pc, executions, deviation)| RawCount {
                        pid,
                        code: tracked.code,
                        pc,
                        executions,
                        samples,
                        deviation,
                        source: CountSource::MemoryWord,
                    }));
                }
            }
        }
        let mut output = self.shared.output();
        output.counts.append(&mut counts);
        output.record.words += words;
        for (cause, number) in refused {
            *output.record.refused.entry(cause.to_owned()).or_default() += number;
        }
    }
}

/// Watches words at the same time, up to a limit. Returns the writes of each, or why it could not be watched, and the
/// time during which the program was disturbed.
fn watch<'t>(
    guard: &Guard,
    tids: &[Tid],
    tallies: impl Iterator<Item = &'t Tally>,
    longest_ns: u64,
) -> (Vec<io::Result<Vec<Write>>>, u64) {
    let begin_ns = now_ns();
    let mut watches: Vec<(i32, io::Result<Watchpoint>)> = tallies
        .map(|tally| {
            let writes = tally.writes_wanted();
            (writes, Watchpoint::set(guard, tids, tally.word.address, tally.word.size, writes))
        })
        .collect();
    let (mut until_ns, mut seen) = (now_ns(), 0);
    loop {
        sleep(LOOK);
        let mut is_done = true;
        let mut number = 0;
        for (writes, watch) in &mut watches {
            if let Ok(watch) = watch {
                let so_far = watch.writes().len();
                number += so_far;
                is_done &= so_far >= *writes as usize;
            }
        }
        if number > seen {
            (until_ns, seen) = (now_ns(), number);
        }
        if is_done || now_ns().saturating_sub(begin_ns) >= longest_ns {
            break;
        }
    }
    (watches.into_iter().map(|(_, watch)| watch.map(|mut watch| watch.writes().to_vec())).collect(), until_ns)
}

fn threads(pid: Pid) -> io::Result<Vec<Tid>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

fn cause(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "not permitted",
        Some(libc::ESRCH | libc::ENOENT) => "gone",
        Some(libc::ENOSPC) => "watchpoints in use",
        Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE) => "no memory for events",
        _ => "no watchpoints here",
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
