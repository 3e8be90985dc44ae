//! Replays inputs by which fuzzing found defects in the parsers of records, entries, /proc and requests.

#[path = "../../fuzz/replay.rs"]
mod replay;

use dwell_collect::exercise;

#[test]
fn inputs_found_by_fuzzing_cause_no_panic() {
    replay::replay(&[
        ("perf_record", exercise::records),
        ("entries", exercise::entries),
        ("aggregates", exercise::aggregates),
        ("proc_text", exercise::proc_texts),
        ("control", exercise::request),
    ]);
}
