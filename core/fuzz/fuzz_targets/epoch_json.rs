//! Any bytes as an epoch's metadata. Must not panic, and what is understood is written so that it is read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| dwell_profile::fuzz_epoch_file(bytes));
