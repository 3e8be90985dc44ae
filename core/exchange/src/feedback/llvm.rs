//! LLVM's sample profile as text.
//!
//! The format: `llvm/ProfileData/SampleProfReader.h` and
//! <https://clang.llvm.org/docs/UsersManual.html#sample-profile-text-format>.
//! A function is `name:total:entries`. Below it, indented by one more blank, are lines `line[.discriminator]: count
//! callee:count…`, or `line[.discriminator]: name:total` for an inlined call, whose own lines are indented by one more
//! blank.

use std::{cmp::Reverse, fmt::Write};

use dwell_query::answer::Feedback;

use super::tree::{Discriminators, Function, Position, functions};

pub fn write(feedback: &Feedback) -> String {
    let functions = functions(feedback, Discriminators::Llvm);
    let mut hottest: Vec<(&String, &Function, u64)> =
        functions.iter().map(|(name, f)| (name, f, f.total())).collect();
    hottest.sort_by_key(|(name, _, total)| (Reverse(*total), *name));
    let mut out = String::new();
    for (name, function, total) in hottest {
        writeln!(out, "{name}:{total}:{}", function.entries).expect("a String takes every text");
        lines(&mut out, function, 1);
    }
    out
}

/// Writes the lines of a function. The recursion is as deep as the chain of inlined calls in the debug information,
/// which is limited.
fn lines(out: &mut String, function: &Function, depth: usize) {
    let mut say = |text: String| writeln!(out, "{:depth$}{text}", "").expect("a String takes every text");
    for (at, body) in &function.body {
        let targets = body.targets.iter().map(|(name, target)| format!(" {name}:{}", target.count));
        say(format!("{}: {}{}", position(*at), body.count, targets.collect::<String>()));
    }
    for ((at, name), inlined) in &function.inlined {
        writeln!(out, "{:depth$}{}: {name}:{}", "", position(*at), inlined.total())
            .expect("a String takes every text");
        lines(out, inlined, depth + 1);
    }
}

fn position(at: Position) -> String {
    match at.discriminator {
        0 => at.line.to_string(),
        discriminator => format!("{}.{discriminator}", at.line),
    }
}
