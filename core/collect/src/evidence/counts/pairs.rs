//! Pairs of samples of one thread in one activation of a loop: exact executions, and the loop's rate that follows from
//! them.
//!
//! Enters: the counters of loops, samples with registers in order of time, observations of a loop's exits. Leaves:
//! executions of the counters' writers, each with its error, or the reason why a counter has none. Never here: I/O,
//! clocks, code.
//!
//! Two samples form a pair if every register that the loop does not write is the same in both, including the stack
//! pointer, and the counter moved by a whole number of steps that is possible in the time between. The executions of a
//! pair are exact while the thread did not leave the loop, but registers alone cannot show that: a pointer that another
//! loop moved on, or a loop that begins again about as often as samples are taken, looks the same as one that continues.
//! So a counter is believed only after breakpoints at the loop's exits have shown that activations last for several
//! samples ([`Exits`]). Executions of samples that began no pair are extrapolated from those that did, and the error
//! grows with their share.

use std::collections::BTreeMap;

use dwell_attribution::ExecutionId;
use dwell_profile::Tid;
use rustc_hash::FxHashMap;

use super::loops::{Counter, Register, Step};
use crate::registers::Registers;

/// The greatest number of instructions that a core retires in a nanosecond: 8 per cycle, at 6 GHz.
const INSTRUCTIONS_PER_NS: f64 = 48.0;
/// Largest distance in ns between two samples of a pair.
const APART_NS_MAX: u64 = 100_000_000;
/// Number of threads whose last samples are kept.
const THREADS_MAX: usize = 4096;
/// Number of pairs from which a counter is considered.
const PAIRS_MIN: u64 = 30;
/// Number of executions from which a counter is believed.
const EXECUTIONS_MIN: u64 = 200;
/// Greatest share of the pairs that may have gone backward.
const BACKWARD_MAX: f64 = 0.15;
/// Least share of a loop's samples that begin a pair.
const PAIRED_MIN: f64 = 0.6;
/// Least share of an application's samples that a loop must have.
const SHARE_MIN: f64 = 0.005;
/// The logarithmic error of a counter whose every sample begins a pair.
const DEVIATION: f64 = 0.01;
/// Logarithmic error of the rate of the samples that began no pair.
const UNPAIRED_DEVIATION: f64 = 0.25;
/// Logarithmic error of the rate of the samples that were dropped. While exits are watched the loop runs at full speed; while
/// a word is watched it partly waits for traps.
const DROPPED_DEVIATION: f64 = 0.5;
/// Least time in ns that exits were watched while the thread ran in the loop, and least number of windows.
const WATCHED_NS_MIN: u64 = 6_000_000;
const WINDOWS_MIN: u32 = 3;
/// Least average duration of an activation, in periods of samples.
const ACTIVATION_PERIODS_MIN: f64 = 2.0;
/// Number of exits that are watched at the same time, and in all.
const EXITS_AT_ONCE: usize = 4;
pub const EXITS_MAX: usize = 12;

/// A counter, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterId(pub u32);

/// Why two samples are no pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mismatch {
    /// A register that the loop does not write has changed: it is another activation.
    Activation,
    /// The counter went backward.
    Backward,
    /// The counter changed by no multiple of its step.
    Step,
    /// The counter changed by more than can be executed in the time between.
    Fast,
    /// The thread was elsewhere between the samples.
    Left,
}

/// Returns how often a counter's writer was executed between two samples in its body, in order of time.
pub fn executions(
    counter: &Counter,
    before: &Registers,
    after: &Registers,
    apart_ns: u64,
) -> Result<u64, Mismatch> {
    let is_same = |register: Register| register.value(before) == register.value(after);
    if !is_same(Register::RSP) || !counter.invariants.iter().all(is_same) {
        return Err(Mismatch::Activation);
    }
    if apart_ns > APART_NS_MAX {
        return Err(Mismatch::Left);
    }
    let step = match counter.step {
        Step::Constant(step) => step,
        Step::Register(by) => by.value(after) as i64,
        Step::Negated(by) => (by.value(after) as i64).wrapping_neg(),
    };
    let (step, mask) = match counter.width_bits {
        32 => (i64::from(step as i32), u64::from(u32::MAX)),
        _ => (step, u64::MAX),
    };
    if step == 0 {
        return Err(Mismatch::Step);
    }
    let change = counter.register.value(after).wrapping_sub(counter.register.value(before));
    let forward = if step > 0 { change } else { change.wrapping_neg() } & mask;
    let step = step.unsigned_abs();
    if forward > mask / 2 {
        // If several additions form a step, one or two missing ones do not mean that the counter went back.
        return Err(Mismatch::Backward);
    }
    if counter.parts == 1 && forward % step != 0 {
        return Err(Mismatch::Step);
    }
    let executions = forward / step;
    let most = apart_ns as f64 * INSTRUCTIONS_PER_NS / f64::from(counter.instructions_min.max(1)) + 2.0;
    if executions as f64 > most { Err(Mismatch::Fast) } else { Ok(executions) }
}

