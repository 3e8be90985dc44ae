//! What fuzzing found in our parsers of records, entries, /proc and requests stays found.

#[path = "../../fuzz/replay.rs"]
mod replay;

use dwell_collect::exercise;

#[test]
fn what_fuzzing_found_stays_found() {
    replay::replay(&[
        ("perf_record", exercise::records),
        ("entries", exercise::entries),
        ("aggregates", exercise::aggregates),
        ("proc_text", exercise::proc_texts),
        ("control", exercise::request),
    ]);
}
