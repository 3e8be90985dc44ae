//! What was counted, in the order of a segment.
//!
//! Enters: counts by numbers of ours, and the texts that these stand for. Leaves: rows in order, each key once. Never here: a
//! text for each row. A row is 24 bytes and is compared by numbers, since hashing, comparing and copying texts is what
//! storing would take most of its time and memory for.

use std::sync::Arc;

use dwell_profile::{Counts, DimensionValues, Event, ImageId, ImageOffset, SampleKey};

/// Bits of the first key: those of the rank among who ran, below those of the event, below the image's.
const WHO_BITS: u32 = 32;
const EVENT_BITS: u32 = 8;

/// Rows, and the texts that they refer to, each in order and once.
#[derive(Debug, Default)]
pub struct Rows {
    images: Vec<ImageId>,
    events: Vec<Event>,
    who: Vec<Who>,
    rows: Vec<Row>,
}

/// Who ran: an application's instance, with what is kept of it beside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// The application.
    pub app: Arc<str>,
    /// Its how-many-th execution.
    pub instance: u32,
    /// The dimensions that were asked for.
    pub dimensions: Option<Arc<DimensionValues>>,
}

/// A row's key in numbers: ranks of image, event and who ran; then the offset.
#[derive(Clone, Copy, Debug)]
struct Row {
    ranks: u64,
    offset: u64,
    count: u64,
}

/// Texts by the numbers that counts come with.
#[derive(Debug, Default)]
pub struct Texts {
    /// The images.
    pub images: Vec<ImageId>,
    /// The events.
    pub events: Vec<Event>,
    /// Who ran.
    pub who: Vec<Who>,
}

/// A count by indices of [`Texts`].
#[derive(Clone, Copy, Debug)]
pub struct Numbered {
    /// The image.
    pub image: u32,
    /// The event.
    pub event: u8,
    /// Who ran.
    pub who: u32,
    /// Where in the image.
    pub offset: u64,
    /// Samples.
    pub count: u64,
}

impl Rows {
    /// Sorts counts; those of equal keys are added up. O(n log n).
    pub fn new(texts: Texts, counts: impl Iterator<Item = Numbered>) -> Self {
        let (images, image_ranks) = ranked(texts.images);
        let (events, event_ranks) = ranked(texts.events);
        let (who, who_ranks) = ranked(texts.who);
        assert!(images.len() < 1 << (64 - WHO_BITS - EVENT_BITS) && events.len() <= 1 << EVENT_BITS);
        let ranks = |n: &Numbered| {
            let (image, event) = (image_ranks[n.image as usize], event_ranks[usize::from(n.event)]);
            (image << EVENT_BITS | event) << WHO_BITS | who_ranks[n.who as usize]
        };
        let mut rows: Vec<Row> =
            counts.map(|n| Row { ranks: ranks(&n), offset: n.offset, count: n.count }).collect();
        rows.sort_unstable_by_key(|row| (row.ranks, row.offset));
        rows.dedup_by(|next, row| {
            let same = (next.ranks, next.offset) == (row.ranks, row.offset);
            row.count += if same { next.count } else { 0 };
            same
        });
        Rows { images, events, who, rows }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether any has dimensions.
    pub fn have_dimensions(&self) -> bool {
        self.who.iter().any(|who| who.dimensions.is_some())
    }

    /// The rows in order, as the database names them.
    pub fn iter(&self) -> impl Iterator<Item = (SampleKey, u64)> + '_ {
        self.rows.iter().map(|row| {
            let who = &self.who[(row.ranks & ((1 << WHO_BITS) - 1)) as usize];
            let event = (row.ranks >> WHO_BITS) as usize & ((1 << EVENT_BITS) - 1);
            let key = SampleKey {
                image: self.images[(row.ranks >> (WHO_BITS + EVENT_BITS)) as usize].clone(),
                event: self.events[event].clone(),
                offset: ImageOffset(row.offset),
                app: who.app.clone(),
                instance: who.instance,
                dimensions: who.dimensions.clone(),
            };
            (key, row.count)
        })
    }

    /// The same without an order.
    pub fn counts(&self) -> Counts {
        self.iter().collect()
    }
}

#[cfg(test)]
impl FromIterator<(SampleKey, u64)> for Rows {
    fn from_iter<I: IntoIterator<Item = (SampleKey, u64)>>(counts: I) -> Self {
        let (mut texts, mut numbered) = (Texts::default(), Vec::new());
        for (key, count) in counts {
            texts.images.push(key.image);
            texts.events = vec![key.event];
            texts.who.push(Who { app: key.app, instance: key.instance, dimensions: key.dimensions });
            let at = numbered.len() as u32;
            numbered.push(Numbered { image: at, event: 0, who: at, offset: key.offset.0, count });
        }
        Rows::new(texts, numbered.into_iter())
    }
}

/// Texts in order, each once, and the rank of each that was handed in.
fn ranked<T: Ord>(texts: Vec<T>) -> (Vec<T>, Vec<u64>) {
    let mut ranks = vec![0; texts.len()];
    let mut texts: Vec<(T, usize)> = texts.into_iter().zip(0..).collect();
    texts.sort();
    let mut sorted: Vec<T> = Vec::with_capacity(texts.len());
    for (text, at) in texts {
        if sorted.last() != Some(&text) {
            sorted.push(text);
        }
        ranks[at] = sorted.len() as u64 - 1;
    }
    (sorted, ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_a_segment_and_each_key_comes_once() {
        let who = |app: &str, instance| Who { app: app.into(), instance, dimensions: None };
        let texts = Texts {
            images: ["kernel", "aa01", "aa01"].map(ImageId::named).into(),
            events: vec![Event::CYCLES, Event::BRANCH_TAKEN],
            who: vec![who("cc1", 2), who("cc1", 1), who("as", 3)],
        };
        let numbers = [(0, 0, 0, 9, 1), (1, 0, 2, 9, 2), (2, 0, 2, 9, 3), (1, 1, 1, 8, 4), (1, 0, 1, 7, 5)];
        let numbered =
            numbers.map(|(image, event, who, offset, count)| Numbered { image, event, who, offset, count });
        let rows = Rows::new(texts, numbered.into_iter());
        let text = |(key, count): (SampleKey, u64)| {
            format!(
                "{} {} {}#{} {} {count}",
                key.image,
                key.event.name(),
                key.app,
                key.instance,
                key.offset.0
            )
        };
        assert_eq!(
            rows.iter().map(text).collect::<Vec<_>>(),
            [
                "aa01 branch-taken cc1#1 8 4",
                "aa01 cycles as#3 9 5",
                "aa01 cycles cc1#1 7 5",
                "kernel cycles cc1#2 9 1"
            ]
        );
        assert!(rows.counts().len() == 4 && !rows.is_empty());
    }
}
