//! The output format of `perf script`: a record for each sample, innermost call first, for tools that read that text.
//!
//! Readers count records, or add up their periods as `inferno-collapse-perf` does, so each sample of the first event is
//! one record. Dwell does not store process, CPU and time of samples. The file name of the image replaces the command,
//! and the records of a command follow each other at intervals of the period, since readers assign the time until the
//! next record of a command to the record.

use std::{collections::BTreeMap, fmt::Write};

use dwell_query::answer::{InstructionPlace, PlaceEvent, Places, ProcedurePlaces, Stacks};

use super::file_name;

pub fn write(places: &Places) -> String {
    let mut out = String::new();
    let Some(event) = places.events.first() else { return out };
    let mut recorded: BTreeMap<&str, u64> = BTreeMap::new();
    for p in &places.procedures {
        let nth = recorded.entry(&p.image).or_default();
        for i in &p.instructions {
            let stack = stack(p, i);
            for _ in 0..i.samples[0] {
                record(&mut out, file_name(&p.image), event, *nth);
                out.push_str(&stack);
                *nth += 1;
            }
        }
    }
    out
}

/// Returns the samples that have a call stack. The application is the command of its records.
pub fn write_stacks(stacks: &Stacks) -> String {
    let mut out = String::new();
    let mut recorded = vec![0; stacks.apps.len()];
    for (node, path) in stacks.sampled() {
        let frames: String = path.iter().rev().map(|frame| stack_line(stacks, *frame)).collect();
        let nth = &mut recorded[node.app as usize];
        for _ in 0..node.samples {
            record(&mut out, &stacks.apps[node.app as usize], &stacks.event, *nth);
            out.push_str(&frames);
            out.push('\n');
            *nth += 1;
        }
    }
    out
}

fn stack_line(stacks: &Stacks, frame: u32) -> String {
    let (node, function) = (&stacks.nodes[frame as usize], stacks.function(frame));
    let image = if node.inlined { "inlined".to_owned() } else { plain(&function.path) };
    format!("\t{:16x} {} ({image})\n", node.address, plain(&function.name))
}

/// Writes the line that begins a record.
fn record(out: &mut String, command: &str, event: &PlaceEvent, nth: u64) {
    let ns = nth.saturating_mul(if event.unit == "ns" { event.period } else { 1000 });
    let (seconds, micros) = (ns / 1_000_000_000, ns / 1000 % 1_000_000);
    let command = plain(command).replace(' ', "_");
    writeln!(out, "{command:<16} 0 {seconds}.{micros:06}: {:>10} {}: ", event.period, event.name)
        .expect("a String takes every text");
}

/// Returns the other lines of a record, and the empty line that ends it.
fn stack(p: &ProcedurePlaces, i: &InstructionPlace) -> String {
    let mut out = String::new();
    let outer = i.frames.len().saturating_sub(1);
    for frame in &i.frames[..outer] {
        let name = frame.function.as_deref().map_or("[unknown]".to_owned(), plain);
        writeln!(out, "\t{:16x} {name} (inlined)", i.address).expect("a String takes every text");
    }
    let name =
        if p.procedure == dwell_query::NO_SYMBOL { "[unknown]".to_owned() } else { plain(&p.demangled) };
    let offset = if p.address > 0 && i.address >= p.address {
        format!("+{:#x}", i.address - p.address)
    } else {
        String::new()
    };
    writeln!(out, "\t{:16x} {name}{offset} ({})\n", i.address, plain(&p.image))
        .expect("a String takes every text");
    out
}

/// Returns a name without characters that end a line.
fn plain(name: &str) -> String {
    name.replace(['\n', '\r'], " ")
}
