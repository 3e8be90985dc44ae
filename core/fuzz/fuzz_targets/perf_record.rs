//! Any bytes as a stream of the kernel's records, on to counts. Must not panic, hang or lose a sample.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| dwell_collect::fuzzing::records(bytes));
