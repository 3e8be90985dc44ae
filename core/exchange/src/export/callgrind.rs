//! Callgrind's profile format: a cost line for each instruction, under its object, function and file.
//!
//! The format: <https://valgrind.org/docs/manual/cl-format.html>. Costs are whole numbers. An instruction without an
//! estimate has the cycles of its samples and no executions. If the clock is unknown, samples are written as cycles.

use std::{collections::BTreeMap, fmt::Write};

use dwell_query::answer::{InstructionPlace, Places};

/// Numbers of names: a name is written in full once, and later only as its number.
#[derive(Default)]
struct Names(BTreeMap<String, usize>);

impl Names {
    fn named(&mut self, name: &str) -> String {
        let next = self.0.len() + 1;
        match self.0.get(name) {
            Some(number) => format!("({number})"),
            None => {
                self.0.insert(name.to_owned(), next);
                format!("({next}) {}", name.replace(['\n', '\r'], " "))
            }
        }
    }
}

pub fn write(places: &Places) -> String {
    let mut out = String::new();
    let mut say = |line: String| writeln!(out, "{line}").expect("a String takes every text");
    let cycles = if places.period_cycles.is_some() { "Cycles" } else { "Samples" };
    let knows_executions = places.knows_executions();
    let (described, also) = match knows_executions {
        true => ("event: Ir : Instructions executed (where known)\n", " Ir"),
        false => ("", ""),
    };
    // callgrind_annotate treats `events` as the last line of the header.
    say(format!(
        "# callgrind format\nversion: 1\ncreator: dwell {}\ncmd: {}\npositions: instr line\n\
         {described}events: {cycles}{also}",
        env!("CARGO_PKG_VERSION"),
        places.epochs.join("+")
    ));
    let (mut objects, mut files, mut functions) = (Names::default(), Names::default(), Names::default());
    let mut totals = (0, 0);
    for procedure in &places.procedures {
        let own = procedure.file.as_deref().unwrap_or("???");
        say(format!("\nob={}", objects.named(&procedure.image)));
        say(format!("fl={}", files.named(own)));
        say(format!("fn={}", functions.named(&procedure.demangled)));
        let mut file = own;
        for i in &procedure.instructions {
            let frame = i.frames.first();
            let place = frame.and_then(|f| f.file.as_deref()).unwrap_or(own);
            if place != file {
                let key = if place == own { "fe" } else { "fi" };
                say(format!("{key}={}", files.named(place)));
                file = place;
            }
            let (cost, executed) = costs(places, i);
            totals = (totals.0 + cost, totals.1 + executed);
            let line = frame.and_then(|f| f.line).unwrap_or(0);
            let executed = if knows_executions { format!(" {executed}") } else { String::new() };
            say(format!("0x{:x} {line} {cost}{executed}", i.address));
        }
    }
    let executed = if knows_executions { format!(" {}", totals.1) } else { String::new() };
    say(format!("\ntotals: {}{executed}", totals.0));
    out
}

fn costs(places: &Places, i: &InstructionPlace) -> (u64, u64) {
    let whole = |x: f64| x.round().clamp(0.0, 1e18) as u64;
    (whole(i.head_samples * places.period_cycles.unwrap_or(1.0)), whole(i.executions.unwrap_or(0.0)))
}
