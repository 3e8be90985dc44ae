//! Merged samples by image, application and dimension, as plain data.
//!
//! This module does not know where the samples are read from.

use std::{collections::BTreeMap, sync::Arc};

use dwell_profile::{Dimension, DimensionValues, ImageId, ImageKind, ImageRecord};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::load::sampled_offsets::SampledOffsets;

/// Counts by index into [`Selection::events`](crate::load::selection::Selection::events).
pub type CountsByEvent = SmallVec<[u64; 4]>;

/// Samples by application, instance and image (an index).
pub type AppCounts = BTreeMap<(Arc<str>, u32, usize), CountsByEvent>;

/// Samples by the value of one dimension and image (an index).
pub type DimensionCounts = BTreeMap<(DimensionValue, usize), CountsByEvent>;

/// Number of samples by the data that they refer to. The key is the image (an index), whether only the page is known, and
/// the distance from the image's first byte in memory.
pub type DataCounts = BTreeMap<(usize, bool, u64), u64>;

/// The value of one dimension of a sample.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DimensionValue {
    /// Name of a thread.
    Thread(Arc<str>),
    /// Number of a CPU; `None` if unknown.
    Cpu(Option<u32>),
    /// Path of a control group.
    Cgroup(Arc<str>),
}

impl DimensionValue {
    /// Returns the dimension that the value belongs to.
    pub fn dimension(&self) -> Dimension {
        match self {
            DimensionValue::Thread(_) => Dimension::Thread,
            DimensionValue::Cpu(_) => Dimension::Cpu,
            DimensionValue::Cgroup(_) => Dimension::Cgroup,
        }
    }

    /// Returns the value of one dimension from all those of a sample.
    pub(crate) fn of(values: &DimensionValues, dimension: Dimension) -> Self {
        match dimension {
            Dimension::Thread => DimensionValue::Thread(values.thread.clone().unwrap_or_default()),
            Dimension::Cpu => DimensionValue::Cpu(values.cpu.map(|cpu| cpu.0)),
            Dimension::Cgroup => DimensionValue::Cgroup(values.cgroup.clone().unwrap_or_default()),
        }
    }
}

/// Samples of one image.
pub struct ImageSamples {
    /// Description of the image.
    pub record: ImageRecord,
    /// Epochs in which the image was sampled (indices), ascending.
    pub epochs: Vec<usize>,
    /// Sampled places, by ascending offset.
    pub points: SampledOffsets,
    /// Sum of the counts of `points`.
    pub total: CountsByEvent,
}

/// Returns the index of each image that is a file.
pub fn file_indexes(images: &[ImageSamples]) -> FxHashMap<&ImageId, usize> {
    let files = images.iter().enumerate().filter(|(_, image)| image.record.kind == ImageKind::File);
    files.map(|(at, image)| (&image.record.id, at)).collect()
}

/// Adds `more` to `sum`, index by index.
pub fn add_counts(sum: &mut CountsByEvent, more: &[u64]) {
    if sum.len() < more.len() {
        sum.resize(more.len(), 0);
    }
    sum.iter_mut().zip(more).for_each(|(s, m)| *s += m);
}
