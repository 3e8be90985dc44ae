//! pprof's protocol buffers, uncompressed: a location for each instruction, with the calls that were inlined there.
//!
//! The schema: `proto/profile.proto` of github.com/google/pprof, whose field numbers are used here.

use std::collections::BTreeMap;

use dwell_query::answer::{InstructionPlace, PlaceEvent, Places, ProcedurePlaces, StackNode, Stacks};
use prost::Message;

use super::without_stacks::without_stacks;
use crate::pprof::{Function, Line, Location, Mapping, Profile, Sample, Strings, ValueType};

/// A profile while it is built.
struct Builder<'a> {
    places: &'a Places,
    knows_executions: bool,
    profile: Profile,
    strings: Strings,
    functions: BTreeMap<(i64, i64, i64), u64>,
    /// Mappings by image and by the difference between its addresses and file offsets, since a mapping has only one
    /// offset.
    mappings: BTreeMap<(&'a str, u64), u64>,
}

pub fn write(places: &Places) -> Vec<u8> {
    let mut builder = Builder::new(places);
    builder.places();
    builder.profile.encode_to_vec()
}

/// A frame and the functions inlined into it, outermost first: number of the function, address and line of each.
type FrameKey = Vec<(u32, u64, Option<u32>)>;

/// Returns the samples that have a call stack: a location for each frame, with the calls inlined there. With `all`, the others follow,
/// with one location each, and so do the samples of other events and the executions.
pub fn write_stacks(places: &Places, stacks: &Stacks, all: bool) -> Vec<u8> {
    let shown = match all {
        true => without_stacks(places, stacks),
        false => Places { events: vec![stacks.event.clone()], procedures: Vec::new(), ..places.clone() },
    };
    let mut builder = Builder::new(&shown);
    let event = shown.events.iter().position(|event| event.name == stacks.event.name);
    let mut locations: BTreeMap<FrameKey, u64> = BTreeMap::new();
    for (node, path) in stacks.sampled() {
        let mut location_id = Vec::new();
        // Each group is a frame with the functions inlined into it, outermost first.
        for group in path.chunk_by(|_, next| stacks.nodes[*next as usize].inlined).rev() {
            location_id.push(builder.stack_location(stacks, group, &mut locations));
        }
        let count = |at| if Some(at) == event { node.samples } else { 0 };
        let value = builder.values((0..shown.events.len()).map(count).collect(), None);
        builder.profile.sample.push(Sample { location_id, value });
    }
    builder.places();
    builder.profile.encode_to_vec()
}

impl<'a> Builder<'a> {
    /// Begins a profile with the events of the places, and without samples.
    fn new(places: &'a Places) -> Self {
        let mut builder = Builder {
            places,
            knows_executions: places.knows_executions(),
            profile: Profile::default(),
            strings: Strings::default(),
            functions: BTreeMap::new(),
            mappings: BTreeMap::new(),
        };
        builder.string(""); // The first string is the empty one.
        builder.types();
        builder
    }

    /// Adds the samples of all places that have any.
    fn places(&mut self) {
        for procedure in &self.places.procedures {
            let has_any = |i: &&InstructionPlace| i.executions.is_some() || i.samples.iter().any(|n| *n > 0);
            procedure.instructions.iter().filter(has_any).for_each(|i| self.sample(procedure, i));
        }
    }

    /// Returns the values of a sample in the order of their types.
    fn values(&self, samples: Vec<u64>, executions: Option<f64>) -> Vec<i64> {
        let mut values: Vec<i64> = samples.iter().map(|n| *n as i64).collect();
        if self.knows_executions {
            values.push(executions.unwrap_or(0.0).round().clamp(0.0, 9e18) as i64);
        }
        let cost = |event: &PlaceEvent| samples[0].saturating_mul(event.period).min(i64::MAX as u64) as i64;
        values.extend(self.places.events.first().map(cost));
        values
    }

    /// Returns the number of the location of a frame and the functions inlined into it, outermost first.
    fn stack_location(
        &mut self,
        stacks: &'a Stacks,
        group: &[u32],
        locations: &mut BTreeMap<FrameKey, u64>,
    ) -> u64 {
        let nodes: Vec<&StackNode> = group.iter().map(|at| &stacks.nodes[*at as usize]).collect();
        let line = |node: &StackNode| node.line.as_ref().map(|(_, line)| *line);
        let key = nodes.iter().map(|node| (node.function, node.address, line(node))).collect();
        let next = locations.len() as u64 + 1;
        let id = *locations.entry(key).or_insert(next);
        if id < next {
            return id;
        }
        let function = &stacks.functions[nodes[0].function as usize];
        let (address, over) = (nodes[0].address, nodes[0].address.wrapping_sub(nodes[0].offset));
        // What stands for the rest of an incomplete stack is in no image.
        let has_image = !function.build_id.is_empty();
        let image = has_image.then(|| self.mapping((&function.path, &function.build_id), over, address));
        let mapping_id = image.unwrap_or(0);
        let mut lines = Vec::new();
        for node in nodes.iter().rev() {
            let name = &stacks.functions[node.function as usize].name;
            let file = node.line.as_ref().map(|(file, _)| &**file);
            let function_id = self.function(name, name, file, 0);
            lines.push(Line { function_id, line: line(node).unwrap_or(0).into() });
        }
        self.profile.location.push(Location { id, mapping_id, address, line: lines });
        id
    }

