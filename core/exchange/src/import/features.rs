//! The features of a perf.data file: what it reports besides records, such as the machine, the command and build IDs.
//!
//! Enters: the bytes of the sections of features, or of the records that replace them in a stream. Leaves: texts and
//! build IDs. Never here: more memory than those bytes; an error, since every feature may be missing.
//!
//! The format: `tools/perf/Documentation/perf.data-file-format.txt` of Linux.

use std::time::Duration;

use dwell_profile::BuildId;
use linux_perf_data::{DsoKey, linux_perf_event_reader::CpuMode};
use rustc_hash::FxHashMap;

use super::{
    attribute::{Attribute, by_id},
    fields::{half_at, word_at},
};

/// The numbers of the features, as perf defines them.
const BUILD_IDS: u32 = 2;
const HOST: u32 = 3;
const RELEASE: u32 = 4;
const ARCH: u32 = 6;
const CPUS: u32 = 7;
const CPU_DESCRIPTION: u32 = 8;
const CPU_ID: u32 = 9;
const COMMAND: u32 = 11;
const EVENTS: u32 = 12;
const STAT: u32 = 19;
const SAMPLE_TIME: u32 = 21;
const FOLDER: u32 = 24;
const SIMPLEPERF: u32 = 129;
/// The features that are read; other ones may be large.
pub const WANTED: [u32; 13] = [
    BUILD_IDS,
    HOST,
    RELEASE,
    ARCH,
    CPUS,
    CPU_DESCRIPTION,
    CPU_ID,
    COMMAND,
    EVENTS,
    STAT,
    SAMPLE_TIME,
    FOLDER,
    SIMPLEPERF,
];
/// The flag PERF_RECORD_MISC_BUILD_ID_SIZE: the record contains the length of the build ID.
const HAS_LENGTH: u16 = 1 << 15;
const BUILD_ID_BYTES: usize = 20;

/// The sections of features, by number.
#[derive(Debug, Default)]
pub struct Features {
    sections: FxHashMap<u32, Vec<u8>>,
    /// The records of build IDs in a stream.
    build_id_records: Vec<u8>,
    little_endian: bool,
}

impl Features {
    /// Returns a set without features.
    pub fn new(little_endian: bool) -> Self {
        Features { little_endian, ..Features::default() }
    }

    /// Adds a section.
    pub fn insert(&mut self, number: u32, section: Vec<u8>) {
        self.sections.insert(number, section);
    }

    /// Adds a record PERF_RECORD_HEADER_BUILD_ID, including its header.
    pub fn insert_build_id(&mut self, record: &[u8]) {
        self.build_id_records.extend_from_slice(record);
    }

    /// Returns the name of the host.
    pub fn host(&self) -> Option<String> {
        self.text(HOST)
    }

    /// Returns the release of the kernel.
    pub fn release(&self) -> Option<String> {
        self.text(RELEASE)
    }

    /// Returns the architecture, as `uname -m` prints it.
    pub fn arch(&self) -> Option<String> {
        self.text(ARCH)
    }

    /// Returns the model's name, then vendor, family, model and stepping. Missing values are empty or left out.
    pub fn cpu(&self) -> Vec<String> {
        let id = self.text(CPU_ID).unwrap_or_default();
        let name = self.text(CPU_DESCRIPTION).unwrap_or_default();
        std::iter::once(name).chain(id.split(',').map(str::to_owned)).collect()
    }

    /// Returns how many processors were online.
    pub fn cpus(&self) -> Option<u32> {
        half_at(self.sections.get(&CPUS)?, 4, self.little_endian)
    }

    /// Returns the time from the first sample to the last.
    pub fn took(&self) -> Option<Duration> {
        let section = self.sections.get(&SAMPLE_TIME)?;
        let [first_ns, last_ns] = [0, 8].map(|at| word_at(section, at, self.little_endian));
        Some(Duration::from_nanos(last_ns?.saturating_sub(first_ns?)))
    }

    /// Returns perf's own command line.
    pub fn command(&self) -> Vec<String> {
        let Some(section) = self.sections.get(&COMMAND) else { return Vec::new() };
        let Some(count) = half_at(section, 0, self.little_endian) else { return Vec::new() };
        let mut rest = &section[4..];
        std::iter::from_fn(|| self.next_text(&mut rest)).take(count as usize).collect()
    }

    /// Returns whether simpleperf wrote the file. It does not mark the ends of rounds.
    pub fn is_simpleperf(&self) -> bool {
        self.sections.contains_key(&SIMPLEPERF)
    }

    /// Returns whether `perf stat record` wrote the file. It takes no samples.
    pub fn is_stat(&self) -> bool {
        self.sections.contains_key(&STAT)
    }

    /// Returns whether the records are in files beside this one, as `perf record --threads` writes them.
    pub fn is_folder(&self) -> bool {
        self.sections.contains_key(&FOLDER)
    }

