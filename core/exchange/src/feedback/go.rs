//! Profiles for Go's profile-guided optimization: a CPU profile in pprof's format.
//!
//! `go build -pgo=` uses only the calls of such a profile (cmd/internal/pgo): the caller, the distance of the call from
//! the caller's first line, the callee, and the count. In a sampled stack, these come from the time that was spent
//! below a call. Dwell writes the calls themselves: a stack of two frames for each call, with the number of calls as
//! its value. For an inlined call this number is the executions of its most executed instruction.

use std::collections::BTreeMap;

use dwell_query::answer::{Feedback, FeedbackFrame, FeedbackInstruction};
use prost::Message;

use super::whole;
use crate::pprof::{Function, Line, Location, Profile, Sample, Strings, ValueType};

/// A frame as Go distinguishes it: function, file, first line, line.
type Place = (String, String, u32, u32);

pub fn write(feedback: &Feedback) -> Vec<u8> {
    let mut builder = Builder::new();
    for ((caller, callee), count) in calls(feedback) {
        builder.call(&caller, &callee, count);
    }
    builder.profile.encode_to_vec()
}

/// Returns how often each call was executed, by caller and callee.
fn calls(feedback: &Feedback) -> BTreeMap<(Place, Place), u64> {
    let starts: BTreeMap<(&str, u64), &FeedbackInstruction> = feedback
        .procedures
        .iter()
        .filter_map(|p| Some(((p.build_id.as_str(), p.address), p.instructions.first()?)))
        .collect();
    let mut calls: BTreeMap<(Place, Place), u64> = BTreeMap::new();
    for p in &feedback.procedures {
        // An inlined call is one call, however many instructions it consists of.
        let mut inlined: BTreeMap<(Place, Place), u64> = BTreeMap::new();
        for i in &p.instructions {
            for pair in i.frames.windows(2) {
                let Some(call) = place(&pair[1]).zip(place(&pair[0]).map(entry)) else { continue };
                let count = inlined.entry(call).or_default();
                *count = (*count).max(whole(i.executions.unwrap_or(0.0)));
            }
            let Some(caller) = i.frames.first().and_then(place) else { continue };
            for call in &i.calls {
                let start = starts.get(&(p.build_id.as_str(), call.target_address));
                let frame = start.and_then(|start| place(start.frames.last()?));
                let callee = frame.unwrap_or_else(|| (call.target.clone(), String::new(), 0, 0));
                *calls.entry((caller.clone(), entry(callee))).or_default() += whole(call.executions);
            }
        }
        for (call, count) in inlined {
            *calls.entry(call).or_default() += count;
        }
    }
    calls.retain(|_, count| *count > 0);
    calls
}

fn place(frame: &FeedbackFrame) -> Option<Place> {
    let function = frame.function.clone().filter(|_| frame.line > 0 && frame.start_line > 0)?;
    Some((function, frame.file.clone().unwrap_or_default(), frame.start_line, frame.line))
}

/// Returns the entry of a function, since the line in the callee does not matter.
fn entry((function, file, start_line, _): Place) -> Place {
    (function, file, start_line, start_line)
}

struct Builder {
    profile: Profile,
    strings: Strings,
    functions: BTreeMap<(String, String, u32), u64>,
    locations: BTreeMap<Place, u64>,
}

impl Builder {
    fn new() -> Builder {
        let mut builder = Builder {
            profile: Profile::default(),
            strings: Strings::default(),
            functions: BTreeMap::new(),
            locations: BTreeMap::new(),
        };
        builder.string(""); // The first string is the empty one.
        let count = ValueType { kind: builder.string("samples"), unit: builder.string("count") };
        builder.profile.sample_type = vec![count];
        builder
    }

    fn call(&mut self, caller: &Place, callee: &Place, count: u64) {
        // The leaf is the first location.
        let location_id = vec![self.location(callee), self.location(caller)];
        let value = vec![i64::try_from(count).unwrap_or(i64::MAX)];
        self.profile.sample.push(Sample { location_id, value });
    }

    fn string(&mut self, text: &str) -> i64 {
        self.strings.number(&mut self.profile.string_table, text)
    }

    fn location(&mut self, place: &Place) -> u64 {
        if let Some(&id) = self.locations.get(place) {
            return id;
        }
        let id = self.locations.len() as u64 + 1;
        let line = Line { function_id: self.function(place), line: place.3.into() };
        self.profile.location.push(Location { id, line: vec![line], ..Location::default() });
        self.locations.insert(place.clone(), id);
        id
    }

    fn function(&mut self, (name, file, start_line, _): &Place) -> u64 {
        let key = (name.clone(), file.clone(), *start_line);
        if let Some(&id) = self.functions.get(&key) {
            return id;
        }
        let id = self.functions.len() as u64 + 1;
        let (name, filename) = (self.string(name), self.string(file));
        self.profile.function.push(Function {
            id,
            name,
            system_name: name,
            filename,
            start_line: i64::from(*start_line),
        });
        self.functions.insert(key, id);
        id
    }
}
