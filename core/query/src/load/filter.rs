//! Which samples count: those of an application, a thread, a CPU, a control group.
//!
//! Enters: rows of segments. Leaves: whether they are taken. Never here: images and domains, which are chosen among what was
//! read ([`TopRequest`](crate::TopRequest)). Cost: once for each run of rows of one kind.

use dwell_profile::{CpuId, Dimension, DimensionSet, ImageRecord, SampleRun, path_to_text};

use crate::load::containers::container;

/// All that is named must hold; by default all samples are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SampleFilter {
    /// The application's name.
    pub app: Option<String>,
    /// The thread's name.
    pub thread: Option<String>,
    /// The CPU's number.
    pub cpu: Option<u32>,
    /// A part of the control group's path, or of what people call it (`docker 3f2a…`).
    pub cgroup: Option<String>,
}

impl SampleFilter {
    /// Whether samples of this row count.
    pub(crate) fn takes(&self, row: &SampleRun<'_>) -> bool {
        self.app.as_ref().is_none_or(|app| **app == **row.app)
            && (self.dimensions().is_empty() || self.takes_dimensions(row))
    }

    fn takes_dimensions(&self, row: &SampleRun<'_>) -> bool {
        let Some(values) = row.dimensions else { return false };
        let is_thread = |name: &String| values.thread.as_deref() == Some(name);
        let is_cgroup = |part: &String| {
            let path = values.cgroup.as_deref().unwrap_or_default();
            path.contains(part.as_str()) || container(path).is_some_and(|name| name.contains(part.as_str()))
        };
        self.thread.as_ref().is_none_or(is_thread)
            && self.cpu.is_none_or(|cpu| values.cpu == Some(CpuId(cpu)))
            && self.cgroup.as_ref().is_none_or(is_cgroup)
    }

    /// What an epoch must have kept.
    pub(crate) fn dimensions(&self) -> DimensionSet {
        let asked = [
            (Dimension::Thread, self.thread.is_some()),
            (Dimension::Cpu, self.cpu.is_some()),
            (Dimension::Cgroup, self.cgroup.is_some()),
        ];
        asked.into_iter().filter(|(_, is_asked)| *is_asked).map(|(dimension, _)| dimension).collect()
    }

    /// Whether the filter names a thread, a CPU or a control group.
    pub(crate) fn has_dimensions(&self) -> bool {
        !self.dimensions().is_empty()
    }
}

impl std::fmt::Display for SampleFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cpu = self.cpu.map(|cpu| cpu.to_string());
        let named = [("app", &self.app), ("thread", &self.thread), ("cpu", &cpu), ("cgroup", &self.cgroup)];
        let texts = named.iter().filter_map(|(what, value)| Some(format!("{what} '{}'", value.as_ref()?)));
        f.write_str(&texts.collect::<Vec<_>>().join(", "))
    }
}

/// Whether the image's path or id contains the part that is asked for.
pub fn wants(part: &Option<String>, record: &ImageRecord) -> bool {
    let Some(part) = part else { return true };
    path_to_text(&record.path).contains(part.as_str()) || record.id.as_str().contains(part.as_str())
}