/// What breakpoints at a counter's exits counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exits {
    /// For each group of [`EXITS_AT_ONCE`] exits the windows, the time in ns that the thread ran in them, and the
    /// executions.
    groups: Vec<(u32, u64, u64)>,
    /// The next group to be watched.
    next: usize,
}

impl Exits {
    /// Returns the number of groups of exits, which are watched in turn.
    fn groups_of(counter: &Counter) -> usize {
        counter.exits.len().div_ceil(EXITS_AT_ONCE)
    }

    /// Returns the exits to be watched next.
    pub fn due<'a>(&self, counter: &'a Counter) -> &'a [u64] {
        let start = (self.next * EXITS_AT_ONCE).min(counter.exits.len());
        &counter.exits[start..(start + EXITS_AT_ONCE).min(counter.exits.len())]
    }

    /// Adds a window, in which the thread ran for `running_ns` and the exits were executed `executions` times.
    pub fn add(&mut self, counter: &Counter, running_ns: u64, executions: u64) {
        let groups = Self::groups_of(counter);
        self.groups.resize(groups, (0, 0, 0));
        if let Some(group) = self.groups.get_mut(self.next) {
            *group = (group.0 + 1, group.1.saturating_add(running_ns), group.2.saturating_add(executions));
            self.next = (self.next + 1) % groups;
        }
    }

    /// Whether all exits were watched for long enough, given the period of samples.
    fn is_known(&self, counter: &Counter, period_ns: f64) -> bool {
        let least_ns = (WATCHED_NS_MIN as f64).max(3.0 * ACTIVATION_PERIODS_MIN * period_ns);
        let enough = |group: &(u32, u64, u64)| group.0 >= WINDOWS_MIN && group.1 as f64 >= least_ns;
        self.groups.len() == Self::groups_of(counter) && self.groups.iter().all(enough)
    }

    /// Returns an upper bound on how often the loop is left per nanosecond of running it.
    fn per_ns(&self) -> f64 {
        self.groups.iter().map(|(_, ns, executions)| (*executions as f64 + 0.5) / (*ns as f64).max(1.0)).sum()
    }

    /// Whether activations are known to be short, however long exits would be watched.
    fn is_short(&self, period_ns: f64) -> bool {
        let most = 1.0 / (ACTIVATION_PERIODS_MIN * period_ns);
        self.groups
            .iter()
            .any(|(_, ns, executions)| *executions >= 8 && *executions as f64 / (*ns as f64).max(1.0) > most)
    }
}

/// The observations of a counter in an application.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Number of samples in the body.
    pub samples: u64,
    /// Number of further samples in the body that were dropped, since counting executions disturbed the thread.
    pub dropped: u64,
    /// Number of pairs.
    pub pairs: u64,
    /// Number of executions in the pairs.
    pub executions: u64,
    /// Time in ns between the samples of pairs.
    pub apart_ns: u64,
    /// Number of samples in the body whose successor was no match, by reason.
    pub mismatches: BTreeMap<Mismatch, u64>,
}

impl Tally {
    /// Adds the observations of another tally.
    pub fn add(&mut self, other: &Tally) {
        self.samples += other.samples;
        self.dropped += other.dropped;
        self.pairs += other.pairs;
        self.executions = self.executions.saturating_add(other.executions);
        self.apart_ns = self.apart_ns.saturating_add(other.apart_ns);
        for (cause, number) in &other.mismatches {
            *self.mismatches.entry(*cause).or_default() += number;
        }
    }

    fn of(&self, cause: Mismatch) -> u64 {
        self.mismatches.get(&cause).copied().unwrap_or(0)
    }

    /// Returns the share of samples that began a pair, among those for which that is known.
    fn paired(&self) -> f64 {
        let all = self.pairs + self.mismatches.values().sum::<u64>();
        self.pairs as f64 / all.max(1) as f64
    }

    fn period_ns(&self) -> f64 {
        self.apart_ns as f64 / self.pairs.max(1) as f64
    }

    /// Checks whether the pairs by themselves allow the counter, so that its exits are worth watching. `app_samples` is
    /// the number of samples of its application. Fails with the reason.
    pub fn promises(&self, app_samples: u64) -> Result<(), &'static str> {
        let forward_or_back = self.pairs + self.of(Mismatch::Backward);
        if self.pairs < PAIRS_MIN || self.executions < EXECUTIONS_MIN {
            Err("few pairs")
        } else if (self.samples as f64) < SHARE_MIN * app_samples as f64 {
            Err("little time")
        } else if self.of(Mismatch::Backward) as f64 > BACKWARD_MAX * forward_or_back as f64 {
            Err("backward")
        } else if self.paired() < PAIRED_MIN {
            Err("short activations")
        } else {
            Ok(())
        }
    }

    /// Returns the executions of all samples in the body, with those that were dropped, and the standard deviation of their
    /// logarithm. Fails with the reason why there are none.
    pub fn judge(
        &self,
        counter: &Counter,
        exits: &Exits,
        app_samples: u64,
    ) -> Result<(f64, f64), &'static str> {
        self.promises(app_samples)?;
        if counter.exits.len() > EXITS_MAX {
            return Err("many exits");
        }
        let period_ns = self.period_ns();
        if exits.is_short(period_ns) {
            return Err("exits");
        }
        if !counter.exits.is_empty() {
            if !exits.is_known(counter, period_ns) {
                return Err("exits not watched");
            }
            if exits.per_ns() * ACTIVATION_PERIODS_MIN * period_ns > 1.0 {
                return Err("exits");
            }
        }
        let all = (self.samples + self.dropped) as f64;
        let executions = self.executions as f64 / self.pairs as f64 * all;
        let unpaired = (1.0 - self.paired()) * UNPAIRED_DEVIATION;
        let dropped = self.dropped as f64 / all * DROPPED_DEVIATION;
        Ok((executions, DEVIATION.hypot(unpaired).hypot(dropped)))
    }
}

