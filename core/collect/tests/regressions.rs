//! What fuzzing found in our parsers of records, entries, /proc and requests stays found.

#[path = "../../fuzz/replay.rs"]
mod replay;

use dwell_collect::fuzzing;

#[test]
fn inputs_found_by_fuzzing_do_no_harm() {
    replay::replay(&[
        ("perf_record", fuzzing::records),
        ("entries", fuzzing::entries),
        ("aggregates", fuzzing::aggregates),
        ("proc_text", fuzzing::proc_texts),
        ("control", fuzzing::request),
    ]);
}
