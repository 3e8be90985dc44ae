//! The thread that decides which process's code is counted, and when.
//!
//! Enters: samples. Leaves: executions with their samples. The program that is sampled most is counted. Procedures that become hot
//! later are added later. Counting goes on all the time ([`Readings`]) or in windows ([`Windows`]), which begin at random times.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use dwell_attribution::{CodeId, ExecutionId};
use dwell_profile::{CountSource, Pid, VirtualAddress};
use rustc_hash::FxHashMap;

use super::{
    CodeCounter, CodeCounts, CountWhen, Inbox, NewCounters, Shared,
    readings::Readings,
    times::Times,
    windows::{Anchors, BlockEstimate, Windows},
};
use crate::{
    evidence::counts::{RawCount, Seen},
    host::live_processes::has_ended,
    random::Random,
    sys::clock::now_ns,
};

/// How long to wait for samples.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Interval between two readings.
const READ_EVERY: Duration = Duration::from_millis(100);
/// Time after which procedures are added and counters are chosen again for the first time, and the longest such interval. It doubles
/// each time.
const CHOOSE_AFTER: Duration = Duration::from_millis(50);
const CHOOSE_EVERY: Duration = Duration::from_secs(2);
/// Length of a window.
const WINDOW: Duration = Duration::from_millis(20);
/// The shortest time between two windows.
const BETWEEN_MIN: Duration = Duration::from_millis(50);
/// How much slower a program is in windows, as long as that is not known.
const SLOWER: f64 = 1.5;
/// How often in succession changes of counters may fail.
const FAILURES_MAX: u32 = 3;
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
    places: FxHashMap<VirtualAddress, u64>,
    samples: u64,
    /// Whether it cannot be counted.
    is_refused: bool,
}

/// What a change of counters has done.
struct Changed {
    anchors: Vec<(VirtualAddress, VirtualAddress)>,
    stopped_ns: u64,
}

/// The program that is counted.
struct Current {
    program: Program,
    counting: Counting,
}

/// How it is counted.
enum Counting {
    Always { readings: Readings, read_next: Instant, choose_next: Instant, choose_every: Duration },
    InWindows(Box<InWindows>),
}

struct InWindows {
    windows: Windows,
    times: Times,
    /// Number of samples when the window, or the time between two windows, began.
    samples_begin: u64,
    anchors: Anchors,
    is_in_window: bool,
    ends: Instant,
    /// CPU time when the window, or the time between two windows, began; `None` if its counts are not certain.
    cpu_ns: Option<u64>,
    /// How often in succession counters could not be changed.
    failures: u32,
    /// CPU time of the program that all windows have cost, in ns.
    cost_ns: f64,
    random: Random,
}

pub struct Worker {
    shared: Arc<Shared>,
    counter: Box<dyn CodeCounter>,
    when: CountWhen,
    programs: FxHashMap<Program, Sampled>,
    current: Option<Current>,
}

impl Worker {
    pub fn new(shared: Arc<Shared>, counter: Box<dyn CodeCounter>, when: CountWhen) -> Self {
        if let CountWhen::Windows(percent) = when {
            shared.output().record.budget_percent = percent;
        }
        Worker { shared, counter, when, programs: FxHashMap::default(), current: None }
    }

    /// Works until the inbox is closed.
    pub fn run(mut self) {
        loop {
            let Inbox { seen, complete_ns } = self.shared.await_inbox(LOOK_EVERY);
            seen.iter().for_each(|seen| self.sample(seen));
            if complete_ns == u64::MAX {
                self.end();
                break;
            }
            self.deliver(complete_ns);
            self.go_on();
        }
    }

