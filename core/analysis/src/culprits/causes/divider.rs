//! Divider, integer and floating: busy, or its result awaited (DCPI §6.3). How long it takes depends on the operands, and
//! the model has the least.

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
