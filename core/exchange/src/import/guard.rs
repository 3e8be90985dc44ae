//! Whether a perf.data file's sizes are sane, before a parser believes them.
//!
//! Enters: a file. Leaves: where its records lie, or what is wrong with it. Never here: the records themselves, whose sizes are
//! held against the file when they are read, and what anything means. The parser allocates what a section says it needs,
//! so each is held against the file's length first.
//!
//! The format: `tools/perf/Documentation/perf.data-file-format.txt` of Linux.

use std::io::{BufReader, Read, Seek, SeekFrom};

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One that was written to a disk: header, records, sections of features.
    File {
        /// Where its records begin.
        start: u64,
        /// How many bytes of them there are at most.
        data_bytes: u64,
        /// Whether the header promised more.
        cut: bool,
        /// Whether integers have their low bytes first.
        little_endian: bool,
    },
    /// A stream: everything is a record.
    Pipe {
        /// Where the records begin that are not of attributes or features, which come first.
        start: u64,
        /// How many bytes follow.
        data_bytes: u64,
    },
}

/// Where a file's header tells how many bytes of records there are …
pub const DATA_SIZE_AT: u64 = 48;
/// … where it has its features' bits …
pub const FEATURES_AT: u64 = 72;
/// … and where it ends.
pub const HEADER_END: u64 = 104;

const MAGIC: &[u8; 8] = b"PERFILE2";
const MAGIC_SWAPPED: &[u8; 8] = b"2ELIFREP";
const PIPE_HEADER_BYTES: u64 = 16;
/// PERF_RECORD_HEADER_ATTR and PERF_RECORD_HEADER_FEATURE.
const METADATA: [u32; 2] = [64, 80];
const RECORD_HEADER_BYTES: u64 = 8;
/// Bits of the header that say which features have a section.
const FEATURE_WORDS: u64 = 4;

/// Looks at every size in the file but those of its records.
pub fn check(file: &mut (impl Read + Seek)) -> Result<Shape, String> {
    let length = file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
    file.seek(SeekFrom::Start(0)).map_err(|e| e.to_string())?;
    let mut walk = Walk { reader: BufReader::new(file), at: 0, length, little_endian: true };
    let magic = walk.bytes().ok_or("it is too short")?;
    walk.little_endian = match &magic {
        MAGIC => true,
        MAGIC_SWAPPED => false,
        _ => return Err("it does not begin with PERFILE2".to_owned()),
    };
    let header_bytes = walk.u64().ok_or("its header is cut off")?;
    if header_bytes == PIPE_HEADER_BYTES {
        let start = walk.metadata();
        return Ok(Shape::Pipe { start, data_bytes: length - start });
    }
    walk.file(header_bytes)
}

struct Walk<R> {
    reader: BufReader<R>,
    at: u64,
    length: u64,
    little_endian: bool,
}

impl<R: Read + Seek> Walk<R> {
    fn file(&mut self, header_bytes: u64) -> Result<Shape, String> {
        if !(104..=1 << 16).contains(&header_bytes) || header_bytes > self.length {
            return Err(format!("its header claims {header_bytes} bytes"));
        }
        let cut_off = || "its header is cut off".to_owned();
        let attribute_bytes = self.u64().ok_or_else(cut_off)?;
        let mut sections = [(0, 0); 3];
        for section in &mut sections {
            *section = (self.u64().ok_or_else(cut_off)?, self.u64().ok_or_else(cut_off)?);
        }
        let mut features = 0;
        for _ in 0..FEATURE_WORDS {
            features += u64::from(self.u64().ok_or_else(cut_off)?.count_ones());
        }
        let [attributes, data, types] = sections;
        for (what, section) in [("attributes", attributes), ("event types", types)] {
            self.check_section(what, section)?;
        }
        // The parser divides by it, even where the section is empty.
        if !(1..=1 << 16).contains(&attribute_bytes) {
            return Err(format!("its attributes claim {attribute_bytes} bytes each"));
        }
        let (start, size) = data;
        let end = start.checked_add(size).ok_or("its records claim to be endless")?;
        if start > self.length {
            return Err("its records begin behind its end".to_owned());
        }
        // A recorder that was killed had not yet written the size, nor what names events and images.
        let cut = size == 0 || end > self.length;
        let data_bytes = if cut { self.length - start } else { size };
        let shape = Shape::File { start, data_bytes, cut, little_endian: self.little_endian };
        if cut {
            return Ok(shape);
        }
        self.seek(end);
        for _ in 0..features {
            let Some(section) = self.u64().zip(self.u64()) else {
                return Err("its table of features is cut off".to_owned());
            };
            self.check_section("a feature", section)?;
        }
        Ok(shape)
    }

    fn check_section(&self, what: &str, (offset, size): (u64, u64)) -> Result<(), String> {
        match offset.checked_add(size) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(format!("{what}: {size} bytes at {offset} are not in its {} bytes", self.length)),
        }
    }

    /// Walks over the whole records of attributes and features that a stream begins with; where they end.
    fn metadata(&mut self) -> u64 {
        let mut end = self.at;
        while let (Some(kind), Some(misc_and_size)) = (self.u32(), self.u32()) {
            let size =
                u64::from(if self.little_endian { misc_and_size >> 16 } else { misc_and_size & 0xffff });
            if !METADATA.contains(&kind) || size < RECORD_HEADER_BYTES || end + size > self.length {
                break;
            }
            end += size;
            self.seek(end);
        }
        end
    }

    fn seek(&mut self, to: u64) {
        // Within the buffer this is an addition; a failure shows at the next read.
        let forward = to.wrapping_sub(self.at) as i64;
        if self.reader.seek_relative(forward).is_ok() {
            self.at = to;
        }
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).ok()?;
        self.at += N as u64;
        Some(bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.bytes()?;
        Some(if self.little_endian { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn u64(&mut self) -> Option<u64> {
        let bytes = self.bytes()?;
        Some(if self.little_endian { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
    }
}
