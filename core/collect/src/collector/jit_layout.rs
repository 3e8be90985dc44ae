//! The offsets of generated code in its application's image: the offset is the code's address, unless other code has that
//! offset.
//!
//! Enters: names and addresses of code, each with its address space. Leaves: offsets in the image, and new symbols. Never
//! here: one offset for two names, overlapping symbols, more symbols than a segment can hold. The offsets are a contract:
//! core/profile/FORMAT.md.

use std::{collections::BTreeMap, sync::Arc};

use dwell_attribution::CodeId;
use dwell_profile::{ImageOffset, ImageSymbol, VirtualAddress};
use rustc_hash::FxHashMap;

use super::symbol_limits::{SYMBOL_NAME_BYTES_MAX, SYMBOL_NAMES_BYTES_MAX, SYMBOLS_MAX, cut};

/// All addresses of user space are below this.
const ADDRESSES_END: u64 = 1 << 57;
/// First offset for code whose own address was taken by other code.
const MOVED: u64 = 1 << 62;
/// Distance from the address to the offset of code without a certain name, if other code is at that address.
const NAMELESS: u64 = 1 << 63;
/// Most addresses without a name that are remembered to be named later.
const NAMELESS_MAX: usize = 1 << 16;

/// The layout of the image that holds an application's generated code.
#[derive(Debug, Default)]
pub(super) struct JitLayout {
    /// Code at its own address: end and name by first address. The ranges are disjoint.
    named: BTreeMap<u64, (u64, Arc<str>)>,
    /// Addresses of samples without a name, and the address space they are from; `None` if from several.
    nameless: BTreeMap<u64, Option<CodeId>>,
    /// Offsets of code whose address was taken, by name and size.
    moved: FxHashMap<(Arc<str>, u64), u64>,
    moved_bytes: u64,
    name_bytes: usize,
    new: Vec<ImageSymbol>,
}

impl JitLayout {
    /// Returns the offset of an address in code with a name, or `None` if the image has no room for another name.
    pub(super) fn place(
        &mut self,
        code: CodeId,
        symbol: &ImageSymbol,
        address: VirtualAddress,
    ) -> Option<u64> {
        let address = address.as_offset();
        let (start, size_bytes) = (symbol.offset.0, symbol.size_bytes);
        let within = address.checked_sub(start).filter(|within| *within < size_bytes)?;
        let end = start.checked_add(size_bytes).filter(|end| *end <= ADDRESSES_END)?;
        let mut name = symbol.name.clone();
        cut(&mut name, SYMBOL_NAME_BYTES_MAX);
        let before = self.named.range(..end).next_back().filter(|(_, (until, _))| *until > start);
        if before.is_some_and(|(from, (until, known))| (*from, *until, &**known) == (start, end, &*name)) {
            return Some(address);
        }
        let name: Arc<str> = name.into();
        let is_free =
            before.is_none() && self.nameless.range(start..end).all(|(_, owner)| *owner == Some(code));
        if !is_free && let Some(offset) = self.moved.get(&(name.clone(), size_bytes)) {
            return Some(offset + within);
        }
        self.name_bytes = self.room_for(&name)?;
        let offset = if is_free {
            // Earlier samples of this process in the range, taken before the name was written, get the name too.
            self.nameless.retain(|address, _| !(start..end).contains(address));
            self.named.insert(start, (end, name.clone()));
            start
        } else {
            let offset = MOVED + self.moved_bytes;
            self.moved_bytes = (self.moved_bytes + size_bytes).next_multiple_of(16);
            self.moved.insert((name.clone(), size_bytes), offset);
            offset
        };
        self.new.push(ImageSymbol { offset: ImageOffset(offset), size_bytes, name: name.to_string() });
        Some(offset + within)
    }

    /// Returns the bytes of all names including this one, or `None` if there is no room for it.
    fn room_for(&self, name: &str) -> Option<usize> {
        let bytes = self.name_bytes + name.len();
        let has_room = self.named.len() + self.moved.len() < SYMBOLS_MAX
            && bytes <= SYMBOL_NAMES_BYTES_MAX
            && self.moved_bytes < NAMELESS - MOVED - ADDRESSES_END;
        has_room.then_some(bytes)
    }

    /// Returns the offset of an address whose code has no name, and whether it may still get one.
    pub(super) fn place_nameless(&mut self, code: CodeId, address: VirtualAddress) -> (u64, bool) {
        let uncertain = Self::place_uncertain(address);
        let address = address.as_offset();
        let is_taken = self.named.range(..=address).next_back().is_some_and(|(_, (end, _))| *end > address);
        let is_full = self.nameless.len() >= NAMELESS_MAX && !self.nameless.contains_key(&address);
        if address >= ADDRESSES_END || is_taken || is_full {
            return (uncertain, false);
        }
        let owner = self.nameless.entry(address).or_insert(Some(code));
        if *owner != Some(code) {
            *owner = None;
        }
        (address, owner.is_some())
    }

