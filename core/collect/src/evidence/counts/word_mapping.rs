//! The mapping that a word lies in.
//!
//! Enters: a process and a word. Leaves: whether the word may be watched. Never here: the word's value.

use dwell_profile::{Pid, VirtualAddress};

use super::candidates::Word;

/// Returns why a word must not be watched: it is shared through a file or with another process, or no watchpoint can be
/// set on it.
pub fn refused(pid: Pid, word: Word) -> Option<&'static str> {
    if !word.address.0.is_multiple_of(u64::from(word.size)) {
        return Some("not aligned");
    }
    let Ok(maps) = std::fs::read_to_string(format!("/proc/{pid}/maps")) else { return Some("gone") };
    let mapping = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok().map(VirtualAddress);
        let (start, end) = (address(start)?, address(end)?);
        (start..end).contains(&word.address).then(|| rest.get(..4).unwrap_or_default())
    });
    match mapping {
        Some(access) if access.ends_with('s') => Some("shared memory"),
        Some(access) if access.contains('w') => None,
        _ => Some("no memory of the program"),
    }
}
