//! The thread that decides which process's code is counted, and when its counters are read.
//!
//! Enters: samples. Leaves: executions with their samples. Procedures that become hot later are added later, and then counters are chosen
//! again.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use dwell_attribution::{CodeId, ExecutionId};
use dwell_profile::{CountSource, Pid};
use rustc_hash::FxHashMap;

use super::{CodeCounter, Inbox, Shared, readings::Readings};
use crate::{
    evidence::counts::{RawCount, Seen},
    sys::clock::now_ns,
};

/// How long to wait for samples.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Interval between two readings.
const READ_EVERY: Duration = Duration::from_millis(100);
/// Time after which procedures are added and counters are chosen again for the first time, and the longest such interval. It doubles
/// each time.
const CHOOSE_AFTER: Duration = Duration::from_millis(50);
const CHOOSE_EVERY: Duration = Duration::from_secs(2);
/// Number of samples of a process that say which of its procedures are hot.
const SAMPLES_MIN: u64 = 100;
/// Number of addresses of a process that are remembered.
const PLACES_MAX: usize = 1 << 16;
/// Number of processes whose samples are remembered.
const PROCESSES_MAX: usize = 256;
/// Standard deviation of the logarithm of executions that were counted exactly, but of a part of the run.
const DEVIATION: f64 = 0.01;

/// A process that executes one program.
type Program = (Pid, CodeId, ExecutionId);

/// What is known of a program.
#[derive(Default)]
struct Sampled {
    /// Numbers of samples in user mode by address.
    places: FxHashMap<u64, u64>,
    samples: u64,
    /// Whether it cannot be counted.
    is_refused: bool,
}

/// The program that is counted.
struct Current {
    program: Program,
    readings: Readings,
    read_next: Instant,
    choose_next: Instant,
    choose_every: Duration,
}

pub struct Worker {
    shared: Arc<Shared>,
    counter: Box<dyn CodeCounter>,
    programs: FxHashMap<Program, Sampled>,
    current: Option<Current>,
}

impl Worker {
    pub fn new(shared: Arc<Shared>, counter: Box<dyn CodeCounter>) -> Self {
        Worker { shared, counter, programs: FxHashMap::default(), current: None }
    }

    /// Works until the inbox is closed.
    pub fn run(mut self) {
        loop {
            let Inbox { seen, complete_ns } = self.shared.await_inbox(LOOK_EVERY);
            seen.iter().for_each(|seen| self.sample(seen));
            if complete_ns == u64::MAX {
                self.read();
                self.deliver(complete_ns);
                break;
            }
            self.deliver(complete_ns);
            self.go_on();
        }
        // A process that has ended needs no removal, and what is left in one is removed when the counter is dropped.
        let _ = self.counter.remove();
    }

    fn sample(&mut self, seen: &Seen) {
        let program = (seen.pid, seen.code, seen.execution);
        if let Some(current) = &mut self.current
            && seen.is_time
            && current.program.2 == seen.execution
        {
            current.readings.sample(seen.time_ns);
        }
        if !seen.is_user || self.programs.len() >= PROCESSES_MAX && !self.programs.contains_key(&program) {
            return;
        }
        let sampled = self.programs.entry(program).or_default();
        sampled.samples += 1;
        if sampled.places.len() < PLACES_MAX || sampled.places.contains_key(&seen.pc) {
            *sampled.places.entry(seen.pc).or_default() += 1;
        }
    }

    /// Does what is due.
    fn go_on(&mut self) {
        let now = Instant::now();
        let Some(current) = &mut self.current else { return self.begin() };
        let is_there = if now >= current.choose_next {
            self.read() && self.choose()
        } else if now >= current.read_next {
            self.read()
        } else {
            true
        };
        if !is_there {
            self.end();
        }
    }

