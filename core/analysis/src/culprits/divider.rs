//! Divider, integer and floating: busy, or its result awaited (DCPI §6.3). How long it takes depends on the operands, and
//! the model has the least.

use super::{
    scene::{Stalled, Suspect},
    units::{self, Unit},
};
use crate::Cause;

const UNIT: Unit = Unit { cause: Cause::Divider, uses: |o| o.divides(), times: 4.0 };

/// Adds the divisions that were not ruled out.
pub fn suspects(stalled: &Stalled, suspects: &mut Vec<Suspect>) {
    units::suspects(stalled, &UNIT, suspects);
}
