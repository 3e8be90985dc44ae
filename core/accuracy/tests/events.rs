//! What the analysis looks for in events is what the collector can sample. Here, since neither sees the other.

use std::collections::BTreeSet;

#[test]
fn every_event_that_bounds_a_cause_can_be_recorded() {
    let known: BTreeSet<&str> = dwell_collect::known_events().into_iter().collect();
    let missing: Vec<_> =
        dwell_analysis::events_that_bound().into_iter().filter(|event| !known.contains(event)).collect();
    assert_eq!(missing, [""; 0]);
}
