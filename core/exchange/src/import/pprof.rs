//! pprof's protocol buffers, compressed by gzip or not.
//!
//! Enters: the bytes of a profile. Leaves: what a perf.data file would have told: leaves of stacks, by mapping. Never here: more
//! memory than the file's bytes call for.
//!
//! The schema: `proto/profile.proto` of github.com/google/pprof; field numbers are its.

use std::{io::Read, ops::Range};

use dwell_image::Image;
use dwell_profile::{BuildId, ImageOffset};
use flate2::read::MultiGzDecoder;
use prost::Message;
use rustc_hash::FxHashMap;

use super::{
    locate::{Locator, Named},
    perf_data::{EventTally, Target, Told},
};

/// A profile that is larger when unpacked is refused.
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
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(uint64, tag = "4")]
    file_offset: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
}

/// Whether a file may be one: gzip's magic, or the tag of the first field.
pub fn is_pprof(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b]) || start.first() == Some(&0x0a)
}

/// Reads the whole profile.
pub fn read(mut file: impl Read, locator: &Locator<'_>) -> Result<Told, String> {
    let mut bytes = Vec::new();
    file.by_ref().take(BYTES_MAX).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let unpack = MultiGzDecoder::new(&bytes[..]).take(BYTES_MAX).read_to_end(&mut unpacked);
        unpack.map_err(|e| format!("gzip: {e}"))?;
        bytes = unpacked;
    }
    let profile = Profile::decode(&bytes[..]).map_err(|e| format!("no profile of pprof's: {e}"))?;
    if profile.sample_type.is_empty() || profile.sample_type.len() > EVENTS_MAX {
        return Err(format!("a profile of pprof's with {} types of values", profile.sample_type.len()));
    }
    Ok(tell(&profile, locator))
}

fn tell(profile: &Profile, locator: &Locator<'_>) -> Told {
    let mut told = Told::default();
    let text =
        |index: i64| usize::try_from(index).ok().and_then(|i| profile.string_table.get(i)).map_or("", |s| s);
    let column = time_column(profile, &text);
    let period = u64::try_from(profile.period).unwrap_or(0).max(1);
    let unit = text(profile.sample_type[column].unit);
    let scale = match unit {
        "nanoseconds" => 1,
        "microseconds" => 1_000,
        "milliseconds" => 1_000_000,
        "seconds" => 1_000_000_000,
        _ => 0,
    };
    let name = if scale > 0 { "cpu-clock" } else { text(profile.sample_type[column].kind) };
    told.attributes.push((name.to_owned(), None));
    told.events.push(EventTally::default());
    let mappings = mappings(profile, &text, locator, &mut told.remarks);
    let places = profile.location.iter().map(|l| (l.id, (l.address, place(&mut told, l, &mappings))));
    let places: FxHashMap<u64, (u64, Option<(u32, u64)>)> = places.collect();
    let execution = told.spaces.execution(1);
    let mut stacks = 0;
    for sample in &profile.sample {
        let value = sample.value.get(column).copied().and_then(|v| u64::try_from(v).ok()).unwrap_or(0);
        let Some(leaf) = sample.location_id.first().filter(|_| value > 0) else { continue };
        stacks += u64::from(sample.location_id.len() > 1);
        let (address, place) = places.get(leaf).copied().unwrap_or((0, None));
        // Times are told, or how many samples of one period there were.
        let periods = if scale > 0 { value.saturating_mul(scale) } else { value };
        let count = if scale > 0 { (periods / period).max(1) } else { value };
        told.count_many(0, execution, place, address, periods, count);
    }
    told.call_chains = stacks;
    let others = profile.sample_type.len() - 1;
    if others > 0 {
        told.remarks.push(format!("{others} other values of each sample were left out: {name} was taken"));
    }
    told.remarks.push("a profile of pprof's tells neither processor nor executions".to_owned());
    told
}

/// The values to take: of time where there are some, else the last, as pprof itself does.
fn time_column<'p>(profile: &'p Profile, text: &impl Fn(i64) -> &'p str) -> usize {
    let is_time = |t: &ValueType| text(t.unit).ends_with("seconds") && text(t.kind) == "cpu";
    let known = profile.sample_type.iter().position(is_time);
    known.unwrap_or(profile.sample_type.len() - 1)
}

/// A mapping of a file, and what its addresses exceed the file's offsets by.
struct Mapped {
    addresses: Range<u64>,
    file: Named,
    over: u64,
}

