//! Executions that odometers and counters in code counted: finds the places of their instructions.
//!
//! Enters: counts of instructions, each in an address space. Leaves: execution counts. Never here: how they are
//! counted ([`crate::evidence`]).

use dwell_attribution::{Applications, ExecutionId, ImageIndex, Images};
use dwell_profile::{CodePlace, CountSource, ExecutionCount, ImageOffset};
use rustc_hash::{FxHashMap, FxHashSet};

use super::attribution::Attribution;
use crate::{evidence::counts::RawCount, host::Host};

/// Counts since they were last taken.
#[derive(Default)]
pub(super) struct OdometerCounts {
    sums: FxHashMap<(ImageIndex, u64, ExecutionId, CountSource), Sum>,
    /// Counts of the epoch whose instruction could not be placed.
    pub(super) unplaced: u64,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    executions: f64,
    samples: u64,
    deviation: f64,
}

impl OdometerCounts {
    /// Adds counted executions if the pid is still the same process.
    pub(super) fn add<H: Host>(&mut self, attribution: &mut Attribution<H>, raw: &RawCount) {
        let process = attribution.processes.get(raw.pid).filter(|process| process.code == raw.code);
        let execution = process.map(|process| process.execution);
        let place = execution.and_then(|id| Some((attribution.settled_place(raw.pid, raw.pc, id)?, id)));
        let Some(((image, offset), execution)) = place else {
            self.unplaced += 1;
            return;
        };
        let sum = self.sums.entry((image, offset, execution, raw.source)).or_default();
        sum.executions += raw.executions;
        sum.samples += raw.samples;
        sum.deviation = raw.deviation; // It covers all counts so far, and shrinks as a larger share of the time is counted.
    }

    /// Returns the executions counted since the last call, and their images. Instance 0 is left out, because other executions
    /// share it.
    pub(super) fn take(
        &mut self,
        apps: &mut Applications,
        images: &Images,
    ) -> (Vec<ExecutionCount>, FxHashSet<ImageIndex>) {
        let sums = std::mem::take(&mut self.sums);
        let (mut counts, mut counted) = (Vec::with_capacity(sums.len()), FxHashSet::default());
        for ((image, offset, execution, source), sum) in sums {
            let of = apps.resolve(execution);
            if of.instance == 0 {
                self.unplaced += 1;
                continue;
            }
            counted.insert(image);
            counts.push(ExecutionCount {
                place: CodePlace { image: images.record(image).id.clone(), offset: ImageOffset(offset) },
                app: of.app.to_string(),
                instance: of.instance,
                executions: sum.executions.round() as u64,
                samples: sum.samples,
                deviation_ppm: (sum.deviation * 1e6) as u32,
                source,
            });
        }
        counts.sort();
        (counts, counted)
    }
}
