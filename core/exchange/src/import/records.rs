//! Records of a perf.data file in order of time.
//!
//! Enters: the bytes from the first record on, and the positions of ids and times according to the events' attributes.
//! Leaves: every record of the kernel once, sorted by time; the number of records of AUX data and of samples without an
//! event. Never here: the meaning of a record; a size that was not checked against the remaining bytes.
//!
//! perf writes in rounds. Each round takes the contents of every CPU's ring, and PERF_RECORD_FINISHED_ROUND ends it. No
//! later record is older than the youngest record of the round before (`tools/perf/util/ordered-events.c`), so all
//! records up to that time can be sorted and returned. Each ring is sorted already, so the sort finds long runs.
//! Memory: two rounds, with the record and 16 bytes for each. `perf record --threads` writes a file for each thread and
//! does not end rounds: there all records form one round.

use std::io::{Read, Seek, SeekFrom};

use linux_perf_data::linux_perf_event_reader::{RecordParseInfo, RecordType};
use rustc_hash::FxHashMap;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::{
    attribute::by_id,
    fields::word_at,
    header::{AUXTRACE, Header, TRACING_DATA, payload_bytes, record_bytes},
};

const HEADER_BYTES: usize = 8;
/// PERF_RECORD_FINISHED_ROUND, and below other record types of perf's own.
const FINISHED_ROUND: u32 = 68;
const AUXTRACE_INFO: u32 = 70;
const COMPRESSED: u32 = 81;
/// A compressed record that begins with the number of its compressed bytes.
const COMPRESSED2: u32 = 83;
/// Record types from this one on are perf's own.
const USER_TYPES: u32 = 64;
/// Number of bytes that are read at a time: more than the longest record.
const INPUT_BYTES: usize = 1 << 17;
const _: () = assert!(INPUT_BYTES > u16::MAX as usize);
/// Limit of the compression ratio after an initial allowance. A higher ratio is hostile, because records contain times,
/// which differ.
const UNPACKED_RATIO_MAX: usize = 256;
const UNPACKED_ROOM: usize = 1 << 20;
/// Number of bytes that are unpacked at a time.
const UNPACKED_BYTES: usize = 1 << 16;
/// Size of the record size that is stored before each record.
const SIZE_BYTES: usize = 2;
/// Number of records that form a round of simpleperf, which does not mark rounds but writes almost in order.
const SIMPLEPERF_ROUND: usize = 1024;

/// A record of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The type of the record.
    pub kind: RecordType,
    /// The flags in the header.
    pub misc: u16,
    /// Index of the event that the record belongs to.
    pub event: usize,
    /// The bytes after the header.
    pub body: &'a [u8],
}

/// Iterates over all records.
pub struct Records<R> {
    input: Input<R>,
    /// Files that continue after the end of the first one.
    more: std::vec::IntoIter<(R, u64)>,
    /// Whether all records form one round.
    is_one_round: bool,
    unpacker: Option<Unpacker>,
    heads: Heads,
    order: Order,
    /// Number of records that form a round, if the file does not mark rounds.
    round: Option<usize>,
    ended: bool,
    /// Number of records of AUX data.
    pub aux_records: u64,
    /// Number of samples whose id belongs to no event.
    pub unknown_ids: u64,
    /// Whether the file ends in the middle of a record, or earlier than its header says.
    pub cut: bool,
    /// The error that ended reading early.
    pub failed: Option<String>,
}

impl<R: Read + Seek> Records<R> {
    /// Returns an iterator. `reader` is positioned at the first record, and the header says how many bytes of records
    /// follow. The files in `more` consist of records only, with the given numbers of bytes.
    pub fn new(reader: R, header: &Header, more: Vec<(R, u64)>) -> Self {
        Records {
            input: Input { reader, left: header.data_bytes, buffer: vec![0; INPUT_BYTES], at: 0, end: 0 },
            is_one_round: !more.is_empty(),
            more: more.into_iter(),
            unpacker: None,
            heads: Heads::new(header),
            order: Order::default(),
            round: header.features.is_simpleperf().then_some(SIMPLEPERF_ROUND),
            ended: false,
            aux_records: 0,
            unknown_ids: 0,
            cut: false,
            failed: None,
        }
    }

