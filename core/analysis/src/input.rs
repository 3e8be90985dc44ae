//! The input of the analysis of one procedure.

use std::collections::BTreeMap;

use dwell_image::{Arch, ImageAddress, Instruction};
use dwell_profile::Event;

use crate::OuterScale;

/// One procedure's instructions and samples. Vectors of counts are indexed like `instructions`.
#[derive(Clone, Debug)]
pub struct ProcedureInput<'a> {
    /// The instruction set.
    pub arch: Arch,
    /// The procedure's instructions by ascending address, from its first to its last byte.
    pub instructions: &'a [Instruction],
    /// The recovered targets (jump tables) of indirect jumps, by the jump's index.
    pub jump_targets: &'a BTreeMap<usize, Vec<ImageAddress>>,
    /// Samples of the event that measures time (`cycles` or `cpu-clock`).
    pub time_samples: &'a [u64],
    /// Average cycles between two such samples (for `cpu-clock`: period in ns × measured clock). If the clock is unknown
    /// it is `None`: ratios are right and absolute counts are absent.
    pub period_cycles: Option<f64>,
    /// Samples of each other event, and the average number of occurrences between two of them.
    pub event_samples: &'a BTreeMap<Event, (Vec<u64>, u64)>,
    /// How often each conditional branch was observed to be taken, and not taken.
    pub branch_directions: &'a [(u64, u64)],
    /// Transfers of control in path bursts, in no particular order; empty if there were none.
    pub transfers: &'a [Transfer],
    /// Executions that breakpoints counted, in no particular order; empty if there were none.
    pub counted: &'a [Counted],
    /// Executions that were counted while the program ran undisturbed, in no particular order; empty if there were none.
    pub absolute: &'a [AbsoluteCount],
    /// The procedure's scale according to the rest of the program: one of [`program::scales`](crate::program::scales).
    pub outer: OuterScale,
}

/// How often control was observed to go from an instruction of the procedure to one that is not simply the next: both
/// directions of a conditional branch, a jump, a call, a return.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Index of the instruction that control left.
    pub from: usize,
    /// Index of the instruction that control went to; `None` if it is outside of the procedure.
    pub to: Option<usize>,
    /// How often, up to a scale that all transfers of a profile share.
    pub count: f64,
}

/// Executions of one instruction that a hardware breakpoint counted in windows of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    /// Index of the instruction.
    pub at: usize,
    /// Number of executions, on a scale that only counts of the same `group` share.
    pub executions: f64,
    /// Standard deviation of the logarithm of `executions`.
    pub deviation: f64,
    /// The group of places that run together ([`breakpoint_counts`](crate::breakpoint_counts)), by number.
    pub group: usize,
}

/// Executions of one instruction over the sampling period that were counted by the program itself: by a word of memory to
/// which it adds, or a register that a loop increments. Unlike [`Counted`] its scale is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AbsoluteCount {
    /// Index of the instruction.
    pub at: usize,
    /// Executions divided by the sampling period, as [`Block::frequency`](crate::Block::frequency).
    pub frequency: f64,
    /// Standard deviation of the logarithm of `frequency`.
    pub deviation: f64,
    /// Whether counters in the procedure's code counted them, which count nothing else. A word of memory or a register that was
    /// found may be misunderstood.
    pub in_code: bool,
}

impl AbsoluteCount {
    /// Whether the count is valid: finite and positive, with a positive deviation.
    pub(crate) fn is_sound(&self) -> bool {
        let is_number = |x: f64| x > 1e-100 && x < 1e100;
        is_number(self.frequency) && is_number(self.deviation)
    }
}

impl Counted {
    /// Whether the count is valid: finite and positive, with a positive deviation.
    pub(crate) fn is_sound(&self) -> bool {
        let is_number = |x: f64| x > 1e-100 && x < 1e100;
        is_number(self.executions) && is_number(self.deviation)
    }
}

impl Transfer {
    /// Whether the transfer is valid: its count is finite and positive.
    pub(crate) fn is_sound(&self) -> bool {
        self.count > 0.0 && self.count < 1e100
    }
}
