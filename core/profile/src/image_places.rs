//! What the source of a profile said of single places in an image.
//!
//! Enters: functions, files and lines as a profile of another tool spells them, by the offset in the image. Leaves: the same, for readers
//! that do not have the image. Never here: what an image says of itself. Where the image is found, its own names hold.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ImageOffset;

/// The places of an image that its profile named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePlaces {
    /// Offsets are numbers that stand for places, because the source named functions without saying where they are. Such a number is
    /// made of the names, so it is the same in each profile, and it is no address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub numbered: bool,
    /// By ascending offset, each offset once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<ImagePlace>,
}

/// One place that a profile named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePlace {
    /// The offset in the image.
    pub offset: ImageOffset,
    /// The first byte of the procedure, where the source says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<ImageOffset>,
    /// The calls there, innermost first: those that were inlined, and last the procedure itself.
    pub frames: Vec<NamedFrame>,
}

/// A function, and where control was in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamedFrame {
    /// The function's name as people read it.
    pub function: Arc<str>,
    /// Its linkage name, where the source has another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linkage: Option<Arc<str>>,
    /// Its source file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Arc<str>>,
    /// The line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The function's first line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<u32>,
}

impl ImagePlaces {
    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        !self.numbered && self.all.is_empty()
    }

    /// What was said of an offset; only of places with a procedure.
    pub fn at(&self, offset: ImageOffset) -> Option<&ImagePlace> {
        let at = self.all.binary_search_by_key(&offset, |place| place.offset).ok()?;
        self.all.get(at).filter(|place| !place.frames.is_empty())
    }

    /// Takes in what a newer record of the same image says; of an offset that both name the newer holds.
    pub fn absorb(&mut self, newer: ImagePlaces) {
        self.numbered |= newer.numbered;
        if self.all.is_empty() || newer.all.is_empty() {
            self.all.extend(newer.all);
        } else {
            let older = std::mem::replace(&mut self.all, newer.all);
            self.all.extend(older);
        }
        // Stable: the newer one of an offset is the first.
        self.all.sort_by_key(|place| place.offset);
        self.all.dedup_by_key(|place| place.offset);
    }
}

impl ImagePlace {
    /// The procedure itself.
    pub fn procedure(&self) -> Option<&NamedFrame> {
        self.frames.last()
    }

    /// File and line of the innermost call that has both.
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
    fn newer_names_hold_and_older_ones_stay() {
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
