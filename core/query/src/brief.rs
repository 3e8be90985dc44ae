//! The hottest procedures without reading images whole: what a table of them needs.
//!
//! Enters: merged samples, a number of rows. Leaves: that many procedures of each image at most, with their samples. Never here:
//! debug information, names of procedures that no row shows. An image that an outline cannot tell of is read as everywhere
//! else. Cost: one pass over the sampled offsets and over the symbols of the sampled images, as many images at a time
//! as there are processors.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};

use dwell_image::{ImageAddress, Outline, Span};
use rustc_hash::FxHashMap;

use crate::{
    Cancel, QueryError, TopRequest,
    images::ImageStore,
    procedures::{self, ProcedureSamples},
    scales::in_parallel,
    selection::{CountsByEvent, ImageSamples, Selection, add_counts},
};

/// Some procedures of all that have samples.
#[derive(Default)]
pub struct Hottest {
    /// The most sampled ones of each image, as many as were asked for; their ids are empty.
    pub procedures: Vec<ProcedureSamples>,
    /// How many others there are.
    pub others: usize,
    /// What one must know of the images.
    pub notes: Vec<String>,
}

/// The `limit` hottest procedures of each wanted image.
pub fn hottest(
    selection: &Selection,
    store: &ImageStore,
    request: &TopRequest,
    limit: usize,
    cancel: &Cancel,
) -> Result<Hottest, QueryError> {
    let wanted = selection.images.iter().enumerate();
    let wanted = wanted.filter(|(_, samples)| request.takes(&samples.record) && !samples.points.is_empty());
    let mut wanted: Vec<usize> = wanted.map(|(index, _)| index).collect();
    // With the most sampled images first it is soon known what cannot be among the hottest.
    wanted.sort_by(|a, b| selection.images[*b].total.cmp(&selection.images[*a].total));
    let least = Least::of(limit);
    let mut parts = in_parallel(&wanted, |&index| {
        cancel.check().ok()?;
        let mut part = Hottest::default();
        match store.outline(&selection.images[index].record) {
            Some(outline) => part.add_outlined(index, &selection.images[index], &outline, limit, &least),
            None => part.add_whole(selection, store, index, limit),
        }
        Some((index, part))
    });
    cancel.check()?;
    parts.sort_by_key(|(index, _)| *index);
    let mut hottest = Hottest::default();
    for (_, part) in parts {
        hottest.procedures.extend(part.procedures);
        hottest.others += part.others;
        hottest.notes.extend(part.notes);
    }
    Ok(hottest)
}

/// The first counts of the `limit` hottest procedures of the images up to now: to look for names costs, and what has fewer
/// samples is not shown.
struct Least {
    limit: usize,
    most: Mutex<BinaryHeap<Reverse<u64>>>,
}

impl Least {
    fn of(limit: usize) -> Least {
        Least { limit, most: Mutex::default() }
    }

    /// Takes part in the counts of an image's groups; how many a shown procedure has at least.
    fn with(&self, groups: &[Group]) -> u64 {
        let mut most = self.most.lock().unwrap_or_else(PoisonError::into_inner);
        for group in groups {
            most.push(Reverse(group.samples()));
            if most.len() > self.limit {
                most.pop();
            }
        }
        if most.len() < self.limit { 0 } else { most.peek().map_or(0, |least| least.0) }
    }
}

impl Hottest {
    fn add_outlined(
        &mut self,
        index: usize,
        samples: &ImageSamples,
        outline: &Outline,
        limit: usize,
        least: &Least,
    ) {
        let mut groups = groups(samples, outline);
        let hotter = |a: &Group, b: &Group| b.counts.cmp(&a.counts).then_with(|| a.start().cmp(&b.start()));
        groups.sort_unstable_by(hotter);
        let all = groups.len();
        groups.truncate(limit);
        let least = least.with(&groups);
        groups.retain(|group| group.samples() >= least);
        self.others += all - groups.len();
        self.procedures.extend(groups.into_iter().map(|group| group.named(index, outline)));
    }

    fn add_whole(&mut self, selection: &Selection, store: &ImageStore, index: usize, limit: usize) {
        let samples = &selection.images[index];
        let found = store.find(&samples.record);
        let mut all = procedures::in_image(index, samples, found.image.as_deref().ok());
        all.sort_by(|a, b| b.counts.cmp(&a.counts).then(a.address.cmp(&b.address)));
        self.others += all.len().saturating_sub(limit);
        all.truncate(limit);
        self.procedures.extend(all);
        let share = selection.share(&samples.total);
        if let Some(note) = found.note.as_ref().filter(|_| share >= 0.01) {
            self.notes.push(format!("{note} ({:.1}% of the samples)", 100.0 * share));
        }
    }
}

/// A procedure's samples, without its name.
struct Group {
    span: Option<Span>,
    points: Vec<u32>,
    counts: CountsByEvent,
}

impl Group {
    fn start(&self) -> Option<ImageAddress> {
        self.span.map(|s| s.address)
    }

    /// Of the first event, by which rows are sorted.
    fn samples(&self) -> u64 {
        self.counts.first().copied().unwrap_or(0)
    }

    fn named(self, image: usize, outline: &Outline) -> ProcedureSamples {
        let Group { span, points, counts } = self;
        let nameless = procedures::nameless(image);
        let Some(span) = span else { return ProcedureSamples { points, counts, ..nameless } };
        let name = outline.name(&span);
        ProcedureSamples {
            demangled: dwell_image::demangle(&name),
            name,
            address: Some(span.address),
            size_bytes: span.size_bytes,
            points,
            counts,
            ..nameless
        }
    }
}

/// Every procedure of an image (by its index) with samples, in no order, without ids.
pub fn in_outline(index: usize, samples: &ImageSamples, outline: &Outline) -> Vec<ProcedureSamples> {
    groups(samples, outline).into_iter().map(|group| group.named(index, outline)).collect()
}

fn groups(samples: &ImageSamples, outline: &Outline) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut by_start: FxHashMap<Option<ImageAddress>, usize> = FxHashMap::default();
    // Points ascend: up to where another procedure begins, the last answer holds.
    let mut last: Option<(Span, ImageAddress, usize)> = None;
    for (number, (offset, counts)) in samples.points.iter().enumerate() {
        let address = outline.address_of(offset);
        let same = last.filter(|(span, next, _)| {
            address.is_some_and(|a| a < *next && a >= span.address && a.0 - span.address.0 < span.size_bytes)
        });
        let group = match same {
            Some((.., group)) => group,
            None => {
                let span = address.and_then(|a| outline.at(a));
                let fresh = groups.len();
                let group = *by_start.entry(span.map(|s| s.address)).or_insert(fresh);
                if group == fresh {
                    groups.push(Group { span, points: Vec::new(), counts: CountsByEvent::new() });
                }
                last = span.zip(address).map(|(span, a)| (span, outline.next_after(a), group));
                group
            }
        };
        groups[group].points.push(number as u32);
        add_counts(&mut groups[group].counts, counts);
    }
    groups
}
