//! Folded stacks: a line `image;procedure;inlined count` for each distinct stack, of the first event.

use std::{collections::BTreeMap, fmt::Write};

use dwell_query::answer::Places;

use super::{file_name, functions};

pub fn write(places: &Places) -> String {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for procedure in &places.procedures {
        for i in &procedure.instructions {
            let names = std::iter::once(file_name(&procedure.image)).chain(functions(procedure, i));
            let stack: Vec<String> = names.map(plain).collect();
            *stacks.entry(stack.join(";")).or_default() += i.samples.first().copied().unwrap_or(0);
        }
    }
    let mut out = String::new();
    for (stack, count) in stacks.iter().filter(|(_, n)| **n > 0) {
        writeln!(out, "{stack} {count}").expect("a String takes every text");
    }
    out
}

/// Returns a name without the characters that separate frames and lines.
fn plain(name: &str) -> String {
    name.replace(';', ":").replace(['\n', '\r'], " ")
}