    /// Begins to count the program that is sampled most.
    fn begin(&mut self) {
        let candidates = self.programs.iter().filter(|(_, sampled)| {
            sampled.samples >= SAMPLES_MIN && !sampled.is_refused
        });
        let Some(program) = candidates.max_by_key(|(_, sampled)| sampled.samples).map(|(program, _)| *program) else {
            return;
        };
        self.shared.adding_since_ns.store(now_ns(), Ordering::SeqCst);
        let attached = self.counter.attach(program.0);
        self.shared.adding_since_ns.store(u64::MAX, Ordering::SeqCst);
        if let Err(error) = attached {
            self.refuse(program, &error.to_string());
            return;
        }
        let now = Instant::now();
        self.current = Some(Current {
            program,
            readings: Readings::default(),
            read_next: now,
            choose_next: now,
            choose_every: CHOOSE_AFTER,
        });
        if !self.choose() {
            self.end();
        }
    }

    /// Adds procedures that have become hot, and chooses counters again. Returns whether the program is still there.
    fn choose(&mut self) -> bool {
        let Some(current) = &mut self.current else { return false };
        current.choose_next = Instant::now() + current.choose_every;
        current.choose_every = (2 * current.choose_every).min(CHOOSE_EVERY);
        let program = current.program;
        let Some(sampled) = self.programs.get(&program) else { return true };
        let samples = sampled.places.iter().map(|(pc, number)| (*pc, *number)).collect();
        let begin = Instant::now();
        self.shared.adding_since_ns.store(now_ns(), Ordering::SeqCst);
        let added = self.counter.count(samples);
        let is_there = added.is_ok();
        {
            let mut output = self.shared.output();
            output.record.cost_ns += begin.elapsed().as_nanos() as u64;
            match added {
                Ok(new) => {
                    output.moved.push((program.0, new.spans));
                    output.record.procedures += new.procedures;
                    output.record.counters = new.counters;
                    for (cause, number) in new.refused {
                        *output.record.refused.entry(cause).or_default() += number;
                    }
                }
                Err(error) => *output.record.refused.entry(error.to_string()).or_default() += 1,
            }
        }
        self.shared.adding_since_ns.store(u64::MAX, Ordering::SeqCst);
        is_there && self.skip()
    }

    /// Leaves out the time since the last reading. Returns whether the program is still there.
    fn skip(&mut self) -> bool {
        let Some(current) = &mut self.current else { return false };
        let read = self.counter.executions();
        current.readings.skip(now_ns());
        read.is_ok()
    }

    /// Reads the counters. Returns whether the program is still there.
    fn read(&mut self) -> bool {
        let Some(current) = &mut self.current else { return false };
        current.read_next = Instant::now() + READ_EVERY;
        // Executions while this is read are counted in this interval or in the next one.
        match self.counter.executions() {
            Ok(executions) => {
                current.readings.read(now_ns(), executions);
                self.shared.output().record.reads += 1;
                true
            }
            Err(_) => false,
        }
    }

    /// Ends counting a program that has ended, or executes another one.
    fn end(&mut self) {
        self.deliver(u64::MAX);
        if let Some(current) = self.current.take() {
            self.programs.entry(current.program).or_default().is_refused = true;
            let _ = self.counter.remove();
        }
    }

    fn refuse(&mut self, program: Program, why: &str) {
        self.programs.entry(program).or_default().is_refused = true;
        *self.shared.output().record.refused.entry(why.to_owned()).or_default() += 1;
    }

    /// Passes on what was counted, as far as its samples are known.
    fn deliver(&mut self, complete_ns: u64) {
        let Some(current) = &mut self.current else { return };
        let (pid, code, _) = current.program;
        let mut counts = Vec::new();
        for counted in current.readings.take(complete_ns) {
            counts.extend(counted.executions.into_iter().map(|(pc, executions)| RawCount {
                pid,
                code,
                pc,
                executions: executions as f64,
                samples: counted.samples,
                deviation: DEVIATION,
                source: CountSource::CodeCounter,
            }));
        }
        if !counts.is_empty() {
            self.shared.output().counts.extend(counts);
        }
    }
}
