//! What a sample counts where recordings with different sampling periods are merged.
//!
//! Enters: the recordings' events. Leaves: for each recording and event a weight: its period over the mean period of all its samples.
//! Never here: samples.
//!
//! A sample stands for its period. The daemon lowers its rate where sampling costs too much, and machines of a fleet may have different
//! rates, so samples of different recordings cannot just be added up. Weighted by period they can: the sum of all weights is the number of
//! samples, and each weighted sample stands for the mean period.

use dwell_profile::{Epoch, Event, EventRecord, Unit};
use rustc_hash::FxHashMap;

/// Periods that differ by less than this part are taken as equal, so that counts remain what was counted.
const EQUAL: f64 = 0.001;

/// The weights of samples.
#[derive(Clone, Debug, Default)]
pub struct PeriodWeights {
    /// Those that are not 1, by recording (an index) and event.
    weights: FxHashMap<(usize, Event), f64>,
    /// The time event of each recording, whose period is that of the events that are derived from its samples.
    derived_from: Vec<Option<Event>>,
}

impl PeriodWeights {
    /// Computes the weights of the samples of recordings.
    pub fn new(epochs: &[&Epoch]) -> Self {
        let mut weights = FxHashMap::default();
        let events = epochs.iter().flat_map(|epoch| epoch.events.keys());
        for event in events.collect::<std::collections::BTreeSet<_>>() {
            let Some((mean, _)) = mean_period(epochs.iter().copied(), event) else { continue };
            for (number, epoch) in epochs.iter().enumerate() {
                let period = epoch.events.get(event).map_or(mean, |record| record.period as f64);
                if (period / mean - 1.0).abs() > EQUAL {
                    weights.insert((number, event.clone()), period / mean);
                }
            }
        }
        let time = |epoch: &&Epoch| epoch.events.keys().find(|event| event.is_time()).cloned();
        PeriodWeights { weights, derived_from: epochs.iter().map(time).collect() }
    }

    /// Returns what a sample of an event of a recording (an index) counts.
    pub fn of(&self, epoch: usize, event: &Event) -> f64 {
        if self.weights.is_empty() {
            return 1.0;
        }
        let counted = match event.is_derived() {
            true if *event == Event::PREEMPTED => Some(Event::OFF_CPU),
            true => self.derived_from.get(epoch).cloned().flatten(),
            false => Some(event.clone()),
        };
        counted.and_then(|event| self.weights.get(&(epoch, event)).copied()).unwrap_or(1.0)
    }
}

/// Returns the mean period of an event over all samples of recordings, and its unit; `None` without samples, or if the units differ.
pub fn mean_period<'e>(epochs: impl Iterator<Item = &'e Epoch>, event: &Event) -> Option<(f64, Unit)> {
    let records = epochs.filter_map(|epoch| epoch.events.get(event)).filter(|record| record.samples > 0);
    let records: Vec<&EventRecord> = records.collect();
    let unit = records.first()?.unit;
    let samples: f64 = records.iter().map(|record| record.samples as f64).sum();
    let periods: f64 = records.iter().map(|record| record.period as f64 * record.samples as f64).sum();
    records.iter().all(|record| record.unit == unit).then_some((periods / samples, unit))
}

/// Weighs counts one after the other. What rounding leaves of one is passed on to the next, so that sums remain right.
#[derive(Clone, Copy, Debug)]
pub struct Weighing {
    rest: f64,
}

impl Default for Weighing {
    fn default() -> Self {
        Weighing { rest: 0.5 }
    }
}

impl Weighing {
    /// Returns a count times a weight, as a whole number.
    pub fn weigh(&mut self, count: u64, weight: f64) -> u64 {
        let exact = count as f64 * weight + self.rest;
        self.rest = exact.fract();
        exact as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_weighed_counts_are_right() {
        let mut weighing = Weighing::default();
        let sum: u64 = (0..1000).map(|_| weighing.weigh(1, 0.26)).sum();
        assert_eq!(sum, 260);
        assert_eq!((0..100).map(|_| weighing.weigh(3, 3.7)).sum::<u64>(), 1110);
    }
}
