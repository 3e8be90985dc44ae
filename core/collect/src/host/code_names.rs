//! Names of code that was generated in memory, from the files that its process writes: perf maps, and jitdumps
//! ([`crate::host::jitdump`]).
//!
//! Enters: the texts, and the sampled addresses. Leaves: the name of each address, or that it has none, or that it is
//! uncertain. Never here: I/O, panics on any bytes, a whole file in memory.
//!
//! Compilers append entries when they reuse memory, so an address may have had several names. Among entries written before a
//! *window* of time the last one is certain to hold. An entry written within the window leaves two possible names for
//! samples of the window, unless both are the same.

use std::io::{BufRead, Read};

use dwell_profile::{ImageOffset, ImageSymbol, VirtualAddress};

/// Longest line of a perf map in bytes that is parsed.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The part of a text of names that concerns samples of one window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamesWindow {
    /// Offset at which the window begins; text before it is older.
    pub since: u64,
    /// Offset at which the window ends, if it does. A child has its parent's code as of the fork, and not the names written
    /// later.
    pub until: Option<u64>,
}

/// Name of an address in generated code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CodeName {
    /// No entry covers the address.
    #[default]
    Unknown,
    /// The address is in the code of this name.
    Named(ImageSymbol),
    /// Several names are possible for the address.
    Ambiguous,
}

/// Finds the names of addresses among entries, which must arrive in the order in which they were written.
pub struct Finder<'a> {
    addresses: &'a [VirtualAddress],
    window: NamesWindow,
    found: Vec<CodeName>,
}

impl<'a> Finder<'a> {
    /// Returns a finder for these addresses, which must be in ascending order.
    pub fn new(addresses: &'a [VirtualAddress], window: NamesWindow) -> Self {
        debug_assert!(addresses.is_sorted());
        Finder { addresses, window, found: vec![CodeName::Unknown; addresses.len()] }
    }

    /// Adds an entry that begins at `position` in the text. Returns whether further entries can matter.
    pub fn entry(
        &mut self,
        position: u64,
        start: VirtualAddress,
        size_bytes: u64,
        name: impl FnOnce() -> String,
    ) -> bool {
        if self.window.until.is_some_and(|until| position >= until) {
            return false;
        }
        let range = self.range(start, size_bytes);
        if range.is_empty() {
            return true;
        }
        let new = ImageSymbol { offset: ImageOffset(start.as_offset()), size_bytes, name: name() };
        for found in &mut self.found[range] {
            *found = match std::mem::take(found) {
                CodeName::Ambiguous => CodeName::Ambiguous,
                CodeName::Named(old) if position >= self.window.since && old.name != new.name => {
                    CodeName::Ambiguous
                }
                _ => CodeName::Named(new.clone()),
            };
        }
        true
    }

    /// Returns the name of the code in this range, if a searched address is in it.
    pub fn name_within(&self, start: VirtualAddress, size_bytes: u64) -> Option<&str> {
        self.found[self.range(start, size_bytes)].iter().find_map(|found| match found {
            CodeName::Named(symbol) => Some(&*symbol.name),
            _ => None,
        })
    }

    fn range(&self, start: VirtualAddress, size_bytes: u64) -> std::ops::Range<usize> {
        let first = self.addresses.partition_point(|a| *a < start);
        let last = self.addresses.partition_point(|a| *a < start.saturating_offset(size_bytes));
        first..last.max(first)
    }

    /// Returns the names in the order of the addresses.
    pub fn finish(self) -> Vec<CodeName> {
        self.found
    }
}

/// Reads a perf map (`START SIZE name`, hexadecimal). Returns the position after the last entry read. A last line without a
/// newline may be half written, so it counts only if its writer `has_ended`.
pub fn find_in_perf_map(mut map: impl BufRead, finder: &mut Finder<'_>, has_ended: bool) -> u64 {
    let (mut position, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let read = map.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line).unwrap_or(0);
        let is_whole = line.last() == Some(&b'\n') || read == LINE_BYTES_MAX;
        if read == 0 || !is_whole && !has_ended {
            return position;
        }
        if let Some((start, size_bytes, name)) = parse_perf_map_line(&line)
            && !finder.entry(position, start, size_bytes, || String::from_utf8_lossy(name).into_owned())
        {
            return position;
        }
        position += read as u64;
    }
}

fn parse_perf_map_line(line: &[u8]) -> Option<(VirtualAddress, u64, &[u8])> {
    let mut words = line.trim_ascii_end().splitn(3, |b| *b == b' ');
    let mut hex = || {
        let word = std::str::from_utf8(words.next()?).ok()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, size) = (VirtualAddress(hex()?), hex()?);
    Some((start, size, words.next()?.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(map: &str, window: NamesWindow, expected: Expect) {
        let addresses = [0x1002, 0x1009, 0x1015, 0x5000].map(VirtualAddress);
        let mut finder = Finder::new(&addresses, window);
        let end = find_in_perf_map(map.as_bytes(), &mut finder, false);
        let text = finder.finish().into_iter().zip(addresses).map(|(name, address)| match name {
            CodeName::Named(s) => format!("{address} {:x}+{:x} {}\n", s.offset.0, s.size_bytes, s.name),
            other => format!("{address} {other:?}\n"),
        });
        let text: String = text.chain([format!("read {end}\n")]).collect();
        expected.assert_eq(&text);
    }

    const MAP: &str = "1000 10 old\n1010 20 next one\nxyz\n1000 8 new\n5000 1 half";

    #[test]
    fn the_last_entry_before_the_window_applies() {
        check(
            MAP,
            NamesWindow { since: 1000, until: None },
            expect![[r#"
                1002 1000+8 new
                1009 1000+10 old
                1015 1010+20 next one
                5000 Unknown
                read 44
            "#]],
        );
    }

    #[test]
    fn an_address_with_two_names_in_a_window_has_none() {
        check(
            MAP,
            NamesWindow::default(),
            expect![[r#"
                1002 Ambiguous
                1009 1000+10 old
                1015 1010+20 next one
                5000 Unknown
                read 44
            "#]],
        );
        check(
            "1000 10 same\n1000 8 same\n",
            NamesWindow::default(),
            expect![[r#"
                1002 1000+8 same
                1009 1000+10 same
                1015 Unknown
                5000 Unknown
                read 25
            "#]],
        );
    }

    #[test]
    fn a_child_has_its_parents_names_as_of_the_fork() {
        check(
            MAP,
            NamesWindow { since: 29, until: Some(29) },
            expect![[r#"
                1002 1000+10 old
                1009 1000+10 old
                1015 1010+20 next one
                5000 Unknown
                read 33
            "#]],
        );
    }

    #[test]
    fn hostile_maps_never_panic() {
        let addresses = [0, 0x1000, u64::MAX].map(VirtualAddress);
        let mut state = 0x3a9_u64;
        for _ in 0..20_000 {
            let mut bytes = MAP.as_bytes().to_vec();
            for _ in 0..4 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = (state >> 40) as usize % bytes.len();
                bytes[at] = b"f 0\nx\xff-\0"[(state >> 33) as usize % 8];
            }
            let mut finder = Finder::new(&addresses, NamesWindow::default());
            find_in_perf_map(&bytes[..], &mut finder, true);
        }
    }
}
