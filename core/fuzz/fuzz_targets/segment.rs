//! Any bytes as a segment of the database or a file of path bursts, its checksum left out: a fuzzer would never get past it. Must not panic, hang or eat memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: {
        // libFuzzer's hook aborts on every panic. The Parquet crate asserts on some malformed files, and the reader
        // catches that as an error; a panic that leaves the reader still ends the run.
        std::panic::set_hook(Box::new(|_| {}));
    },
    |bytes: &[u8]| {
        let _ = dwell_profile::read_segment_unverified(bytes);
        let _ = dwell_profile::read_paths_unverified(bytes);
    }
);
