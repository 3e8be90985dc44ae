//! Any bytes as what a client says to the daemon. Must not panic, and what is understood is said again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| dwell_collect::fuzzing::request(bytes));
