//! Merges segments into one segment, row by row, for compaction by a collector whose memory must stay small.
//!
//! Enters: the bytes of segments, oldest first. Leaves: the bytes of one segment that holds their sum. Memory holds the
//! files themselves, a batch of rows of each, and one row group that is being written; never all rows. Segments are
//! sorted, so the result of the merge is sorted too. A foreign segment that is not sorted gives keys that occur twice;
//! readers add them up.

use std::{cmp::Ordering, collections::BTreeMap};

use super::{
    SegmentError, decode::contain, key::Key, metadata::Metadata, names::Names, opened::Opened,
    output::Output, readers::Readers,
};
use crate::{DimensionSet, EpochId, ImageId, ImageOffset, ImageRecord, database::SegmentRange};

/// Returns the bytes of a segment that holds the sum of `parts`, oldest first. Of several records for one image the
/// newest is kept, with the symbols of all.
pub(crate) fn merge_segments(
    epoch: &EpochId,
    range: SegmentRange,
    parts: &[Opened],
) -> Result<Vec<u8>, SegmentError> {
    contain(|| {
        let mut images: BTreeMap<ImageId, ImageRecord> = BTreeMap::new();
        for part in parts {
            ImageRecord::absorb_all(&mut images, part.images()?);
        }
        let records: Vec<ImageRecord> = images.into_values().collect();
        let metadata = Metadata::new(epoch, range, &records)?;
        let kept = parts.iter().map(Opened::dimensions).collect::<Result<Vec<_>, _>>()?;
        let dimensions = kept.into_iter().fold(DimensionSet::NONE, DimensionSet::union);
        let mut writer = Output::new(&records, dimensions)?;
        drop(records);
        merge_rows(parts, &mut writer)?;
        writer.finish(&metadata)
    })
}

fn merge_rows(parts: &[Opened], writer: &mut Output) -> Result<(), SegmentError> {
    let names = &mut writer.names;
    let mut heap = parts.iter().map(|part| Cursor::new(part, names)).collect::<Result<Vec<_>, _>>()?;
    heap.retain(|cursor| cursor.row().is_some());
    heap.sort_by(|a, b| a.order(b, names));
    let mut pending: Option<Row> = None;
    // The first cursor of the heap has the least row. With many parts, only few cursors are compared for each row.
    while let Some(least) = heap.first_mut() {
        let row = least.row().expect("only cursors with a row are in the heap");
        match &mut pending {
            Some(last) if (last.key, last.offset) == (row.key, row.offset) => {
                last.count = last.count.saturating_add(row.count);
            }
            _ => pending.replace(row).map_or(Ok(()), |done| writer.take(done))?,
        }
        least.advance(&mut writer.names)?;
        if least.row().is_none() {
            heap.swap_remove(0);
        }
        sink_first(&mut heap, &writer.names);
    }
    pending.map_or(Ok(()), |done| writer.take(done))
}

/// Moves the first cursor to its place in the heap: the cursors at 2n + 1 and 2n + 2 never have a lesser row than the
/// cursor at n.
fn sink_first(heap: &mut [Cursor<'_>], names: &Names) {
    let mut at = 0;
    loop {
        let below = (2 * at + 1)..heap.len().min(2 * at + 3);
        let Some(least) = below.min_by(|a, b| heap[*a].order(&heap[*b], names)) else { return };
        if heap[at].order(&heap[least], names).is_le() {
            return;
        }
        heap.swap(at, least);
        at = least;
    }
}

/// A row whose texts are numbers of the output's names.
#[derive(Clone, Copy)]
struct Row {
    key: Key,
    offset: ImageOffset,
    count: u64,
}

impl Output {
    fn take(&mut self, row: Row) -> Result<(), SegmentError> {
        self.begin(row.key)?;
        self.push(row.offset.0, row.count)
    }
}

/// Iterates over the rows of a segment.
struct Cursor<'p> {
    readers: Readers<'p>,
    /// The run that contains the next row, and its rows that remain; `None` at the end.
    run: Option<(Key, std::ops::Range<usize>)>,
}

impl<'p> Cursor<'p> {
    fn new(part: &'p Opened, names: &mut Names) -> Result<Self, SegmentError> {
        let mut readers = Readers::new(part)?;
        let run = readers.next(names)?;
        Ok(Cursor { readers, run })
    }

    /// Compares the next rows in the order of a segment; every cursor that is compared has a next row.
    fn order(&self, other: &Self, names: &Names) -> Ordering {
        let order = |(a, b): (Row, Row)| a.key.order(&b.key, names).then_with(|| a.offset.cmp(&b.offset));
        self.row().zip(other.row()).map_or(Ordering::Equal, order)
    }

    fn row(&self) -> Option<Row> {
        let (key, run) = self.run.as_ref()?;
        let (offset, count) = self.readers.rows(run.clone())[0];
        Some(Row { key: *key, offset, count })
    }

