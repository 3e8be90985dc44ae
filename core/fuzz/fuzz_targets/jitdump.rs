//! Files that a JIT compiler names its code in: any process may write one.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    dwell_collect::fuzzing::code_names_in(bytes);
});
