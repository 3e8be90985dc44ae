//! How the callers of sampled code are found: unwind rules by image and offset, kept while they are used.
//!
//! Enters: images' files, offsets. Leaves: rules. Never here: addresses of processes. Bounds: [`RULES_MAX`] rules, and
//! [`TABLES_BYTES_MAX`] bytes of the images' indexes.

use std::{hash::Hash, sync::Arc};

use dwell_image::{ImageOffset, LruCache, UnwindRules};
use dwell_profile::StackEnd;
use rustc_hash::FxHashMap;

use crate::{CODE_BEFORE_BYTES, Code};

/// Most rules that are kept. Beyond it all are forgotten and read again.
const RULES_MAX: usize = 1 << 16;
/// Most bytes of the images' indexes that are kept.
const TABLES_BYTES_MAX: usize = 8 << 20;

/// Unwind rules of images, which `I` numbers.
pub struct Rules<I> {
    rules: FxHashMap<(I, u64), Code>,
    /// The unwind information of each image; `None` if its file cannot be read.
    tables: LruCache<I, Option<UnwindRules>>,
}

impl<I: Copy + Eq + Hash> Default for Rules<I> {
    fn default() -> Self {
        Rules { rules: FxHashMap::default(), tables: LruCache::new(TABLES_BYTES_MAX) }
    }
}

impl<I: Copy + Eq + Hash> Rules<I> {
    /// Returns what is known of the code at an offset of an image. `open` reads the unwind information of the image; it is
    /// `None` if that is not possible.
    pub fn find(&mut self, image: I, offset: u64, open: impl FnOnce() -> Option<UnwindRules>) -> Code {
        if let Some(code) = self.rules.get(&(image, offset)) {
            return *code;
        }
        let code = match &*self.table(image, open) {
            None => Code::WithoutRule(StackEnd::NoImage),
            Some(table) => match table.at(ImageOffset(offset)) {
                Some((caller, rbp)) => Code::Rule(caller, rbp),
                None => Code::WithoutRule(StackEnd::NoUnwindInformation),
            },
        };
        if self.rules.len() >= RULES_MAX {
            self.rules.clear();
        }
        self.rules.insert((image, offset), code);
        code
    }

    /// Returns the code before an offset of an image; `None` if it cannot be read.
    pub fn code_before(
        &mut self,
        image: I,
        offset: u64,
        open: impl FnOnce() -> Option<UnwindRules>,
    ) -> Option<[u8; CODE_BEFORE_BYTES]> {
        let start = ImageOffset(offset.checked_sub(CODE_BEFORE_BYTES as u64)?);
        self.table(image, open).as_ref().as_ref()?.code(start)
    }

    fn table(&self, image: I, open: impl FnOnce() -> Option<UnwindRules>) -> Arc<Option<UnwindRules>> {
        let bytes = |table: &Option<UnwindRules>| table.as_ref().map_or(64, UnwindRules::memory_bytes);
        self.tables.get(&image, open, bytes)
    }

    /// Returns whether an image whose rules were looked up keeps frame pointers everywhere.
    pub fn keeps_frame_pointers(&self, image: I) -> bool {
        let table = self.tables.peek(&image);
        table.is_some_and(|table| table.as_ref().as_ref().is_some_and(UnwindRules::keeps_frame_pointers))
    }

    /// Forgets everything, because images were renumbered.
    pub fn clear(&mut self) {
        *self = Rules::default();
    }
}
