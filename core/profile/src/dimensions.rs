//! Optional dimensions of samples: the thread's name, the CPU, the control group.
//!
//! Enters: which dimensions a collector was asked to keep. Leaves: their names, and sets of them. Never here: where
//! their values come from. A dimension that was not requested takes no column in a segment and no bytes in a key.

use std::{fmt, str::FromStr, sync::Arc};

use crate::CpuId;

/// An optional dimension of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// The name of the thread (its `comm`) at the time of the sample.
    Thread,
    /// The CPU on which the thread ran.
    Cpu,
    /// The control group of the process: a container, a service or a session.
    Cgroup,
}

impl Dimension {
    /// All dimensions.
    pub const ALL: [Dimension; 3] = [Dimension::Thread, Dimension::Cpu, Dimension::Cgroup];

    /// Returns the dimension's name as columns, options and answers spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Dimension::Thread => "thread",
            Dimension::Cpu => "cpu",
            Dimension::Cgroup => "cgroup",
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a text that names no dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected thread, cpu or cgroup")]
pub struct NoDimension;

impl FromStr for Dimension {
    type Err = NoDimension;

    fn from_str(text: &str) -> Result<Self, NoDimension> {
        Dimension::ALL.into_iter().find(|d| d.name() == text).ok_or(NoDimension)
    }
}

/// A set of dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DimensionSet(u8);

impl DimensionSet {
    /// The empty set.
    pub const NONE: DimensionSet = DimensionSet(0);

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self == DimensionSet::NONE
    }

    /// Returns whether the set contains `dimension`.
    pub fn has(self, dimension: Dimension) -> bool {
        self.0 & 1 << dimension as u8 != 0
    }

    /// Returns the dimensions that are in either set.
    #[must_use]
    pub fn union(self, other: DimensionSet) -> DimensionSet {
        DimensionSet(self.0 | other.0)
    }

    /// Iterates over the dimensions of the set, in their order.
    pub fn iter(self) -> impl Iterator<Item = Dimension> {
        Dimension::ALL.into_iter().filter(move |d| self.has(*d))
    }
}

impl FromIterator<Dimension> for DimensionSet {
    fn from_iter<I: IntoIterator<Item = Dimension>>(dimensions: I) -> Self {
        DimensionSet(dimensions.into_iter().fold(0, |bits, d| bits | 1 << d as u8))
    }
}

/// The dimensions of a sample; at least one of them is present.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DimensionValues {
    /// The thread's name; empty if it is not known.
    pub thread: Option<Arc<str>>,
    /// The path of the control group; empty if it is not known or is the kernel's own.
    pub cgroup: Option<Arc<str>>,
    /// The CPU's number.
    pub cpu: Option<CpuId>,
}

impl DimensionValues {
    /// Returns the set of the dimensions that are present.
    pub fn set(&self) -> DimensionSet {
        let there = |dimension: &Dimension| match dimension {
            Dimension::Thread => self.thread.is_some(),
            Dimension::Cpu => self.cpu.is_some(),
            Dimension::Cgroup => self.cgroup.is_some(),
        };
        Dimension::ALL.into_iter().filter(there).collect()
    }

    /// Returns the key by which the rows of a segment are ordered.
    pub(crate) fn key(&self) -> (Option<&str>, Option<&str>, Option<u32>) {
        (self.thread.as_deref(), self.cgroup.as_deref(), self.cpu.map(|cpu| cpu.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_contain_the_elements_they_are_made_from() {
        let set: DimensionSet = ["cpu", "thread"].iter().map(|t| t.parse().unwrap()).collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Dimension::Thread, Dimension::Cpu]);
        assert!(!set.has(Dimension::Cgroup) && !set.is_empty() && DimensionSet::NONE.is_empty());
        assert_eq!("cpus".parse::<Dimension>(), Err(NoDimension));
        let values = DimensionValues { cgroup: Some("/".into()), ..DimensionValues::default() };
        assert_eq!(values.set().union(set), Dimension::ALL.into_iter().collect());
    }
}
