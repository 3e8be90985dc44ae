//! Paths as texts that can be converted back: formats, answers and editors use texts, while the name of a file may
//! contain any bytes.
//!
//! Enters: a path, or bytes as debug information has them. Leaves: a text, which is the path itself if the path is
//! UTF-8. A byte that is not part of valid UTF-8 becomes U+FFFD followed by its two uppercase hexadecimal digits. Each
//! byte of a U+FFFD in the path itself is escaped likewise, so that every path is restored exactly. Older texts contain
//! U+FFFD without digits and are read unchanged.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serializer};

const MARK: char = '\u{fffd}';

/// Returns the text of a path.
pub fn path_to_text(path: &Path) -> Cow<'_, str> {
    bytes_to_text(path.as_os_str().as_bytes())
}

/// Returns the text of a path that is given as bytes.
pub fn bytes_to_text(path: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(path) {
        Ok(text) if !text.contains(MARK) => Cow::Borrowed(text),
        _ => Cow::Owned(escaped(path)),
    }
}

fn escaped(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len() + 16);
    let escape = |text: &mut String, bytes: &[u8]| {
        bytes.iter().for_each(|byte| text.push_str(&format!("{MARK}{byte:02X}")));
    };
    for chunk in path.utf8_chunks() {
        let mut parts = chunk.valid().split(MARK);
        text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            escape(&mut text, MARK.encode_utf8(&mut [0; 4]).as_bytes());
            text.push_str(part);
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

/// Returns the path of a text.
pub fn text_to_path(text: &str) -> Cow<'_, Path> {
    if !text.contains(MARK) {
        return Cow::Borrowed(Path::new(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(MARK) {
        bytes.extend_from_slice(before.as_bytes());
        rest = match escaped_byte(after) {
            Some(byte) => {
                bytes.push(byte);
                &after[2..]
            }
            None => {
                bytes.extend_from_slice(MARK.encode_utf8(&mut [0; 4]).as_bytes());
                after
            }
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    Cow::Owned(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

/// Returns the byte that the first two digits of a text encode. Only bytes outside ASCII are ever escaped.
fn escaped_byte(text: &str) -> Option<u8> {
    let digits = text.get(..2).filter(|d| d.bytes().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F')))?;
    u8::from_str_radix(digits, 16).ok().filter(|byte| !byte.is_ascii())
}

/// Serializes a path as its text, for fields of records.
pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path_to_text(path))
}

/// Deserializes a path from its text.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Ok(text_to_path(&String::deserialize(deserializer)?).into_owned())
}

/// Returns the text of a file's name.
pub fn name_to_text(name: &OsStr) -> Cow<'_, str> {
    bytes_to_text(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(bytes: &[u8]) -> &Path {
        Path::new(OsStr::from_bytes(bytes))
    }

    #[test]
    fn texts_are_unchanged_and_other_bytes_are_escaped() {
        for (bytes, text) in [
            (&b"/tmp/prog"[..], "/tmp/prog"),
            ("/tmp/pr\u{f6}g".as_bytes(), "/tmp/pr\u{f6}g"),
            (b"/tmp/pr\xe9g", "/tmp/pr\u{fffd}E9g"),
            (b"\xff\xc3", "\u{fffd}FF\u{fffd}C3"),
            ("a\u{fffd}b".as_bytes(), "a\u{fffd}EF\u{fffd}BF\u{fffd}BDb"),
            (b"", ""),
        ] {
            assert_eq!(path_to_text(path(bytes)), text);
            assert_eq!(text_to_path(text), path(bytes));
        }
    }

    #[test]
    fn older_texts_are_read_unchanged() {
        for text in
            ["/tmp/pr\u{fffd}g", "a\u{fffd}", "\u{fffd}4", "\u{fffd}41", "\u{fffd}e9", "\u{fffd}\u{e9}"]
        {
            assert_eq!(text_to_path(text), Path::new(text));
        }
    }

    proptest! {
        #[test]
        fn every_path_comes_back(bytes: Vec<u8>) {
            let text = bytes_to_text(&bytes);
            prop_assert_eq!(&*text_to_path(&text), path(&bytes));
        }

        #[test]
        fn every_text_gives_some_path(text: String) {
            text_to_path(&text);
        }
    }
}
