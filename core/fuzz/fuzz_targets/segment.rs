//! Any bytes as a segment of the database, or a file of evidence of executions or execution counts, its checksum left out: a fuzzer would never get past it. Must not panic, hang or eat memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: {
        // libFuzzer's hook aborts on every panic. The Parquet crate asserts on some malformed files, and the reader
        // catches that as an error; a panic that leaves the reader still ends the run.
        std::panic::set_hook(Box::new(|_| {}));
    },
    |bytes: &[u8]| {
        // Both ways of reading agree on segments that both can read.
        let (rows, runs) = (dwell_profile::read_segment_unverified(bytes), dwell_profile::sum_runs_unverified(bytes));
        if let (Ok(rows), Ok(runs)) = (rows, runs) {
            let mut sums = dwell_profile::Counts::default();
            for (key, count) in rows.rows {
                let sum: &mut u64 = sums.entry(key).or_default();
                *sum = sum.wrapping_add(count);
            }
            assert!(sums == runs);
        }
        dwell_profile::fuzz_beside(bytes);
    }
);
