//! Filters samples by application, thread, CPU and control group.
//!
//! Input: rows of segments. Output: whether they are taken. Images and domains are not filtered here but after reading
//! ([`TopRequest`](crate::TopRequest)). Cost: one check for each run of rows of one kind.

use dwell_profile::{CpuId, Dimension, DimensionSet, ImageRecord, SampleRun, path_to_text};

use crate::load::containers::container;

/// A filter of samples. All conditions that are set must hold; by default all samples are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SampleFilter {
    /// Name of the application.
    pub app: Option<String>,
    /// Name of the thread.
    pub thread: Option<String>,
    /// Number of the CPU.
    pub cpu: Option<u32>,
    /// A part of the control group's path, or of its usual name (`docker 3f2a…`).
    pub cgroup: Option<String>,
    /// A part of the path or usual name of a service's control group. An answer is as if there were no samples of others: shares are
    /// those of the service's samples.
    pub service: Option<String>,
}

impl SampleFilter {
    /// Returns whether the filter takes the samples of this row.
    pub(crate) fn takes(&self, row: &SampleRun<'_>) -> bool {
        self.app.as_ref().is_none_or(|app| **app == **row.app)
            && (self.dimensions().is_empty() || self.takes_dimensions(row))
    }

    /// Returns whether a row is of the service, if one is asked for.
    pub(crate) fn is_of_service(&self, row: &SampleRun<'_>) -> bool {
        let cgroup = row.dimensions.as_ref().and_then(|values| values.cgroup.as_deref());
        self.service.as_ref().is_none_or(|part| cgroup.is_some_and(|cgroup| is_of_service(cgroup, part)))
    }

    fn takes_dimensions(&self, row: &SampleRun<'_>) -> bool {
        let Some(values) = row.dimensions else { return false };
        let is_thread = |name: &String| values.thread.as_deref() == Some(name);
        let is_cgroup = |part: &String| is_of_service(values.cgroup.as_deref().unwrap_or_default(), part);
        self.thread.as_ref().is_none_or(is_thread)
            && self.cpu.is_none_or(|cpu| values.cpu == Some(CpuId(cpu)))
            && self.cgroup.as_ref().is_none_or(is_cgroup)
    }

    /// Returns the dimensions that an epoch must have recorded for the filter to apply.
    pub(crate) fn dimensions(&self) -> DimensionSet {
        let conditions = [
            (Dimension::Thread, self.thread.is_some()),
            (Dimension::Cpu, self.cpu.is_some()),
            (Dimension::Cgroup, self.cgroup.is_some() || self.service.is_some()),
        ];
        conditions.into_iter().filter(|(_, is_set)| *is_set).map(|(dimension, _)| dimension).collect()
    }

    /// Returns whether the filter names a thread, a CPU or a control group.
    pub(crate) fn has_dimensions(&self) -> bool {
        !self.dimensions().is_empty()
    }
}

impl std::fmt::Display for SampleFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cpu = self.cpu.map(|cpu| cpu.to_string());
        let named = [
            ("app", &self.app),
            ("thread", &self.thread),
            ("cpu", &cpu),
            ("cgroup", &self.cgroup),
            ("service", &self.service),
        ];
        let texts = named.iter().filter_map(|(what, value)| Some(format!("{what} '{}'", value.as_ref()?)));
        f.write_str(&texts.collect::<Vec<_>>().join(", "))
    }
}

/// Returns whether the path of a control group, or its usual name (`docker 3f2a…`), contains `part`.
pub fn is_of_service(cgroup: &str, part: &str) -> bool {
    cgroup.contains(part) || container(cgroup).is_some_and(|name| name.contains(part))
}

/// Returns whether the path or id of the image contains `part`; `None` matches every image.
pub fn wants(part: &Option<String>, record: &ImageRecord) -> bool {
    let Some(part) = part else { return true };
    path_to_text(&record.path).contains(part.as_str()) || record.id.as_str().contains(part.as_str())
}
