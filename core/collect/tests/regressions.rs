//! Replays inputs by which fuzzing found defects in the parsers of records, entries, /proc and requests.

#[path = "../../fuzz/replay.rs"]
mod replay;

use dwell_collect::fuzzing;

#[test]
fn inputs_found_by_fuzzing_cause_no_panic() {
    replay::replay(&[
        ("perf_record", fuzzing::records),
        ("entries", fuzzing::entries),
        ("aggregates", fuzzing::aggregates),
        ("proc_text", fuzzing::proc_texts),
        ("control", fuzzing::request),
    ]);
}
