//! The format of speedscope: frames, and a weight for each distinct stack; a profile for each event.
//!
//! The schema: <https://www.speedscope.app/file-format-schema.json>.

use std::collections::BTreeMap;

use dwell_query::answer::{InstructionPlace, Places, ProcedurePlaces, Stacks};
use serde_json::{Value, json};

use super::file_name;

#[derive(Default)]
struct Frames {
    known: BTreeMap<(String, Option<String>, Option<u32>), usize>,
    all: Vec<Value>,
}

impl Frames {
    fn index(&mut self, name: &str, file: Option<&str>, line: Option<u32>) -> usize {
        let key = (name.to_owned(), file.map(str::to_owned), line);
        if let Some(&index) = self.known.get(&key) {
            return index;
        }
        let mut frame = json!({ "name": name });
        if let Some(file) = file {
            frame["file"] = json!(file);
        }
        if let Some(line) = line {
            frame["line"] = json!(line);
        }
        self.all.push(frame);
        self.known.insert(key, self.all.len() - 1);
        self.all.len() - 1
    }

    /// Returns the frames of a stack, outermost first.
    fn stack(&mut self, p: &ProcedurePlaces, i: &InstructionPlace) -> Vec<usize> {
        let mut stack = vec![
            self.index(file_name(&p.image), None, None),
            self.index(&p.demangled, p.file.as_deref(), p.line),
        ];
        for frame in i.frames.iter().rev().skip(1) {
            let name = frame.function.as_deref().unwrap_or("[inlined]");
            stack.push(self.index(name, frame.file.as_deref(), None));
        }
        stack
    }
}

/// Returns the samples that have a call stack.
pub fn write_stacks(places: &Places, stacks: &Stacks) -> String {
    let mut frames = Frames::default();
    let (unit, each) =
        if stacks.event.unit == "ns" { ("nanoseconds", stacks.event.period) } else { ("none", 1) };
    let mut sums: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
    for (at, node) in (0..).zip(&stacks.nodes).filter(|(_, node)| node.samples > 0) {
        let frame = |frame: u32| {
            let (file, function) = (&stacks.nodes[frame as usize].line, stacks.function(frame));
            frames.index(&function.name, file.as_ref().map(|(file, _)| &**file), None)
        };
        let stack: Vec<usize> = stacks.path(at).into_iter().map(frame).collect();
        *sums.entry(stack).or_default() += node.samples * each;
    }
    let profile = json!({
        "type": "sampled",
        "name": stacks.event.name,
        "unit": unit,
        "startValue": 0,
        "endValue": sums.values().sum::<u64>(),
        "samples": sums.keys().collect::<Vec<_>>(),
        "weights": sums.values().collect::<Vec<_>>(),
    });
    file(places, frames, vec![profile])
}

pub fn write(places: &Places) -> String {
    let mut frames = Frames::default();
    let mut stacks: BTreeMap<Vec<usize>, Vec<u64>> = BTreeMap::new();
    for procedure in &places.procedures {
        for i in &procedure.instructions {
            let sums =
                stacks.entry(frames.stack(procedure, i)).or_insert_with(|| vec![0; places.events.len()]);
            sums.iter_mut().zip(&i.samples).for_each(|(sum, n)| *sum += n);
        }
    }
    let profile = |(index, event): (usize, &dwell_query::answer::PlaceEvent)| {
        let (unit, each) = if event.unit == "ns" { ("nanoseconds", event.period) } else { ("none", 1) };
        let taken: Vec<(&Vec<usize>, u64)> =
            stacks.iter().map(|(stack, sums)| (stack, sums[index] * each)).filter(|(_, w)| *w > 0).collect();
        json!({
            "type": "sampled",
            "name": event.name,
            "unit": unit,
            "startValue": 0,
            "endValue": taken.iter().map(|(_, w)| w).sum::<u64>(),
            "samples": taken.iter().map(|(stack, _)| stack).collect::<Vec<_>>(),
            "weights": taken.iter().map(|(_, w)| w).collect::<Vec<_>>(),
        })
    };
    let profiles: Vec<Value> = places.events.iter().enumerate().map(profile).collect();
    file(places, frames, profiles)
}

fn file(places: &Places, frames: Frames, profiles: Vec<Value>) -> String {
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": places.epochs.join("+"),
        "exporter": concat!("dwell ", env!("CARGO_PKG_VERSION")),
        "activeProfileIndex": 0,
        "shared": { "frames": frames.all },
        "profiles": profiles,
    });
    file.to_string() + "\n"
}
