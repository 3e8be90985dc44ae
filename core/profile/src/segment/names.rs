//! The texts of segments by number; each text is stored once, and rows are compared and counted by numbers.
//!
//! Enters: texts, or untrusted bytes of a file. Leaves: their numbers. Never here: bytes that are not UTF-8, or a text
//! that is too long.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{MAX_TEXT_BYTES, SegmentError};

/// A table of distinct texts and their numbers.
#[derive(Default)]
pub(super) struct Names {
    texts: Vec<Arc<str>>,
    by_text: FxHashMap<Arc<str>, u32>,
}

impl Names {
    /// Returns the number of a text, adding the text if it is new.
    pub(super) fn intern(&mut self, text: &str) -> Result<u32, SegmentError> {
        if let Some(&number) = self.by_text.get(text) {
            return Ok(number);
        }
        SegmentError::limit("text in bytes", text.len() as u64, MAX_TEXT_BYTES as u64)?;
        let (number, text) = (self.texts.len() as u32, Arc::<str>::from(text));
        self.texts.push(text.clone());
        self.by_text.insert(text, number);
        Ok(number)
    }

    /// Returns the number of a text that is given as bytes; an error if they are not UTF-8.
    pub(super) fn intern_bytes(&mut self, bytes: &[u8]) -> Result<u32, SegmentError> {
        let text = std::str::from_utf8(bytes);
        self.intern(text.map_err(|e| SegmentError::Parquet(format!("text that is none: {e}")))?)
    }

    /// Returns the text of a number that this table returned before.
    pub(super) fn text(&self, number: u32) -> &Arc<str> {
        &self.texts[number as usize]
    }
}
