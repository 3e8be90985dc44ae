//! Profiles of OpenTelemetry (`opentelemetry.proto.profiles.v1development`): a `ProfilesData` message, as a collector
//! reads it from a file. It contains a profile for each event, and one of the estimated executed instructions.
//!
//! The first entry of each table is empty, because index 0 means "none"; strings, functions, mappings and stacks are
//! shared.

use std::collections::BTreeMap;

use dwell_query::answer::{
    InstructionPlace, PlaceEvent, Places, ProcedurePlaces, StackFunction, StackNode, Stacks,
};
use opentelemetry_proto::tonic::{
    collector::profiles::v1development::ExportProfilesServiceResponse,
    common::v1::{AnyValue, InstrumentationScope, any_value::Value},
    profiles::v1development::{
        Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesData, ProfilesDictionary,
        ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
    },
};
use prost::Message;

use super::without_stacks::without_stacks;

/// Returns why a receiver rejected profiles, by its `ExportProfilesServiceResponse`; `None` if it took all of them.
pub fn rejection(response: &[u8]) -> Option<String> {
    let rejected = match ExportProfilesServiceResponse::decode(response) {
        Ok(response) => response.partial_success.filter(|partial| partial.rejected_profiles > 0)?,
        Err(_) => return Some("its answer is not one of OTLP".to_owned()),
    };
    let profiles = rejected.rejected_profiles;
    Some(format!("{profiles} profiles: {}", rejected.error_message))
}

pub fn write(places: &Places) -> Vec<u8> {
    let mut tables = Tables::new();
    let profiles = tables.profiles(places, Vec::new(), None);
    finished(tables, profiles)
}

/// Returns the samples that have a call stack. With `all`, the others are in the same profile, with one location each, and the profiles
/// of other events and of executions follow.
pub fn write_stacks(places: &Places, stacks: &Stacks, all: bool) -> Vec<u8> {
    let rest = without_stacks(places, stacks);
    let mut tables = Tables::new();
    let samples: Vec<(i32, i64)> = stacks
        .sampled()
        .map(|(node, path)| {
            (tables.call_stack(stacks, &path), i64::try_from(node.samples).unwrap_or(i64::MAX))
        })
        .collect();
    let profiles = match rest.events.iter().position(|event| event.name == stacks.event.name) {
        Some(event) if all => tables.profiles(&rest, samples, Some(event)),
        _ => vec![tables.profile(places, &stacks.event, samples.into_iter())],
    };
    finished(tables, profiles)
}

