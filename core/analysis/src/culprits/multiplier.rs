//! Integer multiplier: busy, or its result awaited (DCPI §6.3). Wide or high products take up to twice the least.

use super::{
    scene::{Stalled, Suspect},
    units::{self, Unit},
};
use crate::Cause;

const UNIT: Unit = Unit { cause: Cause::Multiplier, uses: |o| o.multiplies(), times: 2.0 };

/// Adds the multiplications that were not ruled out.
pub fn suspects(stalled: &Stalled, suspects: &mut Vec<Suspect>) {
    units::suspects(stalled, &UNIT, suspects);
}