/// The mappings of files, by their numbers.
fn mappings<'p>(
    profile: &Profile,
    text: &impl Fn(i64) -> &'p str,
    locator: &Locator<'_>,
    remarks: &mut Vec<String>,
) -> FxHashMap<u64, Mapped> {
    let mut all: FxHashMap<u64, Mapped> = FxHashMap::default();
    for m in profile.mapping.iter().filter(|m| text(m.filename).starts_with('/')) {
        let path = text(m.filename).as_bytes().to_vec();
        let file = Named { path, build_id: BuildId::from_hex(text(m.build_id)).ok() };
        // A limit that is left out is none.
        let end = if m.memory_limit == 0 { u64::MAX } else { m.memory_limit };
        let over = m.memory_start.wrapping_sub(m.file_offset);
        all.insert(m.id, Mapped { addresses: m.memory_start..end, file, over });
    }
    for m in profile.mapping.iter().filter(|m| m.file_offset == 0).take(IMAGES_MAX) {
        let Some(mapped) = all.get_mut(&m.id) else { continue };
        let within = profile.location.iter().filter(|l| l.mapping_id == m.id).map(|l| l.address);
        let some: Vec<u64> = within.filter(|a| mapped.addresses.contains(a)).take(LOCATIONS_MAX).collect();
        if let Some(over) = locator.open(&mapped.file).and_then(|image| likely_over(&image, mapped, &some)) {
            mapped.over = over;
            remarks.push(format!(
                "{}: the profile has no offset of its mapping: the one that puts its samples into procedures was taken",
                text(m.filename)
            ));
        }
    }
    all
}

/// Images that are opened because their mapping has no offset …
const IMAGES_MAX: usize = 64;
/// … and locations that are tried on each.
const LOCATIONS_MAX: usize = 1000;

/// A mapping without an offset may be of the file's beginning, as it says; but many writers leave offsets out. What else may
/// be meant: addresses are the image's own; the image is mapped whole from its first address; only its code is. The one under
/// which most locations lie in procedures; `None` where that is what the mapping says.
fn likely_over(image: &Image, mapped: &Mapped, locations: &[u64]) -> Option<u64> {
    let start = mapped.addresses.start;
    let first = image.procedures().iter().map(|p| p.address).min()?;
    let code_over = first.0.wrapping_sub(image.offset_of(first)?.0);
    let base = image.address_of(ImageOffset(0)).map_or(0, |a| a.0);
    let page = |address: u64| address & !0xfff;
    let in_procedures = |over: &u64| {
        let is_in = |address: &&u64| {
            let offset = ImageOffset(address.wrapping_sub(*over));
            let Some(address) = image.address_of(offset) else { return false };
            image.procedure_at(address).is_some_and(|p| address.0 - p.address.0 < p.size_bytes.max(1))
        };
        locations.iter().filter(is_in).count()
    };
    let whole = start.wrapping_sub(base).wrapping_add(code_over);
    let code_alone = start.wrapping_sub(page(first.0.wrapping_sub(code_over)));
    let others = [code_over, whole, code_alone];
    let said = in_procedures(&mapped.over);
    let best = others.into_iter().map(|over| (in_procedures(&over), over)).max_by_key(|(n, _)| *n)?;
    (best.0 > said).then_some(best.1)
}

/// Target and offset of a location; `None` where no file tells.
fn place(told: &mut Told, location: &Location, mappings: &FxHashMap<u64, Mapped>) -> Option<(u32, u64)> {
    let mapped = mappings.get(&location.mapping_id)?;
    if !mapped.addresses.contains(&location.address) {
        return None;
    }
    let target = told.intern(Target::File(mapped.file.clone()));
    Some((target, location.address.wrapping_sub(mapped.over)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::ImportFile;

    fn profile() -> Profile {
        let texts = ["", "samples", "count", "cpu", "nanoseconds", "/bin/program", "abcdef0123"];
        let location = |id, mapping_id, address| Location { id, mapping_id, address };
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
            }],
            location: vec![location(1, 1, 0x1010), location(2, 1, 0x1020), location(3, 0, 0x77)],
            string_table: texts.map(str::to_owned).to_vec(),
            period_type: Some(ValueType { kind: 3, unit: 4 }),
            period: 10_000_000,
        }
    }

    #[test]
    fn leaves_count_where_a_mapping_tells_the_file() {
        let bytes = profile().encode_to_vec();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(&bytes).unwrap();
        for bytes in [bytes, packed.finish().unwrap()] {
            assert!(is_pprof(&bytes));
            let request = ImportFile::default();
            let told = read(&bytes[..], &Locator::new(&request, None, None)).unwrap();
            let tally = &told.events[0];
            assert_eq!((tally.samples, tally.unknown, tally.periods), (6, 2, 60_000_000));
            assert_eq!((told.attributes[0].0.as_str(), told.call_chains), ("cpu-clock", 1));
            let Target::File(named) = &told.targets[0] else { panic!("{:?}", told.targets) };
            assert_eq!(named.build_id.as_ref().unwrap().to_string(), "abcdef0123");
            let sums = told.sums.finish();
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
