//! GCC's profile for `-fauto-profile`, as AutoFDO's `create_gcov` writes it.
//!
//! The format: comments of gcc/auto-profile.cc. It consists of little-endian 32-bit words; a counter is two words, the
//! low one first. A file is a magic number, a version, a 0 and three sections, each with a tag and a length that no
//! reader uses: names; functions; modules, which are empty here. A function is a counter (its entries) and an instance.
//! An instance is the number of its name, the number of positions, the number of inlined calls, then the positions
//! (place, number of targets, count, targets), and for each inlined call a place and an instance. A place is the
//! distance of the line, shifted by 16. Its low half is for a discriminator, which GCC 12 ignores, so all blocks of a
//! line are one position here.

use std::collections::BTreeMap;

use dwell_query::answer::Feedback;

use super::tree::{Body, Discriminators, Function, Position, functions};

const MAGIC: u32 = 0x6763_6461; // "gcda"
const NAMES: u32 = 0xaa00_0000;
const FUNCTIONS: u32 = 0xac00_0000;
const MODULES: u32 = 0xae00_0000;
/// The type of a histogram of the targets of an indirect call.
const INDIRECT_TARGETS: u32 = 7;

pub fn write(feedback: &Feedback, version: u32) -> Vec<u8> {
    let functions = functions(feedback, Discriminators::None);
    let names = names(&functions);
    let mut out = Words::default();
    for word in [MAGIC, version, 0] {
        out.word(word);
    }
    out.section(NAMES, |out| {
        out.count(names.len());
        names.keys().for_each(|name| out.text(name));
    });
    out.section(FUNCTIONS, |out| {
        out.count(functions.len());
        for (name, function) in &functions {
            out.counter(function.entries);
            instance(out, &names, name, function);
        }
    });
    out.section(MODULES, |out| out.word(0));
    out.0
}

/// Returns every name with its number, in sorted order.
fn names(functions: &BTreeMap<String, Function>) -> BTreeMap<&str, u32> {
    fn collect<'a>(name: &'a str, function: &'a Function, names: &mut BTreeMap<&'a str, u32>) {
        names.insert(name, 0);
        let targets = function.body.values().flat_map(|b| b.targets.keys());
        names.extend(targets.map(|t| (t.as_str(), 0)));
        function.inlined.iter().for_each(|((_, callee), f)| collect(callee, f, names));
    }
    let mut names = BTreeMap::new();
    functions.iter().for_each(|(name, f)| collect(name, f, &mut names));
    names.values_mut().zip(0..).for_each(|(number, n)| *number = n);
    names
}

/// Writes an instance. The recursion is as deep as inlined calls are nested, which the reader of debug information
/// limits.
fn instance(out: &mut Words, names: &BTreeMap<&str, u32>, name: &str, function: &Function) {
    out.word(names[name]);
    out.count(function.body.len());
    out.count(function.inlined.len());
    for (at, body) in &function.body {
        position(out, names, *at, body);
    }
    for ((at, callee), inlined) in &function.inlined {
        out.word(offset(*at));
        instance(out, names, callee, inlined);
    }
}

fn position(out: &mut Words, names: &BTreeMap<&str, u32>, at: Position, body: &Body) {
    let indirect: Vec<_> = body.targets.iter().filter(|(_, t)| t.is_indirect).collect();
    out.word(offset(at));
    out.count(indirect.len());
    out.counter(body.count);
    for (name, target) in indirect {
        out.word(INDIRECT_TARGETS);
        out.counter(u64::from(names[name.as_str()]));
        out.counter(target.count);
    }
}

fn offset(at: Position) -> u32 {
    at.line << 16 | at.discriminator
}

/// The words that are written.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn word(&mut self, word: u32) {
        self.0.extend(word.to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.word(u32::try_from(count).expect("a table in memory has fewer rows"));
    }

    fn counter(&mut self, counter: u64) {
        self.0.extend(counter.to_le_bytes());
    }

    /// Writes the length of a text in bytes including its terminating 0, and the bytes.
    fn text(&mut self, text: &str) {
        self.count(text.len() + 1);
        self.0.extend(text.bytes().chain([0]));
    }

    /// Writes a section: a tag, the number of words that follow, and what `fill` writes.
    fn section(&mut self, tag: u32, fill: impl FnOnce(&mut Words)) {
        self.word(tag);
        let mut inner = Words::default();
        fill(&mut inner);
        self.count(inner.0.len().div_ceil(4));
        self.0.append(&mut inner.0);
    }
}
