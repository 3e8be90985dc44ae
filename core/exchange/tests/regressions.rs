//! Inputs that the fuzzer found or started from, each kept for good; every one of them also cut off and with flipped bits.

use std::fs;

use dwell_exchange::exercise;

/// Takes any bytes; a panic is a bug.
type Exercise = fn(&[u8]);

#[test]
fn what_fuzzing_found_stays_found() {
    let targets: [(&str, Exercise); 3] = [
        ("perf_data", exercise::perf_data),
        ("perf_script", exercise::perf_script),
        ("pprof", exercise::pprof),
    ];
    for (target, exercise) in targets {
        let folder = format!("{}/../fuzz/regressions/{target}", env!("CARGO_MANIFEST_DIR"));
        let mut inputs = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            damaged(&fs::read(path).unwrap(), exercise);
            inputs += 1;
        }
        assert!(inputs > 0, "{folder} is empty");
    }
}

/// The input as it is, beginnings of it, and bytes with a bit flipped.
fn damaged(input: &[u8], exercise: Exercise) {
    exercise(input);
    let step = 1 + input.len() / 300;
    for at in (0..input.len()).step_by(step) {
        exercise(&input[..at]);
        let mut flipped = input.to_vec();
        flipped[at] ^= 1 << (at % 8);
        exercise(&flipped);
    }
}