    /// Returns the next record.
    pub fn next(&mut self) -> Option<Record<'_>> {
        while self.order.is_drained() && !self.ended {
            self.order.make_room();
            if let Err(error) = self.read_round() {
                self.failed = Some(error);
                self.end();
            }
        }
        let (event, record) = self.order.next()?;
        let head = self.heads.head(record);
        Some(Record { kind: RecordType(head.kind), misc: head.misc, event, body: &record[HEADER_BYTES..] })
    }

    /// Reads until some records can be returned in order, or to the end.
    fn read_round(&mut self) -> Result<(), String> {
        let mut count = 0;
        loop {
            let Some(record) = self.input.record(self.heads.little_endian).map_err(|e| e.to_string())? else {
                self.input.check_end(self.heads.little_endian)?;
                self.cut |= !self.input.is_at_end();
                if self.begin_next() {
                    continue;
                }
                self.end();
                return Ok(());
            };
            match self.heads.head(record).kind {
                FINISHED_ROUND if self.is_one_round => {}
                FINISHED_ROUND if self.order.finish_round() => return Ok(()),
                FINISHED_ROUND => count = 0,
                kind @ (COMPRESSED | COMPRESSED2) => {
                    let packed = self.heads.packed(kind, record).ok_or("a compressed record is too short")?;
                    let unpacker = match &mut self.unpacker {
                        Some(unpacker) => unpacker,
                        none => none.insert(Unpacker::new()?),
                    };
                    unpacker.unpack(packed, &self.heads, &mut self.order, &mut self.unknown_ids)?;
                }
                kind @ (AUXTRACE | TRACING_DATA) => {
                    self.aux_records += u64::from(kind == AUXTRACE);
                    let payload = payload_bytes(kind, &record[HEADER_BYTES..], self.heads.little_endian);
                    if !self.input.skip(payload).map_err(|e| e.to_string())? {
                        self.cut = true;
                        self.input.left = 0;
                    }
                }
                kind => {
                    self.aux_records += u64::from(kind == AUXTRACE_INFO);
                    take(kind, record, &self.heads, &mut self.order, &mut self.unknown_ids);
                }
            }
            count += 1;
            if !self.is_one_round && self.round.is_some_and(|round| count >= round) {
                count = 0;
                if self.order.finish_round() {
                    return Ok(());
                }
            }
        }
    }

    /// Continues with the next file, whose compressed records are a separate stream.
    fn begin_next(&mut self) -> bool {
        let Some((reader, bytes)) = self.more.next() else { return false };
        (self.input.reader, self.input.left) = (reader, bytes);
        (self.input.at, self.input.end) = (0, 0);
        self.unpacker = None;
        true
    }

    fn end(&mut self) {
        self.ended = true;
        self.order.finish();
    }
}

/// Stores a record of the kernel, unless it is a sample without an event.
fn take(kind: u32, record: &[u8], heads: &Heads, order: &mut Order, unknown_ids: &mut u64) {
    if kind < USER_TYPES {
        match heads.event_and_key(kind, &record[HEADER_BYTES..]) {
            Some((event, key)) => order.push(key, event, record),
            None => *unknown_ids += 1,
        }
    }
}

/// Reads the bytes of a file record by record.
struct Input<R> {
    reader: R,
    /// Number of bytes of records that were not read yet.
    left: u64,
    buffer: Vec<u8>,
    /// The bytes from `at` to `end` were read and are not processed yet.
    at: usize,
    end: usize,
}

impl<R: Read + Seek> Input<R> {
    /// Returns the next complete record, including its header.
    fn record(&mut self, little_endian: bool) -> std::io::Result<Option<&[u8]>> {
        let mut size = whole_record_bytes(&self.buffer[self.at..self.end], little_endian);
        if size.is_none() {
            self.fill()?;
            size = whole_record_bytes(&self.buffer[self.at..self.end], little_endian);
        }
        let Some(size) = size else { return Ok(None) };
        self.at += size;
        Ok(Some(&self.buffer[self.at - size..self.at]))
    }

