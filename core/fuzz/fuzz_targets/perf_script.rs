//! Any bytes as the text of perf script. Must not panic, hang or eat memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| dwell_exchange::fuzzing::perf_script(bytes));
