//! The part of a perf.data file before its records: where the records are, and which events it has.
//!
//! Enters: a file. Leaves: its events, its features and the position of its records, or what is wrong with the file.
//! Never here: records of samples, whose sizes are checked when they are read; an allocation larger than the length of
//! the file justifies.
//!
//! A file has a header, records and sections of features. In a stream (`perf record -o -`) everything is a record, and
//! some records are followed by bytes that are not records. The header is read here because linux-perf-data stops at
//! the first record that is neither an attribute nor a feature, while names of events (PERF_RECORD_EVENT_UPDATE) and
//! build IDs come later.
//!
//! The format: `tools/perf/Documentation/perf.data-file-format.txt` of Linux.

use std::io::{BufReader, Read, Seek, SeekFrom};

use linux_perf_data::linux_perf_event_reader::{AttrFlags, Endianness, RecordIdParseInfo};
use rustc_hash::FxHashMap;

use super::{
    attribute::{Attribute, by_id},
    features::{Features, WANTED, until_zero},
    fields::{half_at, word_at},
    tracing::tracepoints,
};

/// A perf.data file without its records.
#[derive(Debug)]
pub struct Header {
    /// Whether integers are little-endian.
    pub little_endian: bool,
    /// Position of the first record.
    pub start: u64,
    /// Limit of the size of all records, in bytes.
    pub data_bytes: u64,
    /// Whether the file is shorter than its header says.
    pub cut: bool,
    /// The events; there is at least one, and their names differ.
    pub attributes: Vec<Attribute>,
    /// What the file reports besides events and records.
    pub features: Features,
}

impl Header {
    /// Returns the byte order as the parser of records expects it.
    pub fn endian(&self) -> Endianness {
        if self.little_endian { Endianness::LittleEndian } else { Endianness::BigEndian }
    }
}

/// Type of a record that is followed by more bytes, which its size does not include.
pub const TRACING_DATA: u32 = 66;
/// Type of a record whose first body word is the number of bytes of AUX data that follow it.
pub const AUXTRACE: u32 = 71;

const ATTRIBUTE: u32 = 64;
const EVENT_TYPE: u32 = 65;
const BUILD_ID: u32 = 67;
const EVENT_UPDATE: u32 = 78;
const FEATURE: u32 = 80;
const RECORD_HEADER_BYTES: usize = 8;
/// Value of PERF_EVENT_UPDATE__NAME.
const UPDATE_NAME: u64 = 2;
const TRACEPOINT: u32 = 2;

/// The magic numbers. Before Linux 2.6.39 they did not identify the byte order.
const MAGICS: [(&[u8; 8], Option<bool>); 3] =
    [(b"PERFILE2", Some(true)), (b"2ELIFREP", Some(false)), (b"PERFFILE", None)];
const STREAM_HEADER_BYTES: u64 = 16;
const FILE_HEADER_BYTES: usize = 104;
const SECTION_BYTES: usize = 16;
/// Size limit of the section of a feature, in bytes. Features are texts and lists; a larger section is left out.
const FEATURE_BYTES_MAX: u64 = 64 << 20;

/// Returns whether a file that begins with these bytes is a perf.data file.
pub fn is_perf_data(start: &[u8]) -> bool {
    MAGICS.iter().any(|(magic, _)| start.starts_with(*magic))
}

/// Reads everything except records.
pub fn read(file: &mut (impl Read + Seek)) -> Result<Header, String> {
    let length = file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
    let mut walk = Walk { reader: BufReader::new(file), at: length, length, little_endian: true };
    let start = walk.bytes(0, 16).ok_or("it is too short")?;
    let magic = MAGICS.iter().find(|(magic, _)| start.starts_with(*magic));
    let (_, little_endian) = magic.ok_or("it does not begin with PERFILE2")?;
    let plausible = |little_endian| matches!(word_at(&start, 8, little_endian), Some(1..=0xffff));
    walk.little_endian = little_endian.unwrap_or_else(|| plausible(true));
    let header_bytes = walk.word(&start, 8);
    let mut header =
        if header_bytes == STREAM_HEADER_BYTES { walk.stream() } else { walk.file(header_bytes) }?;
    check_ids(&header.attributes)?;
    tell_apart(&mut header.attributes);
    Ok(header)
}

