//! What the analysis of one procedure starts from.

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
    /// Possible targets of indirect jumps that were recovered (jump tables), by the jump's index.
    pub jump_targets: &'a BTreeMap<usize, Vec<ImageAddress>>,
    /// Samples of the event that measures time (`cycles` or `cpu-clock`).
    pub time_samples: &'a [u64],
    /// Average cycles between two such samples (for `cpu-clock`: period in ns × measured clock); `None` where the
    /// clock is unknown: then ratios are right and absolute counts are absent.
    pub period_cycles: Option<f64>,
    /// Samples of other events, and the average number of occurrences between two of them.
    pub event_samples: &'a BTreeMap<Event, (Vec<u64>, u64)>,
    /// How often each conditional branch was seen about to be taken, and about to fall through.
    pub branch_directions: &'a [(u64, u64)],
    /// Transfers of control seen while single-stepping (path bursts), in no particular order; empty where none were.
    pub transfers: &'a [Transfer],
    /// Executions that were counted, in no particular order; empty where none were.
    pub counted: &'a [Counted],
    /// Executions that were counted while the program ran undisturbed, in no particular order; empty where none were.
    pub absolute: &'a [AbsoluteCount],
    /// What the rest of the program says of the procedure's scale: one of [`program::scales`](crate::program::scales).
    pub outer: OuterScale,
}

/// How often control was seen to go from an instruction of the procedure to one that is not simply the next: a conditional
/// branch both ways, a jump, a call, a return.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Index of the instruction that control left.
    pub from: usize,
    /// Index of the instruction that it went to; `None`: out of the procedure.
    pub to: Option<usize>,
    /// How often, up to a scale that all transfers of a profile share.
    pub count: f64,
}

/// Executions of one instruction that were counted, not sampled: in windows of time, by hardware breakpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    /// Index of the instruction.
    pub at: usize,
    /// Executions, on a scale that only counts of the same `group` share.
    pub executions: f64,
    /// Standard deviation of their logarithm.
    pub deviation: f64,
    /// Which of the program's groups of places that run together ([`windows`](crate::windows)).
    pub group: usize,
}

/// How often one instruction was executed over the sampling period, counted and not estimated from samples: by a word of memory to
/// which the program adds, or a register that a loop steps. Different from [`Counted`], its scale is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AbsoluteCount {
    /// Index of the instruction.
    pub at: usize,
    /// Executions divided by the sampling period, as [`Block::frequency`](crate::Block::frequency) is.
    pub frequency: f64,
    /// Standard deviation of its logarithm.
    pub deviation: f64,
}

impl AbsoluteCount {
    /// Whether the analysis can use it.
    pub(crate) fn is_sound(&self) -> bool {
        let is_number = |x: f64| x > 1e-100 && x < 1e100;
        is_number(self.frequency) && is_number(self.deviation)
    }
}

impl Counted {
    /// Whether it can be counted with.
    pub(crate) fn is_sound(&self) -> bool {
        let is_number = |x: f64| x > 1e-100 && x < 1e100;
        is_number(self.executions) && is_number(self.deviation)
    }
}

impl Transfer {
    /// Whether it can be counted with.
    pub(crate) fn is_sound(&self) -> bool {
        self.count > 0.0 && self.count < 1e100
    }
}
