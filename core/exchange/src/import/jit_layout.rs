//! The layout of the generated code of all processes of an application in the application's one image.
//!
//! Enters: sampled addresses of each process with their names. Leaves: offsets in the image `jit:APP` (FORMAT.md). The
//! offset is the address, unless other code of the application has that offset. Never here: two names for one offset,
//! since processes may have different code at one address.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dwell_profile::{ImageId, ImageKind, ImageOffset, ImagePlace, ImagePlaces, ImageRecord, NamedFrame};
use rustc_hash::FxHashMap;

use super::names::Names;

/// Offsets below this are addresses; no process has code at higher ones.
const ADDRESSES_BELOW: u64 = 1 << 57;
/// Procedures whose address was taken are placed from this offset on, each in a range of fixed size.
const MOVED_FROM: u64 = 1 << 62;
const MOVED_BYTES: u64 = 1 << 32;
/// Code without a name whose address is taken by other code is placed from this offset on, at its address.
const NAMELESS_FROM: u64 = 1 << 63;

/// Offsets of sampled addresses that differ from the address, by address.
pub type Moved = FxHashMap<u64, u64>;

/// The image of an application while code is added to it.
#[derive(Default)]
struct Layout {
    /// The procedure that occupies an address; `None` for code without a name.
    taken: FxHashMap<u64, Option<Procedure>>,
    /// Starts of the procedures that were moved.
    moved: BTreeMap<Procedure, u64>,
    places: Vec<ImagePlace>,
}

/// A procedure, identified by its name.
type Procedure = Arc<str>;

/// The images of generated code.
#[derive(Default)]
pub struct JitImages {
    layouts: BTreeMap<Arc<str>, Layout>,
    moved: BTreeMap<(Arc<str>, u32), Arc<Moved>>,
}

impl JitImages {
    /// Adds the sampled addresses of a target to its application's image.
    pub fn add(&mut self, app: &Arc<str>, target: u32, addresses: &[u64], names: &Names) {
        let layout = self.layouts.entry(app.clone()).or_default();
        let mut moved = Moved::default();
        for &address in addresses {
            let offset = layout.put(address, names.at(target, address));
            if offset != address {
                moved.insert(address, offset);
            }
        }
        self.moved.insert((app.clone(), target), Arc::new(moved));
    }

    /// Returns the moved addresses of a target; `None` if it is not generated code, or none of it was moved.
    pub fn moved(&self, app: &Arc<str>, target: u32) -> Option<Arc<Moved>> {
        self.moved.get(&(app.clone(), target)).filter(|moved| !moved.is_empty()).cloned()
    }

    /// Returns the id of an application's image.
    pub fn id(app: &str) -> ImageId {
        ImageId::named(&format!("jit:{app}"))
    }

    /// Returns the records of the images.
    pub fn records(self) -> BTreeMap<ImageId, ImageRecord> {
        let record = |(app, layout): (Arc<str>, Layout)| {
            let mut record = ImageRecord::new(JitImages::id(&app), ImageKind::Jit, "//anon");
            record.places.absorb(ImagePlaces { numbered: false, all: layout.places });
            (record.id.clone(), record)
        };
        self.layouts.into_iter().map(record).collect()
    }
}

impl Layout {
    /// Returns the offset of the code at an address, placing the code if necessary.
    fn put(&mut self, address: u64, place: Option<&ImagePlace>) -> u64 {
        let procedure =
            place.and_then(ImagePlace::procedure).map(|frame: &NamedFrame| frame.function.clone());
        let known = self.taken.entry(address).or_insert_with(|| procedure.clone());
        let is_there = *known == procedure && address < ADDRESSES_BELOW;
        let (offset, start) = match (&procedure, place) {
            _ if is_there => (address, place.and_then(|place| place.start)),
            (Some(procedure), Some(place)) => {
                let count = self.moved.len() as u64;
                let from = *self.moved.entry(procedure.clone()).or_insert(MOVED_FROM + count * MOVED_BYTES);
                let start = place.start.map_or(address, |start| start.0);
                (from + address.saturating_sub(start).min(MOVED_BYTES - 1), Some(ImageOffset(from)))
            }
            _ => (address | NAMELESS_FROM, None),
        };
        if let Some(place) = place {
            self.places.push(ImagePlace { offset: ImageOffset(offset), start, frames: place.frames.clone() });
        }
        offset
    }
}

/// The targets of generated code.
pub type JitTargets = BTreeSet<u32>;

#[cfg(test)]
mod tests {
    use super::{super::names::FunctionText, *};

    #[test]
    fn different_code_at_one_address_has_separate_offsets() {
        let mut names = Names::default();
        let mut name = |target, address, start, function| {
            let frame = names.frame(FunctionText { function, ..FunctionText::default() });
            names.add(target, address, Some(start), vec![frame]);
        };
        name(1, 0x1010, 0x1000, "one");
        name(2, 0x1010, 0x1000, "two");
        name(2, 0x1020, 0x1000, "two");
        name(3, 0x1010, 0x1008, "two");
        name(4, 0x1010, 0x1000, "one");
        let app: Arc<str> = "app".into();
        let mut images = JitImages::default();
        for target in 1..6 {
            images.add(&app, target, &[0x1010, 0x1020], &names);
        }
        let moved = |target, address| images.moved(&app, target).and_then(|m| m.get(&address).copied());
        assert_eq!([moved(1, 0x1010), moved(4, 0x1010)], [None; 2], "the same code");
        assert_eq!(moved(2, 0x1010), Some(MOVED_FROM + 0x10));
        assert_eq!(moved(2, 0x1020), Some(MOVED_FROM + 0x20), "the first process has no name there");
        assert_eq!(moved(3, 0x1010), Some(MOVED_FROM + 8), "one range for a procedure");
        assert_eq!(moved(5, 0x1010), Some(NAMELESS_FROM | 0x1010));
        let record = images.records().remove(&JitImages::id("app")).unwrap();
        let all: Vec<_> = record.places.all.iter().map(|p| (p.offset.0, &*p.frames[0].function)).collect();
        let two = [8, 0x10, 0x20].map(|within| (MOVED_FROM + within, "two"));
        assert_eq!(all, [vec![(0x1010, "one")], two.into()].concat());
    }
}
