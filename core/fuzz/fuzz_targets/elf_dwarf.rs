//! Any bytes as an image: symbols, instructions and source lines. Must not panic, hang or eat memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| dwell_image::exercise(bytes));