    /// Returns an error if the next bytes are not even the start of a record.
    fn check_end(&self, little_endian: bool) -> Result<(), String> {
        let rest = &self.buffer[self.at..self.end];
        match record_bytes(rest, little_endian) {
            size if size < HEADER_BYTES && rest.len() >= HEADER_BYTES => {
                Err(format!("a record claims {size} bytes"))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether all bytes were read and processed.
    fn is_at_end(&self) -> bool {
        self.left == 0 && self.at == self.end
    }

    fn fill(&mut self) -> std::io::Result<()> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.end -= self.at;
        self.at = 0;
        while self.left > 0 && self.end < self.buffer.len() {
            let room = (self.buffer.len() - self.end).min(usize::try_from(self.left).unwrap_or(usize::MAX));
            match self.reader.read(&mut self.buffer[self.end..self.end + room]) {
                Ok(0) => break,
                Ok(got) => (self.end, self.left) = (self.end + got, self.left - got as u64),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Skips bytes; returns `false` if there are fewer.
    fn skip(&mut self, bytes: u64) -> std::io::Result<bool> {
        let here = (self.end - self.at) as u64;
        if bytes <= here {
            self.at += bytes as usize;
            return Ok(true);
        }
        let beyond = bytes - here;
        if beyond > self.left {
            return Ok(false);
        }
        self.reader.seek(SeekFrom::Current(i64::try_from(beyond).unwrap_or(i64::MAX)))?;
        self.left -= beyond;
        (self.at, self.end) = (0, 0);
        Ok(true)
    }
}

/// Returns the size of the record at the start of `bytes`; `None` if it is incomplete or invalid.
fn whole_record_bytes(bytes: &[u8], little_endian: bool) -> Option<usize> {
    let size = record_bytes(bytes, little_endian);
    (size >= HEADER_BYTES && size <= bytes.len()).then_some(size)
}

/// Decompresses records: all compressed records form one stream.
struct Unpacker {
    decoder: Decoder<'static>,
    /// The start of a record that continues in the next compressed record.
    unpacked: Vec<u8>,
    /// How many more bytes may be unpacked.
    room: usize,
}

impl Unpacker {
    fn new() -> Result<Self, String> {
        let decoder = Decoder::new().map_err(|e| e.to_string())?;
        Ok(Unpacker { decoder, unpacked: Vec::new(), room: UNPACKED_ROOM })
    }

    fn unpack(
        &mut self,
        packed: &[u8],
        heads: &Heads,
        order: &mut Order,
        unknown_ids: &mut u64,
    ) -> Result<(), String> {
        let mut input = InBuffer::around(packed);
        self.room = self.room.saturating_add(packed.len().saturating_mul(UNPACKED_RATIO_MAX));
        loop {
            let had = self.unpacked.len();
            self.unpacked.resize(had + UNPACKED_BYTES, 0);
            let mut output = OutBuffer::around(&mut self.unpacked[had..]);
            let step = self.decoder.run(&mut input, &mut output);
            let got = output.pos();
            self.unpacked.truncate(had + got);
            step.map_err(|e| format!("a compressed record cannot be unpacked: {e}"))?;
            self.room = self.room.checked_sub(got).ok_or("compressed records unpack to too many bytes")?;
            let mut at = 0;
            while let Some(size) = whole_record_bytes(&self.unpacked[at..], heads.little_endian) {
                let record = &self.unpacked[at..at + size];
                take(heads.head(record).kind, record, heads, order, unknown_ids);
                at += size;
            }
            self.unpacked.drain(..at);
            // A record has at most u16::MAX bytes, so a longer rest does not begin with a record.
            if self.unpacked.len() > usize::from(u16::MAX) {
                return Err("a compressed record contains no records".to_owned());
            }
            if got < UNPACKED_BYTES && input.pos() == packed.len() {
                return Ok(());
            }
        }
    }
}

/// The header of a record.
struct Head {
    kind: u32,
    misc: u16,
}

/// Finds the event and the time of a record.
struct Heads {
    little_endian: bool,
    infos: Vec<RecordParseInfo>,
    events: FxHashMap<u64, u16>,
}

impl Heads {
    fn new(header: &Header) -> Self {
        let info = |attr| RecordParseInfo::new(attr, header.endian());
        Heads {
            little_endian: header.little_endian,
            infos: header.attributes.iter().map(|a| info(&a.attr)).collect(),
            events: by_id(&header.attributes),
        }
    }

    fn head(&self, record: &[u8]) -> Head {
        let [a, b, c, d, e, f, ..] = *record else { return Head { kind: u32::MAX, misc: 0 } };
        match self.little_endian {
            true => Head { kind: u32::from_le_bytes([a, b, c, d]), misc: u16::from_le_bytes([e, f]) },
            false => Head { kind: u32::from_be_bytes([a, b, c, d]), misc: u16::from_be_bytes([e, f]) },
        }
    }

    /// Returns the index of the event and the sort key; records without a time come first. Returns `None` for a sample
    /// whose id belongs to no event. Either all events have their ids at one position, or there is only one event (the
    /// reader of the header has checked this).
    fn event_and_key(&self, kind: u32, body: &[u8]) -> Option<(u16, u64)> {
        let sample = kind == RecordType::SAMPLE.0;
        let word = |from_start: Option<u8>, from_end: Option<u8>| {
            let at = match sample {
                true => usize::from(from_start?),
                false => body.len().checked_sub(usize::from(from_end?))?,
            };
            word_at(body, at, self.little_endian)
        };
        let event = if self.infos.len() == 1 {
            0
        } else {
            let place = &self.infos[0].id_parse_info;
            let id =
                word(place.sample_record_id_offset_from_start, place.nonsample_record_id_offset_from_end);
            // Records that perf wrote itself have the id 0.
            match id.filter(|id| *id != 0).map(|id| self.events.get(&id)) {
                Some(None) if sample => return None,
                event => event.flatten().copied().unwrap_or(0),
            }
        };
        let info = &self.infos[usize::from(event)];
        let time =
            word(info.sample_record_time_offset_from_start, info.nonsample_record_time_offset_from_end);
        Some((event, time.map_or(0, |time| time.saturating_add(1))))
    }

    /// Returns the compressed bytes of a record.
    fn packed<'a>(&self, kind: u32, record: &'a [u8]) -> Option<&'a [u8]> {
        let body = &record[HEADER_BYTES..];
        if kind == COMPRESSED {
            return Some(body);
        }
        let bytes = usize::try_from(word_at(body, 0, self.little_endian)?).ok()?;
        body[8..].get(..bytes)
    }
}

/// An entry for a record that was read.
#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    /// The position of the record in `bytes` (48 bits) and its event (16 bits).
    place: u64,
}

impl Entry {
    fn new(key: u64, start: usize, event: u16) -> Entry {
        Entry { key, place: (start as u64) << 16 | u64::from(event) }
    }

    fn start(self) -> usize {
        (self.place >> 16) as usize
    }

    fn event(self) -> u16 {
        self.place as u16
    }
}

/// Sorts records.
#[derive(Default)]
struct Order {
    /// The records in order of arrival, each preceded by its size in two bytes.
    bytes: Vec<u8>,
    /// Entries in order of arrival that may not be returned yet.
    waiting: Vec<Entry>,
    /// Entries that may be returned, sorted; those before `next` have been returned.
    due: Vec<Entry>,
    next: usize,
    /// The greatest key up to the previous round; `youngest` is the greatest key of all.
    before: u64,
    youngest: u64,
}

impl Order {
    fn push(&mut self, key: u64, event: u16, record: &[u8]) {
        self.waiting.push(Entry::new(key, self.bytes.len(), event));
        self.bytes.extend_from_slice(&(record.len() as u16).to_ne_bytes());
        self.bytes.extend_from_slice(record);
        self.youngest = self.youngest.max(key);
    }

    /// Ends a round and returns whether any records can be returned.
    fn finish_round(&mut self) -> bool {
        let before = self.before;
        self.due.clear();
        self.next = 0;
        self.due.extend(self.waiting.extract_if(.., |entry| entry.key <= before));
        self.due.sort_by_key(|entry| entry.key); // The sort is stable: equal keys keep their order.
        self.before = self.youngest;
        !self.due.is_empty()
    }

    /// Ends the last round.
    fn finish(&mut self) {
        self.before = u64::MAX;
        self.finish_round();
    }

    fn is_drained(&self) -> bool {
        self.next == self.due.len()
    }

    fn next(&mut self) -> Option<(usize, &[u8])> {
        let entry = *self.due.get(self.next)?;
        self.next += 1;
        Some((usize::from(entry.event()), &self.bytes[self.place(entry)][SIZE_BYTES..]))
    }

    /// Returns the range of a record in `bytes`, including its size.
    fn place(&self, entry: Entry) -> std::ops::Range<usize> {
        let size = self.bytes[entry.start()..].first_chunk().copied().map_or(0, u16::from_ne_bytes);
        entry.start()..entry.start() + SIZE_BYTES + usize::from(size)
    }

    /// Removes records that have been returned.
    fn make_room(&mut self) {
        debug_assert!(self.is_drained());
        let mut end = 0;
        for at in 0..self.waiting.len() {
            let entry = self.waiting[at];
            let bytes = self.place(entry);
            let size = bytes.len();
            self.bytes.copy_within(bytes, end);
            self.waiting[at] = Entry::new(entry.key, end, entry.event());
            end += size;
        }
        self.bytes.truncate(end);
    }
}
