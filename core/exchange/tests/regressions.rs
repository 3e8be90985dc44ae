//! What fuzzing found in our readers of others' files stays found.

#[path = "../../fuzz/replay.rs"]
mod replay;

use dwell_exchange::fuzzing;

#[test]
fn inputs_found_by_fuzzing_do_no_harm() {
    replay::replay(&[
        ("perf_data", fuzzing::perf_data),
        ("perf_script", fuzzing::perf_script),
        ("pprof", fuzzing::pprof),
    ]);
}
