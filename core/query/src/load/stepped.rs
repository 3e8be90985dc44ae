//! Control transfers of threads that were emulated or single-stepped.
//!
//! Input: the path bursts of merged epochs, and their samples. Output: transfers between a procedure's instructions. Cost:
//! linear in the transfers of the bursts, once for each selection.
//!
//! All bursts have equal weight. They begin at random times, so slow phases have too many of them. Correcting that by where
//! bursts end made results worse (docs/measured.md).

use std::collections::BTreeMap;

use dwell_analysis::Transfer;
use dwell_image::{Image, ImageOffset, Instruction};
use dwell_profile::{ImageId, ImageKind, PathBurst};
use rustc_hash::FxHashMap;

use crate::load::samples::ImageSamples;

/// Stands for all places in other images.
const ELSEWHERE: u64 = u64::MAX;

/// Number of transfers, by image (an index) and offsets.
#[derive(Default)]
pub struct Stepped {
    by_image: FxHashMap<usize, BTreeMap<(u64, u64), f64>>,
}

impl Stepped {
    /// Returns whether there are no transfers.
    pub fn is_empty(&self) -> bool {
        self.by_image.is_empty()
    }

    /// Sums the transfers of the bursts.
    pub fn new(bursts: &[PathBurst], images: &[ImageSamples]) -> Self {
        if bursts.is_empty() {
            return Stepped::default();
        }
        let index: FxHashMap<&ImageId, usize> = images
            .iter()
            .enumerate()
            .filter(|(_, image)| image.record.kind == ImageKind::File)
            .map(|(at, image)| (&image.record.id, at))
            .collect();
        let mut stepped = Stepped::default();
        for transfer in bursts.iter().filter(|b| b.window().is_none()).flat_map(|b| &b.transfers) {
            let (from, to) = (&transfer.from, &transfer.to);
            if let Some(&image) = index.get(&from.image) {
                let to = if from.image == to.image { to.offset.0 } else { ELSEWHERE };
                let all = stepped.by_image.entry(image).or_default();
                *all.entry((from.offset.0, to)).or_default() += transfer.count as f64;
            }
        }
        stepped
    }

    /// Returns where control went from the instruction at `from` of the image, and how often. Transfers to other images are
    /// left out. `image_index` is the index of the image.
    pub fn targets(&self, image_index: usize, from: ImageOffset) -> impl Iterator<Item = (ImageOffset, f64)> {
        let all = self.by_image.get(&image_index).into_iter();
        let own = all.flat_map(move |all| all.range((from.0, 0)..(from.0, ELSEWHERE)));
        own.map(|((_, to), count)| (ImageOffset(*to), *count))
    }

    /// Returns the transfers from these instructions of the image with this index.
    pub fn transfers(
        &self,
        image_index: usize,
        image: &Image,
        instructions: &[Instruction],
    ) -> Vec<Transfer> {
        let (Some(all), [first, .., last]) = (self.by_image.get(&image_index), instructions) else {
            return Vec::new();
        };
        let (Some(start), Some(end)) = (image.offset_of(first.address), image.offset_of(last.address)) else {
            return Vec::new();
        };
        if end < start {
            return Vec::new(); // Segments that overlap: a damaged file.
        }
        let position = |offset: u64| {
            let address = first.address.offset(offset.checked_sub(start.0)?);
            instructions.binary_search_by_key(&address, |i| i.address).ok()
        };
        let own = all.range((start.0, 0)..=(end.0, ELSEWHERE));
        own.filter_map(|((from, to), count)| {
            Some(Transfer { from: position(*from)?, to: position(*to), count: *count })
        })
        .collect()
    }
}
