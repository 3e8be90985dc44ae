//! Reads pprof's protocol buffers, compressed by gzip or not.
//!
//! Enters: the bytes of a profile. Leaves: the same as from a perf.data file: samples by mapping, their call stacks, and the
//! names that the profile gives to places. Never here: more memory than the size of the file justifies.
//!
//! The schema: `proto/profile.proto` of github.com/google/pprof, whose field numbers are used here.

use std::{borrow::Cow, io::Read};

use dwell_profile::{NamedFrame, Pid};
use dwell_unwind::FRAMES_MAX;
use flate2::read::MultiGzDecoder;
use prost::Message;
use rustc_hash::FxHashMap;

use super::{
    imported::{EventTally, ImportedProfile},
    locate::Locator,
    mapped::{IMAGES_MAX, Mapped, NO_MAPPING},
    names::{FunctionText, Names},
};
use crate::pprof::{Function, Location, Mapping, Sample, ValueType};

/// Size limit of an unpacked profile, in bytes; a larger one is refused.
const BYTES_MAX: u64 = 1 << 30;
const EVENTS_MAX: usize = 255;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    /// The strings are bytes, since paths may not be UTF-8.
    #[prost(bytes = "vec", repeated, tag = "6")]
    string_table: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

/// Returns whether a file may be a pprof profile: it begins with gzip's magic number or the tag of the first field.
pub fn is_pprof(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b]) || start.first() == Some(&0x0a)
}

/// Reads the whole profile.
pub fn read(mut file: impl Read, locator: &Locator<'_>) -> Result<ImportedProfile, String> {
    let mut bytes = Vec::new();
    file.by_ref().take(BYTES_MAX).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let unpack = MultiGzDecoder::new(&bytes[..]).take(BYTES_MAX).read_to_end(&mut unpacked);
        unpack.map_err(|e| format!("gzip: {e}"))?;
        bytes = unpacked;
    }
    let profile = Profile::decode(&bytes[..]).map_err(|e| format!("not a pprof profile: {e}"))?;
    if profile.sample_type.is_empty() || profile.sample_type.len() > EVENTS_MAX {
        return Err(format!("a pprof profile with {} types of values", profile.sample_type.len()));
    }
    Ok(tell(&profile, locator))
}

fn tell(profile: &Profile, locator: &Locator<'_>) -> ImportedProfile {
    let mut imported = ImportedProfile::default();
    let texts = Texts(&profile.string_table);
    let column = time_column(profile, &texts);
    let period = u64::try_from(profile.period).unwrap_or(0).max(1);
    let unit = texts.of(profile.sample_type[column].unit);
    let scale = match &*unit {
        "nanoseconds" => 1,
        "microseconds" => 1_000,
        "milliseconds" => 1_000_000,
        "seconds" => 1_000_000_000,
        _ => 0,
    };
    let kind = texts.of(profile.sample_type[column].kind);
    let name = if scale > 0 { "cpu-clock" } else { &*kind };
    imported.attributes.push((name.to_owned(), None));
    imported.events.push(EventTally::default());
    // By pprof's convention the first mapping is that of the program.
    if let Some(program) =
        profile.mapping.first().map(|m| texts.of(m.filename)).filter(|name| !name.is_empty())
    {
        imported.spaces.comm(Pid(1), program.rsplit(['/', '\\']).next().unwrap_or(&program));
    }
    let execution = imported.spaces.execution(Pid(1));
    let mut places = Places::new(profile, texts, locator, &mut imported.remarks);
    let (mut negative, mut frames) = (0, Vec::new());
    for sample in &profile.sample {
        let value = sample.value.get(column).copied().unwrap_or(0);
        negative += u64::from(value < 0);
        let Some(value) = u64::try_from(value).ok().filter(|value| *value > 0) else { continue };
        let leaf = sample.location_id.first();
        let (address, place) = leaf.map_or((0, None), |id| places.of(*id, &mut imported));
        // The values are either times, or numbers of samples with one period.
        let periods = if scale > 0 { value.saturating_mul(scale) } else { value };
        let count = if scale > 0 { (periods / period).max(1) } else { value };
        let place = imported.count_many(0, execution, place, address, periods, count);
        frames.clear();
        frames.push(place);
        // Addresses of callers are inside their calls, as the schema says.
        for id in sample.location_id.iter().skip(1).take(FRAMES_MAX) {
            let (address, caller) = places.of(*id, &mut imported);
            frames.push(caller.unwrap_or_else(|| imported.unknown_place(address)));
        }
        imported.add_named_stack(0, execution, &frames, (periods, count));
    }
    imported.end_named_stacks();
    let others = profile.sample_type.len() - 1;
    if others > 0 {
        imported
            .remarks
            .push(format!("{others} other values of each sample were left out; {name} was imported"));
    }
    if negative > 0 {
        imported.remarks.push(format!("{negative} samples with a negative value were left out"));
    }
    imported.remarks.push("a pprof profile contains neither the processor nor executions".to_owned());
    imported
}

