//! The rules of DCPI §6.3: one file for each cause, from a stalled instruction to the [`Candidate`]s that cannot be ruled out.

mod aliasing;
mod dcache;
mod divider;
mod dtlb;
mod earlier_stores;
mod fetch;
mod forwarding;
mod icache;
mod itlb;
pub mod kernel;
pub mod mispredict;
mod multiplier;
mod synchronization;
mod units;
mod write_buffer;

use super::{candidate::Candidate, stalled::StalledInstruction};

/// Adds the candidates of one cause that it cannot rule out for a stalled instruction.
type Rule = fn(&StalledInstruction, &mut Vec<Candidate>);

/// The rules of all causes.
pub const RULES: [Rule; 12] = [
    icache::candidates,
    itlb::candidates,
    mispredict::candidates,
    dcache::candidates,
    dtlb::candidates,
    divider::candidates,
    multiplier::candidates,
    write_buffer::candidates,
    synchronization::candidates,
    forwarding::candidates,
    aliasing::candidates,
    kernel::candidates,
];