    fn advance(&mut self, names: &mut Names) -> Result<(), SegmentError> {
        let (_, run) = self.run.as_mut().expect("it has a row");
        run.start += 1;
        if run.start == run.end {
            self.run = self.readers.next(names)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::sync::Arc;

    use super::*;
    use crate::CpuId;
    use crate::{
        Counts, Event, ImageKind, SampleKey,
        segment::{encode, output::ROW_GROUP_ROWS, read_segment},
    };

    fn record(id: &str, path: &str) -> ImageRecord {
        ImageRecord {
            id: ImageId::named(id),
            kind: ImageKind::File,
            path: path.into(),
            deleted: false,
            size_bytes: None,
            mtime_ns: None,
            symbols: Vec::new(),
            places: Default::default(),
            kernel_builds: Vec::new(),
        }
    }

    fn encoded(number: u64, counts: &Counts, images: &[ImageRecord]) -> Opened {
        let range = SegmentRange { first: number, last: number };
        Opened::open(encode(&EpochId("e".into()), range, counts, images).unwrap()).unwrap()
    }

    fn merged(parts: &[Opened]) -> crate::Segment {
        let range = SegmentRange { first: 1, last: parts.len() as u64 };
        read_segment(&merge_segments(&EpochId("e".into()), range, parts).unwrap()).unwrap()
    }

    fn key(image: u8, event: u8, app: u8, instance: u32, offset: u64) -> SampleKey {
        SampleKey {
            image: ImageId::named(&format!("i{image}")),
            event: Event::named(&format!("e{event}")),
            offset: ImageOffset(offset),
            app: format!("a{app}").into(),
            instance,
            dimensions: None,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The merge is the sum, it is sorted, and each key occurs once.
        #[test]
        fn merges_add_up(parts in prop::collection::vec(
            prop::collection::vec(((0_u8..3, 0_u8..2, 0_u8..3, 0_u32..3, 0_u64..6), 1_u64..9), 0..2000), 2..5)
        ) {
            let (mut sum, mut opened) = (Counts::default(), Vec::new());
            for (number, part) in parts.iter().enumerate() {
                let mut counts = Counts::default();
                for ((image, event, app, instance, offset), count) in part {
                    let key = key(*image, *event, *app, *instance, *offset);
                    *counts.entry(key.clone()).or_default() += count;
                    *sum.entry(key).or_default() += count;
                }
                opened.push(encoded(number as u64 + 1, &counts, &[record("i1", "/old"), record("i2", "/two")]));
            }
            let merged = merged(&opened);
            prop_assert_eq!(merged.rows.len(), sum.len());
            let of = |k: &SampleKey| (k.image.clone(), k.event.clone(), k.app.clone(), k.instance, k.offset);
            prop_assert!(merged.rows.windows(2).all(|w| of(&w[0].0) < of(&w[1].0)));
            prop_assert_eq!(merged.rows.into_iter().collect::<Counts>(), sum);
        }
    }

    #[test]
    fn several_row_groups_and_the_newest_records() {
        let rows = ROW_GROUP_ROWS as u64 + 10;
        let many = |step: u64| -> Counts { (0..rows).map(|n| (key(1, 1, 1, 0, n * step), 1)).collect() };
        let parts =
            [encoded(1, &many(2), &[record("i1", "/old")]), encoded(2, &many(1), &[record("i1", "/new")])];
        let merged = merged(&parts);
        assert_eq!(merged.rows.iter().map(|(_, n)| n).sum::<u64>(), 2 * rows);
        assert_eq!(merged.rows.len() as u64, rows + rows / 2);
        assert_eq!(merged.images, [record("i1", "/new")]);
    }

    /// Values of threads, CPUs and groups survive, also if a segment with dimensions is merged with one without.
    #[test]
    fn dimensions_are_merged_like_the_rest_of_a_key() {
        let with = |offset, thread: Option<&str>, cpu, cgroup: Option<&str>| {
            let values = crate::DimensionValues {
                thread: thread.map(Into::into),
                cgroup: cgroup.map(Into::into),
                cpu,
            };
            SampleKey { dimensions: Some(Arc::new(values)), ..key(1, 1, 1, 1, offset) }
        };
        let first = Counts::from_iter([
            (with(8, Some("io"), Some(CpuId(0)), Some("/a")), 1),
            (with(4, Some("io"), Some(CpuId(1)), Some("/a")), 2),
            (with(4, Some("main"), Some(CpuId(0)), Some("/b")), 4),
        ]);
        let second = Counts::from_iter([
            (with(4, Some("io"), Some(CpuId(1)), Some("/a")), 8),
            (with(4, Some("io"), None, Some("")), 16),
        ]);
        let plain = Counts::from_iter([(key(1, 1, 1, 1, 4), 32)]);
        let parts = [encoded(1, &first, &[]), encoded(2, &second, &[]), encoded(3, &plain, &[])];
        assert!(!parts[0].dimensions().unwrap().is_empty() && parts[2].dimensions().unwrap().is_empty());
        let mut expected = first;
        for (key, count) in second {
            *expected.entry(key).or_default() += count;
        }
        expected.insert(with(4, Some(""), None, Some("")), 32);
        let rows = merged(&parts).rows;
        assert_eq!(rows.len(), 5);
        assert_eq!(rows.into_iter().collect::<Counts>(), expected);
        let mut streamed = Counts::default();
        crate::segment::each_run(&parts[0], &mut |run| {
            streamed.extend(run.rows.iter().map(|(offset, count)| (run.key(*offset), *count)));
        })
        .unwrap();
        assert_eq!(streamed.len(), 3);
        assert_eq!(streamed[&with(8, Some("io"), Some(CpuId(0)), Some("/a"))], 1);
    }
}
