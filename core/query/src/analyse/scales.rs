//! Finds a common scale for the procedures of an image, from the calls between them and from bursts whose time is known.
//!
//! Input: the sampled procedures of an image. Output: factors for the frequencies of each procedure. Cost: one additional
//! analysis of the [`PROCEDURES_MAX`] most sampled procedures on all processors, once for each image and selection.

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

/// Number of the most sampled procedures that get a common scale. The others keep their own: they are not worth the time.
const PROCEDURES_MAX: usize = 300;
/// Least number of samples for which a procedure's frequencies say anything about other procedures.
const SAMPLES_MIN: u64 = 10;

/// A procedure that was analysed to find the scales.
pub struct Scaled {
    /// Scale of the procedure's frequencies that follows from the other procedures.
    pub outer: OuterScale,
    /// Frequencies that were estimated from the procedure alone.
    pub frequencies: Option<Estimates>,
}

/// Scales by the address of the procedure.
pub type Scales = FxHashMap<u64, Scaled>;

/// Returns the scales of `procedures`, which are sorted by samples, most first. The result is empty for in-order processors,
/// where cycles determine the scale of each procedure.
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
            bursts: &sampled.bursts,
        })
        .collect();
    let bursts = &selection.bursts.bursts;
    let mut shapes = program::shapes(&members);
    let own: f64 = shapes.iter().map(|shape| shape.samples).sum();
    shapes.extend(program::rest(&shapes, bursts, selection.user_samples() - own));
    let scales = program::scales(&shapes, bursts);
    let scaled = analysed.into_iter().zip(scales);
    scaled.map(|((address, .., frequencies), outer)| (address, Scaled { outer, frequencies })).collect()
}
