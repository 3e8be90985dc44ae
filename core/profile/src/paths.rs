//! Path bursts: what a thread did or would do from a moment on (DCPI §7, "double sampling", generalized).

use serde::{Deserialize, Serialize};

use std::collections::BTreeMap;

use crate::{ImageId, ImageOffset};

/// A place in an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPlace {
    /// The image.
    pub image: ImageId,
    /// Where in it.
    pub offset: ImageOffset,
}

/// How often control went from one instruction to another: one that is not simply the next, or the next after a
/// conditional branch that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathTransfer {
    /// The instruction that control left.
    pub from: PathPlace,
    /// The instruction that it went to.
    pub to: PathPlace,
    /// How often.
    pub count: u64,
}

/// About a thousand consecutive instructions of one thread. Between transfers control goes from each instruction to
/// the next, so `first`, `last` and `transfers` tell how often each instruction was executed. Where an image's code
/// could not be read (JIT, vdso) only transfers into and out of it are known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathBurst {
    /// Unique in the epoch.
    pub number: u32,
    /// The first instruction.
    pub first: PathPlace,
    /// The instruction after the last that was executed.
    pub last: PathPlace,
    /// In order, without duplicates.
    pub transfers: Vec<PathTransfer>,
}

/// What following or single-stepping threads did and cost in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathsRecord {
    /// Percent of the target's CPU time that stepping might take.
    pub budget_percent: f64,
    /// Bursts that were stored.
    pub bursts: u64,
    /// Steps in all.
    pub steps: u64,
    /// What it cost, in ns: CPU time of following, during which the thread stands still, or the time of single steps.
    pub stepping_ns: u64,
    /// CPU time of the target by its samples, in ns.
    pub cpu_ns: u64,
    /// Samples that fell on a thread while it was stepped: they would have shown the stepping, and are not counted.
    pub samples_dropped: u64,
    /// Bursts that ended before they had all their steps, by cause.
    #[serde(default)]
    pub cut_short: BTreeMap<String, u64>,
    /// Bursts that did not begin, by cause.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    /// Steps in code that cannot be read (JIT, vdso, no mapping), whose transfers are not stored.
    #[serde(default)]
    pub opaque_steps: u64,
}
