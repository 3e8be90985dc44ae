//! Merged samples by image, application and dimension, as plain data.
//!
//! Never here: where they are read from.

use std::{collections::BTreeMap, sync::Arc};

use dwell_profile::{Dimension, DimensionValues, ImageRecord};
use smallvec::SmallVec;

use crate::load::points::Points;

/// Counts by index into [`Selection::events`](crate::load::selection::Selection::events).
pub type CountsByEvent = SmallVec<[u64; 4]>;

/// Samples by application, instance and image.
pub type AppCounts = BTreeMap<(Arc<str>, u32, usize), CountsByEvent>;

/// Samples by one dimension's value and image.
pub type DimensionCounts = BTreeMap<(DimensionValue, usize), CountsByEvent>;

/// Samples by the data that they refer to: the image (an index), whether it is kept apart by page only, the distance from the
/// image's first byte in memory.
pub type DataCounts = BTreeMap<(usize, bool, u64), u64>;

/// What a sample has of one dimension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DimensionValue {
    /// A thread's name.
    Thread(Arc<str>),
    /// A CPU.
    Cpu(Option<u32>),
    /// A control group's path.
    Cgroup(Arc<str>),
}

impl DimensionValue {
    /// Which it is of.
    pub fn dimension(&self) -> Dimension {
        match self {
            DimensionValue::Thread(_) => Dimension::Thread,
            DimensionValue::Cpu(_) => Dimension::Cpu,
            DimensionValue::Cgroup(_) => Dimension::Cgroup,
        }
    }

    /// The value of one dimension among those of a sample.
    pub(crate) fn of(values: &DimensionValues, dimension: Dimension) -> Self {
        match dimension {
            Dimension::Thread => DimensionValue::Thread(values.thread.clone().unwrap_or_default()),
            Dimension::Cpu => DimensionValue::Cpu(values.cpu.map(|cpu| cpu.0)),
            Dimension::Cgroup => DimensionValue::Cgroup(values.cgroup.clone().unwrap_or_default()),
        }
    }
}

/// One image's samples.
pub struct ImageSamples {
    /// The image.
    pub record: ImageRecord,
    /// The epochs it was sampled in (indices), ascending.
    pub epochs: Vec<usize>,
    /// By ascending offset.
    pub points: Points,
    /// Sum over `points`.
    pub total: CountsByEvent,
}

/// Adds `more` to `sum`, index by index.
pub fn add_counts(sum: &mut CountsByEvent, more: &[u64]) {
    if sum.len() < more.len() {
        sum.resize(more.len(), 0);
    }
    sum.iter_mut().zip(more).for_each(|(s, m)| *s += m);
}
