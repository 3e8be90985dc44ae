//! Integer multiplier: it was busy, or its result was not ready (DCPI §6.3). Wide or high products take up to twice the
//! least latency.

use super::units::{self, Unit};
use crate::{
    Cause,
    culprits::{candidate::Candidate, stalled::StalledInstruction},
};

const UNIT: Unit = Unit { cause: Cause::Multiplier, uses: |o| o.multiplies(), times: 2.0 };

/// Adds the multiplications that were not ruled out.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    units::candidates(stalled, &UNIT, candidates);
}
