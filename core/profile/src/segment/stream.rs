//! Writes and reads the rows of a segment run by run, for profiles that are too large to be held in memory.
//!
//! Enters: rows in the order of a segment; or a segment whose checksum has been verified. Leaves: the bytes of a
//! segment; or its rows. Never here: all rows at once.

use std::sync::Arc;

use crate::{
    Counts, DimensionSet, DimensionValues, EpochId, Event, ImageId, ImageOffset, ImageRecord, SampleKey,
    database::SegmentRange,
};

use super::{
    MAX_SEGMENT_ROWS, SegmentError,
    decode::{self, contain},
    key::Key,
    metadata::Metadata,
    names::Names,
    opened::Opened,
    output::Output,
    readers::Readers,
};

/// Rows of a segment that differ only in offset and count. A run may be passed in several parts.
#[derive(Clone, Copy, Debug)]
pub struct SampleRun<'a> {
    /// The image that contains the sampled instructions.
    pub image: &'a ImageId,
    /// The event that was sampled.
    pub event: &'a Event,
    /// The application, by the name of its executable.
    pub app: &'a Arc<str>,
    /// Number of this execution of the application in the epoch, from 1; 0 if executions are not kept apart.
    pub instance: u32,
    /// Thread, CPU and control group, if they were kept.
    pub dimensions: &'a Option<Arc<DimensionValues>>,
    /// Offsets in the image with their numbers of samples; at least one row.
    pub rows: &'a [(ImageOffset, u64)],
}

impl SampleRun<'_> {
    /// Sorts rows by offset and adds up those with the same offset, as a run requires.
    pub fn put_in_order(rows: &mut Vec<(ImageOffset, u64)>) {
        rows.sort_by_key(|(offset, _)| *offset);
        rows.dedup_by(|next, sum| {
            let same = next.0 == sum.0;
            sum.1 = sum.1.saturating_add(if same { next.1 } else { 0 });
            same
        });
    }

    /// Returns the key of the row with this offset.
    pub fn key(&self, offset: ImageOffset) -> SampleKey {
        SampleKey {
            image: self.image.clone(),
            event: self.event.clone(),
            offset,
            app: self.app.clone(),
            instance: self.instance,
            dimensions: self.dimensions.clone(),
        }
    }
}

