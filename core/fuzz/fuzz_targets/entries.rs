//! Any bytes as side-band records and entries that a kernel aggregated, in any order. Must not panic or lose a sample.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| dwell_collect::fuzzing::entries(bytes));
