//! Witnesses: neighbours that would have waited too, had a candidate been guilty.
//!
//! Input: a procedure's excesses. Output: upper bounds on how often lines of code, or a load's line, were missing.
//! Complexity: sorting the first instructions of lines once; a binary search, or a look ahead of at most
//! [`AHEAD`], for each question.
//!
//! An instruction that is reached by falling into a new line of code can wait for that line and for its operands. What it
//! waited is therefore more than what the line cost. Lines that run as seldom, in the same loop, are missing as seldom,
//! as a rule. Likewise who uses a loaded value first would have waited had the load's line been missing, and a page is
//! missing less often than a line of it, since TLBs reach further than first-level caches.

use std::collections::BTreeMap;

use dwell_image::Instruction;

use crate::{
    cfg::Cfg,
    frequency::Estimates,
    machine::{MachineModel, OpcodeClass},
    schedule::Schedule,
};

/// Witnesses may run this many times as often as who they testify for.
const FREQUENCY_TIMES: f64 = 4.0;
/// The lines in question may miss this many times as often as the witnesses'.
const MISS_TIMES: f64 = 3.0;
/// Standard errors of the witnesses' samples that are added.
const ERRORS: f64 = 2.0;
/// Fewer samples of all witnesses together prove nothing.
const SAMPLES_MIN: f64 = 20.0;

/// First instructions of lines by loop, each list by ascending frequency with running sums.
#[derive(Clone, Debug, Default)]
pub struct LineEntries(BTreeMap<Option<usize>, Vec<Testimony>>);

/// What the witnesses up to one frequency say together.
#[derive(Clone, Copy, Debug, Default)]
struct Testimony {
    frequency: f64,
    frequencies: f64,
    samples: f64,
    excess: f64,
}

impl LineEntries {
    /// Hears all witnesses.
    pub fn new(
        model: &MachineModel,
        instructions: &[Instruction],
        cfg: &Cfg,
        schedule: &Schedule,
        estimates: &Estimates,
        innermost: &dyn Fn(usize) -> Option<usize>,
    ) -> LineEntries {
        let line = |address: u64| address / model.memory.line_bytes;
        let mut lists: BTreeMap<Option<usize>, Vec<Testimony>> = BTreeMap::new();
        for (block, range) in cfg.blocks.iter().enumerate() {
            let Some(frequency) = estimates.blocks[block].map(|e| e.frequency).filter(|&f| f > 0.0) else {
                continue;
            };
            for i in range.start + 1..range.end {
                let leaves = matches!(schedule.opcodes[i - 1].class, OpcodeClass::Call | OpcodeClass::System);
                if !leaves && line(instructions[i - 1].address.0) != line(instructions[i].address.0) {
                    let samples = estimates.head_samples[i];
                    let excess = (samples - schedule.issue_cycles_min[i] * frequency).max(0.0);
                    let one = Testimony { frequency, frequencies: frequency, samples, excess };
                    lists.entry(innermost(block)).or_default().push(one);
                }
            }
        }
        lists.values_mut().for_each(|list| accumulate(list));
        LineEntries(lists)
    }

    /// The most cycles that entering a line costs on average for a block that runs `frequency` times. Where its own loop
    /// has no witness, those of the loops around it testify: they run less often and miss more.
    pub fn cycles_max(&self, around: impl Iterator<Item = usize>, frequency: f64) -> Option<f64> {
        around.map(Some).chain([None]).find_map(|id| self.heard(id, frequency))
    }

    fn heard(&self, id: Option<usize>, frequency: f64) -> Option<f64> {
        let list = self.0.get(&id)?;
        let heard = list.partition_point(|t| t.frequency <= FREQUENCY_TIMES * frequency);
        let sum = list[heard.checked_sub(1)?];
        let errors = ERRORS * sum.samples.max(1.0).sqrt();
        (sum.samples >= SAMPLES_MIN).then(|| MISS_TIMES * (sum.excess + errors) / sum.frequencies)
    }
}

fn accumulate(list: &mut [Testimony]) {
    list.sort_by(|a, b| a.frequency.total_cmp(&b.frequency));
    let mut sum = Testimony::default();
    for one in list {
        sum.frequencies += one.frequency;
        sum.samples += one.samples;
        sum.excess += one.excess;
        *one = Testimony { frequency: one.frequency, ..sum };
    }
}
