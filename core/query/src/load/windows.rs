//! Executions that were counted in windows by hardware breakpoints.
//!
//! Input: the bursts of merged epochs that are counted windows. Output: counted instructions of a procedure. Cost: linear in
//! the windows, once for each selection.

use std::collections::BTreeMap;

use dwell_analysis::{
    Counted,
    windows::{Compared, compare},
};
use dwell_image::{Image, Instruction};
use dwell_profile::{ImageId, ImageKind, PathBurst, PathPlace};
use rustc_hash::FxHashMap;

use crate::load::samples::ImageSamples;

/// Places whose counts were compared with each other, by image (an index) and offset.
#[derive(Default)]
pub struct Windows {
    by_image: FxHashMap<usize, BTreeMap<u64, Compared>>,
}

impl Windows {
    /// Compares the counts of the windows among `bursts`.
    pub fn new(bursts: &[PathBurst], images: &[ImageSamples]) -> Self {
        let mut places: BTreeMap<&PathPlace, usize> = BTreeMap::new();
        let mut windows: Vec<Vec<(usize, u64)>> = Vec::new();
        for window in bursts.iter().filter_map(PathBurst::window) {
            let counts = window.map(|(place, executions)| {
                let next = places.len();
                (*places.entry(place).or_insert(next), executions)
            });
            windows.push(counts.collect());
        }
        if windows.is_empty() {
            return Windows::default();
        }
        let files = images.iter().enumerate().filter(|(_, image)| image.record.kind == ImageKind::File);
        let index: FxHashMap<&ImageId, usize> = files.map(|(at, image)| (&image.record.id, at)).collect();
        let compared = compare(places.len(), &windows);
        let mut by_image: FxHashMap<usize, BTreeMap<u64, Compared>> = FxHashMap::default();
        for (place, at) in places {
            if let (Some(&image), Some(compared)) = (index.get(&place.image), compared[at]) {
                by_image.entry(image).or_default().insert(place.offset.0, compared);
            }
        }
        Windows { by_image }
    }

    /// Returns the counts of these instructions of the image with this index.
    pub fn counted(&self, image_index: usize, image: &Image, instructions: &[Instruction]) -> Vec<Counted> {
        let (Some(all), [first, .., last]) = (self.by_image.get(&image_index), instructions) else {
            return Vec::new();
        };
        let (Some(start), Some(end)) = (image.offset_of(first.address), image.offset_of(last.address)) else {
            return Vec::new();
        };
        if end < start {
            return Vec::new(); // Segments that overlap: a damaged file.
        }
        let of = |(offset, compared): (&u64, &Compared)| {
            let address = first.address.offset(offset.checked_sub(start.0)?);
            let at = instructions.binary_search_by_key(&address, |i| i.address).ok()?;
            let Compared { group, log, deviation } = *compared;
            Some(Counted { at, executions: log.exp(), deviation, group })
        };
        all.range(start.0..=end.0).filter_map(of).collect()
    }
}
