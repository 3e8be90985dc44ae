//! Integers in records, in the byte order of the machine that wrote them.

/// Returns the 8 bytes at `at` as an integer; `None` beyond the end.
pub fn word_at(bytes: &[u8], at: usize, little_endian: bool) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(if little_endian { u64::from_le_bytes(*bytes) } else { u64::from_be_bytes(*bytes) })
}

/// Returns the 4 bytes at `at` as an integer; `None` beyond the end.
pub fn half_at(bytes: &[u8], at: usize, little_endian: bool) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(if little_endian { u32::from_le_bytes(*bytes) } else { u32::from_be_bytes(*bytes) })
}
