//! Texts of segments by number, each once: rows are compared and counted by numbers.
//!
//! Enters: texts, or bytes of a file that claim to be some. Leaves: their numbers. Never here: what is no text, or too long for one.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{MAX_TEXT_BYTES, SegmentError};

/// The texts.
#[derive(Default)]
pub(super) struct Names {
    texts: Vec<Arc<str>>,
    by_text: FxHashMap<Arc<str>, u32>,
}

impl Names {
    /// The number of a text.
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

    /// The same of bytes.
    pub(super) fn intern_bytes(&mut self, bytes: &[u8]) -> Result<u32, SegmentError> {
        let text = std::str::from_utf8(bytes);
        self.intern(text.map_err(|e| SegmentError::Parquet(format!("text that is none: {e}")))?)
    }

    /// The text of a number that was given out.
    pub(super) fn text(&self, number: u32) -> &Arc<str> {
        &self.texts[number as usize]
    }
}
