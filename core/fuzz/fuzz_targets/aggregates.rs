//! Any bytes as what the kernel module and the BPF program hand out, on to counts. Must not panic, hang or lose a sample.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| dwell_collect::fuzzing::aggregates(bytes));
