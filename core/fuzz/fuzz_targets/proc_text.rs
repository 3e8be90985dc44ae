//! Any bytes as the texts of /proc, a perf map, an executable's head. Must not panic or hang.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| dwell_collect::fuzzing::proc_texts(bytes));
