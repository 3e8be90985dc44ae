//! The simulated week in small: what goes in comes out, in few segments and few bytes. The figure itself is `npm run
//! bench:collect -- week`'s.

#[allow(dead_code, reason = "its command line, and the bar of the whole week")]
#[path = "../examples/week.rs"]
mod week;

use week::{Taken, Time, simulate};

/// A hundredth of an hour's samples in each append: of a day most rows are still new, which take most bytes.
const SAMPLES: u64 = 14_400;

#[test]
fn two_simulated_days_are_stored_whole_and_small() {
    for (daily, epochs) in [(false, 1), (true, 2)] {
        let Taken { samples, rows, epochs: found, segments, bytes: [before, after] } =
            simulate(&Time { days: 2, daily, samples: SAMPLES });
        assert_eq!(samples, [48 * SAMPLES; 2]);
        assert_eq!((found, segments), (epochs, 1));
        assert!(after <= before, "{before} bytes, then {after}");
        let per_row = after as f64 / rows as f64;
        assert!((0.5..3.0).contains(&per_row), "{per_row:.2} bytes for each of {rows} rows");
    }
}
