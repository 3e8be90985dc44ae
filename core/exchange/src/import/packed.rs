//! Files that were compressed as a whole by gzip, xz or zstd before they were sent.
//!
//! Enters: such a file. Leaves: its contents, in a temporary file that no one else can see, and the reason if it ends
//! early. Never here: more memory than a window, or more disk space than a profile can need.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, Write},
};

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;

/// The compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Gzip,
    Xz,
    Zstd,
}

/// The magic numbers of the supported compressions.
const READ: [(&[u8], Packing); 3] = [
    (&[0x1f, 0x8b], Packing::Gzip),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], Packing::Xz),
    (&[0x28, 0xb5, 0x2f, 0xfd], Packing::Zstd),
];
/// The magic numbers of file types that are recognized but not supported, each with its error message.
const NAMED: [(&[u8], &str); 6] = [
    (b"BZh", "it is compressed by bzip2: run bunzip2 first"),
    (&[0x04, 0x22, 0x4d, 0x18], "it is compressed by lz4: run unlz4 first"),
    (&[b'P', b'K', 3, 4], "it is a ZIP archive: unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7-Zip archive: unpack it first"),
    (b"QPERFSTREAM", "it is hotspot's own format: import the perf.data file that it was made from"),
    (b"\x7fELF", "it is a program or a library: import a profile of it"),
];

/// Limit of the compression ratio. Profiles compress to a tenth, those with copies of stacks to a fiftieth; a higher
/// ratio is hostile.
const RATIO_MAX: u64 = 256;
const ROOM_BYTES: u64 = 1 << 30;
/// Memory limit of xz in KiB; `xz -9` needs 65 MiB.
const XZ_KIB_MAX: u32 = 256 << 10;
/// Limit of the window of zstd, as a power of two: 128 MiB, which `zstd --long` uses.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

impl Packing {
    /// Returns the compression of a file that begins with these bytes.
    pub fn detect(start: &[u8]) -> Option<Packing> {
        READ.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, packing)| *packing)
    }

    /// Returns the name of the program that compresses in this way.
    pub fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Xz => "xz",
            Packing::Zstd => "zstd",
        }
    }

    fn reader<'a>(self, packed: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
        let packed = BufReader::new(packed);
        Ok(match self {
            Packing::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Packing::Xz => Box::new(XzReader::new_mem_limit(packed, true, XZ_KIB_MAX)),
            Packing::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(packed)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
        })
    }
}

/// Returns the error message for an unsupported type of file that begins with these bytes.
pub fn named(start: &[u8]) -> Option<&'static str> {
    NAMED.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, what)| *what)
}

/// Unpacks a file into a temporary file, and also returns why it ends early. The part before a truncation is unpacked.
pub fn unpack(mut file: File, packing: Packing) -> Result<(File, Option<String>), String> {
    let refused =
        |e: io::Error| format!("it is compressed by {}, and cannot be unpacked: {e}", packing.name());
    let packed_bytes = file.metadata().map_err(refused)?.len();
    let mut unpacked = tempfile::tempfile().map_err(refused)?;
    let room = ROOM_BYTES.saturating_add(packed_bytes.saturating_mul(RATIO_MAX));
    let ends_early = pour(packing, &mut file, &mut unpacked, room)?;
    unpacked.rewind().map_err(refused)?;
    Ok((unpacked, ends_early))
}

/// Unpacks into `to`, up to a limit of bytes.
pub fn pour(
    packing: Packing,
    from: impl Read,
    to: &mut impl Write,
    room: u64,
) -> Result<Option<String>, String> {
    let name = packing.name();
    let refused = |e: io::Error| format!("it is compressed by {name}, and cannot be unpacked: {e}");
    let mut reader = packing.reader(from).map_err(refused)?;
    let mut buffer = vec![0; 1 << 16];
    let mut bytes = 0;
    loop {
        let got = match reader.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(got) => got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if bytes == 0 => return Err(refused(e)),
            Err(e) => return Ok(Some(format!("{name} can unpack only a part of it ({e})"))),
        };
        bytes += got as u64;
        if bytes > room {
            return Err(format!(
                "it is compressed by {name}, and unpacked it has over {room} bytes, more than {RATIO_MAX} times as many"
            ));
        }
        to.write_all(&buffer[..got]).map_err(|e| format!("its unpacked bytes cannot be stored: {e}"))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn truncated_files_are_unpacked_in_part_and_bombs_are_refused() {
        let text: Vec<u8> =
            (0..200_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        for (packing, packed) in
            [(Packing::Gzip, gzip(&text)), (Packing::Zstd, zstd::encode_all(&text[..], 1).unwrap())]
        {
            assert_eq!(Packing::detect(&packed), Some(packing));
            let mut whole = Vec::new();
            assert_eq!(pour(packing, &packed[..], &mut whole, 1 << 20), Ok(None));
            assert!(whole == text, "{packing:?}");
            let mut part = Vec::new();
            let reason = pour(packing, &packed[..packed.len() / 2], &mut part, 1 << 20).unwrap().unwrap();
            assert!(reason.contains(packing.name()), "{reason}");
            assert!(!part.is_empty() && text.starts_with(&part), "{packing:?}: {} bytes", part.len());
            let refused = pour(packing, &packed[..], &mut Vec::new(), 1 << 12).unwrap_err();
            assert!(refused.contains(packing.name()), "{refused}");
            let refused = pour(packing, &packed[..7], &mut Vec::new(), 1 << 20).unwrap_err();
            assert!(refused.contains(packing.name()), "{refused}");
        }
    }
}
