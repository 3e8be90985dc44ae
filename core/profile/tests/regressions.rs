//! What fuzzing found in our reader of epochs stays found.

#[path = "../../fuzz/replay.rs"]
mod replay;

#[test]
fn inputs_found_by_fuzzing_cause_no_panic() {
    replay::replay(&[("epoch_json", dwell_profile::fuzz_epoch_file)]);
}
