//! Folded stacks: a line `outermost;…;innermost count` for each distinct stack, of the first event.
//!
//! If call stacks were recorded, the lines are those of the samples that have one. Otherwise a stack consists of an image, a
//! procedure and the functions inlined into it.

use std::{collections::BTreeMap, fmt::Write};

use dwell_query::answer::{Places, Stacks};

use super::{file_name, functions, without_stacks::without_stacks};

/// Name of the outermost frame of samples without a call stack, if they are requested.
const NO_STACK: &str = "[no stack]";

/// Returns the samples of all places, without callers.
pub fn write(places: &Places) -> String {
    text(&of_places(places))
}

/// Returns the samples that have a call stack, and with `all` also the others, under `[no stack]`.
pub fn write_stacks(places: &Places, stacks: &Stacks, all: bool) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (node, path) in stacks.sampled() {
        let frames = path.into_iter().map(|frame| plain(&stacks.function(frame).name));
        *lines.entry(frames.collect::<Vec<_>>().join(";")).or_default() += node.samples;
    }
    if all {
        for (line, samples) in of_places(&without_stacks(places, stacks)) {
            *lines.entry(format!("{NO_STACK};{line}")).or_default() += samples;
        }
    }
    text(&lines)
}

/// Returns the lines of samples by place: image, procedure, functions inlined there.
fn of_places(places: &Places) -> BTreeMap<String, u64> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for procedure in &places.procedures {
        for i in &procedure.instructions {
            let names = std::iter::once(file_name(&procedure.image)).chain(functions(procedure, i));
            let stack: Vec<String> = names.map(plain).collect();
            *stacks.entry(stack.join(";")).or_default() += i.samples.first().copied().unwrap_or(0);
        }
    }
    stacks
}

fn text(lines: &BTreeMap<String, u64>) -> String {
    let mut out = String::new();
    for (stack, count) in lines.iter().filter(|(_, n)| **n > 0) {
        writeln!(out, "{stack} {count}").expect("a String takes every text");
    }
    out
}

/// Returns a name without the characters that separate frames and lines.
pub fn plain(name: &str) -> String {
    name.replace(';', ":").replace(['\n', '\r'], " ")
}
