//! Any bytes as an image: symbols, instructions and source lines; a file with split or shared debug information is taken for its own
//! other part. Must not panic, hang or eat memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| dwell_image::fuzz_elf(bytes));
