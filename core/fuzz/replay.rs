//! Inputs that the fuzzer found or started from, each kept for good, given to its target once more; every one of them also cut
//! off and with flipped bits.
//!
//! Enters: targets by the names of their folders in `regressions`. Leaves: nothing; a panic is a bug. Included by the tests
//! of the crates whose parsers these are.

use std::fs;

/// Takes any bytes.
pub type FuzzTarget = fn(&[u8]);

/// Most beginnings of an input that are tried, and most bits that are flipped.
const PLACES_MAX: usize = 500;

/// Replays the inputs of these targets.
pub fn replay(targets: &[(&str, FuzzTarget)]) {
    for (name, target) in targets {
        let folder = format!("{}/../fuzz/regressions/{name}", env!("CARGO_MANIFEST_DIR"));
        let mut inputs = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            damaged(&fs::read(path).unwrap(), *target);
            inputs += 1;
        }
        assert!(inputs > 0, "{folder} is empty");
    }
}

/// Runs a target on an input as it is, on beginnings of it, and with single bits flipped.
fn damaged(input: &[u8], target: FuzzTarget) {
    target(input);
    for at in (0..input.len()).step_by(1 + input.len() / PLACES_MAX) {
        target(&input[..at]);
        let mut flipped = input.to_vec();
        flipped[at] ^= 1 << (at % 8);
        target(&flipped);
    }
}
