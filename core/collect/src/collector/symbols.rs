//! Symbols of images that leave no file behind, within the limits of a segment.
//!
//! Enters: sampled places of the kernel and its modules, symbols of JIT code. Leaves: image records with symbols. Never
//! here: the texts that symbols come from, which [`Host`] reads.

use dwell_attribution::ImageIndex;
use dwell_profile::{ImageKind, ImageRecord, ImageSymbol};

use super::{
    attribution::Attribution,
    symbol_limits::{SYMBOL_NAME_BYTES_MAX, SYMBOL_NAMES_BYTES_MAX, SYMBOLS_MAX, cut},
};
use crate::host::Host;

impl<H: Host> Attribution<H> {
    pub(super) fn record_with_symbols(&mut self, image: ImageIndex, mut offsets: Vec<u64>) -> ImageRecord {
        let record = self.images.record(image);
        if matches!(record.kind, ImageKind::Kernel | ImageKind::Module) {
            offsets.sort_unstable();
            offsets.dedup();
            // After some time everything that runs has its symbol, and the kernel's symbols need not be searched again.
            offsets.retain(|offset| !is_named(&record.symbols, *offset));
            let found = self.host.kernel_symbols(&record.id, &offsets);
            self.add_symbols(image, found);
        }
        self.images.take_record(image)
    }

    /// Adds symbols to an image, as many as a segment has room for in an epoch. Those sampled first take precedence.
    pub(super) fn add_symbols(&mut self, image: ImageIndex, mut found: Vec<ImageSymbol>) {
        for symbol in &mut found {
            cut(&mut symbol.name, SYMBOL_NAME_BYTES_MAX);
        }
        let symbols = &self.images.record(image).symbols;
        found.retain(|symbol| symbols.binary_search(symbol).is_err());
        found.sort();
        found.dedup();
        found.truncate(SYMBOLS_MAX.saturating_sub(symbols.len()));
        let known_bytes = symbols.iter().map(|s| s.name.len()).sum();
        let mut room_bytes = SYMBOL_NAMES_BYTES_MAX.saturating_sub(known_bytes);
        found.retain(|symbol| {
            let left = room_bytes.checked_sub(symbol.name.len());
            room_bytes = left.unwrap_or(room_bytes);
            left.is_some()
        });
        self.images.add_symbols(image, found);
    }
}

/// Returns whether one of the symbols, which are sorted by offset, covers an offset.
fn is_named(symbols: &[ImageSymbol], offset: u64) -> bool {
    let after = symbols.partition_point(|s| s.offset.0 <= offset);
    let symbol = after.checked_sub(1).and_then(|at| symbols.get(at));
    symbol.is_some_and(|s| offset - s.offset.0 < s.size_bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dwell_attribution::Target;
    use dwell_profile::{ImageOffset, Pid, VirtualAddress};

    use super::{
        super::tests::{KERNEL, collector, sample, side},
        *,
    };
    use crate::source::{owned_record::SideBandRecord, records::Mode};

    #[test]
    fn symbols_outlive_a_sweep() {
        let mut c = collector();
        c.discover([Pid(1)]);
        let (start, length, target) = (VirtualAddress(0x9000), 0x1000, Target::Anonymous);
        c.apply(0, side(SideBandRecord::Map { pid: Pid(1), start, length, file_offset: 0, target }));
        let mut symbols = BTreeMap::new();
        for at in 0..3 {
            c.apply(at, sample(Mode::Kernel, Pid(1), KERNEL + at));
            c.apply(at, sample(Mode::User, Pid(1), 0x9000 + at));
            // Add up the symbols of all records, as a reader does.
            for image in c.take().images {
                *symbols.entry(image.id.to_string()).or_default() += image.symbols.len();
            }
            c.sweep_images();
        }
        assert_eq!(symbols, BTreeMap::from([("jit:init".to_owned(), 3), ("kernel".to_owned(), 3)]));
    }

    #[test]
    fn symbols_stay_within_the_limits_of_a_segment() {
        let mut c = collector();
        let image = c.attribution.images.jit(&"java".into());
        let symbol = |at: usize, name: &str| ImageSymbol {
            offset: ImageOffset(at as u64),
            size_bytes: 1,
            name: name.to_owned(),
        };
        c.attribution.add_symbols(image, vec![symbol(0, &"é".repeat(4000)), symbol(0, "a"), symbol(0, "a")]);
        let lengths: Vec<usize> =
            c.attribution.images.record(image).symbols.iter().map(|s| s.name.len()).collect();
        assert_eq!(lengths, [1, 4096]);
        c.attribution.add_symbols(image, (0..5000).map(|at| symbol(at, &"x".repeat(5000))).collect());
        assert_eq!(c.attribution.images.record(image).symbols.len(), 4096, "16 MiB of names");
        c.attribution.add_symbols(image, (0..SYMBOLS_MAX).map(|at| symbol(at, "")).collect());
        assert_eq!(c.attribution.images.record(image).symbols.len(), SYMBOLS_MAX);
        assert!(c.attribution.images.record(image).symbols.is_sorted());
    }
}
