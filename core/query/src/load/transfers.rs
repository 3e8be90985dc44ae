//! Control transfers that were observed in path bursts and branch stacks.
//!
//! Input: the evidence of merged epochs, and their samples. Output: transfers between a procedure's instructions. Cost:
//! linear in the transfers of the evidence, once for each selection.
//!
//! All bursts have equal weight. They begin at random times, so slow phases have too many of them. Correcting that by where
//! bursts end made results worse (docs/measured.md), and so did it to count long bursts for less.

use std::collections::BTreeMap;

use dwell_analysis::Transfer;
use dwell_image::{ImageOffset, ProcedureOffsets};
use dwell_profile::{ControlTransfer, ExecutionEvidence};
use rustc_hash::FxHashMap;

use crate::load::samples::{ImageSamples, file_indexes};

/// The greatest offset.
const LAST: Option<ImageOffset> = Some(ImageOffset(u64::MAX));

/// Number of transfers, by image (an index) and offsets. The second offset is `None` for all places in other images.
#[derive(Default)]
pub struct TransferSums {
    by_image: FxHashMap<usize, BTreeMap<(ImageOffset, Option<ImageOffset>), f64>>,
}

impl TransferSums {
    /// Returns whether there are no transfers.
    pub fn is_empty(&self) -> bool {
        self.by_image.is_empty()
    }

    /// Sums the transfers of the evidence.
    pub fn new(evidence: &[ExecutionEvidence], images: &[ImageSamples]) -> Self {
        let index = file_indexes(images);
        let mut sums = TransferSums::default();
        for piece in evidence {
            for ControlTransfer { from, to, count } in piece.transfers() {
                if let Some(&image) = index.get(&from.image) {
                    let to = (from.image == to.image).then_some(to.offset);
                    let all = sums.by_image.entry(image).or_default();
                    *all.entry((from.offset, to)).or_default() += *count as f64;
                }
            }
        }
        sums
    }

    /// Returns where control went from the instruction at `from` of the image, and how often. Transfers to other images are
    /// left out. `image_index` is the index of the image.
    pub fn targets(&self, image_index: usize, from: ImageOffset) -> impl Iterator<Item = (ImageOffset, f64)> {
        let all = self.by_image.get(&image_index).into_iter();
        let own = all.flat_map(move |all| all.range((from, None)..=(from, LAST)));
        own.filter_map(|((_, to), count)| Some(((*to)?, *count)))
    }

    /// Returns the transfers from the instructions of a procedure of the image with this index.
    pub fn within(&self, image_index: usize, offsets: &ProcedureOffsets) -> Vec<Transfer> {
        let (start, end) = offsets.range().into_inner();
        let all = self.by_image.get(&image_index).into_iter();
        let own = all.flat_map(|all| all.range((start, None)..=(end, LAST)));
        own.filter_map(|(&(from, to), &count)| {
            let from = offsets.index_of(from)?;
            Some(Transfer { from, to: to.and_then(|to| offsets.index_of(to)), count })
        })
        .collect()
    }
}
