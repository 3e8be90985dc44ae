//! Replays inputs by which fuzzing found defects in the parsers of other tools' files.

#[path = "../../fuzz/replay.rs"]
mod replay;

use dwell_exchange::exercise;

#[test]
fn inputs_found_by_fuzzing_cause_no_panic() {
    replay::replay(&[
        ("perf_data", exercise::perf_data),
        ("perf_script", exercise::perf_script),
        ("pprof", exercise::pprof),
    ]);
}
