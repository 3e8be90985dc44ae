//! The CPUs, as sysfs lists them.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
};

use dwell_profile::CpuId;

use crate::CollectError;

/// Maximum size of a list in bytes: sysfs writes one page at most.
const LIST_BYTES_MAX: usize = 4096;

/// `/sys/devices/system/cpu/online`, kept open: it is read every second or two, and opening the file costs more than reading
/// it.
pub struct OnlineCpus(File);

impl OnlineCpus {
    /// Opens the list.
    pub fn open() -> Result<Self, CollectError> {
        File::open("/sys/devices/system/cpu/online").map(OnlineCpus).map_err(unlisted)
    }

    /// Returns the CPUs that are online now, parsed from a list such as `0-3,8`.
    pub fn list(&self) -> Result<Vec<CpuId>, CollectError> {
        let mut bytes = [0; LIST_BYTES_MAX];
        let length = self.0.read_at(&mut bytes, 0).map_err(unlisted)?;
        Ok(parse_cpu_list(&String::from_utf8_lossy(&bytes[..length])))
    }
}

/// Returns the CPUs that are online now, without keeping the list open.
pub fn online_cpus() -> Result<Vec<CpuId>, CollectError> {
    OnlineCpus::open()?.list()
}

/// Returns the CPUs that can ever be online.
pub fn possible_cpus() -> Result<Vec<CpuId>, CollectError> {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible").map_err(unlisted)?;
    Ok(parse_cpu_list(&list))
}

fn unlisted(source: io::Error) -> CollectError {
    CollectError::System { action: "list the CPUs", source }
}

fn parse_cpu_list(list: &str) -> Vec<CpuId> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().map(CpuId).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn cpu_lists_are_read() {
        assert_eq!(super::parse_cpu_list("0-3,8\n"), [0, 1, 2, 3, 8].map(super::CpuId));
        assert_eq!(super::parse_cpu_list("0\n"), [super::CpuId(0)]);
        assert_eq!(super::parse_cpu_list(""), []);
    }
}
