//! Limits of symbols, so that a segment's image records stay readable.

/// Longest name of a symbol in bytes. Longer ones are cut, because the texts of a segment are limited.
pub(super) const SYMBOL_NAME_BYTES_MAX: usize = 4 << 10;
/// Most symbols of an image, and most bytes of all their names, so that a segment's image records stay readable.
pub(super) const SYMBOLS_MAX: usize = 1 << 16;
pub(super) const SYMBOL_NAMES_BYTES_MAX: usize = 16 << 20;

/// Cuts a text to at most so many bytes, between characters.
pub(super) fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
}
