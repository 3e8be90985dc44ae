//! Inputs that the fuzzer found or started from, each kept for good; every one of them also cut off and with flipped bits.

use std::fs;

use dwell_profile::exercise_epoch;

#[test]
fn what_fuzzing_found_stays_found() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/regressions/epoch_json");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        let input = fs::read(path).unwrap();
        exercise_epoch(&input);
        for at in 0..input.len() {
            exercise_epoch(&input[..at]);
            let mut flipped = input.clone();
            flipped[at] ^= 1 << (at % 8);
            exercise_epoch(&flipped);
        }
    }
}
