//! Inputs that the fuzzer found or started from, each kept for good, given to its target once more; every one of them also cut
//! off and with flipped bits.
//!
//! Enters: targets by the names of their folders in `regressions`. Leaves: nothing; a panic is a bug. Included by the tests
//! of the crates whose parsers these are.

use std::fs;

/// Takes any bytes.
pub type Exercise = fn(&[u8]);

/// Of a longer input so many beginnings, and as many flipped bits.
const PLACES_MAX: usize = 500;

/// Replays the inputs of these targets.
pub fn replay(targets: &[(&str, Exercise)]) {
    for (target, exercise) in targets {
        let folder = format!("{}/../fuzz/regressions/{target}", env!("CARGO_MANIFEST_DIR"));
        let mut inputs = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            damaged(&fs::read(path).unwrap(), *exercise);
            inputs += 1;
        }
        assert!(inputs > 0, "{folder} is empty");
    }
}

/// The input as it is, beginnings of it, and bytes with a bit flipped.
fn damaged(input: &[u8], exercise: Exercise) {
    exercise(input);
    for at in (0..input.len()).step_by(1 + input.len() / PLACES_MAX) {
        exercise(&input[..at]);
        let mut flipped = input.to_vec();
        flipped[at] ^= 1 << (at % 8);
        exercise(&flipped);
    }
}
