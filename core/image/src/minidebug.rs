//! The symbols that a stripped program carries packed within itself: `.gnu_debugdata` ("minidebuginfo").
//!
//! Enters: the section's content, an xz-compressed ELF file (GDB manual, "MiniDebugInfo"). Leaves: that file's bytes. Never
//! here: more memory than the bounds below, whatever the section claims.

use std::io::Read;

use lzma_rust2::XzReader;

/// The section's name.
pub(crate) const SECTION: &str = ".gnu_debugdata";
/// A larger file of symbols is refused. Those of the largest programs that Fedora ships take some 20 MiB.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;
/// The decoder's dictionary and tables: what the highest preset of xz needs.
const DECODER_KIB_MAX: u32 = 66 << 10;

/// Unpacks the section; the error says why it cannot be used.
pub(crate) fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut reader = XzReader::new_mem_limit(packed, true, DECODER_KIB_MAX).take(UNPACKED_BYTES_MAX + 1);
    reader.read_to_end(&mut bytes).map_err(|error| format!("{SECTION} cannot be unpacked: {error}"))?;
    if bytes.len() as u64 > UNPACKED_BYTES_MAX {
        return Err(format!("{SECTION} is larger than {} MiB unpacked", UNPACKED_BYTES_MAX >> 20));
    }
    bytes.shrink_to_fit();
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::unpack;

    /// `printf hello | xz --check=crc32`, xz 5.4.1.
    const HELLO: &[u8] = include_bytes!("../tests/image/hello.xz");

    #[test]
    fn whole_streams_are_unpacked_and_damaged_ones_refused() {
        assert_eq!(unpack(HELLO).unwrap(), b"hello");
        for length in 0..HELLO.len() {
            assert!(unpack(&HELLO[..length]).is_err(), "cut off after {length} bytes");
        }
        for at in 0..HELLO.len() {
            let mut damaged = HELLO.to_vec();
            damaged[at] ^= 0x41;
            assert_ne!(unpack(&damaged).as_deref(), Ok(&b"other"[..]), "no panic");
        }
    }
}
