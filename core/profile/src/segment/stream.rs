//! Rows in and out of a segment run by run, for profiles that are larger than what a reader wants to hold.
//!
//! Enters: rows in the order of a segment; or a segment whose checksum is right. Leaves: a segment's bytes; or its rows. Never
//! here: all rows at once.

use std::sync::Arc;

use crate::{
    Counts, DimensionSet, DimensionValues, EpochId, Event, ImageId, ImageOffset, ImageRecord, SampleKey,
    database::SegmentRange,
};

use super::{
    MAX_SEGMENT_ROWS, SegmentError,
    decode::{self, contain},
    key::{Key, same_but_offset},
    merge::Opened,
    metadata::Metadata,
    names::Names,
    output::Output,
    readers::Readers,
};

/// Rows of a segment that differ by place and count alone; a run of them may be handed over in several parts.
#[derive(Clone, Copy, Debug)]
pub struct SampleRun<'a> {
    /// The image the sampled instructions lie in.
    pub image: &'a ImageId,
    /// What was sampled.
    pub event: &'a Event,
    /// The application.
    pub app: &'a Arc<str>,
    /// Its how-many-th execution.
    pub instance: u32,
    /// Thread, CPU and control group, where they were kept.
    pub dimensions: &'a Option<Arc<DimensionValues>>,
    /// Where in the image, and how many samples; at least one.
    pub rows: &'a [(ImageOffset, u64)],
}

impl SampleRun<'_> {
    /// What the samples of a row are counted by.
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

/// Hands each run of rows to `sink`. After an error some of them were.
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

/// The sums of a segment's rows, read run by run without the checksum, which keeps a fuzzer from what lies behind it. For
/// tests alone.
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

/// The texts of the last run, most of which the next one has too.
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

/// The bytes of a segment with these rows, which come in its order, each key once, all with the dimensions of the first.
pub(crate) fn encode_rows(
    epoch: &EpochId,
    range: SegmentRange,
    images: &[ImageRecord],
    rows: &mut dyn Iterator<Item = (SampleKey, u64)>,
) -> Result<Vec<u8>, SegmentError> {
    let metadata = Metadata::new(epoch, range, images)?;
    let mut rows = rows.peekable();
    let kept = |(key, _): &(SampleKey, u64)| key.dimensions.as_ref().map(|values| values.set());
    let dimensions = rows.peek().and_then(kept).unwrap_or(DimensionSet::NONE);
    let mut output = Output::new(images, dimensions)?;
    let mut last: Option<SampleKey> = None;
    for (number, (key, count)) in rows.enumerate() {
        SegmentError::limit("rows", number as u64 + 1, MAX_SEGMENT_ROWS as u64)?;
        if last.as_ref().is_none_or(|last| !same_but_offset(last, &key)) {
            let begun = Key::of(&key, &mut output.names)?;
            output.begin(begun)?;
            last = Some(key.clone());
        }
        output.push(key.offset.0, count)?;
    }
    output.finish(&metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::read_segment;

    #[test]
    fn rows_that_are_written_one_by_one_are_read_again() {
        let key = |n: u64| SampleKey {
            image: ImageId::named(&format!("i{}", n / 50_000)),
            event: Event::CYCLES,
            offset: ImageOffset(n * 3),
            app: format!("a{}", n / 10_000 % 5).into(),
            instance: 7,
            dimensions: None,
        };
        let rows: Vec<(SampleKey, u64)> = (0..150_000).map(|n| (key(n), n + 1)).collect();
        let range = SegmentRange { first: 1, last: 1 };
        let bytes = encode_rows(&EpochId("e".into()), range, &[], &mut rows.iter().cloned()).unwrap();
        let mut read = Counts::default();
        let part = Opened::open(bytes.clone()).unwrap();
        each_run(&part, &mut |run| {
            run.rows
                .iter()
                .for_each(|(offset, count)| assert_eq!(read.insert(run.key(*offset), *count), None));
        })
        .unwrap();
        assert_eq!(read, rows.iter().cloned().collect());
        assert_eq!(read_segment(&bytes).unwrap().rows, rows);
    }
}
