//! What fuzzing found in our reader of epochs stays found.

#[path = "../../fuzz/replay.rs"]
mod replay;

#[test]
fn what_fuzzing_found_stays_found() {
    replay::replay(&[("epoch_json", dwell_profile::exercise_epoch)]);
}
