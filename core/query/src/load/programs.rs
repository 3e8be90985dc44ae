//! Whose the samples and the bursts of a selection are.
//!
//! Enters: the applications that have samples in each image. Leaves: whether there are several, and whose a burst is. Never here: times.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dwell_profile::{ControlTransfer, ImageId};
use rustc_hash::FxHashMap;

use crate::load::samples::AppCounts;

/// Least part of the samples that one application has where bursts are taken for its own.
const ALONE_MIN: f64 = 0.9;
/// Least part of a burst's transfers in an image that says something about whose burst it is.
const IMAGE_PART_MIN: f64 = 0.01;

/// Whose the bursts of a selection are. Applications run the same libraries in other ways, so that the time of one's burst says
/// nothing of another's functions.
#[derive(Default)]
pub struct Programs {
    /// The applications that have samples in each image (an index).
    image_apps: Vec<BTreeSet<Arc<str>>>,
    /// The application whose bursts count alone.
    only: Option<String>,
    /// Whether the samples are of several applications, of which none is by far the largest.
    are_several: bool,
}

impl Programs {
    /// Examines the samples of a selection, which are those of the application `only` if there is one.
    pub fn new(image_apps: Vec<BTreeSet<Arc<str>>>, apps: &AppCounts, only: Option<&str>) -> Self {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for ((app, ..), counts) in apps {
            *sums.entry(app).or_default() += counts.first().copied().unwrap_or(0);
        }
        let (all, largest) = (sums.values().sum::<u64>() as f64, sums.values().max().copied().unwrap_or(0));
        let are_several = (largest as f64) < ALONE_MIN * all;
        Programs { image_apps, only: only.map(str::to_owned), are_several }
    }

    /// Returns the application of which all samples in an image (an index) are, where there are several: asked about it alone, more
    /// is known.
    pub fn sole(&self, image: usize) -> Option<&str> {
        let apps = self.image_apps.get(image).filter(|apps| self.are_several && apps.len() == 1)?;
        apps.first().map(|app| &**app)
    }

    /// Returns whether the samples are of several applications, of which none is by far the largest.
    pub fn are_several(&self) -> bool {
        self.are_several
    }

    /// Returns whether a burst with these transfers is of the application that counts alone, if there is one.
    pub fn has(&self, transfers: &[ControlTransfer], index: &FxHashMap<&ImageId, usize>) -> bool {
        let Some(only) = &self.only else { return true };
        let mut by_image: BTreeMap<usize, f64> = BTreeMap::new();
        for transfer in transfers {
            if let Some(&image) = index.get(&transfer.from.image) {
                *by_image.entry(image).or_default() += transfer.count as f64;
            }
        }
        let least = IMAGE_PART_MIN * transfers.iter().map(|transfer| transfer.count as f64).sum::<f64>();
        let images = by_image.into_iter().filter(|(_, count)| *count >= least);
        let mut apps: Option<BTreeSet<&str>> = None;
        for own in images.filter_map(|(image, _)| self.image_apps.get(image)) {
            let own: BTreeSet<&str> = own.iter().map(|app| &**app).collect();
            apps = Some(apps.map_or(own.clone(), |apps| &apps & &own));
        }
        apps.is_some_and(|apps| apps.len() == 1 && apps.contains(only.as_str()))
    }
}