    /// Returns the offset of an address whose name is uncertain.
    pub(super) fn place_uncertain(address: VirtualAddress) -> u64 {
        NAMELESS | address.as_offset()
    }

    /// Returns the symbols that were added since the last call.
    pub(super) fn take_new(&mut self) -> Vec<ImageSymbol> {
        std::mem::take(&mut self.new)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn symbol(start: u64, size_bytes: u64, name: &str) -> ImageSymbol {
        ImageSymbol { offset: ImageOffset(start), size_bytes, name: name.to_owned() }
    }

    #[test]
    fn two_names_never_share_an_offset() {
        let (mut layout, [first, second]) = (JitLayout::default(), [CodeId(1), CodeId(2)]);
        let mut text = String::new();
        let mut place = |code, symbol: &ImageSymbol, address| {
            let offset = layout.place(code, symbol, VirtualAddress(address)).unwrap();
            text += &format!("{:?} {} {address:x} at {offset:x}\n", code, symbol.name);
        };
        place(first, &symbol(0x1000, 0x40, "parse"), 0x1004);
        place(second, &symbol(0x1000, 0x40, "parse"), 0x1008);
        place(second, &symbol(0x1000, 0x40, "render"), 0x1004);
        place(first, &symbol(0x1020, 0x40, "render"), 0x1024);
        place(first, &symbol(0x1020, 0x10, "render"), 0x1024);
        place(first, &symbol(0x1040, 0x10, "next"), 0x1040);
        expect![[r#"
            CodeId(1) parse 1004 at 1004
            CodeId(2) parse 1008 at 1008
            CodeId(2) render 1004 at 4000000000000004
            CodeId(1) render 1024 at 4000000000000004
            CodeId(1) render 1024 at 4000000000000044
            CodeId(1) next 1040 at 1040
        "#]]
        .assert_eq(&text);
        assert_eq!(layout.take_new().len(), 4);
        assert!(layout.take_new().is_empty());
    }

    #[test]
    fn samples_without_a_name_are_named_later_by_their_own_process_only() {
        let (mut layout, [first, second]) = (JitLayout::default(), [CodeId(1), CodeId(2)]);
        let place_nameless =
            |layout: &mut JitLayout, code, address| layout.place_nameless(code, VirtualAddress(address));
        assert_eq!(place_nameless(&mut layout, first, 0x1004), (0x1004, true));
        assert_eq!(place_nameless(&mut layout, second, 0x2004), (0x2004, true));
        assert_eq!(place_nameless(&mut layout, second, 0x3004), (0x3004, true));
        assert_eq!(place_nameless(&mut layout, first, 0x3004), (0x3004, false), "two processes' code");
        let place = |layout: &mut JitLayout, start, address| {
            layout.place(first, &symbol(start, 0x40, "late"), VirtualAddress(address)).unwrap()
        };
        assert_eq!(place(&mut layout, 0x1000, 0x1004), 0x1004);
        assert_eq!(place(&mut layout, 0x2000, 0x2008), MOVED + 8, "the second's samples are there");
        assert_eq!(place(&mut layout, 0x3000, 0x3004), MOVED + 4);
        let nameless = place_nameless(&mut layout, second, 0x1004);
        assert_eq!(nameless, (NAMELESS | 0x1004, false), "the first's code");
    }

    #[test]
    fn hostile_symbols_have_no_place() {
        let mut layout = JitLayout::default();
        let mut place = |start, size, address| {
            layout.place(CodeId(1), &symbol(start, size, "x"), VirtualAddress(address))
        };
        assert_eq!(place(u64::MAX - 1, 9, u64::MAX), None);
        assert_eq!(place(0, u64::MAX, 7), None);
        assert_eq!(place(0x1000, 0, 0x1000), None);
        assert_eq!(place(0x1000, 9, 0x1009), None);
        assert_eq!(layout.place_nameless(CodeId(1), VirtualAddress(u64::MAX)), (u64::MAX, false));
    }

    #[test]
    fn names_beyond_the_limit_of_an_image_are_rejected() {
        let mut layout = JitLayout::default();
        let place = |layout: &mut JitLayout, at, name: &str| {
            layout.place(CodeId(1), &symbol(at, 1, name), VirtualAddress(at))
        };
        for at in 0..SYMBOLS_MAX as u64 {
            assert!(place(&mut layout, at, "x").is_some());
        }
        assert_eq!(place(&mut layout, 1 << 20, "y"), None);
        let mut layout = JitLayout::default();
        let long = "é".repeat(4000);
        let placed = (0..9000).filter(|at| place(&mut layout, *at, &long).is_some());
        assert_eq!(placed.count(), 4096, "16 MiB of names");
    }
}
