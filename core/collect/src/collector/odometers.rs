//! The collector's part in odometers: samples for them, whose samples to drop, and what was counted → places.

use dwell_attribution::{ExecutionId, ImageIndex};
use dwell_profile::{CountSource, Event, EventIndex, ExecutionCount, ImageOffset, PathPlace, Pid};
use rustc_hash::FxHashMap;

use super::Collector;
use crate::{
    counts::{RawCount, Seen},
    host::Host,
    records::{Mode, Sample},
};

/// What concerns odometers.
#[derive(Default)]
pub(super) struct OdometerState {
    /// Samples since they were last taken, where somebody takes them.
    seen: Option<Vec<Seen>>,
    /// The process that is or was last disturbed by a watchpoint, and until when.
    pub(super) watched: Option<(Pid, u64)>,
    sums: FxHashMap<(ImageIndex, u64, ExecutionId), Sum>,
    /// Samples that a watchpoint disturbed.
    pub(super) samples_dropped: u64,
    /// Counts whose instruction has no place any more.
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
    /// Keeps samples for [`Collector::take_seen`].
    pub fn keep_seen(&mut self) {
        self.odometers.seen = Some(Vec::new());
    }

    /// The samples since the last call, in order of time.
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
        // Of several events of time the first: counts stand for its samples.
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

    /// Adds executions that were counted, if the process still is what it was then.
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
        sum.deviation = raw.deviation; // Of all so far: it sinks with the share of the time that was counted.
    }

    /// What was counted since the last call. Executions that are not kept apart are left out: others run under their name.
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

    /// Samples of the epoch that a watchpoint disturbed, and counts that found no place.
    pub fn odometers(&self) -> (u64, u64) {
        (self.odometers.samples_dropped, self.odometers.unplaced)
    }
}
