//! Jumps from elsewhere into functions.
//!
//! Enters: the code of an image, and ranges of addresses. Leaves: the jumps that may lead into those ranges. Far jumps are found
//! without decoding: any byte may begin one, so a few that are found are none, but none is missing. Complexity: linear in the
//! code, about a nanosecond a byte.

use std::ops::Range;

/// A jump: its first byte, or the one after a prefix, and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Address of the opcode's last byte.
    pub from: u64,
    /// Address that it leads to.
    pub to: u64,
}

/// Returns the direct jumps with 32-bit displacements, conditional or not, in code at `address` that may lead into `ranges`,
/// which must be ascending and must not overlap.
pub fn far_jumps_into(code: &[u8], address: u64, ranges: &[Range<u64>]) -> Vec<Jump> {
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return Vec::new() };
    let outer = first.start..last.end;
    let mut found = Vec::new();
    for (at, window) in code.windows(5).enumerate() {
        // `jmp`: e9; `jcc`: 0f 80 to 0f 8f.
        let is_jump = window[0] == 0xe9 || (window[0] & 0xf0 == 0x80 && at > 0 && code[at - 1] == 0x0f);
        if !is_jump {
            continue;
        }
        let distance = i32::from_le_bytes([window[1], window[2], window[3], window[4]]);
        let from = address.wrapping_add(at as u64);
        let to = from.wrapping_add(5).wrapping_add_signed(distance.into());
        if outer.contains(&to) {
            let range = ranges.partition_point(|range| range.end <= to);
            if ranges.get(range).is_some_and(|range| range.contains(&to)) {
                found.push(Jump { from, to });
            }
        }
    }
    found
}
