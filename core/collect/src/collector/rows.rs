//! The counts in the order of a segment.
//!
//! Enters: counts by slot and offset, and the texts of each slot. Leaves: runs of rows in order, each key once. Never here:
//! a text in each row. A row takes 16 bytes and is compared by numbers; otherwise hashing, comparing and copying texts would
//! take most of the time and memory of storing.

use std::sync::Arc;

use dwell_profile::{
    AccumulatedSamples, Counts, DimensionSet, DimensionValues, Event, ImageId, ImageOffset, SampleRun,
};

use super::counts::Slot;

/// Rows, and the texts they refer to.
pub struct Rows {
    /// The texts of each run in order, with the numbers of its slots.
    runs: Vec<(Texts, Vec<usize>)>,
    counted: AccumulatedSamples<Slot>,
}

/// The texts that all rows of a run share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Texts {
    /// ID of the image.
    pub image: ImageId,
    /// The event, sampled or derived.
    pub event: Event,
    /// Name of the application.
    pub app: Arc<str>,
    /// Number of its execution in the epoch, from 1; 0 if not kept apart.
    pub instance: u32,
    /// Values of the requested dimensions.
    pub dimensions: Option<Arc<DimensionValues>>,
}

impl Rows {
    /// Returns the rows for counts of slots; `texts` has one item for each slot, in order.
    pub fn new(counted: AccumulatedSamples<Slot>, texts: impl Iterator<Item = Texts>) -> Self {
        let mut numbered: Vec<(Texts, usize)> = texts.zip(0..).collect();
        numbered.sort();
        let mut runs: Vec<(Texts, Vec<usize>)> = Vec::new();
        for (texts, number) in numbered {
            match runs.last_mut().filter(|(last, _)| *last == texts) {
                Some((_, slots)) => slots.push(number),
                None => runs.push((texts, vec![number])),
            }
        }
        Rows { runs, counted }
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the union of the dimensions of all rows.
    pub fn dimensions(&self) -> DimensionSet {
        let sets =
            self.runs.iter().filter_map(|(texts, _)| texts.dimensions.as_ref()).map(|values| values.set());
        sets.fold(DimensionSet::NONE, DimensionSet::union)
    }

    /// Passes the runs to `sink` in order.
    pub fn hand_out(&self, sink: &mut dyn FnMut(SampleRun<'_>)) {
        let mut rows = Vec::new();
        for (Texts { image, event, app, instance, dimensions }, slots) in &self.runs {
            rows.clear();
            let counts = slots.iter().flat_map(|slot| self.counted.of(*slot));
            rows.extend(counts.map(|(offset, count)| (ImageOffset(offset), count)));
            if slots.len() > 1 {
                SampleRun::put_in_order(&mut rows);
            }
            sink(SampleRun { image, event, app, instance: *instance, dimensions, rows: &rows });
        }
    }

    /// Returns all counts as a map without an order.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.hand_out(&mut |run| {
            counts.extend(run.rows.iter().map(|(offset, count)| (run.key(*offset), *count)));
        });
        counts
    }
}

impl Default for Rows {
    fn default() -> Self {
        Rows { runs: Vec::new(), counted: dwell_profile::SampleAccumulator::default().finish() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use dwell_profile::{EventIndex, SampleAccumulator};

    use super::*;
    use crate::collector::dimensions::ValuesIndex;
    use dwell_attribution::{ExecutionId, ImageIndex};

    /// Returns a slot that differs from others by its number.
    fn slot(number: u32) -> Slot {
        Slot {
            image: ImageIndex(0),
            execution: ExecutionId(number),
            dimensions: ValuesIndex::NONE,
            event: EventIndex(0).into(),
        }
    }

    /// Returns rows for items of texts, offset and count, each in a slot of its own.
    pub(crate) fn rows(texts: impl IntoIterator<Item = (Texts, u64, u64)>) -> Rows {
        let mut counted = SampleAccumulator::default();
        let texts = texts.into_iter().zip(0..).map(|((texts, offset, count), number)| {
            counted.add(slot(number), number, offset, count);
            texts
        });
        let texts: Vec<Texts> = texts.collect();
        Rows::new(counted.finish(), texts.into_iter())
    }

    #[test]
    fn rows_are_sorted_and_each_key_occurs_once() {
        let texts = |image: &str, event, app: &str, instance| Texts {
            image: ImageId::named(image),
            event,
            app: app.into(),
            instance,
            dimensions: None,
        };
        let rows = rows([
            (texts("kernel", Event::CYCLES, "cc1", 2), 9, 1),
            (texts("aa01", Event::CYCLES, "as", 3), 9, 2),
            (texts("aa01", Event::CYCLES, "as", 3), 9, 3),
            (texts("aa01", Event::CYCLES, "as", 3), 4, 3),
            (texts("aa01", Event::BRANCH_TAKEN, "cc1", 1), 8, 4),
            (texts("aa01", Event::CYCLES, "cc1", 1), 7, 5),
        ]);
        let mut lines = Vec::new();
        rows.hand_out(&mut |run| {
            let rows: Vec<String> = run.rows.iter().map(|(offset, n)| format!("{}: {n}", offset.0)).collect();
            lines.push(format!("{} {} {}#{} {rows:?}", run.image, run.event.name(), run.app, run.instance));
        });
        assert_eq!(
            lines,
            [
                r#"aa01 branch-taken cc1#1 ["8: 4"]"#,
                r#"aa01 cycles as#3 ["4: 3", "9: 5"]"#,
                r#"aa01 cycles cc1#1 ["7: 5"]"#,
                r#"kernel cycles cc1#2 ["9: 1"]"#
            ]
        );
        assert!(rows.counts().len() == 5 && !rows.is_empty());
    }
}