/// The strings of a profile, by number.
#[derive(Clone, Copy)]
struct Texts<'p>(&'p [Vec<u8>]);

impl<'p> Texts<'p> {
    fn bytes(&self, number: i64) -> &'p [u8] {
        usize::try_from(number).ok().and_then(|i| self.0.get(i)).map_or(&[], Vec::as_slice)
    }

    fn of(&self, number: i64) -> Cow<'p, str> {
        String::from_utf8_lossy(self.bytes(number))
    }
}

/// Returns the index of the values to use: times if there are any, else those that the profile names as default, else
/// the last ones, as in pprof itself.
fn time_column(profile: &Profile, texts: &Texts<'_>) -> usize {
    let is_time = |t: &ValueType| texts.of(t.unit).ends_with("seconds") && texts.of(t.kind) == "cpu";
    let is_default = |t: &ValueType| profile.default_sample_type > 0 && t.kind == profile.default_sample_type;
    let types = &profile.sample_type;
    let known = types.iter().position(is_time).or_else(|| types.iter().position(is_default));
    known.unwrap_or(types.len() - 1)
}

/// The places of locations, and the names that the profile gives them.
struct Places<'p> {
    texts: Texts<'p>,
    locations: FxHashMap<u64, &'p Location>,
    functions: FxHashMap<u64, &'p Function>,
    mappings: FxHashMap<u64, Mapped>,
    /// The paths of mappings, as the profile spells them.
    paths: FxHashMap<u64, &'p [u8]>,
    found: FxHashMap<u64, Option<(u32, u64)>>,
}

impl<'p> Places<'p> {
    fn new(profile: &'p Profile, texts: Texts<'p>, locator: &Locator<'_>, remarks: &mut Vec<String>) -> Self {
        Places {
            texts,
            locations: profile.location.iter().map(|l| (l.id, l)).collect(),
            functions: profile.function.iter().map(|f| (f.id, f)).collect(),
            mappings: mappings(profile, &texts, locator, remarks),
            paths: profile.mapping.iter().map(|m| (m.id, texts.bytes(m.filename))).collect(),
            found: FxHashMap::default(),
        }
    }

    /// Returns the address of a location, and its target and offset, and stores its names. There is no place if neither
    /// a mapping nor a name gives one.
    fn of(&mut self, id: u64, imported: &mut ImportedProfile) -> (u64, Option<(u32, u64)>) {
        let Some(location) = self.locations.get(&id).copied() else { return (0, None) };
        if let Some(place) = self.found.get(&id) {
            return (location.address, *place);
        }
        let frames = self.frames(location, &mut imported.names);
        let mapped = self.mappings.get(&location.mapping_id);
        let mapped = mapped.filter(|m| location.address > 0 && m.addresses.contains(&location.address));
        let place = match mapped {
            Some(mapped) => {
                let target = imported.intern(mapped.of.clone());
                let offset = location.address.wrapping_sub(mapped.over);
                imported.names.add(target, offset, None, frames);
                Some((target, offset))
            }
            None if !frames.is_empty() => {
                let path = self.paths.get(&location.mapping_id).filter(|path| !path.is_empty());
                Some(imported.numbered(path.map_or(NO_MAPPING, |path| path), frames, 0))
            }
            None => None,
        };
        self.found.insert(id, place);
        (location.address, place)
    }

