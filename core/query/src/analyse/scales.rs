//! One scale for the procedures of an image, through the calls between them.
//!
//! Enters: an image's sampled procedures. Leaves: what to multiply the frequencies of each by. Cost: one more analysis of
//! the hottest [`PROCEDURES_MAX`] procedures, shared between the processors; once for each image and selection.

use dwell_analysis::{
    OuterScale, ProcedureAnalysis,
    frequency::Estimates,
    machine::Order,
    program::{self, Member},
};
use dwell_image::Image;
use rustc_hash::FxHashMap;

use crate::{
    analyse::{
        procedures::ProcedureSamples,
        sampled::{Sampled, analysis},
    },
    load::selection::Selection,
    parallel::in_parallel,
};

/// Procedures beyond the hottest ones keep their own scale: they are not worth the wait.
const PROCEDURES_MAX: usize = 300;
/// Samples below which a procedure has nothing to say about others.
const SAMPLES_MIN: u64 = 10;

/// A procedure that was analysed to find the scales.
pub struct Scaled {
    /// The scale of its frequencies that follows from the other procedures.
    pub outer: OuterScale,
    /// The frequencies that were estimated for the procedure alone.
    pub frequencies: Option<Estimates>,
}

/// By procedure's address.
pub type Scales = FxHashMap<u64, Scaled>;

/// The scales of `procedures`, the hottest first. Empty in order, where cycles fix each procedure's own.
pub fn of_image(selection: &Selection, image: &Image, procedures: &[&ProcedureSamples]) -> Scales {
    let hot = procedures.iter().filter(|p| p.counts.first().is_some_and(|&n| n >= SAMPLES_MIN));
    let hot: Vec<&ProcedureSamples> = hot.take(PROCEDURES_MAX).copied().collect();
    let analysed: Vec<(u64, Sampled, ProcedureAnalysis, Option<Estimates>)> =
        in_parallel(&hot, |procedure| {
            let sampled = Sampled::new(selection, procedure, image)?;
            let mut kept = None;
            let analysis = (sampled.model.order == Order::OutOfOrder)
                .then(|| analysis(selection, image, &sampled, OuterScale::default(), &mut kept))?;
            Some((procedure.address?.0, sampled, analysis, kept))
        });
    let members: Vec<Member> = analysed
        .iter()
        .map(|(_, sampled, analysis, _)| Member {
            instructions: &sampled.instructions,
            analysis,
            transfers: &sampled.transfers,
            counted: &sampled.counted,
        })
        .collect();
    let scales = program::scales(&program::shapes(&members));
    let scaled = analysed.into_iter().zip(scales);
    scaled.map(|((address, .., frequencies), outer)| (address, Scaled { outer, frequencies })).collect()
}
