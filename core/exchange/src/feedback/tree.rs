//! Executions by function, line and inlined call: the structure that compilers with profiles by source position share.
//!
//! Enters: executions by instruction. Leaves: a tree for each function. A position is the distance of a line from the
//! line where its function is declared, so that edits elsewhere do not matter, and a discriminator that distinguishes
//! blocks of one line. Several instructions of one position in one procedure belong to one statement, so the most
//! executed one counts (AutoFDO, CGO 2016, §3.1). The same position in two procedures, which are clones of one
//! function, was executed in both, so their counts are added.

use std::collections::BTreeMap;

use dwell_query::answer::{Feedback, FeedbackFrame, FeedbackInstruction, FeedbackProcedure};

use super::whole;

/// Mask of a line's distance: compilers keep only these bits.
const LINE_MASK: u32 = 0xffff;

/// A position in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Distance from the line where the function is declared, modulo 65,536.
    pub line: u32,
    /// The block on that line; 0 for the first one.
    pub discriminator: u32,
}

/// The executions at a position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Number of executions.
    pub count: u64,
    /// The functions that were called from the position, with the numbers of calls.
    pub targets: BTreeMap<String, Target>,
}

/// The calls of one callee from a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Number of calls.
    pub count: u64,
    /// Whether it was called through a pointer.
    pub is_indirect: bool,
}

/// A function, or an inlined call of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Number of entries from outside; 0 for inlined calls.
    pub entries: u64,
    /// The executions by position.
    pub body: BTreeMap<Position, Body>,
    /// The inlined calls, by position of the call and linkage name.
    pub inlined: BTreeMap<(Position, String), Function>,
}

impl Function {
    /// Returns the sum of executions in the function and in the calls inlined into it.
    pub fn total(&self) -> u64 {
        let own = self.body.values().map(|b| b.count);
        own.chain(self.inlined.values().map(Function::total)).fold(0, u64::saturating_add)
    }

    fn add(&mut self, more: Function) {
        self.entries = self.entries.saturating_add(more.entries);
        for (position, body) in more.body {
            let sum = self.body.entry(position).or_default();
            sum.count = sum.count.saturating_add(body.count);
            for (name, target) in body.targets {
                let sum = sum.targets.entry(name).or_default();
                sum.count = sum.count.saturating_add(target.count);
                sum.is_indirect |= target.is_indirect;
            }
        }
        for (call, function) in more.inlined {
            self.inlined.entry(call).or_default().add(function);
        }
    }
}

/// The encoding of discriminators by the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discriminators {
    /// The encoding of LLVM, which includes how many copies of the instruction the optimizer made.
    Llvm,
    /// Discriminators are ignored.
    None,
}

/// Returns the functions by linkage name.
pub fn functions(feedback: &Feedback, discriminators: Discriminators) -> BTreeMap<String, Function> {
    let mut functions: BTreeMap<String, Function> = BTreeMap::new();
    for procedure in &feedback.procedures {
        for (name, function) in of_procedure(procedure, discriminators) {
            functions.entry(name).or_default().add(function);
        }
    }
    functions
}

/// Returns the functions of a procedure: usually one, which the procedure is the code of.
fn of_procedure(p: &FeedbackProcedure, discriminators: Discriminators) -> BTreeMap<String, Function> {
    let mut functions: BTreeMap<String, Function> = BTreeMap::new();
    for i in &p.instructions {
        let (Some(executions), Some(outermost)) = (i.executions, i.frames.last()) else { continue };
        let Some(name) = outermost.function.as_deref().filter(|name| is_plain(name)) else { continue };
        // If any call around the instruction has an unknown place, the instruction is left out, because it must not
        // count for the caller.
        let Some(path) = path(&i.frames, discriminators) else { continue };
        let mut function = functions.entry(name.to_owned()).or_default();
        for (position, callee) in path {
            function = function.inlined.entry((position, callee)).or_default();
        }
        let (position, copies) = position(&i.frames[0], discriminators);
        add_instruction(function.body.entry(position).or_default(), i, executions * f64::from(copies));
    }
    // A part that was split off is entered only from the rest of its function.
    let is_part = p.symbol.contains(".cold");
    if let Some(own) = entered_function(p).and_then(|name| functions.get_mut(name)).filter(|_| !is_part) {
        own.entries = whole(p.entries);
    }
    functions
}

