//! Limits of the processor: the least time of each block, and how often it can have been executed at most.
//!
//! Input: the schedule, and the time samples and frequencies of blocks. Output: least cycles per execution and, from
//! them, greatest frequencies. Complexity: linear.
//!
//! Only limits that always hold count here. Every instruction passes the front end and retires, a fused pair as one, and
//! in a cycle no more than the narrower of both widths do; the time of a block is the time during which its instructions
//! were the oldest to retire. Ports and latencies count only in loops of one block, as far as iterations follow each
//! other, because the work of any other block may be done while an older one waits. There the model's bound is reduced by
//! [`MODEL_PART`], since its figures may be too large.

use crate::{cfg::Cfg, machine::MachineModel, schedule::Schedule};

/// The part of a modelled bound that is relied upon.
const MODEL_PART: f64 = 0.8;
/// Standard errors by which a number of samples may be below its mean.
const ERRORS: f64 = 3.0;

/// The least cycles of blocks and instructions.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The least cycles that an instruction or a fused pair takes to retire, at most 1.
    pub slot: f64,
    /// The least cycles that each instruction takes to retire; 0 for the second half of a fused pair.
    pub slots: Vec<f64>,
    /// The least cycles of one execution of each block.
    pub blocks: Vec<f64>,
}

impl Bounds {
    /// Computes the bounds of a procedure. `repeated` returns the part of a block's executions that directly follow
    /// another one.
    pub fn new(
        model: &MachineModel,
        schedule: &Schedule,
        cfg: &Cfg,
        repeated: impl Fn(usize) -> f64,
    ) -> Bounds {
        let slot = 1.0 / f64::from(model.issue_width.min(model.retire_width).max(1));
        let slots: Vec<f64> = schedule.is_fused.iter().map(|fused| if *fused { 0.0 } else { slot }).collect();
        let block = |block: usize| {
            let retired: f64 = cfg.blocks[block].clone().map(|i| slots[i]).sum();
            let is_loop = cfg.loops_on_itself(block);
            let part = if is_loop { MODEL_PART * repeated(block).clamp(0.0, 1.0) } else { 0.0 };
            retired.max(part * schedule.best_case_cycles[block])
        };
        let blocks = (0..cfg.blocks.len()).map(block).collect();
        Bounds { slot, slots, blocks }
    }

    /// Returns the greatest possible frequency of a block with this number of time samples.
    pub fn frequency_max(&self, block: usize, samples: f64) -> f64 {
        let least = self.blocks[block];
        if least > 0.0 { samples_max(samples) / least } else { f64::MAX }
    }
}

/// Returns the greatest expected number of samples, given an observed number. The square root of a Poisson variable has a
/// standard deviation of one half.
pub fn samples_max(samples: f64) -> f64 {
    let root = (samples.max(0.0) + 0.75).sqrt() + 0.5 * ERRORS;
    root * root
}
