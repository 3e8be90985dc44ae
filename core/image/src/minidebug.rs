//! Symbols that a stripped program contains in compressed form: `.gnu_debugdata` ("minidebuginfo").
//!
//! Input: the content of the section, an xz-compressed ELF file (GDB manual, "MiniDebugInfo"). Output: the bytes of that
//! file. Memory stays below the limits here, whatever the section claims.

use std::io::Read;

use lzma_rust2::XzReader;

/// Name of the section.
pub(crate) const SECTION: &str = ".gnu_debugdata";
/// Largest size of a file of symbols that is accepted. Those of the largest programs in Fedora take some 20 MiB.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;
/// Memory limit of the decoder in KiB for its dictionary and tables: as much as the highest preset of xz needs.
const DECODER_KIB_MAX: u32 = 66 << 10;

/// Decompresses the section. The error says why it cannot be used.
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

    /// Output of `printf hello | xz --check=crc32`, xz 5.4.1.
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