/// Checks that the records of all events have the event's id at the same position, since the id must be read before the
/// event is known.
fn check_ids(attributes: &[Attribute]) -> Result<(), String> {
    let [first, others @ ..] = attributes else { return Err("it has no events".to_owned()) };
    if attributes.len() > usize::from(u16::MAX) {
        return Err(format!("it has {} events", attributes.len()));
    }
    let place = |a: &Attribute| {
        let all = a.attr.flags.contains(AttrFlags::SAMPLE_ID_ALL);
        let ids = RecordIdParseInfo::new(&a.attr);
        (ids.sample_record_id_offset_from_start, all.then_some(ids.nonsample_record_id_offset_from_end))
    };
    match others.iter().find(|a| place(a) != place(first)) {
        Some(other) => Err(format!(
            "samples of {} and {} have the id of their event at different places, so the id cannot be read",
            first.name, other.name
        )),
        None => Ok(()),
    }
}

/// Numbers events that have the same name, in the order in which perf lists them: `cpu-clock`, `cpu-clock#2`.
fn tell_apart(attributes: &mut [Attribute]) {
    let mut seen: FxHashMap<String, u32> = FxHashMap::default();
    for attribute in attributes {
        let count = seen.entry(attribute.name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            attribute.name = format!("{}#{count}", attribute.name);
        }
    }
}

struct Walk<R> {
    reader: BufReader<R>,
    at: u64,
    length: u64,
    little_endian: bool,
}

impl<R: Read + Seek> Walk<R> {
    fn file(&mut self, header_bytes: u64) -> Result<Header, String> {
        if !(104..=1 << 16).contains(&header_bytes) || header_bytes > self.length {
            return Err(format!("its header claims {header_bytes} bytes"));
        }
        let header = self.bytes(0, FILE_HEADER_BYTES as u64).ok_or("its header is cut off")?;
        let attribute_bytes = self.word(&header, 16);
        let section = |at| (self.word(&header, at), self.word(&header, at + 8));
        let (attributes, (start, size)) = (section(24), section(40));
        let features: Vec<u32> = (0..256)
            .filter(|bit| self.word(&header, 72 + 8 * (*bit as usize / 64)) >> (bit % 64) & 1 == 1)
            .collect();
        let mut attributes = self.attributes(attributes, attribute_bytes)?;
        let end = start.checked_add(size).ok_or("the size of its records is too large")?;
        if start > self.length {
            return Err("its records begin after its end".to_owned());
        }
        // If the recorder was killed, it had not yet written the size, nor the names of events and images.
        let mut cut = size == 0 || end > self.length;
        let data_bytes = if cut { self.length - start } else { size };
        let features = if cut { self.no_features() } else { self.features(end, &features, &mut cut) };
        features.name_events(&mut attributes);
        let little_endian = self.little_endian;
        Ok(Header { little_endian, start, data_bytes, cut, attributes, features })
    }

    /// Reads the attributes, each followed by the position of its ids.
    fn attributes(&mut self, (offset, size): (u64, u64), each: u64) -> Result<Vec<Attribute>, String> {
        if !(SECTION_BYTES as u64 + 1..=1 << 16).contains(&each) {
            return Err(format!("its attributes claim {each} bytes each"));
        }
        let not_there =
            || format!("attributes: {size} bytes at {offset} lie outside of its {} bytes", self.length);
        let section = offset.checked_add(size).filter(|end| *end <= self.length).ok_or_else(not_there)?;
        let mut attributes = Vec::new();
        let mut at = offset;
        // No two events share ids, so all ids together cannot exceed the file's length.
        let mut room = self.length;
        while at + each <= section && attributes.len() <= usize::from(u16::MAX) {
            let bytes = self.bytes(at, each).ok_or("an attribute is cut off")?;
            let before_ids = bytes.len() - SECTION_BYTES;
            let parsed = Attribute::parse(&bytes[..before_ids], self.little_endian);
            let (mut attribute, own_bytes) = parsed.ok_or("an attribute is cut off")?;
            let (ids_at, ids_bytes) = (self.word(&bytes, own_bytes), self.word(&bytes, own_bytes + 8));
            room = room.checked_sub(ids_bytes).ok_or("its events claim more ids than fit into it")?;
            let ids = self.bytes(ids_at, ids_bytes).ok_or("the ids of an event lie outside of it")?;
            attribute.ids = words(&ids, self.little_endian);
            attributes.push(attribute);
            at += each;
        }
        Ok(attributes)
    }

