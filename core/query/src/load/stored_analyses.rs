//! Analyses of procedures that a job stored beside the recordings, for images that are not at hand.
//!
//! Cost: one listing of the stored files when the first such image is asked for, and its file for each image.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use dwell_profile::{Database, Epoch, EpochId, ImageId, StoredRows};
use once_cell::sync::OnceCell;
use rustc_hash::FxHashMap;

use crate::SampleFilter;

/// The stored analyses of a view. They are of one epoch, and of all of its samples; a view of anything else has none.
pub struct StoredAnalyses {
    epoch: Option<EpochId>,
    files: OnceCell<Result<Vec<StoredRows>, String>>,
    by_image: Mutex<FxHashMap<ImageId, Arc<OnceCell<OfImage>>>>,
    unread: Mutex<BTreeSet<String>>,
}

/// The texts of the analyses of an image's procedures by their offset, or why they cannot be read.
type OfImage = Result<FxHashMap<u64, Box<str>>, String>;

impl StoredAnalyses {
    pub fn of(epochs: &[Epoch], filter: &SampleFilter) -> Self {
        let epoch = match epochs {
            [epoch] if *filter == SampleFilter::default() => Some(epoch.id.clone()),
            _ => None,
        };
        StoredAnalyses { epoch, files: OnceCell::new(), by_image: Mutex::default(), unread: Mutex::default() }
    }

    /// Returns the text of the analysis of a procedure that begins at this offset: `None` if none is stored, or the reason why
    /// it cannot be read.
    pub fn text(&self, database: &Database, image: &ImageId, start: u64) -> Result<Option<Box<str>>, String> {
        let Some(epoch) = &self.epoch else { return Ok(None) };
        let files = self.files.get_or_init(|| database.stored_analyses(epoch).map_err(|e| e.to_string()));
        let files = files.as_ref().map_err(String::clone)?;
        if !files.iter().any(|file| file.image == *image) {
            return Ok(None);
        }
        let mut by_image = self.by_image.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = by_image.entry(image.clone()).or_default().clone();
        drop(by_image); // Reading a file must not block threads that need another image.
        let read = || {
            let mut texts = FxHashMap::default();
            for file in files.iter().filter(|file| file.image == *image) {
                let analyses = database.read_analyses(file).map_err(|e| e.to_string())?;
                texts.extend(analyses.into_iter().map(|stored| (stored.start.0, stored.text)));
            }
            Ok(texts)
        };
        slot.get_or_init(read).as_ref().map(|texts| texts.get(&start).cloned()).map_err(String::clone)
    }

    /// Keeps the reason why an analysis cannot be read, for [`Self::note`].
    pub fn add_unread(&self, why: String) {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).insert(why);
    }

    /// Returns a note if analyses that were asked for until now cannot be read.
    pub fn note(&self) -> Option<String> {
        let unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        let first = unread.first()?;
        let others = match unread.len() - 1 {
            0 => String::new(),
            others => format!(" (and {others} more)"),
        };
        Some(format!("{first}{others}"))
    }
}
