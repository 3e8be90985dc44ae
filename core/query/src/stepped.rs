//! What threads did while they were single-stepped, corrected to counts of executions and ready to be asked about.
//!
//! Enters: the path bursts of merged epochs and their samples. Leaves: transfers within a procedure. Cost: that of
//! [`paths::weights`], once for each selection.

use std::collections::BTreeMap;

use dwell_analysis::{
    Transfer,
    paths::{self, Burst, ELSEWHERE},
};
use dwell_image::{Image, ImageOffset, Instruction};
use dwell_profile::{ImageId, ImageKind, PathBurst, PathPlace};
use rustc_hash::FxHashMap;

use crate::selection::ImageSamples;

/// Offsets below this are addresses of the analysis, each image in a range of its own.
const OFFSET_BITS: u32 = 40;

/// Transfers by image (an index) and offsets.
#[derive(Default)]
pub struct Stepped {
    by_image: FxHashMap<usize, BTreeMap<(u64, u64), f64>>,
}

impl Stepped {
    /// Whether nothing was.
    pub fn is_empty(&self) -> bool {
        self.by_image.is_empty()
    }

    /// Adds the bursts up.
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
        let address = |place: &PathPlace| {
            let image = index.get(&place.image).copied().filter(|_| place.offset.0 >> OFFSET_BITS == 0);
            image.map_or(ELSEWHERE, |image| address_of(image, place.offset.0))
        };
        let transfers: Vec<Vec<(u64, u64, u64)>> = bursts
            .iter()
            .map(|b| b.transfers.iter().map(|t| (address(&t.from), address(&t.to), t.count)).collect())
            .collect();
        let flat: Vec<Burst> = bursts
            .iter()
            .zip(&transfers)
            .map(|(b, transfers)| Burst { first: address(&b.first), last: address(&b.last), transfers })
            .collect();
        Stepped::sum(&transfers, &paths::weights(&flat))
    }

    fn sum(bursts: &[Vec<(u64, u64, u64)>], weights: &[f64]) -> Self {
        let mut stepped = Stepped::default();
        for (transfers, weight) in bursts.iter().zip(weights) {
            for &(from, to, count) in transfers {
                let (image, to_image) = (from >> OFFSET_BITS, to >> OFFSET_BITS);
                if from == ELSEWHERE || image != to_image {
                    continue;
                }
                let offset = |address: u64| address & ((1 << OFFSET_BITS) - 1);
                let all = stepped.by_image.entry(image as usize).or_default();
                *all.entry((offset(from), offset(to))).or_default() += weight * count as f64;
            }
        }
        stepped
    }

    /// Where control went from the instruction at `from` of the image with that index, and how often, as far as it stayed in
    /// that image.
    pub fn targets(&self, image_index: usize, from: ImageOffset) -> impl Iterator<Item = (ImageOffset, f64)> {
        let all = self.by_image.get(&image_index).into_iter();
        let own = all.flat_map(move |all| all.range((from.0, 0)..=(from.0, u64::MAX)));
        own.map(|((_, to), count)| (ImageOffset(*to), *count))
    }

    /// The transfers between these instructions of the image with that index.
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
        let within = all.range((start.0, 0)..=(end.0, u64::MAX));
        within
            .filter_map(|((from, to), count)| {
                Some(Transfer { from: position(*from)?, to: position(*to)?, count: *count })
            })
            .collect()
    }
}

fn address_of(image: usize, offset: u64) -> u64 {
    (image as u64) << OFFSET_BITS | offset
}
