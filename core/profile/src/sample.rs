//! Aggregated samples: what the collectors hand to the database and the database to its readers.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::{DimensionValues, Event, ImageId, ImageOffset};

/// What samples are counted by; one row of a segment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleKey {
    /// The image the sampled instruction lies in.
    pub image: ImageId,
    /// What was sampled.
    pub event: Event,
    /// Where in the image.
    pub offset: ImageOffset,
    /// The application: its executable's name.
    pub app: Arc<str>,
    /// The application's how-many-th execution in the epoch, from 1 (SLEEPY's instances); 0 for what is not kept
    /// apart (FORMAT.md).
    pub instance: u32,
    /// Thread, CPU and control group, where the collector was asked to keep them.
    pub dimensions: Option<Arc<DimensionValues>>,
}

/// Samples by key.
pub type Counts = FxHashMap<SampleKey, u64>;
