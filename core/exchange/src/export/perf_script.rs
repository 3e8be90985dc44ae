//! What `perf script` prints: a record for each sample, innermost call first, for tools that read that text.
//!
//! Readers count records, or add up their periods as `inferno-collapse-perf` does, so a sample of the first event is one record.
//! Process, CPU and time are not kept by Dwell: the image's file name stands for the command, whose records follow each other by
//! the period, since readers take the time up to a command's next record for the record's.

use std::{collections::BTreeMap, fmt::Write};

use dwell_query::answer::{InstructionPlace, PlaceEvent, Places, ProcedurePlaces};

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
                record(&mut out, p, event, *nth);
                out.push_str(&stack);
                *nth += 1;
            }
        }
    }
    out
}

/// The line that begins a record.
fn record(out: &mut String, p: &ProcedurePlaces, event: &PlaceEvent, nth: u64) {
    let ns = nth.saturating_mul(if event.unit == "ns" { event.period } else { 1000 });
    let (seconds, micros) = (ns / 1_000_000_000, ns / 1000 % 1_000_000);
    let command = plain(file_name(&p.image)).replace(' ', "_");
    writeln!(out, "{command:<16} 0 {seconds}.{micros:06}: {:>10} {}: ", event.period, event.name)
        .expect("a String takes every text");
}

/// The record's other lines and the empty one that ends it.
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

/// Without what ends a line.
fn plain(name: &str) -> String {
    name.replace(['\n', '\r'], " ")
}
