//! The CPUs that are online, as sysfs lists them.

use crate::CollectError;

/// The CPUs in `/sys/devices/system/cpu/online`: `0-3,8`.
pub fn online_cpus() -> Result<Vec<u32>, CollectError> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online")
        .map_err(|source| CollectError::System { action: "list the CPUs", source })?;
    Ok(parse_cpu_list(&list))
}

fn parse_cpu_list(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn cpu_lists_are_read() {
        assert_eq!(super::parse_cpu_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(super::parse_cpu_list("0\n"), [0]);
        assert_eq!(super::parse_cpu_list(""), [0; 0]);
    }
}
