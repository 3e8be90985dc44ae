//! Files that gzip, xz or zstd compressed as a whole, as people send them.
//!
//! Enters: such a file. Leaves: what is in it, in a temporary file that nobody else sees; why it ends early. Never here: more of it in
//! memory than a window, more on the disk than a profile can have.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, Write},
};

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Gzip,
    Xz,
    Zstd,
}

/// Begins of files that are compressed in ways that are read …
const READ: [(&[u8], Packing); 3] = [
    (&[0x1f, 0x8b], Packing::Gzip),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], Packing::Xz),
    (&[0x28, 0xb5, 0x2f, 0xfd], Packing::Zstd),
];
/// … and of others.
const NAMED: [(&[u8], &str); 6] = [
    (b"BZh", "it is compressed by bzip2: run bunzip2 first"),
    (&[0x04, 0x22, 0x4d, 0x18], "it is compressed by lz4: run unlz4 first"),
    (&[b'P', b'K', 3, 4], "it is a ZIP archive: unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7-Zip archive: unpack it first"),
    (b"QPERFSTREAM", "it is hotspot's own format: import the perf.data file that it was made of"),
    (b"\x7fELF", "it is a program or a library: import what perf recorded of it"),
];

/// Profiles compress to a tenth, those with copies of stacks to a fiftieth: what becomes more is hostile.
const RATIO_MAX: u64 = 256;
const ROOM_BYTES: u64 = 1 << 30;
/// `xz -9` needs 65 MiB.
const XZ_KIB_MAX: u32 = 256 << 10;
/// A window of 128 MiB: `zstd --long`.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

impl Packing {
    /// How a file that begins so is compressed.
    pub fn of(start: &[u8]) -> Option<Packing> {
        READ.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, packing)| *packing)
    }

    /// The program that compresses so.
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

/// What a file is that begins so, and that is not read.
pub fn named(start: &[u8]) -> Option<&'static str> {
    NAMED.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, what)| *what)
}

/// Unpacks a file into a temporary one; also why it ends early. What is there of a file that was cut off is unpacked.
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

/// Unpacks into `to`, so many bytes at most.
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
            Err(e) => return Ok(Some(format!("{name} cannot unpack it to its end ({e})"))),
        };
        bytes += got as u64;
        if bytes > room {
            return Err(format!(
                "it is compressed by {name}, to less than a {RATIO_MAX}th of more than {room} bytes"
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
    fn what_is_there_of_a_cut_file_is_unpacked_and_a_bomb_is_refused() {
        let text: Vec<u8> =
            (0..200_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        for (packing, packed) in
            [(Packing::Gzip, gzip(&text)), (Packing::Zstd, zstd::encode_all(&text[..], 1).unwrap())]
        {
            assert_eq!(Packing::of(&packed), Some(packing));
            let mut whole = Vec::new();
            assert_eq!(pour(packing, &packed[..], &mut whole, 1 << 20), Ok(None));
            assert!(whole == text, "{packing:?}");
            let mut part = Vec::new();
            let told = pour(packing, &packed[..packed.len() / 2], &mut part, 1 << 20).unwrap().unwrap();
            assert!(told.contains(packing.name()), "{told}");
            assert!(!part.is_empty() && text.starts_with(&part), "{packing:?}: {} bytes", part.len());
            let refused = pour(packing, &packed[..], &mut Vec::new(), 1 << 12).unwrap_err();
            assert!(refused.contains(packing.name()), "{refused}");
            let refused = pour(packing, &packed[..7], &mut Vec::new(), 1 << 20).unwrap_err();
            assert!(refused.contains(packing.name()), "{refused}");
        }
    }
}
