//! Divider, integer and floating-point: it was busy, or its result was not ready (DCPI §6.3). Its latency depends on the
//! operands; the model has the least.

use super::units::{self, Unit};
use crate::{
    Cause,
    culprits::{candidate::Candidate, stalled::StalledInstruction},
};

const UNIT: Unit = Unit { cause: Cause::Divider, uses: |o| o.divides(), times: 4.0 };

/// Adds the divisions that were not ruled out.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    units::candidates(stalled, &UNIT, candidates);
}
