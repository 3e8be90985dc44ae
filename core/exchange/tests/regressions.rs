//! Replays inputs by which fuzzing found defects in the parsers of other tools' files.

#[path = "../../fuzz/replay.rs"]
mod replay;

use dwell_exchange::fuzzing;

#[test]
fn inputs_found_by_fuzzing_cause_no_panic() {
    replay::replay(&[
        ("perf_data", fuzzing::perf_data),
        ("perf_script", fuzzing::perf_script),
        ("pprof", fuzzing::pprof),
        ("otlp", fuzzing::otlp),
    ]);
}