    fn sample(&mut self, seen: &Seen) {
        let program = (seen.pid, seen.code, seen.execution);
        if let Some(current) = &mut self.current
            && seen.is_time
            && current.program.2 == seen.execution
        {
            match &mut current.counting {
                Counting::Always { readings, .. } => readings.sample(seen.time_ns),
                Counting::InWindows(windows) => windows.times.sample(seen.time_ns, seen.is_user),
            }
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
        let Some(mut current) = self.current.take() else { return self.begin() };
        let (program, now) = (current.program, Instant::now());
        let done = match &mut current.counting {
            Counting::Always { readings, choose_next, choose_every, read_next } if now >= *choose_next => {
                *choose_next = now + *choose_every;
                *read_next = now + READ_EVERY;
                *choose_every = (2 * *choose_every).min(CHOOSE_EVERY);
                self.read(readings).and_then(|()| self.choose(program)).and_then(|_| self.skip(readings))
            }
            Counting::Always { readings, read_next, .. } if now >= *read_next => {
                *read_next = now + READ_EVERY;
                self.read(readings)
            }
            Counting::InWindows(windows) if now >= windows.ends => self.turn(program, windows),
            _ => Ok(()),
        };
        self.current = Some(current);
        if let Err(error) = done {
            self.note_refusal(program, &error);
            self.end();
        }
    }

    /// Notes why a program is not counted, unless it has ended.
    fn note_refusal(&mut self, (pid, ..): Program, error: &io::Error) {
        std::thread::sleep(LOOK_EVERY); // Its memory is gone somewhat before it has ended.
        if !has_ended(pid) {
            *self.shared.output().record.refused.entry(error.to_string()).or_default() += 1;
        }
    }

    /// Begins to count the program that is sampled most.
    fn begin(&mut self) {
        let candidates =
            self.programs.iter().filter(|(_, sampled)| sampled.samples >= SAMPLES_MIN && !sampled.is_refused);
        let hottest = candidates.max_by_key(|(_, sampled)| sampled.samples).map(|(program, _)| *program);
        let Some(program) = hottest else { return };
        if has_ended(program.0) {
            self.programs.remove(&program);
            return;
        }
        let begun =
            self.attach(program).and_then(|()| self.choose(program)).and_then(|_| self.counter.executions());
        let counts = match begun {
            Ok(counts) => counts,
            Err(error) => {
                self.programs.entry(program).or_default().is_refused = true;
                self.note_refusal(program, &error);
                let _ = self.counter.remove();
                return;
            }
        };
        let now = Instant::now();
        let counting = match self.when {
            CountWhen::Always => {
                let mut readings = Readings::default();
                readings.skip(now_ns());
                let (read_next, choose_next) = (now + READ_EVERY, now + CHOOSE_AFTER);
                Counting::Always { readings, read_next, choose_next, choose_every: 2 * CHOOSE_AFTER }
            }
            CountWhen::Windows(_) => Counting::InWindows(Box::new(InWindows {
                windows: Windows::default(),
                times: Times::new(now_ns()),
                samples_begin: 0,
                anchors: Anchors::new(),
                is_in_window: true,
                ends: now + WINDOW,
                cpu_ns: counts.map(|counts| counts.cpu_ns),
                failures: 0,
                cost_ns: 0.0,
                random: Random::new(now_ns()),
            })),
        };
        self.current = Some(Current { program, counting });
    }

    fn attach(&mut self, program: Program) -> io::Result<()> {
        self.shared.adding_since_ns.store(now_ns(), Ordering::SeqCst);
        let attached = self.counter.attach(program.0);
        self.shared.adding_since_ns.store(u64::MAX, Ordering::SeqCst);
        attached
    }

    /// Adds procedures that have become hot, and chooses counters again.
    fn choose(&mut self, program: Program) -> io::Result<Changed> {
        let sampled = self.programs.get(&program);
        let places = sampled.into_iter().flat_map(|sampled| &sampled.places);
        let samples = places.map(|(pc, number)| (*pc, *number)).collect();
        self.change(program, |counter| counter.count(samples))
    }

    /// Changes what is counted, and passes on what that has added.
    fn change(
        &mut self,
        program: Program,
        change: impl FnOnce(&mut dyn CodeCounter) -> io::Result<NewCounters>,
    ) -> io::Result<Changed> {
        self.shared.adding_since_ns.store(now_ns(), Ordering::SeqCst);
        let changed = change(self.counter.as_mut());
        let mut output = self.shared.output();
        let changed = changed.map(|new| {
            output.moved.push((program.0, new.spans));
            output.record.procedures += new.procedures;
            output.record.counters = output.record.counters.max(new.counters);
            for (cause, number) in new.refused {
                *output.record.refused.entry(cause).or_default() += number;
            }
            output.record.cost_ns += new.stopped_ns;
            Changed { anchors: new.anchors, stopped_ns: new.stopped_ns }
        });
        drop(output);
        self.shared.adding_since_ns.store(u64::MAX, Ordering::SeqCst);
        changed
    }

    fn read(&mut self, readings: &mut Readings) -> io::Result<()> {
        let counts = self.executions()?;
        readings.read(
            now_ns(),
            counts.map(|counts| counts.procedures.into_iter().flat_map(|counted| counted.blocks).collect()),
        );
        Ok(())
    }

    /// Leaves out the time since the last reading.
    fn skip(&mut self, readings: &mut Readings) -> io::Result<()> {
        self.executions()?;
        readings.skip(now_ns());
        Ok(())
    }

    fn executions(&mut self) -> io::Result<Option<CodeCounts>> {
        self.shared.output().record.reads += 1;
        self.counter.executions()
    }

    /// Ends a window, or begins the next one.
    fn turn(&mut self, program: Program, windows: &mut InWindows) -> io::Result<()> {
        let CountWhen::Windows(percent) = self.when else { return Ok(()) };
        let end_ns = now_ns();
        let counts = self.executions()?;
        windows.end(end_ns, counts.as_ref());
        let changed = if windows.is_in_window {
            self.change(program, |counter| counter.rest())
        } else {
            self.choose(program)
        };
        let changed = match changed {
            // A thread could not be brought to leave the code that was to change: later it may.
            Err(error) if windows.failures < FAILURES_MAX && !has_ended(program.0) => {
                *self.shared.output().record.refused.entry(error.to_string()).or_default() += 1;
                windows.failures += 1;
                None
            }
            changed => Some(changed?),
        };
        if let Some(changed) = &changed {
            windows.failures = 0;
            windows.cost_ns += changed.stopped_ns as f64;
            if windows.is_in_window {
                windows.anchors = changed.anchors.iter().copied().collect();
            }
        }
        let cost_ns = windows.add(counts);
        windows.cost_ns += cost_ns;
        self.shared.output().record.cost_ns += cost_ns as u64;
        // What was counted while code was changed belongs to neither.
        windows.times.begin(now_ns());
        windows.cpu_ns = self.executions()?.map(|counts| counts.cpu_ns);
        windows.is_in_window ^= changed.is_some();
        windows.samples_begin = windows.times.samples();
        let next = if windows.is_in_window { WINDOW } else { windows.pause(percent) };
        windows.ends = Instant::now() + next;
        Ok(())
    }

    /// Ends counting a program that has ended, or when recording ends.
    fn end(&mut self) {
        let Some(mut current) = self.current.take() else { return };
        let program = current.program;
        let (pid, code, _) = program;
        match &mut current.counting {
            Counting::Always { readings, .. } => {
                let _ = self.read(readings);
                self.current = Some(current);
                self.deliver(u64::MAX);
                self.current = None;
            }
            Counting::InWindows(windows) => {
                let end_ns = now_ns();
                if let Ok(counts) = self.executions() {
                    windows.end(end_ns, counts.as_ref());
                    windows.add(counts);
                }
                let samples = windows.times.samples();
                // While code is changed, nothing is counted.
                let uncovered = windows.times.all_to_counted();
                let of = |estimate: BlockEstimate| RawCount {
                    pid,
                    code,
                    pc: estimate.block,
                    executions: estimate.executions * uncovered,
                    samples: samples.saturating_sub(estimate.samples_before),
                    deviation: estimate.deviation,
                    source: CountSource::CodeCounter,
                };
                self.shared.output().counts.extend(windows.windows.estimates().into_iter().map(of));
            }
        }
        self.programs.entry(program).or_default().is_refused = true;
        // A process that has ended needs no removal, and what is left in one is removed when the counter is dropped.
        let _ = self.counter.remove();
    }

    /// Passes on what was counted, as far as its samples are known.
    fn deliver(&mut self, complete_ns: u64) {
        let Some(Current { program: (pid, code, _), counting: Counting::Always { readings, .. } }) =
            &mut self.current
        else {
            return;
        };
        let (pid, code) = (*pid, *code);
        let mut counts = Vec::new();
        for counted in readings.take(complete_ns) {
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

impl InWindows {
    /// Notes the end of a window, or of the time between two. It was counted if both readings are certain.
    fn end(&mut self, now_ns: u64, counts: Option<&CodeCounts>) {
        if counts.is_some() && self.cpu_ns.is_some() {
            self.times.end(now_ns);
        } else {
            self.times.begin(now_ns);
        }
    }

    /// Adds what was counted in this window, or since the last one. Returns the CPU time in ns that the window has cost the program.
    fn add(&mut self, counts: Option<CodeCounts>) -> f64 {
        let (Some(CodeCounts { cpu_ns, procedures }), Some(begin_ns)) = (counts, self.cpu_ns) else {
            return 0.0;
        };
        let cpu_ns = cpu_ns.saturating_sub(begin_ns);
        if self.is_in_window {
            self.windows.add_window(procedures, &self.anchors, cpu_ns, self.samples_begin);
            cpu_ns as f64 * (1.0 - 1.0 / self.windows.slower().unwrap_or(SLOWER))
        } else {
            self.windows.add_between(&procedures, &self.anchors, cpu_ns);
            0.0
        }
    }

    /// Returns the time until the next window, so that all windows together cost this percentage.
    fn pause(&mut self, percent: f64) -> Duration {
        let mean = std::mem::take(&mut self.cost_ns) * 100.0 / percent;
        let pause = Duration::from_nanos((mean * (0.5 + self.random.uniform())) as u64);
        pause.max(BETWEEN_MIN)
    }
}