    fn no_features(&self) -> Features {
        Features::new(self.little_endian)
    }

    /// Reads the sections of features, whose table follows the records. Missing sections are left out, because a file
    /// that is truncated after its records still has all samples.
    fn features(&mut self, table: u64, numbers: &[u32], cut: &mut bool) -> Features {
        let mut features = self.no_features();
        let table = self.bytes(table, (numbers.len() * SECTION_BYTES) as u64);
        *cut |= table.is_none();
        for (section, number) in table.unwrap_or_default().chunks_exact(SECTION_BYTES).zip(numbers) {
            let (offset, size) = (self.word(section, 0), self.word(section, 8));
            let is_there = offset.checked_add(size).is_some_and(|end| end <= self.length);
            *cut |= !is_there;
            if is_there && WANTED.contains(number) && size <= FEATURE_BYTES_MAX {
                features.insert(*number, self.bytes(offset, size).unwrap_or_default());
            }
        }
        features
    }

    /// Walks all records of a stream, but reads only those about events and features.
    fn stream(&mut self) -> Result<Header, String> {
        let little_endian = self.little_endian;
        let mut stream = Stream::new(little_endian);
        let mut at = STREAM_HEADER_BYTES;
        let mut head = [0; RECORD_HEADER_BYTES];
        while self.fill(at, &mut head).is_some() {
            let kind = half_at(&head, 0, little_endian).unwrap_or(0);
            let size = record_bytes(&head, little_endian);
            if size < RECORD_HEADER_BYTES || at + size as u64 > self.length {
                break;
            }
            let record = if Stream::wants(kind) { self.bytes(at, size as u64) } else { None };
            let record = record.as_deref().unwrap_or(&head);
            let payload_bytes = payload_bytes(kind, &record[RECORD_HEADER_BYTES..], little_endian);
            at += size as u64;
            let is_read = kind == TRACING_DATA && payload_bytes <= FEATURE_BYTES_MAX;
            let payload = if is_read { self.bytes(at, payload_bytes) } else { None };
            stream.take(kind, record, &payload.unwrap_or_default());
            at = at.saturating_add(payload_bytes);
        }
        let (attributes, features) = stream.finish();
        let (start, data_bytes) = (STREAM_HEADER_BYTES, self.length - STREAM_HEADER_BYTES);
        Ok(Header { little_endian, start, data_bytes, cut: false, attributes, features })
    }

    /// Returns `count` bytes at `at`; `None` if the file does not have them.
    fn bytes(&mut self, at: u64, count: u64) -> Option<Vec<u8>> {
        at.checked_add(count).filter(|end| *end <= self.length)?;
        let mut bytes = vec![0; usize::try_from(count).ok()?];
        self.fill(at, &mut bytes)?;
        Some(bytes)
    }

    fn fill(&mut self, at: u64, bytes: &mut [u8]) -> Option<()> {
        at.checked_add(bytes.len() as u64).filter(|end| *end <= self.length)?;
        // A relative seek within the buffer only moves a position.
        let forward = at.wrapping_sub(self.at) as i64;
        self.reader.seek_relative(forward).ok()?;
        self.at = at;
        self.reader.read_exact(bytes).ok()?;
        self.at += bytes.len() as u64;
        Some(())
    }

    fn word(&self, bytes: &[u8], at: usize) -> u64 {
        word_at(bytes, at, self.little_endian).unwrap_or(0)
    }
}

/// Returns the size of a record from its header.
pub fn record_bytes(head: &[u8], little_endian: bool) -> usize {
    let size = head.get(6..8).and_then(|b| b.first_chunk()).copied().unwrap_or_default();
    usize::from(if little_endian { u16::from_le_bytes(size) } else { u16::from_be_bytes(size) })
}

