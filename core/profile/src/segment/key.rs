//! The part of a row that precedes the offset in a segment's order, with texts as numbers.

use std::cmp::Ordering;

use super::{SampleRun, SegmentError, columns::NO_CPU, names::Names};
use crate::{CpuId, DimensionValues};

/// All fields of a row except its offset and its count; texts are numbers of [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) image: u32,
    pub(super) event: u32,
    pub(super) app: u32,
    pub(super) instance: u32,
    /// The thread's name. Like the other dimensions it is `None` if the segment has no such column.
    pub(super) thread: Option<u32>,
    pub(super) cgroup: Option<u32>,
    pub(super) cpu: Option<u32>,
}

impl Key {
    /// Returns the key that all rows of a run share.
    pub(super) fn new(run: &SampleRun<'_>, names: &mut Names) -> Result<Key, SegmentError> {
        let values = run.dimensions.as_deref();
        let thread = values.and_then(|v| v.thread.as_deref());
        let cgroup = values.and_then(|v| v.cgroup.as_deref());
        Ok(Key {
            image: names.intern(run.image.as_str())?,
            event: names.intern(run.event.name())?,
            app: names.intern(run.app)?,
            instance: run.instance,
            thread: thread.map(|text| names.intern(text)).transpose()?,
            cgroup: cgroup.map(|text| names.intern(text)).transpose()?,
            cpu: values.and_then(|v| v.cpu).map(|cpu| cpu.0),
        })
    }

    /// Compares keys in the order of a segment's rows.
    pub(super) fn order(&self, other: &Key, names: &Names) -> Ordering {
        if self == other {
            return Ordering::Equal;
        }
        let text = |a: u32, b: u32| if a == b { Ordering::Equal } else { names.text(a).cmp(names.text(b)) };
        let optional = |a: Option<u32>, b: Option<u32>| match (a, b) {
            (Some(a), Some(b)) => text(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        text(self.image, other.image)
            .then_with(|| text(self.event, other.event))
            .then_with(|| text(self.app, other.app))
            .then_with(|| self.instance.cmp(&other.instance))
            .then_with(|| optional(self.thread, other.thread))
            .then_with(|| optional(self.cgroup, other.cgroup))
            .then_with(|| self.cpu.cmp(&other.cpu))
    }

    /// Returns the values of the dimensions, if there are any.
    pub(super) fn dimensions(&self, names: &Names) -> Option<DimensionValues> {
        if (self.thread, self.cgroup, self.cpu) == (None, None, None) {
            return None;
        }
        let text = |number: Option<u32>| number.map(|number| names.text(number).clone());
        let cpu = self.cpu.filter(|cpu| *cpu != NO_CPU).map(CpuId);
        Some(DimensionValues { thread: text(self.thread), cgroup: text(self.cgroup), cpu })
    }
}