    /// Returns build IDs, each with what it identifies.
    pub fn build_ids(&self) -> Vec<(DsoKey, BuildId)> {
        let section = self.sections.get(&BUILD_IDS).map(Vec::as_slice).unwrap_or_default();
        let records = |mut rest| std::iter::from_fn(move || self.next_build_id(&mut rest)).flatten();
        let all: FxHashMap<_, _> = records(section).chain(records(&self.build_id_records)).collect();
        all.into_iter().collect()
    }

    /// Sets the name and the ids of each attribute to those that the file reports.
    pub fn name_events(&self, attributes: &mut [Attribute]) {
        let descriptions = self.event_descriptions().unwrap_or_default();
        let by_id = by_id(attributes);
        for (at, (name, ids)) in descriptions.into_iter().enumerate() {
            let named = match ids.first().and_then(|id| by_id.get(id)) {
                Some(known) => attributes.get_mut(usize::from(*known)),
                None => attributes.get_mut(at).filter(|a| a.ids.is_empty()),
            };
            let Some(attribute) = named else { continue };
            if !name.is_empty() {
                attribute.name = name;
            }
            if attribute.ids.is_empty() {
                attribute.ids = ids;
            }
        }
        for (attribute, name) in attributes.iter_mut().zip(self.simpleperf_events()) {
            attribute.name = name;
        }
    }

    /// Returns the name and the ids of each event from HEADER_EVENT_DESC; `None` if the section is truncated.
    fn event_descriptions(&self) -> Option<Vec<(String, Vec<u64>)>> {
        let section = self.sections.get(&EVENTS)?;
        let little_endian = self.little_endian;
        let (count, bytes_each) = (half_at(section, 0, little_endian)?, half_at(section, 4, little_endian)?);
        let mut rest = section.get(8..)?;
        let mut events = Vec::new();
        for _ in 0..count {
            rest = rest.get(bytes_each as usize..)?;
            let ids = half_at(rest, 0, little_endian)? as usize;
            rest = &rest[4..];
            let name = self.next_text(&mut rest)?;
            let (words, after) = rest.split_at_checked(ids.checked_mul(8)?)?;
            let words = words.chunks_exact(8).filter_map(|word| word_at(word, 0, little_endian));
            events.push((name, words.collect()));
            rest = after;
        }
        Some(events)
    }

    /// Returns the names of events from simpleperf's meta information: pairs of key and value, each terminated by a
    /// zero.
    fn simpleperf_events(&self) -> Vec<String> {
        let Some(section) = self.sections.get(&SIMPLEPERF) else { return Vec::new() };
        let mut texts = section.split(|byte| *byte == 0);
        while let Some((key, value)) = texts.next().zip(texts.next()) {
            if key == b"event_type_info" {
                let value = String::from_utf8_lossy(value);
                return value.lines().filter_map(|l| l.split(',').next()).map(str::to_owned).collect();
            }
        }
        Vec::new()
    }

    fn text(&self, number: u32) -> Option<String> {
        self.next_text(&mut self.sections.get(&number)?.as_slice())
    }

    /// Reads a text that is preceded by its length and terminated by a zero.
    fn next_text(&self, rest: &mut &[u8]) -> Option<String> {
        let bytes = half_at(rest, 0, self.little_endian)? as usize;
        let (text, after) = rest[4..].split_at_checked(bytes)?;
        *rest = after;
        Some(until_zero(text))
    }

    /// Reads the next record of a build ID; `Some(None)` if it identifies nothing that is known.
    fn next_build_id(&self, rest: &mut &[u8]) -> Option<Option<(DsoKey, BuildId)>> {
        const ID_AT: usize = 12;
        const PATH_AT: usize = 36;
        let misc_and_size = half_at(rest, 4, self.little_endian)?;
        let (misc, size) = match self.little_endian {
            true => (misc_and_size as u16, (misc_and_size >> 16) as usize),
            false => ((misc_and_size >> 16) as u16, (misc_and_size & 0xffff) as usize),
        };
        let (record, after) = rest.split_at_checked(size).filter(|_| size > PATH_AT)?;
        *rest = after;
        let id = &record[ID_AT..ID_AT + BUILD_ID_BYTES];
        let length = match misc & HAS_LENGTH != 0 {
            true => usize::from(record[ID_AT + BUILD_ID_BYTES]).min(BUILD_ID_BYTES),
            // Without a length, a build ID has 20 bytes, or fewer bytes followed by zeros up to 20.
            false => id.chunks(4).rposition(|word| word != [0; 4]).map_or(0, |last| 4 * (last + 1)),
        };
        let path = record[PATH_AT..].split(|byte| *byte == 0).next().unwrap_or_default();
        let key = DsoKey::detect(path, CpuMode::from_misc(misc));
        Some(key.zip(BuildId::new(&id[..length])))
    }
}

/// Returns the text before the first zero byte.
pub fn until_zero(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}
