//! Finds functions of a process by a line of their source.
//!
//! Enters: the images of a process, `FILE:LINE`. Leaves: the functions that have code of that line. Code that was inlined has no entry of
//! its own: the functions that it was inlined into are offered instead.

use std::collections::BTreeSet;

use dwell_image::{Image, Procedure};

use crate::{
    functions::{FindError, Found},
    process_images::MappedImage,
};

/// Number of functions that are offered in place of one that was inlined.
const CALLERS_MAX: usize = 8;

/// A line of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLine<'t> {
    /// The file, or the end of its path.
    pub file: &'t str,
    /// The line, from 1.
    pub line: u32,
}

impl<'t> SourceLine<'t> {
    /// Parses `FILE:LINE`; `None` if it is a function.
    pub fn parse(text: &'t str) -> Option<Self> {
        let (file, line) = text.rsplit_once(':')?;
        let line = line.parse().ok().filter(|line| *line > 0)?;
        (!file.is_empty() && !file.ends_with(':')).then_some(SourceLine { file, line })
    }

    fn is_at(self, place: Option<&(impl AsRef<str>, u32)>) -> bool {
        place.is_some_and(|(path, line)| *line == self.line && self.is_file(path.as_ref()))
    }

    fn is_file(self, path: &str) -> bool {
        path.strip_suffix(self.file).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
    }
}

/// How a procedure has code of a line.
enum Code {
    Own,
    /// Inlined; the name of the function.
    Inlined(String),
}

/// Finds the functions with code of a line.
pub fn find_at_line(images: &[MappedImage], wanted: SourceLine) -> Result<Vec<Found>, FindError> {
    let mut found = Vec::new();
    let (mut inlined, mut callers) = (BTreeSet::new(), BTreeSet::new());
    let file_name = wanted.file.rsplit('/').next().unwrap_or(wanted.file);
    for (number, image) in images.iter().enumerate() {
        for procedure in image.image.procedures().iter() {
            let address = image.in_process(procedure.address);
            if !image.mapping.contains(address)
                || !image.image.may_be_of(procedure.address, procedure.size_bytes, file_name)
                || procedure.name().contains(".cold")
            {
                continue;
            }
            match code_of(&image.image, &procedure, wanted) {
                Some(Code::Own) => {
                    let (name, image_address) = (procedure.demangled(), procedure.address);
                    found.push(Found { name, image: number, image_address, address });
                }
                Some(Code::Inlined(function)) => {
                    inlined.insert(function);
                    callers.insert(procedure.demangled());
                }
                None => {}
            }
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let text = format!("{}:{}", wanted.file, wanted.line);
    match inlined.pop_first() {
        Some(function) => {
            let callers = callers.into_iter().take(CALLERS_MAX).collect();
            Err(FindError::Inlined { text, function, callers })
        }
        None => Err(FindError::NoCode { text }),
    }
}

/// Returns how a procedure has code of a line, if it has.
fn code_of(image: &Image, procedure: &Procedure, wanted: SourceLine) -> Option<Code> {
    if wanted.is_at(image.procedure_line(procedure.address).as_ref()) {
        return Some(Code::Own);
    }
    let instructions = image.instructions(procedure.address, procedure.size_bytes);
    let places = image.lines_at(instructions.iter().map(|instruction| instruction.address));
    let mut inlined = None;
    for (instruction, _) in instructions.iter().zip(&places).filter(|(_, place)| wanted.is_at(place.as_ref()))
    {
        let mut frames = image.frames(instruction.address);
        if frames.len() < 2 {
            return Some(Code::Own);
        }
        inlined = frames.swap_remove(0).function.map(Code::Inlined).or(inlined);
    }
    inlined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_from_functions() {
        let parsed = |text| SourceLine::parse(text).map(|place| (place.file, place.line));
        assert_eq!(parsed("src/a.c:12"), Some(("src/a.c", 12)));
        for text in ["a::b", "libc.so.6:read", "a.c:0", ":3", "a::3", "f", "a.c:99999999999"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn files_are_matched_by_whole_names() {
        let place = SourceLine { file: "src/a.c", line: 1 };
        assert!(place.is_file("/x/src/a.c") && place.is_file("src/a.c"));
        assert!(!place.is_file("/x/mysrc/a.c") && !place.is_file("/x/a.c"));
    }
}
