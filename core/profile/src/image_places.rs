//! Functions and lines that the source of a profile recorded about single places in an image.
//!
//! Enters: functions, files and lines as the profile of another tool spells them, by offset in the image. Leaves: the
//! same, for readers that do not have the image. Never here: what the image says about itself. If the image is found,
//! its own symbols and lines take precedence.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ImageOffset;

/// The places of an image that its profile named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePlaces {
    /// Whether offsets are numbers that stand for places, because the source named functions without their addresses.
    /// Such a number is computed from the names, so it is the same in every profile, and it is not an address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub numbered: bool,
    /// The places by ascending offset; each offset occurs once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<ImagePlace>,
}

/// One place that a profile named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePlace {
    /// The offset in the image.
    pub offset: ImageOffset,
    /// The first byte of the procedure, if the source reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<ImageOffset>,
    /// The calls at this place, innermost first: the inlined ones, and the procedure itself last.
    pub frames: Vec<NamedFrame>,
}

/// A function, and the position of control in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamedFrame {
    /// The function's name in readable form.
    pub function: Arc<str>,
    /// The function's linkage name, if the source reports a different one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linkage: Option<Arc<str>>,
    /// The function's source file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Arc<str>>,
    /// The line where control was, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The function's first line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<u32>,
}

impl ImagePlaces {
    /// Returns whether no place is named.
    pub fn is_empty(&self) -> bool {
        !self.numbered && self.all.is_empty()
    }

    /// Returns the place at this offset, if it is named and has a procedure.
    pub fn at(&self, offset: ImageOffset) -> Option<&ImagePlace> {
        let at = self.all.binary_search_by_key(&offset, |place| place.offset).ok()?;
        self.all.get(at).filter(|place| !place.frames.is_empty())
    }

    /// Merges the places of a newer record of the same image. For an offset in both, the newer place is kept.
    pub fn absorb(&mut self, newer: ImagePlaces) {
        self.numbered |= newer.numbered;
        if self.all.is_empty() || newer.all.is_empty() {
            self.all.extend(newer.all);
        } else {
            let older = std::mem::replace(&mut self.all, newer.all);
            self.all.extend(older);
        }
        // The sort is stable, so the newer place comes first among those of one offset.
        self.all.sort_by_key(|place| place.offset);
        self.all.dedup_by_key(|place| place.offset);
    }
}

impl ImagePlace {
    /// Returns the procedure itself, the outermost frame.
    pub fn procedure(&self) -> Option<&NamedFrame> {
        self.frames.last()
    }

    /// Returns the file and line of the innermost call that has both.
    pub fn line(&self) -> Option<(Arc<str>, u32)> {
        let innermost = self.frames.first()?;
        innermost.file.clone().zip(innermost.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64, name: &str) -> ImagePlace {
        let frame = NamedFrame { function: name.into(), ..NamedFrame::default() };
        ImagePlace { offset: ImageOffset(offset), start: None, frames: vec![frame] }
    }

    #[test]
    fn newer_names_win_and_older_ones_remain() {
        let mut places = ImagePlaces { numbered: false, all: vec![place(1, "one"), place(5, "old")] };
        places.absorb(ImagePlaces { numbered: false, all: vec![place(3, "three"), place(5, "new")] });
        places.absorb(ImagePlaces::default());
        let name = |offset| Some(places.at(ImageOffset(offset))?.procedure()?.function.to_string());
        assert_eq!([1, 3, 5].map(name), ["one", "three", "new"].map(|n| Some(n.to_owned())));
        assert_eq!(name(2), None);
        let json = serde_json::to_string(&places.all[0]).unwrap();
        assert_eq!(json, r#"{"offset":1,"frames":[{"function":"one"}]}"#);
    }
}
