//! Any bytes as a profile of pprof's, packed or not. Must not panic, hang or eat memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| dwell_exchange::fuzzing::pprof(bytes));