/// Passes each run of rows to `sink`. On an error some runs have been passed already.
pub(crate) fn each_run(part: &Opened, sink: &mut dyn FnMut(SampleRun<'_>)) -> Result<(), SegmentError> {
    contain(|| {
        let (mut readers, mut names, mut texts) = (Readers::new(part)?, Names::default(), Texts::default());
        while let Some((key, rows)) = readers.next(&mut names)? {
            texts.learn(key, &names);
            let known = "it was just learnt";
            sink(SampleRun {
                image: &texts.image.as_ref().expect(known).1,
                event: &texts.event.as_ref().expect(known).1,
                app: &texts.app.as_ref().expect(known).1,
                instance: key.instance,
                dimensions: &texts.dimensions,
                rows: readers.rows(rows),
            });
        }
        Ok(())
    })
}

/// Returns the sums of a segment's rows, read run by run without verifying the checksum, which would keep a fuzzer from
/// reaching the code after it. For tests alone.
#[doc(hidden)]
pub fn sum_runs_unverified(bytes: &[u8]) -> Result<Counts, SegmentError> {
    let mut counts = Counts::default();
    each_run(&Opened::open_with(bytes.to_vec(), false)?, &mut |run| {
        for (offset, count) in run.rows {
            let sum: &mut u64 = counts.entry(run.key(*offset)).or_default();
            *sum = sum.wrapping_add(*count);
        }
    })?;
    Ok(counts)
}

/// The texts of the last run; the next run shares most of them.
#[derive(Default)]
struct Texts {
    image: Option<(u32, ImageId)>,
    event: Option<(u32, Event)>,
    app: Option<(u32, Arc<str>)>,
    dimensions: Option<Arc<DimensionValues>>,
}

impl Texts {
    fn learn(&mut self, key: Key, names: &Names) {
        fn latest<T>(last: &mut Option<(u32, T)>, number: u32, make: impl Fn() -> T) {
            if last.as_ref().is_none_or(|(known, _)| *known != number) {
                *last = Some((number, make()));
            }
        }
        latest(&mut self.image, key.image, || ImageId::named(names.text(key.image)));
        latest(&mut self.event, key.event, || Event::named(names.text(key.event)));
        latest(&mut self.app, key.app, || names.text(key.app).clone());
        if let Some(values) = key.dimensions(names) {
            decode::shared(&mut self.dimensions, values);
        }
    }
}

/// Returns the bytes of a segment with the rows that `hand_out` passes to its argument, in a segment's order and each
/// key once.
pub(crate) fn encode_runs(
    epoch: &EpochId,
    range: SegmentRange,
    images: &[ImageRecord],
    dimensions: DimensionSet,
    hand_out: impl FnOnce(&mut dyn FnMut(SampleRun<'_>)),
) -> Result<Vec<u8>, SegmentError> {
    let metadata = Metadata::new(epoch, range, images)?;
    let mut output = Output::new(images, dimensions)?;
    let (mut rows, mut taken) = (0, Ok(()));
    hand_out(&mut |run| {
        if taken.is_ok() {
            rows += run.rows.len();
            taken = output.take_run(&run, rows);
        }
    });
    taken?;
    output.finish(&metadata)
}

impl Output {
    /// Appends a run; `rows` is the number of rows including it.
    fn take_run(&mut self, run: &SampleRun<'_>, rows: usize) -> Result<(), SegmentError> {
        SegmentError::limit("rows", rows as u64, MAX_SEGMENT_ROWS as u64)?;
        let key = Key::new(run, &mut self.names)?;
        self.begin(key)?;
        run.rows.iter().try_for_each(|(offset, count)| self.push(offset.0, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::read_segment;

    #[test]
    fn runs_that_are_written_are_read_again() {
        const RUN_ROWS: u64 = 10_000;
        let values = |n: u64| {
            let thread = Some(format!("t{}", n % 2).into());
            Some(Arc::new(DimensionValues { thread, ..DimensionValues::default() }))
        };
        let key = |n: u64| SampleKey {
            image: ImageId::named(&format!("i{}", n / 5)),
            event: Event::CYCLES,
            offset: ImageOffset(0),
            app: format!("a{}", n % 5).into(),
            instance: 7,
            dimensions: values(n).filter(|_| n > 0), // The first has none.
        };
        let rows = |n: u64| -> Vec<(ImageOffset, u64)> {
            (0..RUN_ROWS).map(|row| (ImageOffset((n * RUN_ROWS + row) * 3), n * RUN_ROWS + row + 1)).collect()
        };
        let hand_out = |sink: &mut dyn FnMut(SampleRun<'_>)| {
            for (key, rows) in (0..15).map(|n| (key(n), rows(n))) {
                let SampleKey { image, event, app, instance, dimensions, .. } = &key;
                sink(SampleRun { image, event, app, instance: *instance, dimensions, rows: &rows });
            }
        };
        let range = SegmentRange { first: 1, last: 1 };
        let dimensions = values(0).unwrap().set();
        let bytes = encode_runs(&EpochId("e".into()), range, &[], dimensions, hand_out).unwrap();
        let mut read = Counts::default();
        let part = Opened::open(bytes.clone()).unwrap();
        each_run(&part, &mut |run| {
            run.rows
                .iter()
                .for_each(|(offset, count)| assert_eq!(read.insert(run.key(*offset), *count), None));
        })
        .unwrap();
        let nameless = DimensionValues { thread: Some("".into()), ..DimensionValues::default() };
        let expected = (0..15).flat_map(|n| rows(n).into_iter().map(move |row| (n, row)));
        let expected = expected.map(|(n, (offset, count))| {
            let dimensions = key(n).dimensions.or_else(|| Some(Arc::new(nameless.clone())));
            (SampleKey { offset, dimensions, ..key(n) }, count)
        });
        assert_eq!(read, expected.collect());
        assert_eq!(read_segment(&bytes).unwrap().rows.len(), read.len());
    }
}