    /// Returns the calls at a location, innermost first; none if its procedure has no name.
    fn frames(&self, location: &Location, names: &mut Names) -> Vec<NamedFrame> {
        let mut frames = Vec::new();
        for line in &location.line {
            let Some(function) = self.functions.get(&line.function_id) else { return Vec::new() };
            let (name, linkage) = (self.texts.of(function.name), self.texts.of(function.system_name));
            let said = FunctionText {
                function: if name.is_empty() { &linkage } else { &name },
                linkage: &linkage,
                file: &self.texts.of(function.filename),
                line: line.line,
                begin: function.start_line,
            };
            if said.function.is_empty() {
                return Vec::new();
            }
            frames.push(names.frame(said));
        }
        frames
    }
}

/// Returns the images of the profile's mappings, by the numbers of the mappings.
fn mappings(
    profile: &Profile,
    texts: &Texts<'_>,
    locator: &Locator<'_>,
    remarks: &mut Vec<String>,
) -> FxHashMap<u64, Mapped> {
    let mut all: FxHashMap<u64, Mapped> = FxHashMap::default();
    for m in &profile.mapping {
        let (path, build_id) = (texts.bytes(m.filename), texts.of(m.build_id));
        if let Some(mapped) = Mapped::new(path, &build_id, (m.memory_start, m.memory_limit), m.file_offset) {
            all.insert(m.id, mapped);
        }
    }
    for m in profile.mapping.iter().filter(|m| m.file_offset == 0).take(IMAGES_MAX) {
        let Some(mapped) = all.get_mut(&m.id) else { continue };
        let within = profile.location.iter().filter(|l| l.mapping_id == m.id).map(|l| l.address);
        remarks.extend(mapped.infer_offset(locator, within));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::{ImportFile, import::imported::Target};

    fn profile() -> Profile {
        let texts = ["", "samples", "count", "cpu", "nanoseconds", "/bin/program", "abcdef0123"];
        let location = |id, mapping_id, address| Location { id, mapping_id, address, line: Vec::new() };
        let sample = |location_id, value: [i64; 2]| Sample { location_id, value: value.to_vec() };
        Profile {
            sample_type: vec![ValueType { kind: 1, unit: 2 }, ValueType { kind: 3, unit: 4 }],
            sample: vec![
                sample(vec![1, 2], [3, 30_000_000]),
                sample(vec![2], [1, 10_000_000]),
                sample(vec![3], [2, 20_000_000]),
                sample(vec![1], [0, -7]),
            ],
            mapping: vec![Mapping {
                id: 1,
                memory_start: 0x1000,
                memory_limit: 0x2000,
                file_offset: 0x400,
                filename: 5,
                build_id: 6,
                ..Mapping::default()
            }],
            function: Vec::new(),
            location: vec![location(1, 1, 0x1010), location(2, 1, 0x1020), location(3, 0, 0x77)],
            string_table: texts.map(|text| text.as_bytes().to_vec()).to_vec(),
            period_type: Some(ValueType { kind: 3, unit: 4 }),
            period: 10_000_000,
            default_sample_type: 0,
        }
    }

    #[test]
    fn leaves_are_counted_if_a_mapping_names_their_file() {
        let bytes = profile().encode_to_vec();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(&bytes).unwrap();
        for bytes in [bytes, packed.finish().unwrap()] {
            assert!(is_pprof(&bytes));
            let request = ImportFile::default();
            let imported = read(&bytes[..], &Locator::new(&request, None, None)).unwrap();
            let tally = &imported.events[0];
            assert_eq!((tally.samples, tally.unknown, tally.periods), (6, 2, 60_000_000));
            assert_eq!((imported.attributes[0].0.as_str(), imported.tallies.with_callers), ("cpu-clock", 3));
            let Target::File(named) = &imported.targets[0] else { panic!("{:?}", imported.targets) };
            assert_eq!(named.build_id.as_ref().unwrap().to_string(), "abcdef0123");
            let sums = imported.sums.finish();
            let all: Vec<_> = (0..sums.slots().count()).flat_map(|n| sums.of(n)).collect();
            assert_eq!(all, [(0x410, 30_000_000), (0x420, 10_000_000), (0x77, 20_000_000)]);
        }
    }

    #[test]
    fn damaged_profiles_are_errors_or_parts() {
        let bytes = profile().encode_to_vec();
        let request = ImportFile::default();
        let read = |bytes: &[u8]| read(bytes, &Locator::new(&request, None, None));
        for at in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            let _ = read(&damaged[..]);
            let _ = read(&bytes[..at / 8]);
        }
    }
}
