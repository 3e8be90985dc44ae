//! The names that a profile itself gives to places. They are used if the image is not on this machine.
//!
//! Enters: functions, files and lines by target and offset. Leaves: the named places of each target. Never here: names
//! from files on this machine, or more text than the records of an epoch can hold; places without room are counted.

use std::{collections::BTreeMap, sync::Arc};

use dwell_profile::{ImageOffset, ImagePlace, ImagePlaces, NamedFrame};
use rustc_hash::{FxHashMap, FxHashSet};

/// Size limit of all names of an epoch as they are stored, in bytes: half of what the records of a segment may take.
const BYTES_MAX: usize = 64 << 20;
/// Approximate size of a place and a frame without their texts, in bytes.
const FRAME_BYTES: usize = 100;
/// A longer name is truncated to this many bytes.
const NAME_BYTES_MAX: usize = 4 << 10;
/// Limit of the frames of a place, which is more than any compiler inlines. The innermost frames and the procedure are
/// kept.
const FRAMES_MAX: usize = 64;
/// Mask of the numbers of places: JavaScript represents such integers exactly.
const NUMBER_MASK: u64 = (1 << 52) - 1;

/// Named places, collected while a profile is read.
#[derive(Default)]
pub struct Names {
    texts: FxHashSet<Arc<str>>,
    by_target: FxHashMap<u32, BTreeMap<u64, ImagePlace>>,
    bytes: usize,
    /// Number of places whose names had no room.
    pub left_out: u64,
}

/// What a profile reports about a function.
#[derive(Clone, Copy, Debug, Default)]
pub struct FunctionText<'a> {
    /// The function's name in readable form.
    pub function: &'a str,
    /// The function's linkage name, if it is different.
    pub linkage: &'a str,
    /// The function's source file; empty if it is not reported.
    pub file: &'a str,
    /// The line where control was; 0 if it is not reported.
    pub line: i64,
    /// The function's first line; 0 if it is not reported.
    pub begin: i64,
}

impl Names {
    /// Returns a frame for what is reported; equal texts share their memory.
    pub fn frame(&mut self, said: FunctionText<'_>) -> NamedFrame {
        let line = |line: i64| u32::try_from(line).ok().filter(|line| *line > 0);
        let linkage = Some(said.linkage).filter(|name| !name.is_empty() && *name != said.function);
        NamedFrame {
            function: self.text(said.function),
            linkage: linkage.map(|name| self.text(name)),
            file: Some(said.file).filter(|file| !file.is_empty()).map(|file| self.text(file)),
            line: line(said.line),
            begin: line(said.begin),
        }
    }

    /// Names a place by the calls there, innermost first, unless it already has a name.
    pub fn add(&mut self, target: u32, offset: u64, start: Option<u64>, mut frames: Vec<NamedFrame>) {
        let known = self.by_target.entry(target).or_default();
        if frames.is_empty() || known.contains_key(&offset) {
            return;
        }
        if frames.len() > FRAMES_MAX {
            frames.drain(FRAMES_MAX - 1..frames.len() - 1);
        }
        let texts = |f: &NamedFrame| {
            let of = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
            FRAME_BYTES + f.function.len() + of(&f.linkage) + of(&f.file)
        };
        let bytes: usize = FRAME_BYTES + frames.iter().map(texts).sum::<usize>();
        if self.bytes + bytes > BYTES_MAX {
            self.left_out += 1;
            return;
        }
        self.bytes += bytes;
        known.insert(
            offset,
            ImagePlace { offset: ImageOffset(offset), start: start.map(ImageOffset), frames },
        );
    }

    /// Returns the number that stands for a place without an address. It is computed from the names and from `within`,
    /// the distance from the start of the procedure. Two places have the same number only if their names are the same.
    pub fn number(&self, target: u32, frames: &[NamedFrame], within: u64) -> u64 {
        let mut hash = Fnv::default();
        for frame in frames {
            let texts = [Some(&frame.function), frame.linkage.as_ref(), frame.file.as_ref()];
            texts.into_iter().for_each(|text| hash.text(text.map_or("", |text| text)));
            hash.bytes(&frame.line.unwrap_or(0).to_le_bytes());
            hash.bytes(&frame.begin.unwrap_or(0).to_le_bytes());
        }
        hash.bytes(&within.to_le_bytes());
        let places = self.by_target.get(&target);
        let mut number = hash.0 & NUMBER_MASK;
        while places.and_then(|all| all.get(&number)).is_some_and(|other| other.frames != frames) {
            number = (number + 1) & NUMBER_MASK;
        }
        number
    }

    /// Returns whether the profile named places of a target.
    pub fn has(&self, target: u32) -> bool {
        self.by_target.get(&target).is_some_and(|places| !places.is_empty())
    }

    /// Returns the named place at an offset of a target.
    pub fn at(&self, target: u32, offset: u64) -> Option<&ImagePlace> {
        self.by_target.get(&target)?.get(&offset)
    }

    /// Returns the places of a target.
    pub fn of(&self, target: u32) -> ImagePlaces {
        let all = self.by_target.get(&target).map_or_else(Vec::new, |all| all.values().cloned().collect());
        ImagePlaces { numbered: false, all }
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        let end = (0..=text.len().min(NAME_BYTES_MAX)).rev().find(|at| text.is_char_boundary(*at));
        let text = &text[..end.unwrap_or(0)];
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }
}

/// The 64-bit FNV-1a hash: stored numbers must be the same in every version and on every machine.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.bytes(&[0xff]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_names_alone() {
        let mut names = Names::default();
        let said = |function| FunctionText { function, file: "a.py", line: 3, ..FunctionText::default() };
        let [one, two] = ["one", "two"].map(|name| vec![names.frame(said(name))]);
        let number = names.number(0, &one, 0);
        assert_eq!(number, Names::default().number(7, &one, 0));
        assert_ne!(number, names.number(0, &one, 4));
        assert_ne!(number, names.number(0, &two, 0));
        names.add(0, number, None, two);
        assert_eq!(names.number(0, &one, 0), number + 1, "the number is another place's");
    }

    #[test]
    fn names_have_bounds() {
        let mut names = Names::default();
        let long = "é".repeat(NAME_BYTES_MAX);
        let frame = names.frame(FunctionText { function: &long, ..FunctionText::default() });
        assert_eq!(frame.function.len(), NAME_BYTES_MAX);
        names.add(0, 1, None, vec![frame.clone(); 100_000]);
        assert_eq!(names.of(0).all[0].frames.len(), FRAMES_MAX);
        (2..1000).for_each(|offset| names.add(0, offset, None, vec![frame.clone(); FRAMES_MAX]));
        assert!(names.left_out > 500 && names.bytes <= BYTES_MAX, "{}", names.left_out);
    }
}
