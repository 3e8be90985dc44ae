//! BOLT's profile format, fdata: one record on each line.
//!
//! The format: `bolt/Profile/DataReader.h` of LLVM. With transfers, a line is `1 FROM OFFSET 1 TO OFFSET MISPREDICTED
//! COUNT`, where 1 says that a symbol follows (0: no symbol, `[unknown]`). Without transfers, the first line is `no_lbr
//! EVENT`, and the others are `1 SYMBOL OFFSET COUNT`. For the events `cycles` and `instructions` BOLT divides the
//! count of a block by its number of instructions; for other events it uses the sum. Offsets are hexadecimal and
//! relative to the symbol. BOLT names the n-th local symbol with the same name `NAME/n`.

use std::{collections::BTreeMap, fmt::Write};

use dwell_query::answer::{Feedback, FeedbackProcedure};

use super::whole;

/// Returns the transfers between blocks, taken or not, the calls, and the entries that no known call accounts for.
pub fn transfers(feedback: &Feedback) -> String {
    let names: BTreeMap<(&str, u64), String> =
        feedback.procedures.iter().map(|p| ((p.build_id.as_str(), p.address), name(p))).collect();
    let mut out = String::new();
    let mut called: BTreeMap<(&str, u64), f64> = BTreeMap::new();
    for p in &feedback.procedures {
        let own = name(p);
        for edge in p.edges.iter().filter(|e| whole(e.executions) > 0) {
            let (from, to) = (edge.from - p.address, edge.to - p.address);
            say(&mut out, &format!("1 {own} {from:x} 1 {own} {to:x} 0 {}", whole(edge.executions)));
        }
        for (i, call) in p.instructions.iter().flat_map(|i| i.calls.iter().map(move |call| (i, call))) {
            let key = (p.build_id.as_str(), call.target_address);
            // The callee is a procedure without samples. BOLT finds it by its name, unless it is local.
            let callee = names.get(&key).map_or_else(|| escaped(&call.target), String::clone);
            *called.entry(key).or_default() += call.executions;
            if whole(call.executions) > 0 {
                let from = i.address - p.address;
                say(&mut out, &format!("1 {own} {from:x} 1 {callee} 0 0 {}", whole(call.executions)));
            }
        }
    }
    for p in &feedback.procedures {
        let known = called.get(&(p.build_id.as_str(), p.address)).copied().unwrap_or(0.0);
        let rest = whole(p.entries - known);
        if rest > 0 {
            say(&mut out, &format!("0 [unknown] 0 1 {} 0 0 {rest}", name(p)));
        }
    }
    out
}

/// Returns how often each block was executed.
pub fn blocks(feedback: &Feedback) -> String {
    let mut out = "no_lbr executions:\n".to_owned();
    for p in &feedback.procedures {
        let starts = p.block_starts.iter().filter_map(|&i| p.instructions.get(i));
        let counts = starts.filter_map(|i| Some((i.address, whole(i.executions?))));
        counts.for_each(|(address, count)| sample(&mut out, p, address, count));
    }
    out
}

/// Returns the samples at the instructions that they name.
pub fn samples(feedback: &Feedback) -> String {
    let mut out = "no_lbr cycles:\n".to_owned();
    for p in &feedback.procedures {
        p.instructions.iter().for_each(|i| sample(&mut out, p, i.address, i.samples));
    }
    out
}

fn sample(out: &mut String, p: &FeedbackProcedure, address: u64, count: u64) {
    if count > 0 {
        say(out, &format!("1 {} {:x} {count}", name(p), address - p.address));
    }
}

fn name(p: &FeedbackProcedure) -> String {
    let symbol = escaped(&p.symbol);
    p.local_number.map_or(symbol.clone(), |number| format!("{symbol}/{number}"))
}

/// Escapes a symbol, because blanks separate fields.
fn escaped(symbol: &str) -> String {
    symbol.replace('\\', "\\\\").replace(' ', "\\ ").replace(['\n', '\r', '\t'], "_")
}

fn say(out: &mut String, line: &str) {
    writeln!(out, "{line}").expect("a String takes every text");
}