/// A sample in user mode.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The sample's thread.
    pub tid: Tid,
    /// What the sample's process executes.
    pub execution: ExecutionId,
    /// The time of the sample in ns.
    pub time_ns: u64,
    /// The sample's registers.
    pub registers: &'a Registers,
}

/// A sample in a body, to be paired with the thread's next one.
#[derive(Clone, Debug)]
struct Open {
    counter: CounterId,
    execution: ExecutionId,
    time_ns: u64,
    registers: Registers,
}

/// Pairs samples, thread by thread.
#[derive(Default)]
pub struct Pairs {
    threads: FxHashMap<Tid, Vec<Open>>,
    tallies: FxHashMap<(CounterId, ExecutionId), Tally>,
}

impl Pairs {
    /// Adds a sample that is in the bodies of the counters `within`, out of all `counters`.
    pub fn sample(&mut self, counters: &[Counter], within: &[CounterId], seen: Seen<'_>) {
        if within.is_empty() && !self.threads.contains_key(&seen.tid) {
            return;
        }
        let open = self.threads.remove(&seen.tid).unwrap_or_default();
        let mut still = Vec::with_capacity(within.len());
        for begun in open {
            let Some(counter) = counters.get(begun.counter.0 as usize) else { continue };
            let is_in_callee = counter.has_calls
                && begun.execution == seen.execution
                && Register::RSP.value(seen.registers) < Register::RSP.value(&begun.registers);
            let is_within = within.contains(&begun.counter);
            if !is_within && is_in_callee {
                still.push(begun);
                continue;
            }
            let apart_ns = seen.time_ns.saturating_sub(begun.time_ns);
            let found = if !is_within || begun.execution != seen.execution {
                Err(Mismatch::Left)
            } else {
                executions(counter, &begun.registers, seen.registers, apart_ns)
            };
            let tally = self.tallies.entry((begun.counter, begun.execution)).or_default();
            match found {
                Ok(executions) => {
                    tally.pairs += 1;
                    tally.executions = tally.executions.saturating_add(executions);
                    tally.apart_ns += apart_ns;
                }
                Err(cause) => *tally.mismatches.entry(cause).or_default() += 1,
            }
        }
        for &counter in within {
            self.tallies.entry((counter, seen.execution)).or_default().samples += 1;
            let (execution, time_ns) = (seen.execution, seen.time_ns);
            still.push(Open { counter, execution, time_ns, registers: seen.registers.clone() });
        }
        if self.threads.len() >= THREADS_MAX {
            self.threads.clear(); // Most have ended.
        }
        if !still.is_empty() {
            self.threads.insert(seen.tid, still);
        }
    }

    /// Adds samples in a body that were taken before the counter was known.
    pub fn samples_before(&mut self, counter: CounterId, execution: ExecutionId, samples: u64) {
        self.tallies.entry((counter, execution)).or_default().samples += samples;
    }

    /// Adds a sample in a body that was dropped, since counting executions disturbed its thread.
    pub fn dropped(&mut self, counter: CounterId, execution: ExecutionId) {
        self.tallies.entry((counter, execution)).or_default().dropped += 1;
    }

    /// Drops the open samples of a thread that was disturbed, so that its next sample forms no pair.
    pub fn interrupt(&mut self, tid: Tid) {
        self.threads.remove(&tid);
    }

    /// Returns the counters in whose bodies the thread was last, with its registers at that time.
    pub fn last(&self, tid: Tid) -> impl Iterator<Item = (CounterId, &Registers)> {
        self.threads.get(&tid).into_iter().flatten().map(|open| (open.counter, &open.registers))
    }

    /// Returns and removes the observations of the executions that are wanted.
    pub fn take(
        &mut self,
        is_wanted: &dyn Fn(ExecutionId) -> bool,
    ) -> FxHashMap<(CounterId, ExecutionId), Tally> {
        let all = std::mem::take(&mut self.tallies).into_iter();
        let (taken, rest) = all.partition(|((_, execution), _)| is_wanted(*execution));
        self.tallies = rest;
        taken
    }
}

#[cfg(test)]
mod tests;
