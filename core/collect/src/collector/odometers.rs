//! The collector's handling of odometers: the samples that they need, the samples to drop, and the places of their counts.

use dwell_attribution::{ExecutionId, ImageIndex};
use dwell_profile::{CountSource, Event, EventIndex, ExecutionCount, ImageOffset, PathPlace, Pid};
use rustc_hash::FxHashMap;

use super::Collector;
use crate::{
    counts::{RawCount, Seen},
    host::Host,
    records::{Mode, Sample},
};

/// State of the odometers.
#[derive(Default)]
pub(super) struct OdometerState {
    /// Samples since they were last taken, if they are kept.
    seen: Option<Vec<Seen>>,
    /// The process that a watchpoint disturbs or disturbed last, and the end of that time.
    pub(super) watched: Option<(Pid, u64)>,
    sums: FxHashMap<(ImageIndex, u64, ExecutionId), Sum>,
    /// Samples dropped because a watchpoint disturbed the process.
    pub(super) samples_dropped: u64,
    /// Counts whose instruction can no longer be placed.
    unplaced: u64,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    executions: f64,
    samples: u64,
    deviation: f64,
}

impl OdometerState {
    pub(super) fn begin_epoch(&mut self) {
        (self.samples_dropped, self.unplaced) = (0, 0);
    }
}

impl<H: Host> Collector<H> {
    /// Starts to keep samples for [`Collector::take_seen`].
    pub fn keep_seen(&mut self) {
        self.odometers.seen = Some(Vec::new());
    }

    /// Returns the samples since the last call in order of time.
    pub fn take_seen(&mut self) -> Vec<Seen> {
        self.odometers.seen.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn is_watched(&self, pid: Pid, time_ns: u64) -> bool {
        self.odometers.watched.is_some_and(|(watched, until_ns)| watched == pid && time_ns <= until_ns)
    }

    pub(super) fn note_seen(&mut self, event: EventIndex, sample: &Sample, execution: ExecutionId) {
        if self.odometers.seen.is_none() {
            return;
        }
        // If there are several events of time, counts stand for samples of the first.
        let is_time = self.events.iter().position(Event::is_time) == Some(event.index());
        let has_registers = sample.mode == Mode::User && self.counts_code(event);
        let Some(code) = self.processes.get(sample.pid).map(|process| process.code) else { return };
        let seen = Seen {
            time_ns: self.sampled.until_ns,
            pid: sample.pid,
            code,
            execution,
            pc: sample.pc,
            is_time,
            registers: sample.registers.clone().filter(|_| has_registers),
        };
        self.odometers.seen.iter_mut().for_each(|all| all.push(seen.clone()));
    }

    /// Adds counted executions if the pid is still the same process.
    pub fn add_executions(&mut self, raw: &RawCount) {
        let process = self.processes.get(raw.pid).filter(|process| process.code == raw.code);
        let Some(execution) = process.map(|process| process.execution) else {
            self.odometers.unplaced += 1;
            return;
        };
        let Some((image, offset)) = self.settled_place(raw.pid, raw.pc, execution) else {
            self.odometers.unplaced += 1;
            return;
        };
        let sum = self.odometers.sums.entry((image, offset, execution)).or_default();
        sum.executions += raw.executions;
        sum.samples += raw.samples;
        sum.deviation = raw.deviation; // It covers all counts so far, and shrinks as a larger share of the time is counted.
    }

    /// Returns the executions counted since the last call. Instance 0 is left out, because other executions share it.
    pub(super) fn take_executions(&mut self) -> Vec<ExecutionCount> {
        let sums = std::mem::take(&mut self.odometers.sums);
        let mut counts = Vec::with_capacity(sums.len());
        for ((image, offset, execution), sum) in sums {
            let of = self.apps.resolve(execution);
            if of.instance == 0 {
                self.odometers.unplaced += 1;
                continue;
            }
            self.stepping.images.insert(image);
            let image = self.images.record(image).id.clone();
            counts.push(ExecutionCount {
                place: PathPlace { image, offset: ImageOffset(offset) },
                app: of.app.to_string(),
                instance: of.instance,
                executions: sum.executions.round() as u64,
                samples: sum.samples,
                deviation_ppm: (sum.deviation * 1e6) as u32,
                source: CountSource::MemoryWord,
            });
        }
        counts.sort();
        counts
    }

    /// Returns the samples of the epoch that a watchpoint disturbed, and the counts without a place.
    pub fn odometers(&self) -> (u64, u64) {
        (self.odometers.samples_dropped, self.odometers.unplaced)
    }
}