fn finished(tables: Tables<'_>, profiles: Vec<Profile>) -> Vec<u8> {
    let scope = InstrumentationScope {
        name: "dwell".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scoped = ScopeProfiles { scope: Some(scope), profiles, ..ScopeProfiles::default() };
    let resource = ResourceProfiles { scope_profiles: vec![scoped], ..ResourceProfiles::default() };
    let data = ProfilesData { resource_profiles: vec![resource], dictionary: Some(tables.dictionary) };
    data.encode_to_vec()
}

/// The tables that all profiles share, while they are built.
struct Tables<'a> {
    dictionary: ProfilesDictionary,
    strings: BTreeMap<String, i32>,
    /// Locations of frames: by the function, address and line of each inlined call.
    locations: BTreeMap<Vec<(u32, u64, i64)>, i32>,
    functions: BTreeMap<(i32, i32, i32), i32>,
    /// Mappings by image and by the difference between its addresses and file offsets, since a mapping has only one offset.
    mappings: BTreeMap<(&'a str, u64), i32>,
}

impl<'a> Tables<'a> {
    fn new() -> Self {
        let dictionary = ProfilesDictionary {
            mapping_table: vec![Mapping::default()],
            location_table: vec![Location::default()],
            function_table: vec![Function::default()],
            link_table: vec![Link::default()],
            string_table: vec![String::new()],
            attribute_table: vec![KeyValueAndUnit::default()],
            stack_table: vec![Stack::default()],
        };
        Tables {
            dictionary,
            strings: BTreeMap::from([(String::new(), 0)]),
            locations: BTreeMap::new(),
            functions: BTreeMap::new(),
            mappings: BTreeMap::new(),
        }
    }

    /// Returns a profile for each event, and one of the executed instructions if they are known. The profile of the event with number
    /// `event` begins with `stacked`.
    fn profiles(
        &mut self,
        places: &'a Places,
        stacked: Vec<(i32, i64)>,
        event: Option<usize>,
    ) -> Vec<Profile> {
        let instructions = places.procedures.iter().flat_map(|p| p.instructions.iter().map(move |i| (p, i)));
        let stacks: Vec<(i32, &InstructionPlace)> =
            instructions.map(|(p, i)| (self.stack(p, i), i)).collect();
        let mut profiles = Vec::new();
        for (number, of_event) in places.events.iter().enumerate() {
            let first = stacked.iter().copied().filter(|_| event == Some(number));
            let others = stacks.iter().map(|(stack, i)| (*stack, i.samples[number] as i64));
            profiles.push(self.profile(places, of_event, first.chain(others)));
        }
        if places.knows_executions() {
            let of_all = PlaceEvent { name: "instructions".to_owned(), period: 1, unit: "events".to_owned() };
            let executed = |i: &InstructionPlace| i.executions.unwrap_or(0.0).round().clamp(0.0, 9e18) as i64;
            let executions = stacks.iter().map(|(stack, i)| (*stack, executed(i)));
            profiles.push(self.profile(places, &of_all, executions));
        }
        profiles
    }

    fn string(&mut self, text: &str) -> i32 {
        if let Some(&index) = self.strings.get(text) {
            return index;
        }
        let index = pushed(&mut self.dictionary.string_table, text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn profile(
        &mut self,
        places: &Places,
        event: &PlaceEvent,
        samples: impl Iterator<Item = (i32, i64)>,
    ) -> Profile {
        let sample = |(stack_index, value): (i32, i64)| Sample {
            stack_index,
            values: vec![value],
            ..Sample::default()
        };
        let unit = if event.unit == "ns" { "nanoseconds" } else { &event.unit };
        let period_type =
            ValueType { type_strindex: self.string(&event.name), unit_strindex: self.string(unit) };
        let is_sampled = event.period > 1 || event.unit != "events";
        let kind = if is_sampled { "samples" } else { &event.name };
        Profile {
            sample_type: Some(ValueType {
                type_strindex: self.string(kind),
                unit_strindex: self.string("count"),
            }),
            samples: samples.filter(|(_, n)| *n > 0).map(sample).collect(),
            time_unix_nano: u64::try_from(places.start_ns).unwrap_or(0),
            duration_nano: u64::try_from(places.duration_ns).unwrap_or(0),
            period_type: Some(period_type),
            period: i64::try_from(event.period).unwrap_or(i64::MAX),
            ..Profile::default()
        }
    }

    /// Returns a stack with one location, which has a line for each inlined call, innermost first.
    fn stack(&mut self, p: &'a ProcedurePlaces, i: &InstructionPlace) -> i32 {
        let mapping_index = self.mapping((&p.build_id, &p.image), p.address_over_offset, i.address);
        let outer = i.frames.len().saturating_sub(1);
        let mut lines = Vec::new();
        for (nth, frame) in i.frames.iter().enumerate() {
            let (name, file) = if nth < outer {
                (frame.function.as_deref().unwrap_or("[inlined]"), frame.file.as_deref())
            } else {
                (p.demangled.as_str(), p.file.as_deref().or(frame.file.as_deref()))
            };
            let function_index = self.function(name, p, file, nth == outer);
            lines.push(Line { function_index, line: frame.line.unwrap_or(0).into(), column: 0 });
        }
        if lines.is_empty() {
            let function_index = self.function(&p.demangled, p, None, true);
            lines.push(Line { function_index, line: 0, column: 0 });
        }
        let location = Location { mapping_index, address: i.address, lines, ..Location::default() };
        let location = pushed(&mut self.dictionary.location_table, location);
        pushed(&mut self.dictionary.stack_table, Stack { location_indices: vec![location] })
    }

    /// Returns a call stack: a location for each frame with the functions inlined into it, the innermost frame first.
    fn call_stack(&mut self, stacks: &'a Stacks, path: &[u32]) -> i32 {
        let frames = path.chunk_by(|_, next| stacks.nodes[*next as usize].inlined).rev();
        let location_indices = frames.map(|frame| self.frame(stacks, frame)).collect();
        pushed(&mut self.dictionary.stack_table, Stack { location_indices })
    }

    /// Returns the location of a frame, given with the functions inlined into it, outermost first.
    fn frame(&mut self, stacks: &'a Stacks, frame: &[u32]) -> i32 {
        let nodes: Vec<&StackNode> = frame.iter().map(|at| &stacks.nodes[*at as usize]).collect();
        let line = |node: &StackNode| node.line.as_ref().map_or(0, |(_, line)| i64::from(*line));
        let key: Vec<_> = nodes.iter().map(|node| (node.function, node.address, line(node))).collect();
        if let Some(&known) = self.locations.get(&key) {
            return known;
        }
        let function: &StackFunction = &stacks.functions[nodes[0].function as usize];
        let (address, over) = (nodes[0].address, nodes[0].address.wrapping_sub(nodes[0].offset));
        // What stands for the rest of an incomplete stack is in no image.
        let mapping_index = match function.build_id.is_empty() {
            true => 0,
            false => self.mapping((&function.build_id, &function.path), over, address),
        };
        let mut lines = Vec::new();
        for node in nodes.iter().rev() {
            let name = &stacks.functions[node.function as usize].name;
            let file = node.line.as_ref().map(|(file, _)| &**file);
            let function_index = self.named(name, name, file, 0);
            lines.push(Line { function_index, line: line(node), column: 0 });
        }
        let location = Location { mapping_index, address, lines, ..Location::default() };
        let index = pushed(&mut self.dictionary.location_table, location);
        self.locations.insert(key, index);
        index
    }

    fn function(&mut self, name: &str, p: &ProcedurePlaces, file: Option<&str>, is_own: bool) -> i32 {
        let system = if is_own { p.procedure.as_str() } else { name };
        self.named(name, system, file, if is_own { p.line.unwrap_or(0).into() } else { 0 })
    }

    fn named(&mut self, name: &str, system: &str, file: Option<&str>, start_line: i64) -> i32 {
        let key = (self.string(name), self.string(system), self.string(file.unwrap_or_default()));
        if let Some(&index) = self.functions.get(&key) {
            return index;
        }
        let function = Function {
            name_strindex: key.0,
            system_name_strindex: key.1,
            filename_strindex: key.2,
            start_line,
        };
        let index = pushed(&mut self.dictionary.function_table, function);
        self.functions.insert(key, index);
        index
    }

    /// Returns the index of the mapping of an image (id, path) whose addresses are `over` its offsets, which then contains
    /// `address`.
    fn mapping(&mut self, (build_id, path): (&'a str, &str), over: u64, address: u64) -> i32 {
        let index = match self.mappings.get(&(build_id, over)) {
            Some(&index) => index,
            None => self.new_mapping((build_id, path), over, address),
        };
        let mapping = &mut self.dictionary.mapping_table[index as usize];
        mapping.memory_start = mapping.memory_start.min(address & !0xfff);
        mapping.memory_limit = mapping.memory_limit.max((address | 0xfff).saturating_add(1));
        mapping.file_offset = mapping.memory_start.wrapping_sub(over);
        index
    }

    fn new_mapping(&mut self, (build_id, path): (&'a str, &str), over: u64, address: u64) -> i32 {
        let filename_strindex = self.string(path);
        let attribute = KeyValueAndUnit {
            key_strindex: self.string("process.executable.build_id.gnu"),
            value: Some(AnyValue { value: Some(Value::StringValue(build_id.to_owned())) }),
            unit_strindex: 0,
        };
        let attribute = pushed(&mut self.dictionary.attribute_table, attribute);
        let mapping = Mapping {
            memory_start: address,
            filename_strindex,
            attribute_indices: vec![attribute],
            ..Mapping::default()
        };
        let index = pushed(&mut self.dictionary.mapping_table, mapping);
        self.mappings.insert((build_id, over), index);
        index
    }
}

fn pushed<T>(table: &mut Vec<T>, row: T) -> i32 {
    table.push(row);
    i32::try_from(table.len() - 1).expect("a profile has fewer than 2^31 places")
}