    fn string(&mut self, text: &str) -> i64 {
        self.strings.number(&mut self.profile.string_table, text)
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { kind: self.string(kind), unit: self.string(unit) }
    }

    /// Sets the types of the values of each sample: the counts of every event, the executed instructions if they are
    /// known, and the cost, which is last because the last value is the default.
    fn types(&mut self) {
        let places = self.places;
        for (nth, event) in places.events.iter().enumerate() {
            let kind = if nth == 0 { "samples" } else { &event.name };
            let value_type = self.value_type(kind, "count");
            self.profile.sample_type.push(value_type);
        }
        if self.knows_executions {
            let executed = self.value_type("instructions", "count");
            self.profile.sample_type.push(executed);
        }
        if let Some(event) = places.events.first() {
            let cost = match event.unit.as_str() {
                "ns" => self.value_type("cpu", "nanoseconds"),
                _ => self.value_type(&event.name, "count"),
            };
            self.profile.period_type = Some(cost.clone());
            self.profile.sample_type.push(cost);
            self.profile.period = event.period as i64;
        }
        self.profile.time_nanos = places.start_ns;
        self.profile.duration_nanos = places.duration_ns;
        self.profile.comment = places.notes.iter().map(|n| self.string(n)).collect();
    }

    fn sample(&mut self, procedure: &'a ProcedurePlaces, i: &'a InstructionPlace) {
        let id = self.profile.location.len() as u64 + 1;
        let location = Location {
            id,
            mapping_id: self.mapping(
                (&procedure.image, &procedure.build_id),
                procedure.address_over_offset,
                i.address,
            ),
            address: i.address,
            line: self.lines(procedure, i),
        };
        self.profile.location.push(location);
        let value = self.values(i.samples.clone(), i.executions);
        self.profile.sample.push(Sample { location_id: vec![id], value });
    }

    /// Returns the number of the mapping of an image (path, id) whose addresses are `over` its offsets, which then contains
    /// `address`.
    fn mapping(&mut self, (path, id): (&str, &'a str), over: u64, address: u64) -> u64 {
        let next = self.mappings.len() as u64 + 1;
        let number = *self.mappings.entry((id, over)).or_insert(next);
        if number == next {
            let (filename, build_id) = (self.string(path), self.string(id));
            self.profile.mapping.push(Mapping {
                id: number,
                filename,
                build_id,
                memory_start: address,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
                ..Mapping::default()
            });
        }
        let mapping = &mut self.profile.mapping[number as usize - 1];
        mapping.memory_start = mapping.memory_start.min(address & !0xfff);
        mapping.memory_limit = mapping.memory_limit.max((address | 0xfff).saturating_add(1));
        mapping.file_offset = mapping.memory_start.wrapping_sub(over);
        number
    }

    /// Returns the lines of an instruction, innermost first, as the schema requires.
    fn lines(&mut self, procedure: &ProcedurePlaces, i: &InstructionPlace) -> Vec<Line> {
        let outer = i.frames.len().saturating_sub(1);
        let mut lines = Vec::new();
        for (nth, frame) in i.frames.iter().enumerate() {
            let inlined = frame.function.as_deref().filter(|_| nth < outer);
            let (name, system, start) = match inlined {
                Some(function) => (function, function, 0),
                None if nth < outer => ("[inlined]", "[inlined]", 0),
                None => (&*procedure.demangled, &*procedure.procedure, procedure.line.unwrap_or(0)),
            };
            let file = if nth < outer {
                frame.file.as_deref()
            } else {
                procedure.file.as_deref().or(frame.file.as_deref())
            };
            lines.push(Line {
                function_id: self.function(name, system, file, start),
                line: frame.line.unwrap_or(0).into(),
            });
        }
        if lines.is_empty() {
            let function_id = self.function(&procedure.demangled, &procedure.procedure, None, 0);
            lines.push(Line { function_id, line: 0 });
        }
        lines
    }

    fn function(&mut self, name: &str, system: &str, file: Option<&str>, start_line: u32) -> u64 {
        let key = (self.string(name), self.string(system), self.string(file.unwrap_or_default()));
        if let Some(&id) = self.functions.get(&key) {
            return id;
        }
        let id = self.profile.function.len() as u64 + 1;
        let (name, system_name, filename) = key;
        self.profile.function.push(Function {
            id,
            name,
            system_name,
            filename,
            start_line: start_line.into(),
        });
        self.functions.insert(key, id);
        id
    }
}