/// Returns how many bytes follow a record that its size does not include.
pub fn payload_bytes(kind: u32, body: &[u8], little_endian: bool) -> u64 {
    match kind {
        TRACING_DATA => half_at(body, 0, little_endian).map_or(0, u64::from),
        AUXTRACE => word_at(body, 0, little_endian).unwrap_or(0),
        _ => 0,
    }
}

/// What the records of a stream report about events and features.
struct Stream {
    attributes: Vec<Attribute>,
    features: Features,
    names: Names,
    little_endian: bool,
}

impl Stream {
    fn new(little_endian: bool) -> Self {
        let (attributes, names) = (Vec::new(), Names::default());
        Stream { attributes, features: Features::new(little_endian), names, little_endian }
    }

    fn wants(kind: u32) -> bool {
        matches!(kind, ATTRIBUTE | EVENT_TYPE | TRACING_DATA | BUILD_ID | AUXTRACE | EVENT_UPDATE | FEATURE)
    }

    /// Processes a record and the bytes that follow it.
    fn take(&mut self, kind: u32, record: &[u8], payload: &[u8]) {
        let body = &record[RECORD_HEADER_BYTES..];
        match kind {
            ATTRIBUTE if self.attributes.len() <= usize::from(u16::MAX) => {
                if let Some((mut attribute, own_bytes)) = Attribute::parse(body, self.little_endian) {
                    attribute.ids = words(&body[own_bytes..], self.little_endian);
                    self.attributes.push(attribute);
                }
            }
            TRACING_DATA => self.names.by_config.extend(tracepoints(payload)),
            BUILD_ID => self.features.insert_build_id(record),
            EVENT_TYPE | EVENT_UPDATE => self.names.learn(kind, body, self.little_endian),
            FEATURE => {
                let number = word_at(body, 0, self.little_endian).and_then(|n| u32::try_from(n).ok());
                if let Some(number) = number.filter(|number| WANTED.contains(number)) {
                    self.features.insert(number, body[8..].to_vec());
                }
            }
            _ => {}
        }
    }

    fn finish(mut self) -> (Vec<Attribute>, Features) {
        self.names.give_to_tracepoints(&mut self.attributes);
        self.features.name_events(&mut self.attributes);
        self.names.give_to_ids(&mut self.attributes);
        (self.attributes, self.features)
    }
}

fn words(bytes: &[u8], little_endian: bool) -> Vec<u64> {
    bytes.chunks_exact(8).filter_map(|word| word_at(word, 0, little_endian)).collect()
}

/// Names of events that a stream reports separately from its attributes.
#[derive(Default)]
struct Names {
    by_id: FxHashMap<u64, String>,
    /// Names of tracepoints by number, for perf before Linux 3.12.
    by_config: FxHashMap<u64, String>,
}

impl Names {
    fn learn(&mut self, kind: u32, body: &[u8], little_endian: bool) {
        let word = |at| word_at(body, at, little_endian);
        let (names, key, name_at) = match kind {
            EVENT_TYPE => (&mut self.by_config, word(0), 8),
            _ if word(0) == Some(UPDATE_NAME) => (&mut self.by_id, word(8), 16),
            _ => return,
        };
        if let (Some(key), Some(name)) = (key, body.get(name_at..)) {
            names.insert(key, until_zero(name));
        }
    }

    fn give_to_tracepoints(&self, attributes: &mut [Attribute]) {
        for attribute in attributes.iter_mut().filter(|a| a.counter.0 == TRACEPOINT) {
            if let Some(name) = self.by_config.get(&attribute.counter.1) {
                attribute.name = name.clone();
            }
        }
    }

    fn give_to_ids(self, attributes: &mut [Attribute]) {
        let events = by_id(attributes);
        for (id, name) in self.by_id.into_iter().filter(|(_, name)| !name.is_empty()) {
            if let Some(event) = events.get(&id) {
                attributes[usize::from(*event)].name = name;
            }
        }
    }
}