fn entered_function(p: &FeedbackProcedure) -> Option<&str> {
    p.instructions.iter().find_map(|i| i.frames.last()?.function.as_deref())
}

fn add_instruction(body: &mut Body, i: &FeedbackInstruction, executions: f64) {
    body.count = body.count.max(whole(executions));
    for call in i.calls.iter().filter(|c| is_plain(&c.target)) {
        let target = body.targets.entry(call.target.clone()).or_default();
        target.count = target.count.saturating_add(whole(call.executions));
        target.is_indirect |= call.is_indirect;
    }
}

/// Returns the inlined calls around an instruction, outermost first; `None` if the place of one of them, or the line
/// itself, is unknown.
fn path(frames: &[FeedbackFrame], discriminators: Discriminators) -> Option<Vec<(Position, String)>> {
    if frames.iter().any(|f| f.line == 0 || f.start_line == 0) {
        return None;
    }
    let calls = frames.windows(2).rev().map(|pair| {
        let [callee, caller] = pair else { return None };
        let name = callee.function.as_deref().filter(|name| is_plain(name))?;
        Some((position(caller, discriminators).0, name.to_owned()))
    });
    calls.collect()
}

/// Returns the position of a frame, and how many copies the optimizer made of its code.
fn position(frame: &FeedbackFrame, discriminators: Discriminators) -> (Position, u32) {
    let line = frame.line.wrapping_sub(frame.start_line) & LINE_MASK;
    let (discriminator, copies) = match discriminators {
        Discriminators::Llvm => decode(frame.discriminator),
        Discriminators::None => (0, 1),
    };
    (Position { line, discriminator }, copies)
}

/// Decodes a discriminator of LLVM and returns the block and the number of copies. It holds three numbers, each with a
/// prefix that gives its length (llvm/Support/Discriminator.h): the block, how many copies unrolling and vectorizing
/// made, and which copy this is.
fn decode(discriminator: u32) -> (u32, u32) {
    let rest = match discriminator {
        absent if absent & 1 == 1 => absent >> 1,
        long if long & 0x40 != 0 => long >> 14,
        short => short >> 7,
    };
    (component(discriminator), component(rest).max(1))
}

/// Decodes the first number: an odd encoding stands for 0 and takes one bit; others have 5 or 12 bits.
fn component(encoded: u32) -> u32 {
    let number = encoded >> 1;
    match encoded {
        absent if absent & 1 == 1 => 0,
        _ if number & 0x20 != 0 => (number >> 1) & 0xfe0 | number & 0x1f,
        _ => number & 0x1f,
    }
}

/// Returns whether a name can be written: texts separate names by blanks, and by colons at their ends.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn discriminators_are_those_of_llvm() {
        // These are what clang-14 -fdebug-info-for-profiling emits for blocks 1 and 2 of a line, and for a loop
        // unrolled by 4.
        assert_eq!(decode(0), (0, 1));
        assert_eq!(decode(2), (1, 1));
        assert_eq!(decode(4), (2, 1));
        // Base 0 is one odd bit; the factor follows.
        assert_eq!(decode(4 << 2 | 1), (0, 4));
        assert_eq!(decode((4 << 1) << 7 | 1 << 1), (1, 4));
        // Base 33 has two parts with prefixes.
        let long = (33 & 0xfe0) << 1 | (33 & 0x1f) | 0x20;
        assert_eq!(decode(long << 1 | (8 << 1) << 14), (33, 8));
    }
}
