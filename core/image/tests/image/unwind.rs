//! How callers are found: read on request, and all at once. Both must say the same.

use std::fs::File;

use dwell_image::{Caller, Image, UnwindRules};

use crate::fixtures::folder;

/// Checks each row of an image, at its first byte. Returns the number of rows that are known.
fn check(file: &std::path::Path) -> usize {
    let image = Image::open(file).unwrap();
    let rules = UnwindRules::read(File::open(file).unwrap()).unwrap();
    let mut known = 0;
    for row in image.unwind_rows() {
        let Some(offset) = image.offset_of(row.start) else { continue };
        let expected = (row.caller != Caller::Unknown).then_some((row.caller, row.rbp));
        // Where no range is known, a fallback may be: code of `.init`.
        if expected.is_some() {
            assert_eq!(rules.at(offset), expected, "{}: {:?}", file.display(), row.start);
            known += 1;
        }
    }
    known
}

#[test]
fn rules_on_request_equal_the_rows_of_the_whole_image() {
    for name in
        ["c-dwarf5.elf", "c-shared.so", "cpp-tree.so", "rust-words.so", "c-static-pie.elf", "c-stripped.elf"]
    {
        assert!(check(&folder().join(name)) > 3, "{name}");
    }
    // A program of this machine, with an index of thousands of entries.
    let shell = std::path::Path::new("/bin/sh");
    if cfg!(target_arch = "x86_64") && shell.exists() {
        assert!(check(shell) > 100);
    }
}
