//! Names of code that was generated in memory, from what its process writes: perf map files, and jitdumps ([`crate::jitdump`]).
//!
//! Enters: the texts, and the addresses that were sampled. Leaves: for each address its name, or that there is none, or that it
//! is not certain. Never here: I/O, a panic whatever the bytes are, a whole file in memory.
//!
//! Compilers append when they reuse memory, so an address may have had several names. What was written before a *window* of
//! time began is certain: the last entry holds. An entry that was written within it leaves two possible names for samples of
//! the window, unless both are the same.

use std::io::{BufRead, Read};

use dwell_profile::{ImageOffset, ImageSymbol};

/// A line of a perf map that is longer is not read.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The bytes of a text of names that concern samples of one window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamesWindow {
    /// The offset at which the window begins: text before it is older.
    pub since: u64,
    /// The offset at which the window ends, if it does: a child has its parent's code as of the fork, and no later names of it.
    pub until: Option<u64>,
}

/// The name of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CodeName {
    /// No entry covers it.
    #[default]
    Unknown,
    /// The address is in the code of this name.
    Named(ImageSymbol),
    /// Several names are possible.
    Ambiguous,
}

/// Finds the names of addresses among entries, which come in the order in which they were written.
pub struct Finder<'a> {
    addresses: &'a [u64],
    window: NamesWindow,
    found: Vec<CodeName>,
}

impl<'a> Finder<'a> {
    /// Looks for these addresses, in ascending order.
    pub fn new(addresses: &'a [u64], window: NamesWindow) -> Self {
        debug_assert!(addresses.is_sorted());
        Finder { addresses, window, found: vec![CodeName::Unknown; addresses.len()] }
    }

    /// Takes in an entry that begins at a position of the text; whether there is any use in more.
    pub fn entry(
        &mut self,
        position: u64,
        start: u64,
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
        let new = ImageSymbol { offset: ImageOffset(start), size_bytes, name: name() };
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

    /// The name of code that lies there, of which some address is looked for.
    pub fn name_within(&self, start: u64, size_bytes: u64) -> Option<&str> {
        self.found[self.range(start, size_bytes)].iter().find_map(|found| match found {
            CodeName::Named(symbol) => Some(&*symbol.name),
            _ => None,
        })
    }

    fn range(&self, start: u64, size_bytes: u64) -> std::ops::Range<usize> {
        let first = self.addresses.partition_point(|a| *a < start);
        let last = self.addresses.partition_point(|a| *a < start.saturating_add(size_bytes));
        first..last.max(first)
    }

    /// The names, in the order of the addresses.
    pub fn finish(self) -> Vec<CodeName> {
        self.found
    }
}

/// Reads a perf map file (`START SIZE name`, hexadecimal). Returns the position behind what was read. A last line without an
/// end may be half written, and counts only if its writer `has_ended`.
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

fn parse_perf_map_line(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut words = line.trim_ascii_end().splitn(3, |b| *b == b' ');
    let mut hex = || {
        let word = std::str::from_utf8(words.next()?).ok()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, size) = (hex()?, hex()?);
    Some((start, size, words.next()?.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(map: &str, window: NamesWindow, expected: Expect) {
        let addresses = [0x1002, 0x1009, 0x1015, 0x5000];
        let mut finder = Finder::new(&addresses, window);
        let end = find_in_perf_map(map.as_bytes(), &mut finder, false);
        let told = finder.finish().into_iter().zip(addresses).map(|(name, address)| match name {
            CodeName::Named(s) => format!("{address:x} {:x}+{:x} {}\n", s.offset.0, s.size_bytes, s.name),
            other => format!("{address:x} {other:?}\n"),
        });
        let told: String = told.chain([format!("read {end}\n")]).collect();
        expected.assert_eq(&told);
    }

    const MAP: &str = "1000 10 old\n1010 20 next one\nxyz\n1000 8 new\n5000 1 half";

    #[test]
    fn the_last_entry_before_the_window_holds() {
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
        let mut state = 0x3a9_u64;
        for _ in 0..20_000 {
            let mut bytes = MAP.as_bytes().to_vec();
            for _ in 0..4 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = (state >> 40) as usize % bytes.len();
                bytes[at] = b"f 0\nx\xff-\0"[(state >> 33) as usize % 8];
            }
            let mut finder = Finder::new(&[0, 0x1000, u64::MAX], NamesWindow::default());
            find_in_perf_map(&bytes[..], &mut finder, true);
        }
    }
}
