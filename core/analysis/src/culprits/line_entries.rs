//! The cost of entering a new line of code, measured where code falls through from one line into the next.
//!
//! Input: the excess cycles of a procedure's instructions. Output: upper bounds on the cycles that entering a line costs.
//! Complexity: sorting the first instructions of lines once, then a binary search for each question.
//!
//! An instruction that is reached by falling through into a new line can wait for that line and for its operands, so its
//! excess is more than what the line cost. In the same loop, lines that are executed equally rarely are usually missing
//! equally rarely.

use std::collections::BTreeMap;

use dwell_image::Instruction;

use crate::{
    cfg::Cfg,
    frequency::Estimates,
    machine::{MachineModel, OpcodeClass},
    schedule::Schedule,
};

/// Lines are compared with lines that are executed at most this many times as often.
const FREQUENCY_TIMES: f64 = 4.0;
/// The lines in question may miss this many times as often as those that are compared.
const MISS_TIMES: f64 = 3.0;
/// Standard errors that are added to the samples.
const ERRORS: f64 = 2.0;
/// Fewer samples of all compared lines together prove nothing.
const SAMPLES_MIN: f64 = 20.0;

/// First instructions of lines by loop. Each list is sorted by frequency and holds running sums.
#[derive(Clone, Debug, Default)]
pub struct LineEntries(BTreeMap<Option<usize>, Vec<Testimony>>);

/// Sums over the lines up to one frequency.
#[derive(Clone, Copy, Debug, Default)]
struct Testimony {
    frequency: f64,
    frequencies: f64,
    samples: f64,
    excess: f64,
}

impl LineEntries {
    /// Collects the first instructions of all lines that are entered by falling through.
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

    /// Returns an upper bound on the average cost in cycles of entering a line, for a block with this frequency. If its
    /// own loop has no such line, the loops around it are used: their lines are executed less often and miss more often.
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
