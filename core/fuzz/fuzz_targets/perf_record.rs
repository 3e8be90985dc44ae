//! Any bytes as a stream of the kernel's records. Must not panic or hang.
#![no_main]

use dwell_collect::records::{parse_record, split_record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut stream = bytes;
    while let Some(Ok((record, rest))) = split_record(stream) {
        assert!(rest.len() < stream.len(), "a record that takes no bytes would go on for ever");
        let _ = parse_record(record);
        stream = rest;
    }
});
