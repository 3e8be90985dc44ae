//! What a processor cannot do: the least time of each block, and how often it can have been executed at most.
//!
//! Input: the schedule, the time samples and the frequencies of each block. Output: least cycles per execution and, from them, caps on
//! frequencies. Complexity: linear.
//!
//! Only what holds whatever else happens counts here. Every instruction passes the front end and retires, a fused pair as one, and in
//! a cycle no more than the narrower of both widths do; the time of a block is the time during which its instructions were
//! the oldest to retire. Ports and latencies count in loops of one block only, as far as their iterations follow each other, because the work
//! of any other block may be done while an older one waits. There the model's bound is taken smaller by [`MODEL_PART`], since its
//! figures may be too large.

use crate::{cfg::Cfg, machine::MachineModel, schedule::Schedule};

/// The part of a modelled bound that is relied upon.
const MODEL_PART: f64 = 0.8;
/// Standard errors that a number of samples may be below its mean.
const ERRORS: f64 = 3.0;

/// Least cycles of blocks and instructions.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The least part of a cycle that an instruction or a fused pair takes to retire.
    pub slot: f64,
    /// By instruction: the least part of a cycle that it takes to retire; 0 for the second half of a fused pair.
    pub slots: Vec<f64>,
    /// By block: the least cycles of one execution.
    pub blocks: Vec<f64>,
}

impl Bounds {
    /// The bounds of a procedure. `repeated` is the part of a block's executions that directly follow another one.
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

    /// The greatest frequency that a block with so many time samples can have.
    pub fn frequency_max(&self, block: usize, samples: f64) -> f64 {
        let least = self.blocks[block];
        if least > 0.0 { samples_max(samples) / least } else { f64::MAX }
    }
}

/// The most samples to expect of what has so many. The square root of a Poisson number has a standard deviation of a half.
pub fn samples_max(samples: f64) -> f64 {
    let root = (samples.max(0.0) + 0.75).sqrt() + 0.5 * ERRORS;
    root * root
}
