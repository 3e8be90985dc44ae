//! Whether a perf.data file's sizes are sane, before a parser believes them.
//!
//! Enters: a file. Leaves: the same file, or what is wrong with it; where its records are cut off, how many bytes of them
//! are whole. Never here: what records mean. The parser allocates what a section or an AUX record says it needs, so each
//! is held against the file's length first. Cost: one look at each record's header.
//!
//! The format: `tools/perf/Documentation/perf.data-file-format.txt` of Linux.

use std::io::{BufReader, Read, Seek, SeekFrom};

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One that was written to a disk: header, records, sections of features.
    File {
        /// Bytes of its header that tell how many bytes of records there are …
        data_size_at: u64,
        /// … and how many there are indeed, in whole records.
        data_bytes: u64,
        /// Whether the header promised more.
        cut: bool,
        /// Whether integers have their low bytes first.
        little_endian: bool,
    },
    /// A stream: everything is a record.
    Pipe {
        /// Bytes of whole records, with the header.
        bytes: u64,
        /// Whether the last record is cut off.
        cut: bool,
    },
}

/// Where a file's header has its features' bits …
pub const FEATURES_AT: u64 = 72;
/// … and where it ends.
pub const HEADER_END: u64 = 104;

const MAGIC: &[u8; 8] = b"PERFILE2";
const MAGIC_SWAPPED: &[u8; 8] = b"2ELIFREP";
const PIPE_HEADER_BYTES: u64 = 16;
/// PERF_RECORD_AUXTRACE: its body's first word tells how many bytes of AUX data follow the record.
const AUXTRACE: u32 = 71;
const RECORD_HEADER_BYTES: u64 = 8;
/// Bits of the header that say which features have a section.
const FEATURE_WORDS: u64 = 4;

/// Looks at every size in the file.
pub fn check(file: &mut (impl Read + Seek)) -> Result<Shape, String> {
    let length = file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
    file.seek(SeekFrom::Start(0)).map_err(|e| e.to_string())?;
    let mut walk =
        Walk { reader: BufReader::with_capacity(1 << 18, file), at: 0, length, little_endian: true };
    let magic = walk.bytes().ok_or("it is too short")?;
    walk.little_endian = match &magic {
        MAGIC => true,
        MAGIC_SWAPPED => false,
        _ => return Err("it does not begin with PERFILE2".to_owned()),
    };
    let header_bytes = walk.u64().ok_or("its header is cut off")?;
    if header_bytes == PIPE_HEADER_BYTES {
        let (bytes, cut) = walk.records(length);
        return Ok(Shape::Pipe { bytes, cut });
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
        if attribute_bytes > 1 << 16 || (attribute_bytes == 0 && attributes.1 > 0) {
            return Err(format!("its attributes claim {attribute_bytes} bytes each"));
        }
        let (start, size) = data;
        let end = start.checked_add(size).ok_or("its records claim to be endless")?;
        if start > self.length {
            return Err("its records begin behind its end".to_owned());
        }
        self.seek(start);
        let (whole_end, cut) = self.records(if size == 0 { self.length } else { end.min(self.length) });
        let shape = |cut| Shape::File {
            data_size_at: 48,
            data_bytes: whole_end - start,
            cut,
            little_endian: self.little_endian,
        };
        // A recorder that was killed had not yet written the size, nor what names events and images.
        if cut || size == 0 || end > self.length {
            return Ok(shape(true));
        }
        let shape = shape(false);
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

    /// Walks over whole records up to `end`; where they end, and whether something is left that is none.
    fn records(&mut self, end: u64) -> (u64, bool) {
        let mut whole = self.at;
        while self.at + RECORD_HEADER_BYTES <= end {
            let (Some(kind), Some(misc_and_size)) = (self.u32(), self.u32()) else { break };
            let size =
                u64::from(if self.little_endian { misc_and_size >> 16 } else { misc_and_size & 0xffff });
            let mut next = whole + size;
            if size < RECORD_HEADER_BYTES || next > end {
                break;
            }
            if kind == AUXTRACE {
                let Some(aux_bytes) = self.u64() else { break };
                next = match next.checked_add(aux_bytes) {
                    Some(next) if next <= end => next,
                    _ => break,
                };
            }
            self.seek(next);
            whole = next;
        }
        (whole, whole < end)
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
