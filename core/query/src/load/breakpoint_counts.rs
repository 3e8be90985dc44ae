//! Executions that hardware breakpoints counted.
//!
//! Input: the evidence of merged epochs. Output: counted instructions of a procedure. Cost: linear in the breakpoint counts,
//! once for each selection.

use std::collections::BTreeMap;

use dwell_analysis::{
    Counted,
    breakpoint_counts::{Compared, compare},
};
use dwell_image::{ImageOffset, ProcedureOffsets};
use dwell_profile::ExecutionEvidence;
use rustc_hash::FxHashMap;

use crate::load::samples::{ImageSamples, file_indexes};

/// Places whose counts were compared with each other, by image (an index) and offset.
#[derive(Default)]
pub struct BreakpointCounts {
    by_image: FxHashMap<usize, BTreeMap<ImageOffset, Compared>>,
}

impl BreakpointCounts {
    /// Compares the breakpoint counts in the evidence.
    pub fn new(evidence: &[ExecutionEvidence], images: &[ImageSamples]) -> Self {
        let windows = evidence.iter().filter_map(|evidence| match evidence {
            ExecutionEvidence::BreakpointCounts(counts) => Some(counts.iter().map(|(p, n)| (p, *n))),
            _ => None,
        });
        let index = file_indexes(images);
        let mut counts = BreakpointCounts::default();
        for (place, compared) in compare(windows) {
            if let Some(&image) = index.get(&place.image) {
                counts.by_image.entry(image).or_default().insert(place.offset, compared);
            }
        }
        counts
    }

    /// Returns the counts of the instructions of a procedure of the image with this index.
    pub fn within(&self, image_index: usize, offsets: &ProcedureOffsets) -> Vec<Counted> {
        let all = self.by_image.get(&image_index).into_iter();
        let own = all.flat_map(|all| all.range(offsets.range()));
        own.filter_map(|(offset, compared)| Some(compared.counted(offsets.index_of(*offset)?))).collect()
    }
}
