//! Finds functions of a process by what a user types.
//!
//! Enters: the images of a process and a text: `NAME`, `IMAGE:NAME`, or a glob of either with `*` and `?`, or `FILE:LINE`. Leaves: all functions that
//! have this name, since several may (static functions, templates, copies in libraries). Never here: parts and copies that a
//! compiler made, unless the text names them.

use dwell_image::{ImageAddress, Procedure, without_parameters};
use dwell_profile::VirtualAddress;
use rustc_hash::FxHashSet;

use crate::{
    process_images::MappedImage,
    source_line::{SourceLine, find_at_line},
};

/// Number of functions that one text may name.
pub const MATCHES_MAX: usize = 64;
/// Number of names that are suggested.
const SUGGESTIONS_MAX: usize = 5;

/// A function of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name as the source spells it.
    pub name: String,
    /// Number of its image.
    pub image: usize,
    /// Its address in the image.
    pub image_address: ImageAddress,
    /// Its address in the process.
    pub address: VirtualAddress,
}

/// Why no function was found, or too many.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// There is none.
    #[error("no function {text} in the process{}", suggestions(nearest))]
    Missing {
        /// What was typed.
        text: String,
        /// The nearest names.
        nearest: Vec<String>,
    },
    /// The line has no code.
    #[error(
        "{text} has no code in the process (no debug information, a comment, or other options of the compiler?)"
    )]
    NoCode {
        /// What was typed.
        text: String,
    },
    /// The line is in a function that has no entry.
    #[error("{text} is in {function}, which has no entry since it was inlined into {}: probe that", callers.join(", "))]
    Inlined {
        /// What was typed.
        text: String,
        /// The function.
        function: String,
        /// The functions that it was inlined into.
        callers: Vec<String>,
    },
    /// There are too many.
    #[error(
        "{text} names {number} functions, of which {MATCHES_MAX} can be probed at once: be more specific"
    )]
    TooMany {
        /// What was typed.
        text: String,
        /// How many there are.
        number: usize,
    },
}

fn suggestions(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; similar: {}", nearest.join(", ")) }
}

/// Finds the functions that a text names.
pub fn find(images: &[MappedImage], text: &str) -> Result<Vec<Found>, FindError> {
    if let Some(line) = SourceLine::parse(text) {
        return find_at_line(images, line);
    }
    let (image_name, name) = split(text);
    let mut found = Vec::new();
    let mut seen = FxHashSet::default();
    for (number, image) in images.iter().enumerate() {
        let own_name = image.path().rsplit('/').next().unwrap_or_default();
        if image_name.is_some_and(|wanted| !matches(wanted, own_name)) {
            continue;
        }
        let part = own_part(name);
        let procedures = || image.image.procedures().iter();
        let mut named: Vec<Procedure> =
            procedures().filter(|procedure| is_named(procedure, name, part)).collect();
        if named.is_empty() {
            let is_alias =
                |procedure: &Procedure| procedure.aliases().iter().any(|alias| matches(name, alias));
            named = procedures().filter(is_alias).collect();
        }
        for procedure in named {
            let address = image.in_process(procedure.address);
            if image.mapping.contains(address) && seen.insert(address) {
                let name = procedure.demangled();
                found.push(Found { name, image: number, image_address: procedure.address, address });
            }
        }
    }
    match found.len() {
        0 => Err(FindError::Missing { text: text.to_owned(), nearest: nearest(images, name) }),
        number if number > MATCHES_MAX => Err(FindError::TooMany { text: text.to_owned(), number }),
        _ => Ok(found),
    }
}

/// Splits `IMAGE:NAME` at the first colon that is not one of two.
fn split(text: &str) -> (Option<&str>, &str) {
    let bytes = text.as_bytes();
    let is_single = |at: &usize| {
        bytes[*at] == b':' && bytes.get(at + 1) != Some(&b':') && (*at == 0 || bytes[at - 1] != b':')
    };
    match (0..bytes.len()).find(is_single) {
        Some(at) => (Some(&text[..at]), &text[at + 1..]),
        None => (None, text),
    }
}

/// Returns a text that is in the symbol of each function with this name, mangled or not: the last identifier before parameters. It
/// is empty if there is none to rely on (operators, globs at the end).
fn own_part(name: &str) -> &str {
    let plain = without_parameters(name);
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let end = plain.trim_end_matches(|c: char| !is_letter(c));
    let start = end.rfind(|c: char| !is_letter(c)).map_or(0, |at| at + 1);
    if name.contains("operator") || name.contains('~') { "" } else { &end[start..] }
}

/// Returns whether a procedure has this name: its symbol's, or as the source spells it, with parameters or without.
/// `part` is in each symbol of that name.
fn is_named(procedure: &Procedure, name: &str, part: &str) -> bool {
    let symbol = procedure.name();
    if matches(name, &symbol) {
        return true;
    }
    // Demangling all names of a large program takes seconds.
    if !symbol.contains(part) {
        return false;
    }
    let demangled = procedure.demangled();
    matches(name, &demangled) || matches(name, without_parameters(&demangled))
}

/// Returns whether a text is what a glob describes: `*` stands for any characters, `?` for one.
fn matches(glob: &str, text: &str) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let (mut at, mut pattern, mut star) = (0, 0, None);
    while at < text.len() {
        match glob.get(pattern) {
            Some(b'*') => {
                star = Some((pattern, at));
                pattern += 1;
            }
            Some(b'?') => (pattern, at) = (pattern + 1, at + 1),
            Some(byte) if *byte == text[at] => (pattern, at) = (pattern + 1, at + 1),
            _ => match star {
                Some((from, taken)) => {
                    star = Some((from, taken + 1));
                    (pattern, at) = (from + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    glob[pattern..].iter().all(|byte| *byte == b'*')
}

/// Returns the names that are most similar to one that does not exist.
fn nearest(images: &[MappedImage], name: &str) -> Vec<String> {
    let mut scored: Vec<(f64, String)> = Vec::new();
    for image in images {
        for procedure in image.image.procedures().iter() {
            let demangled = procedure.demangled();
            let plain = without_parameters(&demangled);
            let last = plain.rsplit("::").next().unwrap_or(plain);
            let score = if last == name { 1.0 } else { strsim::jaro_winkler(name, plain) };
            if score > 0.85 {
                scored.push((score, plain.to_owned()));
            }
        }
    }
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.into_iter().take(SUGGESTIONS_MAX).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match() {
        for (glob, text) in
            [("a*c", "abc"), ("a*c", "ac"), ("*", ""), ("Py*_Set*", "PyDict_SetItem"), ("f?", "fx")]
        {
            assert!(matches(glob, text), "{glob} {text}");
        }
        for (glob, text) in [("a*c", "ab"), ("f?", "f"), ("", "a"), ("a", "")] {
            assert!(!matches(glob, text), "{glob} {text}");
        }
    }

    #[test]
    fn a_part_of_the_symbol_is_known() {
        for (name, part) in [
            ("malloc", "malloc"),
            ("std::vector<int>::push_back(int&&)", "push_back"),
            ("a::*::run", "run"),
            ("Py*_SetItem", "_SetItem"),
            ("f*", "f"),
            ("a::operator+", ""),
            ("*", ""),
        ] {
            assert_eq!(own_part(name), part, "{name}");
        }
    }

    #[test]
    fn images_are_split_off() {
        assert_eq!(split("libc.so.6:read"), (Some("libc.so.6"), "read"));
        assert_eq!(split("a::b::f"), (None, "a::b::f"));
        assert_eq!(split("x:a::f"), (Some("x"), "a::f"));
    }
}
