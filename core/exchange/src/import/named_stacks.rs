//! Call stacks of profiles that name their frames: the text of `perf script`, and pprof.
//!
//! Enters: the places of a sample's frames. Leaves: sums by stack. Never here: addresses.
//!
//! Such a profile does not say whether a stack is complete, and it is taken as it is. Only Dwell's own exports do: there the
//! outermost frame of an incomplete stack is `[incomplete]`, which is no frame. A profile in which no sample has a caller
//! has no stacks.

use dwell_attribution::ExecutionId;
use dwell_profile::StackEnd;
use dwell_query::answer::INCOMPLETE;

use super::{
    call_stacks::{Place, Root},
    imported::ImportedProfile,
};

impl ImportedProfile {
    /// Adds samples (sum of their periods, number) to a stack, whose frames are given from the innermost to the outermost.
    pub(super) fn add_named_stack(
        &mut self,
        event: usize,
        execution: ExecutionId,
        frames: &[Place],
        (periods, samples): (u64, u64),
    ) {
        let is_end = |(target, offset): &Place| {
            let place = self.names.at(*target, *offset).and_then(|place| place.procedure());
            place.is_some_and(|procedure| *procedure.function == *INCOMPLETE)
        };
        let (frames, end) = match frames {
            [inner @ .., outermost] if !inner.is_empty() && is_end(outermost) => (inner, StackEnd::Unknown),
            _ => (frames, StackEnd::Root),
        };
        if frames.len() > 1 {
            self.tallies.with_callers = self.tallies.with_callers.saturating_add(samples);
        }
        self.call_stacks.add(Root { event: event as u16, execution, end }, frames, periods, samples);
    }

    /// Ends a profile that names its frames: forgets its stacks if none has a caller.
    pub(super) fn end_named_stacks(&mut self) {
        if self.tallies.with_callers == 0 {
            return self.call_stacks.clear();
        }
        self.remarks.push("the profile does not say which of its call stacks are incomplete".to_owned());
    }
}
