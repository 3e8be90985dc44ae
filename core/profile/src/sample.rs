//! Aggregated samples, as collectors pass them to the database and the database passes them to its readers.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::{DimensionValues, Event, ImageId, ImageOffset};

/// The key that samples are aggregated by; each row of a segment has one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleKey {
    /// The image that contains the sampled instruction.
    pub image: ImageId,
    /// The event that was sampled.
    pub event: Event,
    /// The offset in the image.
    pub offset: ImageOffset,
    /// The application, by the name of its executable.
    pub app: Arc<str>,
    /// Number of this execution of the application in the epoch, from 1 (an instance in SLEEPY); 0 if executions are
    /// not kept apart (FORMAT.md).
    pub instance: u32,
    /// Thread, CPU and control group, if the collector was asked to keep them.
    pub dimensions: Option<Arc<DimensionValues>>,
}

/// Numbers of samples by key.
pub type Counts = FxHashMap<SampleKey, u64>;
