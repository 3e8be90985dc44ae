//! Names of tracepoints from ftrace's descriptions of their formats.
//!
//! Enters: the bytes after PERF_RECORD_HEADER_TRACING_DATA. Leaves: names by the number in an event's attribute. Never
//! here: the fields of a tracepoint; an error, since a name may be missing.
//!
//! In streams of perf before Linux 4.16 this is the only source of the names.

use rustc_hash::FxHashMap;

use super::fields::{half_at, word_at};

const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Returns `system:name` of each tracepoint, up to the first malformed byte.
pub fn tracepoints(bytes: &[u8]) -> FxHashMap<u64, String> {
    let mut names = FxHashMap::default();
    read(bytes, &mut names);
    names
}

fn read(bytes: &[u8], names: &mut FxHashMap<u64, String>) -> Option<()> {
    let mut walk = Walk { rest: bytes.strip_prefix(MAGIC)?, little_endian: true };
    walk.text()?; // the version of the format
    walk.little_endian = walk.take(1)? == [0];
    walk.take(5)?; // sizes of a long and of a page
    for _ in ["header_page", "header_event"] {
        walk.text()?;
        walk.sized()?;
    }
    for _ in 0..walk.half()? {
        walk.sized()?; // the formats of ftrace itself
    }
    for _ in 0..walk.half()? {
        let system = walk.text()?;
        for _ in 0..walk.half()? {
            if let Some((number, name)) = number_and_name(&String::from_utf8_lossy(walk.sized()?)) {
                names.insert(number, format!("{}:{name}", String::from_utf8_lossy(system)));
            }
        }
    }
    Some(())
}

/// Returns the number and the name from the first lines of a format, `name: NAME` and `ID: NUMBER`.
fn number_and_name(format: &str) -> Option<(u64, &str)> {
    let find = |key| format.lines().take(4).find_map(|line| line.strip_prefix(key));
    Some((find("ID: ")?.trim().parse().ok()?, find("name: ")?.trim()))
}

struct Walk<'a> {
    rest: &'a [u8],
    little_endian: bool,
}

impl<'a> Walk<'a> {
    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(count).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    /// Reads a text that is terminated by a zero.
    fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let text = self.take(end as u64)?;
        self.take(1)?;
        Some(text)
    }

    fn half(&mut self) -> Option<u32> {
        half_at(self.take(4)?, 0, self.little_endian)
    }

    /// Reads bytes that are preceded by their number.
    fn sized(&mut self) -> Option<&'a [u8]> {
        let count = word_at(self.take(8)?, 0, self.little_endian)?;
        self.take(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracepoint_has_the_name_of_its_system_and_its_own() {
        let sized = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
        let one = 1u32.to_le_bytes();
        let bytes = [
            MAGIC,
            b"0.5\0\0\x08\0\x10\0\0header_page\0",
            &sized("page"),
            b"header_event\0",
            &sized("event"),
            &one,
            &sized("function"),
            &one,
            b"sched\0",
            &one,
            &sized("name: sched_switch\nID: 320\nformat:\n"),
        ]
        .concat();
        let names = tracepoints(&bytes);
        assert_eq!(names.get(&320).map(String::as_str), Some("sched:sched_switch"));
        for end in 0..bytes.len() {
            assert!(tracepoints(&bytes[..end]).is_empty(), "{end}");
        }
    }
}
