//! Folded stacks: a line `outermost;…;innermost count` for each distinct stack, of the first event.
//!
//! If call stacks were recorded, the lines are those of the samples that have one. Otherwise a stack consists of an image, a
//! procedure and the functions inlined into it.

use std::{collections::BTreeMap, fmt::Write};

use dwell_query::answer::{Places, StackNode, Stacks};

use super::{file_name, functions};

/// Name of the outermost frame of samples without a call stack, if they are requested.
const NO_STACK: &str = "[no stack]";

/// Returns the samples of all places, without callers.
pub fn write(places: &Places) -> String {
    text(&of_places(places))
}

/// Returns the samples that have a call stack, and with `all` also the others, under `[no stack]`.
pub fn write_stacks(places: &Places, stacks: &Stacks, all: bool) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (at, node) in (0..).zip(&stacks.nodes).filter(|(_, node)| node.samples > 0) {
        let frames = stacks.path(at).into_iter().map(|frame| plain(&stacks.function(frame).name));
        *lines.entry(frames.collect::<Vec<_>>().join(";")).or_default() += node.samples;
    }
    if all {
        // A sample with a stack is also a sample of its place: it must not be counted twice.
        let mut others = of_places(places);
        for node in stacks.nodes.iter().filter(|node| node.samples > 0) {
            take_off(&mut others, stacks, node);
        }
        for (line, samples) in others {
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

/// Takes the samples of a stack off the lines of their place, or of another place in the image if the names differ.
fn take_off(lines: &mut BTreeMap<String, u64>, stacks: &Stacks, node: &StackNode) {
    let mut names = Vec::new();
    let mut at = Some(node);
    while let Some(frame) = at {
        names.push(&stacks.functions[frame.function as usize]);
        at = frame.parent.filter(|_| frame.inlined).map(|parent| &stacks.nodes[parent as usize]);
    }
    let image = plain(&names[0].image);
    let named = names.iter().rev().map(|function| plain(&function.name));
    let line = std::iter::once(image.clone()).chain(named).collect::<Vec<_>>().join(";");
    let mut left = node.samples;
    let mut take = |samples: &mut u64| {
        let taken = left.min(*samples);
        (*samples, left) = (*samples - taken, left - taken);
    };
    lines.get_mut(&line).into_iter().for_each(&mut take);
    let prefix = format!("{image};");
    lines.iter_mut().filter(|(line, _)| line.starts_with(&prefix)).for_each(|(_, n)| take(n));
    lines.values_mut().for_each(take);
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
